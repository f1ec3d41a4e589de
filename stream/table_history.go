package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// History keeps what each row was, for d of event time: a stream that is joined with the
// table (JoinTable) then finds the row as of the time of its record, not as it is when
// that is read. So does one joined with what Filter and Map make of the table; other
// operators see rows as they are.
//
// The history reaches back d from the watermark that the table's records make. A record of
// the table that is older than the newest one of its key is what the row was then and changes
// nothing else; one that is older than the history is late, and counted, unless nothing newer
// of its key is known: then it is the row. A record of the
// stream for whose time it is not known any more what the row was is late: see JoinTable. d is in
// whole milliseconds, at least one.
func History(d time.Duration) Materialize {
	m := Materialize{history: d}
	if d < time.Millisecond || d%time.Millisecond != 0 {
		m.problem = fmt.Sprintf("History of %v: use whole milliseconds, at least one", d)
	}
	return m
}

// history is what the rows of a table were, in one task. What a row is now is not in it: a
// key that has had one row only costs nothing.
//
// What a row was is kept, by key and time, with the time of the one before: a list that
// begins at a head, and ends where there is nothing at such a time. Something that was
// superseded goes, by a timer, when the history does not reach back to that time any more; so does
// a head.
type history[A any] struct {
	reach  int64 // ms
	table  *state.Table[past[A]]
	timers *state.TimerQueue
	w      int64 // watermark of the table
	buf    []byte
}

// past is what a row was from its time on, until that of the next, or the head of a key.
type past[A any] struct {
	head   bool
	newest int64 // of a head: the time of what the row is, or of its deletion
	prev   int64 // time of what it was before
	linked bool  // there is a prev
	has    bool  // there was a row; else it had been deleted
	value  A
}

// The first byte of a state key.
const (
	pastHead  = 0 // the key of the row follows
	pastEntry = 1 // the key of the row follows, and the time: big-endian, its sign bit flipped
)

// pastOwner is the key of the row that a state key is of.
func pastOwner(stateKey []byte) ([]byte, error) {
	switch {
	case len(stateKey) > 0 && stateKey[0] == pastHead:
		return stateKey[1:], nil
	case len(stateKey) > 8 && stateKey[0] == pastEntry:
		return stateKey[1 : len(stateKey)-8], nil
	}
	return nil, errPast
}

// pastCodec is the encoding of a past:
//
//	byte    1 it is a head, 2 there is something before it, 4 there was a row
//	varint  time of what the row is, ms since the epoch; where flag 1 is set
//	varint  time of what is before it; where flag 2 is set
//	rest    the row, in its own codec; where flag 4 is set
type pastCodec[A any] struct{ laidOut[A] }

var errPast = errors.New("stream: damaged history of a table")

func (c pastCodec[A]) Append(dst []byte, p past[A]) ([]byte, error) {
	at := len(dst)
	dst = append(dst, 0)
	if p.head {
		dst[at] |= 1
		dst = binary.AppendVarint(dst, p.newest)
	}
	if p.linked {
		dst[at] |= 2
		dst = binary.AppendVarint(dst, p.prev)
	}
	if p.has {
		dst[at] |= 4
		return c.value.Append(dst, p.value)
	}
	return dst, nil
}

func (c pastCodec[A]) Decode(src []byte) (p past[A], err error) {
	if len(src) == 0 || src[0] > 7 {
		return p, errPast
	}
	p.head, p.linked, p.has = src[0]&1 != 0, src[0]&2 != 0, src[0]&4 != 0
	src = src[1:]
	for _, field := range []struct {
		there bool
		v     *int64
	}{{p.head, &p.newest}, {p.linked, &p.prev}} {
		if !field.there {
			continue
		}
		v, n := binary.Varint(src)
		if n <= 0 {
			return p, errPast
		}
		*field.v, src = v, src[n:]
	}
	if p.has {
		p.value, err = c.value.Decode(src)
	}
	return p, err
}

var _ codec.Schemed = pastCodec[int]{}

// openHistory opens the history of a table; it is nil where there is none.
func openHistory[A any](o *opening, k *keeping, cells codec.Codec[cell[A]]) *history[A] {
	if k.history == 0 {
		return nil
	}
	rows, due := o.openStore(k.past), o.openStore(k.pastDue)
	if rows == nil || due == nil {
		return nil
	}
	h := &history[A]{reach: k.history.Milliseconds(), w: window.Unknown}
	h.table = state.NewTable[past[A]](rows.Store, pastCodec[A]{cells.(laidOut[A])})
	rows.SetTable(h.table)
	timers := state.NewTimers(due.Store)
	due.SetTable(timers)
	h.timers = timers.Queue(0)
	return h
}

// back is the time to which the history reaches.
func (h *history[A]) back() int64 {
	if h.w < math.MinInt64+h.reach {
		return math.MinInt64
	}
	return h.w - h.reach
}

// at is the state key of what the row of key was at time t. It is valid until the next call.
func (h *history[A]) at(key []byte, t int64) (hash uint64, stateKey []byte) {
	h.buf = append(append(h.buf[:0], pastEntry), key...)
	h.buf = binary.BigEndian.AppendUint64(h.buf, uint64(t)^1<<63)
	return state.Hash(h.buf), h.buf
}

func (h *history[A]) head(key []byte) (hash uint64, stateKey []byte) {
	h.buf = append(append(h.buf[:0], pastHead), key...)
	return state.Hash(h.buf), h.buf
}

// getHead gets the head of a key. One that the history does not reach back to is forgotten,
// whether or not its timer has fired: that may have been set when it was due.
func (h *history[A]) getHead(key []byte) (past[A], bool, error) {
	hash, at := h.head(key)
	p, ok, err := h.table.Get(hash, at)
	if !ok || later(p.newest, h.reach) <= h.w {
		return past[A]{}, false, err
	}
	return *p, true, nil
}

// before is what the row was that p comes after; ok is false at the end of the list.
func (h *history[A]) before(key []byte, p *past[A]) (q past[A], ok bool, err error) {
	if !p.linked {
		return q, false, nil
	}
	hash, at := h.at(key, p.prev)
	found, ok, err := h.table.Get(hash, at)
	if !ok {
		return q, false, err
	}
	return *found, true, nil
}

// putHead sets the head of a key, and a timer for a new one.
func (h *history[A]) putHead(key []byte, p past[A]) error {
	hash, at := h.head(key)
	head, existed, err := h.table.Update(hash, at)
	if err != nil {
		return err
	}
	p.head = true
	*head = p
	if existed {
		return nil
	}
	return h.timers.Add(later(p.newest, h.reach), at, 0)
}

// put sets what the row was at time t, until that of the next one.
func (h *history[A]) put(key []byte, t int64, p past[A], until int64) error {
	hash, at := h.at(key, t)
	entry, _, err := h.table.Update(hash, at)
	if err != nil {
		return err
	}
	*entry = p
	return h.timers.Add(later(until, h.reach), at, 0)
}

// replaced takes a change of a row to what it is at time now, no earlier than what it was.
func (h *history[A]) replaced(key []byte, had bool, before int64, old *A, has bool, now int64) error {
	if had && now > before {
		return h.supersede(key, before, past[A]{has: true, value: *old}, now)
	}
	if had && has {
		return nil // at the same time, and nobody asks for what it was within
	}
	head, ok, err := h.getHead(key)
	switch {
	case err != nil:
		return err
	case had: // deleted at the same time
		head.newest = before
		return h.putHead(key, head)
	case ok && now > head.newest: // it had been deleted
		return h.supersede(key, head.newest, past[A]{}, now)
	case !has && !ok: // so that nothing older comes to be
		return h.putHead(key, past[A]{newest: now})
	}
	return nil
}

// supersede keeps what a row was from t until now, with nothing in between.
func (h *history[A]) supersede(key []byte, t int64, p past[A], now int64) error {
	head, _, err := h.getHead(key)
	if err != nil {
		return err
	}
	p.prev, p.linked = head.prev, head.linked
	if err := h.put(key, t, p, now); err != nil {
		return err
	}
	return h.putHead(key, past[A]{newest: now, prev: t, linked: true})
}

// insert takes what a row was at time t, p, which is before newest, the time of what it is.
func (h *history[A]) insert(key []byte, t, newest int64, p past[A]) error {
	next, ok, err := h.getHead(key)
	if err != nil {
		return err
	}
	if !ok {
		next = past[A]{newest: newest}
	}
	// next is what comes after t, from until on.
	for until, first := newest, true; ; first = false {
		before, ok, err := h.before(key, &next)
		switch {
		case err != nil:
			return err
		case ok && next.prev > t:
			until, next = next.prev, before
			continue
		case ok && next.prev == t:
			before.has, before.value = p.has, p.value
			return h.put(key, t, before, until)
		}
		p.prev, p.linked = next.prev, ok
		if err := h.put(key, t, p, until); err != nil {
			return err
		}
		next.prev, next.linked = t, true
		if first {
			return h.putHead(key, next)
		}
		hash, at := h.at(key, until)
		entry, _, err := h.table.Update(hash, at)
		if err == nil {
			*entry = next
		}
		return err
	}
}

// deletedAt is when the row of a key that has none was deleted, as far as that is known.
func (h *history[A]) deletedAt(key []byte) (t int64, ok bool, err error) {
	head, ok, err := h.getHead(key)
	return head.newest, ok, err
}

// lookup finds the row of a key as of time t, before what it is now, c, or where it is not
// there now, nil. known is false where the history does not tell.
func (h *history[A]) lookup(key []byte, t int64, c *cell[A]) (r row[A], ok, known bool, err error) {
	if c != nil && c.time <= t {
		return row[A]{c.value, c.time}, true, true, nil
	}
	p, ok, err := h.getHead(key)
	if err != nil {
		return r, false, false, err
	}
	if ok && c == nil && p.newest <= t {
		return r, false, true, nil
	}
	for ok {
		at := p.prev
		if p, ok, err = h.before(key, &p); err != nil {
			return r, false, false, err
		}
		if ok && at <= t {
			return row[A]{p.value, at}, p.has, true, nil
		}
	}
	return r, false, t >= h.back(), nil
}

// forget moves the watermark to w, and lets go what the history does not reach back to.
func (h *history[A]) forget(w int64) error {
	if w == window.EndOfTime { // of a bounded run, whose records may still be joined
		return nil
	}
	h.w = w
	return h.timers.Pop(w, func(at int64, stateKey []byte, _ uint8) error {
		hash := state.Hash(stateKey)
		if stateKey[0] == pastEntry {
			return h.table.Delete(hash, stateKey)
		}
		head, ok, err := h.table.Get(hash, stateKey)
		if err != nil || !ok {
			return err
		}
		if over := later(head.newest, h.reach); over > at {
			return h.timers.Add(over, stateKey, 0)
		}
		return h.table.Delete(hash, stateKey)
	})
}
