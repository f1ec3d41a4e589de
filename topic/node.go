package topic

import (
	"context"

	"github.com/thalweg/thalweg/log"
)

// Node is what producers and readers need of the node they run on.
type Node interface {
	// Open returns the partitions of a topic, indexed by their number. It
	// creates the topic with spec where it does not exist.
	Open(topic string, spec log.TopicSpec) ([]*log.Partition, error)

	// AcquireProducer returns a producer id nobody had before.
	AcquireProducer(ctx context.Context) (log.ProducerID, error)

	// ReleaseProducer says that nothing more is written with id.
	ReleaseProducer(id log.ProducerID) error
}

// open checks t's declaration and opens its partitions on n.
func open[K, V any](n Node, t Topic[K, V]) ([]*log.Partition, error) {
	if err := t.Err(); err != nil {
		return nil, err
	}
	return n.Open(t.name, t.spec)
}
