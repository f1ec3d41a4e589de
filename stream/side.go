package stream

import (
	"fmt"

	"github.com/thalweg/thalweg/stream/internal/engine"
)

// Side is a further stream that a Process emits into, with keys and values of its own:
//
//	suspects := app.Side[string, Payment]("suspects")
//	payments.GroupByKey().Process(detector{suspects}, suspects).To(alerts)
//	suspects.Stream().To(review)
type Side[K, V any] struct {
	name string
	n    *node[K, V]
}

// Side declares a side; its name is unique in the topology. One Process uses it.
func (app *Topology) Side[K, V any](name string) Side[K, V] {
	s := app.declare("side")
	s.name, s.named, s.changeKey = name, true, true
	return Side[K, V]{name, &node[K, V]{step: s}}
}

// Name is the name given to Topology.Side.
func (s Side[K, V]) Name() string { return s.name }

// Stream is what was emitted into the side.
func (s Side[K, V]) Stream() Stream[K, V] { return Stream[K, V]{s.n} }

// Emit gives a record to the side, with the time and the headers that Context.Emit gives.
func (s Side[K, V]) Emit(in Scope, k K, v V) {
	c := in.inner()
	if c.err != nil {
		return
	}
	down, ok := c.sides[s.n.step].(*sidePort[K, V])
	if !ok {
		c.fail(fmt.Errorf("the step emits into the side %q, which it was not given: add it to the call of Process", s.name))
		return
	}
	c.effect(func(m *engine.Meta) {
		down.value = v
		down.Push(m, k, &down.value)
	})
}

type sidePort[K, V any] struct {
	port[K, V]
	value V // scratch
}

func (s Side[K, V]) declared() *step { return s.n.step }

func (s Side[K, V]) openSide(o *opening) (any, port[struct{}, struct{}]) {
	down := s.n.open(o)
	return &sidePort[K, V]{port: down}, port[struct{}, struct{}]{Watermark: down.Watermark, Idle: down.Idle}
}
