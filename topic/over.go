package topic

import (
	"context"
	"fmt"

	"github.com/thalweg/thalweg/log"
)

// Over returns a Node for reading the topics of l by type, such as those of a directory
// that a Kafka broker wrote and log.OpenReadOnly opened. The partitions of a topic are
// those that l has, which may be some of them; what a declaration says of partitions and
// other settings does not matter. Producers are refused with log.ErrReadOnly, and a
// topic that l does not have is log.ErrUnknownTopic. l stays the caller's to close.
func Over(l *log.Log) Node { return overLog{l} }

type overLog struct{ log *log.Log }

func (o overLog) Open(topic string, _ log.TopicSpec) (partitions []*log.Partition, err error) {
	for p := range o.log.Partitions() {
		if p.Name().Topic == topic {
			partitions = append(partitions, p)
		}
	}
	if len(partitions) == 0 {
		return nil, fmt.Errorf("%w: %q", log.ErrUnknownTopic, topic)
	}
	return partitions, nil
}

func (o overLog) Partition(tp TopicPartition) (*log.Partition, error) { return o.log.Partition(tp) }

func (o overLog) TopicsChanged() <-chan struct{} { return o.log.TopicsChanged() }

func (overLog) AcquireProducer(context.Context) (log.ProducerID, error) {
	return log.NoProducer, log.ErrReadOnly
}

func (overLog) AcquireNamedProducer(context.Context, string) (log.ProducerID, error) {
	return log.NoProducer, log.ErrReadOnly
}

func (overLog) ReleaseProducer(log.ProducerID) error { return nil }
