package engine

import (
	"math"
	"sync"
)

// cut has the tasks that feed ordered ones, or are ordered and read sources themselves, pass
// the barrier of a checkpoint at one event time. A barrier that came to each of them
// wherever it was just then would break the order: an ordered task reads what is before the
// barrier on one lane before what is behind it on another, whatever the times.
//
// Each task joins when it sees the barrier, with the highest time that it has pushed since the
// one before. The cut is at the highest of all. Until everybody has joined it may rise, as
// tasks read on; then each reads up to it, and passes the barrier in front of the first
// record beyond, or when there is nothing to read.
//
// That is exact, also where the records of a source are not in order: one that is behind the first
// record beyond the cut comes behind that in the order, too (see order.go).
//
// A task that is far behind the others would keep a checkpoint waiting, so it passes the
// barrier after maxBehindCut records at the latest, or when its memory needs the
// checkpoint. The order is broken then, by what the others have in their lanes.
type cut struct {
	tasks []*Task

	mu     sync.Mutex // a leaf; guards the fields below
	n      int64      // the checkpoint it is for
	joined int
	at     int64
}

// maxBehindCut is how many records a task reads after the barrier came to it.
const maxBehindCut = 64 * sourceRecords

// join takes part in the cut of checkpoint n. time is the highest that t has pushed.
func (c *cut) join(n, time int64) {
	c.mu.Lock()
	if c.n != n {
		c.n, c.joined, c.at = n, 0, math.MinInt64
	}
	c.joined++
	c.at = max(c.at, time)
	settled := c.joined == len(c.tasks)
	c.mu.Unlock()
	if settled {
		for _, t := range c.tasks {
			t.Signal()
		}
	}
}

// claim tells whether a record of the given time is in front of the cut, which rises for it
// where that is still possible.
func (c *cut) claim(time int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.joined < len(c.tasks) {
		c.at = max(c.at, time)
		return true
	}
	return time <= c.at
}

// where is the cut; it is not known before all have joined.
func (c *cut) where() (at int64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at, c.joined == len(c.tasks)
}

// inFront tells whether the task may push a record of a source before the barrier
// under way, if there is one.
func (t *Task) inFront(m *Meta) bool {
	switch {
	case m.TooFar: // has no say in time
		return true
	case t.cutting == 0:
		t.newest = max(t.newest, m.Time)
	default:
		t.cutLeft--
		if !t.cut.claim(m.Time) {
			return false
		}
	}
	if t.sources == 1 {
		t.order = max(t.order, m.Time)
	}
	return true
}

// joinCut takes part in the cut of checkpoint n.
func (t *Task) joinCut(n int64) {
	t.cutting, t.cutLeft = n, maxBehindCut
	t.cut.join(n, t.newest)
}

// reachesCut tells whether the task has come to the cut that it has joined.
func (t *Task) reachesCut() bool {
	for lane := range t.lanes {
		if !t.aligner.Blocked(lane) {
			return false // the task's own sources are read with what comes there
		}
	}
	if at, known := t.cut.where(); known && !t.readsBefore(at) {
		return t.err == nil
	}
	if t.err != nil || t.cutLeft > 0 && !t.full() && !t.heldBack() {
		return false
	}
	t.counters.Unordered++
	return true
}

// readsBefore tells whether a source of the task has a record next that is not beyond at.
func (t *Task) readsBefore(at int64) bool {
	for _, in := range t.inputs {
		if s, ok := in.(interface{ readsBefore(at int64) bool }); ok && s.readsBefore(at) {
			return true
		}
	}
	return false
}
