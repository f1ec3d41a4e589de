package state

import (
	"errors"

	"github.com/thalweg/thalweg/topic/codec"
)

// Table is the state of one task in one keyed store: live values in an overlay
// over the store. Only its task calls it.
//
// Keys are encoded keys, and hash is Hash(key). A value returned is valid until
// the next call of a method of the table. A table belongs to an attempt: after a
// rollback the store is caught up and a new table is made.
//
// Once Barrier or a callback has returned an error the table is of no more use
// than its attempt.
type Table[V any] struct{ table }

// table is a Table as far as the type of its values does not matter.
type table struct {
	live     live
	overlay  overlay
	complete bool // the store has no key that the overlay does not have
	volatile bool // there is no store
}

// NewTable returns an empty overlay over s, which must be where the attempt
// starts: CatchUp comes first.
func NewTable[V any](s *Store, c codec.Codec[V]) *Table[V] {
	return &Table[V]{newTable(s, valuesOf(c))}
}

func newTable(s *Store, v *values) table {
	t := table{live: newLive(s, v), complete: true}
	t.overlay = newOverlay(v, t.live.ledger)
	for _, err := range s.Range(nil, nil) {
		t.complete, t.live.err = false, errors.Join(t.live.err, err)
		break
	}
	t.complete = t.complete && t.live.err == nil
	return t
}

// Get returns the live value, which may be read only.
func (t *Table[V]) Get(hash uint64, key []byte) (v *V, ok bool, err error) {
	e, err := t.get(hash, key)
	if e == nil {
		return nil, false, err
	}
	return valueOf[V](e), true, nil
}

// Update returns the live value to change in place, zero where the key had none,
// and marks it changed.
func (t *Table[V]) Update(hash uint64, key []byte) (v *V, existed bool, err error) {
	e, existed, err := t.update(hash, key)
	if e == nil {
		return nil, false, err
	}
	return valueOf[V](e), existed, nil
}

// SetBudget sets the memory above which Passed lets entries go that the store has.
// Zero, the default, means that none has to.
func (t *table) SetBudget(bytes int64) { t.live.budget = bytes }

// Err is a fault met while the table was made, which every call returns: what is
// stored cannot be read with the codec, above all.
func (t *table) Err() error { return t.live.err }

// lookup finds key in the overlay, or loads it into the overlay; e is nil when
// there is no such key.
func (t *table) lookup(hash uint64, key []byte) (uint32, *entry, error) {
	if id, e := t.overlay.find(hash, key); e != nil || t.complete {
		return id, e, nil
	}
	if t.live.err != nil {
		return 0, nil, t.live.err
	}
	return t.live.load(&t.overlay, hash, key, hash, key)
}

// get is Get; e is nil where there is no such key.
func (t *table) get(hash uint64, key []byte) (*entry, error) {
	_, e, err := t.lookup(hash, key)
	if e == nil || e.flags&flagDeleted != 0 {
		return nil, err
	}
	e.flags |= flagUsed
	return e, nil
}

// update is Update.
func (t *table) update(hash uint64, key []byte) (e *entry, existed bool, err error) {
	id, e := t.overlay.find(hash, key)
	if e == nil || e.flags&(flagDirty|flagDeleted) != flagDirty {
		return t.change(hash, key, id, e)
	}
	e.flags |= flagUsed
	return e, true, nil
}

// change is update where more is to do than to look: the first change of a key
// since the barrier, or a key that is not in the overlay.
func (t *table) change(hash uint64, key []byte, id uint32, e *entry) (_ *entry, existed bool, err error) {
	if e == nil {
		if id, e, err = t.lookup(hash, key); err != nil {
			return nil, false, err
		}
	}
	e, existed = t.overlay.change(hash, key, id, e)
	return e, existed, nil
}

// Delete removes key. One that is absent is no error.
func (t *table) Delete(hash uint64, key []byte) error {
	id, e, err := t.lookup(hash, key)
	if e != nil {
		t.overlay.delete(id, e)
	}
	return err
}

// Touch brings what lookups of keys with these hashes need nearer to the
// processor. Calling it for a few hundred keys that are about to be looked up
// saves most of the time that a large table spends waiting for memory.
func (t *table) Touch(hashes []uint64) { t.overlay.touch(hashes) }

// Barrier encodes what changed since the last barrier as part of checkpoint n, one
// call of put per key in no particular order. Key and value are those of a changelog record, nil
// for a deleted key, and valid during the call. A key that came and went since
// the last barrier is passed over when the store does not have it.
func (t *table) Barrier(n int64, put func(key, value []byte) error) error {
	if t.volatile {
		return t.settle(n)
	}
	if err := t.live.begin(put); err != nil {
		return err
	}
	return t.overlay.barrier(n, func(e *entry) error {
		t.live.buf = append(append(t.live.buf[:0], kindValue), t.overlay.key(e)...)
		return t.live.write(e, put)
	})
}

// maxWaste is how much memory the long keys of removed entries may take before it is
// looked at.
const maxWaste = 1 << 20

// Passed tells the table how far its store is. Deletions up to there are
// forgotten, and while the table is over its budget, values that have not changed
// since move to the cache, the ones not used lately first.
func (t *table) Passed(m Mark) {
	if t.volatile {
		return
	}
	moved := t.live.ledger.pass(m)
	if moved {
		t.overlay.passed(func(e *entry) {
			if t.live.share.cache != nil {
				t.live.share.left(Hash(t.overlay.key(e)), e.change)
			}
		})
		if t.overlay.keys.waste > maxWaste {
			t.overlay.shrink()
		}
	}
	if t.live.budget == 0 || t.Bytes() <= t.live.budget {
		return
	}
	if int64(t.overlay.used) > t.live.ledger.unsettled() {
		// Some more than needed go, so that this is not done all the time.
		goal := t.live.budget - t.live.budget/8
		t.overlay.evict(
			func() bool { return t.Bytes() <= goal },
			func(e *entry) {
				t.complete = false
				key := t.overlay.key(e)
				t.live.evicted(Hash(key), key, e)
			})
		t.overlay.shrink()
	}
	if t.Bytes() > t.live.budget {
		t.live.store.expedite()
	}
}

// Bytes is the memory the overlay holds. What values point to is estimated by
// their encoded size.
func (t *table) Bytes() int64 { return t.live.bytes(t.overlay.used) }

// Dirty is the memory of entries that cannot leave the overlay, because the store
// has not passed them.
func (t *table) Dirty() int64 { return t.live.unsettled() }
