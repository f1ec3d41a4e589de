package stream

import (
	"fmt"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// kept is a table with a store of its own, in one task: the rows an aggregation or a topic
// gives. Values of type V change them.
type kept[K, V, A any] struct {
	t     *engine.Task
	step  int
	key   codec.Codec[K]
	table *state.Table[cell[A]]
	out   *tableOut[K, A]

	// apply makes of a cell, zero where there was no row, what v says, and tells whether
	// there still is a row.
	apply func(m *engine.Meta, c *cell[A], existed bool, v *V) (keep bool)
	clone *cloner[A] // of what rows were, where apply changes values in place; else nil

	// guarded, where it is not nil, calls apply under the step's error policy. Where that
	// failed for good the cell is as before.
	guarded func(m *engine.Meta, key []byte, c *cell[A], existed bool, v *V) (keep, ok bool)

	expiry  *expiry     // nil where rows stay until they are deleted
	wall    *wallExpiry // the same by the node's clock
	history *history[A] // nil where nobody asks what rows were
	w       int64       // watermark, where one of these is not nil

	own     engine.Meta // of what is pushed
	was, is A           // scratch: they escape to what follows
	buf     []byte
}

// openKept opens the table's store and all that reads the table. It is nil when that
// failed.
func openKept[K, V, A any](o *opening, n *tableNode[K, A], d *storeDecl, cells codec.Codec[cell[A]]) *kept[K, V, A] {
	store := o.openStore(d)
	if store == nil {
		return nil
	}
	r := &kept[K, V, A]{t: o.task, step: n.step.id, key: n.key, w: window.Unknown, own: engine.Meta{Offset: -1}}
	r.table = state.NewTable[cell[A]](store.Store, cells)
	store.SetTable(r.table)
	r.expiry, r.wall, r.history = openExpiry(o, n.keeps), openWallExpiry(o, n.keeps), openHistory(o, n.keeps, cells)
	if r.wall != nil {
		o.task.OnTime(r.nextWall, r.ringWall)
	}
	r.out = n.openTable(o)
	r.out.rows.get = r.get
	if r.history != nil {
		r.out.rows.asOf, r.out.old = r.asOf, true
	}
	if o.err != nil {
		return nil
	}
	return r
}

// get looks up the row of k.
func (r *kept[K, V, A]) get(k K) (row[A], bool) {
	var err error
	if r.buf, err = r.key.Append(r.buf[:0], k); err != nil {
		r.t.Fail(r.step, fmt.Errorf("encode key: %w", err))
		return row[A]{}, false
	}
	c, ok, err := r.table.Get(state.Hash(r.buf), r.buf)
	if err != nil {
		r.t.Fail(r.step, err)
	}
	if !ok {
		return row[A]{}, false
	}
	return row[A]{c.value, c.time}, true
}

// asOf looks up the row of k as it was at time t.
func (r *kept[K, V, A]) asOf(k K, t int64) (found row[A], ok, known bool) {
	var err error
	if r.buf, err = r.key.Append(r.buf[:0], k); err != nil {
		r.t.Fail(r.step, fmt.Errorf("encode key: %w", err))
		return found, false, true
	}
	c, ok, err := r.table.Get(state.Hash(r.buf), r.buf)
	if !ok {
		c = nil
	}
	if err == nil {
		found, ok, known, err = r.history.lookup(r.buf, t, c)
	}
	r.t.Fail(r.step, err)
	return found, ok, known
}

// push changes the row of a key and pushes the change.
func (r *kept[K, V, A]) push(m *engine.Meta, hash uint64, encoded []byte, v *V) {
	r.t.Running = r.step
	c, existed, err := r.table.Update(hash, encoded)
	made := change[A]{had: existed}
	if err == nil && existed && r.out.old {
		made.old = &r.was
		if r.clone == nil {
			r.was = c.value
		} else {
			r.was, err = r.clone.clone(&c.value)
		}
	}
	if err != nil {
		r.t.Fail(r.step, err)
		return
	}
	before := c.time
	made.oldTime = before
	var keep bool
	if r.guarded == nil {
		keep = r.apply(m, c, existed, v)
	} else {
		var ok bool
		if keep, ok = r.guarded(m, encoded, c, existed, v); !ok {
			if !existed {
				r.t.Fail(r.step, r.table.Delete(hash, encoded))
			}
			return
		}
	}
	if r.history != nil {
		now := c.time
		if !keep {
			now = max(m.Time, before)
			if !existed {
				now = m.Time
			}
		}
		if err := r.history.replaced(encoded, existed, before, made.old, keep, now); err != nil {
			r.t.Fail(r.step, err)
			return
		}
	}
	if keep {
		if r.expiry != nil {
			if err := r.expiry.renew(encoded, existed, before, c.time); err != nil {
				r.t.Fail(r.step, err)
				return
			}
		}
		if r.wall != nil {
			if err := r.wall.renew(hash, encoded); err != nil {
				r.t.Fail(r.step, err)
				return
			}
		}
		r.own.Time, r.is = c.time, c.value // what is pushed may look up rows, and c not last so long
		made.new = &r.is
	} else {
		r.own.Time = m.Time
		err := r.table.Delete(hash, encoded)
		if err == nil && r.wall != nil {
			err = r.wall.forget(hash, encoded)
		}
		if err != nil {
			r.t.Fail(r.step, err)
			return
		}
		if !existed {
			return
		}
	}
	r.pushed(encoded, made)
}

// pushed pushes a change that was made, to all who read the table.
func (r *kept[K, V, A]) pushed(encoded []byte, made change[A]) {
	if !r.out.read() {
		return
	}
	k, err := r.key.Decode(encoded)
	if err != nil {
		r.t.Fail(r.step, fmt.Errorf("decode key: %w", err))
		return
	}
	r.out.change(&r.own, k, made)
}

// port is the table's entrance behind a grouping.
func (r *kept[K, V, A]) port() engine.KeyedPort[V] {
	p := engine.KeyedPort[V]{Push: r.push, Watermark: r.out.Watermark, Idle: r.out.Idle, Touch: touching(r.table)}
	if r.expiry != nil || r.wall != nil || r.history != nil {
		p.Watermark = r.advance
	}
	return p
}

// advance takes a watermark: what has its time goes before it goes on.
func (r *kept[K, V, A]) advance(w int64) {
	if w != window.EndOfTime {
		r.w = w
	}
	if r.expiry != nil {
		r.expire(w)
	}
	if r.history != nil {
		r.t.Fail(r.step, r.history.forget(w))
	}
	if r.out.Watermark != nil && !r.t.Failed() {
		r.out.Watermark(w)
	}
}

// drop lets the row of a key go, which is c, at time at.
func (r *kept[K, V, A]) drop(hash uint64, encoded []byte, c *cell[A], at int64) error {
	r.was = c.value // nobody changes it any more
	before := c.time
	err := r.table.Delete(hash, encoded)
	if err == nil && r.wall != nil {
		err = r.wall.forget(hash, encoded)
	}
	if err != nil {
		return err
	}
	if r.history != nil {
		if err := r.history.replaced(encoded, true, before, &r.was, false, max(at, before)); err != nil {
			return err
		}
	}
	r.own.Time, r.own.Offset, r.own.Origin = at, -1, 0
	r.pushed(encoded, change[A]{old: &r.was, had: true, oldTime: before})
	return r.t.Err()
}

// touchBytes is the size from which a table does not stay in the processor's caches,
// and looking up a batch of keys ahead pays.
const touchBytes = 16 << 20

func touching[A any](table *state.Table[cell[A]]) func(hashes []uint64) {
	return func(hashes []uint64) {
		if table.Bytes() > touchBytes {
			table.Touch(hashes)
		}
	}
}
