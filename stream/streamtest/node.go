package streamtest

import (
	"context"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/topic"
)

// node lets producers and readers use the driver's log.
type node struct{ plane *checkpoint.Plane }

func (n node) Open(name string, spec topic.Spec) ([]*topic.LogPartition, error) {
	if err := n.plane.Log().Create(name, spec); err != nil {
		return nil, err
	}
	var all []*topic.LogPartition
	for i := range spec.Partitions {
		p, err := n.plane.Log().Partition(topic.TopicPartition{Topic: name, Partition: topic.PartitionID(i)})
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func (n node) Partition(tp topic.TopicPartition) (*topic.LogPartition, error) {
	return n.plane.Log().Partition(tp)
}

func (n node) TopicsChanged() <-chan struct{} { return n.plane.Log().TopicsChanged() }

func (n node) AcquireProducer(ctx context.Context) (topic.ProducerID, error) {
	return n.plane.AcquireProducer(ctx)
}

func (n node) AcquireNamedProducer(ctx context.Context, name string) (topic.ProducerID, error) {
	return n.plane.AcquireNamedProducer(ctx, name)
}

func (n node) ReleaseProducer(id topic.ProducerID) error { return n.plane.ReleaseProducer(id) }
