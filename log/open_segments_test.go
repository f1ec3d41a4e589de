package log

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

var boundedRuns = flag.Int("boundedruns", 6, "seeds of the model test with few open segments")

// countedFS counts the segment files that are open and the mappings that are there, and
// refuses more of them when told to.
type countedFS struct {
	vfs.FS
	files, maps atomic.Int64
	refuse      atomic.Bool
}

func (c *countedFS) open(name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	if !strings.Contains(name, logSuffix) {
		return open(name)
	}
	if c.refuse.Load() {
		return nil, syscall.EMFILE
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	c.files.Add(1)
	return &countedFile{f, c}, nil
}

func (c *countedFS) Open(name string) (vfs.File, error)   { return c.open(name, c.FS.Open) }
func (c *countedFS) Create(name string) (vfs.File, error) { return c.open(name, c.FS.Create) }

type countedFile struct {
	vfs.File
	c *countedFS
}

func (f *countedFile) Close() error {
	f.c.files.Add(-1)
	return f.File.Close()
}

func (f *countedFile) Map(size int64) (vfs.Mapping, error) {
	m, err := f.File.Map(size)
	if err != nil {
		return nil, err
	}
	f.c.maps.Add(1)
	return &countedMapping{m, f.c}, nil
}

func (f *countedFile) Adopt(m vfs.Mapping) { f.File.Adopt(m.(*countedMapping).Mapping) }

type countedMapping struct {
	vfs.Mapping
	c *countedFS
}

func (m *countedMapping) Unmap() error {
	m.c.maps.Add(-1)
	return m.Mapping.Unmap()
}

// manyPartitions is a log with a bound on open segments, and its twin without.
type manyPartitions struct {
	testing.TB
	random *rand.Rand
	files  *countedFS
	time   time.Time
	bound  int
	logs   [2]*Log // the first one has the bound
	serial int
}

const manyTopics = 10 // of five partitions

func (m *manyPartitions) options(i int) Options {
	o := Options{FS: m.files, SegmentBytes: 1 << 10, MaxBatchBytes: 4 << 10, IndexIntervalBytes: 100, MaxOpenSegments: m.bound,
		CompactionInterval: -1, RetentionCheckInterval: -1, SegmentAge: -1, ProducerExpiry: -1, Now: func() time.Time { return m.time }}
	if i > 0 {
		o.FS, o.MaxOpenSegments = vfs.NewMem(), 1<<20
	}
	return o
}

// step does one thing, drawn at random, to the same partition of both logs.
func (m *manyPartitions) step() {
	name := TopicPartition{Topic: fmt.Sprint("t", m.random.IntN(manyTopics)), Partition: PartitionID(m.random.IntN(5))}
	var results [2]string
	choice, part, drawn := m.random.IntN(100), m.random.Float64(), m.random.IntN(200)
	m.serial++
	for i, l := range m.logs {
		p, err := l.Partition(name)
		require.NoError(m, err)
		off := p.Start() + Offset(part*float64(p.End().Offset-p.Start()))
		var result any
		switch {
		case choice < 60:
			key := fmt.Sprint("k", drawn%7)
			result, err = p.AppendRecords(context.Background(), Record{Time: int64(m.serial), Key: []byte(key), Value: []byte(strings.Repeat("v", drawn))})
		case choice < 80:
			result = readAll(m, p, off, ReadCommitted)
		case choice < 85:
			var at Offset
			at, _, err = p.OffsetAt(int64(part * float64(m.serial)))
			result = at
		case choice < 88:
			err = p.DeleteBefore(off)
			result = p.Start()
		case choice < 90:
			p.retain()
			result = p.Start()
		case choice < 92 && p.spec().Compact:
			_, err = p.Compact(context.Background())
		case choice < 94 && off >= p.compaction.touched:
			err = p.TruncateTo(off)
			result = p.End()
		case choice < 97:
			err = p.Sync(context.Background())
		case choice == 97 && drawn < 60:
			p.mu.Lock()
			if p.active().end.Load() > 0 {
				_, err = p.rollLocked(Offset(p.end.Load()), m.time)
			}
			p.mu.Unlock()
		}
		require.NoError(m, err, "%s of %s", name, []string{"few", "many"}[i])
		results[i] = fmt.Sprint(result)
	}
	require.Equal(m, results[1], results[0])
}

func (m *manyPartitions) reopen(o [2]Options) {
	for i := range m.logs {
		require.NoError(m, m.logs[i].Close())
	}
	require.Zero(m, m.files.files.Load(), "files open after Close")
	require.Zero(m, m.files.maps.Load())
	for i := range m.logs {
		m.logs[i] = mustOpen(m, o[i])
	}
}

// TestFewOpenSegments does the same random things to 50 partitions with at most four
// segments open and to 50 without a bound, and shows that they answer alike, and that no
// more than four files and mappings are there whenever nothing is under way.
func TestFewOpenSegments(t *testing.T) {
	runs, steps := *boundedRuns, 1500
	if testing.Short() {
		runs, steps = 2, 600
	}
	for seed := range uint64(runs) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &manyPartitions{TB: t, random: rand.New(rand.NewPCG(seed, 5)), files: &countedFS{FS: vfs.NewMem()}, time: time.UnixMilli(1e12), bound: 4}
			o := [2]Options{m.options(0), m.options(1)}
			for i := range m.logs {
				m.logs[i] = mustOpen(t, o[i])
			}
			for i := range manyTopics {
				spec := TopicSpec{Partitions: 5, Sync: []Sync{SyncByOS, SyncAlways, SyncEvery(time.Millisecond)}[i%3]}
				switch i % 3 {
				case 0:
					spec.Compact, spec.TombstoneRetention = true, 1
				case 1:
					spec.RetentionBytes = 3000
				}
				for _, l := range m.logs {
					require.NoError(t, l.Create(fmt.Sprint("t", i), spec))
				}
			}
			for range steps {
				m.step()
				m.time = m.time.Add(time.Second)
				// What a worker has in use at this moment may come on top.
				busy := int64(0)
				for p := range m.logs[0].Partitions() {
					if p.worker.state.Load() != idle {
						busy++
					}
				}
				require.LessOrEqual(t, m.files.maps.Load(), 4+busy)
				require.LessOrEqual(t, m.files.files.Load(), 4+busy)
				if m.random.IntN(300) == 0 {
					m.reopen(o)
				}
			}
			m.reopen(o)
			for p := range m.logs[0].Partitions() {
				q, err := m.logs[1].Partition(p.Name())
				require.NoError(t, err)
				require.Equal(t, q.Start(), p.Start())
				require.Equal(t, q.End(), p.End())
				require.Equal(t, readAll(t, q, q.Start(), ReadUncommitted), readAll(t, p, p.Start(), ReadUncommitted))
			}
			for _, l := range m.logs {
				require.NoError(t, l.Close())
			}
		})
	}
}

// threePartitions opens a log that has at most one segment open, with three partitions.
func threePartitions(t *testing.T, files vfs.FS, policy Sync) (*Log, []*Partition) {
	o := small(files)
	o.MaxOpenSegments = 1
	l := mustOpen(t, o)
	require.NoError(t, l.Create("t", TopicSpec{Partitions: 3, Sync: policy}))
	var all []*Partition
	for p := range l.Partitions() {
		all = append(all, p)
	}
	return l, all
}

// A segment that cannot be opened again is an error of the append or the read that needs
// it, and of nothing else: with a descriptor to spare, both go on where they were.
func TestSegmentCannotBeOpenedAgain(t *testing.T) {
	files := &countedFS{FS: vfs.NewMem()}
	l, p := threePartitions(t, files, SyncByOS)
	var want []string
	for i := range 3 {
		add(t, p[0], time.UnixMilli(int64(i)))
		want = append(want, fmt.Sprintf("%d:%s", i, strings.Repeat("x", 160)))
	}
	add(t, p[1], time.UnixMilli(1)) // closes that of the first one
	files.refuse.Store(true)

	_, err := p[0].Append(t.Context(), batchOf(plain, 1, "refused"))
	require.ErrorIs(t, err, syscall.EMFILE)
	r := p[0].Reader(1, ReadCommitted)
	_, err = r.Next()
	require.ErrorIs(t, err, syscall.EMFILE)
	_, _, err = p[0].OffsetAt(0)
	require.ErrorIs(t, err, syscall.EMFILE)
	require.NoError(t, p[0].Sync(t.Context()), "it was durable before it was closed")
	require.NoError(t, p[0].Failed())

	files.refuse.Store(false)
	b, err := r.Next()
	require.NoError(t, err)
	require.EqualValues(t, 1, b.First)
	r.Close()
	require.Equal(t, want, readAll(t, p[0], 0, ReadCommitted))
	got, err := p[0].Append(t.Context(), batchOf(plain, 1, "taken"))
	require.NoError(t, err)
	require.EqualValues(t, 3, got.Base)
	require.NoError(t, l.Close())
}

// A segment is closed only when what it holds is on disk. When that fails, its partition
// is offline, and the one whose append needed room goes on.
func TestClosingASegmentSyncsIt(t *testing.T) {
	mem := vfs.NewMem()
	l, p := threePartitions(t, mem, SyncByOS)
	var synced []string
	fail := false
	mem.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, logSuffix) {
			synced = append(synced, op.Name)
			if fail {
				return errInjected
			}
		}
		return nil
	})
	add(t, p[0], time.UnixMilli(1))
	require.Empty(t, synced)
	add(t, p[1], time.UnixMilli(1))
	require.Equal(t, []string{"log/t-0/00000000000000000000.log"}, synced)
	require.Zero(t, p[0].Durable(), "its directory is not synced yet")
	require.NoError(t, p[0].Sync(t.Context()))
	require.Len(t, synced, 1, "nothing was written since")

	fail = true
	add(t, p[2], time.UnixMilli(1))
	require.Equal(t, []string{"log/t-0/00000000000000000000.log", "log/t-1/00000000000000000000.log"}, synced)
	require.ErrorIs(t, p[1].Failed(), errInjected)
	_, err := p[1].Append(t.Context(), batchOf(plain, 1, "v"))
	require.ErrorIs(t, err, ErrOffline)
	fail = false
	require.NoError(t, p[2].Failed())
	add(t, p[2], time.UnixMilli(1))
	require.Error(t, l.Close(), "of the failed one")
}

// A segment whose sync failed is not durable, whoever syncs it then: it may be closed to make
// room while the partition's worker is about to sync it too, which opens it again.
func TestSegmentIsNotSyncedAgain(t *testing.T) {
	mem := vfs.NewMem()
	l, p := threePartitions(t, mem, SyncByOS)
	defer l.abandon()
	fail := true
	mem.SetHook(func(op vfs.Op) error {
		if fail && op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, logSuffix) {
			return errInjected
		}
		return nil
	})
	add(t, p[0], time.UnixMilli(1))
	s := p[0].active()
	s.close()
	fail = false
	require.ErrorIs(t, s.sync(), errInjected)
	require.ErrorIs(t, s.settle(), errInjected)
	require.False(t, s.isSynced())
	require.ErrorIs(t, p[0].Sync(t.Context()), errInjected)
	require.Zero(t, p[0].Durable())
}

// A reader that waits at the end keeps no segment open, and one that is at work does.
func TestReaderAtTheEndPinsNothing(t *testing.T) {
	files := &countedFS{FS: vfs.NewMem()}
	l, p := threePartitions(t, files, SyncByOS)
	defer l.Close()
	var readers []*Reader
	for _, p := range p {
		add(t, p, time.UnixMilli(1))
		r := p.Reader(0, ReadCommitted)
		defer r.Close()
		_, err := r.Next()
		require.NoError(t, err)
		readers = append(readers, r)
	}
	require.EqualValues(t, 3, files.maps.Load())
	for _, r := range readers {
		_, err := r.Next()
		require.Error(t, err, "the end")
	}
	require.EqualValues(t, 1, files.maps.Load())
	add(t, p[0], time.UnixMilli(1))
	add(t, p[1], time.UnixMilli(1))
	require.EqualValues(t, 1, files.maps.Load())
	for i, n := range []int{1, 1, 0} {
		for range n {
			b, err := readers[i].Next()
			require.NoError(t, err)
			require.EqualValues(t, 1, b.First)
		}
		_, err := readers[i].Next()
		require.Error(t, err)
	}
}

// TestCrashWithOneOpenSegment writes to three partitions in turn, so that each append
// closes a segment and opens another one, stops at every file operation, and shows that
// nothing is lost that was promised: under SyncAlways by a power cut, otherwise by a
// kill.
func TestCrashWithOneOpenSegment(t *testing.T) {
	for _, policy := range []Sync{SyncAlways, SyncByOS} {
		// scenario returns how many records of each partition were acknowledged.
		scenario := func(mem *vfs.Mem) (acked [3]Offset, err error) {
			o := small(mem)
			o.MaxOpenSegments = 1
			l, err := Open("log", o)
			if err != nil {
				return acked, err
			}
			defer l.abandon()
			if err := l.Create("t", TopicSpec{Partitions: 3, Sync: policy}); err != nil {
				return acked, err
			}
			for i := range 18 {
				p, err := l.Partition(TopicPartition{Topic: "t", Partition: PartitionID(i % 3)})
				if err != nil {
					return acked, err
				}
				got, err := p.Append(context.Background(), batchOf(plain, 1, fmt.Sprintf("%d %s", i/3, strings.Repeat("x", 300))))
				if err != nil {
					return acked, err
				}
				acked[i%3] = got.Last + 1
			}
			return acked, l.Close()
		}
		whole := vfs.NewMem()
		_, err := scenario(whole)
		require.NoError(t, err)
		total := whole.Ops()
		for n := int64(1); n <= total; n += sampled[int64](7) {
			mem := vfs.NewMem()
			random := rand.New(rand.NewPCG(*crashSeed, uint64(n)))
			var mu sync.Mutex // the worker calls the hook too
			mem.SetHook(func(op vfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case op.N < n:
					if random.IntN(8) == 0 {
						mem.WriteBack(random.Uint64())
					}
					return nil
				case op.Length > 0 && random.IntN(2) == 0:
					return vfs.StopPartway(random.Int64N(op.Length))
				}
				return vfs.ErrStopped
			})
			acked, err := scenario(mem)
			if !errors.Is(err, vfs.ErrStopped) {
				require.NoError(t, err)
			}
			if policy == SyncAlways {
				mem = mem.Crash(*crashSeed)
			} else {
				mem = mem.Kill()
			}
			l, all := threePartitions(t, mem, policy)
			for i, p := range all {
				seen := readAll(t, p, 0, ReadUncommitted)
				require.GreaterOrEqual(t, len(seen), int(acked[i]), "stopped at operation %d of %d, %s, partition %d", n, total, policy, i)
				for j, s := range seen {
					require.Equal(t, fmt.Sprintf("%d:%d %s", j, j, strings.Repeat("x", 300)), s, "operation %d", n)
				}
			}
			for _, p := range all {
				add(t, p, time.UnixMilli(1))
			}
			require.NoError(t, l.Close())
		}
	}
}
