package stream

import (
	"fmt"
	"time"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/window"
)

// Watermarks sets how the watermarks come about of the topic, or of the EventTime, right
// before it: with a bounded disorder, in order, or by a generator of the program's; when a
// silent partition no longer counts (where the strategy does not say, after IdleAfter of the
// topology); what becomes of event times far ahead of the node's clock; and how far the
// partition may be ahead of the slowest one.
//
// Aligned are all partitions of the job whose strategies say Align. One that is further
// ahead than its own strategy allows is not read until the slowest of them has come
// nearer, has ended or is idle; one that has had no record yet holds nobody back. Other partitions neither wait nor are waited for. Align and IdleAfter
// are of topics: an event time that a topic declares can have them, one of Stream.EventTime
// cannot.
//
// A record that a guard finds too far ahead does not move the watermark. With
// window.FutureLate it is late, whatever the time, for every window, join and Deduplicate that it
// comes to; steps that do not depend on event time take it as any other. With
// window.FutureClamp its event time is the highest allowed. Both are counted in
// TaskStatus.FarFuture. With window.FutureFail it is a failure: of the step of the source, which
// has an error policy, or of EventTime, which ends the job.
func (s Stream[K, V]) Watermarks[_ lazily[V]](strategy window.Strategy) Stream[K, V] {
	s.n.step.setStrategy(strategy, strategy.Err(), nil)
	return s
}

// WatermarksBy is Watermarks with a strategy in which values say how far time has come. A
// watermark counts behind the record that says it.
func (s Stream[K, V]) WatermarksBy[_ lazily[V]](strategy window.StrategyBy[V]) Stream[K, V] {
	s.n.step.setStrategy(strategy.Strategy(), strategy.Err(), strategy.Says)
	return s
}

// clockSettings are those of a step that makes watermarks.
type clockSettings struct {
	disorder time.Duration    // negative takes the topology's
	strategy *window.Strategy // nil where there is none but disorder
	says     any              // a func(V) (int64, bool) where values say the watermark
	name     string           // under which a checkpoint keeps the watermark
}

// setStrategy sets the strategy of a step that makes watermarks.
func (s *step) setStrategy(strategy window.Strategy, fault error, says any) {
	switch {
	case fault != nil:
		s.app.fault(s.label(), fault.Error())
	case s.clock == nil || s.kind == "replay":
		s.app.fault(s.label(), "Watermarks are those of a source or of EventTime: call it right behind one")
	case s.clock.disorder >= 0:
		s.app.fault(s.label(), "Disorder and Watermarks both say how watermarks come about: call one of them")
	case s.source == nil && (strategy.Alignment().Drift > 0 || strategy.Idleness().After > 0):
		s.app.fault(s.label(), "only partitions of a topic wait for others and are idle: for Align or IdleAfter declare the event time with the topic, by topic.EventTime")
	default:
		s.clock.strategy, s.clock.says = &strategy, says
	}
}

// open makes the clock of a task.
func (c *clockSettings) open(app *Topology) (*engine.Clock, error) {
	switch {
	case c.says != nil:
		return engine.NewClockBy(new(window.Punctuation)), nil
	case c.strategy != nil:
		g := c.strategy.Generator()
		if g == nil {
			return nil, fmt.Errorf("stream: the function that makes generators of watermarks made none")
		}
		return engine.NewClockBy(g), nil
	case c.disorder >= 0:
		return engine.NewClock(c.disorder.Milliseconds()), nil
	}
	return engine.NewClock(app.disorder.Milliseconds()), nil
}

// idleAfter is how long a partition may be silent; negative is for ever.
func (c *clockSettings) idleAfter(app *Topology) time.Duration {
	if c.strategy != nil && c.strategy.Idleness().After > 0 {
		return c.strategy.Idleness().After
	}
	return app.idleAfter
}

func (c *clockSettings) guard() (g window.Guard) {
	if c.strategy != nil {
		g = c.strategy.FutureGuard()
	}
	return g
}

func (c *clockSettings) alignment() (a window.Alignment) {
	if c.strategy != nil {
		a = c.strategy.Alignment()
	}
	return a
}

// saidBy is what finds the watermark that a value says; nil where none does.
func saidBy[V any](c *clockSettings) func(V) (int64, bool) {
	f, _ := c.says.(func(V) (int64, bool))
	return f
}

// leastIdle is the shortest silence that makes a partition of the topology idle; zero or
// less where none does.
func (app *Topology) leastIdle() (least time.Duration) {
	for _, s := range app.steps {
		if s.source == nil || s.clock == nil {
			continue
		}
		if after := s.clock.idleAfter(app); after > 0 && (least <= 0 || after < least) {
			least = after
		}
	}
	return least
}

// retime opens an EventTime: a clock of its own in each task.
func retime[K, V any](s Stream[K, V], out *node[K, V], f func(V) time.Time) {
	id := out.step.id
	guards[K, V](out.step)
	connect(s.n, out.step, func(o *opening) port[K, V] {
		t, down := o.task, out.open(o)
		timeOf := func(_ *engine.Meta, _ K, v *V) (int64, bool) { return f(*v).UnixMilli(), true }
		if g := openGuard[K, V](o, out.step); g != nil {
			timeOf = g.call(func(_ K, v *V) (int64, error) { return f(*v).UnixMilli(), nil })
		}
		settings := out.step.clock
		clock, err := settings.open(out.step.app)
		if err != nil {
			o.fail(err)
			return port[K, V]{}
		}
		clock.Register(t, settings.name, down.Watermark)
		future, says := t.OpenFuture(settings.guard()), saidBy[V](settings)
		pass := func(w int64, moved bool) {
			if moved && down.Watermark != nil {
				down.Watermark(w)
			}
		}
		push := down.Push
		return port[K, V]{
			Push: func(m *engine.Meta, k K, v *V) {
				t.Running = id
				if m.Deleted { // has no value to find a time in, and does not move the clock
					push(m, k, v)
					return
				}
				was, wasTooFar := m.Time, m.TooFar
				at, ok := timeOf(m, k, v)
				if !ok {
					return
				}
				m.Time = at
				if err := future.Judge(m); err != nil {
					t.Fail(id, err)
					return
				}
				var said int64
				punctuates := false
				if says != nil {
					said, punctuates = says(*v)
				}
				if !m.TooFar {
					pass(clock.Observe(m.Time))
				}
				push(m, k, v)
				m.Time, m.TooFar = was, wasTooFar
				if punctuates && !t.Failed() && future.Punctuates(said) {
					pass(clock.Punctuate(said))
				}
			},
			// Of the time above only its end counts: nothing is to come.
			Watermark: func(w int64) {
				if w == window.EndOfTime {
					pass(w, clock.Advance(w))
				}
			},
			Idle: down.Idle,
		}
	})
}
