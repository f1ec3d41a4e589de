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
type WindowTable[V any] struct {
	live[V]
	windows []*openWindow[V]           // by start
	recent  [recentSize]*openWindow[V] // by a hash of start
	hand    int                        // next window to evict from
	order   []sortedID
}

const (
	recentBits = 4
	recentSize = 1 << recentBits
)

// openWindow is a window that holds keys, or tombstones the store has not passed.
type openWindow[V any] struct {
	start    int64
	overlay  overlay[V]
	complete bool // the store has no key of the window that the overlay does not have
	cached   bool // values of the window have gone to the cache
}

// empty tells whether the window holds no key, as far as the task sees.
func (w *openWindow[V]) empty() bool { return w.complete && w.overlay.live == 0 }

// NewWindowTable returns an empty overlay over s, which must be where the attempt
// starts: CatchUp comes first. It looks up which windows the store holds.
func NewWindowTable[V any](s *Store, c codec.Codec[V]) *WindowTable[V] {
	t := &WindowTable[V]{live: newLive(s, c)}
	newOverlay[V](t.ledger) // tells the ledger the size of an entry
	for start, err := range storedWindows(s) {
		if err != nil {
			t.err = errors.Join(t.err, err)
			break
		}
		t.windows = append(t.windows, &openWindow[V]{start: start, overlay: newOverlay[V](t.ledger)})
	}
	return t
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

// SetBudget sets the memory above which Passed lets entries go that the store has.
// Zero, the default, means that none has to.
func (t *WindowTable[V]) SetBudget(bytes int64) { t.budget = bytes }

// find returns the window that starts at start, or where it would be.
func (t *WindowTable[V]) find(start int64) (i int, found bool) {
	return slices.BinarySearchFunc(t.windows, start, func(w *openWindow[V], start int64) int {
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
func (t *WindowTable[V]) window(start int64, create bool) *openWindow[V] {
	r := &t.recent[uint64(start)*hashMul0>>(64-recentBits)]
	if *r != nil && (*r).start == start {
		return *r
	}
	i, found := t.find(start)
	if !found {
		if !create {
			return nil
		}
		w := &openWindow[V]{start: start, complete: true, overlay: newOverlay[V](t.ledger)}
		t.windows = slices.Insert(t.windows, i, w)
	}
	*r = t.windows[i]
	return *r
}

// hash is that of a key in a window, for the cache.
func (w *openWindow[V]) hash(hash uint64) uint64 { return hashMix(hash, uint64(w.start)^hashMul1) }

// lookup finds key in the window, or loads it into the overlay; e is nil when
// there is no such key.
func (t *WindowTable[V]) lookup(w *openWindow[V], hash uint64, key []byte) (uint32, *entry[V], error) {
	if id, e := w.overlay.find(hash, key); e != nil || w.complete {
		return id, e, nil
	}
	t.buf = AppendWindowKey(t.buf[:0], w.start, key)
	v, ok, err := t.load(w.hash(hash), t.buf)
	if !ok {
		return 0, nil, err
	}
	id, e := w.overlay.insert(hash, key)
	e.flags |= flagInStore
	e.value = v
	return id, e, nil
}

// Get returns the live value, which may be read only.
func (t *WindowTable[V]) Get(start int64, hash uint64, key []byte) (v *V, ok bool, err error) {
	w := t.window(start, false)
	if w == nil || t.err != nil {
		return nil, false, t.err
	}
	_, e, err := t.lookup(w, hash, key)
	if e == nil || e.flags&flagDeleted != 0 {
		return nil, false, err
	}
	e.flags |= flagUsed
	return &e.value, true, nil
}

// Update returns the live value to change in place, zero where the window had no
// such key, and marks it changed.
func (t *WindowTable[V]) Update(start int64, hash uint64, key []byte) (v *V, existed bool, err error) {
	if t.err != nil {
		return nil, false, t.err
	}
	w := t.window(start, true)
	id, e := w.overlay.find(hash, key)
	if e == nil || e.flags&(flagDirty|flagDeleted) != flagDirty {
		return t.change(w, hash, key, id, e)
	}
	e.flags |= flagUsed
	return &e.value, true, nil
}

// change is Update where more is to do than to look.
func (t *WindowTable[V]) change(w *openWindow[V], hash uint64, key []byte, id uint32, e *entry[V]) (v *V, existed bool, err error) {
	if e == nil && !w.complete {
		if id, e, err = t.lookup(w, hash, key); err != nil {
			return nil, false, err
		}
	}
	e, existed = w.overlay.change(hash, key, id, e)
	return &e.value, existed, nil
}

// Delete removes key from the window. One that is absent is no error.
func (t *WindowTable[V]) Delete(start int64, hash uint64, key []byte) error {
	w := t.window(start, false)
	if w == nil || t.err != nil {
		return t.err
	}
	id, e, err := t.lookup(w, hash, key)
	if e != nil {
		w.overlay.delete(id, e)
	}
	return err
}

// Touch brings what lookups of keys with these hashes in a window need nearer to
// the processor; see Table.Touch.
func (t *WindowTable[V]) Touch(start int64, hashes []uint64) {
	if w := t.window(start, false); w != nil {
		w.overlay.touch(hashes)
	}
}

// CloseWindow calls emit for every key of the window, in ascending order, and then
// removes them all. key is valid during the call, v is the live value. emit must
// not call the table. When it returns an error the window stays as it is, and
// the error is returned as it is.
func (t *WindowTable[V]) CloseWindow(start int64, emit func(key []byte, v *V) error) error {
	if t.err != nil {
		return t.err
	}
	w := t.window(start, false)
	if w == nil {
		return nil
	}
	t.order = w.overlay.sorted(t.order[:0])
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
	if !written {
		t.ledger.dirty -= int64(len(w.overlay.dirty))
		t.remove(w)
	}
	return nil
}

// ScanWindow calls f for every key of the window, in ascending order. key is valid during
// the call, v is the live value, which may be read only. f must not call the table. When
// it returns an error that ends the scan, and is returned as it is.
func (t *WindowTable[V]) ScanWindow(start int64, f func(key []byte, v *V) error) error {
	w := t.window(start, false)
	if w == nil || t.err != nil {
		return t.err
	}
	t.order = w.overlay.sorted(t.order[:0])
	return t.emitWindow(w, f)
}

// emitWindow merges the overlay, in t.order, with the window's keys in the store.
func (t *WindowTable[V]) emitWindow(w *openWindow[V], emit func(key []byte, v *V) error) error {
	rest := t.order
	// emitOverlay emits the overlay's keys below bound, or all when it is nil, and
	// tells whether bound itself is one of them.
	emitOverlay := func(bound []byte, all bool) (has bool, err error) {
		for len(rest) > 0 {
			e := w.overlay.at(rest[0].id)
			key := w.overlay.key(e)
			if !all {
				c := bytes.Compare(key, bound)
				if c > 0 {
					return false, nil
				}
				has = c == 0
			}
			rest = rest[1:]
			if e.flags&flagDeleted == 0 {
				if err := emit(key, &e.value); err != nil {
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
		for stored, err := range t.store.Range(lo, hi) {
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
			v, err := t.decode(stored.Key, stored.Value)
			if err != nil {
				return err
			}
			// It must be here to be deleted. Until all are emitted nothing is.
			_, e := w.overlay.insert(Hash(key), key)
			e.flags |= flagInStore
			e.value = v
			if err := emit(key, &e.value); err != nil {
				return err
			}
		}
	}
	_, err := emitOverlay(nil, true)
	return err
}

// Windows returns the starts of all windows that hold a key, ascending. One whose keys were
// deleted one by one may be among them.
func (t *WindowTable[V]) Windows() []int64 {
	var starts []int64
	for _, w := range t.windows {
		if !w.empty() {
			starts = append(starts, w.start)
		}
	}
	return starts
}

// Oldest is the start of the oldest window that holds a key; see Windows.
func (t *WindowTable[V]) Oldest() (start int64, ok bool) {
	for _, w := range t.windows {
		if !w.empty() {
			return w.start, true
		}
	}
	return 0, false
}

// Barrier encodes what changed since the last barrier as part of checkpoint n; see
// Table.Barrier.
func (t *WindowTable[V]) Barrier(n int64, put func(key, value []byte) error) error {
	if err := t.begin(put); err != nil {
		return err
	}
	for _, w := range t.windows {
		if len(w.overlay.dirty) == 0 {
			continue
		}
		err := w.overlay.barrier(n, func(e *entry[V]) error {
			t.buf = AppendWindowKey(append(t.buf[:0], kindValue), w.start, w.overlay.key(e))
			return t.write(e, put)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Passed tells the table how far its store is; see Table.Passed.
func (t *WindowTable[V]) Passed(m Mark) {
	if t.ledger.pass(m) {
		t.forget()
	}
	if t.budget == 0 || t.Bytes() <= t.budget {
		return
	}
	if int64(t.used()) > t.ledger.unsettled() {
		t.evict()
	}
	if t.Bytes() > t.budget {
		t.store.expedite()
	}
}

// forget removes the tombstones the store has passed and the windows that are
// empty then.
func (t *WindowTable[V]) forget() {
	var gone []*openWindow[V]
	for _, w := range t.windows {
		o := &w.overlay
		if !w.empty() && len(o.tombs) == 0 {
			continue
		}
		// A closed window goes as a whole, unless the cache may still know its keys.
		last := len(o.tombs) - 1
		whole := w.empty() && len(o.dirty) == 0 && (last < 0 || o.tombs[last].n <= t.ledger.passed)
		if !whole || w.cached {
			o.passed(func(e *entry[V]) {
				if w.cached {
					t.share.left(w.hash(Hash(o.key(e))), e.change)
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
func (t *WindowTable[V]) remove(w *openWindow[V]) {
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
func (t *WindowTable[V]) evict() {
	goal := t.budget - t.budget/8
	enough := func() bool { return t.Bytes() <= goal }
	for range t.windows {
		if t.hand >= len(t.windows) {
			t.hand = 0
		}
		w := t.windows[t.hand]
		t.hand++
		done := w.overlay.evict(enough, func(e *entry[V]) {
			w.complete, w.cached = false, t.share.cache != nil
			key := w.overlay.key(e)
			t.buf = AppendWindowKey(t.buf[:0], w.start, key)
			t.evicted(w.hash(Hash(key)), t.buf, e)
		})
		w.overlay.shrink()
		if done {
			return
		}
	}
}

func (t *WindowTable[V]) used() int {
	n := 0
	for _, w := range t.windows {
		n += w.overlay.used
	}
	return n
}

// Bytes is the memory the overlay holds. What values point to is estimated by
// their encoded size.
func (t *WindowTable[V]) Bytes() int64 { return t.bytes(t.used()) }

// Dirty is the memory of entries that cannot leave the overlay, because the store
// has not passed them.
func (t *WindowTable[V]) Dirty() int64 { return t.unsettled() }
