package thalweg_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// TestTopicsAndDescribe shows what a program learns of topics it may not declare itself.
func TestTopicsAndDescribe(t *testing.T) {
	ctx := t.Context()
	node, err := thalweg.Open("")
	require.NoError(t, err)
	defer node.Close()
	b := topic.New[string, int]("b").Partitions(2).Retain(time.Hour).PartitionBy(func(k string, n int) int { return len(k) % n })
	require.NoError(t, node.Create(ctx, b, topic.New[string, int]("a")))
	names, err := node.Topics()
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, names, "and none of the node's own")

	p, err := node.Producer(b)
	require.NoError(t, err)
	for i := range 5 {
		require.NoError(t, p.Send(ctx, "k", i))
	}
	require.NoError(t, node.DeleteRecords(ctx, b, topic.Offset(2), 1))
	info, err := node.Describe(ctx, "b")
	require.NoError(t, err)
	require.Equal(t, "b", info.Name)
	require.Equal(t, log.TopicSpec{Partitions: 2, RetentionAge: time.Hour}, info.Spec)
	require.Positive(t, info.Partitions[1].Bytes)
	info.Partitions[1].Bytes = 0
	require.Equal(t, []thalweg.PartitionInfo{
		{Segments: 1},
		{Start: 2, LastStable: 5, HighWatermark: 5, End: 5, Segments: 1, Deleted: log.Deleted{Records: 2}},
	}, info.Partitions)

	began := time.Now()
	require.NoError(t, node.Transact(ctx, func(tx *topic.Tx) error {
		if err := errors.Join(tx.Send(b, "kk", 1), tx.Flush()); err != nil {
			return err
		}
		info, err = node.Describe(ctx, "b")
		return err
	}))
	require.WithinDuration(t, began, info.Partitions[0].OldestTransaction, time.Minute)
	require.Zero(t, info.Partitions[0].LastStable)
	_, err = node.Describe(ctx, "c")
	require.ErrorIs(t, err, log.ErrUnknownTopic)
}

// TestAlterTopic shows that settings change under producers and readers, and that a
// topic which a job reads into state without a shuffle gets no more partitions.
func TestAlterTopic(t *testing.T) {
	ctx := t.Context()
	node, err := thalweg.Open("")
	require.NoError(t, err)
	defer node.Close()
	direct, shuffled := topic.New[string, int]("direct"), topic.New[string, int]("shuffled")
	app := stream.New("counts")
	app.Stream(direct).GroupByKey().Count().As("by-key").To(topic.New[string, int64]("out-1"))
	app.Stream(shuffled).GroupBy(func(v int) int { return v }).Count().As("by-value").To(topic.New[int, int64]("out-2"))
	job, err := node.Start(ctx, app)
	require.NoError(t, err)
	require.NoError(t, node.Alter(ctx, direct.Retain(time.Hour), shuffled.Partitions(3)))
	info, err := node.Describe(ctx, "direct")
	require.NoError(t, err)
	require.Equal(t, time.Hour, info.Spec.RetentionAge)
	info, err = node.Describe(ctx, "shuffled")
	require.NoError(t, err)
	require.Len(t, info.Partitions, 3)

	err = node.Alter(ctx, direct.Retain(time.Hour).Partitions(2))
	require.ErrorIs(t, err, log.ErrNotAlterable)
	require.ErrorContains(t, err, `job "counts" reads it into state without a shuffle`)
	sent, err := node.Producer(direct.Retain(time.Hour))
	require.NoError(t, err)
	require.NoError(t, sent.Send(ctx, "a", 1))
	require.NoError(t, sent.Close())
	for r, err := range node.Read(ctx, topic.New[string, int64]("out-1"), topic.Start()) {
		require.NoError(t, err)
		require.EqualValues(t, 1, r.Value)
		break // a checkpoint is complete
	}
	require.NoError(t, job.Stop(ctx))
	require.ErrorIs(t, node.Alter(ctx, direct.Partitions(2)), log.ErrNotAlterable, "the job is still known")
	require.ErrorIs(t, node.Alter(ctx, shuffled.Partitions(2)), log.ErrNotAlterable)
	require.ErrorIs(t, node.Alter(ctx, topic.New[string, int]("none")), log.ErrUnknownTopic)

	producer, err := node.Producer(shuffled.Partitions(3))
	require.NoError(t, err)
	for i := range 30 {
		require.NoError(t, producer.Send(ctx, string(rune('a'+i)), i))
	}
	info, err = node.Describe(ctx, "shuffled")
	require.NoError(t, err)
	for _, p := range info.Partitions {
		require.Positive(t, p.End)
	}
}
