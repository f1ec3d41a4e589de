package stream

import "github.com/thalweg/thalweg/stream/internal/engine"

// Filter keeps the rows whose value f accepts. A row that no longer passes is deleted.
// Like all functions of tables f is called again for the same value, for what a row was
// and when a row is looked up: it must be a function of its arguments.
func (t Table[K, V]) Filter(f func(V) bool) Table[K, V] {
	s := t.derive("filter", f == nil)
	return derived(t, s, true, func(_ K, v V) (V, bool) { return v, f(v) })
}

// FilterKV keeps the rows that f accepts.
func (t Table[K, V]) FilterKV(f func(K, V) bool) Table[K, V] {
	s := t.derive("filter", f == nil)
	return derived(t, s, true, func(k K, v V) (V, bool) { return v, f(k, v) })
}

// Map replaces the value of each row by what f makes of it. f must be a function of its
// argument: it is called again for what a row was and when a row is looked up.
func (t Table[K, V]) Map[R any](f func(V) R) Table[K, R] {
	s := t.derive("map", f == nil)
	return derived(t, s, false, func(_ K, v V) (R, bool) { return f(v), true })
}

// MapKV replaces the value of each row by what f makes of key and value.
func (t Table[K, V]) MapKV[R any](f func(K, V) R) Table[K, R] {
	s := t.derive("map", f == nil)
	return derived(t, s, false, func(k K, v V) (R, bool) { return f(k, v), true })
}

// derive declares a table operator behind t.
func (t Table[K, V]) derive(kind string, noFunc bool) *step {
	s := t.n.step.app.declare(kind, t.n.step)
	requireFunc(s, noFunc)
	return s
}

// derived is a table whose rows are made of those of t by f, which may drop one. It has no
// store: a row that is looked up is made of t's. drops tells that f may drop rows, which
// takes what a row was to know whether there was one.
func derived[K, V, R any](t Table[K, V], s *step, drops bool, f func(K, V) (R, bool)) Table[K, R] {
	n := newTable[K, R](s)
	n.each, n.kept, n.settled, n.closing, n.pastOf = t.n.each, t.n.kept, t.n.settled, t.n.closing, t.n.hasPast
	n.stored = storedDerived(t.n, outside(s, f))
	guards[K, V](s)
	id := s.id
	lets := func() bool { return drops || !s.policy().fails() } // a row go
	t.n.read(func() bool { return lets() || n.wantsOld() }, func(o *opening) rowPort[K, V] {
		task, out, from := o.task, n.openTable(o), viewOf(o, t.n)
		f, makes := f, func(_ *engine.Meta, k K, v *V) (R, bool) { return f(k, *v) }
		if g := openGuard[K, V](o, s); g != nil {
			makes, f = g.rows(f)
		}
		out.rows.get = func(k K) (row[R], bool) {
			r, ok := from.get(k)
			if !ok {
				return row[R]{}, false
			}
			task.Running = id
			v, ok := f(k, r.value)
			return row[R]{v, r.time}, ok
		}
		out.rows.asOf = func(k K, t int64) (made row[R], ok, known bool) {
			r, ok, known := from.rows.asOf(k, t)
			if ok {
				task.Running = id
				made.time = r.time
				made.value, ok = f(k, r.value)
			}
			return made, ok, known
		}
		var was, is R // one for the task: they escape to what follows
		needs := lets() || out.old
		return rowPort[K, V]{Watermark: out.Watermark, Idle: out.Idle, Change: func(m *engine.Meta, k K, c change[V]) {
			from.took()
			task.Running = id
			made := change[R]{had: c.had, oldTime: c.oldTime}
			if c.had && needs {
				if was, made.had = f(k, *c.old); made.had {
					made.old = &was
				}
			}
			if c.new != nil {
				var keep bool
				if is, keep = makes(m, k, c.new); keep {
					made.new = &is
				}
			}
			if made.had || made.new != nil {
				out.change(m, k, made)
			}
		}}
	})
	return Table[K, R]{n}
}
