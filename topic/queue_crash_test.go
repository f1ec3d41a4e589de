package topic_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// The file system stops in place of some operation, for each one in turn, while
// consumers work on a queue, and loses what was not synced or some of it. In the next
// process no acknowledged record is delivered again, every other one is, and no count
// has gone back.
func TestQueueSurvivesACrashAnywhere(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	step := int64(1)
	if testing.Short() {
		step = 7
	}
	begin := 1 + rand.New(rand.NewPCG(seed, 0)).Int64N(step)
	for at := begin; ; at += step {
		if !crashQueue(t, seed, at) {
			return
		}
	}
}

// durableJobs is a topic whose answers are durable.
var durableJobs = topic.New[string, string]("jobs").Sync(log.SyncAlways)

// crashQueue runs a queue up to operation at and looks at what is left. It returns
// false when the work was done before.
func crashQueue(t *testing.T, seed uint64, at int64) bool {
	const records = 40
	fs := vfs.NewMem()
	options := log.Options{FS: fs, SegmentBytes: 1 << 12, MaxBatchBytes: 1 << 12}
	small := topic.QueuesOptions{SnapshotBytes: 100, SegmentBytes: 1 << 12}

	// The records are there before; how producers crash is shown elsewhere.
	l, err := log.Open("data", options)
	require.NoError(t, err)
	n := &node{log: l, fs: fs}
	p, err := topic.NewProducer(t.Context(), n, durableJobs, topic.ProducerOptions{})
	require.NoError(t, err)
	for i := range records {
		require.NoError(t, p.Send(t.Context(), "k", fmt.Sprint(i)))
	}
	require.NoError(t, p.Close())

	fs.StopAt(fs.Ops() + at)
	qs := topic.NewQueues(queueNode{n}, small)
	var mu sync.Mutex
	counts, acknowledged := map[int64]int{}, map[int64]bool{}
	all, done := context.WithCancel(t.Context())
	defer done()
	work := func(q *topic.Queue[string, string], random *rand.Rand) {
		for d, err := range q.Receive(all) {
			if err != nil {
				return
			}
			mu.Lock()
			require.Equal(t, counts[d.Offset]+1, d.Count)
			require.False(t, acknowledged[d.Offset])
			counts[d.Offset] = d.Count
			if len(counts) == records {
				done()
			}
			mu.Unlock()
			var err error
			switch random.IntN(4) {
			case 0:
				err = d.Release(t.Context(), time.Hour)
			case 1:
				continue
			default:
				err = d.Ack(t.Context())
				mu.Lock()
				acknowledged[d.Offset] = err == nil
				mu.Unlock()
			}
			if err != nil {
				return // it is up to the next process
			}
		}
	}
	stopped := true
	if q, err := qs.Open(durableJobs, "work", topic.QueueOptions{}); err == nil {
		var group sync.WaitGroup
		for i := range uint64(3) {
			group.Go(func() { work(q, rand.New(rand.NewPCG(seed, i))) })
		}
		group.Wait()
		stopped = len(counts) < records
		q.Close()
	}
	qs.Close()
	l.Close()

	options.FS = fs.Crash(seed + uint64(at))
	if at%3 == 0 {
		options.FS = fs.Kill()
	}
	l, err = log.Open("data", options)
	require.NoError(t, err)
	defer l.Close()
	small.Now = func() time.Time { return time.Now().Add(2 * time.Hour) } // what was released is due
	qs = topic.NewQueues(queueNode{&node{log: l}}, small)
	defer qs.Close()
	q, err := qs.Open(durableJobs, "work", topic.QueueOptions{Backoff: -1, MaxDeliveries: -1})
	require.NoError(t, err)
	defer q.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for partitionStatus(t, q).Acknowledged < records {
		for d, err := range q.Receive(ctx) {
			require.NoError(t, err, "operation %d", at)
			require.False(t, acknowledged[d.Offset], "operation %d: record %d was acknowledged", at, d.Offset)
			require.Greater(t, d.Count, counts[d.Offset], "operation %d: record %d", at, d.Offset)
			require.NoError(t, d.Ack(ctx))
			acknowledged[d.Offset] = true
			break
		}
	}
	return stopped
}

// After a power cut that took the end of the topic, but not of the queue's state, the
// records that get the lost offsets are delivered: what the queue knew was of others.
func TestQueueAfterTheTopicLostRecords(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	cut := 0
	for round := range uint64(40) {
		fs := vfs.NewMem()
		n, qs := openQueues(t, fs, topic.QueuesOptions{})
		appendJobs(t, n, "before 0", "before 1")
		require.NoError(t, n.partition(t, "jobs", 0).Sync(t.Context()))
		q := openJobs(t, qs, topic.QueueOptions{})
		appendJobs(t, n, "before 2", "before 3", "before 4", "before 5")
		for i := range 6 {
			d := receive(t, q)
			if i != 4 {
				require.NoError(t, d.Ack(t.Context()))
			}
		}
		require.NoError(t, n.partition(t, "__thalweg_queue_work", 0).Sync(t.Context()))

		n, qs = openQueues(t, fs.Crash(seed+round), topic.QueuesOptions{})
		kept := int64(n.partition(t, "jobs", 0).End().Offset)
		if kept < 6 {
			cut++
		}
		want := []string{}
		for i := range 8 {
			want = append(want, fmt.Sprint("after ", i))
		}
		appendJobs(t, n, want...)
		q = openJobs(t, qs, topic.QueueOptions{Backoff: -1})
		if kept > 4 {
			want = append(want, "before 4")
		}
		var got []string
		for range want {
			d := receive(t, q)
			got = append(got, d.Value)
			require.NoError(t, d.Ack(t.Context()))
		}
		require.ElementsMatch(t, want, got, "round %d: %d records were kept", round, kept)
		require.Equal(t, kept+8, partitionStatus(t, q).Start)
	}
	require.NotZero(t, cut, "no power cut took a record")
}
