package stream

import (
	"bytes"
	"fmt"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/window"
)

// GroupedTable is a table whose rows are put into groups, in front of an aggregation of
// each group. When a row changes, what it was is taken out of its group and what it is
// is put into its group; within one group that is one update, which takes out first.
type GroupedTable[K, V any] struct {
	g    *grouping[K, retraction[V]]
	emit window.Emit
}

// retraction is one change of a row for a group: what goes out of it, and what comes
// into it.
type retraction[V any] struct {
	old, new       V
	hasOld, hasNew bool
}

// GroupBy puts each row into the group that f names.
func (t Table[K, V]) GroupBy[K2 any](f func(V) K2) GroupedTable[K2, V] {
	return groupTable(t, t.derive("group by", f == nil), func(_ K, v V) K2 { return f(v) })
}

// GroupByKV puts each row into the group that f names.
func (t Table[K, V]) GroupByKV[K2 any](f func(K, V) K2) GroupedTable[K2, V] {
	return groupTable(t, t.derive("group by", f == nil), f)
}

func groupTable[K, V, K2 any](t Table[K, V], s *step, f func(K, V) K2) GroupedTable[K2, V] {
	s.changeKey = true
	g := newGrouping[K2, retraction[V]](s, false)
	value, err := s.app.codecs.Inner[V]()
	if err != nil {
		s.fault(fmt.Sprintf("no codec for the value: %v", err))
	}
	guards[K, V](s)
	t.n.read(always, func(o *opening) rowPort[K, V] {
		task, way, values := o.task, g.enter(o), newCloner(value)
		own := engine.Meta{Offset: -1}
		var was, is []byte // the groups
		var r retraction[V]
		wasIn := func(k K, v V) (K2, bool) { return f(k, v), true }
		isIn := func(_ *engine.Meta, k K, v *V) (K2, bool) { return f(k, *v), true }
		if g := openGuard[K, V](o, s); g != nil {
			isIn, wasIn = g.rows(wasIn)
		}
		// The values go to another task, and must not change under its hands.
		take := func(key []byte, group K2, from *V) ([]byte, V, bool) {
			key, err := g.key.Append(key[:0], group)
			if err != nil {
				task.Fail(s.id, fmt.Errorf("encode key: %w", err))
			}
			v, errValue := values.clone(from)
			if errValue != nil {
				task.Fail(s.id, errValue)
			}
			return key, v, err == nil && errValue == nil
		}
		return rowPort[K, V]{Watermark: way.Watermark, Idle: way.Idle, Change: func(m *engine.Meta, k K, c change[V]) {
			own.Time = m.Time
			r = retraction[V]{}
			ok := true
			var group K2
			task.Running = s.id
			if c.had {
				if group, r.hasOld = wasIn(k, *c.old); r.hasOld {
					was, r.old, ok = take(was, group, c.old)
				}
			}
			if ok && c.new != nil {
				if group, r.hasNew = isIn(m, k, c.new); r.hasNew {
					is, r.new, ok = take(is, group, c.new)
				}
			}
			switch {
			case !ok:
			case r.hasOld && r.hasNew && !bytes.Equal(was, is):
				in := retraction[V]{new: r.new, hasNew: true}
				r.hasNew = false
				way.Push(&own, was, &r)
				r = in
				way.Push(&own, is, &r)
			case r.hasNew:
				way.Push(&own, is, &r)
			case r.hasOld:
				way.Push(&own, was, &r)
			}
		}}
	})
	return GroupedTable[K2, V]{g: g}
}

// behind adds an aggregation below the groups.
func (g GroupedTable[K, V]) behind(kind string) *step {
	s := g.g.behind(kind, true)
	s.noSkip = "a row that is passed over when it goes into a group would be taken out of it later all the same: take Fail, or Retry and then Fail"
	return s
}

// Emit sets when the aggregation emits: OnClose, the default, each changed group once a
// checkpoint, with its newest value; OnUpdate every change.
func (g GroupedTable[K, V]) Emit(e window.Emit) GroupedTable[K, V] {
	g.emit = e
	return g
}

// Count counts the rows of each group. A group all of whose rows are gone has a count of 0.
func (g GroupedTable[K, V]) Count[_ lazily[V]]() Table[K, int64] {
	return Table[K, int64]{aggregate(g.g, g.behind("count"), g.emit, func(n *int64, _ bool, r *retraction[V]) {
		if r.hasOld {
			*n--
		}
		if r.hasNew {
			*n++
		}
	})}
}

// Reduce folds the rows of each group: add takes one in, sub takes one out that was taken
// in before. The first row of a group is where it begins. Where V is a pointer, slice or map,
// a sub that returns nil deletes the group's row.
func (g GroupedTable[K, V]) Reduce[_ lazily[V]](add, sub func(V, V) V) Table[K, V] {
	s := g.behind("reduce")
	requireFunc(s, add == nil || sub == nil)
	vanish := nilable[V]()
	return Table[K, V]{aggregate(g.g, s, g.emit, func(a *V, first bool, r *retraction[V]) {
		if r.hasOld && !first {
			*a = sub(*a, r.old)
			first = vanish && isNil(a)
		}
		switch {
		case r.hasNew && first:
			*a = r.new
		case r.hasNew:
			*a = add(*a, r.new)
		}
	})}
}

// Aggregate folds the rows of each group into an A, which begins as its zero value: add
// takes one in, sub takes one out that was taken in before.
//
// An aggregate that comes back to zero is still a row. Where A is a pointer, slice or map,
// a function that returns nil says that there is nothing: the group's row is deleted,
// and the next row of the group begins anew.
func (g GroupedTable[K, V]) Aggregate[A any](add, sub func(A, V) A) Table[K, A] {
	s := g.behind("aggregate")
	requireFunc(s, add == nil || sub == nil)
	return Table[K, A]{aggregate(g.g, s, g.emit, func(a *A, _ bool, r *retraction[V]) {
		if r.hasOld {
			*a = sub(*a, r.old)
		}
		if r.hasNew {
			*a = add(*a, r.new)
		}
	})}
}
