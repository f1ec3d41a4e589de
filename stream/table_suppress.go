package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// Suppression says how long Table.SuppressBy holds back changes of a row, and how many
// rows may be held back. It is a plain value; a method returns a changed copy.
type Suppression struct {
	hold     time.Duration // event time; zero until the window closes
	rows     int64         // zero is no bound
	bytes    int64         // zero is no bound
	fail     bool
	problems error
}

// HoldFor holds a row back until the watermark has come to the event time of its first
// change and d. d is in whole milliseconds, at least one.
func HoldFor(d time.Duration) Suppression {
	s := Suppression{hold: d}
	if d < time.Millisecond || d%time.Millisecond != 0 {
		s.problems = fmt.Errorf("holding back for %v: use whole milliseconds, at least one", d)
	}
	return s
}

// HoldUntilClose holds a row of a window back until the window closes, so that it is
// emitted once, when it is final.
func HoldUntilClose() Suppression { return Suppression{} }

// MaxRows bounds how many rows each task holds back. When there are more, those due first
// are emitted early.
func (s Suppression) MaxRows(n int64) Suppression {
	if n < 1 {
		s.problems = errors.Join(s.problems, fmt.Errorf("MaxRows(%d): use a positive number", n))
	}
	s.rows = n
	return s
}

// MaxBytes bounds the encoded size of the rows each task holds back. When they are larger,
// those due first are emitted early.
func (s Suppression) MaxBytes(n int64) Suppression {
	if n < 1 {
		s.problems = errors.Join(s.problems, fmt.Errorf("MaxBytes(%d): use a positive number", n))
	}
	s.bytes = n
	return s
}

// OrFail ends the job where the bounds are passed, instead of emitting early.
func (s Suppression) OrFail() Suppression {
	s.fail = true
	return s
}

// Suppress holds the changes of a row back until the watermark has come to the event time
// of the first of them and d, and then passes on the row as it is, once.
func (t Table[K, V]) Suppress[_ lazily[V]](d time.Duration) Table[K, V] {
	return t.SuppressBy(HoldFor(d))
}

// SuppressBy holds the changes of a row back as by says, and then passes on the row as it is,
// once; one that is as it was before, because it came and went, is passed over. Rows
// that are due together come in order of that time, then key. What is held back is in a
// store of its own: it may be more than fits into memory, and survives a restart with its
// times. The end of a bounded run holds nothing back. A view sees rows as they were passed on;
// of windows that are held back until they close it has none.
func (t Table[K, V]) SuppressBy[_ lazily[V]](by Suppression) Table[K, V] {
	s := t.derive("suppress", false)
	n := newTable[K, V](s)
	n.each, n.kept, n.settled, n.closing = true, t.n.kept, t.n.settled, t.n.closing
	if by.problems != nil {
		s.fault(by.problems.Error())
	}
	if by.hold == 0 && t.n.closing == nil {
		s.fault("holds back until a window closes, but the table has no windows: use HoldFor, or call it behind a windowed aggregation")
	}
	rows, due, values := s.keep("").ownKeys(), s.keep("due").keysBehind(timerBytes), cellsOf[K, V](s, nil)
	// The value of a row is in the codec of laidOut, what is around it in ours.
	cells := heldCodec[V]{values}
	n.stored = storedHeld(t.n, n, by, rows, cells)
	t.n.read(always, func(o *opening) rowPort[K, V] {
		rowStore, dueStore := o.openStore(rows), o.openStore(due)
		if rowStore == nil || dueStore == nil {
			return rowPort[K, V]{}
		}
		b := &suppressing[K, V]{t: o.task, step: s.id, by: by, key: n.key, closing: t.n.closing, watermark: window.Unknown,
			from: viewOf(o, t.n), values: newCloner(values.value), cells: cells, own: engine.Meta{Offset: -1}}
		b.table = state.NewTable[held[V]](rowStore.Store, cells)
		rowStore.SetTable(b.table)
		timers := state.NewTimers(dueStore.Store)
		dueStore.SetTable(timers)
		b.due = timers.Queue(0)
		b.out = n.openTable(o)
		b.out.rows.get = b.get
		o.task.AddClock(engine.HeldBy+s.name, b.saveSize, b.loadSize, func() {})
		return rowPort[K, V]{Change: b.change, Watermark: b.advance, Idle: b.out.Idle}
	})
	return Table[K, V]{n}
}

// storedHeld is the table as those behind a SuppressBy see it: what is held back they do not. Of
// windows that are held back until they close there never is a row.
func storedHeld[K, V any](from, n *tableNode[K, V], by Suppression, d *storeDecl, cells heldCodec[V]) *stored[K, V] {
	if from.stored == nil || by.hold == 0 {
		return nil
	}
	d.readBy(cells)
	rows := storedValues(n.key, d, func(encoded []byte) (row[held[V]], error) {
		h, err := cells.Decode(encoded)
		return row[held[V]]{value: h}, err
	})
	return storedPairs(n.key.Decode, from.stored, rows, func(is *row[V], h *row[held[V]]) (row[V], bool) {
		if h == nil {
			return valueOf(is)
		}
		return row[V]{h.value.old, h.value.oldTime}, h.value.had
	})
}

// held is a row that is held back.
type held[V any] struct {
	old     V // what was passed on last
	oldTime int64
	had     bool
	is      V
	time    int64 // of its newest change
	has     bool
	size    int64 // in bytes; 0 where nothing bounds them
}

// heldCodec is the encoding of a row that is held back:
//
//	byte     1 what was passed on last follows, 2 what it is now follows
//	varint   time of the newest change, ms since the epoch
//	uvarint  size, where a bound needs it, else 0
//	uvarint  length of what was passed on last, and that, as a cell; where flag 1 is set
//	rest     what it is now, as a cell; where flag 2 is set
type heldCodec[V any] struct{ laidOut[V] }

func (c heldCodec[V]) Append(dst []byte, h held[V]) ([]byte, error) {
	flags := byte(0)
	if h.had {
		flags |= 1
	}
	if h.has {
		flags |= 2
	}
	dst = binary.AppendVarint(append(dst, flags), h.time)
	dst = binary.AppendUvarint(dst, uint64(h.size))
	if h.had {
		old, err := c.cellCodec.Append(nil, cell[V]{time: h.oldTime, value: h.old})
		if err != nil {
			return dst, err
		}
		dst = append(binary.AppendUvarint(dst, uint64(len(old))), old...)
	}
	if h.has {
		return c.cellCodec.Append(dst, cell[V]{time: h.time, value: h.is})
	}
	return dst, nil
}

var (
	errHeld   = errors.New("stream: a row that is held back is damaged")
	errEnough = errors.New("stream: enough")
)

func (c heldCodec[V]) Decode(src []byte) (h held[V], err error) {
	if len(src) == 0 {
		return h, errHeld
	}
	h.had, h.has = src[0]&1 != 0, src[0]&2 != 0
	src = src[1:]
	time, n := binary.Varint(src)
	if n <= 0 {
		return h, errHeld
	}
	size, m := binary.Uvarint(src[n:])
	if m <= 0 {
		return h, errHeld
	}
	h.time, h.size, src = time, int64(size), src[n+m:]
	if h.had {
		length, n := binary.Uvarint(src)
		if n <= 0 || length > uint64(len(src)-n) {
			return h, errHeld
		}
		old, err := c.cellCodec.Decode(src[n : n+int(length)])
		if err != nil {
			return h, err
		}
		h.old, h.oldTime, src = old.value, old.time, src[n+int(length):]
	}
	if h.has {
		is, err := c.cellCodec.Decode(src)
		if err != nil {
			return h, err
		}
		h.is = is.value
	}
	return h, nil
}

var _ codec.Schemed = heldCodec[int]{}

// suppressing is a SuppressBy in one task.
type suppressing[K, V any] struct {
	t         *engine.Task
	step      int
	by        Suppression
	key       codec.Codec[K]
	closing   func(K) int64
	watermark int64
	from      *view[K, V]
	values    *cloner[V]
	cells     heldCodec[V]
	table     *state.Table[held[V]]
	due       *state.TimerQueue
	counted   bool  // rows and bytes are known: not yet where rows have come from other tasks
	rows      int64 // held back
	bytes     int64 // of theirs, where they are bounded
	out       *tableOut[K, V]

	own     engine.Meta
	was, is V // scratch
	buf     []byte
	sized   []byte
	looked  []byte
}

// get looks up a row as those behind see it: what is held back they do not.
func (b *suppressing[K, V]) get(k K) (row[V], bool) {
	var err error
	if b.looked, err = b.key.Append(b.looked[:0], k); err != nil {
		b.t.Fail(b.step, fmt.Errorf("encode key: %w", err))
		return row[V]{}, false
	}
	h, ok, err := b.table.Get(state.Hash(b.looked), b.looked)
	switch {
	case err != nil:
		b.t.Fail(b.step, err)
		return row[V]{}, false
	case !ok:
		return b.from.get(k)
	}
	return row[V]{h.old, h.oldTime}, h.had
}

func (b *suppressing[K, V]) change(m *engine.Meta, k K, c change[V]) {
	b.from.took()
	b.count()
	var err error
	if b.buf, err = b.key.Append(b.buf[:0], k); err != nil {
		b.t.Fail(b.step, fmt.Errorf("encode key: %w", err))
		return
	}
	hash, due := state.Hash(b.buf), b.dueAt(m, k)
	h, isHeld, err := b.table.Get(hash, b.buf)
	if err == nil && !isHeld && due <= b.watermark {
		b.out.change(m, k, c)
		return
	}
	if err == nil {
		h, isHeld, err = b.table.Update(hash, b.buf)
	}
	if err == nil && !isHeld {
		err = b.hold(h, due, c)
	}
	if err == nil {
		h.time, h.has = m.Time, c.new != nil
		if h.has {
			h.is, err = b.values.clone(c.new)
		}
	}
	if err == nil && b.by.bytes > 0 {
		err = b.measure(h)
	}
	if err != nil {
		b.t.Fail(b.step, err)
		return
	}
	b.bound()
}

// hold begins to hold back the row whose key is in b.buf.
func (b *suppressing[K, V]) hold(h *held[V], due int64, c change[V]) (err error) {
	if h.had = c.had; h.had {
		h.oldTime = c.oldTime
		if h.old, err = b.values.clone(c.old); err != nil {
			return err
		}
	}
	b.rows++
	return b.due.Add(due, b.buf, 0)
}

// release passes a row on.
func (b *suppressing[K, V]) release(encoded []byte) error {
	hash := state.Hash(encoded)
	h, ok, err := b.table.Get(hash, encoded)
	if err != nil || !ok {
		return errors.Join(err, errHeld)
	}
	k, err := b.key.Decode(encoded)
	if err != nil {
		return fmt.Errorf("decode key: %w", err)
	}
	b.count()
	b.rows, b.bytes = b.rows-1, b.bytes-h.size
	c := change[V]{had: h.had, oldTime: h.oldTime}
	if h.had {
		b.was, c.old = h.old, &b.was
	}
	if h.has {
		b.is, c.new = h.is, &b.is
	}
	b.own.Time = h.time
	if err := b.table.Delete(hash, encoded); err != nil {
		return err
	}
	if c.had || c.new != nil {
		b.out.change(&b.own, k, c)
	}
	return b.t.Err()
}

// advance passes on what is due at watermark w, and then w, less what is still held back
// may be behind it.
func (b *suppressing[K, V]) advance(w int64) {
	b.watermark = w
	if err := b.due.Pop(w, func(_ int64, key []byte, _ uint8) error { return b.release(key) }); err != nil {
		b.t.Fail(b.step, err)
		return
	}
	if b.out.Watermark == nil {
		return
	}
	if w != window.EndOfTime && w != window.Unknown {
		w -= b.by.hold.Milliseconds()
	}
	b.out.Watermark(w)
}

// count counts what is held back where the checkpoint does not tell.
func (b *suppressing[K, V]) count() {
	if b.counted {
		return
	}
	b.counted = true
	b.t.Fail(b.step, b.table.Scan(nil, nil, func(_ []byte, h *held[V]) bool {
		b.rows, b.bytes = b.rows+1, b.bytes+h.size
		return true
	}))
}

// saveSize and loadSize keep the account of what is held back in the checkpoint.
func (b *suppressing[K, V]) saveSize(dst []byte) []byte {
	b.count()
	return binary.AppendVarint(binary.AppendVarint(dst, b.rows), b.bytes)
}

func (b *suppressing[K, V]) loadSize(src []byte) error {
	rows, n := binary.Varint(src)
	if n <= 0 {
		return errHeld
	}
	bytes, m := binary.Varint(src[n:])
	if m <= 0 {
		return errHeld
	}
	b.counted, b.rows, b.bytes = true, rows, bytes
	return nil
}

// dueAt is when a row whose first change this is may go.
func (b *suppressing[K, V]) dueAt(m *engine.Meta, k K) int64 {
	if b.by.hold > 0 {
		return later(m.Time, b.by.hold.Milliseconds())
	}
	return later(b.closing(k), 1)
}

// measure takes the size of h into the account.
func (b *suppressing[K, V]) measure(h *held[V]) error {
	var err error
	b.bytes -= h.size
	if b.sized, err = b.cells.Append(b.sized[:0], *h); err != nil {
		return err
	}
	h.size = int64(len(b.sized) + len(b.buf))
	b.bytes += h.size
	return nil
}

// bound lets those due first go while more is held back than may be.
func (b *suppressing[K, V]) bound() {
	for !b.t.Failed() && (b.by.rows > 0 && b.rows > b.by.rows || b.by.bytes > 0 && b.bytes > b.by.bytes) {
		if b.by.fail {
			b.t.Fail(b.step, fmt.Errorf("%d rows are to be held back, of %d bytes, which is more than is allowed: "+
				"raise MaxRows or MaxBytes, hold back for a shorter time, or leave out OrFail", b.rows, b.bytes))
			return
		}
		at, ok, err := b.due.Next()
		if err != nil || !ok {
			b.t.Fail(b.step, errors.Join(err, errHeld))
			return
		}
		first := true // of what is due then; the others stay
		err = b.due.Pop(at, func(_ int64, key []byte, _ uint8) error {
			if first {
				first = false
				return b.release(key)
			}
			return errors.Join(b.due.Add(at, key, 0), errEnough)
		})
		if err != nil && !errors.Is(err, errEnough) {
			b.t.Fail(b.step, err)
		}
	}
}
