package thalweg_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/log/dirstore"
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
	require.WithinDuration(t, time.Now(), info.Partitions[1].Oldest, time.Minute)
	info.Partitions[1].Bytes, info.Partitions[1].Oldest = 0, time.Time{}
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

// brokenStore is an object store that fails while it is told to.
type brokenStore struct {
	log.ObjectStore
	broken atomic.Bool
}

func (s *brokenStore) Put(ctx context.Context, name string, r io.ReadSeeker, size int64) error {
	if s.broken.Load() {
		return errors.New("no such bucket")
	}
	return s.ObjectStore.Put(ctx, name, r, size)
}

// TestDescribeWhatIsGone shows the counts of what was dropped, whatever the reason, and
// what is kept elsewhere.
func TestDescribeWhatIsGone(t *testing.T) {
	ctx := t.Context()
	dir, err := dirstore.Open(t.TempDir())
	require.NoError(t, err)
	store := &brokenStore{ObjectStore: dir}
	node, err := thalweg.Options{Log: log.Options{SegmentBytes: 1 << 10, Remote: store, RemoteInterval: -1, CompactionInterval: -1}}.Open("")
	require.NoError(t, err)
	defer node.Close()
	describe := func(name string) thalweg.PartitionInfo {
		t.Helper()
		info, err := node.Describe(ctx, name)
		require.NoError(t, err)
		require.Len(t, info.Partitions, 1)
		return info.Partitions[0]
	}
	partition := func(name string) *log.Partition {
		p, err := node.Log().Partition(log.TopicPartition{Topic: name})
		require.NoError(t, err)
		return p
	}

	mortal := topic.New[string, int]("mortal").TimeToLive(time.Hour)
	p, err := node.Producer(mortal)
	require.NoError(t, err)
	old := time.Now().Add(-2 * time.Hour).Truncate(time.Millisecond).UTC()
	for i := range 4 {
		at := old
		if i == 3 {
			at = time.Time{}
		}
		_, _, err := p.SendRecord(ctx, topic.Record[string, int]{Key: "k", Value: i, Time: at})
		require.NoError(t, err)
	}
	undone := errors.New("undone")
	require.ErrorIs(t, node.Transact(ctx, func(tx *topic.Tx) error {
		return errors.Join(tx.Send(mortal, "k", 5), tx.Flush(), undone)
	}), undone)
	for range 2 {
		read := 0
		for _, err := range node.ReadToEnd(ctx, mortal, topic.Start()) {
			require.NoError(t, err)
			read++
		}
		require.Equal(t, 1, read)
	}
	info := describe("mortal")
	require.Equal(t, old, info.Oldest)
	require.EqualValues(t, 6, info.Expired, "three for each of two readers")
	require.EqualValues(t, 1, info.Aborted)

	kept := topic.New[string, int]("kept").Compact()
	c, err := node.Producer(kept)
	require.NoError(t, err)
	for i := range 60 {
		require.NoError(t, c.Send(ctx, "k", i))
	}
	first, err := partition("kept").Compact(ctx)
	require.NoError(t, err)
	require.Positive(t, first.Removed)
	for i := range 60 {
		require.NoError(t, c.Send(ctx, "k", i))
	}
	second, err := partition("kept").Compact(ctx)
	require.NoError(t, err)
	total := describe("kept").Compacted
	require.Equal(t, first.Removed+second.Removed, total.Removed)
	require.Equal(t, first.Passes+second.Passes, total.Passes)
	require.Equal(t, second.Kept, total.Kept)

	far := topic.New[string, string]("far").Remote().RetainLocallyBytes(1)
	f, err := node.Producer(far)
	require.NoError(t, err)
	for range 5 {
		require.NoError(t, f.Send(ctx, "k", strings.Repeat("x", 600)))
	}
	store.broken.Store(true)
	require.NoError(t, partition("far").Sync(ctx))
	require.Eventually(t, func() bool {
		err := partition("far").Offload(ctx)
		return err != nil && strings.Contains(err.Error(), "no such bucket")
	}, 10*time.Second, time.Millisecond)
	require.ErrorContains(t, describe("far").Remote.Failed, "no such bucket")
	store.broken.Store(false)
	require.Eventually(t, func() bool {
		require.NoError(t, partition("far").Offload(ctx))
		return describe("far").Remote.Segments == 4
	}, 10*time.Second, time.Millisecond)
	info = describe("far")
	require.NoError(t, info.Remote.Failed)
	require.EqualValues(t, 4, info.Remote.LocalStart)
	require.Greater(t, info.Remote.Bytes, int64(4*600))
	require.Equal(t, 1, info.Segments)
	require.Zero(t, info.Oldest, "it would have to be fetched")
	require.Zero(t, info.Start)

	require.NoError(t, p.Close())
	require.NoError(t, node.Delete(ctx, mortal))
	require.NoError(t, node.Create(ctx, mortal))
	require.Zero(t, describe("mortal").Expired, "another topic")
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
