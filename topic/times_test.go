package topic_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

var delayed = topic.New[string, string]("delayed").Delayed()

func texts(records []topic.Record[string, string]) (texts []string) {
	for _, r := range records {
		texts = append(texts, r.Value)
	}
	return texts
}

func sendDelayed(tb testing.TB, p *topic.Producer[string, string], value string, after, ttl time.Duration) {
	r := topic.Record[string, string]{Key: "k", Value: value}
	if after != 0 {
		r.NotBefore = time.Now().Add(after)
	}
	if ttl != 0 {
		r.Expires = time.Now().Add(ttl)
	}
	_, _, err := p.SendRecord(tb.Context(), r)
	require.NoError(tb, err)
}

// A reader in order waits at a record that is not due, in its own partition only, and
// passes over what has expired, which it tells.
func TestReadOfDelayedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, qs := openQueues(t, nil, topic.QueuesOptions{})
		two := delayed.Partitions(2).PartitionBy(func(k string, _ int) int { p, _ := strconv.Atoi(k); return p })
		p := produce(t, n, two)
		begin := time.Now()
		for _, r := range []topic.Record[string, string]{
			{Key: "0", Value: "a"},
			{Key: "0", Value: "late", NotBefore: begin.Add(time.Hour), Headers: []topic.Header{{Key: "x", Value: []byte("y")}}},
			{Key: "0", Value: "behind"},
			{Key: "0", Value: "gone", Expires: begin.Add(time.Minute)},
			{Key: "1", Value: "b"},
			{Key: "1", Value: "expires first", NotBefore: begin.Add(2 * time.Hour), Expires: begin.Add(time.Minute)},
			{Key: "1", Value: "c"},
		} {
			require.NoError(t, p.Queue(t.Context(), r.Key, "filler"))
			require.NoError(t, p.QueueRecord(t.Context(), r, nil)) // some share a batch
		}
		require.NoError(t, p.Flush(t.Context()))
		var expired [][2]int64
		read := two.OnExpired(func(partition int, offset int64) { expired = append(expired, [2]int64{int64(partition), offset}) })

		at := map[string]time.Duration{}
		var order []string
		for r, err := range topic.Read(t.Context(), n, read, topic.Start()) {
			require.NoError(t, err)
			if r.Value == "filler" {
				continue
			}
			order = append(order, r.Value)
			at[r.Value] = time.Since(begin).Truncate(time.Second)
			switch r.Value {
			case "late":
				require.Equal(t, begin.Add(time.Hour).UTC(), r.NotBefore)
				require.True(t, r.Expires.IsZero())
				require.Equal(t, []topic.Header{{Key: "x", Value: []byte("y")}, {Key: topic.HeaderNotBefore, Value: []byte(strconv.FormatInt(begin.Add(time.Hour).UnixMilli(), 10))}}, r.Headers)
			case "a":
				require.True(t, r.NotBefore.IsZero() && r.Expires.IsZero())
			}
			if r.Value == "behind" {
				break
			}
		}
		require.Equal(t, map[string]time.Duration{"a": 0, "b": 0, "late": time.Hour, "behind": time.Hour, "c": time.Minute}, at)

		order, expired = nil, nil
		for r, err := range topic.ReadToEnd(t.Context(), n, read, topic.Start()) {
			require.NoError(t, err)
			if r.Value != "filler" {
				order = append(order, r.Value)
			}
		}
		slices.Sort(order)
		require.Equal(t, []string{"a", "b", "behind", "c", "late"}, order)
		require.ElementsMatch(t, [][2]int64{{0, 7}, {1, 3}}, expired)
		p.Close()
		qs.Close()
		n.log.Close()
	})
}

// ReadToEnd does not wait: it ends a partition at the first record that is not due.
func TestReadToEndOfDelayedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, qs := openQueues(t, nil, topic.QueuesOptions{})
		p := produce(t, n, delayed)
		sendDelayed(t, p, "a", 0, 0)
		sendDelayed(t, p, "b", time.Hour, 0)
		sendDelayed(t, p, "c", 0, 0)
		require.Equal(t, []string{"a"}, texts(all(t, topic.ReadToEnd(t.Context(), n, delayed, topic.Start()))))
		time.Sleep(time.Hour)
		require.Equal(t, []string{"a", "b", "c"}, texts(all(t, topic.ReadToEnd(t.Context(), n, delayed, topic.Start()))))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		sendDelayed(t, p, "d", time.Hour, 0)
		var got []string
		for r, err := range topic.Read(ctx, n, delayed, topic.Offset(2)) {
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
				break
			}
			got = append(got, r.Value)
			time.AfterFunc(time.Minute, cancel)
		}
		require.Equal(t, []string{"c"}, got, "who waits for a record that is not due can be stopped")
		p.Close()
		qs.Close()
		n.log.Close()
	})
}

// Records of a topic with a time to live expire by their own time, unless they say when.
func TestTimeToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, qs := openQueues(t, nil, topic.QueuesOptions{})
		short := topic.New[string, string]("short").TimeToLive(time.Minute)
		p := produce(t, n, short)
		sendDelayed(t, p, "default", 0, 0)
		sendDelayed(t, p, "own", 0, time.Hour)
		_, _, err := p.SendRecord(t.Context(), topic.Record[string, string]{Key: "k", Value: "old", Time: time.Now().Add(-time.Minute)})
		require.NoError(t, err)
		read := func() []string {
			return texts(all(t, topic.ReadToEnd(t.Context(), n, short, topic.Start())))
		}
		require.Equal(t, []string{"default", "own"}, read())
		time.Sleep(time.Minute - time.Millisecond)
		require.Equal(t, []string{"default", "own"}, read())
		time.Sleep(time.Millisecond)
		require.Equal(t, []string{"own"}, read())
		p.Close()
		qs.Close()
		n.log.Close()
	})
}

// Where readers would not look at the times of a record it is refused, and headers that
// are no times count as none.
func TestTimesAreRefused(t *testing.T) {
	n, _ := openQueues(t, nil, topic.QueuesOptions{})
	p := produce(t, n, jobs)
	_, _, err := p.SendRecord(t.Context(), topic.Record[string, string]{Key: "k", Expires: noon})
	require.ErrorContains(t, err, "declare it Delayed")
	require.False(t, errors.Is(err, topic.ErrUnknown))
	require.Error(t, jobs.TimeToLive(time.Microsecond).Err())
	require.ErrorIs(t, n.log.Create("jobs", jobs.Delayed().Spec()), log.ErrTopicExists)

	_, err = n.Open(delayed.Name(), delayed.Spec())
	require.NoError(t, err)
	_, err = n.partition(t, "delayed", 0).AppendRecords(t.Context(), log.Record{Value: []byte("v"), Headers: []log.Header{
		{Key: topic.HeaderNotBefore, Value: []byte("99999999999999")},
		{Key: topic.HeaderNotBefore, Value: []byte("0")}, // the last counts
		{Key: topic.HeaderExpires, Value: []byte("tomorrow")},
		{Key: topic.HeaderExpires},
	}})
	require.NoError(t, err)
	r := all(t, topic.ReadToEnd(t.Context(), n, delayed, topic.Start()))
	require.Len(t, r, 1)
	require.Equal(t, time.UnixMilli(0).UTC(), r[0].NotBefore)
	require.True(t, r[0].Expires.IsZero())
}

// A queue hands out each record when it is due without holding back the others, passes
// over what has expired, waiting or not, and counts it; a restart forgets none.
func TestQueueOfDelayedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, qs := openQueues(t, nil, topic.QueuesOptions{})
		p := produce(t, n, delayed)
		sendDelayed(t, p, "hour", time.Hour, 0)
		sendDelayed(t, p, "expires", 30*time.Minute, time.Minute)
		sendDelayed(t, p, "now", 0, 0)
		sendDelayed(t, p, "minute", time.Minute, 0)
		sendDelayed(t, p, "expired", 0, time.Nanosecond)
		sendDelayed(t, p, "two", 2*time.Hour, 0)
		begin := time.Now()
		q, err := qs.Open(delayed, "work", topic.QueueOptions{Lock: 24 * time.Hour, MaxDeliveries: -1})
		require.NoError(t, err)
		for want, at := range map[string]time.Duration{"now": 0} {
			d := receive(t, q)
			require.Equal(t, want, d.Value)
			require.Equal(t, at, time.Since(begin))
			require.NoError(t, d.Ack(t.Context()))
		}
		d := receive(t, q)
		require.Equal(t, "minute", d.Value)
		require.Equal(t, time.Minute, time.Since(begin))
		require.NoError(t, d.Ack(t.Context()))
		s := partitionStatus(t, q)
		require.Equal(t, 2, s.Delayed)
		require.Equal(t, int64(2), s.Expired)

		require.NoError(t, q.Close())
		p.Close()
		n, qs = reopen(t, n, qs, topic.QueuesOptions{})
		q, err = qs.Open(delayed, "work", topic.QueueOptions{Lock: 24 * time.Hour, MaxDeliveries: -1})
		require.NoError(t, err)
		for _, want := range []struct {
			value string
			at    time.Duration
		}{{"hour", time.Hour}, {"two", 2 * time.Hour}} {
			d := receive(t, q)
			require.Equal(t, want.value, d.Value)
			require.Equal(t, want.at, time.Since(begin))
			require.Equal(t, begin.Add(want.at).UTC(), d.NotBefore)
			require.NoError(t, d.Ack(t.Context()))
		}
		require.Equal(t, topic.QueuePartitionStatus{Start: 6, Delivered: 4, Acknowledged: 4, Expired: 2}, partitionStatus(t, q))
		q.Close()
		qs.Close()
		n.log.Close()
	})
}

// The look-ahead is bounded: when it is full of records that are not due, those behind
// wait until one is.
func TestQueueLooksAheadSoFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, qs := openQueues(t, nil, topic.QueuesOptions{})
		p := produce(t, n, delayed)
		at := time.Now().Add(time.Hour)
		for range 10_000 {
			require.NoError(t, p.QueueRecord(t.Context(), topic.Record[string, string]{Value: "later", NotBefore: at.Add(time.Hour)}, nil))
		}
		require.NoError(t, p.QueueRecord(t.Context(), topic.Record[string, string]{Value: "one too many", NotBefore: at}, nil))
		require.NoError(t, p.Queue(t.Context(), "k", "behind"))
		require.NoError(t, p.Flush(t.Context()))
		q, err := qs.Open(delayed, "work", topic.QueueOptions{})
		require.NoError(t, err)
		nothing(t, q, 30*time.Minute)
		require.Equal(t, 10_000, partitionStatus(t, q).Delayed)
		time.Sleep(30 * time.Minute)
		d := receive(t, q)
		require.Equal(t, "one too many", d.Value, "it is due")
		require.Equal(t, "behind", receive(t, q).Value)
		q.Close()
		p.Close()
		qs.Close()
		n.log.Close()
	})
}
