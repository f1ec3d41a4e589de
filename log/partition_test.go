package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// TestBatchesThatAreRefused shows the error of each, and that none leaves a trace.
func TestBatchesThatAreRefused(t *testing.T) {
	mem := vfs.NewMem()
	l, p := single(t, small(mem), SyncByOS)
	good := batchOf(plain, 1, "value")
	var b BatchBuilder
	control := append([]byte(nil), encodeMarker(&b, 1, Producer{ID: 1, Transactional: true}, marker{commit: true})...)
	for name, test := range map[string]struct {
		batch []byte
		want  error
	}{
		"nil":               {nil, ErrInvalidBatch},
		"cut off":           {good[:len(good)-1], ErrInvalidBatch},
		"followed by more":  {append(append([]byte(nil), good...), 0), ErrInvalidBatch},
		"impossible length": {patched(good, atBatchLength, uint32(math.MaxInt32)), ErrInvalidBatch},
		"negative length":   {patched(good, atBatchLength, uint32(1<<31)), ErrInvalidBatch},
		"another magic":     {patched(good, atMagic, uint8(3)), ErrVersion},
		"a marker":          {control, ErrInvalidBatch},
		"too few records":   {patched(good, atLastOffsetDelta, uint32(1)), ErrInvalidBatch},
		"no records":        {patched(good, atRecordCount, uint32(0)), ErrInvalidBatch},
		"too large":         {batchOf(plain, 1, strings.Repeat("x", 4<<10)), ErrTooLarge},
	} {
		_, err := p.Write(test.batch)
		require.ErrorIs(t, err, test.want, name)
	}
	broken := append([]byte(nil), good...)
	broken[len(broken)-3] ^= 1
	_, err := p.WriteForeign(broken)
	require.ErrorIs(t, err, ErrInvalidBatch)
	require.Equal(t, Position{}, p.End())
	_, err = p.WriteForeign(good)
	require.NoError(t, err)
	_, err = p.AppendRecords(context.Background())
	require.ErrorIs(t, err, ErrInvalidBatch)
	_, err = p.AppendRecords(context.Background(), record(1, "small"), record(1, strings.Repeat("x", 5000)))
	require.ErrorIs(t, err, ErrTooLarge)
	require.Equal(t, []string{"0:value"}, readAll(t, p, 0, ReadCommitted))
	require.NoError(t, l.Close())
}

// TestRecordOfTwoGiB shows that a record that no batch can hold is refused before
// anything of it is copied.
func TestRecordOfTwoGiB(t *testing.T) {
	l, p := single(t, small(vfs.NewMem()), SyncByOS)
	defer l.Close()
	// A mapping of an empty file: touching any of it would be a fault.
	f, err := vfs.OS().Create(t.TempDir() + "/empty")
	require.NoError(t, err)
	defer f.Close()
	m, err := f.Map(2 << 30)
	if err != nil {
		t.Skipf("cannot map beyond the end of a file: %v", err)
	}
	defer m.Unmap()
	value := m.Bytes()
	allocated := testing.AllocsPerRun(1, func() {
		_, err := p.AppendRecords(context.Background(), Record{Value: value})
		require.ErrorIs(t, err, ErrTooLarge)
	})
	require.Less(t, allocated, 100.0)
}

// TestBatchLargerThanASegment shows that it gets one of its own.
func TestBatchLargerThanASegment(t *testing.T) {
	mem := vfs.NewMem()
	l, p := single(t, small(mem), SyncByOS)
	for _, n := range []int{10, 3000, 10, 2000, 2000, 10} {
		_, err := p.Write(batchOf(plain, 1, strings.Repeat("x", n)))
		require.NoError(t, err)
	}
	var bases []Offset
	for _, s := range *p.segments.Load() {
		bases = append(bases, s.base)
	}
	require.Equal(t, []Offset{0, 1, 2, 3, 4, 5}, bases)
	require.NoError(t, l.Close())
	l = mustOpen(t, small(mem))
	require.Len(t, readAll(t, mustPartition(t, l, "t"), 0, ReadCommitted), 6)
	require.NoError(t, l.Close())
}

// TestClosed shows that everything of a closed log says so.
func TestClosed(t *testing.T) {
	l, p := single(t, small(vfs.NewMem()), SyncByOS)
	_, err := p.Write(batchOf(plain, 1, "v"))
	require.NoError(t, err)
	r := p.Reader(0, ReadCommitted)
	batch, err := r.Next()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	it := batch.Records()
	require.True(t, it.Next(), "what a reader got stays readable")
	require.Equal(t, "v", string(it.Value))
	_, err = r.Next()
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, r.Wait(context.Background()), ErrClosed)
	r.Close()
	_, err = r.Next()
	require.ErrorIs(t, err, ErrClosed)
	_, err = p.Write(batchOf(plain, 1, "v"))
	require.ErrorIs(t, err, ErrClosed)
	_, err = p.EndTransaction(1, true)
	require.ErrorIs(t, err, ErrClosed)
	_, _, err = p.OffsetAt(1)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, p.Sync(context.Background()), ErrClosed)
	require.ErrorIs(t, p.TruncateTo(0), ErrClosed)
	require.ErrorIs(t, p.DeleteBefore(1), ErrClosed)
	require.ErrorIs(t, l.Create("u", TopicSpec{Partitions: 1}), ErrClosed)
	require.ErrorIs(t, l.Delete("t"), ErrClosed)
}

// TestGroupCommit shows that callers who wait together share one sync.
func TestGroupCommit(t *testing.T) {
	mem := vfs.NewMem()
	l, p := single(t, small(mem), SyncAlways)
	_, err := p.AppendRecords(context.Background(), record(1, "first"))
	require.NoError(t, err)
	const callers = 20
	var syncs atomic.Int64
	written := make(chan struct{})
	mem.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && syncs.Add(1) == 1 {
			<-written // the first sync takes until all others have written
		}
		return nil
	})
	var all, wrote sync.WaitGroup
	wrote.Add(callers)
	for i := range callers {
		all.Go(func() {
			got, err := p.Write(batchOf(plain, 1, fmt.Sprint(i)))
			wrote.Done()
			if err == nil {
				err = p.Acked(context.Background(), got.End.Offset)
			}
			if err != nil || p.Durable() <= got.Last {
				t.Errorf("durable %d, %v", p.Durable(), err)
			}
		})
	}
	wrote.Wait()
	close(written)
	all.Wait()
	mem.SetHook(nil)
	require.Equal(t, Offset(callers+1), p.HighWatermark())
	require.LessOrEqual(t, syncs.Load(), int64(2+2*len(*p.segments.Load())+4))
	require.NoError(t, l.Close())
}

// TestHighWatermark shows that under SyncAlways nothing is read, and no transaction
// counts as decided, before it is durable; otherwise at once.
func TestHighWatermark(t *testing.T) {
	mem := vfs.NewMem()
	l, p := single(t, small(mem), SyncAlways)
	_, err := p.AppendRecords(context.Background(), record(1, "first")) // syncs the leader epoch file, too
	require.NoError(t, err)
	gate := make(chan struct{})
	mem.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			<-gate
		}
		return nil
	})
	got, err := p.Write(batchOf(transactional(1, 0), 1, "v"))
	require.NoError(t, err)
	end, err := p.EndTransaction(1, true)
	require.NoError(t, err)
	require.Equal(t, Offset(1), p.HighWatermark())
	require.Equal(t, Offset(1), p.LastStable())
	require.Equal(t, Offset(3), p.End().Offset)
	require.Equal(t, []string{"0:first"}, readAll(t, p, 0, ReadUncommitted))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, p.Acked(ctx, got.End.Offset), context.Canceled)
	close(gate)
	require.NoError(t, p.Acked(context.Background(), end.Offset))
	require.Equal(t, []string{"0:first", "1:v"}, readAll(t, p, 0, ReadCommitted))
	require.ErrorIs(t, p.Acked(context.Background(), 99), ErrOffsetOutOfRange)
	require.NoError(t, l.Close())
}

// TestSyncEvery shows that the interval bounds how long data stays volatile, that
// appends do not wait for it, and that an idle partition does not sync.
func TestSyncEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		l, p := single(t, small(mem), SyncEvery(time.Second))
		write := func() {
			_, err := p.AppendRecords(context.Background(), record(1, "v"))
			require.NoError(t, err)
		}
		write()
		require.Equal(t, Offset(1), p.HighWatermark())
		require.Equal(t, Offset(0), p.Durable())
		time.Sleep(999 * time.Millisecond)
		write()
		synctest.Wait()
		require.Equal(t, Offset(0), p.Durable())
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, Offset(2), p.Durable())
		ops := mem.Ops()
		time.Sleep(time.Hour)
		require.Equal(t, ops, mem.Ops())
		write()
		require.NoError(t, p.Sync(context.Background()))
		require.Equal(t, Offset(3), p.Durable())
		require.NoError(t, l.Close())
	})
}

// TestWaitAndOnAdvance shows that readers and callbacks learn of every advance.
func TestWaitAndOnAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := single(t, small(vfs.NewMem()), SyncByOS)
		var calls atomic.Int64
		cancel := p.OnAdvance(func() { calls.Add(1) })
		r := p.Reader(0, ReadCommitted)
		defer r.Close()
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		require.ErrorIs(t, r.Wait(ctx), context.DeadlineExceeded)
		stop()
		woken := make(chan error, 1)
		wait := func() {
			go func() { woken <- r.Wait(context.Background()) }()
			synctest.Wait()
			require.Empty(t, woken)
		}
		wait()
		_, err := p.Write(batchOf(transactional(1, 0), 1, "v"))
		require.NoError(t, err)
		synctest.Wait()
		require.Empty(t, woken, "an open transaction is nothing new for it")
		require.Equal(t, int64(1), calls.Load())
		_, err = p.EndTransaction(1, true)
		require.NoError(t, err)
		require.NoError(t, <-woken)
		require.Equal(t, int64(2), calls.Load())
		_, err = r.Next()
		require.NoError(t, err)
		_, err = r.Next()
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, Position{2, 0}, r.Position())
		cancel()
		wait()
		require.NoError(t, p.TruncateTo(0))
		require.NoError(t, <-woken, "it stands beyond the end")
		_, err = r.Next()
		require.ErrorIs(t, err, ErrOffsetOutOfRange)
		require.Equal(t, int64(2), calls.Load())
		r.Seek(0)
		wait()
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-woken, ErrClosed)
	})
}

// TestReadersOutliveDeletions shows that what a reader holds stays as it was while
// its segment is deleted, cut and its topic removed.
func TestReadersOutliveDeletions(t *testing.T) {
	l, err := Open(t.TempDir(), small(vfs.OS()))
	require.NoError(t, err)
	require.NoError(t, l.Create("t", TopicSpec{Partitions: 1}))
	p := mustPartition(t, l, "t")
	for i := range 60 {
		_, err := p.Write(batchOf(plain, 1, fmt.Sprintf("value %d", i)))
		require.NoError(t, err)
	}
	hold := func(off Offset) (check func()) {
		r := p.Reader(off, ReadCommitted)
		b, err := r.Next()
		require.NoError(t, err)
		return func() {
			t.Helper()
			it := b.Records()
			require.True(t, it.Next())
			require.Equal(t, fmt.Sprintf("value %d", off), string(it.Value))
			_, err := r.Next()
			require.Error(t, err)
			r.Close()
		}
	}
	deleted, cut := hold(2), hold(58)
	require.NoError(t, p.DeleteBefore(30))
	require.Less(t, len(*p.segments.Load()), 6)
	require.NoError(t, p.TruncateTo(50))
	_, err = p.Write(batchOf(plain, 1, "new 50"))
	require.NoError(t, err)
	removed := hold(49)
	deleted()
	cut()
	require.Equal(t, []string{"49:value 49", "50:new 50"}, readAll(t, p, 49, ReadCommitted))
	require.ErrorIs(t, p.DeleteBefore(52), ErrOffsetOutOfRange)
	require.ErrorIs(t, p.TruncateTo(29), ErrOffsetOutOfRange)
	require.NoError(t, p.TruncateTo(52))
	require.NoError(t, l.Delete("t"))
	removed()
	_, err = l.Partition(p.Name())
	require.ErrorIs(t, err, ErrUnknownTopic)
	require.NoError(t, l.Close())
}

// TestReaderCrossesACut shows that a reader which is below a cut goes on with what
// is written after it, not with what was there before.
func TestReaderCrossesACut(t *testing.T) {
	l, p := single(t, small(vfs.NewMem()), SyncByOS)
	defer l.Close()
	for i := range 10 {
		_, err := p.Write(batchOf(plain, 1, fmt.Sprint("old ", i)))
		require.NoError(t, err)
	}
	r := p.Reader(4, ReadCommitted)
	defer r.Close()
	next := func() string {
		b, err := r.Next()
		require.NoError(t, err)
		it := b.Records()
		require.True(t, it.Next())
		return fmt.Sprintf("%d:%s/%d", it.Offset, it.Value, b.Epoch)
	}
	require.Equal(t, "4:old 4/0", next())
	position := r.Position()
	require.NoError(t, p.TruncateTo(6))
	for i := 6; i < 10; i++ {
		_, err := p.Write(batchOf(plain, 1, fmt.Sprint("new ", i)))
		require.NoError(t, err)
	}
	require.Equal(t, []string{"5:old 5/0", "6:new 6/1", "7:new 7/1"}, []string{next(), next(), next()})
	require.True(t, p.Contains(position))
	require.True(t, p.Contains(Position{6, 0}))
	require.False(t, p.Contains(Position{8, 0}))
	require.True(t, p.Contains(Position{8, 1}))
	require.False(t, p.Contains(Position{11, 1}))
	_, err := p.PositionAt(11)
	require.ErrorIs(t, err, ErrOffsetOutOfRange)
}

// TestReaderOfALogCutMeanwhile shows that a reader which has seen a limit that is cut
// away before it looks for the batch finds the end of the log there, no damage.
func TestReaderOfALogCutMeanwhile(t *testing.T) {
	l, p := single(t, small(vfs.NewMem()), SyncByOS)
	defer l.Close()
	for range 6 {
		_, err := p.Write(batchOf(plain, 1, "v"))
		require.NoError(t, err)
	}
	r := p.Reader(5, ReadUncommitted)
	defer r.Close()
	require.NoError(t, p.TruncateTo(5))
	limit, err := r.locate()
	require.NoError(t, err)
	require.EqualValues(t, 5, limit)
	_, err = p.Write(batchOf(plain, 1, "new"))
	require.NoError(t, err)
	b, err := r.Next()
	require.NoError(t, err)
	require.EqualValues(t, 5, b.Base)
}

// TestConcurrentUse appends, reads, deletes and cuts at once, for the race detector,
// and shows that readers see offsets without gaps.
func TestConcurrentUse(t *testing.T) {
	l, p := single(t, small(vfs.NewMem()), SyncEvery(time.Millisecond))
	var writers, readers sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for i := range 3 {
		writers.Go(func() {
			for n := range 150 {
				id := ProducerID(1000*(i+1) + n)
				_, err := p.Append(context.Background(), batchOf(transactional(id, 0), int64(n), "v", "w"))
				if err == nil {
					_, err = p.EndTransaction(id, n%3 > 0)
				}
				// What waits for its acknowledgement may be cut away.
				if err != nil && !errors.Is(err, ErrFenced) && !errors.Is(err, ErrOffsetOutOfRange) {
					t.Error(err)
				}
			}
		})
	}
	for i := range 3 {
		readers.Go(func() {
			r := p.Reader(0, Isolation(i))
			defer r.Close()
			for ctx.Err() == nil {
				before := r.Offset()
				b, err := r.Next()
				switch {
				case err == io.EOF:
					_ = r.Wait(ctx)
				case errors.Is(err, ErrOffsetOutOfRange):
					r.Seek(p.Start())
				case err != nil:
					t.Error(err)
					return
				case b.First < before || b.Last+1 != r.Offset():
					t.Errorf("batch %d to %d after %d", b.First, b.Last, before)
				}
				if _, _, err := p.OffsetAt(100); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Go(func() {
		for range 20 {
			if err := p.DeleteBefore(p.LastStable()); err != nil && !errors.Is(err, ErrOffsetOutOfRange) {
				t.Error(err)
			}
			if err := p.TruncateTo(max(p.Start(), p.End().Offset-3)); err != nil && !errors.Is(err, ErrOffsetOutOfRange) {
				t.Error(err)
			}
		}
	})
	writers.Wait()
	cancel()
	readers.Wait()
	require.NoError(t, p.Failed())
	require.NoError(t, l.Close())
}

// TestTopics shows creating, listing, refusing and deleting topics, and that all of
// it survives.
func TestTopics(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, small(mem))
	spec := TopicSpec{Partitions: 3, Sync: SyncEvery(time.Second), SegmentBytes: 512, Compact: true}
	require.NoError(t, l.Create("b.topic_1-x", spec))
	require.NoError(t, l.Create("a", TopicSpec{Partitions: 1}))
	require.NoError(t, l.Create("a", TopicSpec{Partitions: 1}), "the same again")
	err := l.Create("a", TopicSpec{Partitions: 2, Sync: SyncAlways})
	require.ErrorIs(t, err, ErrTopicExists)
	require.ErrorContains(t, err, `topic "a": Partitions is 1, asked for is 2; Sync is by the operating system, asked for is always`)
	for _, bad := range []TopicSpec{{}, {Partitions: -1}, {Partitions: 1, Sync: -2}, {Partitions: 1, SegmentBytes: -1}, {Partitions: 1, SegmentBytes: 1 << 31}} {
		require.Error(t, l.Create("c", bad))
	}
	list := func() (names []string) {
		for name, spec := range l.Topics() {
			names = append(names, fmt.Sprint(name, spec.Partitions))
		}
		for p := range l.Partitions() {
			names = append(names, p.Name().String())
		}
		return names
	}
	want := []string{"a1", "b.topic_1-x3", "a-0", "b.topic_1-x-0", "b.topic_1-x-1", "b.topic_1-x-2"}
	require.Equal(t, want, list())
	require.NoError(t, l.Close())
	l = mustOpen(t, small(mem))
	require.Equal(t, want, list())
	got, ok := l.Spec("b.topic_1-x")
	require.True(t, ok)
	require.Equal(t, spec, got)
	_, err = l.Partition(TopicPartition{"a", 1})
	require.ErrorIs(t, err, ErrUnknownTopic)
	_, err = l.Partition(TopicPartition{"z", 0})
	require.ErrorIs(t, err, ErrUnknownTopic)
	require.ErrorIs(t, l.Delete("z"), ErrUnknownTopic)
	require.NoError(t, l.Delete("b.topic_1-x"))
	require.Equal(t, []string{"a1", "a-0"}, list())
	names, err := mem.List("log")
	require.NoError(t, err)
	for _, name := range names {
		require.NotContains(t, name, "b.topic")
	}
	require.NoError(t, l.Create("b.topic_1-x", TopicSpec{Partitions: 1}))
	require.Equal(t, Position{}, mustPartition(t, l, "b.topic_1-x").End())
	require.NoError(t, l.Close())
}

// TestNames shows which names are refused and what the error says.
func TestNames(t *testing.T) {
	l := mustOpen(t, small(vfs.NewMem()))
	defer l.Close()
	for name, says := range map[string]string{
		"":                       "empty",
		".":                      "names a directory",
		"..":                     "names a directory",
		"a/b":                    `'/' at byte 1`,
		"../x":                   `'/' at byte 2`,
		"a b":                    `' ' at byte 1`,
		"naïve":                  `'ï' at byte 2`,
		"a\x00":                  `'\x00' at byte 1`,
		strings.Repeat("x", 250): "has 250 bytes, at most 249",
	} {
		err := l.Create(name, TopicSpec{Partitions: 1})
		require.ErrorIs(t, err, ErrInvalidName, name)
		require.ErrorContains(t, err, says)
	}
	for _, name := range []string{"a", "...", "A.b_c-9", "-", "t-0", strings.Repeat("x", 249)} {
		require.NoError(t, l.Create(name, TopicSpec{Partitions: 1}), name)
	}
}

// TestCreateAndDeleteAtEveryOperation stops the machine at every file operation of
// creating and deleting a topic: afterwards it is there with all partitions or not
// at all, as told, and the other topic is untouched.
func TestCreateAndDeleteAtEveryOperation(t *testing.T) {
	spec := TopicSpec{Partitions: 2, Sync: SyncAlways}
	script := func(mem *vfs.Mem) (created, deleting, deleted bool, err error) {
		l, err := Open("log", small(mem))
		if err != nil {
			return
		}
		defer l.abandon()
		if err = l.Create("keep", spec); err != nil {
			return
		}
		if err = l.Create("t", spec); err != nil {
			return
		}
		created = true
		p, err := l.Partition(TopicPartition{"t", 1})
		if err != nil {
			return
		}
		if _, err = p.AppendRecords(context.Background(), record(1, "v")); err != nil {
			return
		}
		deleting = true
		if err = l.Delete("t"); err != nil {
			return
		}
		deleted = true
		err = l.Close()
		return
	}
	whole := vfs.NewMem()
	_, _, _, err := script(whole)
	require.NoError(t, err)
	for n := int64(1); n <= whole.Ops(); n++ {
		mem := vfs.NewMem()
		mem.StopAt(n)
		created, deleting, deleted, err := script(mem)
		require.True(t, err == nil || errors.Is(err, vfs.ErrStopped), "%v", err)
		for seed := range uint64(4) {
			after := mem.Crash(seed)
			if seed == 0 {
				after = mem.Kill()
			}
			l, err := Open("log", small(after))
			require.NoError(t, err, "operation %d, seed %d", n, seed)
			_, there := l.Spec("t")
			require.False(t, created && !deleting && !there, "operation %d, seed %d", n, seed)
			require.False(t, deleted && there, "operation %d, seed %d", n, seed)
			if there && deleting {
				p, err := l.Partition(TopicPartition{"t", 1})
				require.NoError(t, err)
				require.Equal(t, []string{"0:v"}, readAll(t, p, 0, ReadCommitted))
			}
			if !there {
				require.NoError(t, l.Create("t", spec))
				p, err := l.Partition(TopicPartition{"t", 1})
				require.NoError(t, err)
				require.Empty(t, readAll(t, p, 0, ReadCommitted))
			}
			require.NoError(t, l.Close())
		}
	}
}

// TestOptionsOutOfRange shows that the error names the field.
func TestOptionsOutOfRange(t *testing.T) {
	for field, o := range map[string]Options{
		"SegmentBytes":       {SegmentBytes: 1 << 31},
		"IndexIntervalBytes": {IndexIntervalBytes: -1},
		"MaxBatchBytes":      {MaxBatchBytes: 10},
	} {
		o.FS = vfs.NewMem()
		_, err := Open("log", o)
		require.ErrorContains(t, err, "Options."+field)
	}
}

// TestClockThatJumps shows that a clock that goes back and forth costs a roll or a
// producer's memory at most.
func TestClockThatJumps(t *testing.T) {
	mem := vfs.NewMem()
	o := small(mem)
	now := &clock{ms: 1_000_000_000}
	o.Now, o.SegmentAge, o.ProducerExpiry = now.now, time.Hour, time.Hour
	l, p := single(t, o, SyncByOS)
	jumps := []int64{0, 1e12, -1e12, -1e12, 5, 1 << 40, -(1 << 41), 3_600_000, 3_600_000}
	for i, jump := range jumps {
		now.ms += jump
		got, err := p.Write(batchOf(Producer{ID: 1, Sequence: int32(i)}, int64(i), "v"))
		require.NoError(t, err)
		require.Equal(t, Offset(i), got.Base)
		got, err = p.Write(batchOf(Producer{ID: 1, Sequence: int32(i)}, int64(i), "v"))
		require.NoError(t, err)
		require.True(t, got.Duplicate)
	}
	require.LessOrEqual(t, len(*p.segments.Load()), len(jumps))
	require.NoError(t, l.Close())
	l = mustOpen(t, o)
	require.Len(t, readAll(t, mustPartition(t, l, "t"), 0, ReadCommitted), len(jumps))
	require.NoError(t, l.Close())
}
