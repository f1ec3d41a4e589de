package thalweg_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

var copies = topic.New[string, int]("copies").Partitions(2)

// pollOnce returns the next records, or none where there are none for a while.
func pollOnce(t *testing.T, c *topic.Consumer[string, int], wait time.Duration) []topic.Record[string, int] {
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	records, err := c.Poll(ctx)
	if err != nil {
		return nil
	}
	return records
}

// A program that copies a topic, batch by batch, with the position in the transaction of
// the copies, and that is killed at any file operation, copies each record once.
func TestConsumeTransformProduceOnce(t *testing.T) {
	total := 300
	if testing.Short() {
		total = 60
	}
	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	input := numbers.Partitions(2)
	fs := vfs.NewMem()
	open := func() (*thalweg.Node, error) {
		return thalweg.Options{Log: log.Options{FS: fs, SegmentBytes: 16 << 10, MaxBatchBytes: 16 << 10}, SyncInterval: -1}.Open("data")
	}
	node, err := open()
	require.NoError(t, err)
	for from := 0; from < total; from += 10 { // small batches
		fillNumbers(t, node, input, from, from+10)
	}
	require.NoError(t, node.Close())

	life := func() (done bool) {
		node, err := open()
		if err != nil {
			return false
		}
		defer node.Close()
		c, err := node.Consumer(input, "copier")
		if err != nil {
			return false
		}
		for {
			records := pollOnce(t, c, 100*time.Millisecond)
			if len(records) == 0 {
				lag := int64(0)
				for _, l := range c.Lag() {
					lag += l
				}
				return lag == 0 && len(c.Assigned()) == 2
			}
			err := node.Transact(t.Context(), func(tx *topic.Tx) error {
				for _, r := range records {
					if err := tx.Send(copies, r.Key, r.Value); err != nil {
						return err
					}
				}
				return tx.Commit(c)
			})
			if err != nil {
				return false // begin again from what is committed
			}
		}
	}
	lives := 1
	for {
		fs.StopAt(fs.Ops() + 40 + rnd.Int64N(120))
		if life() {
			break
		}
		fs.StopAt(0)
		fs = fs.Kill()
		lives++
	}
	fs.StopAt(0)
	fs = fs.Kill()
	node, err = open()
	require.NoError(t, err)
	defer node.Close()
	got := values(t, node.ReadToEnd(t.Context(), copies, topic.Start()))
	slices.Sort(got)
	require.Equal(t, count(0, total), got, "after %d lives", lives)
	t.Logf("%d lives", lives)
}

// A consumer that lost its partition while a transaction was open cannot commit it, and
// nothing of it is seen; the consumer that has the partition now does the same work.
func TestTransactionOfAConsumerThatLostItsPartition(t *testing.T) {
	node, err := thalweg.Open("")
	require.NoError(t, err)
	defer node.Close()
	input := topic.New[string, int]("input")
	fillNumbers(t, node, input, 0, 5)
	slow, err := node.ConsumerWith(input, "g", topic.ConsumerOptions{PollTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	work := func(c *topic.Consumer[string, int], before func()) error {
		records := pollOnce(t, c, 10*time.Second)
		require.Len(t, records, 5)
		return node.Transact(t.Context(), func(tx *topic.Tx) error {
			for _, r := range records {
				if err := tx.Send(copies, r.Key, r.Value); err != nil {
					return err
				}
			}
			if err := tx.Commit(c); err != nil {
				return err
			}
			before()
			return nil
		})
	}
	var fresh *topic.Consumer[string, int]
	var again error
	err = work(slow, func() {
		// It does not poll for too long: the group goes on without it.
		require.Eventually(t, func() bool {
			g, err := node.Group("g")
			return err == nil && len(g.Members) == 0
		}, 10*time.Second, time.Millisecond)
		fresh, again = node.Consumer(input, "g")
		require.NoError(t, again)
		require.NoError(t, work(fresh, func() {}))
	})
	require.ErrorIs(t, err, topic.ErrStale)
	require.NotErrorIs(t, err, topic.ErrUnknown)
	require.ElementsMatch(t, count(0, 5), values(t, node.ReadToEnd(t.Context(), copies, topic.Start())))
	require.EqualValues(t, 5, committed(t, node, "g", 0))

	never, err := node.ConsumerWith(input, "most", topic.ConsumerOptions{Delivery: topic.AtMostOnce})
	require.NoError(t, err)
	require.ErrorContains(t, node.Transact(t.Context(), func(tx *topic.Tx) error { return tx.Commit(never) }), "at most once")
}

// A consumer in a transaction commits nothing by itself: what was aborted is read again
// by whoever comes next.
func TestAbortedTransactionLeavesThePosition(t *testing.T) {
	node, err := thalweg.Open("")
	require.NoError(t, err)
	defer node.Close()
	input := topic.New[string, int]("input")
	fillNumbers(t, node, input, 0, 5)
	c, err := node.ConsumerWith(input, "g", topic.ConsumerOptions{CommitInterval: time.Millisecond})
	require.NoError(t, err)
	require.Len(t, pollOnce(t, c, 10*time.Second), 5)
	require.ErrorIs(t, node.Transact(t.Context(), func(tx *topic.Tx) error {
		require.NoError(t, tx.Commit(c))
		return context.Canceled
	}), context.Canceled)
	require.Empty(t, pollOnce(t, c, 20*time.Millisecond), "finished, and more than one interval ago")
	require.NoError(t, c.Close())
	c, err = node.Consumer(input, "g")
	require.NoError(t, err)
	require.Len(t, pollOnce(t, c, 10*time.Second), 5)
	require.NoError(t, node.Transact(t.Context(), func(tx *topic.Tx) error { return tx.Commit(c) }))
	require.EqualValues(t, 5, committed(t, node, "g", 0))
}
