package thalweg

import (
	"context"
	"fmt"
	"iter"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// Queue opens a queue over t, which it creates where it does not exist: its consumers,
// any number on any partition, share the records and acknowledge each on its own. A
// queue that is new begins where o.From says, one that exists goes on where it was.
// Whoever asked for it closes it; Node.Close closes those that are left.
func (n *Node) Queue[K, V any](t topic.Topic[K, V], name string, o topic.QueueOptions) (*topic.Queue[K, V], error) {
	leave, err := n.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	return n.queues.Open(t, name, o)
}

// Queues walks the queues of the node by name, open or not, with how they are. An error
// is that of one queue.
func (n *Node) Queues(ctx context.Context) iter.Seq2[topic.QueueStatus, error] {
	return func(yield func(topic.QueueStatus, error) bool) {
		leave, err := n.enter()
		if err != nil {
			yield(topic.QueueStatus{}, err)
			return
		}
		names := n.queues.Names()
		leave()
		for _, name := range names {
			s, err := n.QueueStatus(ctx, name)
			s.Name = name
			if !yield(s, err) {
				return
			}
		}
	}
}

// QueueStatus tells how a queue is, open or not. One that does not exist is
// topic.ErrUnknownQueue.
func (n *Node) QueueStatus(ctx context.Context, name string) (topic.QueueStatus, error) {
	leave, err := n.enter()
	if err != nil {
		return topic.QueueStatus{}, err
	}
	defer leave()
	return n.queues.Status(ctx, name)
}

// DeleteQueue removes a queue with its state; the records of its topic stay. One that is
// open is topic.ErrQueueInUse, one that does not exist topic.ErrUnknownQueue.
func (n *Node) DeleteQueue(ctx context.Context, name string) error {
	leave, err := n.enter()
	if err != nil {
		return err
	}
	defer leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	return n.queues.Delete(name)
}

// queueHost gives package topic what its queues need of a node.
type queueHost struct{ topicHost }

var _ topic.QueueNode = queueHost{}

func (h queueHost) Topics() iter.Seq2[string, log.TopicSpec] { return h.plane.Log().Topics() }

func (h queueHost) AlterTopic(name string, spec log.TopicSpec) error {
	if err := h.plane.Log().Alter(name, spec); err != nil {
		return fmt.Errorf("thalweg: alter topic %q: %w", name, err)
	}
	return nil
}

func (h queueHost) DeleteTopic(name string) error {
	if err := h.plane.Log().Delete(name); err != nil {
		return fmt.Errorf("thalweg: delete topic %q: %w", name, err)
	}
	return nil
}

func (n *Node) newQueues() *topic.Queues {
	segmentBytes := int64(queueSegmentBytes)
	if own := n.options.Log.SegmentBytes; own > 0 {
		segmentBytes = min(segmentBytes, own)
	}
	return topic.NewQueues(queueHost{topicHost{n}}, topic.QueuesOptions{
		Now:          n.options.Log.Now,
		SegmentBytes: segmentBytes,
		Logger:       n.logger,
	})
}

// queueSegmentBytes is small, since what a snapshot replaces goes by segments.
const queueSegmentBytes = 4 << 20
