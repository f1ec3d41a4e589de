package stream

import (
	"github.com/thalweg/thalweg/stream/internal/engine"
)

// Join gives a row for each key that is in both tables, made of the two values by f, with
// the later of their times. It follows every change of either side. Like all functions of
// tables f must be a function of its arguments.
//
// The rows of a key come together in one task; a table that is not spread over its tasks
// as the other is shuffled before its rows are kept. A join has no store of its own: a
// change of one side looks up the row of the other.
func (t Table[K, V]) Join[V2, R any](other Table[K, V2], f func(V, V2) R) Table[K, R] {
	return joinTables(t, other, "join", f == nil, [2]bool{true, true}, func(v *V, v2 *V2) R { return f(*v, *v2) })
}

// LeftJoin is Join with a row for every key of t. ok tells whether other has the key; v2 is
// the zero value where it has not.
func (t Table[K, V]) LeftJoin[V2, R any](other Table[K, V2], f func(v V, v2 V2, ok bool) R) Table[K, R] {
	return joinTables(t, other, "left join", f == nil, [2]bool{true, false}, func(v *V, v2 *V2) R {
		right, ok := valueOf(v2)
		return f(*v, right, ok)
	})
}

// OuterJoin is Join with a row for every key of either table. okLeft and okRight tell which
// of the two have it.
func (t Table[K, V]) OuterJoin[V2, R any](other Table[K, V2], f func(v V, okLeft bool, v2 V2, okRight bool) R) Table[K, R] {
	return joinTables(t, other, "outer join", f == nil, [2]bool{}, func(v *V, v2 *V2) R {
		left, okLeft := valueOf(v)
		right, okRight := valueOf(v2)
		return f(left, okLeft, right, okRight)
	})
}

// valueOf is what v points to, where it does.
func valueOf[V any](v *V) (value V, ok bool) {
	if v == nil {
		return value, false
	}
	return *v, true
}

// joinTables is a join on equal keys. need tells which sides there must be a row of; pair
// gets nil for a side that has none.
func joinTables[K, V, V2, R any](t Table[K, V], other Table[K, V2], kind string, missing bool, need [2]bool, pair func(*V, *V2) R) Table[K, R] {
	s := t.n.step.app.declare(kind, t.n.step, other.n.step)
	requireFunc(s, missing)
	guards[K, Pair[V, V2]](s)
	s.joint = true
	meet(s, t.n)
	meet(s, other.n)
	n := newTable[K, R](s)
	n.each, n.settled = t.n.each && other.n.each, t.n.settled && other.n.settled
	exists := func(left, right bool) bool {
		return (left || right) && (left || !need[0]) && (right || !need[1])
	}
	n.stored = storedJoin(t.n, other.n, exists, outside(s, func(v *V, v2 *V2) (R, bool) { return pair(v, v2), true }))
	open := func(o *opening) *tableJoin[K, V, V2, R] {
		j, ok := o.opened[s.id].(*tableJoin[K, V, V2, R])
		if !ok {
			j = &tableJoin[K, V, V2, R]{t: o.task, exists: exists,
				left: viewOf(o, t.n), right: viewOf(o, other.n), own: engine.Meta{Offset: -1}}
			o.opened[s.id] = j
			j.pair = openPairs[K](o, s, pair)
			j.out = n.openTable(o)
			j.out.rows.get = j.get
			j.wantsOld = j.out.old || !s.policy().fails()
			j.time = openInputs(o, s, 2, j.out.Watermark, j.out.Idle)
		}
		return j
	}
	t.n.read(always, func(o *opening) rowPort[K, V] {
		j := open(o)
		return rowPort[K, V]{Change: j.changeLeft, Watermark: j.time.watermark(0), Idle: j.time.idle(0)}
	})
	other.n.read(always, func(o *opening) rowPort[K, V2] {
		j := open(o)
		return rowPort[K, V2]{Change: j.changeRight, Watermark: j.time.watermark(1), Idle: j.time.idle(1)}
	})
	return Table[K, R]{n}
}

// meet says that the rows of n come together with others at the joint step s: they must be
// there to be looked up, and spread over the tasks as all others.
func meet[K, V any](s *step, n *tableNode[K, V]) {
	if !n.kept {
		s.fault("joins a table of windows, whose rows are gone when their window has closed: make a table that keeps them of its results, with ToStream().ToTable()")
	}
	spreadAlike(n.step)
}

// spreadAlike has the groupings that lead to s spread what they get by the hash of the key,
// and shuffle where it is not.
func spreadAlike(s *step) {
	if s.group != nil {
		s.group.meet()
		return
	}
	for _, in := range s.inputs {
		spreadAlike(in)
	}
}

// tableJoin is a join of two tables in one task.
type tableJoin[K, V, V2, R any] struct {
	t      *engine.Task
	exists func(left, right bool) bool
	left   *view[K, V]
	right  *view[K, V2]
	out    *tableOut[K, R]
	time   *inputTimes

	wantsOld bool // it takes what a row was to know whether there was one, or what follows asks

	pair pairs[K, V, V2, R]

	own     engine.Meta
	was, is R // scratch
}

func (j *tableJoin[K, V, V2, R]) get(k K) (row[R], bool) {
	l, okLeft := j.left.get(k)
	r, okRight := j.right.get(k)
	if !j.exists(okLeft, okRight) {
		return row[R]{}, false
	}
	made, ok := j.pair.looked(ifAny(&l.value, okLeft), ifAny(&r.value, okRight))
	return row[R]{made, latest(l.time, okLeft, r.time, okRight)}, ok
}

func ifAny[V any](v *V, ok bool) *V {
	if ok {
		return v
	}
	return nil
}

// latest is the later of two times, of which there may be only one.
func latest(a int64, okA bool, b int64, okB bool) int64 {
	switch {
	case !okB:
		return a
	case !okA:
		return b
	}
	return max(a, b)
}

func (j *tableJoin[K, V, V2, R]) changeLeft(m *engine.Meta, k K, c change[V]) {
	j.left.took()
	r, ok := j.right.get(k)
	right := ifAny(&r.value, ok)
	made := change[R]{had: j.exists(c.had, ok), oldTime: latest(c.oldTime, c.had, r.time, ok)}
	if made.had && j.wantsOld {
		if j.was, made.had = j.pair.looked(c.old, right); made.had {
			made.old = &j.was
		}
	}
	j.own.Time = m.Time
	if j.exists(c.new != nil, ok) {
		j.own.Time = latest(m.Time, c.new != nil, r.time, ok)
		if j.is, ok = j.pair.made(&j.own, m, k, c.new, right); ok {
			made.new = &j.is
		}
	}
	j.change(k, made)
}

func (j *tableJoin[K, V, V2, R]) changeRight(m *engine.Meta, k K, c change[V2]) {
	j.right.took()
	l, ok := j.left.get(k)
	left := ifAny(&l.value, ok)
	made := change[R]{had: j.exists(ok, c.had), oldTime: latest(l.time, ok, c.oldTime, c.had)}
	if made.had && j.wantsOld {
		if j.was, made.had = j.pair.looked(left, c.old); made.had {
			made.old = &j.was
		}
	}
	j.own.Time = m.Time
	if j.exists(ok, c.new != nil) {
		j.own.Time = latest(l.time, ok, m.Time, c.new != nil)
		if j.is, ok = j.pair.made(&j.own, m, k, left, c.new); ok {
			made.new = &j.is
		}
	}
	j.change(k, made)
}

func (j *tableJoin[K, V, V2, R]) change(k K, made change[R]) {
	if made.had || made.new != nil {
		j.out.change(&j.own, k, made)
	}
}
