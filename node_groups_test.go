package thalweg_test

import (
	"context"
	"errors"
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
	"github.com/thalweg/thalweg/topic"
)

var numbers = topic.New[string, int]("numbers")

// fillNumbers sends [from, to) to one partition each by number modulo partitions.
func fillNumbers(t *testing.T, n *thalweg.Node, top topic.Topic[string, int], from, to int) {
	t.Helper()
	// With a linger that no load outlasts few records are one batch, which one poll gives.
	p, err := n.ProducerWith(top.PartitionBy(func(k string, n int) int { i, _ := strconv.Atoi(k); return i % n }), topic.ProducerOptions{Linger: time.Hour})
	require.NoError(t, err)
	for i := from; i < to; i++ {
		require.NoError(t, p.Queue(t.Context(), strconv.Itoa(i), i))
	}
	require.NoError(t, p.Close())
}

// take reads count records and returns their values. It leaves the loop by asking for
// one more, which is not there, so that all are finished.
func take[V any](t *testing.T, c *topic.Consumer[string, V], count int) (values []V) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for r, err := range c.Records(ctx) {
		if errors.Is(err, context.Canceled) {
			break
		}
		require.NoError(t, err)
		values = append(values, r.Value)
		if len(values) == count {
			cancel() // the loop asks once more: the record is finished
		}
	}
	return values
}

func count(from, to int) (values []int) {
	for i := from; i < to; i++ {
		values = append(values, i)
	}
	return values
}

func committed(t *testing.T, n *thalweg.Node, group string, partition int) int64 {
	t.Helper()
	info, err := n.Group(group)
	if errors.Is(err, topic.ErrUnknownGroup) {
		return -1
	}
	require.NoError(t, err)
	for _, p := range info.Partitions {
		if int(p.Partition) == partition && p.Known {
			return p.Committed.Offset
		}
	}
	return -1
}

// inMemory runs f over a node in memory under a stopped clock.
func inMemory(t *testing.T, f func(t *testing.T, n *thalweg.Node)) {
	synctest.Test(t, func(t *testing.T) {
		n, err := thalweg.Options{SyncInterval: -1}.Open("")
		require.NoError(t, err)
		defer func() { require.NoError(t, n.Close()) }()
		f(t, n)
	})
}

// A group goes on where it was left, and an end of the loop in the midst of a record
// delivers that one again.
func TestConsumerGoesOn(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		fillNumbers(t, n, numbers, 0, 10)
		c, err := n.Consumer(numbers, "g")
		require.NoError(t, err)
		require.Equal(t, count(0, 4), take(t, c, 4))
		for r, err := range c.Records(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, 4, r.Value)
			break
		}
		require.Equal(t, []int{0}, c.Assigned())
		for p, lag := range c.Lag() {
			require.Equal(t, 0, p)
			require.EqualValues(t, 6, lag)
		}
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		require.EqualValues(t, 4, committed(t, n, "g", 0))

		c, err = n.Consumer(numbers, "g")
		require.NoError(t, err)
		for r, err := range c.Records(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, 4, r.Value)
			require.NoError(t, c.Commit(t.Context()))
			break
		}
		require.EqualValues(t, 5, committed(t, n, "g", 0), "Commit covers the record in hand")
		require.Equal(t, count(5, 10), take(t, c, 5))
		time.Sleep(1100 * time.Millisecond)
		require.EqualValues(t, 10, committed(t, n, "g", 0), "an automatic commit")
		require.NoError(t, c.Close())
		for _, err := range c.Records(t.Context()) {
			require.ErrorIs(t, err, topic.ErrClosed)
		}
		require.ErrorIs(t, c.Commit(t.Context()), topic.ErrClosed)
	})
}

// mover is an assignor that gives everything to the consumer with the static id it
// names, or else to the first.
type mover struct {
	mu sync.Mutex
	to string
}

func (m *mover) move(to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.to = to
}

func (m *mover) assign(a topic.Assignment) map[topic.TopicPartition]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := a.Consumers[0].ID
	for _, c := range a.Consumers {
		if c.Static == m.to {
			to = c.ID
		}
	}
	target := map[topic.TopicPartition]string{}
	for t, n := range a.Partitions {
		for i := range n {
			target[topic.TopicPartition{Topic: t, Partition: topic.PartitionID(i)}] = to
		}
	}
	return target
}

// poke makes a group compute its target anew, by a member that comes and goes.
func poke(t *testing.T, n *thalweg.Node, group string) {
	t.Helper()
	c, err := n.Consumer(numbers, group)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for range c.Records(ctx) {
		}
	})
	synctest.Wait()
	cancel()
	wg.Wait()
	require.NoError(t, c.Close())
	synctest.Wait()
}

// looks lets a consumer that has lost what it read look after its group.
func looks(t *testing.T, c *topic.Consumer[string, int]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	for _, err := range c.Records(ctx) {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

// Case C-17 (a), row by row: what a member knew of a partition is void once it has
// lost it, also when it gets it back.
func TestC17StalePositions(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		fillNumbers(t, n, numbers, 0, 100)
		m := &mover{to: "A"}
		open := func(id string) *topic.Consumer[string, int] {
			c, err := n.ConsumerWith(numbers, "G", topic.ConsumerOptions{StaticID: id, Assignor: m.assign, OnAssign: nil})
			require.NoError(t, err)
			return c
		}
		handled := map[string][]int{}
		handle := func(name string, c *topic.Consumer[string, int], count int) {
			handled[name] = append(handled[name], take(t, c, count)...)
		}
		at := func(c *topic.Consumer[string, int], committedWant, position int64) {
			t.Helper()
			require.Equal(t, committedWant, committed(t, n, "G", 0))
			require.Equal(t, []int{0}, c.Assigned())
			for _, lag := range c.Lag() {
				require.Equal(t, position, 100-lag)
			}
		}
		// 1. A owns it and handles 0-9.
		a := open("A")
		handle("A", a, 10)
		at(a, -1, 10)

		// 2. It is revoked from A, which commits 10; B owns it.
		b := open("B")
		m.move("B")
		var wg sync.WaitGroup
		wg.Go(func() { handle("B", b, 40) })
		synctest.Wait() // B has joined
		looks(t, a)
		wg.Wait()
		_, revoked := a.Committed(0)
		require.True(t, revoked)
		require.Empty(t, a.Assigned())
		at(b, 10, 50)

		// 3. B has handled 10-49, commits 50.
		require.NoError(t, b.Commit(t.Context()))
		at(b, 50, 50)

		// 4. A, still with generation 1, stores and commits 12.
		require.ErrorIs(t, a.CommitAt(t.Context(), topic.Committed{Offset: 12}), topic.ErrStale)
		at(b, 50, 50)

		// 5. A owns it again.
		m.move("A")
		poke(t, n, "G")
		looks(t, b)
		for r, err := range a.Records(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, 50, r.Value)
			break // it has not handled it
		}
		at(a, 50, 50)

		// 6. A's periodic commit fires before it has handled anything.
		time.Sleep(3 * time.Second)
		synctest.Wait()
		at(a, 50, 50)

		// 7. A handles 50-59, commits 60.
		handle("A", a, 10)
		require.NoError(t, a.Commit(t.Context()))
		at(a, 60, 60)
		require.Equal(t, append(count(0, 10), count(50, 60)...), handled["A"])
		require.Equal(t, count(10, 50), handled["B"])
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
}

// Row 4 of C-17 (a) where A does not know yet that it has lost the partition: the group
// refuses the commit, and A is told.
func TestC17CommitOfAnExpiredMember(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		fillNumbers(t, n, numbers, 0, 100)
		var lost []topic.TopicPartition
		a, err := n.ConsumerWith(numbers, "G", topic.ConsumerOptions{PollTimeout: 10 * time.Second, CommitInterval: -1,
			OnLost: func(_ context.Context, p []topic.TopicPartition) { lost = append(lost, p...) }})
		require.NoError(t, err)
		require.Equal(t, count(0, 10), take(t, a, 10))
		require.NoError(t, a.CommitAt(t.Context(), topic.Committed{Offset: 10, Metadata: "ten"}))
		time.Sleep(13 * time.Second) // A's program does not poll
		synctest.Wait()
		b, err := n.ConsumerWith(numbers, "G", topic.ConsumerOptions{CommitInterval: -1})
		require.NoError(t, err)
		require.Equal(t, count(10, 50), take(t, b, 40))
		require.NoError(t, b.Commit(t.Context()))
		require.Equal(t, []int{0}, a.Assigned(), "it does not know yet")
		require.ErrorIs(t, a.CommitAt(t.Context(), topic.Committed{Offset: 12}), topic.ErrStale)
		require.EqualValues(t, 50, committed(t, n, "G", 0))
		require.Empty(t, lost)
		require.NoError(t, b.Close())
		require.Equal(t, count(50, 60), take(t, a, 10), "it has joined anew")
		require.Equal(t, []topic.TopicPartition{{Topic: "numbers"}}, lost)
		require.NoError(t, a.Close())
		require.EqualValues(t, 50, committed(t, n, "G", 0), "nothing is committed unasked")
	})
}

// Case C-17 (b), row by row: retention has moved the start to 70, the end is 100.
func TestC17PositionsThatNoLongerExist(t *testing.T) {
	rows := []struct {
		committed                int64
		earliest, latest         int64
		skipEarliest, skipLatest int64
		reset                    bool
	}{
		{60, 70, 100, 10, 40, true},
		{70, 70, 70, 0, 0, false},
		{100, 100, 100, 0, 0, false},
		{101, 70, 100, 0, 0, true},
	}
	for _, row := range rows {
		t.Run(fmt.Sprint(row.committed), func(t *testing.T) {
			inMemory(t, func(t *testing.T, n *thalweg.Node) {
				fillNumbers(t, n, numbers, 0, 100)
				lp, err := n.Log().Partition(log.TopicPartition{Topic: "numbers"})
				require.NoError(t, err)
				start := func(group string, o topic.ConsumerOptions) (at int64, resets []topic.Reset, err error) {
					first, e := n.ConsumerWith(numbers, group, topic.ConsumerOptions{CommitInterval: -1})
					require.NoError(t, e)
					take(t, first, 1)
					require.NoError(t, first.CommitAt(t.Context(), topic.Committed{Offset: row.committed, LeaderEpoch: -1}))
					require.NoError(t, first.Close())
					require.NoError(t, lp.DeleteBefore(70))
					o.OnReset = func(r topic.Reset) { resets = append(resets, r) }
					c, e := n.ConsumerWith(numbers, group, o)
					require.NoError(t, e)
					defer c.Close()
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					defer cancel()
					at = -1
					for r, e := range c.Records(ctx) {
						if e == nil {
							at = r.Offset
						} else if !errors.Is(e, context.DeadlineExceeded) {
							err = e
						}
						break
					}
					if err != nil || at >= 0 {
						return at, resets, err
					}
					for _, lag := range c.Lag() {
						at = 100 - lag
					}
					return at, resets, err
				}
				check := func(group string, to topic.Position, want, skipped int64) {
					at, resets, err := start(group, topic.ConsumerOptions{Reset: to})
					require.NoError(t, err)
					require.Equal(t, want, at)
					if !row.reset {
						require.Empty(t, resets)
						return
					}
					require.Equal(t, []topic.Reset{{Group: group, Partition: log.TopicPartition{Topic: "numbers"}, Reason: topic.OutOfRange,
						From: row.committed, To: want, Start: 70, End: 100, Skipped: skipped}}, resets)
				}
				check("earliest", topic.Start(), row.earliest, row.skipEarliest)
				check("latest", topic.End(), row.latest, row.skipLatest)

				at, resets, err := start("error", topic.ConsumerOptions{NoReset: true})
				require.Empty(t, resets)
				if !row.reset {
					require.NoError(t, err)
					require.Equal(t, row.earliest, at)
					return
				}
				var e *topic.OffsetError
				require.ErrorAs(t, err, &e)
				require.Equal(t, &topic.OffsetError{Partition: log.TopicPartition{Topic: "numbers"}, Offset: log.Offset(row.committed), Start: 70, End: 100}, e)
				require.Equal(t, int64(-1), at, "nothing is delivered")
			})
		})
	}
}

// reader is a consumer that reads in the background and keeps what it has seen.
type reader struct {
	close  func() error
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	seen []string // "topic-partition:offset"
	err  error
}

func readAll(c *topic.RawConsumer) *reader {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reader{close: c.Close, cancel: cancel}
	r.wg.Go(func() {
		for rec, err := range c.Records(ctx) {
			r.mu.Lock()
			if err != nil {
				r.err = err
			} else {
				r.seen = append(r.seen, fmt.Sprintf("%s-%d:%d", rec.Topic, rec.Partition, rec.Offset))
			}
			r.mu.Unlock()
		}
	})
	return r
}

// stop ends the reading, but not the membership.
func (r *reader) stop() {
	r.cancel()
	r.wg.Wait()
}

func (r *reader) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := slices.Sorted(slices.Values(r.seen))
	r.seen = nil
	return seen
}

func send(t *testing.T, n *thalweg.Node, name string, partitions int) {
	t.Helper()
	fillNumbers(t, n, topic.New[string, int](name).Partitions(partitions), 0, partitions)
}

// A pattern covers topics that come later, and those that go are forgotten; internal
// topics never match.
func TestSubscribe(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		send(t, n, "orders-eu", 2)
		send(t, n, "other", 1)
		c, err := n.Subscribe(topic.Topics("audit").Matching("orders-.*"), "g")
		require.NoError(t, err)
		r := readAll(c)
		synctest.Wait()
		require.Equal(t, []string{"orders-eu-0:0", "orders-eu-1:0"}, r.take())
		send(t, n, "orders-us", 1)
		send(t, n, "audit", 1)
		synctest.Wait()
		require.Equal(t, []string{"audit-0:0", "orders-us-0:0"}, r.take())
		require.Len(t, c.Assigned(), 4)
		at, ok := c.Committed(topic.TopicPartition{Topic: "orders-us"})
		require.False(t, ok, "%v", at)
		time.Sleep(1100 * time.Millisecond)
		at, ok = c.Committed(topic.TopicPartition{Topic: "orders-us"})
		require.True(t, ok)
		require.EqualValues(t, 1, at.Offset)

		require.NoError(t, n.Delete(t.Context(), topic.New[string, int]("orders-us")))
		synctest.Wait()
		require.Len(t, c.Assigned(), 3)
		_, ok = c.Committed(topic.TopicPartition{Topic: "orders-us"})
		require.False(t, ok)
		require.NoError(t, r.err)
		for _, again := range r.take() {
			require.Equal(t, "orders-us-0:0", again, "its position is forgotten before it is deleted: it may come once more between")
		}
		send(t, n, "orders-us", 1)
		synctest.Wait()
		require.Equal(t, []string{"orders-us-0:0"}, r.take(), "another topic of that name is read from its beginning")
		require.NoError(t, c.Close())
		synctest.Wait()
		require.ErrorIs(t, r.err, topic.ErrClosed)
		r.stop()

		decode, err := numbers.Decoder()
		require.NoError(t, err)
		rec, err := decode(topic.RawRecord{Topic: "numbers", Record: topic.Record[[]byte, []byte]{NoKey: true, Value: []byte{0, 0, 0, 0, 0, 0, 0, 7}, Offset: 3}})
		require.NoError(t, err)
		require.Equal(t, topic.Record[string, int]{NoKey: true, Value: 7, Offset: 3}, rec)
		_, err = decode(topic.RawRecord{Topic: "other"})
		require.Error(t, err)
		_, err = n.Subscribe(topic.Matching("("), "g")
		require.Error(t, err)
		_, err = n.Subscribe(topic.Subscription{}, "g")
		require.Error(t, err)
		_, err = n.Subscribe(topic.Topics("__thalweg_metadata"), "g")
		require.ErrorIs(t, err, log.ErrInvalidName)
	})
}

// Members share the partitions evenly, hand over with the position committed, and the
// others take over what one leaves. Groups do not disturb each other.
func TestGroupShares(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		send(t, n, "t", 6)
		join := func(group string) *reader {
			c, err := n.SubscribeWith(topic.Topics("t"), group, topic.ConsumerOptions{})
			require.NoError(t, err)
			r := readAll(c)
			synctest.Wait()
			return r
		}
		a := join("g")
		require.Len(t, a.take(), 6)
		b := join("g")
		require.Empty(t, b.take(), "nothing is delivered again")
		other := join("other")
		require.Len(t, other.take(), 6)
		info, err := n.Group("g")
		require.NoError(t, err)
		require.Equal(t, topic.GroupStable, info.State)
		require.Len(t, info.Members, 2)
		require.Len(t, info.Members[0].Owned, 3)
		require.Equal(t, []string{"t"}, info.Members[0].Topics)
		require.Len(t, info.Partitions, 6)

		send(t, n, "t", 6)
		synctest.Wait()
		require.Len(t, a.take(), 3)
		require.Len(t, b.take(), 3)
		require.ErrorIs(t, n.ResetGroup(t.Context(), "g", topic.Start()), topic.ErrGroupInUse)
		require.ErrorIs(t, n.DeleteGroup(t.Context(), "g"), topic.ErrGroupInUse)
		require.NoError(t, a.close())
		a.stop()
		send(t, n, "t", 6)
		synctest.Wait()
		require.Len(t, b.take(), 6)
		require.NoError(t, b.close())
		b.stop()
		require.NoError(t, other.close())
		other.stop()

		info, err = n.Group("g")
		require.NoError(t, err)
		require.Equal(t, topic.GroupEmpty, info.State)
		for i, p := range info.Partitions {
			require.Equal(t, i, int(p.Partition))
			require.True(t, p.Known)
			require.EqualValues(t, 3, p.Committed.Offset)
			require.Zero(t, p.Lag)
		}
		require.NoError(t, n.ResetGroup(t.Context(), "g", topic.Offset(1)))
		info, err = n.Group("g")
		require.NoError(t, err)
		require.EqualValues(t, 2, info.Partitions[0].Lag)
		require.NoError(t, n.ResetGroup(t.Context(), "new", topic.End(), topic.New[string, int]("t")))
		require.ErrorIs(t, n.ResetGroup(t.Context(), "none", topic.End()), topic.ErrUnknownGroup)
		require.Error(t, n.ResetGroup(t.Context(), "g", topic.End(), topic.New[string, int]("no-such")))
		require.ErrorIs(t, n.ResetGroup(t.Context(), "g", topic.Offset(9)), log.ErrOffsetOutOfRange)
		var names []string
		for g := range n.Groups() {
			names = append(names, g.Name)
		}
		require.Equal(t, []string{"g", "new", "other"}, names)
		require.NoError(t, n.DeleteGroup(t.Context(), "new"))
		require.ErrorIs(t, n.DeleteGroup(t.Context(), "new"), topic.ErrUnknownGroup)
		c := join("g")
		require.Len(t, c.take(), 12)
		c.cancel()
	})
}

// Seeks and pauses take effect at the next record, also from within the loop.
func TestSeekAndPause(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		two := numbers.Partitions(2)
		fillNumbers(t, n, two, 0, 10)
		c, err := n.Consumer(two, "g")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var values []int
		again := true
		for r, err := range c.Records(ctx) {
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				break
			}
			if len(values) == 0 {
				c.Pause(1 - r.Partition)
			}
			values = append(values, r.Value%2*100+r.Value/2)
			if r.Offset == 2 && again {
				again = false
				require.NoError(t, c.SeekPartition(r.Partition, topic.Offset(1)))
			}
		}
		if values[0] == 100 {
			for i := range values {
				values[i] -= 100
			}
		}
		require.Equal(t, []int{0, 1, 2, 1, 2, 3, 4}, values)
		c.Resume()
		require.Len(t, take(t, c, 5), 5)
		require.NoError(t, c.Seek(topic.End()))
		require.NoError(t, c.Seek(topic.Start()))
		require.Len(t, take(t, c, 10), 10)
		require.ErrorIs(t, c.SeekPartition(7, topic.Start()), topic.ErrNotAssigned)
		require.ErrorIs(t, c.SeekPartition(0, topic.Offset(77)), log.ErrOffsetOutOfRange)
		require.NoError(t, c.SeekPartition(0, topic.Offset(3)))
		require.NoError(t, c.Close())
		require.EqualValues(t, 3, committed(t, n, "g", 0), "a seek is where the consumer is")
		require.EqualValues(t, 5, committed(t, n, "g", 1))
	})
}

// Poll hands out what is stored together, at most as many as asked for, and a batch is
// finished when the next is asked for.
func TestPollAndBatches(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		fillNumbers(t, n, numbers, 0, 10)
		c, err := n.ConsumerWith(numbers, "g", topic.ConsumerOptions{MaxPollRecords: 4, CommitInterval: -1})
		require.NoError(t, err)
		var sizes []int
		next := 0
		for range 2 {
			batch, err := c.Poll(t.Context())
			require.NoError(t, err)
			sizes = append(sizes, len(batch))
			for _, r := range batch {
				require.Equal(t, next, r.Value)
				next++
			}
		}
		require.Equal(t, []int{4, 4}, sizes)
		require.NoError(t, c.Commit(t.Context()))
		require.EqualValues(t, 8, committed(t, n, "g", 0))
		for batch, err := range c.Batches(t.Context()) {
			require.NoError(t, err)
			require.Len(t, batch, 2)
			break
		}
		batch, err := c.Poll(t.Context())
		require.NoError(t, err)
		require.Len(t, batch, 2, "the loop was left with it")
		require.EqualValues(t, 8, batch[0].Offset)
		require.NoError(t, c.CommitAt(t.Context(), topic.Committed{Offset: 9, Metadata: "nine"}))
		at, ok := c.Committed(0)
		require.True(t, ok)
		require.Equal(t, topic.Committed{Topic: "numbers", Offset: 9, Metadata: "nine"}, at)
		require.Error(t, c.CommitAt(t.Context(), topic.Committed{Offset: 9}, topic.Committed{Offset: 8}))
		require.Error(t, c.CommitAt(t.Context(), topic.Committed{Offset: -1}))
		require.Error(t, c.CommitAt(t.Context(), topic.Committed{Offset: 1, Metadata: string(make([]byte, topic.MaxMetadata+1))}))
		require.ErrorIs(t, c.CommitAt(t.Context(), topic.Committed{Partition: 3}), topic.ErrStale)
		require.NoError(t, c.Close())
		require.EqualValues(t, 9, committed(t, n, "g", 0))
	})
}

// At most once commits before it delivers: a crash loses what was not handled, a
// consumer that is left and asked again goes on behind the record.
func TestAtMostOnce(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		fillNumbers(t, n, numbers, 0, 10)
		c, err := n.ConsumerWith(numbers, "g", topic.ConsumerOptions{Delivery: topic.AtMostOnce})
		require.NoError(t, err)
		for want := range 2 {
			for r, err := range c.Records(t.Context()) {
				require.NoError(t, err)
				require.Equal(t, want, r.Value)
				require.EqualValues(t, 10, committed(t, n, "g", 0))
				break
			}
		}
		batch, err := c.Poll(t.Context())
		require.NoError(t, err)
		require.Len(t, batch, 8)
		require.NoError(t, c.Commit(t.Context()))
		require.NoError(t, c.Close())
		require.EqualValues(t, 10, committed(t, n, "g", 0))
	})
}

// Each way to begin without a position, and the event that tells of it.
func TestResetPolicies(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		p, err := n.Producer(numbers)
		require.NoError(t, err)
		epoch := time.UnixMilli(0)
		for i := range 10 {
			_, _, err := p.SendRecord(t.Context(), topic.Record[string, int]{Key: "k", Value: i, Time: epoch.Add(time.Duration(i) * time.Minute)})
			require.NoError(t, err)
		}
		for to, want := range map[topic.Position]int64{topic.Start(): 0, topic.End(): 10, topic.At(epoch.Add(3 * time.Minute)): 3} {
			var resets []topic.Reset
			group := to.String()
			open := func() *topic.Consumer[string, int] {
				c, err := n.ConsumerWith(numbers, group, topic.ConsumerOptions{Reset: to, OnReset: func(r topic.Reset) { resets = append(resets, r) }})
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				for range c.Records(ctx) {
					break
				}
				return c
			}
			c := open()
			require.Equal(t, []topic.Reset{{Group: group, Partition: log.TopicPartition{Topic: "numbers"}, Reason: topic.NoPosition, From: -1, To: want, End: 10, Skipped: want}}, resets)
			for _, lag := range c.Lag() {
				require.Equal(t, 10-want, lag)
			}
			if want > 0 {
				require.Equal(t, want, committed(t, n, group, 0), "it begins there for good")
			}
			require.NoError(t, c.Close())
			if want > 0 {
				c = open()
				require.Len(t, resets, 1)
				require.NoError(t, c.Close())
			}
		}
		c, err := n.ConsumerWith(numbers, "none", topic.ConsumerOptions{NoReset: true})
		require.NoError(t, err)
		for range 2 {
			for _, err := range c.Records(t.Context()) {
				require.ErrorIs(t, err, topic.ErrNoPosition)
			}
		}
		require.NoError(t, c.SeekPartition(0, topic.Offset(8)))
		require.Equal(t, []int{8, 9}, take(t, c, 2))

		// Retention overtakes a consumer that reads.
		var resets []topic.Reset
		c, err = n.ConsumerWith(numbers, "slow", topic.ConsumerOptions{OnReset: func(r topic.Reset) { resets = append(resets, r) }})
		require.NoError(t, err)
		for r, err := range c.Records(t.Context()) {
			require.NoError(t, err)
			if r.Offset == 1 {
				break
			}
		}
		lp, err := n.Log().Partition(log.TopicPartition{Topic: "numbers"})
		require.NoError(t, err)
		require.NoError(t, lp.DeleteBefore(6))
		require.Equal(t, []int{6}, take(t, c, 1))
		require.Equal(t, topic.Reset{Group: "slow", Partition: lp.Name(), Reason: topic.OutOfRange, From: 1, To: 6, Start: 6, End: 10, Skipped: 5}, resets[1])
		_, err = n.ConsumerWith(numbers, "g", topic.ConsumerOptions{Reset: topic.Offset(3)})
		require.Error(t, err)
	})
}

// A log that a crash has cut is noticed by the leader epoch of the position: the group
// goes on where the log still is what it read.
func TestTruncatedLogIsNoticed(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		fillNumbers(t, n, numbers, 0, 6)
		fillNumbers(t, n, numbers, 6, 10)
		lp, err := n.Log().Partition(log.TopicPartition{Topic: "numbers"})
		require.NoError(t, err)
		var resets []topic.Reset
		o := topic.ConsumerOptions{OnReset: func(r topic.Reset) { resets = append(resets, r) }}
		c, err := n.ConsumerWith(numbers, "g", o)
		require.NoError(t, err)
		require.Equal(t, count(0, 10), take(t, c, 10))
		require.NoError(t, c.Close())
		require.NoError(t, lp.TruncateTo(6))
		o.NoReset = true
		c, err = n.ConsumerWith(numbers, "g", o)
		require.NoError(t, err)
		for _, err := range c.Records(t.Context()) {
			require.ErrorIs(t, err, topic.ErrTruncated)
		}
		require.NoError(t, c.Close())
		require.EqualValues(t, 10, committed(t, n, "g", 0), "nothing was decided")
		resets = nil
		o.NoReset = false
		c, err = n.ConsumerWith(numbers, "g", o)
		require.NoError(t, err)
		fillNumbers(t, n, numbers, 20, 21)
		require.Equal(t, []int{20}, take(t, c, 1))
		require.Equal(t, []topic.Reset{{Group: "g", Partition: lp.Name(), Reason: topic.Truncated, From: 10, To: 6, End: 7}}, resets)
		require.NoError(t, c.Close())
	})
}

// A static consumer that is closed keeps its partitions until it returns or its session
// is over.
func TestStaticConsumers(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		send(t, n, "t", 4)
		join := func(id string) *reader {
			c, err := n.SubscribeWith(topic.Topics("t"), "g", topic.ConsumerOptions{StaticID: id, SessionTimeout: 10 * time.Second})
			require.NoError(t, err)
			r := readAll(c)
			synctest.Wait()
			return r
		}
		end := func(r *reader) {
			require.NoError(t, r.close())
			r.stop()
			synctest.Wait()
		}
		owned := func() map[string]int {
			info, err := n.Group("g")
			require.NoError(t, err)
			owned := map[string]int{}
			for _, m := range info.Members {
				owned[m.Static] = len(m.Owned)
			}
			return owned
		}
		a, b := join("a"), join("b")
		require.Equal(t, map[string]int{"a": 2, "b": 2}, owned())
		duplicate := join("a")
		require.ErrorIs(t, duplicate.err, topic.ErrStaticInUse)
		end(duplicate)
		end(a)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		require.Equal(t, map[string]int{"a": 2, "b": 2}, owned())
		epoch := func() int64 {
			info, err := n.Group("g")
			require.NoError(t, err)
			return info.Epoch
		}
		before := epoch()
		a = join("a")
		require.Equal(t, before+1, epoch(), "nothing was assigned anew")
		require.Empty(t, a.take(), "it goes on where it was")
		end(a)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		require.Equal(t, map[string]int{"b": 4}, owned())
		end(b)
	})
}

// The functions of the program are told what comes, what is to go and what is gone, in
// time: what OnRevoke commits is where the next owner begins.
func TestCallbacks(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		fillNumbers(t, n, numbers, 0, 10)
		var told []string
		var a *topic.Consumer[string, int]
		var err error
		m := &mover{to: "A"}
		a, err = n.ConsumerWith(numbers, "g", topic.ConsumerOptions{
			StaticID: "A", Assignor: m.assign, CommitInterval: -1,
			OnAssign: func(context.Context, []topic.TopicPartition) {
				told = append(told, "assign")
				require.NoError(t, a.SeekPartition(0, topic.Offset(2)))
			},
			OnRevoke: func(ctx context.Context, p []topic.TopicPartition) {
				told = append(told, fmt.Sprint("revoke ", p))
				require.NoError(t, a.Commit(ctx))
			},
		})
		require.NoError(t, err)
		require.Equal(t, count(2, 5), take(t, a, 3))
		m.move("B")
		b, err := n.ConsumerWith(numbers, "g", topic.ConsumerOptions{StaticID: "B"})
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			require.Equal(t, count(5, 7), take(t, b, 2))
		})
		synctest.Wait()
		looks(t, a)
		wg.Wait()
		require.Equal(t, []string{"assign", "revoke [numbers-0]"}, told)
		require.NoError(t, b.Close())
		require.NoError(t, a.Close())
		require.Len(t, told, 2, "there was nothing to give up")
		_, err = n.Consumer(numbers, "")
		require.Error(t, err)
	})
}

// An assignor that breaks its word, or panics, is an error of its consumer.
func TestBadAssignor(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		fillNumbers(t, n, numbers, 0, 1)
		for name, f := range map[string]topic.Assignor{
			"stranger": func(topic.Assignment) map[topic.TopicPartition]string {
				return map[topic.TopicPartition]string{{Topic: "numbers"}: "me"}
			},
			"partition": func(a topic.Assignment) map[topic.TopicPartition]string {
				return map[topic.TopicPartition]string{{Topic: "numbers", Partition: 1}: a.Consumers[0].ID}
			},
			"panic": func(topic.Assignment) map[topic.TopicPartition]string { panic("no idea") },
		} {
			c, err := n.ConsumerWith(numbers, name, topic.ConsumerOptions{Assignor: f})
			require.NoError(t, err)
			for _, err := range c.Records(t.Context()) {
				require.ErrorContains(t, err, "Assignor")
			}
			require.ErrorContains(t, c.Close(), "Assignor")
		}
	})
}

// Closing the node ends consumers, with what they have finished committed; members of
// the process before are gone when it is opened again.
func TestNodeClosesConsumers(t *testing.T) {
	dir := t.TempDir()
	n, err := thalweg.Open(dir)
	require.NoError(t, err)
	fillNumbers(t, n, numbers, 0, 10)
	c, err := n.Consumer(numbers, "g")
	require.NoError(t, err)
	require.Equal(t, count(0, 6), take(t, c, 6))
	require.NoError(t, n.Close())
	_, err = n.Group("g")
	require.ErrorIs(t, err, thalweg.ErrClosed)
	n, err = thalweg.Open(dir)
	require.NoError(t, err)
	defer n.Close()
	require.EqualValues(t, 6, committed(t, n, "g", 0))
	c, err = n.Consumer(numbers, "g")
	require.NoError(t, err)
	require.Equal(t, count(6, 10), take(t, c, 4))
}

// The time a program may take begins when it is given a record, however long it waited
// for one.
func TestPollTimeoutBeginsWithTheRecord(t *testing.T) {
	inMemory(t, func(t *testing.T, n *thalweg.Node) {
		lost := false
		c, err := n.ConsumerWith(numbers, "g", topic.ConsumerOptions{PollTimeout: 10 * time.Second,
			OnLost: func(context.Context, []topic.TopicPartition) { lost = true }})
		require.NoError(t, err)
		go func() {
			time.Sleep(34 * time.Second) // just before the consumer looks after its program, at 35 s
			fillNumbers(t, n, numbers, 0, 1)
		}()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range c.Records(ctx) {
			time.Sleep(9900 * time.Millisecond)
			cancel()
		}
		looks(t, c)
		require.False(t, lost)
		require.NoError(t, c.Close())
	})
}
