package stream

import (
	"fmt"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
)

// Route writes each record to the topic that f finds for its value. Topics need not be known
// before: one is created when it is first chosen, and one may be named after what is in the
// value. It is for a moderate number of topics: each task keeps what it needs to write for every
// one that it has met. A record without a value is skipped and counted.
//
// A topic that f returns with a mistake in it, such as an invalid name, is a failure of the step, to
// which its error policy applies. That the job reads it, or that it syncs more strictly than
// all that the job declares to write, ends the job: state would be less durable than results.
// What the topics of one name have as codecs must be the same; the first one counts.
func (s Stream[K, V]) Route[_ lazily[V]](f func(V) topic.Topic[K, V]) {
	route(s, f == nil, func(_ K, v V) topic.Topic[K, V] { return f(v) })
}

// RouteKV is Route with a function that also sees the key.
func (s Stream[K, V]) RouteKV[_ lazily[V]](f func(K, V) topic.Topic[K, V]) { route(s, f == nil, f) }

func route[K, V any](s Stream[K, V], missing bool, f func(K, V) topic.Topic[K, V]) {
	st := s.n.step.app.declare("route", s.n.step)
	st.needsKey, st.needsHeaders = true, true
	requireFunc(st, missing)
	guards[K, V](st)
	connect(s.n, st, func(o *opening) port[K, V] {
		t, r := o.task, o.run
		writers := make(map[string]func(m *engine.Meta, k K, v *V))
		choose := func(k K, v *V) (topic.Topic[K, V], error) {
			to := f(k, *v)
			return to, to.Err()
		}
		call := func(_ *engine.Meta, k K, v *V) (to topic.Topic[K, V], ok bool) {
			to, err := choose(k, v)
			t.Fail(st.id, err)
			return to, err == nil
		}
		if g := openGuard[K, V](o, st); g != nil {
			call = g.call(choose)
		}
		return port[K, V]{Push: func(m *engine.Meta, k K, v *V) {
			if m.Deleted {
				t.Counters().NoValue++
				return
			}
			t.Running = st.id
			to, ok := call(m, k, v)
			if !ok {
				return
			}
			write := writers[to.Name()]
			if write == nil {
				var err error
				if write, err = openRoute(r, t, st, to); err != nil {
					t.Fail(st.id, err)
					return
				}
				writers[to.Name()] = write
			}
			write(m, k, v)
		}}
	})
}

// openRoute opens a topic that a Route has chosen, in a task that runs.
func openRoute[K, V any](r *run, t *engine.Task, s *step, to topic.Topic[K, V]) (func(m *engine.Meta, k K, v *V), error) {
	for _, other := range r.app.steps {
		if other.source != nil && other.source.topic == to.Name() {
			return nil, fmt.Errorf("the topic %q is one that the job reads at %s: it would feed itself", to.Name(), other.line)
		}
	}
	if stricter := r.sync; r.stateful() {
		if stricter.tighten(to.Spec()); stricter.Sync != r.sync.Sync {
			return nil, fmt.Errorf("the topic %q syncs more strictly than all that the job declares to write, and its state would be less durable than its results: "+
				"give it the policy of the others, or declare a To with a topic of its policy", to.Name())
		}
	}
	if err := r.env.Plane.Log().Create(to.Name(), to.Spec()); err != nil {
		return nil, err
	}
	w, err := newOutlet(to)
	if err != nil {
		return nil, err
	}
	out, err := t.OpenOutput(s.id, to.Name(), r.partitions(to.Name()))
	if err != nil {
		return nil, err
	}
	return w.writer(t, s.id, out), nil
}

// stateful tells whether a step of the job keeps state.
func (r *run) stateful() bool {
	for _, st := range r.stages {
		if len(st.stores) > 0 {
			return true
		}
	}
	return false
}

// Routes tells whether the topology writes topics that it finds as it runs.
func (app *Topology) Routes() bool {
	for _, s := range app.steps {
		if s.kind == "route" {
			return true
		}
	}
	return false
}
