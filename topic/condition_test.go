package topic_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

var accounts = topic.New[string, string]("accounts")

func record(k, v string) topic.Record[string, string] {
	return topic.Record[string, string]{Key: k, Value: v}
}

// transaction writes records in a transaction of id and leaves it open.
func transaction(t *testing.T, p *log.Partition, id log.ProducerID, records ...topic.Record[string, string]) {
	t.Helper()
	var b log.BatchBuilder
	for _, r := range records {
		value := []byte(r.Value)
		if r.Deleted {
			value = nil
		}
		b.Add(0, []byte(r.Key), value, nil)
	}
	_, err := p.Write(b.Finish(log.Producer{ID: id, Transactional: true}))
	require.NoError(t, err)
}

func conflict(t *testing.T, err error) *topic.ConflictError {
	t.Helper()
	require.ErrorIs(t, err, topic.ErrConflict)
	require.NotErrorIs(t, err, topic.ErrUnknown)
	c, ok := errors.AsType[*topic.ConflictError](err)
	require.True(t, ok)
	return c
}

// A record with the end offset it expects is stored there; another is refused and told
// the end there is.
func TestSendIfEndIs(t *testing.T) {
	n := openNode(t)
	p := produce(t, n, accounts.Partitions(2))
	k := "k"
	at := topic.Partition([]byte(k), 2)
	_, offset, err := p.SendIf(t.Context(), record(k, "a"), topic.EndIs(at, 0))
	require.NoError(t, err)
	require.Zero(t, offset)
	require.NoError(t, p.Send(t.Context(), k, "b"))
	partition, _, err := p.SendIf(t.Context(), record(k, "c"), topic.EndIs(at, 1))
	require.Equal(t, -1, partition)
	c := conflict(t, err)
	require.Equal(t, topic.ConflictError{Partition: c.Partition, Expected: 1, Found: 2}, *c)
	require.EqualError(t, err, fmt.Sprintf("topic: conflict in accounts-%d: the end is 2, expected was 1", at))
	_, offset, err = p.SendIf(t.Context(), record(k, "c"), topic.EndIs(at, 2))
	require.NoError(t, err)
	require.EqualValues(t, 2, offset)

	// Without key it goes where the condition says.
	none := topic.Record[string, string]{NoKey: true, Value: "x"}
	partition, _, err = p.SendIf(t.Context(), none, topic.EndIs(1-at, 0))
	require.NoError(t, err)
	require.Equal(t, 1-at, partition)

	_, _, err = p.SendIf(t.Context(), record(k, "d"), topic.EndIs(1-at, 1))
	require.ErrorContains(t, err, "the condition is about partition")
	_, _, err = p.SendIf(t.Context(), none, topic.EndIs(2, 0))
	require.ErrorContains(t, err, "no partition 2")
	_, _, err = p.SendIf(t.Context(), none, topic.Absent())
	require.ErrorIs(t, err, topic.ErrNoKey)
	_, _, err = p.SendIf(t.Context(), record(k, "d"), topic.Condition{})
	require.ErrorContains(t, err, "needs a condition")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = p.SendIf(ended, record(k, "d"), topic.Absent())
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, topic.ErrUnknown)
}

// A condition keeps its place behind what the producer has queued.
func TestSendIfComesAfterQueued(t *testing.T) {
	n := openNode(t)
	p, err := topic.NewProducer(t.Context(), n, accounts, topic.ProducerOptions{Linger: time.Hour})
	require.NoError(t, err)
	defer p.Close()
	for i := range 3 {
		require.NoError(t, p.Queue(t.Context(), "k", strconv.Itoa(i)))
	}
	_, _, err = p.SendIf(t.Context(), record("k", "x"), topic.EndIs(0, 0))
	require.EqualValues(t, 3, conflict(t, err).Found)
	_, offset, err := p.SendIf(t.Context(), record("k", "x"), topic.VersionIs(2))
	require.NoError(t, err)
	require.EqualValues(t, 3, offset)
	require.NoError(t, p.Send(t.Context(), "k", "after"), "a refused batch leaves no gap in the numbers")
}

// Every goroutine adds to one counter by comparing its version: no increment is lost.
// Others write other keys and the same partition all the time.
func TestSendIfVersionCounts(t *testing.T) {
	for _, sync := range []log.Sync{log.SyncByOS, log.SyncAlways} {
		t.Run(fmt.Sprint(sync), func(t *testing.T) { countByVersions(t, accounts.Sync(sync)) })
	}
}

func countByVersions(t *testing.T, counter topic.Topic[string, string]) {
	const goroutines, increments = 4, 20
	n := openNode(t)
	ctx, stop := context.WithCancel(t.Context())
	var noise, counters sync.WaitGroup
	for range 2 {
		p := produce(t, n, counter)
		noise.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := p.Send(ctx, "noise", strconv.Itoa(i)); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for range goroutines {
		p := produce(t, n, counter)
		counters.Go(func() {
			version, value := int64(topic.NoVersion), 0
			for done := 0; done < increments; {
				_, offset, err := p.SendIf(t.Context(), record("counter", strconv.Itoa(value+1)), topic.VersionIs(version))
				if c, ok := errors.AsType[*topic.ConflictError](err); ok {
					version = c.Found
					for r, err := range topic.ReadToEnd(t.Context(), n, counter, topic.Offset(version)) {
						if err != nil {
							t.Error(err)
							return
						}
						value, _ = strconv.Atoi(r.Value)
						break
					}
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				version, value = offset, value+1
				done++
			}
		})
	}
	counters.Wait()
	stop()
	noise.Wait()
	last := ""
	for _, r := range all(t, topic.ReadToEnd(t.Context(), n, counter, topic.Start())) {
		if r.Key == "counter" {
			last = r.Value
		}
	}
	require.Equal(t, strconv.Itoa(goroutines*increments), last)
}

// A record of an open transaction is awaited: a version once it is committed, none if
// it is aborted.
func TestSendIfWaitsForTransactions(t *testing.T) {
	n := openNode(t)
	p := produce(t, n, accounts)
	require.NoError(t, p.Send(t.Context(), "k", "0"))
	part := n.partition(t, "accounts", 0)
	id := log.ProducerID(5000)
	for _, commit := range []bool{true, false} {
		id++
		_, version, err := p.SendRecord(t.Context(), record("k", "before"))
		require.NoError(t, err)
		transaction(t, part, id, record("k", "inside"), record("other", "inside"))
		require.NoError(t, p.Send(t.Context(), "behind", "x"))

		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, _, err = p.SendIf(ctx, record("k", "new"), topic.VersionIs(version))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, topic.ErrUnknown)
		_, _, err = p.SendIf(t.Context(), record("unrelated"+fmt.Sprint(commit), "y"), topic.Absent())
		require.NoError(t, err, "other keys need not wait")
		_, _, err = p.SendIf(t.Context(), record("behind", "y"), topic.VersionIs(version+3))
		require.NoError(t, err)

		answer := make(chan error)
		go func() {
			_, _, err := p.SendIf(t.Context(), record("k", "new"), topic.VersionIs(version))
			answer <- err
		}()
		select {
		case err := <-answer:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
		_, err = part.EndTransaction(id, commit)
		require.NoError(t, err)
		if err := <-answer; commit {
			require.EqualValues(t, version+1, conflict(t, err).Found)
		} else {
			require.NoError(t, err)
		}
	}
}

// What a condition finds is what a fold of the committed records finds, whatever
// happened: records, tombstones, transactions, deleted records, a restart.
func TestSendIfAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	steps := 3000
	if testing.Short() {
		steps = 600
	}
	n := openNode(t)
	p := produce(t, n, accounts)
	part := n.partition(t, "accounts", 0)
	keys := []string{"a", "b", "c", "d"}
	latest := map[string]int64{}
	id := log.ProducerID(5000)
	for i := range steps {
		k := keys[rnd.IntN(len(keys))]
		value := fmt.Sprint(i, " ", string(make([]byte, rnd.IntN(300))))
		switch rnd.IntN(12) {
		case 0, 1:
			_, offset, err := p.SendRecord(t.Context(), record(k, value))
			require.NoError(t, err)
			latest[k] = offset
		case 2:
			require.NoError(t, p.Delete(t.Context(), k))
			delete(latest, k)
		case 3:
			id++
			other := keys[rnd.IntN(len(keys))]
			at := int64(part.End().Offset)
			transaction(t, part, id, record(k, value), topic.Record[string, string]{Key: other, Deleted: true})
			commit := rnd.IntN(2) == 0
			_, err := part.EndTransaction(id, commit)
			require.NoError(t, err)
			if commit {
				latest[k] = at
				delete(latest, other)
			}
		case 4:
			if rnd.IntN(10) == 0 {
				start := part.Start() + log.Offset(rnd.Int64N(int64(part.End().Offset-part.Start())+1))
				require.NoError(t, part.DeleteBefore(start))
				for k, offset := range latest {
					if log.Offset(offset) < start {
						delete(latest, k)
					}
				}
			}
		case 5:
			if rnd.IntN(20) == 0 {
				require.NoError(t, p.Close())
				require.NoError(t, n.log.Close())
				l, err := log.Open("data", log.Options{FS: n.fs, SegmentBytes: 1 << 16, MaxBatchBytes: 1 << 20})
				require.NoError(t, err)
				n = &node{log: l, fs: n.fs}
				n.next.Store(int64(i) + 100)
				p = produce(t, n, accounts)
				part = n.partition(t, "accounts", 0)
			}
		default:
			want, ok := latest[k]
			if !ok {
				want = topic.NoVersion
			}
			expected := want
			if rnd.IntN(3) == 0 {
				expected = rnd.Int64N(int64(part.End().Offset)+2) - 1
			}
			_, offset, err := p.SendIf(t.Context(), record(k, value), topic.VersionIs(expected))
			if expected == want {
				require.NoError(t, err, "step %d", i)
				latest[k] = offset
				continue
			}
			c := conflict(t, err)
			require.Equal(t, topic.ConflictError{Partition: c.Partition, Expected: expected, Found: want, Version: true}, *c, "step %d", i)
		}
	}
	require.NoError(t, n.log.Close())
}
