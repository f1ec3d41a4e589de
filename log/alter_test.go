package log

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// TestAlter shows that settings change for open partitions, that partitions can be
// added, and that all of it survives.
func TestAlter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		l, p := retained(t, mem, TopicSpec{})
		for range 20 {
			add(t, p, time.Now())
		}
		start, segments := settled(p)
		require.Zero(t, start)
		require.Greater(t, segments, 4)

		spec := TopicSpec{Partitions: 3, RetentionBytes: 1000, SegmentBytes: 300, MaxRecordBytes: 500}
		require.NoError(t, l.Alter("t", spec))
		start, _ = settled(p)
		require.Positive(t, start, "retention at once")
		for range 3 {
			add(t, p, time.Now())
			require.Equal(t, p.End().Offset-1, p.active().base, "a segment for each record")
		}
		_, err := p.AppendRecords(t.Context(), Record{Value: make([]byte, 501)})
		require.ErrorIs(t, err, ErrTooLarge)
		for i := range 3 {
			added, err := l.Partition(TopicPartition{"t", PartitionID(i)})
			require.NoError(t, err)
			_, err = added.AppendRecords(t.Context(), record(1, fmt.Sprint(i)))
			require.NoError(t, err)
		}
		has, _ := l.Spec("t")
		require.Equal(t, spec, has)
		require.NoError(t, l.Alter("t", spec), "the same again")
		end := p.End()
		require.NoError(t, l.Close())

		o := small(mem)
		l = mustOpen(t, o)
		has, _ = l.Spec("t")
		require.Equal(t, spec, has)
		require.Equal(t, end, mustPartition(t, l, "t").End())
		last, err := l.Partition(TopicPartition{"t", 2})
		require.NoError(t, err)
		require.EqualValues(t, 1, last.End().Offset)
		require.NoError(t, l.Close())
	})
}

// TestAlterSync shows that changing the sync policy takes nothing back that readers
// have seen, and that what is appended afterwards follows the new one.
func TestAlterSync(t *testing.T) {
	l, p := single(t, small(vfs.NewMem()), SyncByOS)
	defer l.Close()
	write := func() Offset {
		got, err := p.Write(batchOf(plain, 1, "v"))
		require.NoError(t, err)
		return got.End.Offset
	}
	seen := write()
	require.Equal(t, seen, p.HighWatermark())
	require.NoError(t, l.Alter("t", TopicSpec{Partitions: 1, Sync: SyncAlways}))
	require.GreaterOrEqual(t, p.HighWatermark(), seen)
	end := write()
	require.NoError(t, p.Acked(t.Context(), end))
	require.Equal(t, end, p.Durable())
	require.NoError(t, l.Alter("t", TopicSpec{Partitions: 1}))
	end = write()
	require.Equal(t, end, p.HighWatermark())
}

// TestAlterRefuses shows what cannot be changed, and that nothing changes then.
func TestAlterRefuses(t *testing.T) {
	l := mustOpen(t, small(vfs.NewMem()))
	spec := TopicSpec{Partitions: 2}
	require.NoError(t, l.Create("t", spec))
	for _, bad := range []TopicSpec{{Partitions: 1}, {Partitions: 2, Compact: true, RetentionBytes: 5}} {
		require.ErrorIs(t, l.Alter("t", bad), ErrNotAlterable)
	}
	require.ErrorContains(t, l.Alter("t", TopicSpec{Partitions: 1}), `"t" has 2 partitions and cannot have 1`)
	require.ErrorContains(t, l.Alter("t", TopicSpec{Partitions: 3, RetentionBytes: -1}), "RetentionBytes")
	require.ErrorIs(t, l.Alter("u", spec), ErrUnknownTopic)
	has, _ := l.Spec("t")
	require.Equal(t, spec, has)
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Alter("t", spec), ErrClosed)
}

// TestAlterStopped stops the machine at every file operation of a change and shows
// that either all of it happened or nothing, that records stay, and that the change
// can be made again.
func TestAlterStopped(t *testing.T) {
	from, to := TopicSpec{Partitions: 1, Sync: SyncAlways}, TopicSpec{Partitions: 3, Sync: SyncAlways, RetentionBytes: 100_000}
	run := func(mem *vfs.Mem, stopAt int64) (altered bool, ops int64) {
		l := mustOpen(t, small(mem))
		require.NoError(t, l.Create("t", from))
		_, err := mustPartition(t, l, "t").AppendRecords(context.Background(), record(1, "kept"))
		require.NoError(t, err)
		ops = mem.Ops()
		if stopAt > 0 {
			mem.StopAt(ops + stopAt)
		}
		err = l.Alter("t", to)
		if err != nil && !errors.Is(err, vfs.ErrStopped) {
			t.Fatal(err)
		}
		l.abandon()
		return err == nil, mem.Ops() - ops
	}
	_, total := run(vfs.NewMem(), 0)
	require.Greater(t, total, int64(5))
	for n := int64(1); n <= total+1; n++ {
		for seed := range uint64(4) {
			mem := vfs.NewMem()
			altered, _ := run(mem, n)
			after := mem.Kill()
			if seed > 0 {
				after = mem.Crash(seed)
			}
			l := mustOpen(t, small(after))
			has, _ := l.Spec("t")
			require.True(t, has == to || has == from && !altered, "stopped at %d, seed %d: %+v", n, seed, has)
			require.Equal(t, []string{"0:kept"}, readAll(t, mustPartition(t, l, "t"), 0, ReadCommitted))
			require.NoError(t, l.Alter("t", to))
			last, err := l.Partition(TopicPartition{"t", 2})
			require.NoError(t, err)
			_, err = last.AppendRecords(context.Background(), record(1, strings.Repeat("x", 100)))
			require.NoError(t, err)
			require.NoError(t, l.Close())
		}
	}
}
