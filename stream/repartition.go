package stream

import (
	"fmt"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
)

// Repartition moves the records to n tasks, by their keys, and all behind it up to the next
// shuffle runs there: to have more tasks than a source has partitions, or fewer, or to join what
// has other partitions. Records without a key are spread. Those of a key keep their order.
//
// With another n than at the last run the state behind it moves to the tasks there are then; see
// Topology.Tasks. As names what it gives, and tells several of one stream apart.
func (s Stream[K, V]) Repartition[_ lazily[V]](n int) Stream[K, V] {
	st := s.n.step.app.declare("repartition", s.n.step)
	st.needsKey = true
	if n <= 0 {
		st.fault(fmt.Sprintf("a repartition to %d tasks: use 1 or more", n))
	}
	st.parts = n
	g := group(s, st, true, func(k K, _ *V) K { return k }).g
	g.shuffled, g.deletes, g.keyless = true, true, true
	return Stream[K, V]{g.goOn("repartitioned")}
}

// goOn is a step below the grouping that gives the records on, as they came.
func (g *grouping[K, V]) goOn(kind string) *node[K, V] {
	out := &node[K, V]{step: g.behind(kind, true)}
	id := out.step.id
	g.downs = append(g.downs, func(o *opening) engine.KeyedPort[V] {
		t, down := o.task, out.open(o)
		return engine.KeyedPort[V]{Watermark: down.Watermark, Idle: down.Idle, Push: func(m *engine.Meta, _ uint64, encoded []byte, v *V) {
			var k K
			if !m.NoKey {
				var err error
				if k, err = g.key.Decode(encoded); err != nil {
					t.Fail(id, fmt.Errorf("decode key: %w", err))
					return
				}
			}
			down.Push(m, k, v)
		}}
	})
	return out
}

// Through writes the stream to a topic, as To does, and goes on with the same records in as many
// tasks as the topic has partitions. They do not wait for the topic, and what others write there
// is not among them: for that read it by another topology.
func (s Stream[K, V]) Through[_ lazily[V]](t topic.Topic[K, V]) Stream[K, V] {
	s.To(t)
	return s.Repartition(t.Spec().Partitions)
}
