package stream

import (
	"time"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// Table reads a topic as a table: the newest record of each key is its row, and a
// record without a value deletes it. What is newest is decided by the order of the
// partition, as a compacted topic does it, not by event time. A record without a key is
// skipped and counted. Where and how the topic is read is as Stream says.
//
// A table keeps its rows in a store, and a row until it is deleted; TTL lets those go
// that nothing renews. With a History it is the record with the highest event time that is a row.
func (app *Topology) Table[K, V any](t topic.Topic[K, V]) Table[K, V] {
	return toTable(app.Stream(t), "table")
}

// ToTable makes a table of the stream: the newest record of each key is its row, and a
// record without a value deletes it. Which is newest is decided by the order in which
// they come. A record without a key is skipped and counted.
func (s Stream[K, V]) ToTable[_ lazily[V]]() Table[K, V] { return toTable(s, "to table") }

func toTable[K, V any](s Stream[K, V], kind string) Table[K, V] {
	by := s.n.step.app.declare("group by key", s.n.step)
	by.needsKey = true
	g := group(s, by, true, func(k K, _ *V) K { return k }).g
	g.deletes = true
	st := g.behind(kind, true)
	n := newTable[K, V](st)
	n.settled = true // a row takes the place of the one before
	n.keeps = new(keeping)
	store, cells := st.keep("").ownKeys(), cellsOf[K, V](st, nil)
	n.stored = storedCells(n.key, store, codec.Codec[cell[V]](cells))
	g.downs = append(g.downs, func(o *opening) engine.KeyedPort[V] {
		r := openKept[K, V, V](o, n, store, cells)
		if r == nil {
			return engine.KeyedPort[V]{}
		}
		values := newCloner(cells.value)
		r.apply = func(m *engine.Meta, c *cell[V], _ bool, v *V) bool {
			r.own.Offset, r.own.Origin = m.Offset, m.Origin
			if m.Deleted {
				return false
			}
			// The value may be one that an aggregation above goes on to change.
			var err error
			if c.value, err = values.clone(v); err != nil {
				r.t.Fail(st.id, err)
			}
			c.time = m.Time
			return true
		}
		p := r.port()
		if r.history != nil {
			p.Push = pushInTime(r, values, p.Push)
		}
		return p
	})
	return Table[K, V]{n}
}

// pushInTime is the push of a table with a history: a record that is older than the newest of
// its key is what the row was, and changes nothing else.
func pushInTime[K, V any](r *kept[K, V, V], values *cloner[V], push func(*engine.Meta, uint64, []byte, *V)) func(*engine.Meta, uint64, []byte, *V) {
	return func(m *engine.Meta, hash uint64, key []byte, v *V) {
		var newest int64
		c, ok, err := r.table.Get(hash, key)
		if ok {
			newest = c.time
		} else if err == nil {
			newest, ok, err = r.history.deletedAt(key)
		}
		switch {
		case err != nil:
			r.t.Fail(r.step, err)
		case !ok || m.Time >= newest:
			push(m, hash, key, v)
		case m.Time < r.history.back():
			r.t.Counters().Late++
		default:
			p := past[V]{has: !m.Deleted}
			if p.has {
				p.value, err = values.clone(v)
			}
			if err == nil {
				err = r.history.insert(key, m.Time, newest, p)
			}
			r.t.Fail(r.step, err)
		}
	}
}

// Disorder sets how far the watermark of the topic that the table reads stays behind the
// newest event time. Whole milliseconds. Call it right behind Table.
func (t Table[K, V]) Disorder(d time.Duration) Table[K, V] {
	if problem := checkDisorder(d); problem != "" {
		t.n.step.app.fault(t.n.step.label(), problem)
	}
	source := t.n.step.inputs[0].inputs
	if t.n.step.kind == "table" && len(source) == 1 && source[0].clock != nil {
		source[0].clock.disorder = d
		return t
	}
	t.n.step.app.fault(t.n.step.label(), "Disorder sets the watermark of a topic: call it right behind Table")
	return t
}
