package log

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// times returns the time of every record.
func times(t testing.TB, p *Partition) (all []int64) {
	t.Helper()
	r := p.Reader(p.Start(), ReadCommitted)
	defer r.Close()
	for {
		b, err := r.Next()
		if err != nil {
			return all
		}
		it := b.Records()
		for it.Next() {
			all = append(all, it.Time)
		}
		require.NoError(t, it.Err())
	}
}

// TestAppendTime shows that a topic with that setting gives every record of a batch
// the time of the log, compressed or not; that lookup by time goes by it; that a
// repetition is told the first time; and that all of it stays after a restart, with
// the index built anew too.
func TestAppendTime(t *testing.T) {
	for _, codec := range []Compression{NoCompression, Zstd} {
		mem := vfs.NewMem()
		now := &clock{ms: 5000}
		o := Options{FS: mem, Now: now.now, IndexIntervalBytes: 1}
		l := mustOpen(t, o)
		require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, AppendTime: true, Compression: codec}))
		p := mustPartition(t, l, "t")
		value := []byte(strings.Repeat("rain ", 30))
		var b BatchBuilder
		append := func(producer Producer) AppendResult {
			t.Helper()
			b.Reset()
			b.Add(1, nil, value, nil)
			b.Add(99_000, nil, value, nil) // the largest time of the records' own
			got, err := p.Append(context.Background(), encode(t, p, &b, producer))
			require.NoError(t, err)
			return got
		}
		require.EqualValues(t, 5000, append(Producer{ID: 3, Sequence: 0}).AppendTime)
		now.ms = 6000
		require.EqualValues(t, 6000, append(plain).AppendTime)
		again := append(Producer{ID: 3, Sequence: 0})
		require.True(t, again.Duplicate)
		require.EqualValues(t, 5000, again.AppendTime)
		now.ms = 7000
		own := b.Finish(plain)
		_, err := p.WriteForeign(own)
		require.NoError(t, err)
		unchanged, err := ParseBatch(own)
		require.NoError(t, err)
		require.False(t, unchanged.AppendTime, "the caller's batch stays as it is")

		check := func() {
			t.Helper()
			require.Equal(t, []int64{5000, 5000, 6000, 6000, 7000, 7000}, times(t, p))
			for at, want := range map[int64]Offset{0: 0, 5000: 0, 5001: 2, 6000: 2, 6001: 4, 7000: 4, 7001: -1, 99_000: -1} {
				off, found, err := p.OffsetAt(at)
				require.NoError(t, err)
				require.Equal(t, want >= 0, found, "time %d", at)
				require.Equal(t, max(want, 0), off, "time %d", at)
			}
		}
		check()
		image := mem.Kill()
		require.NoError(t, l.Close())
		for _, fs := range []*vfs.Mem{mem, image} {
			o.FS = fs
			l = mustOpen(t, o)
			p = mustPartition(t, l, "t")
			check()
			again = append(Producer{ID: 3, Sequence: 0})
			require.True(t, again.Duplicate)
			require.EqualValues(t, 5000, again.AppendTime)
			require.NoError(t, p.DeleteBefore(2))
			require.NoError(t, l.Close())
		}
	}
}

// TestAppendTimeOfADurableBatchToCome shows that a repetition is told the append time
// of a batch that readers do not see yet.
func TestAppendTimeOfADurableBatchToCome(t *testing.T) {
	now := &clock{ms: 5000}
	l := mustOpen(t, Options{FS: vfs.NewMem(), Now: now.now})
	require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, AppendTime: true, Sync: SyncAlways}))
	p := mustPartition(t, l, "t")
	p.syncMu.Lock()
	_, err := p.Write(batchOf(Producer{ID: 1}, 1, "v"))
	require.NoError(t, err)
	now.ms++
	got, err := p.Write(batchOf(Producer{ID: 1}, 1, "v"))
	p.syncMu.Unlock()
	require.NoError(t, err)
	require.True(t, got.Duplicate)
	require.EqualValues(t, 5000, got.AppendTime)
	require.NoError(t, l.Close())
}

// TestOwnTimesStay shows that without the setting records keep their times, and
// results say so.
func TestOwnTimesStay(t *testing.T) {
	l, p := single(t, Options{FS: vfs.NewMem()}, SyncByOS)
	defer l.Close()
	got, err := p.AppendRecords(context.Background(), record(7, "a"), record(3, "b"))
	require.NoError(t, err)
	require.Zero(t, got.AppendTime)
	require.Equal(t, []int64{7, 3}, times(t, p))
}

// TestMarkersKeepTheClockOfAppendTime shows that transactions work in such a topic.
func TestMarkersKeepTheClockOfAppendTime(t *testing.T) {
	now := &clock{ms: 5000}
	mem := vfs.NewMem()
	l := mustOpen(t, Options{FS: mem, Now: now.now})
	require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, AppendTime: true}))
	p := mustPartition(t, l, "t")
	for id := range ProducerID(2) {
		_, err := p.Write(batchOf(transactional(id, 0), 1, "v"))
		require.NoError(t, err)
		_, err = p.EndTransaction(id, id == 0)
		require.NoError(t, err)
	}
	image := mem.Kill()
	require.NoError(t, l.Close())
	l = mustOpen(t, Options{FS: image, Now: now.now})
	defer l.Close()
	p = mustPartition(t, l, "t")
	require.Equal(t, []int64{5000}, times(t, p))
	require.Len(t, readAll(t, p, 0, ReadUncommitted), 2)
}

// TestMaxRecordBytes shows that a topic's limit counts key, value and headers, that
// the error says all there is to say, and that every way into the log keeps it.
func TestMaxRecordBytes(t *testing.T) {
	for _, codec := range []Compression{NoCompression, LZ4} {
		l := mustOpen(t, Options{FS: vfs.NewMem()})
		require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, MaxRecordBytes: 100, Compression: codec}))
		p := mustPartition(t, l, "t")
		require.EqualValues(t, 100, p.MaxRecordBytes())
		compressor, err := NewCompressor(codec, 0)
		require.NoError(t, err)
		build := func(n int) *BatchBuilder {
			b := new(BatchBuilder)
			b.Compress(compressor)
			b.Add(1, nil, []byte("small"), nil)
			b.Add(1, []byte("key"), make([]byte, n), []Header{{Key: "name", Value: []byte("val")}})
			b.Add(1, nil, nil, nil)
			return b
		}
		ways := map[string]func(n int) error{
			"encode": func(n int) error {
				batch, err := p.Encode(build(n), plain)
				if err == nil {
					_, err = p.Write(batch)
				}
				return err
			},
			"foreign": func(n int) error { _, err := p.WriteForeign(build(n).Finish(plain)); return err },
			"records": func(n int) error {
				_, err := p.AppendRecords(context.Background(), Record{Value: []byte("small")}, Record{Value: make([]byte, n+10)}, Record{})
				return err
			},
		}
		for name, write := range ways {
			end := p.End().Offset
			require.NoError(t, write(90), name)
			require.Equal(t, end+3, p.End().Offset)
			err := write(91)
			require.ErrorIs(t, err, ErrTooLarge, name)
			require.ErrorContains(t, err, "append to t-0", name)
			require.ErrorContains(t, err, "a record has 101 bytes of key, value and headers, the topic's MaxRecordBytes is 100; make the record smaller, or raise the setting", name)
			require.Equal(t, end+3, p.End().Offset, "nothing was written")
		}
		require.NoError(t, l.Close())
	}
}
