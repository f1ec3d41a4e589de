package topic_test

import (
	"context"
	"errors"
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
func TestQueueSurvivesACrashAnywhere(t *testing.T) { crashAnywhere(t, 1) }

// The same holds while the topic gains partitions under the queue, which takes them up:
// of those that are there afterwards, every record comes, in whatever of the two
// processes.
func TestQueueSurvivesACrashWhilePartitionsAreAdded(t *testing.T) { crashAnywhere(t, 3) }

func crashAnywhere(t *testing.T, partitions int) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	step := int64(partitions) // from a random one on
	if testing.Short() {
		step *= 7
	}
	begin := 1 + rand.New(rand.NewPCG(seed, 0)).Int64N(step)
	for at := begin; ; at += step {
		if !crashQueue(t, seed, at, partitions) {
			return
		}
	}
}

// durableJobs is a topic whose answers are durable.
var durableJobs = topic.New[string, string]("jobs").Sync(log.SyncAlways)

// place is where a record of a queue is.
type place struct {
	partition int
	offset    int64
}

// crashQueue runs a queue up to operation at and looks at what is left. Halfway the
// topic gains partitions where there are to be more than one. It returns false when the
// work was done before.
func crashQueue(t *testing.T, seed uint64, at int64, partitions int) bool {
	const before, added = 40, 6 // records, those of each partition that is added
	fs := vfs.NewMem()
	options := log.Options{FS: fs, SegmentBytes: 1 << 12, MaxBatchBytes: 1 << 12}
	small := topic.QueuesOptions{SnapshotBytes: 100, SegmentBytes: 1 << 12}

	// The records are there before; how producers crash is shown elsewhere.
	l, err := log.Open("data", options)
	require.NoError(t, err)
	n := &node{log: l, fs: fs}
	p, err := topic.NewProducer(t.Context(), n, durableJobs, topic.ProducerOptions{})
	require.NoError(t, err)
	for i := range before {
		require.NoError(t, p.Send(t.Context(), "k", fmt.Sprint(i)))
	}
	require.NoError(t, p.Close())

	all, done := context.WithCancel(t.Context())
	defer done()
	stop := fs.Ops() + at
	fs.SetHook(func(op vfs.Op) error {
		if op.N < stop {
			return nil
		}
		done() // nobody would tell those who wait for records of new partitions
		return vfs.ErrStopped
	})
	qs := topic.NewQueues(queueNode{n}, small)
	var mu sync.Mutex
	counts, acknowledged := map[place]int{}, map[place]bool{}
	written, grown := before, false // acknowledged records, and that there are all partitions
	grow := func() error {
		if err := l.Alter("jobs", durableJobs.Partitions(partitions).Spec()); err != nil {
			return err
		}
		for i := 1; i < partitions; i++ {
			part, err := l.Partition(log.TopicPartition{Topic: "jobs", Partition: log.PartitionID(i)})
			if err != nil {
				return err
			}
			for j := range added {
				if _, err := part.AppendRecords(t.Context(), log.Record{Time: 1, Key: []byte("k"), Value: fmt.Append(nil, j)}); err != nil {
					return err
				}
				mu.Lock()
				written++
				mu.Unlock()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		grown = true
		if len(counts) == written {
			done()
		}
		return nil
	}
	work := func(q *topic.Queue[string, string], random *rand.Rand) {
		for d, err := range q.Receive(all) {
			if err != nil {
				return
			}
			at := place{d.Partition, d.Offset}
			mu.Lock()
			require.Equal(t, counts[at]+1, d.Count)
			require.False(t, acknowledged[at])
			counts[at] = d.Count
			halfway := len(counts) == before/2
			if len(counts) == written && (grown || partitions == 1) {
				done()
			}
			mu.Unlock()
			var err error
			if halfway && partitions > 1 {
				err = grow()
			}
			switch random.IntN(4) {
			case 0:
				err = errors.Join(err, d.Release(t.Context(), time.Hour))
			case 1:
			default:
				ack := d.Ack(t.Context())
				mu.Lock()
				acknowledged[at] = ack == nil
				mu.Unlock()
				err = errors.Join(err, ack)
			}
			if err != nil {
				done()
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
		stopped = len(counts) < before+(partitions-1)*added
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
	spec, _ := l.Spec("jobs")
	if grown || written > before {
		require.Equal(t, partitions, spec.Partitions, "operation %d", at)
	}
	records := int64(0)
	for i := range spec.Partitions {
		part, err := l.Partition(log.TopicPartition{Topic: "jobs", Partition: log.PartitionID(i)})
		require.NoError(t, err)
		records += int64(part.End().Offset)
	}
	require.GreaterOrEqual(t, records, int64(written), "operation %d", at)
	small.Now = func() time.Time { return time.Now().Add(2 * time.Hour) } // what was released is due
	qs = topic.NewQueues(queueNode{&node{log: l}}, small)
	defer qs.Close()
	q, err := qs.Open(durableJobs.Partitions(spec.Partitions), "work", topic.QueueOptions{Backoff: -1, MaxDeliveries: -1})
	require.NoError(t, err)
	defer q.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for acknowledgedBy(t, q) < records {
		for d, err := range q.Receive(ctx) {
			require.NoError(t, err, "operation %d", at)
			from := place{d.Partition, d.Offset}
			require.False(t, acknowledged[from], "operation %d: record %v was acknowledged", at, from)
			require.Greater(t, d.Count, counts[from], "operation %d: record %v", at, from)
			require.NoError(t, d.Ack(ctx))
			acknowledged[from] = true
			break
		}
	}
	require.Equal(t, records, acknowledgedBy(t, q), "operation %d", at)
	return stopped
}

// acknowledgedBy is how many records of q were, in all partitions.
func acknowledgedBy[K, V any](t *testing.T, q *topic.Queue[K, V]) (n int64) {
	s, err := q.Status(t.Context())
	require.NoError(t, err)
	for _, p := range s.Partitions {
		n += p.Acknowledged
	}
	return n
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
