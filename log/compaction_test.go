package log

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// keyed encodes one batch of records "key=value", or "key" for a tombstone.
func keyed(p Producer, timeMs int64, records ...string) []byte {
	var b BatchBuilder
	for _, r := range records {
		key, value, ok := strings.Cut(r, "=")
		if ok {
			b.Add(timeMs, []byte(key), []byte(value), nil)
		} else {
			b.Add(timeMs, []byte(key), nil, nil)
		}
	}
	return b.Finish(p)
}

// readKeyed returns "offset key=value" for what a reader from off sees.
func readKeyed(t testing.TB, p *Partition, off Offset, iso Isolation) []string {
	t.Helper()
	r := p.Reader(off, iso)
	defer r.Close()
	return moreKeyed(t, r)
}

func moreKeyed(t testing.TB, r *Reader) (seen []string) {
	t.Helper()
	for {
		b, err := r.Next()
		if err == io.EOF {
			return seen
		}
		require.NoError(t, err)
		it := b.Records()
		for it.Next() {
			if it.Value == nil {
				seen = append(seen, fmt.Sprintf("%d %s", it.Offset, it.Key))
			} else {
				seen = append(seen, fmt.Sprintf("%d %s=%s", it.Offset, it.Key, it.Value))
			}
		}
		require.NoError(t, it.Err())
	}
}

// fold applies what readKeyed returned to a table.
func fold(table map[string]string, seen []string) map[string]string {
	for _, s := range seen {
		_, record, _ := strings.Cut(s, " ")
		key, value, ok := strings.Cut(record, "=")
		if ok {
			table[key] = value
		} else {
			delete(table, key)
		}
	}
	return table
}

// roll seals the active segment.
func roll(t testing.TB, p *Partition) {
	t.Helper()
	require.NoError(t, p.rollOlder(0, p.active().since))
}

func compacted(t testing.TB, p *Partition) CompactionStats {
	t.Helper()
	stats, err := p.Compact(context.Background())
	require.NoError(t, err)
	return stats
}

// compactTopic opens a log with one compacted partition and a clock that stands
// at 0. Nothing is compacted unless asked for.
func compactTopic(t testing.TB, fs vfs.FS, spec TopicSpec, change func(*Options)) (*Log, *Partition, *clock) {
	t.Helper()
	time := &clock{}
	o := small(fs)
	o.Now, o.CompactionInterval, o.SegmentAge, o.ProducerExpiry = time.now, -1, -1, -1
	if change != nil {
		change(&o)
	}
	l := mustOpen(t, o)
	spec.Partitions, spec.Compact = 1, true
	require.NoError(t, l.Create("t", spec))
	return l, mustPartition(t, l, "t"), time
}

func write(t testing.TB, p *Partition, batch []byte) AppendResult {
	t.Helper()
	got, err := p.Write(batch)
	require.NoError(t, err)
	return got
}

// TestCompactionAndDeletes walks case C-15: deletes stay for their retention,
// counted from the first cleaning that meets them, and then go.
func TestCompactionAndDeletes(t *testing.T) {
	l, p, time := compactTopic(t, vfs.NewMem(), TopicSpec{TombstoneRetention: 1000 * 1e6}, nil)
	defer l.Close()
	for _, r := range []string{"a=1", "b=1", "a", "b=2"} {
		write(t, p, keyed(plain, 0, r))
	}
	roll(t, p)
	write(t, p, keyed(plain, 0, "c=1"))

	old := p.Reader(0, ReadCommitted)
	defer old.Close()
	table := map[string]string{}
	for range 2 {
		b, err := old.Next()
		require.NoError(t, err)
		it := b.Records()
		for it.Next() {
			table[string(it.Key)] = string(it.Value)
		}
	}
	require.Equal(t, map[string]string{"a": "1", "b": "1"}, table)

	met := []string{"2 a", "3 b=2", "4 c=1"}
	step := func(wall int64, want []string, horizon Offset) {
		t.Helper()
		time.ms = wall
		compacted(t, p)
		require.Equal(t, want, readKeyed(t, p, 0, ReadCommitted))
		for off := range Offset(3) {
			require.Equal(t, want, readKeyed(t, p, off, ReadCommitted), "from offset %d", off)
		}
		require.Equal(t, Offset(5), p.End().Offset)
		require.Equal(t, horizon, p.Horizon())
	}
	step(10_000, met, 0)
	time.ms = 10_500
	require.Equal(t, map[string]string{"b": "2", "c": "1"}, fold(map[string]string{}, readKeyed(t, p, 0, ReadCommitted)))
	time.ms = 10_900
	// It has the old segment pinned, and goes on in it undisturbed.
	require.Equal(t, met, moreKeyed(t, old))
	require.Equal(t, map[string]string{"b": "2", "c": "1"}, fold(table, met))
	again := p.Reader(2, ReadCommitted)
	defer again.Close()
	require.Equal(t, met, moreKeyed(t, again))
	step(10_999, met, 0)
	step(11_000, met[1:], 3)
	step(11_001, met[1:], 3)
}

// TestCompactionStatesTheHorizonInTheBatch shows where the format keeps the time
// until which a delete stays, and that the times of the records are what they were.
func TestCompactionStatesTheHorizonInTheBatch(t *testing.T) {
	l, p, time := compactTopic(t, vfs.NewMem(), TopicSpec{TombstoneRetention: 1000 * 1e6}, nil)
	defer l.Close()
	var b BatchBuilder
	for i, at := range []int64{-5, 70, 1 << 60} {
		b.Add(at, []byte{'a' + byte(i)}, nil, []Header{{Key: "h", Value: []byte{byte(i)}}})
	}
	b.Add(3, []byte("a"), []byte("newest"), nil)
	write(t, p, b.Finish(plain))
	roll(t, p)
	time.ms = 10_000
	compacted(t, p)

	r := p.Reader(0, ReadCommitted)
	defer r.Close()
	got, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, uint16(attrDeleteHorizon), got.attributes())
	require.EqualValues(t, 11_000, got.BaseTime)
	require.EqualValues(t, 1<<60, got.MaxTime)
	require.Equal(t, [2]Offset{0, 3}, [2]Offset{got.Base, got.Last})
	require.EqualValues(t, 3, got.Count)
	it := got.Records()
	var seen []string
	for it.Next() {
		seen = append(seen, fmt.Sprint(it.Offset, " ", it.Time, " ", string(it.Key), " ", it.Value == nil, " ", len(it.Headers())))
	}
	require.NoError(t, it.Err())
	require.Equal(t, []string{"1 70 b true 1", fmt.Sprint("2 ", int64(1)<<60, " c true 1"), "3 3 a false 0"}, seen)
	// The time index knows the greatest time that is left.
	off, found, err := p.OffsetAt(71)
	require.NoError(t, err)
	require.True(t, found)
	require.EqualValues(t, 2, off)
}

// TestCompactionOfTransactions shows that aborted records go whatever their key,
// that open ones are not touched, and that a marker stays as long as its
// transaction has a batch, and from then on for the retention.
func TestCompactionOfTransactions(t *testing.T) {
	mem := vfs.NewMem()
	l, p, time := compactTopic(t, mem, TopicSpec{TombstoneRetention: 1000 * 1e6}, nil)
	l.SetOwners(&blocks{})
	write(t, p, keyed(plain, 0, "a=0", "b=0", "d=0"))     // 0, 1, 2
	write(t, p, keyed(transactional(100, 0), 0, "a=1"))   // 3
	write(t, p, keyed(transactional(200, 0), 0, "b=bad")) // 4
	roll(t, p)
	end := func(id ProducerID, commit bool) {
		t.Helper()
		_, err := p.EndTransaction(id, commit)
		require.NoError(t, err)
	}
	write(t, p, keyed(transactional(200, 1), 0, "x=bad")) // 5
	end(200, false)                                       // 6
	roll(t, p)
	time.ms = 10_000
	require.Zero(t, compacted(t, p).Removed, "the first segment holds an open transaction, all after it waits")
	end(100, true)                                      // 7
	write(t, p, keyed(transactional(300, 0), 0, "a=3")) // 8
	roll(t, p)
	all := func() []string { return readKeyed(t, p, 0, ReadUncommitted) }
	compacted(t, p)
	require.Equal(t, []string{"1 b=0", "2 d=0", "3 a=1", "8 a=3"}, all(), "undecided data replaces nothing")
	require.Equal(t, []string{"1 b=0", "2 d=0", "3 a=1"}, readKeyed(t, p, 0, ReadCommitted))
	end(300, true) // 9
	roll(t, p)
	write(t, p, keyed(plain, 0, "e=0")) // 10

	markers := func() (offsets []Offset) {
		for _, s := range *p.segments.Load() {
			require.NoError(t, s.eachBatch(0, func(b *Batch) error {
				if b.Control {
					offsets = append(offsets, b.Base)
				}
				return nil
			}))
		}
		return offsets
	}
	time.ms = 11_000
	compacted(t, p) // the abort marker has met its time
	require.Equal(t, []string{"1 b=0", "2 d=0", "8 a=3", "10 e=0"}, all())
	require.Equal(t, []Offset{7, 9}, markers())
	require.Equal(t, Offset(7), p.Horizon())
	time.ms = 11_999
	compacted(t, p)
	require.Equal(t, []Offset{7, 9}, markers(), "of 100 nothing is left since the last compaction")
	time.ms = 12_000
	compacted(t, p)
	require.Equal(t, []Offset{9}, markers())
	require.Equal(t, Offset(8), p.Horizon())
	time.ms = 1_000_000
	compacted(t, p)
	require.Equal(t, []Offset{9}, markers(), "its transaction has a batch")

	// All of it is so for a log that is opened again, with indexes and without.
	seen := readKeyed(t, p, 0, ReadCommitted)
	require.NoError(t, l.Close())
	for _, files := range []*vfs.Mem{mem.Kill(), withoutCaches(t, mem)} {
		again, q, _ := compactTopic(t, files, TopicSpec{TombstoneRetention: 1000 * 1e6}, nil)
		require.Equal(t, seen, readKeyed(t, q, 0, ReadCommitted))
		require.Equal(t, Offset(8), q.Horizon())
		require.Empty(t, q.OpenTransactions())
		require.NoError(t, again.Close())
	}
}

// withoutCaches returns a copy of the files without any that can be made anew.
func withoutCaches(t testing.TB, mem *vfs.Mem) *vfs.Mem {
	mem = mem.Kill()
	names, err := mem.List("log/t-0")
	require.NoError(t, err)
	for _, name := range names {
		if !strings.HasSuffix(name, logSuffix) && name != compactionFile {
			require.NoError(t, mem.Remove("log/t-0/"+name))
		}
	}
	require.NoError(t, removeIfPresent(mem, "log/"+cleanStopFile))
	return mem
}

// TestCompactionKeepsTheLastBatchOfAProducer shows that the sequence of a producer
// that lives outlasts its records, in the log itself: no snapshot is needed.
func TestCompactionKeepsTheLastBatchOfAProducer(t *testing.T) {
	mem := vfs.NewMem()
	l, p, _ := compactTopic(t, mem, TopicSpec{}, nil)
	write(t, p, keyed(Producer{ID: 7}, 0, "a=1"))
	write(t, p, keyed(Producer{ID: 7, Sequence: 1}, 0, "a=2", "b=1"))
	write(t, p, keyed(Producer{ID: 8}, 0, "c=1"))
	write(t, p, keyed(plain, 0, "a=3", "b=2", "c=2"))
	roll(t, p)
	write(t, p, keyed(plain, 0, "d=1"))
	compacted(t, p)
	want := []string{"4 a=3", "5 b=2", "6 c=2", "7 d=1"}
	require.Equal(t, want, readKeyed(t, p, 0, ReadCommitted))
	require.NoError(t, l.Close())

	l, p, _ = compactTopic(t, withoutCaches(t, mem), TopicSpec{}, nil)
	defer l.Close()
	require.Equal(t, want, readKeyed(t, p, 0, ReadCommitted))
	got := write(t, p, keyed(Producer{ID: 7, Sequence: 1}, 0, "a=2", "b=1"))
	require.Equal(t, AppendResult{Base: 1, Last: 2, End: Position{Offset: 3}, Duplicate: true}, got)
	_, err := p.Write(keyed(Producer{ID: 7, Sequence: 9}, 0, "a=9"))
	require.ErrorIs(t, err, ErrOutOfOrder)
	require.True(t, write(t, p, keyed(Producer{ID: 8}, 0, "c=1")).Duplicate)
	require.EqualValues(t, 8, write(t, p, keyed(Producer{ID: 7, Sequence: 3}, 0, "a=4")).Base)
}

// TestCompactionForgetsExpiredProducers shows that the batch of a producer that is
// no longer remembered goes with its records.
func TestCompactionForgetsExpiredProducers(t *testing.T) {
	l, p, time := compactTopic(t, vfs.NewMem(), TopicSpec{}, func(o *Options) { o.ProducerExpiry = 1000 * 1e6 })
	defer l.Close()
	write(t, p, keyed(Producer{ID: 7}, 0, "a=1"))
	write(t, p, keyed(plain, 0, "a=2"))
	roll(t, p)
	batches := func() (n int) {
		require.NoError(t, (*p.segments.Load())[0].eachBatch(0, func(*Batch) error { n++; return nil }))
		return n
	}
	compacted(t, p)
	require.Equal(t, 2, batches())
	time.ms = 1001
	compacted(t, p)
	require.Equal(t, 1, batches())
}

// TestCompactedSegments shows that small segments become one, that offsets have no
// gap between segments however much went, and that doing it again changes nothing.
func TestCompactedSegments(t *testing.T) {
	mem := vfs.NewMem()
	l, p, _ := compactTopic(t, mem, TopicSpec{}, nil)
	for i := range 40 {
		write(t, p, keyed(plain, int64(i), fmt.Sprintf("%d=%d", i%3, i), fmt.Sprintf("%d=%s", i%3, strings.Repeat("x", 150))))
	}
	write(t, p, keyed(plain, 1, "last=1"))
	roll(t, p)
	before := len(*p.segments.Load())
	require.Greater(t, before, 10)
	for i := 0; compacted(t, p).Segments > 0; i++ {
		require.Less(t, i, 10)
	}
	segments := *p.segments.Load()
	require.Len(t, segments, 2)
	for i, s := range segments[1:] {
		require.Equal(t, s.base, segments[i].next)
	}
	want := readKeyed(t, p, 0, ReadCommitted)
	require.Len(t, want, 4)
	files := contents(t, mem)
	require.Zero(t, compacted(t, p).WrittenBytes)
	require.Equal(t, files, contents(t, mem), "a second compaction changes nothing")
	require.NoError(t, l.Close())

	l, p, _ = compactTopic(t, mem, TopicSpec{}, nil)
	defer l.Close()
	require.True(t, p.Recovery().Clean)
	require.Equal(t, want, readKeyed(t, p, 0, ReadCommitted))
	for off := range p.End().Offset {
		got := readKeyed(t, p, off, ReadCommitted)
		i := slices.IndexFunc(want, func(s string) bool {
			var at Offset
			fmt.Sscan(s, &at)
			return at >= off
		})
		if i < 0 {
			require.Empty(t, got)
		} else {
			require.Equal(t, want[i:], got, "from %d", off)
		}
	}
}

// contents returns the bytes of the partition's files.
func contents(t testing.TB, mem *vfs.Mem) map[string]string {
	t.Helper()
	names, err := mem.List("log/t-0")
	require.NoError(t, err)
	found := map[string]string{}
	for _, name := range names {
		b, err := readSmallFile(mem, "log/t-0/"+name)
		require.NoError(t, err)
		found[name] = string(b)
	}
	return found
}

// TestCompactionInLittleMemory shows that the result is the same however many keys
// fit into memory, down to one, and whatever the size of segments.
func TestCompactionInLittleMemory(t *testing.T) {
	var want []string
	for _, segmentBytes := range []int64{200, 1 << 10, 64 << 10} {
		for _, keys := range []int64{1, 2, 7, 1000} {
			l, p, time := compactTopic(t, vfs.NewMem(), TopicSpec{TombstoneRetention: 1e6}, func(o *Options) {
				o.SegmentBytes, o.CompactionMemoryBytes = segmentBytes, keys*keySlotBytes*5/4+keySlotBytes
			})
			for i := range 30 {
				batch := []string{fmt.Sprintf("%d=%d", i*i%23, i), fmt.Sprintf("%d=again %d", i%4, i), fmt.Sprintf("%d=", i%4)}
				if i%5 == 0 {
					batch = append(batch, fmt.Sprint(i*i%23))
				}
				write(t, p, keyed(plain, 0, batch...))
				if i%9 == 0 {
					roll(t, p)
				}
			}
			roll(t, p)
			table := fold(map[string]string{}, readKeyed(t, p, 0, ReadCommitted))
			passes := compacted(t, p).Passes
			if keys == 1 {
				require.Greater(t, passes, 12)
			}
			if keys == 1000 {
				require.Equal(t, 1, passes)
			}
			got := readKeyed(t, p, 0, ReadCommitted)
			require.Equal(t, table, fold(map[string]string{}, got))
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, "segments of %d, memory for %d keys", segmentBytes, keys)
			time.ms = 1
			compacted(t, p)
			got = readKeyed(t, p, 0, ReadCommitted)
			require.Equal(t, table, fold(map[string]string{}, got))
			require.Len(t, got, len(table), "no tombstone is left")
			require.NoError(t, l.Close())
		}
	}
}

// TestCompactionOfCompressedBatches shows that batches stay compressed as they were,
// and that what is left of them is the same.
func TestCompactionOfCompressedBatches(t *testing.T) {
	var want []string
	for codec := Compression(0); codec <= Zstd; codec++ {
		l, p, _ := compactTopic(t, vfs.NewMem(), TopicSpec{Compression: codec}, nil)
		for i := range 8 {
			var b BatchBuilder
			for k := range 20 {
				b.Add(int64(i), fmt.Appendf(nil, "key %d", (i*k)%31), []byte(strings.Repeat("value ", 10)), []Header{{Key: "h"}})
			}
			b.Add(int64(i), fmt.Appendf(nil, "gone %d", i%3), nil, nil)
			batch, err := p.Encode(&b, plain)
			require.NoError(t, err)
			write(t, p, batch)
			if i%3 == 2 {
				roll(t, p)
			}
		}
		roll(t, p)
		table := fold(map[string]string{}, readKeyed(t, p, 0, ReadCommitted))
		compacted(t, p)
		got := readKeyed(t, p, 0, ReadCommitted)
		require.Equal(t, table, fold(map[string]string{}, got))
		if want == nil {
			want = got
		}
		require.Equal(t, want, got)
		most := Compression(0)
		for _, s := range *p.segments.Load() {
			require.NoError(t, s.eachBatch(0, func(b *Batch) error { most = max(most, b.Compression); return nil }))
		}
		require.Equal(t, codec, most)
		require.NoError(t, l.Close())
	}
}

// TestCompactionLimit shows that records at the limit and above replace nothing and
// stay, and that tombstones stay until the horizon may move.
func TestCompactionLimit(t *testing.T) {
	limit := CompactionLimit{}
	l, p, time := compactTopic(t, vfs.NewMem(), TopicSpec{TombstoneRetention: 1}, func(o *Options) {
		o.CompactionLimit = func(tp TopicPartition) CompactionLimit {
			require.Equal(t, TopicPartition{Topic: "t"}, tp)
			return limit
		}
	})
	defer l.Close()
	for _, r := range []string{"a=1", "a=2", "b"} {
		write(t, p, keyed(plain, 0, r))
	}
	roll(t, p)
	write(t, p, keyed(plain, 0, "a=3"))
	roll(t, p)
	all := []string{"0 a=1", "1 a=2", "2 b", "3 a=3"}
	for _, step := range []struct {
		limit CompactionLimit
		want  []string
	}{
		{CompactionLimit{Records: 0, Horizon: 100}, all},
		{CompactionLimit{Records: 1, Horizon: 100}, all},
		{CompactionLimit{Records: 3}, all[1:]},
		{CompactionLimit{Records: 4}, all[2:]},
		{CompactionLimit{Records: 4, Horizon: 2}, all[2:]},
		{CompactionLimit{Records: 4, Horizon: 3}, all[3:]},
	} {
		limit = step.limit
		time.ms += 1000
		compacted(t, p)
		require.Equal(t, step.want, readKeyed(t, p, 0, ReadCommitted), "limit %+v", limit)
	}
	require.Equal(t, Offset(3), p.Horizon())
}

// TestCutBelowCompaction shows that records cannot be cut off whose older versions
// are gone for them.
func TestCutBelowCompaction(t *testing.T) {
	l, p, _ := compactTopic(t, vfs.NewMem(), TopicSpec{}, nil)
	defer l.Close()
	write(t, p, keyed(plain, 0, "a=1"))
	write(t, p, keyed(plain, 0, "a=2"))
	roll(t, p)
	write(t, p, keyed(plain, 0, "a=3"))
	compacted(t, p)
	require.ErrorIs(t, p.TruncateTo(1), ErrOffsetOutOfRange)
	require.Equal(t, []string{"1 a=2", "2 a=3"}, readKeyed(t, p, 0, ReadCommitted))
	require.NoError(t, p.TruncateTo(2))
	require.Equal(t, []string{"1 a=2"}, readKeyed(t, p, 0, ReadCommitted))
}

// TestCompactionAndDeletion shows a topic whose oldest segments go by themselves.
func TestCompactionAndDeletion(t *testing.T) {
	l, p, _ := compactTopic(t, vfs.NewMem(), TopicSpec{}, nil)
	defer l.Close()
	for i := range 6 {
		write(t, p, keyed(plain, 0, fmt.Sprintf("%d=%d", i%4, i), "x=1"))
		if i%2 == 1 {
			roll(t, p)
		}
	}
	require.NoError(t, p.DeleteBefore(4))
	compacted(t, p)
	require.Equal(t, []string{"4 2=2", "6 3=3", "8 0=4", "10 1=5", "11 x=1"}, readKeyed(t, p, 4, ReadCommitted))
	require.NoError(t, p.DeleteBefore(9))
	compacted(t, p)
	require.Equal(t, []string{"10 1=5", "11 x=1"}, readKeyed(t, p, 9, ReadCommitted))
	require.Equal(t, Offset(9), p.Start())
}

// TestRecordsWithoutKey shows that a compacted topic refuses them and says which
// one it is, and that those that were there before stay.
func TestRecordsWithoutKey(t *testing.T) {
	mem := vfs.NewMem()
	l, p := single(t, small(mem), SyncByOS)
	write(t, p, batchOf(plain, 0, "no key"))
	require.NoError(t, l.Close())
	files := vfs.NewMem()
	require.NoError(t, files.MkdirAll("log/t-0"))
	for name, b := range contents(t, mem) {
		require.NoError(t, writeCacheFile(files, "log/t-0/"+name, []byte(b)))
	}
	l, p, _ = compactTopic(t, files, TopicSpec{}, nil)
	defer l.Close()
	var b BatchBuilder
	b.Add(0, []byte("k"), []byte("v"), nil)
	b.Add(0, []byte{}, []byte("v"), nil)
	b.Add(0, nil, []byte("v"), nil)
	_, err := p.Write(b.Finish(plain))
	require.ErrorIs(t, err, ErrNoKey)
	require.ErrorContains(t, err, "record 2 of a batch of 3 for t-0")
	_, err = p.AppendRecords(context.Background(), record(1, "v"))
	require.ErrorIs(t, err, ErrNoKey)
	write(t, p, keyed(plain, 0, "a=1", "a=2"))
	roll(t, p)
	compacted(t, p)
	require.Equal(t, []string{"0 =no key", "2 a=2"}, readKeyed(t, p, 0, ReadCommitted))
}

// TestReadersDuringCompaction shows that readers at any place see every record that
// is nobody's older one, in order, while segments are replaced under them.
func TestReadersDuringCompaction(t *testing.T) {
	l, p, _ := compactTopic(t, vfs.NewMem(), TopicSpec{}, nil)
	defer l.Close()
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	for round := range rounds {
		readers := make([]*Reader, 8)
		tables := make([]map[string]string, len(readers))
		for i := range 30 {
			write(t, p, keyed(plain, 0, fmt.Sprintf("%d=%d.%d", i%7, round, i), fmt.Sprintf("%d=%s", i%5, strings.Repeat("y", 40))))
			if i%4 == 0 {
				roll(t, p)
			}
		}
		for i := range readers {
			readers[i] = p.Reader(p.Start(), ReadCommitted)
			tables[i] = map[string]string{}
			for range 4 * i {
				if b, err := readers[i].Next(); err == nil {
					apply(t, tables[i], b)
				}
			}
		}
		done := make(chan error)
		go func() {
			_, err := p.Compact(context.Background())
			done <- err
		}()
		for i, r := range readers {
			last := Offset(-1)
			for {
				b, err := r.Next()
				if err == io.EOF {
					break
				}
				require.NoError(t, err)
				require.Greater(t, b.Base, last)
				last = b.Last
				apply(t, tables[i], b)
			}
			r.Close()
		}
		require.NoError(t, <-done)
		want := fold(map[string]string{}, readKeyed(t, p, 0, ReadCommitted))
		for i := range tables {
			require.True(t, maps.Equal(want, tables[i]), "reader %d of round %d: %v, want %v", i, round, tables[i], want)
		}
	}
}

func apply(t testing.TB, table map[string]string, b *Batch) {
	it := b.Records()
	for it.Next() {
		table[string(it.Key)] = string(it.Value)
	}
	require.NoError(t, it.Err())
}

// TestCompactionEndsEarly shows that closing or deleting does not wait for a
// compaction to complete, and a context ends it.
func TestCompactionEndsEarly(t *testing.T) {
	for _, how := range []string{"context", "close", "delete"} {
		mem := vfs.NewMem()
		l, p, _ := compactTopic(t, mem, TopicSpec{}, func(o *Options) { o.CompactionBytesPerSecond = 1 })
		write(t, p, keyed(plain, 0, "a=1", "a=2"))
		roll(t, p)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		started := make(chan struct{})
		mem.SetHook(nil)
		result := make(chan error)
		go func() {
			close(started)
			_, err := p.Compact(ctx)
			result <- err
		}()
		<-started
		switch how {
		case "context":
			cancel()
			require.ErrorIs(t, <-result, context.Canceled)
			require.Equal(t, []string{"0 a=1", "1 a=2"}, readKeyed(t, p, 0, ReadCommitted))
			require.NoError(t, l.Close())
		case "close":
			go func() { _ = l.Close() }()
			require.ErrorIs(t, <-result, ErrClosed)
			require.NoError(t, l.Close())
		case "delete":
			go func() { _ = l.Delete("t") }()
			require.ErrorIs(t, <-result, ErrClosed)
			require.NoError(t, l.Close())
		}
	}
}

// TestSipHash holds the hash of keys against the vectors that come with it.
func TestSipHash(t *testing.T) {
	secret := [2]uint64{0x0706050403020100, 0x0f0e0d0c0b0a0908}
	for n, want := range map[int]string{
		0: "a3817f04ba25a8e66df67214c7550293",
		1: "da87c1d86b99af44347659119b22fc45",
	} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i)
		}
		lo, hi := sipHash(secret, b)
		var got [16]byte
		for i := range 8 {
			got[i], got[8+i] = byte(lo>>(8*i)), byte(hi>>(8*i))
		}
		require.Equal(t, want, hex.EncodeToString(got[:]))
	}
}

// TestKeyMap shows that the map holds what it is told until it is full, and says so.
func TestKeyMap(t *testing.T) {
	m := newKeyMap(1<<40, 1000*keySlotBytes)
	require.Len(t, m.slots, 1000)
	key := func(i int) keyHash { return m.hash(fmt.Appendf(nil, "key %d", i)) }
	for round := range Offset(2) {
		for i := range 800 {
			require.True(t, m.put(key(i), round*1000+Offset(i)))
		}
	}
	require.False(t, m.put(key(800), 5000))
	require.Equal(t, Offset(-1), m.newest(key(800)))
	for i := range 800 {
		require.Equal(t, 1000+Offset(i), m.newest(key(i)))
	}
	m.reset()
	require.Equal(t, Offset(-1), m.newest(key(1)))
	require.True(t, m.put(key(800), 1))
	require.Len(t, newKeyMap(10, 1<<40).slots, 13, "no more than there are records")
}
