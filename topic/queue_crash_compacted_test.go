package topic_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// compactedJobs keeps the newest record of each key, whose answers are durable.
var compactedJobs = topic.New[string, string]("jobs").Sync(log.SyncAlways).Compact()

// compactedQueue is a queue over a partition that is compacted while it is worked on.
type compactedQueue struct {
	fs        *vfs.Mem
	log       *log.Log
	partition *log.Partition
	queues    *topic.Queues
	queue     *topic.Queue[string, string]
}

func openCompacted(t *testing.T, fs *vfs.Mem, later time.Duration) (q *compactedQueue, err error) {
	t.Helper()
	q = &compactedQueue{fs: fs}
	o := log.Options{FS: fs, SegmentBytes: 512, MaxBatchBytes: 4 << 10, CompactionInterval: -1}
	if q.log, err = log.Open("data", o); err != nil {
		return q, err
	}
	n := queueNode{&node{log: q.log, fs: fs}}
	parts, err := n.Open("jobs", compactedJobs.Spec())
	if err != nil {
		return q, err
	}
	q.partition = parts[0]
	q.queues = topic.NewQueues(n, topic.QueuesOptions{
		SnapshotBytes: 100, SegmentBytes: 1 << 10, Now: func() time.Time { return time.Now().Add(later) },
	})
	q.queue, err = q.queues.Open(compactedJobs, "work", topic.QueueOptions{Backoff: -1, MaxDeliveries: -1})
	return q, err
}

func (q *compactedQueue) close() {
	if q.queue != nil {
		q.queue.Close()
	}
	if q.queues != nil {
		q.queues.Close()
	}
	if q.log != nil {
		q.log.Close()
	}
}

// The file system stops in place of each operation in turn, those of compactions among
// them, while a queue over the compacted partition is worked on. In the next process no
// acknowledged record comes again, each that is kept does, and each that is gone is
// counted as passed over.
func TestQueueOverACompactedTopicSurvivesACrashAnywhere(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	step := int64(1)
	if testing.Short() {
		step = 11
	}
	for at := 1 + rand.New(rand.NewPCG(seed, 0)).Int64N(step); crashCompacted(t, seed, at); at += step {
	}
}

func crashCompacted(t *testing.T, seed uint64, at int64) (stopped bool) {
	const keys, records = 5, 30
	fs := vfs.NewMem()
	q, err := openCompacted(t, fs, 0)
	require.NoError(t, err)
	for i := range records {
		_, err := q.partition.AppendRecords(t.Context(), log.Record{Time: 1, Key: fmt.Append(nil, i%keys), Value: fmt.Append(nil, i)})
		require.NoError(t, err)
	}
	fs.StopAt(fs.Ops() + at)
	acknowledged, unknown := map[int64]bool{}, map[int64]bool{}
	random := rand.New(rand.NewPCG(seed, uint64(at)))
	work := func(q *compactedQueue) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for seen := 1; ; seen++ {
			s, err := q.queue.Status(ctx)
			if err != nil || s.Partitions[0].Start == records {
				return err
			}
			if seen%8 == 0 {
				if _, err := q.partition.Compact(ctx); err != nil {
					return err
				}
			}
			for d, err := range q.queue.Receive(ctx) {
				if err != nil {
					return err
				}
				require.False(t, acknowledged[d.Offset], "seed %d, operation %d: record %d was acknowledged", seed, at, d.Offset)
				if random.IntN(3) == 0 {
					err = d.Release(ctx, -1)
				} else if err = d.Ack(ctx); err == nil {
					acknowledged[d.Offset] = true
				} else if errors.Is(err, topic.ErrUnknown) {
					unknown[d.Offset] = true
				}
				if err != nil {
					return err
				}
				break
			}
		}
	}
	stopped = work(q) != nil
	q.close()

	after := fs.Crash(seed + uint64(at))
	if at%3 == 0 {
		after = fs.Kill()
	}
	q, err = openCompacted(t, after, time.Hour)
	require.NoError(t, err, "seed %d, operation %d", seed, at)
	defer q.close()
	require.NoError(t, work(q), "seed %d, operation %d", seed, at)
	for off := range int64(keys) {
		require.True(t, acknowledged[records-1-off] || unknown[records-1-off], "seed %d, operation %d: the newest record of a key, at %d, is not done", seed, at, records-1-off)
	}
	s, err := q.queue.Status(t.Context())
	require.NoError(t, err)
	p := s.Partitions[0]
	require.EqualValues(t, records, p.Acknowledged+p.Skipped+p.Removed, "seed %d, operation %d", seed, at)
	require.GreaterOrEqual(t, p.Acknowledged, int64(len(acknowledged)), "seed %d, operation %d", seed, at)
	return stopped
}
