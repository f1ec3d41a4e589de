package thalweg_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// A producer that knew a key does not keep it when compaction has removed the key's
// tombstone before the producer read it.
func TestConditionsAfterATombstoneIsGone(t *testing.T) {
	var now atomic.Int64 // ms
	n, err := thalweg.Options{Log: log.Options{
		Now: func() time.Time { return time.UnixMilli(now.Load()) }, CompactionInterval: -1, MaxBatchBytes: 4 << 10,
	}}.Open("")
	require.NoError(t, err)
	defer n.Close()
	accounts := topic.New[string, string]("accounts").Compact().TombstoneRetention(time.Second).SegmentBytes(4 << 10)
	idle, err := n.ProducerWith(accounts, topic.ProducerOptions{BatchBytes: 1 << 10})
	require.NoError(t, err)
	busy, err := n.ProducerWith(accounts, topic.ProducerOptions{BatchBytes: 1 << 10})
	require.NoError(t, err)
	_, _, err = idle.SendIf(t.Context(), topic.Record[string, string]{Key: "k", Value: "v"}, topic.Absent())
	require.NoError(t, err)
	_, _, err = idle.SendIf(t.Context(), topic.Record[string, string]{Key: "k", Value: "w"}, topic.VersionIs(0))
	require.NoError(t, err)

	require.NoError(t, busy.Delete(t.Context(), "k"))
	for range 10 {
		require.NoError(t, busy.Send(t.Context(), "other", strings.Repeat("x", 1000)))
	}
	p, err := n.Log().Partition(log.TopicPartition{Topic: "accounts"})
	require.NoError(t, err)
	for range 2 {
		_, err = p.Compact(t.Context())
		require.NoError(t, err)
		now.Add(2000)
	}
	require.EqualValues(t, 3, p.Horizon(), "the tombstone at offset 2 is gone")

	_, offset, err := idle.SendIf(t.Context(), topic.Record[string, string]{Key: "k", Value: "anew"}, topic.Absent())
	require.NoError(t, err)
	_, _, err = idle.SendIf(t.Context(), topic.Record[string, string]{Key: "k", Value: "newer"}, topic.VersionIs(offset))
	require.NoError(t, err)
}
