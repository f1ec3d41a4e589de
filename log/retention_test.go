package log

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// retained opens a partition of a topic with the given settings, on segments of 1 KiB,
// for a test in a bubble: its clock is the bubble's, and retention is checked once a
// minute.
func retained(t *testing.T, mem *vfs.Mem, spec TopicSpec) (*Log, *Partition) {
	o := small(mem)
	o.RetentionCheckInterval = time.Minute
	l := mustOpen(t, o)
	spec.Partitions = 1
	require.NoError(t, l.Create("t", spec))
	return l, mustPartition(t, l, "t")
}

// add appends a record of about 230 bytes, four of which fill a segment.
func add(t *testing.T, p *Partition, at time.Time) {
	t.Helper()
	_, err := p.Append(context.Background(), batchOf(plain, at.UnixMilli(), strings.Repeat("x", 160)))
	require.NoError(t, err)
}

// settled waits for the background work and returns the start and how many segments
// there are.
func settled(p *Partition) (Offset, int) {
	synctest.Wait()
	_, segments := p.Size()
	return p.Start(), segments
}

// TestRetentionBySize shows that the oldest segments go as soon as the others have
// what the topic keeps, that this is counted and survives a restart, and that the
// files are used again.
func TestRetentionBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		l, p := retained(t, mem, TopicSpec{RetentionBytes: 2000})
		for i := range 100 {
			add(t, p, time.Now())
			start, _ := settled(p)
			bytes, segments := p.Size()
			perSegment := (*p.segments.Load())[0].end.Load()
			if start > 0 {
				require.GreaterOrEqual(t, bytes, int64(2000), "record %d", i)
			}
			require.Less(t, bytes, 2000+2*perSegment, "record %d", i)
			require.LessOrEqual(t, segments, 4)
		}
		start, _ := settled(p)
		require.Positive(t, start)
		deleted := p.Deleted()
		require.EqualValues(t, start, deleted.Records)
		require.Equal(t, deleted.Segments, int64(start)/(int64(p.active().base)-int64((*p.segments.Load())[len(*p.segments.Load())-2].base)))
		require.Positive(t, deleted.Bytes)
		require.NotZero(t, p.active().recycled)
		require.EqualValues(t, 100, p.End().Offset)
		l.abandon()
		l, p = retained(t, mem.Kill(), TopicSpec{RetentionBytes: 2000})
		require.Equal(t, start, p.Start())
		require.EqualValues(t, 100, p.End().Offset)
		require.NoError(t, l.Close())
	})
}

// TestRetentionByAge shows that records go, segment by segment, once the youngest of
// their segment is too old, the active segment with them, and that the end stays.
func TestRetentionByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		spec := TopicSpec{RetentionAge: time.Hour}
		l, p := retained(t, mem, spec)
		for range 10 {
			add(t, p, time.Now())
			time.Sleep(time.Minute)
		}
		inFirst := (*p.segments.Load())[1].base
		time.Sleep(49 * time.Minute) // the first record is 59 minutes old
		start, segments := settled(p)
		require.Zero(t, start)
		require.Equal(t, 3, segments)
		time.Sleep(time.Duration(inFirst)*time.Minute + time.Minute)
		start, segments = settled(p)
		require.Equal(t, inFirst, start, "the first segment is gone, with its youngest record")
		require.Equal(t, 2, segments)
		time.Sleep(time.Hour)
		start, segments = settled(p)
		require.EqualValues(t, 10, start, "the active one too")
		require.Equal(t, 1, segments)
		require.EqualValues(t, 10, p.End().Offset)
		require.Equal(t, Deleted{Segments: 3, Records: 10, Bytes: p.Deleted().Bytes}, p.Deleted())
		add(t, p, time.Now())
		require.NoError(t, l.Close())
		l, p = retained(t, mem, spec)
		require.EqualValues(t, 10, p.Start())
		require.EqualValues(t, 11, p.End().Offset)
		require.NoError(t, l.Close())
	})
}

// TestRetentionOfTimesToCome shows that a record that says it is of the far future is
// kept as long as one of now, also when the log was opened again since.
func TestRetentionOfTimesToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		spec := TopicSpec{RetentionAge: time.Hour}
		l, p := retained(t, mem, spec)
		for range 6 {
			add(t, p, time.UnixMilli(math.MaxInt64))
		}
		time.Sleep(30 * time.Minute)
		require.NoError(t, l.Close())
		l, p = retained(t, mem, spec)
		time.Sleep(29 * time.Minute)
		start, _ := settled(p)
		require.Zero(t, start)
		time.Sleep(2 * time.Minute)
		start, _ = settled(p)
		require.EqualValues(t, 6, start)
		require.NoError(t, l.Close())
	})
}

// TestRetentionOfTimesToComeAfterAKill shows that where nothing says when a segment was
// appended to, its opening counts.
func TestRetentionOfTimesToComeAfterAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		spec := TopicSpec{RetentionAge: time.Hour}
		l, p := retained(t, mem, spec)
		add(t, p, time.UnixMilli(math.MaxInt64))
		time.Sleep(30 * time.Minute)
		l.abandon()
		l, p = retained(t, mem.Kill(), spec)
		time.Sleep(59 * time.Minute)
		start, _ := settled(p)
		require.Zero(t, start)
		time.Sleep(2 * time.Minute)
		start, _ = settled(p)
		require.EqualValues(t, 1, start)
		require.NoError(t, l.Close())
	})
}

// TestRetentionStops shows what holds retention back: an open transaction.
func TestRetentionStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := retained(t, vfs.NewMem(), TopicSpec{RetentionAge: time.Hour, RetentionBytes: 1000})
		for range 10 {
			add(t, p, time.Now())
		}
		_, err := p.Append(context.Background(), batchOf(transactional(5, 0), time.Now().UnixMilli(), "open"))
		require.NoError(t, err)
		for range 12 {
			add(t, p, time.Now())
		}
		time.Sleep(2 * time.Hour)
		start, _ := settled(p)
		require.Positive(t, start)
		require.LessOrEqual(t, start, Offset(10), "the transaction is open")
		_, err = p.EndTransaction(5, true)
		require.NoError(t, err)
		time.Sleep(2 * time.Hour)
		start, _ = settled(p)
		require.Equal(t, p.End().Offset, start)
		require.NoError(t, l.Close())
	})
}

// lines is text that is written and read at once.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestRetentionIsLogged shows that what was dropped is said once a check.
func TestRetentionIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		o := small(vfs.NewMem())
		o.Logger = slog.New(slog.NewTextHandler(&out, nil))
		l := mustOpen(t, o)
		require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, RetentionBytes: 1000}))
		p := mustPartition(t, l, "t")
		for range 50 {
			add(t, p, time.Now())
		}
		synctest.Wait()
		require.NotContains(t, out.String(), "dropped")
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(out.String(), "old records were dropped"))
		require.Contains(t, out.String(), "partition=t-0")
		time.Sleep(time.Hour)
		require.NoError(t, l.Close())
		require.Equal(t, 1, strings.Count(out.String(), "old records were dropped"))
	})
}

// TestUnusedSparesGo shows that a partition that is no longer written keeps no spare.
func TestUnusedSparesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		l, p := retained(t, mem, TopicSpec{RetentionBytes: 1})
		for range 30 {
			add(t, p, time.Now())
		}
		synctest.Wait()
		spares := func() (n int) {
			names, err := mem.List("log/t-0")
			require.NoError(t, err)
			for _, name := range names {
				if strings.HasSuffix(name, spareSuffix) {
					n++
				}
			}
			return n
		}
		require.Positive(t, spares())
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		require.Zero(t, spares())
		require.NoError(t, l.Close())
	})
}
