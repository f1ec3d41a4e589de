package topic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
)

var orders = New[string, string]("orders")

// Send comes back with the record stored, in the partition its key hashes to.
func TestSendRecordReturnsThePlace(t *testing.T) {
	p, parts := fake(t, orders, 3, ProducerOptions{})
	var want [3][]string
	for i := range 50 {
		key := fmt.Sprint("key", i)
		at := Partition([]byte(key), 3)
		partition, offset, err := p.SendRecord(t.Context(), Record[string, string]{Key: key, Value: key, Partition: 99, Offset: 99})
		require.NoError(t, err)
		require.Equal(t, at, partition)
		require.EqualValues(t, len(want[at]), offset)
		want[at] = append(want[at], key)
		require.Equal(t, want[at], parts[at].values())
	}
}

// What a record says of itself arrives, absent differs from empty.
func TestSendRecordKeepsEverything(t *testing.T) {
	p, parts := fake(t, orders, 1, ProducerOptions{})
	headers := []Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte{}}, {Key: "", Value: nil}}
	at := time.UnixMilli(-5)
	for _, r := range []Record[string, string]{
		{Key: "k", Value: "v", Time: at, Headers: headers},
		{Key: "", Value: "", Time: at},
		{NoKey: true, Key: "ignored", Value: "v", Time: at},
		{Key: "k", Deleted: true, Value: "ignored", Time: at},
	} {
		_, _, err := p.SendRecord(t.Context(), r)
		require.NoError(t, err)
	}
	require.Equal(t, []fakeRecord{
		{time: -5, key: "k", value: "v", headers: headers},
		{time: -5},
		{time: -5, noKey: true, value: "v"},
		{time: -5, key: "k", deleted: true},
	}, parts[0].records)
}

// Event time goes before the record's time, that before the clock.
func TestTimeOfRecord(t *testing.T) {
	now := func() time.Time { return time.UnixMilli(1000) }
	given := time.UnixMilli(2000)
	eventTime := func(v string) time.Time {
		ms, _ := strconv.ParseInt(v, 10, 64)
		return time.UnixMilli(ms)
	}
	for _, c := range []struct {
		name string
		t    Topic[string, string]
		r    Record[string, string]
		want int64
	}{
		{"clock", orders, Record[string, string]{Value: "3000"}, 1000},
		{"record", orders, Record[string, string]{Value: "3000", Time: given}, 2000},
		{"event", orders.EventTime(eventTime), Record[string, string]{Value: "3000", Time: given}, 3000},
		{"event before 1970", orders.EventTime(eventTime), Record[string, string]{Value: "-3000"}, -3000},
		{"tombstone", orders.EventTime(eventTime), Record[string, string]{Deleted: true, Time: given}, 2000},
		{"tombstone without time", orders.EventTime(eventTime), Record[string, string]{Deleted: true}, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, parts := fake(t, c.t, 1, ProducerOptions{Now: now})
			var got Result
			require.NoError(t, p.QueueRecord(t.Context(), c.r, func(r Result) { got = r }))
			require.NoError(t, p.Flush(t.Context()))
			require.Equal(t, c.want, parts[0].records[0].time)
			require.Equal(t, Result{Time: time.UnixMilli(c.want).UTC()}, got)
		})
	}
}

// Many goroutines send, queue and flush at once. Nothing is lost or doubled,
// every result names the record's place, and each goroutine's records keep the
// order of its calls.
func TestConcurrentSenders(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	for _, o := range []ProducerOptions{
		{},
		{Linger: -1},
		{BatchBytes: 1024, MemoryBytes: 4096},
		{BatchBytes: 1024, MemoryBytes: 1024, Linger: time.Hour},
	} {
		t.Run(fmt.Sprintf("%d bytes of %d", o.BatchBytes, o.MemoryBytes), func(t *testing.T) {
			const senders, records, n = 8, 300, 5
			p, parts := fake(t, orders, n, o)
			var mu sync.Mutex
			places := map[string][2]int{}
			note := func(value string, partition int, offset int64) {
				mu.Lock()
				defer mu.Unlock()
				_, twice := places[value]
				require.False(t, twice, value)
				places[value] = [2]int{partition, int(offset)}
			}
			var senderGroup sync.WaitGroup
			for s := range senders {
				senderGroup.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, uint64(s)))
					for i := range records {
						value := fmt.Sprintf("%d/%d/%s", s, i, strings.Repeat("x", rnd.IntN(200)))
						r := Record[string, string]{Key: fmt.Sprint(rnd.IntN(20)), Value: value, NoKey: rnd.IntN(4) == 0}
						switch rnd.IntN(10) {
						case 0:
							partition, offset, err := p.SendRecord(t.Context(), r)
							if err != nil {
								t.Error(err)
							}
							note(value, partition, offset)
						case 1:
							if err := p.Flush(t.Context()); err != nil {
								t.Error(err)
							}
							fallthrough
						default:
							err := p.QueueRecord(t.Context(), r, func(r Result) {
								if r.Err != nil {
									t.Error(r.Err)
								}
								note(value, r.Partition, r.Offset)
							})
							if err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			senderGroup.Wait()
			require.NoError(t, p.Close())

			require.Len(t, places, senders*records)
			total := 0
			for i, part := range parts {
				last := [senders]int{}
				for offset, r := range part.records {
					var s, k int
					_, err := fmt.Sscanf(r.value, "%d/%d/", &s, &k)
					require.NoError(t, err)
					require.Equal(t, [2]int{i, offset}, places[r.value])
					require.Less(t, last[s], k+1, "record %d of sender %d after %d", k, s, last[s]-1)
					last[s] = k + 1
					if !r.noKey {
						require.Equal(t, Partition([]byte(r.key), n), i)
					}
					total++
				}
			}
			require.Equal(t, senders*records, total)
		})
	}
}

// A queued record waits for company; one that somebody waits for does not.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, parts := fake(t, orders, 1, ProducerOptions{Linger: time.Second})
		ctx := t.Context()
		require.NoError(t, p.Queue(ctx, "k", "1"))
		time.Sleep(600 * time.Millisecond)
		require.NoError(t, p.Queue(ctx, "k", "2")) // does not begin the wait anew
		synctest.Wait()
		require.Empty(t, parts[0].values())
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []int{2}, parts[0].sizes())

		began := time.Now()
		require.NoError(t, p.Queue(ctx, "k", "3"))
		require.NoError(t, p.Send(ctx, "k", "4")) // takes the one before it along
		require.Equal(t, []int{2, 2}, parts[0].sizes())
		require.NoError(t, p.Queue(ctx, "k", "5"))
		require.NoError(t, p.Flush(ctx))
		require.Equal(t, []int{2, 2, 1}, parts[0].sizes())
		require.NoError(t, p.Queue(ctx, "k", "6"))
		require.NoError(t, p.Close())
		require.Equal(t, []string{"1", "2", "3", "4", "5", "6"}, parts[0].values())
		require.Zero(t, time.Since(began))
	})
}

// Without lingering a record is written at once although nobody waits.
func TestNoLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, parts := fake(t, orders, 1, ProducerOptions{Linger: -1})
		require.NoError(t, p.Queue(t.Context(), "k", "1"))
		synctest.Wait()
		require.Equal(t, []string{"1"}, parts[0].values())
		require.NoError(t, p.Close())
	})
}

// While a batch is in flight the next fills up, so a slow disk gets few, large
// batches, and concurrent senders share them.
func TestSendersShareBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, parts := fake(t, orders, 1, ProducerOptions{})
		parts[0].acked = func(context.Context) error { time.Sleep(time.Second); return nil }
		began := time.Now()
		var senders sync.WaitGroup
		for range 100 {
			senders.Go(func() { require.NoError(t, p.Send(t.Context(), "k", "v")) })
		}
		senders.Wait()
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
		require.LessOrEqual(t, len(parts[0].sizes()), 2)
		require.NoError(t, p.Close())
	})
}

// A full batch does not linger.
func TestFullBatchIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, parts := fake(t, orders, 1, ProducerOptions{Linger: time.Hour, BatchBytes: 1024})
		for range 5 {
			require.NoError(t, p.Queue(t.Context(), "k", strings.Repeat("v", 400)))
		}
		synctest.Wait()
		require.Equal(t, []int{2, 2}, parts[0].sizes())
		require.NoError(t, p.Close())
		require.Equal(t, []int{2, 2, 1}, parts[0].sizes())
	})
}

// With the memory used up, queueing waits: until ctx ends, which is definite, or
// until a batch is done.
func TestQueueWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, parts := fake(t, orders, 1, ProducerOptions{BatchBytes: 1024, MemoryBytes: 4096})
		proceed := make(chan struct{})
		parts[0].acked = func(context.Context) error { <-proceed; return nil }
		value := strings.Repeat("v", 800) // a batch each
		for range 4 {
			require.NoError(t, p.Queue(t.Context(), "k", value))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := p.Queue(ctx, "k", value)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrUnknown)
		require.ErrorContains(t, err, "orders-0")
		require.Equal(t, time.Minute, time.Since(began))

		var queued atomic.Bool
		go func() {
			require.NoError(t, p.Queue(t.Context(), "k", "last"))
			queued.Store(true)
		}()
		synctest.Wait()
		require.False(t, queued.Load())
		proceed <- struct{}{}
		synctest.Wait()
		require.True(t, queued.Load())
		close(proceed)
		require.NoError(t, p.Close())
		require.Equal(t, []string{value, value, value, value, "last"}, parts[0].values())
	})
}

// Who waits for memory ends the lingering of every batch that holds some, of
// other partitions too.
func TestWaitingForMemoryEndsLingering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byKey := orders.PartitionBy(func(k string, n int) int { return int(k[0] - '0') })
		p, parts := fake(t, byKey, 4, ProducerOptions{BatchBytes: 1024, MemoryBytes: 2048, Linger: time.Hour})
		began := time.Now()
		for _, key := range []string{"0", "1", "2", "3", "0", "1"} {
			require.NoError(t, p.Queue(t.Context(), key, "v"))
		}
		require.Zero(t, time.Since(began))
		require.NoError(t, p.Close())
		total := 0
		for _, part := range parts {
			total += len(part.values())
		}
		require.Equal(t, 6, total)
	})
}

// A record that cannot be encoded fails alone, and its error says whose.
func TestCodecErrorFailsOneRecord(t *testing.T) {
	p, parts := fake(t, orders, 1, ProducerOptions{})
	require.NoError(t, p.Queue(t.Context(), "k", "1"))
	for _, err := range []error{
		p.Queue(t.Context(), "k", "bad"),
		p.Send(t.Context(), "k", "bad"),
		p.Send(t.Context(), "bad", "v"),
		p.Delete(t.Context(), "bad"),
	} {
		e, ok := errors.AsType[*CodecError](err)
		require.True(t, ok)
		require.Equal(t, "orders", e.Topic)
		require.Equal(t, "string", e.Type)
		require.ErrorIs(t, err, errBad)
		require.NotErrorIs(t, err, ErrUnknown)
	}
	require.ErrorContains(t, p.Send(t.Context(), "bad", "v"), `topic "orders": encode key of type string: bad text`)
	require.NoError(t, p.Queue(t.Context(), "k", "2"))
	require.NoError(t, p.Flush(t.Context()))
	require.Equal(t, []string{"1", "2"}, parts[0].values())
}

// A panic in the user's code reaches the caller and leaves the producer usable.
func TestPanicInUserCode(t *testing.T) {
	bad := orders.EventTime(func(v string) time.Time {
		if v == "panic" {
			panic("of the user")
		}
		return time.UnixMilli(1)
	})
	p, parts := fake(t, bad, 1, ProducerOptions{BatchBytes: 1024, MemoryBytes: 1024})
	for range 5 {
		require.PanicsWithValue(t, "of the user", func() { p.Queue(t.Context(), "k", "panic") })
	}
	require.NoError(t, p.Send(t.Context(), "k", "v"))
	require.Equal(t, []string{"v"}, parts[0].values())
}

// Where a key is needed a record without one is refused.
func TestRecordWithoutKey(t *testing.T) {
	p, _ := fake(t, orders, 1, ProducerOptions{})
	_, _, err := p.SendRecord(t.Context(), Record[string, string]{NoKey: true, Deleted: true})
	require.ErrorIs(t, err, ErrNoKey)
	require.ErrorContains(t, err, `"orders"`)

	p, _ = fake(t, orders.PartitionBy(func(string, int) int { return 0 }), 1, ProducerOptions{})
	_, _, err = p.SendRecord(t.Context(), Record[string, string]{NoKey: true, Value: "v"})
	require.ErrorIs(t, err, ErrNoKey)
	require.ErrorContains(t, err, "PartitionBy")
}

// Nil keys and keys without content are none.
func TestAbsentKeys(t *testing.T) {
	type named []byte
	none := func(absent bool) { t.Helper(); require.True(t, absent) }
	some := func(absent bool) { t.Helper(); require.False(t, absent) }
	none(isAbsent([]byte(nil)))
	some(isAbsent([]byte{}))
	some(isAbsent([]byte("k")))
	none(isAbsent(named(nil)))
	none(isAbsent((*int)(nil)))
	some(isAbsent(new(int)))
	none(isAbsent(map[string]int(nil)))
	some(isAbsent(map[string]int{}))
	none(isAbsent[any](nil))
	some(isAbsent[any](0))
	none(isAbsent(struct{}{}))
	none(isAbsent([0]int{}))
	some(isAbsent(""))
	some(isAbsent(0))
}

func isAbsent[K any](k K) bool { return absent(absenceOf[K](), &k) }

// A partition that does not exist fails the record and nothing else.
func TestPartitionByOutOfRange(t *testing.T) {
	byLength := orders.PartitionBy(func(k string, n int) int { return len(k) - 1 })
	p, parts := fake(t, byLength, 2, ProducerOptions{})
	require.ErrorContains(t, p.Send(t.Context(), "", "v"), `topic "orders": PartitionBy chose partition -1 of 2`)
	require.ErrorContains(t, p.Send(t.Context(), "abc", "v"), "partition 2 of 2")
	require.NoError(t, p.Send(t.Context(), "ab", "v"))
	require.Equal(t, []string{"v"}, parts[1].values())
}

// Records without key fill one batch, then the next partition's.
func TestRecordsWithoutKeyTakeTurns(t *testing.T) {
	p, parts := fake(t, orders, 3, ProducerOptions{Linger: time.Hour, BatchBytes: 1024})
	value := strings.Repeat("v", 400) // two to a batch
	for range 12 {
		require.NoError(t, p.QueueRecord(t.Context(), Record[string, string]{NoKey: true, Value: value}, nil))
	}
	require.NoError(t, p.Flush(t.Context()))
	for i := range parts {
		require.Equal(t, []int{2, 2}, parts[i].sizes(), i)
	}
	for i := range 3 { // sent one by one each goes to another
		partition, _, err := p.SendRecord(t.Context(), Record[string, string]{NoKey: true, Value: value})
		require.NoError(t, err)
		require.Equal(t, i, partition)
	}
}

// A record beyond the limit is refused by itself, with its size and the limit.
func TestRecordTooLarge(t *testing.T) {
	p, parts := fake(t, orders, 1, ProducerOptions{BatchBytes: 1024, MemoryBytes: 4096})
	require.NoError(t, p.Queue(t.Context(), "k", "1"))
	err := p.Queue(t.Context(), "k", strings.Repeat("v", 5000))
	require.ErrorIs(t, err, log.ErrTooLarge)
	e, ok := errors.AsType[*TooLargeError](err)
	require.True(t, ok)
	require.Equal(t, 4096, e.Limit)
	require.Greater(t, e.Size, 5000)
	require.ErrorContains(t, err, fmt.Sprint(e.Size))

	// Larger than a batch, but not than memory: a batch of its own.
	require.NoError(t, p.Queue(t.Context(), "k", strings.Repeat("v", 3000)))
	require.NoError(t, p.Queue(t.Context(), "k", "3"))
	require.NoError(t, p.Flush(t.Context()))
	require.Equal(t, []int{1, 1, 1}, parts[0].sizes())

	// The log has a limit of its own. What it refuses takes no sequence number.
	parts[0].write = func(r []fakeRecord) error {
		if len(r[0].value) > 2000 {
			return log.ErrTooLarge
		}
		return nil
	}
	require.NoError(t, p.Queue(t.Context(), "k", strings.Repeat("v", 3000)))
	require.NoError(t, p.Queue(t.Context(), "k", "5"))
	err = p.Flush(t.Context())
	require.ErrorIs(t, err, log.ErrTooLarge)
	require.ErrorContains(t, err, "produce 1 records")
	require.Equal(t, []int{1, 1, 1, 1}, parts[0].sizes())
	require.Equal(t, "5", parts[0].values()[3])
}

// A full disk fails the batch, definitely; later ones are written once there is
// room again.
func TestDiskFull(t *testing.T) {
	p, parts := fake(t, orders, 1, ProducerOptions{})
	var full atomic.Bool
	parts[0].write = func([]fakeRecord) error {
		if full.Load() {
			return fmt.Errorf("allocate: %w", syscall.ENOSPC)
		}
		return nil
	}
	require.NoError(t, p.Send(t.Context(), "k", "1"))
	full.Store(true)
	err := p.Send(t.Context(), "k", "2")
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NotErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "orders-0")
	full.Store(false)
	require.NoError(t, p.Send(t.Context(), "k", "3"))
	require.Equal(t, []string{"1", "3"}, parts[0].values())
	require.NoError(t, p.Close()) // sends report themselves, Flush what was queued
}

// Every failed record is counted, the first error is told, and only once.
func TestFlushReportsFailures(t *testing.T) {
	p, parts := fake(t, orders, 1, ProducerOptions{Linger: time.Hour})
	parts[0].write = func([]fakeRecord) error { return syscall.ENOSPC }
	var results []Result
	for i := range 7 {
		r := Record[string, string]{Key: "k", Value: fmt.Sprint(i)}
		require.NoError(t, p.QueueRecord(t.Context(), r, func(r Result) { results = append(results, r) }))
	}
	err := p.Flush(t.Context())
	e, ok := errors.AsType[*FlushError](err)
	require.True(t, ok)
	require.Equal(t, 7, e.Failed)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NotErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "7 queued records failed")
	require.Len(t, results, 7)
	for _, r := range results {
		require.ErrorIs(t, r.Err, syscall.ENOSPC)
		require.EqualValues(t, -1, r.Offset)
	}
	require.NoError(t, p.Flush(t.Context()))

	require.NoError(t, p.Queue(t.Context(), "k", "8"))
	err = p.Close()
	e, ok = errors.AsType[*FlushError](err)
	require.True(t, ok)
	require.Equal(t, 1, e.Failed)
	require.Equal(t, err, p.Close())
}

// When ctx ends a flush or send on its way, the outcome is unknown; the failures
// are left for the next Flush.
func TestContextEndsWhileInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, parts := fake(t, orders, 1, ProducerOptions{})
		proceed := make(chan struct{})
		parts[0].acked = func(context.Context) error { <-proceed; return nil }
		for _, f := range []func(context.Context) error{
			func(ctx context.Context) error { return p.Send(ctx, "k", "1") },
			p.Flush,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := f(ctx)
			cancel()
			require.ErrorIs(t, err, ErrUnknown)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		close(proceed)
		require.NoError(t, p.Flush(t.Context()))
		require.Equal(t, []string{"1"}, parts[0].values())
		require.NoError(t, p.Close())
	})
}

// When ctx ends before the turn of a conditional record has come the answer is definite:
// the record is not written, then or later, and who flushes does not wait for it.
func TestContextEndsBeforeAConditionsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, parts := fake(t, orders, 1, ProducerOptions{})
		proceed := make(chan struct{})
		parts[0].acked = func(context.Context) error { <-proceed; return nil }
		require.NoError(t, p.Queue(t.Context(), "k", "1"))
		synctest.Wait()
		time.Sleep(time.Second) // it is being written
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		flushed := make(chan error, 1)
		time.AfterFunc(time.Second/2, func() { flushed <- p.Flush(t.Context()) })
		_, _, err := p.SendIf(ctx, Record[string, string]{Key: "k", Value: "2"}, EndIs(0, 1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrUnknown)
		close(proceed)
		require.NoError(t, <-flushed)
		require.NoError(t, p.Send(t.Context(), "k", "3"))
		require.Equal(t, []string{"1", "3"}, parts[0].values())
		require.NoError(t, p.Close())
	})
}

// An acknowledgement that fails leaves the outcome of its batch unknown and
// takes the partition out; what comes later is definitely not written.
func TestFailedAcknowledgement(t *testing.T) {
	p, parts := fake(t, orders, 2, ProducerOptions{Linger: time.Hour})
	parts[0].acked = func(context.Context) error { return fmt.Errorf("sync: %w", log.ErrOffline) }
	keys := [2]string{"", ""}
	for i := 0; keys[0] == "" || keys[1] == ""; i++ {
		keys[Partition(strconv.AppendInt(nil, int64(i), 10), 2)] = strconv.Itoa(i)
	}
	require.NoError(t, p.Queue(t.Context(), keys[0], "1"))
	require.NoError(t, p.Queue(t.Context(), keys[0], "2"))
	require.NoError(t, p.Queue(t.Context(), keys[1], "3"))
	err := p.Flush(t.Context())
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorIs(t, err, log.ErrOffline)
	e, _ := errors.AsType[*FlushError](err)
	require.Equal(t, 2, e.Failed)

	err = p.Send(t.Context(), keys[0], "4")
	require.ErrorIs(t, err, log.ErrOffline)
	require.NotErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "orders-0")
	require.Equal(t, []string{"1", "2"}, parts[0].values())

	// The other partition goes on, with what has no key as well.
	require.NoError(t, p.Send(t.Context(), keys[1], "5"))
	for range 3 {
		partition, _, err := p.SendRecord(t.Context(), Record[string, string]{NoKey: true, Value: "6"})
		require.NoError(t, err)
		require.Equal(t, 1, partition)
	}
	require.Equal(t, []string{"3", "5", "6", "6", "6"}, parts[1].values())
}

// A partition that takes no more fails everything queued for it, at once. Only
// where the write itself failed is the outcome of the first batch unknown.
func TestUnusablePartitionFailsTheQueue(t *testing.T) {
	for _, cause := range []error{log.ErrOffline, log.ErrClosed, log.ErrFenced, log.ErrOutOfOrder} {
		t.Run(cause.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, parts := fake(t, orders, 1, ProducerOptions{BatchBytes: 1024, Linger: time.Hour})
				began := time.Now()
				proceed := make(chan struct{})
				parts[0].write = func([]fakeRecord) error { <-proceed; return cause }
				var unknown []bool
				for range 9 {
					r := Record[string, string]{Key: "k", Value: strings.Repeat("v", 400)}
					require.NoError(t, p.QueueRecord(t.Context(), r, func(r Result) {
						require.ErrorIs(t, r.Err, cause)
						unknown = append(unknown, errors.Is(r.Err, ErrUnknown))
					}))
				}
				close(proceed)
				synctest.Wait()
				first := cause == log.ErrOffline // two records to a batch
				require.Equal(t, []bool{first, first, false, false, false, false, false, false, false}, unknown)
				require.Zero(t, time.Since(began))
				err := p.Flush(t.Context())
				e, ok := errors.AsType[*FlushError](err)
				require.True(t, ok)
				require.Equal(t, 9, e.Failed)
				_, _, err = p.SendRecord(t.Context(), Record[string, string]{NoKey: true, Value: "v"})
				require.ErrorIs(t, err, cause)
				require.NotErrorIs(t, err, ErrUnknown)
				require.NoError(t, p.Close())
			})
		})
	}
}

// Sequence numbers go on with 0 after the largest.
func TestSequenceWrapsAround(t *testing.T) {
	p, parts := fake(t, orders, 1, ProducerOptions{Linger: time.Hour})
	parts[0].next = math.MaxInt32 - 1
	p.sender.known()[0].sequence = math.MaxInt32 - 1
	for range 3 {
		for range 5 {
			require.NoError(t, p.Queue(t.Context(), "k", "v"))
		}
		require.NoError(t, p.Flush(t.Context()))
	}
	require.Equal(t, []int{5, 5, 5}, parts[0].sizes())
}

// Close writes what is queued, returns the id, and nothing is taken after it.
func TestClose(t *testing.T) {
	p, parts := fake(t, orders, 1, ProducerOptions{Linger: time.Hour})
	require.NoError(t, p.Queue(t.Context(), "k", "1"))
	var closers sync.WaitGroup
	for range 4 {
		closers.Go(func() { require.NoError(t, p.Close()) })
	}
	closers.Wait()
	require.Equal(t, []string{"1"}, parts[0].values())
	require.Equal(t, []log.ProducerID{0}, p.node.(*fakeNode).released)

	require.ErrorIs(t, p.Send(t.Context(), "k", "2"), ErrClosed)
	require.ErrorIs(t, p.Queue(t.Context(), "k", "2"), ErrClosed)
	require.ErrorIs(t, p.Delete(t.Context(), "k"), ErrClosed)
	_, _, err := p.SendRecord(t.Context(), Record[string, string]{NoKey: true, Value: "v"})
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, p.Flush(t.Context()))
	require.Equal(t, []string{"1"}, parts[0].values())
}

func TestCloseReportsTheNode(t *testing.T) {
	p, _ := fake(t, orders, 1, ProducerOptions{})
	p.node = &fakeNode{releaseErr: log.ErrClosed}
	require.ErrorIs(t, p.Close(), log.ErrClosed)
	require.ErrorIs(t, p.Close(), log.ErrClosed)
}

// In steady state neither queueing a record nor writing a batch allocates.
func TestQueueAllocatesNothing(t *testing.T) {
	p, parts := fake(t, orders, 4, ProducerOptions{BatchBytes: 4096})
	sink := discard{name: parts[0].name}
	for _, q := range p.sender.known() {
		q.partition = sink
	}
	value := strings.Repeat("v", 100)
	keys := [4]string{"a", "b", "c", "d"}
	ctx := t.Context()
	i := 0
	queue := func() {
		if err := p.Queue(ctx, keys[i%4], value); err != nil {
			t.Fatal(err)
		}
		i++
	}
	for range 100_000 { // until all batches there may be have been made
		queue()
	}
	require.Zero(t, testing.AllocsPerRun(100_000, queue))
}

// discard takes everything.
type discard struct {
	appender
	name log.TopicPartition
}

func (d discard) Name() log.TopicPartition { return d.name }

func (d discard) HighWatermark() log.Offset { return math.MaxInt64 }

func (d discard) Encode(*log.BatchBuilder, log.Producer) ([]byte, error) { return nil, nil }

func (d discard) Write([]byte) (log.AppendResult, error) {
	return log.AppendResult{End: log.Position{Offset: 1}}, nil
}

func TestProducerOptions(t *testing.T) {
	o, err := ProducerOptions{}.withDefaults(4)
	require.NoError(t, err)
	require.Equal(t, 128<<10, o.BatchBytes)
	require.Equal(t, 32<<20, o.MemoryBytes)
	require.Equal(t, time.Millisecond, o.Linger)

	o, err = ProducerOptions{}.withDefaults(1000)
	require.NoError(t, err)
	require.LessOrEqual(t, 2*1000*o.BatchBytes, o.MemoryBytes)

	o, err = ProducerOptions{MemoryBytes: 4096}.withDefaults(1)
	require.NoError(t, err)
	require.Equal(t, 2048, o.BatchBytes)

	for name, o := range map[string]ProducerOptions{
		"BatchBytes":  {BatchBytes: 1023},
		"MemoryBytes": {MemoryBytes: 1023},
	} {
		_, err := o.withDefaults(1)
		require.ErrorContains(t, err, "ProducerOptions."+name)
	}
	_, err = ProducerOptions{BatchBytes: -1}.withDefaults(1)
	require.ErrorContains(t, err, "BatchBytes is -1")
	_, err = ProducerOptions{BatchBytes: 17 << 20}.withDefaults(1)
	require.ErrorContains(t, err, "BatchBytes")
	_, err = ProducerOptions{BatchBytes: 8192, MemoryBytes: 4096}.withDefaults(1)
	require.ErrorContains(t, err, "at least one batch, 8192")
}
