package stream

import "github.com/thalweg/thalweg/topic"

// Table is the newest value of each key, as an aggregation keeps it. It is a
// description, a plain value that may be used any number of times.
type Table[K, V any] struct{ n *node[K, V] }

// As names the table's step, and with it its store and its changelog. The name must
// stay as long as the state is to be found again.
func (t Table[K, V]) As(name string) Table[K, V] {
	t.n.step.name, t.n.step.named = name, true
	return t
}

// ToStream gives the changes of the table as they are emitted.
func (t Table[K, V]) ToStream() Stream[K, V] { return Stream[K, V](t) }

// To writes the changes of the table to a topic, which is created where it does not
// exist. What is written becomes visible to committed readers with the checkpoint
// it belongs to.
func (t Table[K, V]) To(out topic.Topic[K, V]) { to(t.n, out) }
