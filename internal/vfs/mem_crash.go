package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Crash returns what a machine finds after a power cut at this moment. Of all that
// was not synced, each change of a directory and each length is there or not; each
// page is as it was at the last sync, as it is now, or a mixture of their sectors.
// The same seed gives the same result. The receiver is left as it is, for another
// seed; the result has no hook and is not stopped.
func (m *Mem) Crash(seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	random := rand.New(rand.NewPCG(seed, 0x7468616c776567))

	// A journal keeps changes of directories in order; a file system without one
	// may lose an early change and keep a later one. Both occur.
	states := map[*memNode]map[string]*memNode{}
	entriesOf := func(dir *memNode) map[string]*memNode {
		if states[dir] == nil {
			states[dir] = maps.Clone(dir.durable)
		}
		return states[dir]
	}
	inOrder := random.IntN(2) == 0
	kept := random.IntN(len(m.journal) + 1)
	unmoved := map[*memNode]bool{} // files whose rename was lost
	for i, c := range m.journal {
		keep := inOrder && i < kept || !inOrder && random.IntN(2) == 0
		// A name that a lost rename did not set free cannot be taken by another
		// file, or the renamed one would have neither name.
		if c.to != nil && unmoved[entriesOf(c.to)[c.toName]] {
			keep = false
		}
		// Nor does a directory go that still holds something.
		if c.to == nil && c.node.isDir() && len(entriesOf(c.node)) > 0 {
			keep = false
		}
		if (!keep || !c.apply(entriesOf)) && c.isRename() {
			unmoved[c.node] = true
		}
	}

	after := NewMem()
	after.capacity = m.capacity
	var build func(dir, found *memNode)
	build = func(dir, found *memNode) {
		entries := entriesOf(dir)
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			node := &memNode{linked: true}
			if old := entries[name]; old.isDir() {
				node.entries, node.durable = map[string]*memNode{}, map[string]*memNode{}
				build(old, node)
			} else {
				node.image = old.image.crash(random)
				after.pages += node.image.space.len()
			}
			found.entries[name], found.durable[name] = node, node
		}
	}
	build(m.root, after.root)
	return after
}

// Kill returns what a process finds that is started after another was killed at
// this moment: all it wrote, synced or not, and no locks. What was not synced can
// still be lost in a later Crash. The result has no hook and is not stopped.
func (m *Mem) Kill() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	clones := map[*memNode]*memNode{}
	var clone func(n *memNode) *memNode
	cloneAll := func(entries map[string]*memNode) map[string]*memNode {
		c := make(map[string]*memNode, len(entries))
		for name, n := range entries {
			c[name] = clone(n)
		}
		return c
	}
	clone = func(n *memNode) *memNode {
		if n == nil || clones[n] != nil {
			return clones[n]
		}
		c := &memNode{linked: n.linked}
		clones[n] = c
		if n.isDir() {
			c.entries, c.durable = cloneAll(n.entries), cloneAll(n.durable)
		} else {
			c.image = n.image.clone()
		}
		return c
	}
	after := &Mem{root: clone(m.root), capacity: m.capacity, pages: m.pages}
	for _, c := range m.journal {
		c.from, c.to, c.node = clone(c.from), clone(c.to), clone(c.node)
		after.journal = append(after.journal, c)
	}
	return after
}

// WriteBack writes some of the pages that were not synced to the disk, as a kernel
// does at any time: what a later Crash finds in place of their content then is the
// present one, no longer that of the last sync. No length changes.
func (m *Mem) WriteBack(seed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	random := rand.New(rand.NewPCG(seed, 0x7772697465))
	var walk func(dir *memNode)
	walk = func(dir *memNode) {
		for _, name := range slices.Sorted(maps.Keys(dir.entries)) {
			if node := dir.entries[name]; node.isDir() {
				walk(node)
			} else {
				node.image.writeBackSome(random)
			}
		}
	}
	walk(m.root)
}
