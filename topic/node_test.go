package topic_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// node is a topic.Node over a log alone.
type node struct {
	log  *log.Log
	fs   *vfs.Mem
	next atomic.Int64
}

func (n *node) Open(name string, spec log.TopicSpec) ([]*log.Partition, error) {
	if err := n.log.Create(name, spec); err != nil {
		return nil, err
	}
	partitions := make([]*log.Partition, spec.Partitions)
	for i := range partitions {
		var err error
		partitions[i], err = n.log.Partition(log.TopicPartition{Topic: name, Partition: log.PartitionID(i)})
		if err != nil {
			return nil, err
		}
	}
	return partitions, nil
}

func (n *node) Partition(tp log.TopicPartition) (*log.Partition, error) { return n.log.Partition(tp) }

func (n *node) TopicsChanged() <-chan struct{} { return n.log.TopicsChanged() }

func (n *node) AcquireProducer(ctx context.Context) (log.ProducerID, error) {
	return log.ProducerID(n.next.Add(1)), ctx.Err()
}

// AcquireNamedProducer keeps no names: every one of them has id 1000.
func (n *node) AcquireNamedProducer(ctx context.Context, _ string) (log.ProducerID, error) {
	return 1000, ctx.Err()
}

func (n *node) ReleaseProducer(log.ProducerID) error { return nil }

// openNode returns a node in memory, with segments small enough to roll.
func openNode(tb testing.TB) *node {
	fs := vfs.NewMem()
	l, err := log.Open("data", log.Options{FS: fs, SegmentBytes: 1 << 16, MaxBatchBytes: 1 << 20})
	require.NoError(tb, err)
	tb.Cleanup(func() { l.Close() })
	return &node{log: l, fs: fs}
}

// partition returns a partition of a topic that exists.
func (n *node) partition(tb testing.TB, name string, i int) *log.Partition {
	p, err := n.log.Partition(log.TopicPartition{Topic: name, Partition: log.PartitionID(i)})
	require.NoError(tb, err)
	return p
}

// produce returns a producer of t that is closed with the test.
func produce[K, V any](tb testing.TB, n *node, t topic.Topic[K, V]) *topic.Producer[K, V] {
	p, err := topic.NewProducer(tb.Context(), n, t, topic.ProducerOptions{})
	require.NoError(tb, err)
	tb.Cleanup(func() { p.Close() })
	return p
}
