package log

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// damageable fills a partition of three short segments with all kinds of batches,
// all of it durable and below the recovery point.
func damageable(t testing.TB, clean bool) (*vfs.Mem, Options) {
	t.Helper()
	mem := vfs.NewMem()
	o := small(mem)
	o.SegmentBytes = 350
	l, p := single(t, o, SyncByOS)
	write := func(producer Producer, timeMs int64, values ...string) {
		_, err := p.Write(batchOf(producer, timeMs, values...))
		require.NoError(t, err)
	}
	write(plain, 5, "a", "b")
	write(transactional(10, 0), 9, "aborted")
	write(Producer{ID: 7}, 3, "c", "d")
	write(transactional(11, 0), 4, "committed")
	_, err := p.EndTransaction(10, false)
	require.NoError(t, err)
	write(Producer{ID: 7, Sequence: 2}, 8, "e")
	_, err = p.EndTransaction(11, true)
	require.NoError(t, err)
	write(plain, 20, "f", strings.Repeat("g", 100))
	write(Producer{ID: 7, Sequence: 3}, 2, "h")
	require.Len(t, *p.segments.Load(), 3)
	require.NoError(t, p.Sync(context.Background()))
	// Through one kill, so that there are two leader epochs.
	require.NoError(t, l.Checkpoint())
	l.abandon()
	mem = mem.Kill()
	o.FS = mem
	l = mustOpen(t, o)
	p = mustPartition(t, l, "t")
	write(plain, 1, "i")
	write(plain, 1, "j")
	if clean {
		require.NoError(t, l.Close())
		return mem, o
	}
	require.NoError(t, p.Sync(context.Background()))
	require.NoError(t, l.Checkpoint())
	l.abandon()
	return mem.Kill(), o
}

// whole is all that can be asked of a partition.
func whole(p *Partition) (string, error) {
	var b strings.Builder
	for _, iso := range []Isolation{ReadUncommitted, ReadCommitted} {
		r := p.Reader(p.Start(), iso)
		for {
			batch, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return "", err
			}
			it := batch.Records()
			for it.Next() {
				fmt.Fprintf(&b, "%d/%d:%.9s ", it.Offset, batch.Epoch, it.Value)
			}
			if it.Err() != nil {
				return "", it.Err()
			}
		}
		r.Close()
		b.WriteString("\n")
	}
	for off := p.Start(); off < p.End().Offset; off++ {
		r := p.Reader(off, ReadUncommitted)
		batch, err := r.Next()
		if err != nil && err != io.EOF {
			return "", err
		}
		if err == nil {
			fmt.Fprintf(&b, "%d->%d ", off, batch.First)
		}
		r.Close()
	}
	for at := int64(0); at < 22; at++ {
		off, found, err := p.OffsetAt(at)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%d@%d%t ", at, off, found)
	}
	end := p.End()
	fmt.Fprintf(&b, "end %v", end)
	got, err := p.Write(batchOf(Producer{ID: 7, Sequence: 3}, 2, "h"))
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, " repetition %d %t", got.Base, got.Duplicate)
	return b.String(), nil
}

// TestEveryDamagedByte shows that whatever byte of whatever file is damaged, below
// the recovery point, the log answers as before or says that it is damaged. It
// never answers anything else, and nothing is cut away.
func TestEveryDamagedByte(t *testing.T) {
	for _, clean := range []bool{true, false} {
		mem, o := damageable(t, clean)
		l := mustOpen(t, func() Options { o := o; o.FS = mem.Kill(); return o }())
		want, err := whole(mustPartition(t, l, "t"))
		require.NoError(t, err)
		l.abandon()
		var names []string
		inPartition, err := mem.List("log/t-0")
		require.NoError(t, err)
		for _, name := range inPartition {
			names = append(names, "log/t-0/"+name)
		}
		names = append(names, "log/"+registryFile)
		if clean {
			names = append(names, "log/"+cleanStopFile)
		}
		outcomes := map[string]int{}
		for _, name := range names {
			size, err := mem.Size(name)
			require.NoError(t, err)
			if strings.HasSuffix(name, logSuffix) {
				size = min(size, 300) // preallocated zeros follow
			}
			for at := int64(0); at < size; at += sampled[int64](17) {
				damaged := mem.Kill()
				flip(t, damaged, name, at)
				o.FS = damaged
				got, err := openWhole(o)
				outcome := "unharmed"
				if err != nil {
					var corruption *CorruptionError
					require.True(t, errors.As(err, &corruption) || errors.Is(err, ErrVersion), "%s at %d: %v", name, at, err)
					outcome = "told"
				} else {
					// The epoch of what comes next may differ after another unclean stop.
					require.Equal(t, want, got, "%s at %d, clean %t", name, at, clean)
				}
				outcomes[path.Ext(name)+" "+outcome]++
			}
		}
		t.Logf("clean %t: %v", clean, outcomes)
		require.Positive(t, outcomes[".log told"])
		require.Zero(t, outcomes[".index told"]+outcomes[".timeindex told"]+outcomes[".txnindex told"]+outcomes[".seal told"]+
			outcomes[".snapshot told"], "what can be made anew is made anew")
	}
}

func openWhole(o Options) (string, error) {
	l, err := Open("log", o)
	if err != nil {
		return "", err
	}
	defer l.abandon()
	p, err := l.Partition(TopicPartition{Topic: "t"})
	if err != nil {
		return "", err
	}
	return whole(p)
}

// TestTruncatedFiles shows the same for files that lost their end.
func TestTruncatedFiles(t *testing.T) {
	mem, o := damageable(t, true)
	o.FS = mem.Kill()
	want, err := openWhole(o)
	require.NoError(t, err)
	names, err := mem.List("log/t-0")
	require.NoError(t, err)
	for _, name := range names {
		name = "log/t-0/" + name
		size, err := mem.Size(name)
		require.NoError(t, err)
		for cut := int64(0); cut < size; cut += sampled[int64](13) {
			damaged := mem.Kill()
			f, err := damaged.Open(name)
			require.NoError(t, err)
			require.NoError(t, f.Truncate(cut))
			o.FS = damaged
			got, err := openWhole(o)
			if strings.HasSuffix(name, logSuffix) {
				var corruption *CorruptionError
				require.ErrorAs(t, err, &corruption, "%s cut at %d", name, cut)
				require.GreaterOrEqual(t, corruption.Offset, Offset(0))
				continue
			}
			require.NoError(t, err, "%s cut at %d", name, cut)
			require.Equal(t, want, got, "%s cut at %d", name, cut)
		}
	}
}

// TestDamageAboveTheRecoveryPoint shows that a torn tail is cut and counted, with
// all that follows, whole or not.
func TestDamageAboveTheRecoveryPoint(t *testing.T) {
	mem := vfs.NewMem()
	o := small(mem)
	l, p := single(t, o, SyncByOS)
	var bases []int64
	for i := range 30 {
		bases = append(bases, p.active().end.Load())
		_, err := p.Write(batchOf(plain, 1, fmt.Sprint("value ", i)))
		require.NoError(t, err)
	}
	first := (*p.segments.Load())[0]
	firstEnd, segments := first.next, len(*p.segments.Load())
	require.Greater(t, segments, 2)
	mem.Stop()
	l.abandon()
	// The worker may have made the first segments durable; forget that.
	mem = mem.Kill()
	require.NoError(t, removeIfPresent(mem, "log/"+recoveryPointFile))
	flip(t, mem, first.name(logSuffix), bases[5]+70)
	o.FS = mem
	l = mustOpen(t, o)
	p = mustPartition(t, l, "t")
	require.Less(t, Offset(5), firstEnd)
	require.Equal(t, Offset(5), p.End().Offset)
	got := p.Recovery()
	require.False(t, got.Clean)
	require.Equal(t, Offset(5), got.CutFrom)
	require.Equal(t, segments, got.CutSegments)
	require.Greater(t, got.CutBytes, bases[1]*int64(firstEnd-5))
	require.Equal(t, bases[5], got.ScannedBytes)
	result, err := p.Write(batchOf(plain, 1, "after"))
	require.NoError(t, err)
	require.Equal(t, Offset(5), result.Base)
	require.Equal(t, LeaderEpoch(1), result.End.Epoch)
	require.Len(t, readAll(t, p, 0, ReadCommitted), 6)
	require.NoError(t, l.Close())
	o.FS = mem
	l = mustOpen(t, o)
	require.Equal(t, Recovery{Clean: true, CutFrom: -1}, mustPartition(t, l, "t").Recovery())
	require.NoError(t, l.Close())
}

// TestReaderMeetsDamage shows that damage that comes while the log is open is an
// error that names the place, and that reading elsewhere goes on.
func TestReaderMeetsDamage(t *testing.T) {
	mem := vfs.NewMem()
	l, p := single(t, small(mem), SyncByOS)
	for i := range 3 {
		_, err := p.Write(batchOf(plain, 1, fmt.Sprint("value ", i)))
		require.NoError(t, err)
	}
	size := p.active().end.Load() / 3
	for _, at := range []int64{0, 8, 12, 16, 17, 21, 40, 61, size - 1} {
		name := p.active().name(logSuffix)
		flip(t, mem, name, size+at)
		r := p.Reader(0, ReadCommitted)
		_, err := r.Next()
		require.NoError(t, err)
		_, err = r.Next()
		var corruption *CorruptionError
		require.ErrorAs(t, err, &corruption, "byte %d", at)
		require.Equal(t, name, corruption.File)
		require.Equal(t, size, corruption.Position)
		require.Equal(t, Offset(1), corruption.Offset)
		require.Equal(t, Offset(1), r.Offset())
		r.Close()
		flip(t, mem, name, size+at)
	}
	require.Len(t, readAll(t, p, 0, ReadCommitted), 3)
	require.NoError(t, l.Close())
}

// TestRegistryOfAnotherVersion shows that a later format is told from damage.
func TestRegistryOfAnotherVersion(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := single(t, small(mem), SyncByOS)
	require.NoError(t, l.Close())
	b, err := readSmallFile(mem, "log/"+registryFile)
	require.NoError(t, err)
	b[15] = 2
	putSum(b)
	require.NoError(t, writeCacheFile(mem, "log/"+registryFile, b))
	_, err = Open("log", small(mem))
	require.ErrorIs(t, err, ErrVersion)
	require.ErrorContains(t, err, "version 2, known is 1")
}

// TestMissingPartitionDirectory shows that lost data is not mistaken for a new
// topic.
func TestMissingPartitionDirectory(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := single(t, small(mem), SyncByOS)
	require.NoError(t, l.Close())
	require.NoError(t, mem.RemoveAll("log/t-0"))
	_, err := Open("log", small(mem))
	var corruption *CorruptionError
	require.ErrorAs(t, err, &corruption)
	require.Equal(t, "log/t-0", corruption.File)
}

// TestFullDisk shows that a full disk refuses a batch and harms nothing: when there
// is room again, writing goes on.
func TestFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	l, p := single(t, small(mem), SyncAlways)
	_, err := p.AppendRecords(context.Background(), record(1, "first"))
	require.NoError(t, err)
	mem.SetCapacity(1)
	refused := 0
	for range 10 {
		if _, err := p.AppendRecords(context.Background(), record(1, strings.Repeat("x", 900))); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			refused++
		}
	}
	require.Positive(t, refused)
	require.NoError(t, p.Failed())
	mem.SetCapacity(0)
	end := p.End().Offset
	got, err := p.AppendRecords(context.Background(), record(1, "last"))
	require.NoError(t, err)
	require.Equal(t, end, got.Base)
	require.Len(t, readAll(t, p, 0, ReadCommitted), int(end)+1)
	require.NoError(t, l.Close())
	l = mustOpen(t, small(mem))
	require.Len(t, readAll(t, mustPartition(t, l, "t"), 0, ReadCommitted), int(end)+1)
	require.NoError(t, l.Close())
}

// TestFailedSyncIsFinal shows that after a sync failed the partition takes nothing
// more until it is opened again, and can still be read.
func TestFailedSyncIsFinal(t *testing.T) {
	for _, sync := range []Sync{SyncAlways, SyncByOS} {
		mem := vfs.NewMem()
		l, p := single(t, small(mem), sync)
		_, err := p.AppendRecords(context.Background(), record(1, "good"))
		require.NoError(t, err)
		require.NoError(t, p.Sync(context.Background()))
		broken := errors.New("broken disk")
		mem.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpSync {
				mem.SetHook(nil)
				return broken
			}
			return nil
		})
		_, err = p.AppendRecords(context.Background(), record(1, "bad"))
		if sync == SyncByOS {
			require.NoError(t, err)
			err = p.Sync(context.Background())
		}
		for range 2 {
			require.ErrorIs(t, err, ErrOffline)
			require.ErrorIs(t, err, broken)
			err = p.Sync(context.Background())
		}
		_, err = p.Write(batchOf(plain, 1, "more"))
		require.ErrorIs(t, err, ErrOffline)
		require.ErrorIs(t, err, broken)
		_, err = p.EndTransaction(1, true)
		require.ErrorIs(t, err, ErrOffline)
		require.ErrorIs(t, p.Failed(), broken)
		require.Equal(t, Offset(1), p.Durable())
		require.Equal(t, "0:good", readAll(t, p, 0, ReadCommitted)[0])
		require.ErrorIs(t, l.Close(), ErrOffline)

		l = mustOpen(t, small(mem))
		p = mustPartition(t, l, "t")
		require.False(t, p.Recovery().Clean)
		require.NoError(t, p.Sync(context.Background()))
		_, err = p.AppendRecords(context.Background(), record(1, "more"))
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}

// TestNoPermission shows the error of a directory that may not be written, as root
// does not meet it, and of a file that may not be opened.
func TestNoPermission(t *testing.T) {
	mem := vfs.NewMem()
	l, p := single(t, small(mem), SyncByOS)
	mem.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate {
			return fs.ErrPermission
		}
		return nil
	})
	require.ErrorIs(t, l.Create("other", TopicSpec{Partitions: 1}), fs.ErrPermission)
	for range 5 {
		if _, err := p.Write(batchOf(plain, 1, strings.Repeat("x", 900))); err != nil {
			require.ErrorIs(t, err, fs.ErrPermission, "a new segment cannot be made")
		}
	}
	mem.SetHook(nil)
	require.NoError(t, l.Create("other", TopicSpec{Partitions: 1}))
	_, err := p.Write(batchOf(plain, 1, strings.Repeat("x", 900)))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	if os.Getuid() == 0 {
		return
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o500))
	_, err = Open(filepath.Join(dir, "log"), Options{})
	require.ErrorIs(t, err, fs.ErrPermission)
}

// TestOnlyOneLogAtATime shows that a directory is locked while it is open.
func TestOnlyOneLogAtATime(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, small(mem))
	_, err := Open("log", small(mem))
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close(), "closing again")
	require.NoError(t, mustOpen(t, small(mem)).Close())
}

// TestBaseOffsetsOfACompactedTopic shows that a damaged base offset, which no
// checksum covers, is not mistaken for a gap that compaction left, nor is a segment
// that is gone.
func TestBaseOffsetsOfACompactedTopic(t *testing.T) {
	for _, clean := range []bool{true, false} {
		mem := vfs.NewMem()
		o := small(mem)
		o.SegmentBytes = 350
		l := mustOpen(t, o)
		require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Compact: true}))
		p := mustPartition(t, l, "t")
		type place struct {
			file     string
			position int64
		}
		var places []place
		for i := range 12 {
			_, err := p.Write(keyed(plain, 1, fmt.Sprint("key=value ", i), "key=more"))
			require.NoError(t, err)
			s := p.active()
			places = append(places, place{s.name(logSuffix), s.lastBatch})
		}
		segments := *p.segments.Load()
		require.Greater(t, len(segments), 2)
		require.NoError(t, p.Sync(context.Background()))
		require.NoError(t, l.Checkpoint())
		middle := segments[1].name(logSuffix)
		if clean {
			require.NoError(t, l.Close())
		} else {
			l.abandon()
		}
		mem = mem.Kill()
		for i, at := range places {
			for _, change := range []int64{-3, -1, 1, 2, 3, 100, 1 << 20} {
				if base := int64(2 * i); base+change >= 0 {
					damaged := mem.Kill()
					f, err := damaged.Open(at.file)
					require.NoError(t, err)
					var b [8]byte
					binary.BigEndian.PutUint64(b[:], uint64(base+change))
					_, err = f.WriteAt(b[:], at.position)
					require.NoError(t, err)
					o.FS = damaged
					_, err = openWhole(o)
					var corruption *CorruptionError
					require.ErrorAs(t, err, &corruption, "batch %d by %d, clean %t", i, change, clean)
				}
			}
		}
		damaged := mem.Kill()
		require.NoError(t, damaged.Remove(middle))
		o.FS = damaged
		_, err := openWhole(o)
		var corruption *CorruptionError
		require.ErrorAs(t, err, &corruption, "a segment is gone, clean %t", clean)
	}
}

// TestGapsOfAnotherCompaction shows that the gaps of a compacted partition from
// elsewhere, in its segments and between them, are read over, also when it was
// opened again and when its seals are gone.
func TestGapsOfAnotherCompaction(t *testing.T) {
	at := func(base Offset, value string) []byte {
		b := batchOf(plain, 1, value)
		binary.BigEndian.PutUint64(b, uint64(base))
		return b
	}
	mem := vfs.NewMem()
	require.NoError(t, mem.MkdirAll("log/t-0"))
	require.NoError(t, writeCacheFile(mem, "log/t-0/00000000000000000000.log", append(at(2, "a"), at(7, "b")...)))
	require.NoError(t, writeCacheFile(mem, "log/t-0/00000000000000000020.log", append(at(20, "c"), at(21, "d")...)))
	l := mustOpen(t, small(mem))
	require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Compact: true}))
	want := []string{"2:a", "7:b", "20:c", "21:d"}
	for _, how := range []string{"adopted", "again", "without seals", "killed"} {
		p := mustPartition(t, l, "t")
		require.Equal(t, want, readAll(t, p, 0, ReadCommitted), how)
		require.Equal(t, want[1:], readAll(t, p, 3, ReadCommitted), how)
		require.Equal(t, want[2:], readAll(t, p, 8, ReadCommitted), how)
		require.NoError(t, l.Checkpoint())
		if how == "without seals" {
			image := mem.Kill()
			require.NoError(t, l.Close())
			mem = image
		} else {
			require.NoError(t, l.Close())
		}
		if how == "again" {
			require.NoError(t, removeIfPresent(mem, "log/t-0/00000000000000000000.seal"))
			require.NoError(t, removeIfPresent(mem, "log/t-0/00000000000000000020.seal"))
		}
		l = mustOpen(t, small(mem))
	}
	require.NoError(t, l.Close())
}
