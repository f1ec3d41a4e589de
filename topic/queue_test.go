package topic_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// Several consumers share the records of one partition, each of which goes to one of
// them, in order of their offsets. A queue that was read goes on behind it.
func TestQueueSharesAPartition(t *testing.T) {
	n, qs := openQueues(t, nil, topic.QueuesOptions{})
	var want []string
	for i := range 300 {
		want = append(want, fmt.Sprint(i))
	}
	appendJobs(t, n, want...)
	q := openJobs(t, qs, topic.QueueOptions{})
	var mu sync.Mutex
	var got []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for d, err := range q.Receive(ctx) {
				if err != nil {
					break
				}
				require.NoError(t, d.Ack(t.Context()))
				mu.Lock()
				if got = append(got, d.Value); len(got) == len(want) {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	require.ElementsMatch(t, want, got)
	s := partitionStatus(t, q)
	require.Equal(t, topic.QueuePartitionStatus{Start: 300, Delivered: 300, Acknowledged: 300}, s)

	q.Close()
	n, qs = reopen(t, n, qs, topic.QueuesOptions{})
	appendJobs(t, n, "next")
	q = openJobs(t, qs, topic.QueueOptions{})
	d := receive(t, q)
	require.Equal(t, "next", d.Value)
	require.Equal(t, int64(300), d.Offset)
	require.Equal(t, 1, d.Count)
	require.Equal(t, noon, partitionStatus(t, q).Oldest)
}

// With one consumer records come in the order of their offsets.
func TestQueueKeepsTheOrderOfOffsets(t *testing.T) {
	n, qs := openQueues(t, nil, topic.QueuesOptions{})
	appendJobs(t, n, "a", "b", "c", "d")
	q := openJobs(t, qs, topic.QueueOptions{})
	var got []string
	for d, err := range q.Receive(t.Context()) {
		require.NoError(t, err)
		if got = append(got, d.Value); len(got) == 4 {
			break
		}
	}
	require.Equal(t, []string{"a", "b", "c", "d"}, got, "also when none is acknowledged")
}

// A record whose lock runs out is handed out again after its back-off, with the next
// count, and what the one before says of it is refused from then on.
func TestQueueLockRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, qs := openQueues(t, nil, topic.QueuesOptions{})
		appendJobs(t, n, "a")
		q := openJobs(t, qs, topic.QueueOptions{Lock: 10 * time.Second, Backoff: 2 * time.Second})
		begin := time.Now()
		first := receive(t, q)
		require.Equal(t, begin.Add(10*time.Second).UTC(), first.LockedUntil)
		time.Sleep(9 * time.Second)
		require.NoError(t, first.Extend(t.Context()))
		second := receive(t, q)
		require.Equal(t, 21*time.Second, time.Since(begin), "9 s, 10 s of the lock, 2 s of back-off")
		require.Equal(t, 2, second.Count)
		for _, err := range []error{first.Ack(t.Context()), first.Reject(t.Context()), first.Release(t.Context(), 0), first.Extend(t.Context())} {
			require.ErrorIs(t, err, topic.ErrDeliveryOver)
			require.Equal(t, &topic.DeliveryOverError{Queue: "work", Partition: 0, Offset: 0, Count: 1}, err)
		}
		time.Sleep(11 * time.Second) // it has run out, and nobody else has it
		require.ErrorIs(t, second.Extend(t.Context()), topic.ErrDeliveryOver)
		require.NoError(t, second.Ack(t.Context()))
		nothing(t, q, time.Hour)
		require.ErrorIs(t, second.Ack(t.Context()), topic.ErrDeliveryOver, "it was answered")
		require.Equal(t, topic.QueuePartitionStatus{Start: 1, Delivered: 2, Acknowledged: 1}, partitionStatus(t, q))
		q.Close()
		qs.Close()
		n.log.Close()
	})
}

// A released record comes again after the time asked for, before records that were
// never handed out; without one its back-off doubles up to the bound. After the last
// delivery that is allowed it is given up.
func TestQueueRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, qs := openQueues(t, nil, topic.QueuesOptions{})
		appendJobs(t, n, "a", "b")
		q := openJobs(t, qs, topic.QueueOptions{Backoff: time.Second, MaxBackoff: 3 * time.Second, MaxDeliveries: 6})
		begin := time.Now()
		for i, wait := range []time.Duration{0, -1, 5 * time.Second, 0, 0, 0} {
			d := receive(t, q)
			require.Equal(t, "a", d.Value)
			require.Equal(t, i+1, d.Count)
			require.NoError(t, d.Release(t.Context(), wait))
			switch i {
			case 0:
				b := receive(t, q)
				require.Equal(t, "b", b.Value)
				require.NoError(t, b.Ack(t.Context()))
			case 3:
				require.Equal(t, 6*time.Second, time.Since(begin), "1 s, at once, 5 s")
			case 5:
				require.Equal(t, 12*time.Second, time.Since(begin), "twice the bound")
			}
		}
		nothing(t, q, time.Hour)
		require.Equal(t, topic.QueuePartitionStatus{Start: 2, Delivered: 7, Acknowledged: 1, Exhausted: 1}, partitionStatus(t, q))
		q.Close()
		qs.Close()
		n.log.Close()
	})
}

// At the bound of records in flight nothing new is handed out until one is done.
func TestQueueBoundsRecordsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, qs := openQueues(t, nil, topic.QueuesOptions{})
		appendJobs(t, n, "a", "b", "c")
		q := openJobs(t, qs, topic.QueueOptions{InFlight: 2, Lock: time.Hour})
		a, b := receive(t, q), receive(t, q)
		nothing(t, q, time.Minute)
		require.Equal(t, topic.QueuePartitionStatus{Backlog: 3, InFlight: 2, Oldest: noon, Delivered: 2}, partitionStatus(t, q))
		require.NoError(t, b.Ack(t.Context()))
		c := receive(t, q)
		require.Equal(t, "c", c.Value)
		require.Equal(t, topic.QueuePartitionStatus{Backlog: 2, InFlight: 2, Oldest: noon, Delivered: 3, Acknowledged: 1}, partitionStatus(t, q))
		require.NoError(t, a.Release(t.Context(), time.Minute))
		nothing(t, q, 59*time.Second) // one that waits for its next delivery counts
		require.NoError(t, c.Reject(t.Context()))
		require.Equal(t, "a", receive(t, q).Value)
		q.Close()
		qs.Close()
		n.log.Close()
	})
}

// What was delivered and not acknowledged is handed out again by the next process, with
// the next count, after its back-off; what was released with a delay when that is over.
func TestQueueCountsSurviveTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, qs := openQueues(t, nil, topic.QueuesOptions{})
		appendJobs(t, n, "a", "b", "c")
		q := openJobs(t, qs, topic.QueueOptions{Lock: time.Hour})
		a, b, c := receive(t, q), receive(t, q), receive(t, q)
		require.NoError(t, b.Ack(t.Context()))
		require.NoError(t, c.Release(t.Context(), time.Minute))
		q.Close()
		require.ErrorIs(t, a.Ack(t.Context()), topic.ErrQueueClosed)

		n, qs = reopen(t, n, qs, topic.QueuesOptions{})
		q = openJobs(t, qs, topic.QueueOptions{})
		begin := time.Now()
		a = receive(t, q)
		require.Equal(t, "a", a.Value)
		require.Equal(t, 2, a.Count)
		require.Equal(t, time.Second, time.Since(begin))
		require.NoError(t, a.Ack(t.Context()))
		c = receive(t, q)
		require.Equal(t, "c", c.Value)
		require.Equal(t, 2, c.Count)
		require.Equal(t, time.Minute, time.Since(begin))
		q.Close()
		qs.Close()
		n.log.Close()
	})
}

// Records of open transactions are waited for and those of aborted ones passed over and
// counted, as are markers.
func TestQueueDeliversCommittedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, qs := openQueues(t, nil, topic.QueuesOptions{})
		appendJobs(t, n, "a")
		p := n.partition(t, "jobs", 0)
		for id, value := range map[log.ProducerID]string{1: "aborted", 2: "committed"} {
			var b log.BatchBuilder
			b.Add(0, nil, []byte(value), nil)
			_, err := p.Append(t.Context(), b.Finish(log.Producer{ID: id, Transactional: true}))
			require.NoError(t, err)
		}
		q := openJobs(t, qs, topic.QueueOptions{})
		require.NoError(t, receive(t, q).Ack(t.Context()))
		nothing(t, q, time.Minute)
		_, err := p.EndTransaction(1, false)
		require.NoError(t, err)
		_, err = p.EndTransaction(2, true)
		require.NoError(t, err)
		appendJobs(t, n, "b")
		d := receive(t, q)
		require.Equal(t, "committed", d.Value)
		require.True(t, d.NoKey)
		require.NoError(t, d.Ack(t.Context()))
		d = receive(t, q)
		require.Equal(t, "b", d.Value)
		require.NoError(t, d.Ack(t.Context()))
		require.Equal(t, topic.QueuePartitionStatus{Start: 6, Delivered: 3, Acknowledged: 3, Skipped: 3}, partitionStatus(t, q))
		q.Close()
		qs.Close()
		n.log.Close()
	})
}

// What retention deletes is passed over and counted, whether it was never handed out
// or waited to be again; a lock on it still counts.
func TestQueuePassesOverDeletedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, qs := openQueues(t, nil, topic.QueuesOptions{})
		appendJobs(t, n, "a", "b", "c", "d", "e")
		q := openJobs(t, qs, topic.QueueOptions{Lock: time.Hour})
		a, b := receive(t, q), receive(t, q)
		require.NoError(t, b.Release(t.Context(), time.Second))
		require.NoError(t, n.partition(t, "jobs", 0).DeleteBefore(4))
		c, e := receive(t, q), receive(t, q)
		require.Equal(t, "c", c.Value, "it was at hand")
		require.Equal(t, "e", e.Value)
		require.NoError(t, a.Ack(t.Context()))
		nothing(t, q, time.Minute)
		require.NoError(t, c.Release(t.Context(), -1))
		nothing(t, q, time.Minute)
		require.NoError(t, e.Ack(t.Context()))
		require.Equal(t, topic.QueuePartitionStatus{Start: 5, Delivered: 4, Acknowledged: 2, Removed: 3}, partitionStatus(t, q))
		q.Close()
		qs.Close()
		n.log.Close()
	})
}

// Somebody who stops to wait takes no record with it, and none is counted twice for
// that.
func TestQueueReceiverGoes(t *testing.T) {
	n, qs := openQueues(t, nil, topic.QueuesOptions{})
	q := openJobs(t, qs, topic.QueueOptions{Lock: time.Hour})
	var want []string
	got := make(chan string, 1000)
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for d, err := range q.Receive(ctx) {
				if err != nil {
					return
				}
				require.Equal(t, 1, d.Count)
				require.NoError(t, d.Ack(t.Context()))
				got <- d.Value
			}
		}()
		want = append(want, fmt.Sprint(i))
		appendJobs(t, n, want[i])
		cancel()
		<-done
	}
	for len(got) < len(want) {
		d := receive(t, q)
		require.Equal(t, 1, d.Count)
		require.NoError(t, d.Ack(t.Context()))
		got <- d.Value
	}
	close(got)
	require.ElementsMatch(t, want, slices.Collect(func(yield func(string) bool) {
		for v := range got {
			if !yield(v) {
				return
			}
		}
	}))
	require.Equal(t, int64(200), partitionStatus(t, q).Delivered)
}

// The log of a queue's state is cut short by snapshots, and tells the same as before.
func TestQueueStateIsBounded(t *testing.T) {
	o := topic.QueuesOptions{SnapshotBytes: 500, SegmentBytes: 4096}
	n, qs := openQueues(t, nil, o)
	q := openJobs(t, qs, topic.QueueOptions{})
	for i := range 1000 {
		appendJobs(t, n, fmt.Sprint(i))
		if d := receive(t, q); i != 500 {
			require.NoError(t, d.Ack(t.Context()))
		}
	}
	before := partitionStatus(t, q)
	state := n.partition(t, "__thalweg_queue_work", 0)
	require.Less(t, state.End().Offset-state.Start(), log.Offset(150))
	q.Close()
	unopened, err := qs.Status(t.Context(), "work")
	require.NoError(t, err)
	require.Equal(t, topic.QueueStatus{Name: "work", Topic: "jobs", Partitions: []topic.QueuePartitionStatus{before}}, unopened)

	_, qs = reopen(t, n, qs, o)
	q = openJobs(t, qs, topic.QueueOptions{Backoff: -1})
	require.Equal(t, before, partitionStatus(t, q))
	d := receive(t, q)
	require.Equal(t, "500", d.Value)
	require.Equal(t, 2, d.Count)
	require.NoError(t, d.Ack(t.Context()))
	require.Equal(t, int64(1000), partitionStatus(t, q).Start)
}

// A queue begins where its options say the first time it is opened, and where it was
// afterwards.
func TestQueueBegins(t *testing.T) {
	n, qs := openQueues(t, nil, topic.QueuesOptions{})
	appendJobs(t, n, "a", "b")
	q := openJobs(t, qs, topic.QueueOptions{From: topic.End()})
	appendJobs(t, n, "c")
	q.Close()
	q = openJobs(t, qs, topic.QueueOptions{From: topic.Start()})
	require.Equal(t, "c", receive(t, q).Value)
}

// All partitions of a topic are served, whoever receives.
func TestQueueOfSeveralPartitions(t *testing.T) {
	n, qs := openQueues(t, nil, topic.QueuesOptions{})
	many := topic.New[string, string]("many").Partitions(5)
	p := produce(t, n, many)
	q, err := qs.Open(many, "work", topic.QueueOptions{})
	require.NoError(t, err)
	defer q.Close()
	want, got := map[string]bool{}, map[string]bool{}
	for i := range 100 {
		want[fmt.Sprint(i)] = true
		require.NoError(t, p.Send(t.Context(), fmt.Sprint(i), fmt.Sprint(i)))
	}
	for len(got) < len(want) {
		d := receive(t, q)
		got[d.Value] = true
		require.NoError(t, d.Ack(t.Context()))
	}
	require.Equal(t, want, got)
}

// A value that cannot be decoded is an error to who receives, and is given up in the
// end.
func TestQueueUndecodable(t *testing.T) {
	n, qs := openQueues(t, nil, topic.QueuesOptions{})
	appendJobs(t, n, "no number")
	numbers := topic.New[string, int](jobs.Name())
	require.NoError(t, produce(t, n, numbers).Send(t.Context(), "seven", 7))
	q, err := qs.Open(numbers, "work", topic.QueueOptions{MaxDeliveries: 2, Backoff: -1})
	require.NoError(t, err)
	defer q.Close()
	failed := 0
	for {
		var last *topic.Received[string, int]
		for d, err := range q.Receive(t.Context()) {
			var codecErr *topic.CodecError
			if err != nil {
				require.ErrorAs(t, err, &codecErr)
				require.Equal(t, int64(0), codecErr.Offset)
				failed++
			}
			last = d
			break
		}
		if last != nil {
			require.Equal(t, int64(1), last.Offset)
			require.Equal(t, 2, failed)
			break
		}
	}
	require.Equal(t, int64(1), partitionStatus(t, q).Exhausted)
}

// A name belongs to one topic, handles of a queue that is open agree about its
// options, and what is deleted begins anew.
func TestQueueNames(t *testing.T) {
	n, qs := openQueues(t, nil, topic.QueuesOptions{})
	appendJobs(t, n, "a")
	q := openJobs(t, qs, topic.QueueOptions{})
	other := topic.New[string, string]("other")
	_, err := qs.Open(other, "work", topic.QueueOptions{})
	require.ErrorIs(t, err, topic.ErrQueueInUse)
	_, err = qs.Open(jobs, "work", topic.QueueOptions{Lock: time.Second})
	require.ErrorIs(t, err, topic.ErrQueueInUse)
	require.ErrorContains(t, err, "QueueOptions.Lock")
	require.ErrorIs(t, qs.Delete("work"), topic.ErrQueueInUse)
	require.ErrorIs(t, qs.ForgetTopic("jobs"), topic.ErrQueueInUse)
	require.NoError(t, receive(t, q).Ack(t.Context()))
	require.NoError(t, q.Close())
	require.NoError(t, q.Close())
	for _, err := range q.Receive(t.Context()) {
		require.ErrorIs(t, err, topic.ErrQueueClosed)
	}
	_, err = qs.Open(other, "work", topic.QueueOptions{})
	require.ErrorIs(t, err, topic.ErrQueueInUse, "also while it is closed")

	require.Equal(t, []string{"work"}, qs.Names())
	require.NoError(t, qs.Delete("work"))
	require.ErrorIs(t, qs.Delete("work"), topic.ErrUnknownQueue)
	_, err = qs.Status(t.Context(), "work")
	require.ErrorIs(t, err, topic.ErrUnknownQueue)
	q = openJobs(t, qs, topic.QueueOptions{})
	require.Equal(t, 1, receive(t, q).Count)
	q.Close()
	require.NoError(t, qs.ForgetTopic("others"))
	require.Equal(t, []string{"work"}, qs.Names())
	require.NoError(t, qs.ForgetTopic("jobs"))
	require.Empty(t, qs.Names())

	for name, o := range map[string]topic.QueueOptions{
		"Lock":        {Lock: 1},
		"MaxBackoff":  {Backoff: time.Second, MaxBackoff: time.Millisecond},
		"InFlight":    {InFlight: -1},
		"DeadLetters": {DeadLetters: topic.New[[]byte, []byte]("__dead")},
	} {
		_, err := qs.Open(jobs, "work", o)
		require.ErrorContains(t, err, "QueueOptions."+name)
	}
	for _, name := range []string{"", "a/b"} {
		_, err := qs.Open(jobs, name, topic.QueueOptions{})
		require.ErrorIs(t, err, log.ErrInvalidName, "%q", name)
	}
	_, err = qs.Open(jobs.Uncommitted(), "work", topic.QueueOptions{})
	require.ErrorContains(t, err, "Uncommitted")
}

// Closing the queues of a node ends what waits.
func TestQueuesClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, qs := openQueues(t, nil, topic.QueuesOptions{})
		appendJobs(t, n, "a")
		q := openJobs(t, qs, topic.QueueOptions{})
		d := receive(t, q)
		ended := make(chan error)
		go func() {
			for _, err := range q.Receive(t.Context()) {
				ended <- err
			}
		}()
		synctest.Wait()
		qs.Close()
		require.ErrorIs(t, <-ended, topic.ErrQueueClosed)
		require.ErrorIs(t, d.Ack(t.Context()), topic.ErrQueueClosed)
		_, err := qs.Open(jobs, "work", topic.QueueOptions{})
		require.ErrorIs(t, err, topic.ErrQueueClosed)
		require.NoError(t, q.Close())
		n.log.Close()
	})
}

// Partitions that were added to the topic are served from their beginning when the
// queue is opened the next time, too.
func TestQueueOfAGrownTopic(t *testing.T) {
	n, qs := openQueues(t, nil, topic.QueuesOptions{})
	appendJobs(t, n, "a")
	o := topic.QueueOptions{From: topic.End(), Backoff: -1}
	q := openJobs(t, qs, o)
	appendJobs(t, n, "b")
	require.NoError(t, receive(t, q).Ack(t.Context()))
	require.NoError(t, q.Close())
	grown := jobs.Partitions(2).Sync(log.SyncAlways)
	require.NoError(t, n.log.Alter("jobs", grown.Spec()))
	_, err := n.partition(t, "jobs", 1).AppendRecords(t.Context(), log.Record{Value: []byte("c")})
	require.NoError(t, err)
	q, err = qs.Open(grown, "work", o)
	require.NoError(t, err)
	defer q.Close()
	d := receive(t, q)
	require.Equal(t, "c", d.Value)
	require.Equal(t, 1, d.Partition)
	require.NoError(t, d.Ack(t.Context()))
	spec, _ := n.log.Spec("__thalweg_queue_work")
	require.Equal(t, log.SyncAlways, spec.Sync)
}

// A record whose receiver stops to wait while its delivery is being written goes to the
// next one, as the same delivery.
func TestQueueReceiverGoesDuringTheWrite(t *testing.T) {
	n, qs := openQueues(t, nil, topic.QueuesOptions{})
	q := openJobs(t, qs, topic.QueueOptions{})
	started, written := make(chan struct{}), make(chan struct{})
	var once sync.Once
	n.fs.SetHook(func(op vfs.Op) error {
		if strings.Contains(op.Name, "__thalweg_queue_work-0") {
			once.Do(func() {
				close(started)
				<-written
			})
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() {
		for d, err := range q.Receive(ctx) {
			if err == nil {
				err = fmt.Errorf("offset %d was delivered", d.Offset)
			}
			ended <- err
			return
		}
	}()
	appendJobs(t, n, "a")
	<-started
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	close(written)
	d := receive(t, q)
	require.Equal(t, 1, d.Count)
	require.NoError(t, d.Ack(t.Context()))
	require.Equal(t, topic.QueuePartitionStatus{Start: 1, Delivered: 1, Acknowledged: 1}, partitionStatus(t, q))
}
