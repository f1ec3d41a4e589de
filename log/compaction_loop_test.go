package log

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// background opens a log with a compacted topic in a bubble, whose clock is the
// log's, and whose compaction looks every minute.
func background(t *testing.T, spec TopicSpec, change func(*Options)) (*Log, *Partition) {
	t.Helper()
	o := small(vfs.NewMem())
	o.CompactionInterval = time.Minute
	if change != nil {
		change(&o)
	}
	l := mustOpen(t, o)
	spec.Partitions, spec.Compact = 1, true
	require.NoError(t, l.Create("t", spec))
	return l, mustPartition(t, l, "t")
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// fill writes two segments of which one record is the newest of its key.
func fill(t *testing.T, p *Partition) {
	t.Helper()
	for i := range 2 {
		write(t, p, keyed(plain, 0, fmt.Sprintf("a=%d", i), "a="+strings.Repeat("x", 300)))
		roll(t, p)
	}
}

// TestCompactionByDirtyRatio shows when the background compacts: once the part that
// is new has reached the ratio, and not before.
func TestCompactionByDirtyRatio(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := background(t, TopicSpec{DirtyRatio: 600}, nil)
		defer l.Close()
		for i := range 10 {
			write(t, p, keyed(plain, 0, fmt.Sprintf("%d=%s", i, strings.Repeat("x", 200))))
		}
		roll(t, p)
		after(2 * time.Minute) // all of it was new
		require.EqualValues(t, 10, p.compaction.cleaned)
		fill(t, p) // a quarter
		after(time.Hour)
		require.Len(t, readKeyed(t, p, 0, ReadCommitted), 14)
		for range 5 {
			fill(t, p)
		}
		after(2 * time.Minute)
		require.Len(t, readKeyed(t, p, 0, ReadCommitted), 11)
	})
}

// TestCompactionLags shows that records stay for the least lag, whatever came after
// them, and for the greatest lag at most, in the active segment too.
func TestCompactionLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := background(t, TopicSpec{MaxCompactionLag: 3 * time.Hour, DirtyRatio: 1000}, nil)
		defer l.Close()
		write(t, p, keyed(plain, 0, "b=1"))
		roll(t, p)
		after(2 * time.Hour)
		require.EqualValues(t, 1, p.compaction.cleaned, "nothing but new records")
		write(t, p, keyed(plain, 0, "a=1", "a=2"))
		after(3*time.Hour - 2*time.Minute)
		require.Equal(t, []string{"0 b=1", "1 a=1", "2 a=2"}, readKeyed(t, p, 0, ReadCommitted))
		after(5 * time.Minute)
		require.Equal(t, []string{"0 b=1", "2 a=2"}, readKeyed(t, p, 0, ReadCommitted))
	})
	synctest.Test(t, func(t *testing.T) {
		l, p := background(t, TopicSpec{MinCompactionLag: time.Hour, DirtyRatio: 1}, nil)
		defer l.Close()
		write(t, p, keyed(plain, 0, "a=1", "a=2"))
		after(time.Minute)
		write(t, p, keyed(plain, 0, "a=3"))
		roll(t, p)
		after(59 * time.Minute)
		require.Len(t, readKeyed(t, p, 0, ReadCommitted), 3)
		after(2 * time.Minute)
		require.Equal(t, []string{"2 a=3"}, readKeyed(t, p, 0, ReadCommitted))
	})
}

// TestDeletesGoByThemselves shows that tombstones are removed when their retention is
// over, also when nothing is written any more, and that then there is rest.
func TestDeletesGoByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mem *vfs.Mem
		l, p := background(t, TopicSpec{TombstoneRetention: 10 * time.Hour}, func(o *Options) { mem = o.FS.(*vfs.Mem) })
		write(t, p, keyed(plain, 0, "a=1", "b=1", "a"))
		roll(t, p)
		after(2 * time.Minute)
		require.Equal(t, []string{"1 b=1", "2 a"}, readKeyed(t, p, 0, ReadCommitted))
		require.NoError(t, l.Close())
		time.Sleep(9*time.Hour + 30*time.Minute)
		l, p = background(t, TopicSpec{TombstoneRetention: 10 * time.Hour}, func(o *Options) { o.FS = mem })
		after(20 * time.Minute)
		require.Equal(t, []string{"1 b=1", "2 a"}, readKeyed(t, p, 0, ReadCommitted))
		after(20 * time.Minute)
		require.Equal(t, []string{"1 b=1"}, readKeyed(t, p, 0, ReadCommitted))
		ops := mem.Ops()
		after(100 * time.Hour)
		require.Equal(t, ops, mem.Ops())
		require.NoError(t, l.Close())
	})
}

// TestCompactionWaitsForSeals shows that an open transaction does not make the
// background look at the same segments again and again.
func TestCompactionWaitsForSeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mem *vfs.Mem
		l, p := background(t, TopicSpec{DirtyRatio: 100}, func(o *Options) { mem = o.FS.(*vfs.Mem) })
		defer l.Close()
		write(t, p, keyed(plain, 0, "a=1", "a=2"))
		write(t, p, keyed(transactional(5, 0), 0, "b="+strings.Repeat("x", 500)))
		roll(t, p)
		after(5 * time.Minute)
		require.EqualValues(t, 2, p.compaction.cleaned)
		_, err := p.EndTransaction(5, true)
		require.NoError(t, err)
		ops := mem.Ops()
		after(time.Hour)
		require.Equal(t, ops, mem.Ops())
		roll(t, p)
		after(5 * time.Minute)
		require.EqualValues(t, 4, p.compaction.cleaned)
		require.Equal(t, []string{"1 a=2", "2 b=" + strings.Repeat("x", 500)}, readKeyed(t, p, 0, ReadCommitted))
	})
}

// TestCompactionPace shows that compaction takes the time its bound says.
func TestCompactionPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := background(t, TopicSpec{}, func(o *Options) { o.CompactionInterval, o.CompactionBytesPerSecond = -1, 100 })
		defer l.Close()
		for range 5 {
			fill(t, p)
		}
		stats := compacted(t, p)
		bytes := stats.ReadBytes + stats.WrittenBytes
		require.Greater(t, bytes, int64(5000))
		require.InDelta(t, float64(bytes)/100, stats.Took.Seconds(), 30)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		fill(t, p)
		_, err := p.Compact(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
