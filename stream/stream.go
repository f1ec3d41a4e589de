package stream

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
)

// Stream is a sequence of records with keys of type K and values of type V. It is a
// description, a plain value that may be used any number of times.
type Stream[K, V any] struct{ n *node[K, V] }

// derive declares a step behind s that gives values of the same types.
func (s Stream[K, V]) derive(kind string) *node[K, V] {
	return &node[K, V]{step: s.n.step.app.declare(kind, s.n.step)}
}

// Filter keeps the records whose value f accepts.
func (s Stream[K, V]) Filter(f func(V) bool) Stream[K, V] {
	out := s.derive("filter")
	requireFunc(out.step, f == nil)
	return filter(s, out, func(_ K, v *V) bool { return f(*v) })
}

// FilterKV keeps the records that f accepts.
func (s Stream[K, V]) FilterKV(f func(K, V) bool) Stream[K, V] {
	out := s.derive("filter")
	out.step.needsKey = true
	requireFunc(out.step, f == nil)
	return filter(s, out, func(k K, v *V) bool { return f(k, *v) })
}

// Operators get values by pointer, since a large one is copied for as often as it is handed
// on: once, to the user's function.

func filter[K, V any](s Stream[K, V], out *node[K, V], f func(K, *V) bool) Stream[K, V] {
	id := out.step.id
	guards[K, V](out.step)
	connect(s.n, out.step, func(o *opening) port[K, V] {
		t, down := o.task, out.open(o)
		push := down.Push
		if g := openGuard[K, V](o, out.step); g != nil {
			call := g.call(func(k K, v *V) (bool, error) { return f(k, v), nil })
			down.Push = func(m *engine.Meta, k K, v *V) {
				if m.Deleted {
					push(m, k, v)
				} else if keep, ok := call(m, k, v); ok && keep {
					push(m, k, v)
				}
			}
			return down
		}
		down.Push = func(m *engine.Meta, k K, v *V) {
			t.Running = id
			if m.Deleted || f(k, v) {
				push(m, k, v)
			}
		}
		return down
	})
	return Stream[K, V]{out}
}

// Map replaces each value by what f makes of it.
func (s Stream[K, V]) Map[R any](f func(V) R) Stream[K, R] {
	out := &node[K, R]{step: s.n.step.app.declare("map", s.n.step)}
	requireFunc(out.step, f == nil)
	return mapValues(s, out, func(_ K, v *V, r *R) error {
		*r = f(*v)
		return nil
	})
}

// MapKV replaces each value by what f makes of key and value.
func (s Stream[K, V]) MapKV[R any](f func(K, V) R) Stream[K, R] {
	out := &node[K, R]{step: s.n.step.app.declare("map", s.n.step)}
	out.step.needsKey = true
	requireFunc(out.step, f == nil)
	return mapValues(s, out, func(k K, v *V, r *R) error {
		*r = f(k, *v)
		return nil
	})
}

// TryMap is Map with a function that may fail: OnError says what becomes of the record.
func (s Stream[K, V]) TryMap[R any](f func(V) (R, error)) Stream[K, R] {
	out := &node[K, R]{step: s.n.step.app.declare("try map", s.n.step)}
	requireFunc(out.step, f == nil)
	return mapValues(s, out, func(_ K, v *V, r *R) (err error) {
		*r, err = f(*v)
		return err
	})
}

func mapValues[K, V, R any](s Stream[K, V], out *node[K, R], f func(K, *V, *R) error) Stream[K, R] {
	id := out.step.id
	guards[K, V](out.step)
	connect(s.n, out.step, func(o *opening) port[K, V] {
		t, down := o.task, out.open(o)
		var r R // one for the task: it escapes to what follows
		if g := openGuard[K, V](o, out.step); g != nil {
			call := g.call(func(k K, v *V) (struct{}, error) { return struct{}{}, f(k, v, &r) })
			return port[K, V]{Watermark: down.Watermark, Idle: down.Idle, Push: func(m *engine.Meta, k K, v *V) {
				ok := true
				if m.Deleted {
					var none R
					r = none
				} else {
					_, ok = call(m, k, v)
				}
				if ok {
					down.Push(m, k, &r)
				}
			}}
		}
		return port[K, V]{Watermark: down.Watermark, Idle: down.Idle, Push: func(m *engine.Meta, k K, v *V) {
			t.Running = id
			if m.Deleted {
				var none R
				r = none
			} else if err := f(k, v, &r); err != nil {
				t.Fail(id, err)
				return
			}
			down.Push(m, k, &r)
		}}
	})
	return Stream[K, R]{out}
}

// FlatMap replaces each record by one for each value that f yields, with the same
// key and time. A record without a value is skipped and counted.
func (s Stream[K, V]) FlatMap[R any](f func(V) iter.Seq[R]) Stream[K, R] {
	out := &node[K, R]{step: s.n.step.app.declare("flat map", s.n.step)}
	requireFunc(out.step, f == nil)
	return flatMap(s, out, func(_ K, v V) iter.Seq[R] { return f(v) })
}

// FlatMapKV is FlatMap with a function that also sees the key.
func (s Stream[K, V]) FlatMapKV[R any](f func(K, V) iter.Seq[R]) Stream[K, R] {
	out := &node[K, R]{step: s.n.step.app.declare("flat map", s.n.step)}
	out.step.needsKey = true
	requireFunc(out.step, f == nil)
	return flatMap(s, out, f)
}

func flatMap[K, V, R any](s Stream[K, V], out *node[K, R], f func(K, V) iter.Seq[R]) Stream[K, R] {
	id := out.step.id
	guards[K, V](out.step)
	connect(s.n, out.step, func(o *opening) port[K, V] {
		t, down := o.task, out.open(o)
		if g := openGuard[K, V](o, out.step); g != nil {
			return flatMapGuarded(t, g, f, down)
		}
		// The yield function is made once a task; what it needs of the record is here.
		var (
			meta *engine.Meta
			key  K
			r    R
		)
		yield := func(v R) bool {
			r = v
			down.Push(meta, key, &r)
			t.Running = id
			return !t.Failed()
		}
		return port[K, V]{Watermark: down.Watermark, Idle: down.Idle, Push: func(m *engine.Meta, k K, v *V) {
			if m.Deleted {
				t.Counters().NoValue++
				return
			}
			t.Running = id
			meta, key = m, k
			if seq := f(k, *v); seq != nil {
				seq(yield)
			}
		}}
	})
	return Stream[K, R]{out}
}

// flatMapGuarded is FlatMap under a policy: what a call yields goes on when it is over.
func flatMapGuarded[K, V, R any](t *engine.Task, g *guard[K, V], f func(K, V) iter.Seq[R], down port[K, R]) port[K, V] {
	call := g.call(func(k K, v *V) (all []R, err error) {
		if seq := f(k, *v); seq != nil {
			all = slices.Collect(seq)
		}
		return all, nil
	})
	return port[K, V]{Watermark: down.Watermark, Idle: down.Idle, Push: func(m *engine.Meta, k K, v *V) {
		if m.Deleted {
			t.Counters().NoValue++
			return
		}
		all, ok := call(m, k, v)
		for i := 0; ok && i < len(all) && !t.Failed(); i++ {
			down.Push(m, k, &all[i])
		}
	}}
}

// KeyBy gives each record the key that f makes of its value. Records move to other
// tasks only where something behind needs all records of a key in one place. A
// record without a value is skipped and counted.
func (s Stream[K, V]) KeyBy[K2 any](f func(V) K2) Stream[K2, V] {
	out := &node[K2, V]{step: s.n.step.app.declare("key by", s.n.step)}
	requireFunc(out.step, f == nil)
	return keyBy(s, out, func(_ K, v *V) K2 { return f(*v) })
}

// KeyByKV is KeyBy with a function that also sees the old key.
func (s Stream[K, V]) KeyByKV[K2 any](f func(K, V) K2) Stream[K2, V] {
	out := &node[K2, V]{step: s.n.step.app.declare("key by", s.n.step)}
	out.step.needsKey = true
	requireFunc(out.step, f == nil)
	return keyBy(s, out, func(k K, v *V) K2 { return f(k, *v) })
}

func keyBy[K, V, K2 any](s Stream[K, V], out *node[K2, V], f func(K, *V) K2) Stream[K2, V] {
	id := out.step.id
	out.step.changeKey = true
	guards[K, V](out.step)
	connect(s.n, out.step, func(o *opening) port[K, V] {
		t, down := o.task, out.open(o)
		var call func(m *engine.Meta, k K, v *V) (K2, bool)
		if g := openGuard[K, V](o, out.step); g != nil {
			call = g.call(func(k K, v *V) (K2, error) { return f(k, v), nil })
		}
		return port[K, V]{Watermark: down.Watermark, Idle: down.Idle, Push: func(m *engine.Meta, k K, v *V) {
			if m.Deleted {
				t.Counters().NoValue++
				return
			}
			t.Running = id
			var k2 K2
			if call == nil {
				k2 = f(k, v)
			} else {
				var ok bool
				if k2, ok = call(m, k, v); !ok {
					return
				}
			}
			noKey := m.NoKey // m is shared with other branches: put back what changes
			m.NoKey = false
			down.Push(m, k2, v)
			m.NoKey = noKey
		}}
	})
	return Stream[K2, V]{out}
}

// Peek calls f with each record, for its side effects. f may see a record again
// after a failure. Partition and Offset are those of the source record; where the record is
// the result of several, they are the number of the task and -1. Headers are valid
// during the call.
func (s Stream[K, V]) Peek[_ lazily[V]](f func(topic.Record[K, V])) Stream[K, V] {
	out := s.derive("peek")
	out.step.needsKey, out.step.needsHeaders = true, true
	requireFunc(out.step, f == nil)
	id := out.step.id
	connect(s.n, out.step, func(o *opening) port[K, V] {
		t, down := o.task, out.open(o)
		push := down.Push
		down.Push = func(m *engine.Meta, k K, v *V) {
			t.Running = id
			partition := t.ID.Shard
			if from, ok := t.Origin(m); ok {
				partition = int(from.Partition)
			}
			f(topic.Record[K, V]{Key: k, Value: *v, NoKey: m.NoKey, Deleted: m.Deleted, Time: time.UnixMilli(m.Time).UTC(),
				Headers: m.Headers(), Partition: partition, Offset: m.Offset})
			push(m, k, v)
		}
		return down
	})
	return Stream[K, V]{out}
}

// Split parts the stream in two: the records whose value f accepts, and the others.
// A record without a value goes to no.
func (s Stream[K, V]) Split[_ lazily[V]](f func(V) bool) (yes, no Stream[K, V]) {
	both := s.derive("split")
	requireFunc(both.step, f == nil)
	id := both.step.id
	sides := [2]*node[K, V]{}
	for i, kind := range [...]string{"split yes", "split no"} {
		sides[i] = &node[K, V]{step: s.n.step.app.declare(kind, both.step)}
	}
	guards[K, V](both.step)
	connect(s.n, both.step, func(o *opening) port[K, V] {
		t, y, n := o.task, sides[0].open(o), sides[1].open(o)
		var call func(m *engine.Meta, k K, v *V) (bool, bool)
		if g := openGuard[K, V](o, both.step); g != nil {
			call = g.call(func(_ K, v *V) (bool, error) { return f(*v), nil })
		}
		out := fanOut([]port[K, V]{y, n}) // for time, which goes both ways
		out.Push = func(m *engine.Meta, k K, v *V) {
			t.Running = id
			accepted, ok := false, true
			switch {
			case m.Deleted:
			case call == nil:
				accepted = f(*v)
			default:
				accepted, ok = call(m, k, v)
			}
			switch {
			case !ok:
			case accepted:
				y.Push(m, k, v)
			default:
				n.Push(m, k, v)
			}
		}
		return out
	})
	return Stream[K, V]{sides[0]}, Stream[K, V]{sides[1]}
}

// Merge puts the records of s and others into one stream. Records of one input keep
// their order; between inputs there is none. Its watermark is the lowest of theirs.
func (s Stream[K, V]) Merge(others ...Stream[K, V]) Stream[K, V] {
	inputs := []*step{s.n.step}
	for _, other := range others {
		inputs = append(inputs, other.n.step)
	}
	out := &node[K, V]{step: s.n.step.app.declare("merge", inputs...)}
	for _, in := range append([]Stream[K, V]{s}, others...) {
		in.n.downs = append(in.n.downs, func(o *opening) port[K, V] { return mergePort(o, out) })
	}
	return Stream[K, V]{out}
}

// EventTime gives each record the event time that f finds in its value, and the
// stream a watermark made from it, behind the newest by the topology's Disorder or
// that of a Disorder that follows. The time the stream had is gone, but for a record
// without a value: that keeps it, and does not move the watermark.
func (s Stream[K, V]) EventTime[_ lazily[V]](f func(V) time.Time) Stream[K, V] {
	out := s.derive("event time")
	requireFunc(out.step, f == nil)
	out.step.clock = &clockSettings{disorder: -1}
	retime(s, out, f)
	return Stream[K, V]{out}
}

// Disorder sets how far the watermark of an EventTime right before it stays behind the
// newest event time. Whole milliseconds.
func (s Stream[K, V]) Disorder(d time.Duration) Stream[K, V] {
	if problem := checkDisorder(d); problem != "" {
		s.n.step.app.fault(s.n.step.label(), problem)
	}
	switch {
	case s.n.step.clock != nil && s.n.step.clock.strategy != nil:
		s.n.step.app.fault(s.n.step.label(), "Disorder and Watermarks both say how watermarks come about: call one of them")
	case s.n.step.clock != nil:
		s.n.step.clock.disorder = d
	default:
		s.n.step.app.fault(s.n.step.label(), "Disorder sets the watermark of a source or of EventTime: call it right behind one")
	}
	return s
}

// As names the step that made the stream. Names of steps are unique in a topology.
func (s Stream[K, V]) As(name string) Stream[K, V] {
	s.n.step.name, s.n.step.named = name, true
	return s
}

// Via applies f to the stream: a way to keep operators of one's own in the chain.
func (s Stream[K, V]) Via[R any](f func(Stream[K, V]) R) R { return f(s) }

// To writes the stream to a topic, which is created where it does not exist. What
// is written becomes visible to committed readers with the checkpoint it belongs to.
func (s Stream[K, V]) To(t topic.Topic[K, V]) { to(s.n, t) }

func requireFunc(s *step, missing bool) {
	if missing {
		s.fault(fmt.Sprintf("%s needs a function, not nil", s.kind))
	}
}
