package state

import (
	"bytes"
	"errors"
	"iter"
	"math"
	"slices"

	"github.com/thalweg/thalweg/topic/codec"
)

// WindowTable is a Table keyed by window start and key. Each window has an
// overlay of its own, so that closing one touches no other, and in the store its
// keys lie next to each other.
//
// Hash is that of the key alone. What is said of Table holds here too.
type WindowTable[V any] struct{ windowTable }

// windowTable is a WindowTable as far as the type of its values does not matter.
type windowTable struct {
	live    live
	windows []*openWindow           // by start
	recent  [recentSize]*openWindow // by a hash of start
	hand    int                     // next window to evict from
	left    []leftWindow            // closed and forgotten, while the store has their keys
}

const (
	recentBits = 4
	recentSize = 1 << recentBits
)

// openWindow is a window that holds keys, or tombstones the store has not passed.
type openWindow struct {
	start    int64
	overlay  overlay
	complete bool // the store has no key of the window that the overlay does not have
	cached   bool // values of the window have gone to the cache
	closed   bool // since the last barrier, having had keys that the store may know
}

// leftWindow is a window that checkpoint n closed.
type leftWindow struct{ n, start int64 }

// empty tells whether the window holds no key, as far as the task sees.
func (w *openWindow) empty() bool { return w.complete && w.overlay.live == 0 }

// NewWindowTable returns an empty overlay over s, which must be where the attempt
// starts: CatchUp comes first. It looks up which windows the store holds.
func NewWindowTable[V any](s *Store, c codec.Codec[V]) *WindowTable[V] {
	return &WindowTable[V]{newWindowTable(s, valuesOf(c))}
}

func newWindowTable(s *Store, v *values) windowTable {
	t := windowTable{live: newLive(s, v)}
	for start, err := range storedWindows(s) {
		if err != nil {
			t.live.err = errors.Join(t.live.err, err)
			break
		}
		t.windows = append(t.windows, &openWindow{start: start, overlay: newOverlay(v, t.live.ledger)})
	}
	return t
}

// Get returns the live value, which may be read only.
func (t *WindowTable[V]) Get(start int64, hash uint64, key []byte) (v *V, ok bool, err error) {
	e, err := t.get(start, hash, key)
	if e == nil {
		return nil, false, err
	}
	return valueOf[V](e), true, nil
}

// Update returns the live value to change in place, zero where the window had no
// such key, and marks it changed.
func (t *WindowTable[V]) Update(start int64, hash uint64, key []byte) (v *V, existed bool, err error) {
	e, existed, err := t.update(start, hash, key)
	if e == nil {
		return nil, false, err
	}
	return valueOf[V](e), existed, nil
}

// CloseWindow calls emit for every key of the window, in ascending order, and then
// removes them all. key is valid during the call, v is the live value. emit must
// not call the table. When it returns an error the window stays as it is, and
// the error is returned as it is.
func (t *WindowTable[V]) CloseWindow(start int64, emit func(key []byte, v *V) error) error {
	return t.closeWindow(start, func(key []byte, e *entry) error { return emit(key, valueOf[V](e)) })
}

// ScanWindow calls f for every key of the window, in ascending order. key is valid during
// the call, v is the live value, which may be read only. f must not call the table. When
// it returns an error that ends the scan, and is returned as it is.
func (t *WindowTable[V]) ScanWindow(start int64, f func(key []byte, v *V) error) error {
	return t.scanWindow(start, func(key []byte, e *entry) error { return f(key, valueOf[V](e)) })
}

// storedWindows walks the windows that s holds keys of, skipping from one to the
// next.
func storedWindows(s *Store) iter.Seq2[int64, error] {
	return func(yield func(int64, error) bool) {
		var lo []byte
		for {
			found := false
			var start int64
			for e, err := range s.Range(lo, nil) {
				if err == nil {
					start, _, err = SplitWindowKey(e.Key)
				}
				if err != nil {
					yield(0, err)
					return
				}
				found = true
				break
			}
			if !found || !yield(start, nil) || start == math.MaxInt64 {
				return
			}
			lo = appendWindowStart(lo[:0], start+1)
		}
	}
}

// Err is a fault met while the table was made; see Table.Err.
func (t *windowTable) Err() error { return t.live.err }

// SetBudget sets the memory above which Passed lets entries go that the store has.
// Zero, the default, means that none has to.
func (t *windowTable) SetBudget(bytes int64) { t.live.budget = bytes }

// find returns the window that starts at start, or where it would be.
func (t *windowTable) find(start int64) (i int, found bool) {
	return slices.BinarySearchFunc(t.windows, start, func(w *openWindow, start int64) int {
		switch {
		case w.start < start:
			return -1
		case w.start > start:
			return 1
		}
		return 0
	})
}

// window returns the window that starts at start; create makes it where it is not.
func (t *windowTable) window(start int64, create bool) *openWindow {
	r := &t.recent[uint64(start)*hashMul0>>(64-recentBits)]
	if *r != nil && (*r).start == start {
		return *r
	}
	i, found := t.find(start)
	if !found {
		if !create {
			return nil
		}
		w := &openWindow{start: start, complete: true, overlay: newOverlay(t.live.values, t.live.ledger)}
		t.windows = slices.Insert(t.windows, i, w)
	}
	*r = t.windows[i]
	return *r
}

// hash is that of a key in a window, for the cache.
func (w *openWindow) hash(hash uint64) uint64 { return hashMix(hash, uint64(w.start)^hashMul1) }

// lookup finds key in the window, or loads it into the overlay; e is nil when
// there is no such key.
func (t *windowTable) lookup(w *openWindow, hash uint64, key []byte) (uint32, *entry, error) {
	if id, e := w.overlay.find(hash, key); e != nil || w.complete {
		return id, e, nil
	}
	t.live.buf = AppendWindowKey(t.live.buf[:0], w.start, key)
	return t.live.load(&w.overlay, hash, key, w.hash(hash), t.live.buf)
}

// get is Get; e is nil where there is no such key.
func (t *windowTable) get(start int64, hash uint64, key []byte) (*entry, error) {
	w := t.window(start, false)
	if w == nil || t.live.err != nil {
		return nil, t.live.err
	}
	_, e, err := t.lookup(w, hash, key)
	if e == nil || e.flags&flagDeleted != 0 {
		return nil, err
	}
	e.flags |= flagUsed
	return e, nil
}

// update is Update.
func (t *windowTable) update(start int64, hash uint64, key []byte) (e *entry, existed bool, err error) {
	if t.live.err != nil {
		return nil, false, t.live.err
	}
	w := t.window(start, true)
	id, e := w.overlay.find(hash, key)
	if e == nil || e.flags&(flagDirty|flagDeleted) != flagDirty {
		return t.change(w, hash, key, id, e)
	}
	e.flags |= flagUsed
	return e, true, nil
}

// change is update where more is to do than to look.
func (t *windowTable) change(w *openWindow, hash uint64, key []byte, id uint32, e *entry) (_ *entry, existed bool, err error) {
	if e == nil && !w.complete {
		if id, e, err = t.lookup(w, hash, key); err != nil {
			return nil, false, err
		}
	}
	e, existed = w.overlay.change(hash, key, id, e)
	return e, existed, nil
}

// Delete removes key from the window. One that is absent is no error.
func (t *windowTable) Delete(start int64, hash uint64, key []byte) error {
	w := t.window(start, false)
	if w == nil || t.live.err != nil {
		return t.live.err
	}
	id, e, err := t.lookup(w, hash, key)
	if e != nil {
		w.overlay.delete(id, e)
	}
	return err
}

// Touch brings what lookups of keys with these hashes in a window need nearer to
// the processor; see Table.Touch.
func (t *windowTable) Touch(start int64, hashes []uint64) {
	if w := t.window(start, false); w != nil {
		w.overlay.touch(hashes)
	}
}

// closeWindow is CloseWindow.
func (t *windowTable) closeWindow(start int64, emit func(key []byte, e *entry) error) error {
	if t.live.err != nil {
		return t.live.err
	}
	w := t.window(start, false)
	if w == nil {
		return nil
	}
	if err := t.emitWindow(w, emit); err != nil {
		return err
	}
	// What only the store had is in the overlay now, to be deleted.
	w.complete = true
	written := false
	for id := range w.overlay.next {
		e := w.overlay.at(id)
		if e.flags&flagOccupied == 0 {
			continue
		}
		written = written || e.flags&flagInStore != 0
		w.overlay.delete(id, e)
	}
	if w.closed = written; !written {
		t.live.ledger.dirty -= int64(len(w.overlay.dirty))
		t.remove(w)
	}
	return nil
}

// scanWindow is ScanWindow.
func (t *windowTable) scanWindow(start int64, f func(key []byte, e *entry) error) error {
	w := t.window(start, false)
	if w == nil || t.live.err != nil {
		return t.live.err
	}
	return t.emitWindow(w, f)
}

// emitWindow merges the overlay with the window's keys in the store.
func (t *windowTable) emitWindow(w *openWindow, emit func(key []byte, e *entry) error) error {
	order := sorters.Get().(*sorter)
	defer sorters.Put(order)
	w.overlay.sort(order)
	rest, near := order.list, 0
	// emitOverlay emits the overlay's keys below bound, or all when it is nil, and
	// tells whether bound itself is one of them.
	emitOverlay := func(bound []byte, all bool) (has bool, err error) {
		for len(rest) > 0 {
			if near == 0 {
				near = min(len(rest), ahead)
				w.overlay.approach(rest[:near])
			}
			e := w.overlay.at(rest[0].id)
			key := w.overlay.key(e)
			if !all {
				c := bytes.Compare(key, bound)
				if c > 0 {
					return false, nil
				}
				has = c == 0
			}
			rest, near = rest[1:], near-1
			if e.flags&flagDeleted == 0 {
				if err := emit(key, e); err != nil {
					return has, err
				}
			}
			if has {
				return true, nil
			}
		}
		return false, nil
	}
	if !w.complete {
		lo := appendWindowStart(nil, w.start)
		var hi []byte
		if w.start < math.MaxInt64 {
			hi = appendWindowStart(nil, w.start+1)
		}
		for stored, err := range t.live.store.Range(lo, hi) {
			if err != nil {
				return err
			}
			key := stored.Key[windowSize:]
			has, err := emitOverlay(key, false)
			if err != nil {
				return err
			}
			if has {
				continue
			}
			// It must be here to be deleted. Until all are emitted nothing is.
			_, e, err := t.live.insert(&w.overlay, Hash(key), key, stored.Key, stored.Value)
			if err != nil {
				return err
			}
			if err := emit(key, e); err != nil {
				return err
			}
		}
	}
	_, err := emitOverlay(nil, true)
	return err
}

// Windows returns the starts of all windows that hold a key, ascending. One whose keys were
// deleted one by one may be among them.
func (t *windowTable) Windows() []int64 {
	var starts []int64
	for _, w := range t.windows {
		if !w.empty() {
			starts = append(starts, w.start)
		}
	}
	return starts
}

// Oldest is the start of the oldest window that holds a key; see Windows.
func (t *windowTable) Oldest() (start int64, ok bool) {
	for _, w := range t.windows {
		if !w.empty() {
			return w.start, true
		}
	}
	return 0, false
}

// Barrier encodes what changed since the last barrier as part of checkpoint n; see
// Table.Barrier.
func (t *windowTable) Barrier(n int64, put func(key, value []byte) error) error {
	if err := t.live.begin(put); err != nil {
		return err
	}
	var gone []*openWindow
	for _, w := range t.windows {
		if w.closed {
			t.live.buf = appendClosedKey(t.live.buf[:0], w.start)
			if err := put(t.live.buf, nil); err != nil {
				return err
			}
			w.closed = false
			// Nobody needs the tombstones in memory: a window that is not known has no
			// keys. But the cache may still know those that it had.
			if w.overlay.live == 0 && !w.cached {
				if err := t.writeTombstones(w, put); err != nil {
					return err
				}
				gone = append(gone, w)
				t.left = append(t.left, leftWindow{n, w.start})
				continue
			}
		}
		if len(w.overlay.dirty) == 0 {
			continue
		}
		err := w.overlay.barrier(n, func(e *entry) error {
			t.live.buf = AppendWindowKey(append(t.live.buf[:0], kindValue), w.start, w.overlay.key(e))
			return t.live.write(e, put)
		})
		if err != nil {
			return err
		}
	}
	for _, w := range gone {
		t.live.ledger.dirty -= int64(len(w.overlay.dirty))
		t.remove(w)
	}
	return nil
}

// writeTombstones writes those of a closed window that are not written yet.
func (t *windowTable) writeTombstones(w *openWindow, put func(key, value []byte) error) error {
	for _, id := range w.overlay.dirty {
		e := w.overlay.at(id)
		if e.flags&flagInStore == 0 {
			continue
		}
		t.live.buf = AppendWindowKey(append(t.live.buf[:0], kindValue), w.start, w.overlay.key(e))
		if err := put(t.live.buf, nil); err != nil {
			return err
		}
	}
	return nil
}

// Passed tells the table how far its store is; see Table.Passed.
func (t *windowTable) Passed(m Mark) {
	if t.live.ledger.pass(m) {
		t.forget()
	}
	if t.live.budget == 0 || t.Bytes() <= t.live.budget {
		return
	}
	if int64(t.used()) > t.live.ledger.unsettled() {
		t.evict()
	}
	if t.Bytes() > t.live.budget {
		t.live.store.expedite()
	}
}

// forget removes the tombstones the store has passed and the windows that are
// empty then.
func (t *windowTable) forget() {
	t.left = slices.DeleteFunc(t.left, func(w leftWindow) bool { return w.n <= t.live.ledger.passed })
	var gone []*openWindow
	for _, w := range t.windows {
		o := &w.overlay
		if !w.empty() && len(o.tombs) == 0 {
			continue
		}
		// A closed window goes as a whole, unless the cache may still know its keys.
		last := len(o.tombs) - 1
		whole := w.empty() && len(o.dirty) == 0 && (last < 0 || o.tombs[last].n <= t.live.ledger.passed)
		if !whole || w.cached {
			o.passed(func(e *entry) {
				if w.cached {
					t.live.share.left(w.hash(Hash(o.key(e))), e.change)
				}
			})
		}
		if whole {
			gone = append(gone, w)
		}
	}
	for _, w := range gone {
		t.remove(w)
	}
}

// remove takes the window out of the table.
func (t *windowTable) remove(w *openWindow) {
	w.overlay.drop()
	if i, found := t.find(w.start); found {
		t.windows = slices.Delete(t.windows, i, i+1)
	}
	for i, r := range t.recent {
		if r == w {
			t.recent[i] = nil
		}
	}
}

// evict lets settled entries go until the table is somewhat below its budget,
// from one window after the other.
func (t *windowTable) evict() {
	goal := t.live.budget - t.live.budget/8
	enough := func() bool { return t.Bytes() <= goal }
	for range t.windows {
		if t.hand >= len(t.windows) {
			t.hand = 0
		}
		w := t.windows[t.hand]
		t.hand++
		done := w.overlay.evict(enough, func(e *entry) {
			w.complete, w.cached = false, t.live.share.cache != nil
			key := w.overlay.key(e)
			t.live.buf = AppendWindowKey(t.live.buf[:0], w.start, key)
			t.live.evicted(w.hash(Hash(key)), t.live.buf, e)
		})
		w.overlay.shrink()
		if done {
			return
		}
	}
}

func (t *windowTable) used() int {
	n := 0
	for _, w := range t.windows {
		n += w.overlay.used
	}
	return n
}

// Bytes is the memory the overlay holds. What values point to is estimated by
// their encoded size.
func (t *windowTable) Bytes() int64 { return t.live.bytes(t.used()) }

// Dirty is the memory of entries that cannot leave the overlay, because the store
// has not passed them.
func (t *windowTable) Dirty() int64 { return t.live.unsettled() }
