package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// objects is an ObjectStore in memory that can be made to fail.
type objects struct {
	mu    sync.Mutex
	all   map[string]string
	reads int
	hook  func(op, name string) error // before an operation; an error matching errAnswerLost comes after it
}

var errAnswerLost = errors.New("the answer is lost")

func newObjects() *objects { return &objects{all: map[string]string{}} }

func (o *objects) do(op, name string, f func()) error {
	var err error
	if o.hook != nil {
		err = o.hook(op, name)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil || errors.Is(err, errAnswerLost) {
		f()
	}
	return err
}

func (o *objects) Put(ctx context.Context, name string, content io.ReadSeeker, size int64) error {
	b := make([]byte, size)
	if _, err := io.ReadFull(content, b); err != nil {
		return err
	}
	return o.do("put", name, func() { o.all[name] = string(b) })
}

func (o *objects) ReadAt(ctx context.Context, name string, p []byte, off int64) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	opErr := o.do("read", name, func() {
		o.reads++
		content, ok := o.all[name]
		if !ok {
			err = fs.ErrNotExist
			return
		}
		n, err = strings.NewReader(content).ReadAt(p, off)
	})
	if opErr != nil {
		return 0, opErr
	}
	return n, err
}

func (o *objects) Delete(ctx context.Context, name string) error {
	return o.do("delete", name, func() { delete(o.all, name) })
}

func (o *objects) List(ctx context.Context, prefix string) (names []string, err error) {
	err = o.do("list", prefix, func() {
		for name := range o.all {
			if strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
	})
	return names, err
}

func (o *objects) names() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.all))
}

// tiered opens a log with one topic in two places. Nothing moves unless asked for.
func tiered(t testing.TB, mem vfs.FS, store ObjectStore, spec TopicSpec, change func(*Options)) (*Log, *Partition) {
	t.Helper()
	o := small(mem)
	o.Remote, o.RemoteInterval, o.ProducerExpiry, o.SegmentAge = store, -1, -1, -1
	o.SegmentBytes, o.RemoteReadBytes = 500, 300
	if change != nil {
		change(&o)
	}
	l := mustOpen(t, o)
	spec.Partitions, spec.Remote = 1, true
	require.NoError(t, l.Create("t", spec))
	return l, mustPartition(t, l, "t")
}

// offload puts all sealed segments on disk and then into the store.
func offload(t testing.TB, p *Partition) {
	t.Helper()
	require.NoError(t, p.finishAllSealed())
	require.NoError(t, p.Offload(context.Background()))
}

// fillTiered writes batches of all kinds.
func fillTiered(t testing.TB, p *Partition) {
	t.Helper()
	long := strings.Repeat("x", 90)
	for i := range int64(30) {
		write(t, p, batchOf(plain, 10*i, fmt.Sprint("n", i), long))
		write(t, p, batchOf(Producer{ID: 7, Sequence: int32(i)}, 10*i+5, fmt.Sprint("i", i)))
		id := ProducerID(100 + i)
		write(t, p, batchOf(transactional(id, 0), 10*i, fmt.Sprint("t", i)))
		if i%5 == 0 {
			write(t, p, batchOf(plain, 10*i, strings.Repeat("large", 300))) // more than is fetched at once, and a segment of its own
		}
		_, err := p.EndTransaction(id, i%3 > 0)
		require.NoError(t, err)
	}
}

// view is what there is to see of a partition from every offset and time.
func view(t testing.TB, p *Partition) (seen []string) {
	t.Helper()
	for _, iso := range []Isolation{ReadCommitted, ReadUncommitted} {
		all := readAll(t, p, p.Start(), iso)
		seen = append(seen, all...)
		for off := p.Start(); off < p.End().Offset; off += 3 {
			r := p.Reader(off, iso)
			b, err := r.Next()
			if err == nil {
				seen = append(seen, fmt.Sprint(off, " ", b.First, " ", b.Last, " ", b.Epoch))
			} else {
				require.Equal(t, io.EOF, err)
			}
			r.Close()
		}
	}
	for at := int64(-5); at < 320; at += 7 {
		off, found, err := p.OffsetAt(at)
		require.NoError(t, err)
		seen = append(seen, fmt.Sprint("time ", at, " ", off, " ", found))
	}
	return seen
}

// TestTieredReads shows that a partition reads the same whether its segments are in the
// directory or in the store, in one go or from any place on, by time too, and after it
// was opened again.
func TestTieredReads(t *testing.T) {
	mem, store := vfs.NewMem(), newObjects()
	spec := TopicSpec{LocalRetentionBytes: 1}
	l, p := tiered(t, mem, store, spec, nil)
	fillTiered(t, p)
	segments := len(*p.segments.Load())
	require.Greater(t, segments, 20)
	want := view(t, p)
	for _, chunk := range []int64{1, 300, 1 << 20} {
		offload(t, p)
		require.Len(t, *p.segments.Load(), 1, "the newest one is here")
		require.Equal(t, segments-1, p.Remote().Segments)
		require.Equal(t, p.active().base, p.Remote().LocalStart)
		require.Len(t, store.names(), segments-1)
		require.Equal(t, want, view(t, p))
		require.Zero(t, p.Start())

		again := func(clean bool) {
			t.Helper()
			image := mem.Kill()
			require.NoError(t, l.Close())
			if !clean {
				mem = image
			}
			l, p = tiered(t, mem, store, spec, func(o *Options) { o.RemoteReadBytes = chunk })
			require.Equal(t, clean, p.Recovery().Clean)
			require.Equal(t, want, view(t, p))
		}
		again(true)
		again(false)
		require.True(t, write(t, p, batchOf(Producer{ID: 7, Sequence: 29}, 1, "i29")).Duplicate)
	}
	require.NoError(t, l.Close())
}

// TestTieredReadAhead shows that a reader that goes on and on has the next piece
// fetched while it deals with one, holds no more than two, and stops with its Close.
func TestTieredReadAhead(t *testing.T) {
	store := newObjects()
	l, p := tiered(t, vfs.NewMem(), store, TopicSpec{LocalRetentionBytes: 1}, nil)
	defer l.Close()
	fillTiered(t, p)
	offload(t, p)
	asked := make(chan string)
	goOn := make(chan struct{})
	store.hook = func(op, name string) error {
		asked <- op
		<-goOn
		return nil
	}
	r := p.Reader(0, ReadUncommitted)
	next := make(chan error)
	read := func() { _, err := r.Next(); next <- err }
	go read()
	require.Equal(t, "read", <-asked)
	goOn <- struct{}{}
	require.NoError(t, <-next)
	require.Equal(t, "read", <-asked, "the next piece")
	select {
	case <-asked:
		t.Fatal("a third piece is fetched")
	default:
	}
	goOn <- struct{}{}
	r.Close()
	_, err := r.Next()
	require.ErrorIs(t, err, ErrClosed)
}

// TestTieredRetention shows that what is dropped for good goes from the store, too, by
// size, by time and by request, and not before the manifest says so.
func TestTieredRetention(t *testing.T) {
	mem, store := vfs.NewMem(), newObjects()
	spec := TopicSpec{LocalRetentionBytes: 1000, RetentionAge: 300 * time.Millisecond}
	at := &clock{ms: 300}
	l, p := tiered(t, mem, store, spec, func(o *Options) { o.Now = at.now })
	fillTiered(t, p)
	offload(t, p)
	all := p.Remote().Segments
	p.retain()
	require.Zero(t, p.Start())
	at.ms = 400
	p.retain()
	require.Positive(t, p.Start())
	require.Less(t, p.Start(), p.Remote().LocalStart)
	require.Less(t, p.Remote().Segments, all)
	require.Len(t, store.names(), all)
	require.NoError(t, p.Offload(t.Context()))
	require.Len(t, store.names(), p.Remote().Segments)
	off, found, err := p.OffsetAt(100)
	require.NoError(t, err)
	require.True(t, found)
	require.Less(t, off, p.Remote().LocalStart)

	spec = TopicSpec{Partitions: 1, Remote: true, LocalRetentionBytes: 1000, RetentionBytes: 5000}
	require.NoError(t, l.Alter("t", spec))
	p.retain()
	require.NoError(t, p.Offload(t.Context()))
	require.Len(t, store.names(), p.Remote().Segments)
	total, _ := p.Size()
	for _, s := range p.remote.Load().below(p.Remote().LocalStart) {
		total += int64(s.data.size)
	}
	require.GreaterOrEqual(t, total, int64(5000))
	require.Less(t, total, int64(5000+1800))

	before := view(t, p)
	require.NoError(t, p.DeleteBefore(p.Start()+10))
	require.NotEqual(t, before, view(t, p))
	_, err = p.Reader(p.Start()-1, ReadCommitted).Next()
	require.ErrorIs(t, err, ErrOffsetOutOfRange)
	require.NoError(t, p.DeleteBefore(p.End().Offset))
	require.NoError(t, p.Offload(t.Context()))
	require.Empty(t, store.names())
	require.Zero(t, p.Remote().Segments)

	// And a segment written later starts the store anew.
	for i := range 20 {
		write(t, p, batchOf(plain, 1, fmt.Sprint(i), strings.Repeat("y", 100)))
	}
	offload(t, p)
	require.NotEmpty(t, store.names())
	want := view(t, p)
	require.NoError(t, l.Close())
	l, p = tiered(t, mem, store, spec, func(o *Options) { o.Now = at.now })
	require.Equal(t, want, view(t, p))
	require.NoError(t, l.Close())
}

// TestTieredDamage shows that what the store returns is checked, and that what it does
// not return is an error that may go away.
func TestTieredDamage(t *testing.T) {
	store := newObjects()
	l, p := tiered(t, vfs.NewMem(), store, TopicSpec{LocalRetentionBytes: 1}, nil)
	defer l.Close()
	fillTiered(t, p)
	offload(t, p)
	m := p.remote.Load()
	readFrom := func(off Offset) error {
		r := p.Reader(off, ReadUncommitted)
		defer r.Close()
		_, err := r.Next()
		return err
	}
	var corruption *CorruptionError
	s := &m.segments[3]
	name := m.object(p.name, s)
	whole := store.all[name]
	for at := range s.data.size {
		b := []byte(whole)
		b[at] ^= 1
		store.all[name] = string(b)
		r := p.Reader(s.base, ReadUncommitted)
		var err error
		for err == nil && r.Offset() < s.next {
			_, err = r.Next()
		}
		r.Close()
		require.ErrorAs(t, err, &corruption, "byte %d", at)
		require.Contains(t, corruption.File, m.prefix(p.name))
	}
	b := []byte(whole)
	if s.index.size > 0 {
		b[s.data.size] ^= 1
	}
	store.all[name] = string(b)
	if s.index.size > 0 {
		require.ErrorAs(t, readFrom(s.next-1), &corruption)
	}
	delete(store.all, name)
	err := readFrom(s.base)
	require.ErrorIs(t, err, ErrRemote)
	require.ErrorIs(t, err, fs.ErrNotExist)
	store.all[name] = whole
	r := p.Reader(s.base, ReadUncommitted)
	defer r.Close()
	store.hook = func(string, string) error { return errInjected }
	_, err = r.Next()
	require.ErrorIs(t, err, errInjected)
	store.hook = nil
	_, err = r.Next()
	require.NoError(t, err, "the reader is where it was")
}

// TestTieredCut shows that a cut takes segments out of the store, and that none is cut
// that is only there.
func TestTieredCut(t *testing.T) {
	mem, store := vfs.NewMem(), newObjects()
	l, p := tiered(t, mem, store, TopicSpec{LocalRetentionBytes: 4000}, nil)
	fillTiered(t, p)
	offload(t, p)
	local := p.Remote().LocalStart
	require.Positive(t, local)
	require.ErrorIs(t, p.TruncateTo(local-1), ErrOffsetOutOfRange)
	segments := *p.segments.Load()
	cut := segments[2].base
	before := readAll(t, p, 0, ReadUncommitted)
	require.NoError(t, p.TruncateTo(cut))
	require.LessOrEqual(t, p.Remote().End, cut)
	require.Equal(t, before[:len(readAll(t, p, 0, ReadUncommitted))], readAll(t, p, 0, ReadUncommitted))
	for i := range 20 {
		write(t, p, batchOf(plain, 1, fmt.Sprint("after the cut ", i), strings.Repeat("y", 100)))
	}
	offload(t, p)
	require.Len(t, store.names(), p.Remote().Segments)
	want := readAll(t, p, 0, ReadUncommitted)
	require.NoError(t, l.Close())
	l, p = tiered(t, mem, store, TopicSpec{LocalRetentionBytes: 4000}, nil)
	require.Equal(t, want, readAll(t, p, 0, ReadUncommitted))
	require.NoError(t, l.Close())
}

// TestTieredTopics shows that a topic needs a store, cannot be compacted, and takes its
// objects with it, and nobody else's.
func TestTieredTopics(t *testing.T) {
	mem, store := vfs.NewMem(), newObjects()
	l, p := tiered(t, mem, store, TopicSpec{}, nil)
	require.ErrorContains(t, l.Create("c", TopicSpec{Partitions: 1, Compact: true, Remote: true}), "Compact")
	fillTiered(t, p)
	offload(t, p)
	local := len(*p.segments.Load())
	require.Equal(t, local-1, p.Remote().Segments, "without a setting the segments stay here, too")
	store.all["t-0/other"] = "somebody's"
	require.NoError(t, l.Close())

	o := small(mem)
	_, err := Open("log", o)
	require.ErrorContains(t, err, "Options.Remote")
	require.ErrorContains(t, mustOpen(t, small(vfs.NewMem())).Create("t", TopicSpec{Partitions: 1, Remote: true}), "Options.Remote")

	l, _ = tiered(t, mem, store, TopicSpec{}, nil)
	store.hook = func(op, name string) error { return errInjected }
	require.ErrorIs(t, l.Delete("t"), errInjected)
	require.NoError(t, l.Close())
	store.hook = nil
	o = small(mem)
	o.Remote = store
	l = mustOpen(t, o) // completes the deletion
	defer l.Close()
	require.Equal(t, []string{"t-0/other"}, store.names())
	require.Empty(t, slices.Collect(maps.Keys(maps.Collect(l.Topics()))))
}

// TestTieredInTheBackground shows that segments move by themselves, by age.
func TestTieredInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newObjects()
		l, p := tiered(t, vfs.NewMem(), store, TopicSpec{LocalRetentionAge: time.Hour, RetentionAge: 2 * time.Hour},
			func(o *Options) { o.RemoteInterval = time.Minute })
		now := time.Now().UnixMilli()
		for i := range 10 {
			write(t, p, batchOf(plain, now, fmt.Sprint(i), strings.Repeat("x", 200)))
		}
		segments := len(*p.segments.Load())
		after(3 * time.Minute)
		require.Equal(t, segments-1, len(store.names()))
		require.Zero(t, p.Remote().LocalStart)
		after(time.Hour)
		require.Equal(t, p.active().base, p.Remote().LocalStart)
		require.Len(t, readAll(t, p, 0, ReadCommitted), 20)
		after(70 * time.Minute)
		require.Empty(t, store.names())
		require.Equal(t, p.End().Offset, p.Start())
		require.NoError(t, l.Close())
	})
}

// TestManifest reads each field where the table has it, and shows that damage is found.
func TestManifest(t *testing.T) {
	m := manifest{id: 0x0102030405060708, localStart: 300, segments: []remoteSegment{
		{base: 100, next: 200, data: fileSum{1000, 0xaabbccdd}, index: fileSum{16, 1}, timeIndex: fileSum{24, 2}, maxTime: -7, appended: 9, gaps: true,
			aborted: abortedTransactions{{id: 5, first: 110, last: 120, lastStable: 121}}},
		{base: 200, next: 300, data: fileSum{2000, 3}},
	}}
	b := m.encode()
	require.Equal(t, "thalwegO", string(b[:8]))
	require.Equal(t, []byte{0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 1, 44, 0, 0, 0, 2}, b[12:36])
	first := b[36:]
	require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 200, 0, 0, 3, 232, 0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 24, 0, 0, 0, 2}, first[:40])
	require.Equal(t, []byte{255, 255, 255, 255, 255, 255, 255, 249, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1}, first[40:64])
	require.Equal(t, encodeTxnIndex(m.segments[0].aborted), first[64:64+34])
	got, err := decodeManifest(b)
	require.NoError(t, err)
	require.Equal(t, m.encode(), got.encode())
	require.Equal(t, "t-0/0102030405060708/00000000000000000100-00000000000000000200-aabbccdd", m.object(TopicPartition{Topic: "t"}, &m.segments[0]))
	for at := range b {
		damaged := slices.Clone(b)
		damaged[at] ^= 0x10
		_, err := decodeManifest(damaged)
		require.Error(t, err, "byte %d", at)
	}
	b[15] = 2
	putSum(b)
	_, err = decodeManifest(b)
	require.ErrorIs(t, err, ErrVersion)
	_, err = decodeManifest(b[:20])
	require.Error(t, err)
}

// tieredScenario does all that moves segments, until the first error.
func tieredScenario(mem *vfs.Mem, store *objects, told func(acked []string, start Offset)) error {
	o := small(mem)
	o.Remote, o.RemoteInterval, o.ProducerExpiry, o.SegmentAge, o.SegmentBytes = store, -1, -1, -1, 400
	var acked []string
	open := func() (*Log, *Partition, error) {
		l, err := Open("log", o)
		if err != nil {
			return nil, nil, err
		}
		if err := l.Create("t", TopicSpec{Partitions: 1, Sync: SyncAlways, Remote: true, LocalRetentionBytes: 500}); err != nil {
			return l, nil, err
		}
		p, err := l.Partition(TopicPartition{Topic: "t"})
		return l, p, err
	}
	l, p, err := open()
	defer func() {
		if l != nil {
			l.abandon()
		}
	}()
	if err != nil {
		return err
	}
	start := Offset(0)
	fill := func(n int) error {
		for range n {
			value := fmt.Sprint(len(acked), strings.Repeat("z", 120))
			if _, err := p.AppendRecords(context.Background(), record(1, value)); err != nil {
				return err
			}
			acked = append(acked, value)
			told(acked, start)
		}
		return p.finishAllSealed()
	}
	steps := []func() error{
		func() error { return fill(9) },
		func() error { return p.Offload(context.Background()) },
		func() error { return fill(6) },
		func() error { return p.Offload(context.Background()) },
		func() error {
			err := p.DeleteBefore(5)
			if err == nil {
				start = 5
				told(acked, start)
			}
			return err
		},
		func() error { return p.Offload(context.Background()) },
		func() error { return l.Close() },
		func() (err error) { l, p, err = open(); return err },
		func() error { return fill(4) },
		func() error { return p.Offload(context.Background()) },
		func() error { return l.Close() },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// TestCrashAtEveryOperationOfTiering stops the process at every operation on files and
// on the store, the answer of which may be lost, and shows that afterwards every
// record that was acknowledged is there once, that it can be offloaded on, and that
// the store then has the segments of the manifest and nothing else.
func TestCrashAtEveryOperationOfTiering(t *testing.T) {
	run := func(n int64, lost bool, seed uint64) (total int64) {
		mem, store := vfs.NewMem(), newObjects()
		var mu sync.Mutex
		count := int64(0)
		step := func() (stop bool) {
			mu.Lock()
			defer mu.Unlock()
			count++
			return n > 0 && count >= n
		}
		mem.SetHook(func(vfs.Op) error {
			if step() {
				return vfs.ErrStopped
			}
			return nil
		})
		store.hook = func(string, string) error {
			if step() {
				mem.Stop()
				if mu.Lock(); count == n && lost {
					mu.Unlock()
					return fmt.Errorf("%w: %w", errAnswerLost, vfs.ErrStopped)
				}
				mu.Unlock()
				return vfs.ErrStopped
			}
			return nil
		}
		var acked []string
		start := Offset(0)
		err := tieredScenario(mem, store, func(a []string, s Offset) { acked, start = slices.Clone(a), s })
		if n == 0 {
			require.NoError(t, err)
			return count
		}
		if err != nil {
			require.ErrorIs(t, err, vfs.ErrStopped, "operation %d", n)
		}
		store.hook = nil
		after := mem.Kill()
		if seed > 0 {
			after = mem.Crash(seed)
		}
		spec := TopicSpec{LocalRetentionBytes: 500, Sync: SyncAlways}
		l, p := tiered(t, after, store, spec, func(o *Options) { o.SegmentBytes = 400 })
		defer l.abandon()
		check := func() {
			values := readAll(t, p, p.Start(), ReadUncommitted)
			require.GreaterOrEqual(t, p.Start(), start)
			require.GreaterOrEqual(t, int(p.End().Offset), len(acked), "operation %d, seed %d", n, seed)
			require.Len(t, values, int(p.End().Offset-p.Start()), "operation %d, seed %d", n, seed)
			for i, value := range values {
				off := int(p.Start()) + i
				if off < len(acked) {
					require.Equal(t, fmt.Sprintf("%d:%s", off, acked[off]), value, "operation %d, seed %d", n, seed)
				}
			}
		}
		check()
		offload(t, p)
		check()
		m := p.remote.Load()
		var want []string
		for i := range m.segments {
			want = append(want, m.object(p.name, &m.segments[i]))
		}
		require.Equal(t, want, store.names(), "operation %d, seed %d", n, seed)
		return count
	}
	total := run(0, false, 0)
	t.Logf("%d operations", total)
	for n := int64(1); n <= total; n += sampled[int64](11) {
		for seed := range uint64(3) {
			run(n, n%2 == 0, seed)
		}
	}
}

// TestTieredModel does the same random operations to a partition in two places and to
// one in a single place, and shows that they read the same.
func TestTieredModel(t *testing.T) {
	runs := 20
	if testing.Short() {
		runs = 4
	}
	for i := range runs {
		seed := *modelSeed + uint64(i)
		random := rand.New(rand.NewPCG(seed, 3))
		mem, store := vfs.NewMem(), newObjects()
		spec := TopicSpec{LocalRetentionBytes: 1 + random.Int64N(3000)}
		reopen := func() (*Log, *Partition) {
			return tiered(t, mem, store, spec, func(o *Options) { o.RemoteReadBytes = 1 + random.Int64N(2000) })
		}
		l, p := reopen()
		plainMem := vfs.NewMem()
		o := small(plainMem)
		o.ProducerExpiry, o.SegmentAge, o.SegmentBytes = -1, -1, 500
		one, q := single(t, o, SyncByOS)
		both := func(f func(p *Partition) error) {
			require.NoError(t, f(p), "seed %d", seed)
			require.NoError(t, f(q), "seed %d", seed)
		}
		id := ProducerID(100)
		for range 150 {
			switch k := random.IntN(100); {
			case k < 45:
				batch := batchOf(plain, random.Int64N(300), fmt.Sprint(random.Int()), strings.Repeat("x", random.IntN(200)))
				both(func(p *Partition) error { _, err := p.Write(batch); return err })
			case k < 60:
				id++
				commit := random.IntN(2) == 0
				batch := batchOf(transactional(id, 0), random.Int64N(300), fmt.Sprint("t", id))
				both(func(p *Partition) error {
					if _, err := p.Write(batch); err != nil {
						return err
					}
					_, err := p.EndTransaction(id, commit)
					return err
				})
			case k < 75:
				offload(t, p)
			case k < 80:
				off := q.Start() + Offset(random.Int64N(int64(q.End().Offset-q.Start())/4+1))
				both(func(p *Partition) error { return p.DeleteBefore(off) })
			case k < 84:
				local := p.Remote().LocalStart
				if end := q.End().Offset; end > max(local, q.Start()) {
					off := max(local, q.Start()) + Offset(random.Int64N(int64(end-max(local, q.Start()))))
					both(func(p *Partition) error { return p.TruncateTo(off) })
				}
			case k < 88:
				require.NoError(t, l.Close())
				l, p = reopen()
				require.NoError(t, one.Close())
				one, q = single(t, o, SyncByOS)
			default:
				require.Equal(t, readAll(t, q, q.Start(), ReadUncommitted), readAll(t, p, p.Start(), ReadUncommitted), "seed %d", seed)
			}
		}
		require.Equal(t, view(t, q), view(t, p), "seed %d", seed)
		require.NoError(t, l.Close())
		require.NoError(t, one.Close())
	}
}
