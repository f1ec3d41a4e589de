package thalweg_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// tally counts how often each value was read.
type tally struct {
	mu   sync.Mutex
	seen map[int]int
	from map[int]bool // partitions
}

func newTally() *tally { return &tally{seen: map[int]int{}, from: map[int]bool{}} }

func (c *tally) add(r topic.Record[string, int]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[r.Value]++
	c.from[r.Partition] = true
}

func (c *tally) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

// complete shows that each of n values was read once, from as many partitions.
func (c *tally) complete(t *testing.T, n, partitions int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Len(t, c.seen, n)
	for v, times := range c.seen {
		require.Equal(t, 1, times, "value %d", v)
	}
	require.Len(t, c.from, partitions)
}

// Partitions are added to a topic under load: producers, a group of two consumers that
// began at the end, a reader, transactions and a queue all go on, with the new ones too;
// no record is lost or read twice.
func TestPartitionsAreAddedUnderLoad(t *testing.T) {
	const senders, each = 3, 600
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		two, five := numbers.Partitions(2), numbers.Partitions(5)
		p, err := n.Producer(two)
		require.NoError(t, err)
		byGroup, byRead, byQueue := newTally(), newTally(), newTally()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var readers, load sync.WaitGroup
		var consumers []*topic.Consumer[string, int]
		for range 2 {
			c, err := n.ConsumerWith(two, "g", topic.ConsumerOptions{Reset: topic.End()})
			require.NoError(t, err)
			consumers = append(consumers, c)
			readers.Go(func() {
				for r, err := range c.Records(ctx) {
					if err != nil {
						require.ErrorIs(t, err, context.Canceled)
						return
					}
					byGroup.add(r)
				}
			})
		}
		readers.Go(func() {
			for r, err := range n.Read(ctx, two, topic.End()) {
				if err != nil {
					require.ErrorIs(t, err, context.Canceled)
					return
				}
				byRead.add(r)
			}
		})
		q, err := n.Queue(two, "q", topic.QueueOptions{From: topic.End()})
		require.NoError(t, err)
		readers.Go(func() {
			for d, err := range q.Receive(ctx) {
				if err != nil {
					require.ErrorIs(t, err, context.Canceled)
					return
				}
				byQueue.add(d.Record)
				require.NoError(t, d.Ack(t.Context()))
			}
		})
		synctest.Wait() // all have begun

		for s := range senders {
			load.Go(func() {
				for i := range each {
					v := s*each + i
					if s == 0 {
						require.NoError(t, n.Transact(t.Context(), func(tx *topic.Tx) error {
							return tx.Send(two, strconv.Itoa(v), v)
						}))
					} else {
						require.NoError(t, p.Send(t.Context(), strconv.Itoa(v), v))
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(each / 3 * time.Millisecond)
		require.NoError(t, n.Alter(t.Context(), five))
		synctest.Wait()
		load.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		for name, got := range map[string]*tally{"group": byGroup, "reader": byRead, "queue": byQueue} {
			require.Equal(t, senders*each, got.count(), name)
			got.complete(t, senders*each, 5)
		}
		var assigned []int
		for _, c := range consumers {
			assigned = append(assigned, c.Assigned()...)
		}
		slices.Sort(assigned)
		require.Equal(t, count(0, 5), assigned)
		status, err := q.Status(t.Context())
		require.NoError(t, err)
		require.Len(t, status.Partitions, 5)
		cancel()
		readers.Wait()
		require.NoError(t, q.Close())
		require.NoError(t, p.Close())
	})
}

// Keys move to the partitions of the new count from the next record on, wherever the
// producer was opened; records without one go to all of them.
func TestProducerFollowsAddedPartitions(t *testing.T) {
	ctx := t.Context()
	n, err := thalweg.Open("")
	require.NoError(t, err)
	defer n.Close()
	p, err := n.ProducerWith(numbers.Partitions(2), topic.ProducerOptions{Name: "p"})
	require.NoError(t, err)
	defer p.Close()
	send := func(partitions int) {
		t.Helper()
		for i := range 40 {
			key := fmt.Sprint(i)
			at, _, err := p.SendRecord(ctx, topic.Record[string, int]{Key: key})
			require.NoError(t, err)
			require.Equal(t, topic.Partition([]byte(key), partitions), at)
			at, _, err = p.SendIf(ctx, topic.Record[string, int]{Key: fmt.Sprint(partitions, "/", i)}, topic.Absent())
			require.NoError(t, err)
			require.Less(t, at, partitions)
		}
	}
	send(2)
	_, err = p.Written(4)
	require.Error(t, err)
	require.NoError(t, n.Alter(ctx, numbers.Partitions(5)))
	send(5)
	used := map[int]bool{}
	for range 50 {
		at, _, err := p.SendRecord(ctx, topic.Record[string, int]{NoKey: true})
		require.NoError(t, err)
		used[at] = true
	}
	require.Len(t, used, 5)
	written, err := p.Written(4)
	require.NoError(t, err)
	require.Positive(t, written)
}

// A job reads the partitions that its topic has gained from its next start on, from
// their beginning, wherever it had been told to start.
func TestJobReadsAddedPartitions(t *testing.T) {
	ctx := t.Context()
	n, err := thalweg.Open("")
	require.NoError(t, err)
	defer n.Close()
	out := topic.New[string, int]("out")
	start := func(in topic.Topic[string, int]) *stream.Job {
		app := stream.New("copy")
		app.StartAt(topic.End())
		app.Stream(in).GroupBy(func(v int) int { return v % 7 }).Count().As("counts").ToStream().Map(func(c int64) int { return int(c) }).To(topic.New[int, int]("counts"))
		app.Stream(in).To(out)
		job, err := n.Start(ctx, app)
		require.NoError(t, err)
		return job
	}
	two, five := numbers.Partitions(2), numbers.Partitions(5)
	fillNumbers(t, n, two, 0, 10) // before its start
	job := start(two)
	fillNumbers(t, n, two, 10, 100)
	require.NoError(t, n.Alter(ctx, five))
	fillNumbers(t, n, five, 100, 200) // also to partitions that it does not read
	require.NoError(t, job.Stop(ctx))
	fillNumbers(t, n, five, 200, 300)
	job = start(five)
	got := newTally()
	reading, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for r, err := range n.Read(reading, out, topic.Start()) {
		require.NoError(t, err)
		got.add(r)
		if got.count() == 290 {
			break
		}
	}
	require.NoError(t, job.Stop(ctx))
	got.complete(t, 290, 1)
	require.Zero(t, got.seen[9])
}

// A topic that is deleted and made again is another one, also for transactions that knew
// the first.
func TestTransactAfterATopicWasMadeAnew(t *testing.T) {
	ctx := t.Context()
	n, err := thalweg.Open("")
	require.NoError(t, err)
	defer n.Close()
	send := func() error {
		return n.Transact(ctx, func(tx *topic.Tx) error { return tx.Send(numbers, "a", 1) })
	}
	require.NoError(t, send())
	require.NoError(t, n.Delete(ctx, numbers))
	require.NoError(t, send())
	p, err := n.Log().Partition(log.TopicPartition{Topic: "numbers"})
	require.NoError(t, err)
	require.EqualValues(t, 2, p.End().Offset, "a record and its marker")
}
