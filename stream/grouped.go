package stream

import (
	"fmt"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// Grouped is a stream in which all records of a key come to the same task, in front
// of an aggregation.
type Grouped[K, V any] struct {
	g    *grouping[K, V]
	emit window.Emit
}

// GroupBy groups the records by the key that f makes of each value. A record
// without a value is skipped and counted.
func (s Stream[K, V]) GroupBy[K2 any](f func(V) K2) Grouped[K2, V] {
	step := s.n.step.app.declare("group by", s.n.step)
	requireFunc(step, f == nil)
	step.changeKey = true
	return group(s, step, false, func(_ K, v *V) K2 { return f(*v) })
}

// GroupByKV groups the records by the key that f makes of key and value.
func (s Stream[K, V]) GroupByKV[K2 any](f func(K, V) K2) Grouped[K2, V] {
	step := s.n.step.app.declare("group by", s.n.step)
	requireFunc(step, f == nil)
	step.needsKey = true
	step.changeKey = true
	return group(s, step, false, func(k K, v *V) K2 { return f(k, *v) })
}

// GroupByKey groups the records by the key they have. A record without a key, or
// without a value, is skipped and counted.
func (s Stream[K, V]) GroupByKey() Grouped[K, V] {
	step := s.n.step.app.declare("group by key", s.n.step)
	step.needsKey = true
	return group(s, step, true, func(k K, _ *V) K { return k })
}

// grouping is a Grouped's step. Where records of a key may come from several tasks
// it cuts the topology: what is above sends into an exchange, what is below is a
// stage of its own.
type grouping[K, V any] struct {
	step      *step
	ownKey    bool // groups by the key the records have
	deletes   bool // records without a value are for those below too
	keyless   bool // and those without a key
	joins     bool // what is below meets records of other groupings: all must be spread alike
	shuffled  bool // in any case
	downs     []func(o *opening) engine.KeyedPort[V]
	keepValue bool // something below reads the value
	key       codec.Codec[K]
	fold      func(V, V) V // given to Combine
	windows   []foldedIn   // the aggregations in windows below
}

// newGrouping makes the grouping that the step is.
func newGrouping[K, V any](s *step, ownKey bool) *grouping[K, V] {
	g := &grouping[K, V]{step: s, ownKey: ownKey}
	s.group = g
	var err error
	if g.key, err = s.app.codecs.Inner[K](); err != nil {
		s.fault(fmt.Sprintf("no codec for the key: %v", err))
	}
	return g
}

func group[K0, K, V any](s Stream[K0, V], st *step, ownKey bool, f func(K0, *V) K) Grouped[K, V] {
	g := newGrouping[K, V](st, ownKey)
	if !ownKey {
		guards[K0, V](st)
	}
	connect(s.n, st, func(o *opening) port[K0, V] {
		t, way := o.task, g.enter(o)
		var call func(m *engine.Meta, k K0, v *V) (K, bool)
		if guard := openGuard[K0, V](o, st); guard != nil {
			call = guard.call(func(k K0, v *V) (K, error) { return f(k, v), nil })
		}
		buf := make([]byte, 0, 64)
		return port[K0, V]{Watermark: way.Watermark, Idle: way.Idle, Push: func(m *engine.Meta, k K0, v *V) {
			switch {
			case m.Deleted && !g.deletes:
				t.Counters().NoValue++
				return
			case ownKey && m.NoKey && g.keyless:
				way.Push(m, nil, v)
				return
			case ownKey && m.NoKey:
				t.Counters().NoKey++
				return
			}
			t.Running = st.id
			var made K
			if call == nil {
				made = f(k, v)
			} else {
				var ok bool
				if made, ok = call(m, k, v); !ok {
					return
				}
			}
			var err error
			if buf, err = g.key.Append(buf[:0], made); err != nil {
				t.Fail(st.id, fmt.Errorf("encode key: %w", err))
				return
			}
			noKey := m.NoKey
			m.NoKey = false
			way.Push(m, buf, v)
			m.NoKey = noKey
		}}
	})
	return Grouped[K, V]{g: g}
}

// way leads from above a grouping to what is below it. The key comes encoded.
type way[V any] struct {
	Push      func(m *engine.Meta, key []byte, v *V)
	Watermark func(w int64)
	Idle      func()
}

// enter opens the way in one task: into the exchange, or straight on.
func (g *grouping[K, V]) enter(o *opening) way[V] {
	if g.mustShuffle() {
		sender := o.run.exchange(g.step).(*engine.Exchange[V]).OpenSender(o.task, o.run.sender(g.step, o.task))
		return way[V]{sender.Send, sender.Watermark, sender.Idle}
	}
	down := g.open(o)
	return way[V]{func(m *engine.Meta, key []byte, v *V) { down.Push(m, state.Hash(key), key, v) }, down.Watermark, down.Idle}
}

func (g *grouping[K, V]) mustShuffle() bool {
	in := g.step.inputs[0]
	return g.shuffled || !g.ownKey || !colocated(in) || g.joins && !g.spread(in)
}

func (g *grouping[K, V]) spreads() bool { return g.mustShuffle() || g.spread(g.step.inputs[0]) }

func (g *grouping[K, V]) shuffle() { g.shuffled = true }

func (g *grouping[K, V]) meet() { g.joins = true }

// spread tells whether s is spread over its tasks as an exchange of the grouping would do
// it: by the hash of the key in the grouping's encoding.
func (g *grouping[K, V]) spread(s *step) bool {
	switch {
	case s.source != nil:
		return s.source.spread(g.key)
	case s.group != nil && s.group.mustShuffle():
		return true
	case s.changeKey: // windows of a key are where the key is
		return false
	}
	return g.spread(s.inputs[0])
}

// colocated tells whether all records of a key that s gives are in one task.
func colocated(s *step) bool {
	switch {
	case s.source != nil, s.joint:
		return true // a producer puts records of a key into one partition
	case !s.changeKey && s.group == nil && len(s.inputs) == 1 && s.inputs[0].group != nil:
		return true // it is behind a grouping
	case s.changeKey && !s.stateful(), len(s.inputs) > 1:
		return false
	case s.stateful() && !s.unkeyed:
		return true // it got them by that key, or by a part of it
	}
	return colocated(s.inputs[0])
}

func (g *grouping[K, V]) newExchange(senders, receivers int, inOrder bool) any {
	x := engine.NewExchange[V](engine.ExchangeOptions{Senders: senders, Receivers: receivers,
		KeepValue: g.keepValue, KeepHeaders: g.step.headersAreRead(), InOrder: inOrder, Straight: straight(g.step)})
	if !inOrder {
		x.Combine(g.combine())
	}
	return x
}

// straight tells whether what the grouping s sends are records as their source has them, in its order and
// with its times.
func straight(s *step) bool {
	for s = s.inputs[0]; s.source == nil; s = s.inputs[0] {
		if len(s.inputs) != 1 || s.stateful() || s.clock != nil || s.table || s.group != nil && s.group.mustShuffle() {
			return false
		}
	}
	return !s.source.replay // which has times that are not those of the letters
}

// openStage opens the stage below the exchange for one shard.
func (g *grouping[K, V]) openStage(o *opening, shard int) {
	o.run.exchange(g.step).(*engine.Exchange[V]).OpenReceiver(o.task, shard, g.open(o))
}

func (g *grouping[K, V]) open(o *opening) engine.KeyedPort[V] {
	ports := make([]engine.KeyedPort[V], len(g.downs))
	for i, d := range g.downs {
		ports[i] = d(o)
	}
	if len(ports) == 0 {
		return engine.KeyedPort[V]{Push: func(*engine.Meta, uint64, []byte, *V) {}}
	}
	return engine.FanOutKeyed(ports)
}

// behind adds a step below the grouping.
func (g *grouping[K, V]) behind(kind string, readsValue bool) *step {
	g.keepValue = g.keepValue || readsValue
	return g.step.app.declare(kind, g.step)
}

// Emit sets when the aggregation emits. Without a window OnClose, the default, emits
// each changed key once a checkpoint, with its newest value; OnUpdate every change.
func (g Grouped[K, V]) Emit(e window.Emit) Grouped[K, V] {
	requireEmit(g.g.step.app, e)
	g.emit = e
	return g
}

// Count counts the records of each key.
func (g Grouped[K, V]) Count[_ lazily[V]]() Table[K, int64] {
	return Table[K, int64]{aggregate(g.g, g.g.behind("count", false), g.emit, count[V])}
}

// Reduce folds the values of each key; the first one is where it begins.
func (g Grouped[K, V]) Reduce[_ lazily[V]](f func(V, V) V) Table[K, V] {
	s := g.g.behind("reduce", true)
	requireFunc(s, f == nil)
	return Table[K, V]{aggregate(g.g, s, g.emit, reduce(f))}
}

// Aggregate folds the values of each key into an A, which begins as its zero value.
func (g Grouped[K, V]) Aggregate[A any](add func(A, V) A) Table[K, A] {
	s := g.g.behind("aggregate", true)
	requireFunc(s, add == nil)
	return Table[K, A]{aggregate(g.g, s, g.emit, accumulate(add))}
}

// Window puts the records of each key into windows.
func (g Grouped[K, V]) Window(spec window.Spec) Windowed[K, V] {
	w := Windowed[K, V]{g: g.g, spec: spec, late: new(bool)}
	if err := spec.Err(); err != nil {
		g.g.step.app.fault("window", err.Error())
	} else if spec.IsProcessingTime() && spec.IsSliding() {
		g.g.step.app.fault("window", fmt.Sprintf("sliding windows go by event time, not %v: give the records the clock's time before, with EventTime", spec))
	}
	return w
}
