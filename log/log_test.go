package log

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// small makes segments and batches small, so that tests see many.
func small(fs vfs.FS) Options {
	return Options{FS: fs, SegmentBytes: 1 << 10, MaxBatchBytes: 4 << 10, IndexIntervalBytes: 100}
}

func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open("log", o)
	require.NoError(t, err)
	return l
}

func mustPartition(t testing.TB, l *Log, topic string) *Partition {
	t.Helper()
	p, err := l.Partition(TopicPartition{Topic: topic})
	require.NoError(t, err)
	return p
}

// single opens a log with one topic "t" of one partition.
func single(t testing.TB, o Options, sync Sync) (*Log, *Partition) {
	t.Helper()
	l := mustOpen(t, o)
	require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Sync: sync}))
	return l, mustPartition(t, l, "t")
}

func record(timeMs int64, value string) Record {
	return Record{Time: timeMs, Value: []byte(value)}
}

// readAll returns "offset:value" for all a reader from off sees.
func readAll(t testing.TB, p *Partition, off Offset, iso Isolation) (seen []string) {
	t.Helper()
	r := p.Reader(off, iso)
	defer r.Close()
	for {
		b, err := r.Next()
		if err == io.EOF {
			return seen
		}
		require.NoError(t, err)
		it := b.Records()
		for it.Next() {
			seen = append(seen, fmt.Sprintf("%d:%s", it.Offset, it.Value))
		}
		require.NoError(t, it.Err())
	}
}

// TestAppendReadReopen shows the whole way of a record through rolls and a clean
// restart.
func TestAppendReadReopen(t *testing.T) {
	for _, sync := range []Sync{SyncByOS, SyncAlways} {
		mem := vfs.NewMem()
		l, p := single(t, small(mem), sync)
		var want []string
		for i := range 200 {
			value := fmt.Sprintf("value %d", i)
			got, err := p.AppendRecords(context.Background(), record(int64(i), value))
			require.NoError(t, err)
			require.Equal(t, Offset(i), got.Base)
			want = append(want, fmt.Sprintf("%d:%s", i, value))
		}
		require.Equal(t, want, readAll(t, p, 0, ReadCommitted))
		require.Equal(t, want[137:], readAll(t, p, 137, ReadUncommitted))
		require.NoError(t, l.Close())

		l = mustOpen(t, small(mem))
		p = mustPartition(t, l, "t")
		require.Equal(t, Recovery{Clean: true, CutFrom: -1}, p.Recovery())
		require.Equal(t, want, readAll(t, p, 0, ReadCommitted))
		require.Equal(t, want[137:], readAll(t, p, 137, ReadUncommitted))
		require.Equal(t, Position{Offset: 200}, p.End())
		require.NoError(t, l.Close())
	}
}
