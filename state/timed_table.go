package state

import (
	"fmt"

	"github.com/thalweg/thalweg/topic/codec"
)

// timedTable is the table of a handle in one task as far as the types of keys and values
// do not matter: its values are timed ones.
type timedTable struct {
	*table
	name    string
	spec    Spec
	mutable bool                             // a value may be changed through what Get returned
	owner   func(key []byte) ([]byte, error) // nil where any call may touch any entry
	expiry  *TimerQueue                      // nil without a TTL
	buf     []byte
}

// open opens the table, over neither store nor expiry where it has no changelog.
func (t *timedTable) open(store *Store, expiry *Timers, v *values, r *codec.Registry) (err error) {
	opened := newVolatileTable(v)
	if store != nil {
		opened = newTable(store, v)
	}
	t.table = &opened
	if expiry != nil {
		t.expiry = expiry.Queue(0)
	}
	return t.keyed(t.spec.Owner, r)
}

// keyed has each entry belong to what o says, where it is not nil.
func (t *timedTable) keyed(o *Owner, r *codec.Registry) (err error) {
	if o == nil {
		return nil
	}
	if t.owner, err = o.Open(r); err != nil {
		return fmt.Errorf("state: store %q: %w", t.name, err)
	}
	return nil
}

func (t *timedTable) fail(in Call, doing string, err error) {
	in.Fail(fmt.Errorf("state: store %q: %s: %w", t.name, doing, err))
}

// over tells whether a value that was put at the given time has had its time.
func (t *timedTable) over(time, now int64) bool {
	return t.spec.TTL > 0 && time+t.spec.TTL.Milliseconds() <= now
}

// read returns the entry of key; nil where there is none, or the call has failed.
func (t *timedTable) read(in Call, hash uint64, key []byte) *entry {
	e, err := t.get(hash, key)
	if err != nil {
		t.fail(in, "get", err)
		return nil
	}
	if e == nil || t.over(valueOf[stamp](e).time, in.Instant(t.spec.Wall)) {
		return nil
	}
	if t.mutable && in.Undoes() {
		t.backup(in, hash, key, e)
	}
	return e
}

// write returns the entry of key to be changed, which is new where none existed.
func (t *timedTable) write(in Call, hash uint64, key []byte) (e *entry, existed, ok bool) {
	e, err := t.get(hash, key)
	if err == nil && in.Undoes() {
		t.backup(in, hash, key, e)
	}
	if err == nil {
		e, existed, err = t.update(hash, key)
	}
	if err != nil {
		t.fail(in, "put", err)
		return nil, false, false
	}
	return e, existed, true
}

// renew lets the entry of key, which write has returned, live from now on.
func (t *timedTable) renew(in Call, hash uint64, key []byte, now int64, existed bool) *entry {
	e, _, err := t.update(hash, key)
	if err != nil {
		t.fail(in, "put", err)
		return nil
	}
	c := valueOf[stamp](e)
	c.time = max(c.time, now)
	if t.expiry != nil && !existed {
		if err := t.expiry.Add(now+t.spec.TTL.Milliseconds(), key, 0); err != nil {
			t.fail(in, "set the time to live", err)
		}
	}
	return e
}

// erase removes key.
func (t *timedTable) erase(in Call, hash uint64, key []byte) {
	if in.Undoes() {
		e, err := t.get(hash, key)
		if err != nil {
			t.fail(in, "delete", err)
			return
		}
		if e != nil {
			t.backup(in, hash, key, e)
		}
	}
	if err := t.Delete(hash, key); err != nil {
		t.fail(in, "delete", err)
	}
}

// each calls f for the entries with keys in [lo, hi), until it returns false or the call has
// failed.
func (t *timedTable) each(in Call, lo, hi []byte, f func(key []byte, e *entry) bool) {
	now := in.Instant(t.spec.Wall)
	err := t.scan(lo, hi, func(key []byte, e *entry) bool {
		if t.over(valueOf[stamp](e).time, now) {
			return true
		}
		if t.mutable && in.Undoes() {
			t.backup(in, Hash(key), key, e)
		}
		return f(key, e) && in.Err() == nil
	})
	if err != nil {
		t.fail(in, "walk", err)
	}
}

// backup registers what brings the entry back to what it is; e is nil where there is none.
func (t *timedTable) backup(in Call, hash uint64, key []byte, e *entry) {
	own := append([]byte(nil), key...)
	if e == nil {
		in.Undo(func() {
			if err := t.Delete(hash, own); err != nil {
				t.fail(in, "take a change back", err)
			}
		})
		return
	}
	encoded, err := t.live.values.append(nil, e)
	if err != nil {
		t.fail(in, "keep what a value is before it changes", err)
		return
	}
	in.Undo(func() {
		e, _, err := t.update(hash, own)
		if err == nil {
			err = t.live.values.decode(e, encoded)
		}
		if err != nil {
			t.fail(in, "take a change back", err)
		}
	})
}

// Expire removes entries whose time is over. An entry has one timer at least, at or before
// the end of its time; one that was put again meanwhile gets another.
func (t *timedTable) Expire(now int64) error {
	if t.expiry == nil {
		return nil
	}
	return t.expiry.Pop(now, func(_ int64, key []byte, _ uint8) error {
		hash := Hash(key)
		e, err := t.get(hash, key)
		if e == nil || err != nil {
			return err
		}
		time := valueOf[stamp](e).time
		if t.over(time, now) {
			return t.Delete(hash, key)
		}
		return t.expiry.Add(time+t.spec.TTL.Milliseconds(), key, 0)
	})
}

// NextExpiry is the time of the first timer.
func (t *timedTable) NextExpiry() (at int64, ok bool, err error) {
	if t.expiry == nil {
		return 0, false, nil
	}
	return t.expiry.Next()
}
