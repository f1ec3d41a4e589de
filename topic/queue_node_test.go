package topic_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// queueNode is a topic.QueueNode over a log alone: it has no transactions.
type queueNode struct{ *node }

func (n queueNode) Topics() iter.Seq2[string, log.TopicSpec] { return n.log.Topics() }
func (n queueNode) AlterTopic(name string, spec log.TopicSpec) error {
	return n.log.Alter(name, spec)
}
func (n queueNode) DeleteTopic(name string) error { return n.log.Delete(name) }
func (n queueNode) Transact(context.Context, func(*topic.Tx) error) error {
	return errors.New("no transactions here")
}

// openQueues returns the queues of a node in memory, over fs or else a new file system.
func openQueues(tb testing.TB, fs *vfs.Mem, o topic.QueuesOptions) (*node, *topic.Queues) {
	if fs == nil {
		fs = vfs.NewMem()
	}
	l, err := log.Open("data", log.Options{FS: fs, SegmentBytes: 1 << 16, MaxBatchBytes: 1 << 16})
	require.NoError(tb, err)
	n := &node{log: l, fs: fs}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 1 << 16
	}
	qs := topic.NewQueues(queueNode{n}, o)
	tb.Cleanup(func() {
		qs.Close()
		l.Close()
	})
	return n, qs
}

// reopen closes a node and its queues, and opens them again.
func reopen(tb testing.TB, n *node, qs *topic.Queues, o topic.QueuesOptions) (*node, *topic.Queues) {
	qs.Close()
	require.NoError(tb, n.log.Close())
	return openQueues(tb, n.fs, o)
}

var jobs = topic.New[string, string]("jobs")

func openJobs(tb testing.TB, qs *topic.Queues, o topic.QueueOptions) *topic.Queue[string, string] {
	q, err := qs.Open(jobs, "work", o)
	require.NoError(tb, err)
	tb.Cleanup(func() { q.Close() })
	return q
}

// appendJobs writes one record of each value to partition 0.
func appendJobs(tb testing.TB, n *node, values ...string) {
	_, err := n.Open(jobs.Name(), jobs.Spec())
	require.NoError(tb, err)
	for _, v := range values {
		_, err := n.partition(tb, "jobs", 0).AppendRecords(tb.Context(), log.Record{Time: noon.UnixMilli(), Key: []byte(v), Value: []byte(v)})
		require.NoError(tb, err)
	}
}

// receive returns the next delivery of q.
func receive[K, V any](tb testing.TB, q *topic.Queue[K, V]) *topic.Received[K, V] {
	for d, err := range q.Receive(tb.Context()) {
		require.NoError(tb, err)
		return d
	}
	tb.Fatal("no delivery")
	return nil
}

// nothing shows that q hands out nothing for a while, of the clock of synctest.
func nothing[K, V any](tb testing.TB, q *topic.Queue[K, V], d time.Duration) {
	ctx, cancel := context.WithTimeout(tb.Context(), d)
	defer cancel()
	for got, err := range q.Receive(ctx) {
		if err == nil {
			tb.Fatalf("offset %d was delivered", got.Offset)
		}
		require.ErrorIs(tb, err, context.DeadlineExceeded)
		return
	}
}

func partitionStatus[K, V any](tb testing.TB, q *topic.Queue[K, V]) topic.QueuePartitionStatus {
	s, err := q.Status(tb.Context())
	require.NoError(tb, err)
	require.Len(tb, s.Partitions, 1)
	return s.Partitions[0]
}
