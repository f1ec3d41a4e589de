package engine

import (
	"math/bits"
	"unsafe"

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
	// A sender begins with room for so many records. Where few find one to go with, it gets
	// more, up to combineBytes.
	leastCombined = 1 << 10
	mostCombined  = 1 << 14
	combineBytes  = 2 << 20
	// Where at its largest less than one record in eight finds one to go with, combining rests
	// for as many records as this times the room.
	combineRest = 64
)

// combiner is what a sender has put together and not sent. A record has one place where it
// can be; the one that is there and is another goes out first.
type combiner[V any] struct {
	o      *Combine[V]
	s      *Sender[V]
	slots  []combined // a power of two of them
	values []V        // of the records in the slots, where they are folded
	long   [][]byte   // keys that have no room in their slots
	shift  uint8      // hash >> shift is the slot
	used   []uint32   // slots that hold a record, in the order in which they came to
	pane   Pane       // of the record before
	w      int64      // watermark of the sender; what the lanes have may be behind
	next   int64      // the watermark at which what is held is sent
	meta   Meta       // of what is sent
	none   V          // the value of what is sent, where nobody reads it

	seen, merged int // since it was last looked whether this is worth it
	rest         int // records to come that are sent as they are
}

// combined is a record that may stand for several. It fills a line of the processor's cache.
type combined struct {
	hash   uint64
	pane   int64
	time   int64
	offset int64
	origin Origin
	more   uint32
	used   bool
	keyLen uint8 // length of the key in inline, or longCombined: it is in combiner.long
	inline [22]byte
}

const longCombined = 255

func newCombiner[V any](o *Combine[V], s *Sender[V]) *combiner[V] {
	c := &combiner[V]{o: o, s: s, w: window.Unknown, next: window.Unknown}
	c.grow(leastCombined)
	return c
}

// grow gives the combiner room for n records. It holds none.
func (c *combiner[V]) grow(n int) {
	c.slots, c.long = make([]combined, n), nil
	if c.o.Fold != nil {
		c.values = make([]V, n)
	}
	c.shift = uint8(64 - bits.TrailingZeros(uint(n)))
}

// most is the largest room that the combiner may have.
func (c *combiner[V]) most() int {
	size := int(unsafe.Sizeof(combined{}))
	if c.o.Fold != nil {
		var v V
		size += int(unsafe.Sizeof(v))
	}
	n := mostCombined
	for n > leastCombined && n*size > combineBytes {
		n /= 2
	}
	return n
}

// key is that of the record in a slot, valid until there is another.
func (c *combiner[V]) key(i uint32) []byte {
	e := &c.slots[i]
	if e.keyLen == longCombined {
		return c.long[i]
	}
	return e.inline[:e.keyLen]
}

// keep puts a record in a slot.
func (c *combiner[V]) keep(i uint32, m *Meta, hash uint64, key []byte, v *V) {
	e := &c.slots[i]
	e.hash, e.pane, e.time, e.offset, e.origin, e.more = hash, c.pane.Start, m.Time, m.Offset, m.Origin, m.More
	if len(key) <= len(e.inline) {
		e.keyLen = uint8(copy(e.inline[:], key))
	} else {
		if c.long == nil {
			c.long = make([][]byte, len(c.slots))
		}
		e.keyLen, c.long[i] = longCombined, append(c.long[i][:0], key...)
	}
	if c.values != nil {
		c.values[i] = *v
	}
}

// send sends the record in a slot.
func (c *combiner[V]) send(i uint32) {
	e := &c.slots[i]
	c.meta = Meta{Time: e.time, Offset: e.offset, Origin: e.origin, More: e.more}
	v := &c.none
	if c.values != nil {
		v = &c.values[i]
	}
	c.s.send(&c.meta, e.hash, c.key(i), v)
}

// take takes a record to be sent.
func (c *combiner[V]) take(m *Meta, hash uint64, key []byte, v *V) {
	if c.rest > 0 {
		c.rest--
		c.s.send(m, hash, key, v)
		return
	}
	if m.Time < c.pane.Start || m.Time >= c.pane.End {
		c.pane = c.o.Pane(m.Time)
	}
	if m.NoKey || m.Deleted || m.TooFar || c.w >= c.pane.ClosesAt {
		c.flush() // whether it is late is for whoever gets it to say, at this very watermark
		c.s.send(m, hash, key, v)
		return
	}
	i := uint32((hash ^ uint64(c.pane.Start)*0x9E3779B97F4A7C15) >> (c.shift & 63))
	e := &c.slots[i]
	c.seen++
	switch {
	case !e.used:
		e.used = true
		c.used = append(c.used, i)
	case e.hash == hash && e.pane == c.pane.Start && string(c.key(i)) == string(key):
		c.merged++
		e.more += 1 + m.More
		e.time = max(e.time, m.Time)
		e.offset, e.origin = -1, 0
		if c.o.Fold != nil {
			c.o.Fold(&c.values[i], v)
		}
		return
	default:
		c.send(i)
	}
	c.keep(i, m, hash, key, v)
	if c.seen >= 4*len(c.slots) {
		c.look()
	}
}

// look decides whether combining is worth it, and whether more room would make it so.
func (c *combiner[V]) look() {
	switch n := len(c.slots); {
	case c.merged < c.seen-c.seen/4 && n < c.most():
		c.flush()
		c.grow(4 * n)
	case c.merged < c.seen/8:
		c.flush()
		c.rest = combineRest * n
	}
	c.seen, c.merged = 0, 0
}

// watermark takes the sender's.
func (c *combiner[V]) watermark(w int64) {
	c.w = w
	if len(c.used) == 0 || w >= c.next {
		c.flush()
	}
}

// flush sends what is held, and then the watermark.
func (c *combiner[V]) flush() {
	if len(c.used) == 0 && c.s.w == c.w {
		return
	}
	var none V
	for _, i := range c.used {
		c.send(i)
		c.slots[i].used = false
		if c.values != nil {
			c.values[i] = none // lets go of what it points to
		}
	}
	c.used = c.used[:0]
	c.s.w = c.w
	c.next = c.o.Closes(c.w)
}
