package vfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Mem is an in-memory FS for tests and for nodes without a directory. Names are
// relative to its root whether or not they begin with a slash.
type Mem struct {
	hook   atomic.Pointer[func(Op) error]
	stopAt atomic.Int64
	ops    atomic.Int64

	mu       sync.Mutex // guards all below, images included
	root     *memNode
	journal  []dirChange // not durable yet, oldest first
	stopped  bool
	capacity int64 // bytes; 0 means no limit
	pages    int64 // taken by all files that have a name
}

// memNode is a file or a directory.
type memNode struct {
	image   *memImage           // of a file
	entries map[string]*memNode // of a directory
	durable map[string]*memNode // what the disk has of entries
	linked  bool                // has a name; its space counts
	locked  bool
}

// dirChange is a change of directory entries: a creation (no from), a removal (no
// to), or a rename.
type dirChange struct {
	from     *memNode
	fromName string
	to       *memNode
	toName   string
	node     *memNode
}

func (c dirChange) isRename() bool { return c.from != nil && c.to != nil }

// apply does the change in the entries that entriesOf gives and tells whether it
// was possible: entries that a crash lost cannot be moved or removed.
func (c dirChange) apply(entriesOf func(dir *memNode) map[string]*memNode) bool {
	if c.from != nil {
		entries := entriesOf(c.from)
		if entries[c.fromName] != c.node {
			return false
		}
		delete(entries, c.fromName)
	}
	if c.to != nil {
		entriesOf(c.to)[c.toName] = c.node
	}
	return true
}

// NewMem returns an empty in-memory file system.
func NewMem() *Mem {
	root := newMemDir()
	root.linked = true
	return &Mem{root: root}
}

func newMemDir() *memNode {
	return &memNode{entries: map[string]*memNode{}, durable: map[string]*memNode{}}
}

func (n *memNode) isDir() bool { return n.entries != nil }

// lookupLocked returns the directory that holds name, the last part of name, and
// the node, nil where there is none. The root has no directory.
func (m *Mem) lookupLocked(name string) (dir *memNode, base string, node *memNode, err error) {
	clean := path.Clean("/" + name)[1:]
	if clean == "" {
		return nil, "", m.root, nil
	}
	dir = m.root
	parts := strings.Split(clean, "/")
	base = parts[len(parts)-1]
	for _, part := range parts[:len(parts)-1] {
		dir = dir.entries[part]
		if dir == nil {
			return nil, "", nil, fs.ErrNotExist
		}
		if !dir.isDir() {
			return nil, "", nil, syscall.ENOTDIR
		}
	}
	return dir, base, dir.entries[base], nil
}

// findLocked returns the node of a name that must exist, as a directory or not.
func (m *Mem) findLocked(name string, wantDir bool) (*memNode, error) {
	if m.stopped {
		return nil, ErrStopped
	}
	_, _, node, err := m.lookupLocked(name)
	switch {
	case err != nil:
		return nil, err
	case node == nil:
		return nil, fs.ErrNotExist
	case wantDir && !node.isDir():
		return nil, syscall.ENOTDIR
	case !wantDir && node.isDir():
		return nil, syscall.EISDIR
	}
	return node, nil
}

// changeLocked makes a change of entries, and remembers it until a SyncDir.
func (m *Mem) changeLocked(c dirChange) {
	if c.to != nil {
		if replaced := c.to.entries[c.toName]; replaced != nil {
			m.unlinkLocked(replaced)
		}
	}
	c.apply(func(dir *memNode) map[string]*memNode { return dir.entries })
	m.journal = append(m.journal, c)
	if c.to == nil {
		m.unlinkLocked(c.node)
		return
	}
	c.node.linked = true
}

func (m *Mem) unlinkLocked(node *memNode) {
	if node.image != nil && node.linked {
		m.pages -= node.image.space.len()
	}
	node.linked = false
}

func (m *Mem) Create(name string) (File, error) {
	var file *memFile
	err := m.do(Op{Kind: OpCreate, Name: name}, func() error {
		node, err := m.createLocked(name)
		if err != nil {
			return err
		}
		m.truncateLocked(node, 0)
		file = &memFile{mem: m, node: node, name: name}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return file, nil
}

// createLocked returns the file of that name, made where there was none.
func (m *Mem) createLocked(name string) (*memNode, error) {
	dir, base, node, err := m.lookupLocked(name)
	if err != nil {
		return nil, err
	}
	if node == nil {
		node = &memNode{image: newMemImage()}
		m.changeLocked(dirChange{to: dir, toName: base, node: node})
	}
	if node.isDir() {
		return nil, syscall.EISDIR
	}
	return node, nil
}

func (m *Mem) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.findLocked(name, false)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &memFile{mem: m, node: node, name: name}, nil
}

func (m *Mem) Remove(name string) error {
	return m.do(Op{Kind: OpRemove, Name: name}, func() error {
		dir, base, node, err := m.lookupLocked(name)
		switch {
		case err != nil:
			return err
		case node == nil:
			return fs.ErrNotExist
		case dir == nil:
			return syscall.EBUSY
		case len(node.entries) > 0:
			return syscall.ENOTEMPTY
		}
		m.changeLocked(dirChange{from: dir, fromName: base, node: node})
		return nil
	})
}

// RemoveAll removes one name after the other, the deepest first, so it can stop
// between any two.
func (m *Mem) RemoveAll(name string) error {
	names, err := m.List(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && !errors.Is(err, syscall.ENOTDIR):
		return err
	}
	for _, child := range names {
		if err := m.RemoveAll(path.Join(name, child)); err != nil {
			return err
		}
	}
	if err := m.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (m *Mem) Rename(oldName, newName string) error {
	return m.do(Op{Kind: OpRename, Name: oldName, NewName: newName}, func() error {
		from, fromBase, node, err := m.lookupLocked(oldName)
		if err != nil {
			return err
		}
		to, toBase, replaced, err := m.lookupLocked(newName)
		switch {
		case err != nil:
			return err
		case node == nil:
			return fs.ErrNotExist
		case from == nil || to == nil:
			return syscall.EBUSY
		case node == replaced:
			return nil
		case strings.HasPrefix(path.Clean("/"+newName)+"/", path.Clean("/"+oldName)+"/"):
			return syscall.EINVAL
		case replaced != nil && replaced.isDir() && !node.isDir():
			return syscall.EISDIR
		case replaced != nil && !replaced.isDir() && node.isDir():
			return syscall.ENOTDIR
		case replaced != nil && len(replaced.entries) > 0:
			return syscall.ENOTEMPTY
		}
		m.changeLocked(dirChange{from: from, fromName: fromBase, to: to, toName: toBase, node: node})
		return nil
	})
}

func (m *Mem) MkdirAll(dir string) error {
	clean := path.Clean("/" + dir)
	for i := 1; i <= len(clean); i++ {
		if i < len(clean) && clean[i] != '/' {
			continue
		}
		if err := m.mkdir(clean[:i], dir); err != nil {
			return err
		}
	}
	return nil
}

// mkdir makes one directory unless it exists. all is the name to report.
func (m *Mem) mkdir(name, all string) error {
	m.mu.Lock()
	_, err := m.findLocked(name, true)
	m.mu.Unlock()
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "mkdir", Path: all, Err: err}
	}
	return m.do(Op{Kind: OpMkdir, Name: name[1:]}, func() error {
		dir, base, node, err := m.lookupLocked(name)
		if err != nil {
			return err
		}
		if node == nil {
			m.changeLocked(dirChange{to: dir, toName: base, node: newMemDir()})
		}
		return nil
	})
}

func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.findLocked(dir, true)
	if err != nil {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: err}
	}
	return slices.Sorted(maps.Keys(node.entries)), nil
}

func (m *Mem) Size(name string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.findLocked(name, false)
	if err != nil {
		return 0, &fs.PathError{Op: "size", Path: name, Err: err}
	}
	return node.image.length, nil
}

func (m *Mem) SyncDir(dir string) error {
	return m.do(Op{Kind: OpSyncDir, Name: dir}, func() error {
		node, err := m.findLocked(dir, true)
		if err != nil {
			return err
		}
		m.syncDirLocked(node)
		return nil
	})
}

// syncDirLocked makes the changes of dir durable, and with a rename between two
// directories what came before it in the other.
func (m *Mem) syncDirLocked(dir *memNode) {
	dirs := map[*memNode]bool{dir: true}
	commit := make([]bool, len(m.journal))
	for i := len(m.journal) - 1; i >= 0; i-- {
		c := m.journal[i]
		if dirs[c.from] || dirs[c.to] {
			commit[i] = true
			for _, touched := range []*memNode{c.from, c.to} {
				if touched != nil {
					dirs[touched] = true
				}
			}
		}
	}
	rest := m.journal[:0]
	for i, c := range m.journal {
		if commit[i] {
			c.apply(func(dir *memNode) map[string]*memNode { return dir.durable })
		} else {
			rest = append(rest, c)
		}
	}
	clear(m.journal[len(rest):])
	m.journal = rest
}

func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	_, err := m.findLocked(name, false)
	m.mu.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		err = m.do(Op{Kind: OpCreate, Name: name}, func() error {
			_, err := m.createLocked(name)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.findLocked(name, false)
	if err == nil && node.locked {
		err = ErrLocked
	}
	if err != nil {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	node.locked = true
	return &memLock{mem: m, node: node}, nil
}

// memLock is a lock held on a file of a Mem.
type memLock struct {
	mem  *Mem
	node *memNode // nil once released
}

func (l *memLock) Close() error {
	l.mem.mu.Lock()
	defer l.mem.mu.Unlock()
	if l.node == nil {
		return fs.ErrClosed
	}
	l.node.locked = false
	l.node = nil
	return nil
}

// truncateLocked sets the length of a file and gives back the space past it.
func (m *Mem) truncateLocked(node *memNode, size int64) {
	before := node.image.space.len()
	node.image.truncate(size)
	if node.linked {
		m.pages -= before - node.image.space.len()
	}
}

// fitsLocked tells whether there is space for the first size bytes of a file.
func (m *Mem) fitsLocked(node *memNode, size int64) bool {
	if m.capacity == 0 || !node.linked {
		return true
	}
	missing := pageEnd(size) / pageBytes
	for page := range node.image.space.all() {
		if page*pageBytes < size {
			missing--
		}
	}
	return (m.pages+missing)*pageBytes <= m.capacity
}

// reserveLocked takes space for n bytes at off and returns how many of them fit.
func (m *Mem) reserveLocked(node *memNode, off, n int64) int64 {
	for page := off / pageBytes; page*pageBytes < off+n; page++ {
		if node.image.space.has(page) {
			continue
		}
		if node.linked {
			if m.capacity > 0 && (m.pages+1)*pageBytes > m.capacity {
				return max(0, page*pageBytes-off)
			}
			m.pages++
		}
		node.image.space.add(page)
	}
	return n
}
