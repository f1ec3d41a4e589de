package topic

import "github.com/thalweg/thalweg/log"

// growth notices partitions that are added to a topic while it is used. Those that a
// topic has never change their numbers, and none goes.
type growth struct {
	node  Node
	topic string
}

// next returns the partitions from number have on, and a channel that is closed when
// there may be more.
func (g growth) next(have int) (more []*log.Partition, changed <-chan struct{}) {
	changed = g.node.TopicsChanged() // before the look, so that it misses nothing
	for {
		p, err := g.node.Partition(TopicPartition{Topic: g.topic, Partition: PartitionID(have + len(more))})
		if err != nil {
			return more, changed // there is none, or the topic is gone
		}
		more = append(more, p)
	}
}

// isClosed tells whether something was signalled. The nil channel never is.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
