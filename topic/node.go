package topic

import (
	"context"

	"github.com/thalweg/thalweg/log"
)

// Node is what producers and readers need of the node they run on. One that has a method
// Now() time.Time is also the clock by which records are due and expire; without it
// that is time.Now. One that has a method CountExpired(TopicPartition) is told of each
// record that a reader passes over since it has expired.
type Node interface {
	// Open returns the partitions of a topic, indexed by their number. It
	// creates the topic with spec where it does not exist.
	Open(topic string, spec log.TopicSpec) ([]*log.Partition, error)

	// Partition returns a partition that exists.
	Partition(tp TopicPartition) (*log.Partition, error)

	// TopicsChanged returns a channel that is closed when there are other topics, or
	// more partitions.
	TopicsChanged() <-chan struct{}

	// AcquireProducer returns a producer id nobody had before.
	AcquireProducer(ctx context.Context) (log.ProducerID, error)

	// AcquireNamedProducer returns the producer id of a name, a new one the first
	// time. While somebody holds it, it is ErrNameInUse.
	AcquireNamedProducer(ctx context.Context, name string) (log.ProducerID, error)

	// ReleaseProducer says that nothing more is written with id; that of a name may be
	// acquired again.
	ReleaseProducer(id log.ProducerID) error
}

// open checks a topic's declaration and opens its partitions on n.
func open(n Node, s *settings) ([]*log.Partition, error) {
	s = s.get()
	if err := s.err(); err != nil {
		return nil, err
	}
	return n.Open(s.name, s.spec)
}
