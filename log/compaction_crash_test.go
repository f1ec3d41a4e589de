package log

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// compactionScenario writes a log with all that compaction meets, which is durable
// when it returns, and then compacts it three times.
type compactionScenario struct {
	mem       *vfs.Mem
	log       *Log
	p         *Partition
	time      *clock
	compacted int // compactions completed
}

func newCompactionScenario(t testing.TB) *compactionScenario {
	s := &compactionScenario{mem: vfs.NewMem()}
	s.open(t)
	s.log.SetOwners(&blocks{})
	long := strings.Repeat("x", 100)
	end := func(id ProducerID, commit bool) {
		_, err := s.p.EndTransaction(id, commit)
		require.NoError(t, err)
	}
	for round := range 3 {
		id := ProducerID(100 + 100*round)
		write(t, s.p, keyed(plain, 1, fmt.Sprintf("a=%d", round), "b="+long, fmt.Sprintf("c%d=1", round)))
		write(t, s.p, keyed(Producer{ID: 7, Sequence: int32(3 * round)}, 1, fmt.Sprintf("d=%d%s", round, long), "b"))
		write(t, s.p, keyed(transactional(id, 0), 1, fmt.Sprintf("a=t%d", round), fmt.Sprintf("e=%d", round)))
		write(t, s.p, keyed(transactional(id+50, 0), 1, "a=bad", fmt.Sprintf("bad%d=%s", round, long)))
		write(t, s.p, keyed(Producer{ID: 7, Sequence: int32(3*round + 2)}, 1, fmt.Sprintf("f=%d", round)))
		end(id+50, false)
		write(t, s.p, keyed(transactional(id, 2), 1, fmt.Sprintf("c%d", round), "g="+long))
		end(id, true)
		if round == 1 {
			roll(t, s.p)
		}
	}
	roll(t, s.p)
	write(t, s.p, keyed(plain, 1, "a=last", "h=1"))
	write(t, s.p, keyed(transactional(900, 0), 1, "b=open"))
	require.NoError(t, s.log.Close())
	return s
}

// copy returns the scenario on files of its own, before the first compaction.
func (s *compactionScenario) copy(t testing.TB) *compactionScenario {
	c := &compactionScenario{mem: s.mem.Kill()}
	c.open(t)
	c.log.SetOwners(&blocks{})
	return c
}

func (s *compactionScenario) open(t testing.TB) {
	s.log, s.p, s.time = compactTopic(t, s.mem, TopicSpec{TombstoneRetention: 1000 * 1e6}, func(o *Options) {
		o.SegmentBytes, o.CompactionMemoryBytes = 700, 9*keySlotBytes
	})
}

// compact compacts as often as it takes until nothing more can go.
func (s *compactionScenario) compact() error {
	for s.compacted < 4 {
		s.time.ms = int64(1000 * s.compacted)
		if _, err := s.p.Compact(context.Background()); err != nil {
			return err
		}
		s.compacted++
	}
	return nil
}

// check holds a log that was opened after a crash against what it was.
func (s *compactionScenario) check(t testing.TB, table map[string]string, final []string) {
	require.Equal(t, table, fold(map[string]string{}, readKeyed(t, s.p, 0, ReadCommitted)))
	for _, record := range readKeyed(t, s.p, 0, ReadCommitted) {
		require.NotContains(t, record, "bad")
	}
	var open []ProducerID
	for _, o := range s.p.OpenTransactions() {
		open = append(open, o.ID)
	}
	require.Equal(t, []ProducerID{900}, open)
	// The last batches of an idempotent producer are known, the records gone or not.
	for i, base := range []Offset{3, 9, 17, 23, 31, 37}[1:] {
		i++
		batch := keyed(Producer{ID: 7, Sequence: int32(i/2*3 + i%2*2)}, 1, []string{"d,b", "f"}[i%2])
		if i%2 == 0 {
			batch = keyed(Producer{ID: 7, Sequence: int32(i / 2 * 3)}, 1, "d", "b")
		}
		got, err := s.p.Write(batch)
		require.NoError(t, err)
		require.True(t, got.Duplicate)
		require.Equal(t, base, got.Base, "batch %d", i)
	}
	_, err := s.p.Write(keyed(transactional(200, 4), 1, "late=1"))
	require.ErrorIs(t, err, ErrFenced)
	// And it can be compacted on, to the same result.
	require.NoError(t, s.compact())
	require.Equal(t, final, readKeyed(t, s.p, 0, ReadUncommitted))
	require.Equal(t, table, fold(map[string]string{}, readKeyed(t, s.p, 0, ReadCommitted)))
	names, err := s.mem.List("log/t-0")
	require.NoError(t, err)
	for _, name := range names {
		require.False(t, strings.HasSuffix(name, swapSuffix) || strings.HasSuffix(name, cleanedSuffix) || strings.HasSuffix(name, temporarySuffix), name)
	}
}

// TestCrashAtEveryOperationOfACompaction stops the process at every file operation
// of compactions that rewrite, merge and remove, kills it or cuts the power, and
// shows that the log folds to the same table afterwards, hides what it hid, knows its
// producers, and can be compacted on to the same result.
func TestCrashAtEveryOperationOfACompaction(t *testing.T) {
	scenario := newCompactionScenario(t)
	whole := scenario.copy(t)
	table := fold(map[string]string{}, readKeyed(t, whole.p, 0, ReadCommitted))
	from := whole.mem.Ops()
	require.NoError(t, whole.compact())
	final := readKeyed(t, whole.p, 0, ReadUncommitted)
	require.NotContains(t, fmt.Sprint(final), "bad")
	require.Equal(t, table, fold(map[string]string{}, readKeyed(t, whole.p, 0, ReadCommitted)))
	total := whole.mem.Ops()
	whole.log.abandon()
	step := sampled[int64](13)
	t.Logf("operations %d to %d, first seed %d", from, total, *crashSeed)
	for n := from + 1; n <= total; n += step {
		s := scenario.copy(t)
		random := rand.New(rand.NewPCG(*crashSeed, uint64(n)))
		partway := random.IntN(2) == 0
		s.mem.SetHook(func(op vfs.Op) error {
			switch {
			case op.N < n:
				if random.IntN(8) == 0 {
					s.mem.WriteBack(random.Uint64())
				}
				return nil
			case partway && op.N == n && op.Length > 0:
				return vfs.StopPartway(random.Int64N(op.Length))
			}
			return vfs.ErrStopped
		})
		err := s.compact()
		if err != nil && !errors.Is(err, vfs.ErrStopped) {
			t.Fatalf("operation %d: %v", n, err)
		}
		s.log.abandon()
		after := []*vfs.Mem{s.mem.Kill()}
		if random.IntN(2) == 0 {
			after[0] = after[0].Crash(uint64(n)) // later
		}
		for i := range *crashSeeds {
			after = append(after, s.mem.Crash(*crashSeed+uint64(i)))
		}
		for i, mem := range after {
			ok := t.Run(fmt.Sprintf("%d/%d", n, i), func(t *testing.T) {
				reopened := &compactionScenario{mem: mem, compacted: min(s.compacted, 3)}
				reopened.open(t)
				defer reopened.log.abandon()
				reopened.log.SetOwners(&blocks{})
				reopened.check(t, table, final)
			})
			if !ok {
				return
			}
		}
	}
}

// TestFailedCompaction shows that an operation that fails leaves the log as it was,
// or takes it offline when the new segment is half in its place.
func TestFailedCompaction(t *testing.T) {
	scenario := newCompactionScenario(t)
	whole := scenario.copy(t)
	table := fold(map[string]string{}, readKeyed(t, whole.p, 0, ReadCommitted))
	from := whole.mem.Ops()
	require.NoError(t, whole.compact())
	total := whole.mem.Ops()
	whole.log.abandon()
	offline := 0
	for n := from + 1; n <= total; n += 3 * sampled[int64](5) {
		s := scenario.copy(t)
		s.mem.SetHook(func(op vfs.Op) error {
			if op.N == n {
				return errInjected
			}
			return nil
		})
		err := s.compact()
		s.mem.SetHook(nil)
		require.True(t, err == nil || errors.Is(err, errInjected), "operation %d: %v", n, err)
		require.Equal(t, table, fold(map[string]string{}, readKeyed(t, s.p, 0, ReadCommitted)))
		if s.p.Failed() != nil {
			offline++
			require.ErrorIs(t, err, ErrOffline)
			_, err = s.p.Compact(context.Background())
			require.ErrorIs(t, err, ErrOffline)
		} else {
			require.NoError(t, s.compact())
		}
		s.log.abandon()
		s.mem = s.mem.Kill()
		s.open(t)
		require.Equal(t, table, fold(map[string]string{}, readKeyed(t, s.p, 0, ReadCommitted)), "operation %d", n)
		s.log.abandon()
	}
	require.Positive(t, offline)
}

// TestDamagedCompactionState shows that a state that cannot be read is made anew so
// that nobody relies on deletions that may be gone.
func TestDamagedCompactionState(t *testing.T) {
	s := newCompactionScenario(t).copy(t)
	require.NoError(t, s.compact())
	horizon, active := s.p.Horizon(), s.p.active().base
	require.Positive(t, horizon)
	want := readKeyed(t, s.p, 0, ReadUncommitted)
	require.NoError(t, s.log.Close())
	for at := range int64(compactionStateBytes) {
		damaged := s.mem.Kill()
		flip(t, damaged, "log/t-0/"+compactionFile, at)
		d := &compactionScenario{mem: damaged}
		d.open(t)
		require.Equal(t, active, d.p.Horizon())
		require.Equal(t, want, readKeyed(t, d.p, 0, ReadUncommitted))
		require.NoError(t, d.log.Close())
		d.open(t)
		require.Equal(t, active, d.p.Horizon())
		require.NoError(t, d.log.Close())
	}
	b := compactionState{cleaned: 5, touched: 9, horizon: 7, settleAt: -3}.encode()
	require.Equal(t, "thalwegC", string(b[:8]))
	require.Equal(t, []byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 7, 255, 255, 255, 255, 255, 255, 255, 253}, b[12:])
	got, err := decodeCompactionState(b)
	require.NoError(t, err)
	require.Equal(t, compactionState{cleaned: 5, touched: 9, horizon: 7, settleAt: -3}, got)
	b[15] = 2
	putSum(b)
	_, err = decodeCompactionState(b)
	require.ErrorIs(t, err, ErrVersion)
}

// TestSwapOfAnotherWriter shows that a segment that another writer was about to put
// in place together with more that are not whole yet does not take the place of those
// it was made of.
func TestSwapOfAnotherWriter(t *testing.T) {
	mem := vfs.NewMem()
	l, p, _ := compactTopic(t, mem, TopicSpec{}, nil)
	write(t, p, keyed(plain, 0, "a=1"))
	roll(t, p)
	write(t, p, keyed(plain, 0, "b=1"))
	want := readKeyed(t, p, 0, ReadCommitted)
	require.NoError(t, l.Close())
	write := func(name string, b []byte) {
		stamp(b, 0, 0)
		require.NoError(t, writeCacheFile(mem, "log/t-0/"+name, b))
	}
	write(offsetName(0, ".log.swap"), keyed(plain, 0, "c=1"))
	write(offsetName(0, ".log.cleaned"), keyed(plain, 0, "d=1"))
	write(offsetName(0, ".index.swap"), make([]byte, 16))
	l, p, _ = compactTopic(t, mem, TopicSpec{}, nil)
	require.Equal(t, want, readKeyed(t, p, 0, ReadCommitted))
	require.NoError(t, l.Close())
	names, err := mem.List("log/t-0")
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "swap") || strings.Contains(n, "cleaned") }), "%v", names)
	write(offsetName(0, ".log.swap"), keyed(plain, 0, "c=1"))
	l, p, _ = compactTopic(t, mem, TopicSpec{}, nil)
	defer l.Close()
	require.Equal(t, []string{"0 c=1", want[1]}, readKeyed(t, p, 0, ReadCommitted))
}
