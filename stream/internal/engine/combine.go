package engine

import (
	"bytes"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/window"
)

// Combine has the senders of an exchange put records of a key together before they are
// sent, where one that stands for several gives the same result: those that belong to the same
// windows, none of which the sender's watermark has closed. So a key that has most of the
// records does not have most of what is sent.
//
// A watermark goes on behind all that was put together before it moved. It is put off meanwhile,
// until it closes a window, the task has nothing to read, or a barrier comes.
type Combine[V any] struct {
	// Pane tells which windows hold a record.
	Pane func(t int64) Pane

	// Closes is the least watermark above w that closes a window.
	Closes func(w int64) int64

	// Fold folds a value into another. Nil where nobody reads values.
	Fold func(into, v *V)
}

// Pane are the times [Start, End) that are in the same windows. ClosesAt is the watermark that
// closes the first of these.
type Pane struct{ Start, End, ClosesAt int64 }

const (
	combineBits = 10
	// combineSlots bounds the records a sender holds.
	combineSlots = 1 << combineBits
	// Where less than one record in eight finds one to go with, among so many, combining rests
	// for a while.
	combineLook = 4 * combineSlots
	combineRest = 64 * combineSlots
)

// combiner is what a sender has put together and not sent. A record has one place where it
// can be; the one that is there and is another goes out first.
type combiner[V any] struct {
	o     *Combine[V]
	s     *Sender[V]
	slots []combined[V]
	held  int
	pane  Pane  // of the record before
	w     int64 // watermark of the sender; what the lanes have may be behind
	next  int64 // the watermark at which what is held is sent

	seen, merged int // since it was last looked whether this is worth it
	rest         int // records to come that are sent as they are
}

// combined is a record that may stand for several.
type combined[V any] struct {
	used  bool
	pane  int64
	hash  uint64
	key   []byte
	meta  Meta
	value V
}

func newCombiner[V any](o *Combine[V], s *Sender[V]) *combiner[V] {
	return &combiner[V]{o: o, s: s, slots: make([]combined[V], combineSlots), w: window.Unknown, next: window.Unknown}
}

// take takes a record to be sent.
func (c *combiner[V]) take(m *Meta, key []byte, v *V) {
	if c.rest > 0 {
		c.rest--
		c.s.send(m, key, v)
		return
	}
	if m.Time < c.pane.Start || m.Time >= c.pane.End {
		c.pane = c.o.Pane(m.Time)
	}
	if m.NoKey || m.Deleted || m.TooFar || c.w >= c.pane.ClosesAt {
		c.flush() // whether it is late is for whoever gets it to say, at this very watermark
		c.s.send(m, key, v)
		return
	}
	hash := state.Hash(key)
	e := &c.slots[(hash^uint64(c.pane.Start)*0x9E3779B97F4A7C15)>>(64-combineBits)]
	c.seen++
	switch {
	case !e.used:
		c.held++
	case e.hash == hash && e.pane == c.pane.Start && bytes.Equal(e.key, key):
		c.merged++
		e.meta.More += 1 + m.More
		e.meta.Time = max(e.meta.Time, m.Time)
		e.meta.Offset, e.meta.Origin = -1, 0
		if c.o.Fold != nil {
			c.o.Fold(&e.value, v)
		}
		return
	default:
		c.s.send(&e.meta, e.key, &e.value)
	}
	e.used, e.hash, e.pane, e.key = true, hash, c.pane.Start, append(e.key[:0], key...)
	e.meta = Meta{Time: m.Time, Offset: m.Offset, Origin: m.Origin, More: m.More}
	e.value = *v
	if c.seen >= combineLook {
		c.look()
	}
}

// look decides whether combining is worth it.
func (c *combiner[V]) look() {
	if c.merged < c.seen/8 {
		c.flush()
		c.rest = combineRest
	}
	c.seen, c.merged = 0, 0
}

// watermark takes the sender's.
func (c *combiner[V]) watermark(w int64) {
	c.w = w
	if c.held == 0 || w >= c.next {
		c.flush()
	}
}

// flush sends what is held, and then the watermark.
func (c *combiner[V]) flush() {
	if c.held == 0 && c.s.w == c.w {
		return
	}
	for i := 0; c.held > 0; i++ {
		if e := &c.slots[i]; e.used {
			c.s.send(&e.meta, e.key, &e.value)
			var none V
			e.used, e.value = false, none
			c.held--
		}
	}
	c.s.w = c.w
	c.next = c.o.Closes(c.w)
}
