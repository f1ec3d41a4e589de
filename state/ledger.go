package state

import (
	"cmp"
	"slices"

	"github.com/thalweg/thalweg/internal/invariant"
)

// ledger counts what the overlays of one table hold, and which of it the store
// has passed.
type ledger struct {
	entrySize int64 // of an entry in memory
	memory    int64 // of slots, chunks and arenas
	freed     int64 // free entries in the chunks

	base   Mark  // the store's mark when the table was made: nothing of the table's is at or below it
	passed int64 // changes of checkpoints up to here are in the store

	dirty   int64        // entries changed since the last barrier
	waiting int64        // the sum of counts
	counts  []waitingFor // by n, ascending: entries whose last change is n and which are not dirty
}

type waitingFor struct {
	n       int64
	entries int64
}

// bytes is the memory held; free entries do not count, since the next keys use
// them.
func (l *ledger) bytes() int64 { return l.memory - l.freed*l.entrySize }

// changed notes that an entry whose last change was n becomes dirty.
func (l *ledger) changed(n int64) {
	l.dirty++
	if n <= l.passed {
		return
	}
	i, found := slices.BinarySearchFunc(l.counts, n, func(w waitingFor, n int64) int { return cmp.Compare(w.n, n) })
	invariant.Check(found, "state: no entries wait for checkpoint %d", n)
	l.counts[i].entries--
	l.waiting--
}

// stamped notes that a dirty entry was written by checkpoint n.
func (l *ledger) stamped(n int64) {
	l.dirty--
	l.waiting++
	if last := len(l.counts) - 1; last >= 0 && l.counts[last].n == n {
		l.counts[last].entries++
		return
	}
	l.counts = append(l.counts, waitingFor{n, 1})
}

// pass moves to mark m, and reports whether that changed anything. Marks up to
// base are of checkpoints that the table's own numbers do not compare with.
func (l *ledger) pass(m Mark) bool {
	if !l.base.before(m) || m.N <= l.passed {
		return false
	}
	l.passed = m.N
	i := 0
	for ; i < len(l.counts) && l.counts[i].n <= m.N; i++ {
		l.waiting -= l.counts[i].entries
	}
	l.counts = append(l.counts[:0], l.counts[i:]...)
	return true
}

// unsettled is the number of entries that cannot leave the overlay.
func (l *ledger) unsettled() int64 { return l.dirty + l.waiting }
