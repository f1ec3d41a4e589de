package topic

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
)

// The records of a batch are written together, and each has its place.
func TestSendBatch(t *testing.T) {
	p, parts := fake(t, orders, 3, ProducerOptions{Linger: time.Hour})
	var records []Record[string, string]
	for i := range 30 {
		records = append(records, Record[string, string]{Key: fmt.Sprint(i), Value: fmt.Sprint(i), Time: time.UnixMilli(int64(i))})
	}
	results, err := p.SendBatch(t.Context(), records)
	require.NoError(t, err)
	for i, r := range results {
		require.Equal(t, fmt.Sprint(i), parts[r.Partition].records[r.Offset].value)
		require.EqualValues(t, i, r.Time.UnixMilli())
	}
	for _, part := range parts {
		require.Len(t, part.sizes(), 1, "one batch")
	}
	results, err = p.SendBatch(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, results)
	require.NoError(t, p.Flush(t.Context()))
}

// One record that fails says so in its place and leaves the others alone. Flush has
// nothing to add, since the results are with the caller.
func TestSendBatchFailsApart(t *testing.T) {
	p, parts := fake(t, orders, 2, ProducerOptions{})
	full := errors.New("disk full")
	parts[0].write = func([]fakeRecord) error { return full }
	var in [2]string
	for i := range 10 {
		k := fmt.Sprint(i)
		in[Partition([]byte(k), 2)] = k
	}
	results, err := p.SendBatch(t.Context(), []Record[string, string]{
		{Key: in[1], Value: "a"}, {Key: in[1], Value: "bad"}, {Key: in[0], Value: "c"}, {Key: in[1], Value: "d"},
	})
	require.ErrorIs(t, err, errBad, "that of the first")
	require.NotErrorIs(t, err, ErrUnknown)
	require.NoError(t, results[0].Err)
	require.Equal(t, []int{-1, -1}, []int{results[1].Partition, int(results[1].Offset)})
	require.ErrorIs(t, results[2].Err, full)
	require.EqualValues(t, -1, results[2].Offset)
	require.NoError(t, results[3].Err)
	require.EqualValues(t, 1, results[3].Offset)
	require.Equal(t, []string{"a", "d"}, parts[1].values())
	require.NoError(t, p.Flush(t.Context()))
}

// When ctx ends, records on their way are unknown and the error says so, whichever
// failed first.
func TestSendBatchUnknown(t *testing.T) {
	p, parts := fake(t, orders, 1, ProducerOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	parts[0].acked = func(context.Context) error {
		cancel()
		<-release
		return nil
	}
	results, err := p.SendBatch(ctx, []Record[string, string]{{Key: "k", Value: "bad"}, {Key: "k", Value: "a"}})
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorIs(t, err, errBad)
	require.NotErrorIs(t, results[0].Err, ErrUnknown)
	require.ErrorIs(t, results[1].Err, ErrUnknown)
	close(release)
}

// A record sent with Async lingers until somebody waits, and is answered like one of
// Send. A failure nobody looked at is Flush's to tell.
func TestAsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, parts := fake(t, orders, 1, ProducerOptions{Linger: time.Hour})
		defer p.Close()
		first, err := p.Async(t.Context(), "k", "a")
		require.NoError(t, err)
		second, err := p.AsyncRecord(t.Context(), Record[string, string]{Key: "k", Value: "b", Time: time.UnixMilli(5)})
		require.NoError(t, err)
		synctest.Wait()
		require.Empty(t, parts[0].values(), "they linger")
		_, ok := second.Result()
		require.False(t, ok)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		partition, offset, err := second.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int{0, 1}, []int{partition, int(offset)})
		<-first.Done()
		r, ok := second.Result()
		require.True(t, ok)
		require.Equal(t, Result{Offset: 1, Time: time.UnixMilli(5).UTC()}, r)
		_, offset, err = first.Wait(ended)
		require.NoError(t, err, "what is known is told, also when ctx has ended")
		require.Zero(t, offset)

		parts[0].write = func([]fakeRecord) error { return errBad }
		third, err := p.Async(t.Context(), "k", "c")
		require.NoError(t, err)
		_, _, err = third.Wait(ended)
		require.ErrorIs(t, err, ErrUnknown)
		var flush *FlushError
		require.ErrorAs(t, p.Flush(t.Context()), &flush)
		require.Equal(t, 1, flush.Failed)
		r, ok = third.Result()
		require.True(t, ok)
		require.ErrorIs(t, r.Err, errBad)
		require.NotErrorIs(t, r.Err, ErrUnknown)
		_, err = p.Async(t.Context(), "k", "bad")
		require.ErrorIs(t, err, errBad)
	})
}

// While a batch is not acknowledged in time, its records are unknown, and those that
// were not written by their own time are definitely not there. What comes later goes on.
func TestDeliveryTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, parts := fake(t, orders, 1, ProducerOptions{Linger: -1, DeliveryTimeout: 10 * time.Second})
		defer p.Close()
		stuck := true
		parts[0].acked = func(ctx context.Context) error {
			if !stuck {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		results := make(chan Result, 10)
		queue := func(v string) {
			require.NoError(t, p.QueueRecord(t.Context(), Record[string, string]{Key: "k", Value: v}, func(r Result) { results <- r }))
		}
		queue("a")
		synctest.Wait()
		time.Sleep(4 * time.Second)
		queue("b")
		synctest.Wait()
		require.Empty(t, results)
		begin := time.Now()
		r := <-results
		require.Equal(t, 6*time.Second, time.Since(begin), "10 s after it was queued")
		require.ErrorIs(t, r.Err, ErrUnknown)
		require.ErrorIs(t, r.Err, ErrTimeout)
		r = <-results // written at once, and as unknown
		require.Equal(t, 10*time.Second, time.Since(begin))
		require.ErrorIs(t, r.Err, ErrUnknown)

		// A write that the system comes back from too late: what waited behind it is
		// never written.
		stuck = false
		parts[0].write = func([]fakeRecord) error {
			parts[0].write = nil
			time.Sleep(15 * time.Second)
			return nil
		}
		queue("c")
		synctest.Wait()
		queue("d")
		r = <-results
		require.NoError(t, r.Err, "it took its time, but it is there")
		r = <-results
		require.ErrorIs(t, r.Err, ErrTimeout)
		require.NotErrorIs(t, r.Err, ErrUnknown)
		require.NoError(t, p.Send(t.Context(), "k", "e"))
		require.Equal(t, []string{"a", "b", "c", "e"}, parts[0].values())

		var flush *FlushError
		require.ErrorAs(t, p.Flush(t.Context()), &flush)
		require.Equal(t, 3, flush.Failed)
	})
}

// A batch whose owner the partition does not get to know in time was not written.
func TestDeliveryTimeoutOfUnknownOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, parts := fake(t, orders, 1, ProducerOptions{DeliveryTimeout: time.Second})
		defer p.Close()
		parts[0].write = func([]fakeRecord) error { return log.ErrUnknownOwner }
		begin := time.Now()
		err := p.Send(t.Context(), "k", "v")
		require.ErrorIs(t, err, ErrTimeout)
		require.NotErrorIs(t, err, ErrUnknown)
		require.Equal(t, time.Second, time.Since(begin))
		parts[0].write = nil
		require.NoError(t, p.Send(t.Context(), "k", "v"))
	})
}
