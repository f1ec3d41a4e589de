package log

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// recycling is a partition whose active segment is a file that was used before: it
// begins at offset base and holds the records from there to end.
type recycling struct {
	mem       *vfs.Mem
	log       *Log
	p         *Partition
	base, end Offset
}

// newRecycling fills segments with batches of one size, drops them, and goes on with
// batches of the sizes given until a dropped file is used again, n batches deep.
func newRecycling(t *testing.T, sync Sync, sizes []int, n int) *recycling {
	t.Helper()
	r := &recycling{mem: vfs.NewMem()}
	r.log, r.p = single(t, small(r.mem), sync)
	add := func(size int) {
		got, err := r.p.Append(context.Background(), batchOf(plain, 1, strings.Repeat("x", size)))
		require.NoError(t, err)
		r.end = got.Last + 1
	}
	for range 20 {
		add(200)
	}
	require.NoError(t, r.p.DeleteBefore(r.end-1))
	require.NotEmpty(t, r.p.spares)
	for i := 0; r.p.active().recycled == 0 || r.end < r.p.active().base+Offset(n); i++ {
		add(sizes[i%len(sizes)])
	}
	r.base = r.p.active().base
	return r
}

func (r *recycling) file() string {
	return path.Join("log", "t-0", offsetName(r.base, logSuffix))
}

// reopen opens what mem has, once the process is gone.
func (r *recycling) reopen(t *testing.T, mem *vfs.Mem) (*Log, *Partition) {
	t.Helper()
	r.log.abandon()
	return single(t, small(mem), SyncByOS)
}

// TestRecycledFileEndsWhereItsSegmentEnds shows that a killed process loses nothing of
// a segment in a file that was used before, that nothing of the former use comes back,
// and that no loss is reported, wherever in a former batch the end lies.
func TestRecycledFileEndsWhereItsSegmentEnds(t *testing.T) {
	for size := range 100 {
		r := newRecycling(t, SyncByOS, []int{size + 1}, 1+size%3)
		want := readAll(t, r.p, r.p.Start(), ReadUncommitted)
		_, p := r.reopen(t, r.mem.Kill())
		require.Equal(t, want, readAll(t, p, p.Start(), ReadUncommitted))
		require.Equal(t, r.end, p.End().Offset)
		recovery := p.Recovery()
		require.Zero(t, recovery.CutBytes, "size %d", size)
		require.Zero(t, recovery.CutSegments)
		require.EqualValues(t, -1, recovery.CutFrom)
		require.Equal(t, p.active().end.Load(), p.active().allocated, "the rest is cut off")
	}
}

// TestRecycledFileAfterPowerCut shows that the former batches of a file, back at its
// beginning since nothing of the new ones reached the disk, are an empty segment.
func TestRecycledFileAfterPowerCut(t *testing.T) {
	r := newRecycling(t, SyncByOS, []int{200}, 2)
	f, err := r.mem.Open(r.file())
	require.NoError(t, err)
	// As the disk has it: a whole batch of the former segment.
	_, err = f.WriteAt(stampedBatch(batchOf(plain, 1, strings.Repeat("x", 200)), 3, 0), 0)
	require.NoError(t, err)
	_, p := r.reopen(t, r.mem.Kill())
	require.Equal(t, r.base, p.End().Offset)
	require.Zero(t, p.Recovery().CutBytes)
}

// stampedBatch is a copy of an encoded batch as it is in a log.
func stampedBatch(b []byte, base Offset, epoch LeaderEpoch) []byte {
	b = append([]byte(nil), b...)
	stamp(b, base, epoch)
	return b
}

// TestTornBatchBeforeFormerOnes shows that what is cut of a file that was used before
// is the torn batch, and not all that the former segment left behind it.
func TestTornBatchBeforeFormerOnes(t *testing.T) {
	r := newRecycling(t, SyncByOS, []int{100}, 2)
	s := r.p.active()
	last := s.end.Load() - s.lastBatch
	flipByte(t, r.mem, r.file(), s.end.Load()-1)
	_, p := r.reopen(t, r.mem.Kill())
	require.Equal(t, r.end-1, p.End().Offset)
	require.Equal(t, last, p.Recovery().CutBytes)
	require.Equal(t, r.end-1, p.Recovery().CutFrom)
}

// TestDamageBeforeFormerBatches shows that damage below the recovery point is a
// CorruptionError also where batches of the former segment follow, which by themselves
// look like the end of the log.
func TestDamageBeforeFormerBatches(t *testing.T) {
	damage := map[string]func(t *testing.T, r *recycling, at int64){
		"last batch flipped": func(t *testing.T, r *recycling, at int64) {
			flipByte(t, r.mem, r.file(), at+batchHeaderBytes)
		},
		"last batch replaced by a former one": func(t *testing.T, r *recycling, at int64) {
			f, err := r.mem.Open(r.file())
			require.NoError(t, err)
			_, err = f.WriteAt(stampedBatch(batchOf(plain, 1, strings.Repeat("x", 100)), 2, 0), at)
			require.NoError(t, err)
		},
		"last batch replaced by the mark of the end": func(t *testing.T, r *recycling, at int64) {
			f, err := r.mem.Open(r.file())
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, at+atBatchLength)
			require.NoError(t, err)
		},
	}
	for name, do := range damage {
		t.Run(name, func(t *testing.T) {
			r := newRecycling(t, SyncAlways, []int{100}, 2)
			require.NoError(t, r.log.Checkpoint())
			at := r.p.active().lastBatch
			do(t, r, at)
			r.log.abandon()
			_, err := Open("log", small(r.mem.Kill()))
			var corruption *CorruptionError
			require.ErrorAs(t, err, &corruption)
			require.Equal(t, r.file(), corruption.File)
			require.Equal(t, at, corruption.Position)
			require.Equal(t, r.end-1, corruption.Offset)
		})
	}
}

// flipByte changes a byte of a file.
func flipByte(t *testing.T, mem *vfs.Mem, file string, at int64) {
	t.Helper()
	f, err := mem.Open(file)
	require.NoError(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	require.NoError(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b[:], at)
	require.NoError(t, err)
}

// TestFormerBatchesOfAForeignFileAreDamage shows that only files of our own are used
// again: what follows the end elsewhere is damage.
func TestFormerBatchesOfAForeignFileAreDamage(t *testing.T) {
	r := newRecycling(t, SyncByOS, []int{100}, 2)
	r.log.abandon()
	b, err := readSmallFile(r.mem, r.file())
	require.NoError(t, err)
	other := vfs.NewMem()
	require.NoError(t, other.MkdirAll("log/t-0"))
	require.NoError(t, replaceFile(other, r.file(), b))
	l := mustOpen(t, small(other))
	defer l.abandon()
	var corruption *CorruptionError
	require.ErrorAs(t, l.Create("t", TopicSpec{Partitions: 1}), &corruption)
}

// TestPinnedSegmentIsNotUsedAgain shows that a reader keeps what it has of a dropped
// segment, whatever is written meanwhile.
func TestPinnedSegmentIsNotUsedAgain(t *testing.T) {
	mem := vfs.NewMem()
	l, p := single(t, small(mem), SyncByOS)
	defer l.abandon()
	var written Offset
	add := func(value string) {
		got, err := p.Append(context.Background(), batchOf(plain, 1, value))
		require.NoError(t, err)
		written = got.Last
	}
	for i := range 20 {
		add(fmt.Sprint(i, strings.Repeat("x", 200)))
	}
	r := p.Reader(0, ReadUncommitted)
	defer r.Close()
	b, err := r.Next()
	require.NoError(t, err)
	before := string(b.Bytes)
	require.NoError(t, p.DeleteBefore(written))
	for range 40 {
		add(strings.Repeat("y", 230))
	}
	require.NotZero(t, p.active().base)
	require.Equal(t, before, string(b.Bytes))
	_, err = r.Next()
	require.ErrorIs(t, err, ErrOffsetOutOfRange)
}

// TestSparesAreFewAndGoWithTheLog shows how many files are kept, that they have no
// segment's name, and that neither a clean stop nor an opening leaves any.
func TestSparesAreFewAndGoWithTheLog(t *testing.T) {
	r := newRecycling(t, SyncByOS, []int{300}, 1)
	for range 100 {
		_, err := r.p.Append(context.Background(), batchOf(plain, 1, strings.Repeat("x", 200)))
		require.NoError(t, err)
	}
	require.NoError(t, r.p.DeleteBefore(r.p.End().Offset))
	require.Len(t, r.p.spares, maxSpares)
	count := func(mem *vfs.Mem) (segments, spares int) {
		names, err := mem.List("log/t-0")
		require.NoError(t, err)
		for _, name := range names {
			switch path.Ext(name) {
			case logSuffix:
				segments++
			case spareSuffix:
				spares++
			}
		}
		return segments, spares
	}
	segments, spares := count(r.mem)
	require.Equal(t, [2]int{1, maxSpares}, [2]int{segments, spares})

	killed := r.mem.Kill()
	l := mustOpen(t, small(killed))
	segments, spares = count(killed)
	require.Equal(t, [2]int{1, 0}, [2]int{segments, spares}, "after a kill")
	l.abandon()

	require.NoError(t, r.log.Close())
	segments, spares = count(r.mem)
	require.Equal(t, [2]int{1, 0}, [2]int{segments, spares}, "after a clean stop")
}

// TestSegmentThatCannotBeUsedAgain shows that a rename that fails costs the spare and
// nothing else.
func TestSegmentThatCannotBeUsedAgain(t *testing.T) {
	r := newRecycling(t, SyncByOS, []int{200}, 1)
	require.NoError(t, r.p.DeleteBefore(r.p.End().Offset-1))
	require.NotEmpty(t, r.p.spares)
	before := readAll(t, r.p, r.p.Start(), ReadUncommitted)
	r.mem.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpRename && strings.Contains(op.Name, spareSuffix) {
			return errInjected
		}
		return nil
	})
	for len(r.p.spares) > 0 {
		got, err := r.p.Append(context.Background(), batchOf(plain, 1, strings.Repeat("y", 200)))
		require.NoError(t, err)
		before = append(before, fmt.Sprintf("%d:%s", got.Base, strings.Repeat("y", 200)))
	}
	require.Zero(t, r.p.active().recycled)
	require.Equal(t, before, readAll(t, r.p, r.p.Start(), ReadUncommitted))
	r.mem.SetHook(nil)
	_, p := r.reopen(t, r.mem.Kill())
	require.Equal(t, before, readAll(t, p, p.Start(), ReadUncommitted))
}

// TestCopiesPauseWhenTheyLose shows when large batches go by calls: once copies have
// cost more than calls by the budget, for a time that doubles until copies pay.
func TestCopiesPauseWhenTheyLose(t *testing.T) {
	var c copies
	now := time.Unix(0, 0)
	const n = 700_000 // 100 µs by calls
	lose := func() (steps int) {
		for c.wanted(now) {
			c.took(n, 10*time.Millisecond+100*time.Microsecond, now)
			steps++
		}
		return steps
	}
	const budget = int(copiesBudget / (10 * time.Millisecond))
	require.Equal(t, budget, lose())
	require.False(t, c.wanted(now.Add(firstCopiesPause-1)))
	now = now.Add(firstCopiesPause)
	require.Equal(t, budget, lose())
	require.False(t, c.wanted(now.Add(2*firstCopiesPause-1)), "twice as long")
	now = now.Add(2 * firstCopiesPause)
	for range 100_000 {
		c.took(n, 50*time.Microsecond, now) // half the time of calls
	}
	require.Equal(t, 2*budget, lose(), "what was gained is lost first, but no more of it than the budget")
	require.True(t, c.wanted(now.Add(firstCopiesPause)), "after a gain, the first pause again")
	for range 20 {
		now = now.Add(time.Hour)
		lose()
	}
	require.True(t, c.wanted(now.Add(mostCopiesPause)))
}
