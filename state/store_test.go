package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	logvfs "github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic/codec"
)

// changelog is a changelog on the real log, with what a store must hold at each of
// its checkpoints. Checkpoint 0 is the empty one.
type changelog struct {
	t      testing.TB
	fs     *logvfs.Mem
	log    *log.Log
	p      *log.Partition
	next   log.ProducerID
	late   time.Duration // added to the clock
	marks  []Mark
	states []map[string]string
}

func newChangelog(t testing.TB) *changelog {
	c := &changelog{t: t, fs: logvfs.NewMem(), next: 1, marks: []Mark{{}}, states: []map[string]string{{}}}
	c.open()
	t.Cleanup(func() { c.log.Close() })
	return c
}

func (c *changelog) open() {
	var err error
	c.log, err = log.Open("log", log.Options{FS: c.fs, SegmentBytes: 64 << 10, CompactionInterval: -1, MaxBatchBytes: 64 << 10,
		Now: func() time.Time { return time.Now().Add(c.late) }})
	require.NoError(c.t, err)
	require.NoError(c.t, c.log.Create("changelog", log.TopicSpec{Partitions: 1, Compact: true}))
	c.p, err = c.log.Partition(log.TopicPartition{Topic: "changelog"})
	require.NoError(c.t, err)
}

// kill goes on with a process killed and started again: the leader epoch grows.
func (c *changelog) kill() {
	c.fs = c.fs.Kill()
	c.log.Close()
	c.open()
}

// write appends changes, "" for a deletion, in a transaction that stays open.
func (c *changelog) write(changes map[string]string) (log.ProducerID, log.Position) {
	id := c.next
	c.next++
	var b log.BatchBuilder
	var end log.Position
	sequence := int32(0)
	send := func() {
		if b.Len() == 0 {
			return
		}
		r, err := c.p.Append(c.t.Context(), b.Finish(log.Producer{ID: id, Sequence: sequence, Transactional: true}))
		require.NoError(c.t, err)
		end = r.End
		sequence += int32(b.Len())
		b.Reset()
	}
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		value := append([]byte{valueVersion}, changes[key]...)
		if changes[key] == "" {
			value = nil
		}
		b.Add(0, append([]byte{kindValue}, key...), value, nil)
		if b.Size() > 4<<10 {
			send()
		}
	}
	send()
	return id, end
}

// commit writes changes as the next checkpoint.
func (c *changelog) commit(changes map[string]string) Mark {
	id, end := c.write(changes)
	state := maps.Clone(c.states[len(c.states)-1])
	for key, value := range changes {
		state[key] = value
		if value == "" {
			delete(state, key)
		}
	}
	if len(changes) == 0 {
		end = c.marks[len(c.marks)-1].End
	}
	_, err := c.p.EndTransaction(id, true)
	require.NoError(c.t, err)
	m := Mark{Attempt: 1, N: int64(len(c.marks)), End: end}
	c.marks = append(c.marks, m)
	c.states = append(c.states, state)
	return m
}

// commitRecords writes records as the next checkpoint, after which the state is as write returns.
func (c *changelog) commitRecords(write func(put func(key, value []byte)) map[string]string) Mark {
	id := c.next
	c.next++
	var b log.BatchBuilder
	state := write(func(key, value []byte) { b.Add(0, key, value, nil) })
	r, err := c.p.Append(c.t.Context(), b.Finish(log.Producer{ID: id, Transactional: true}))
	require.NoError(c.t, err)
	_, err = c.p.EndTransaction(id, true)
	require.NoError(c.t, err)
	m := Mark{Attempt: 1, N: int64(len(c.marks)), End: r.End}
	c.marks = append(c.marks, m)
	c.states = append(c.states, state)
	return m
}

// abort writes changes that come to nothing.
func (c *changelog) abort(changes map[string]string) {
	id, _ := c.write(changes)
	_, err := c.p.EndTransaction(id, false)
	require.NoError(c.t, err)
}

// random returns changes of up to n of keys.
func randomChanges(rng *rand.Rand, n, keys int) map[string]string {
	changes := make(map[string]string)
	for range rng.IntN(n + 1) {
		key := fmt.Sprintf("key%d", rng.IntN(keys))
		changes[key] = fmt.Sprint("value", rng.IntN(1000))
		if rng.IntN(4) == 0 {
			changes[key] = ""
		}
	}
	return changes
}

// store opens a store on db.
func (c *changelog) store(db DB, change ...func(*StoreOptions)) *Store {
	o := StoreOptions{DB: db, Changelog: c.p, Name: "test", Linger: -1}
	for _, f := range change {
		f(&o)
	}
	s, err := OpenStore(o)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, s.Close()) })
	return s
}

func manual(o *StoreOptions) { o.Manual = true }

// holds checks that the store is at mark m and holds exactly its state.
func (c *changelog) holds(s *Store, m Mark) {
	c.t.Helper()
	require.Equal(c.t, m, s.Mark())
	require.Equal(c.t, c.states[m.N], storeContent(c.t, s), "checkpoint %d", m.N)
	value, ok, err := s.o.DB.Get(markKey)
	require.NoError(c.t, err)
	require.True(c.t, ok)
	p, err := parseProgress(value)
	require.NoError(c.t, err)
	require.Equal(c.t, progress{m, m.End}, p, "the mark is in the database")
}

func storeContent(t testing.TB, s *Store) map[string]string {
	t.Helper()
	got := make(map[string]string)
	for e, err := range s.Range(nil, nil) {
		require.NoError(t, err)
		got[string(e.Key)] = string(e.Value)
	}
	return got
}

func memoryDatabase(t testing.TB) DB {
	db, err := Memory().Open("")
	require.NoError(t, err)
	return db
}

// TestStoreFollows takes a store from checkpoint to checkpoint over committed,
// aborted and open transactions, and compares it with the fold of the committed
// ones. In between it is reopened, rolled back and caught up.
func TestStoreFollows(t *testing.T) {
	rng := newRand(t)
	for _, step := range []int64{0, 1, 2 << 10} {
		t.Run(fmt.Sprint("StepBytes=", step), func(t *testing.T) {
			c := newChangelog(t)
			db := memoryDatabase(t)
			open := func() *Store {
				return c.store(db, manual, func(o *StoreOptions) { o.StepBytes = step })
			}
			s := open()
			at := 0
			for range 150 {
				if rng.IntN(3) == 0 {
					c.abort(randomChanges(rng, 50, 100))
				}
				m := c.commit(randomChanges(rng, 50, 100))
				switch rng.IntN(6) {
				case 0, 1: // the store stays where it is
				case 2:
					s = open()
					require.Equal(t, c.marks[at], s.Mark())
					at = at + rng.IntN(len(c.marks)-at)
					require.NoError(t, s.CatchUp(t.Context(), c.marks[at]))
					c.holds(s, c.marks[at])
				default:
					require.NoError(t, s.Follow(t.Context(), m))
					at = int(m.N)
					c.holds(s, m)
				}
			}
			require.Zero(t, s.Stats().Rebuilds)
			before := s.Stats()
			require.NoError(t, s.CatchUp(t.Context(), c.marks[50]))
			c.holds(s, c.marks[50])
			require.EqualValues(t, 1, s.Stats().Rebuilds-before.Rebuilds, "a store ahead is rebuilt")
			require.NoError(t, s.CatchUp(t.Context(), c.marks[0]))
			c.holds(s, c.marks[0])
			require.NoError(t, s.CatchUp(t.Context(), c.marks[150]))
			c.holds(s, c.marks[150])
			for key, want := range c.states[150] {
				value, ok, err := s.Get([]byte(key))
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, want, string(value))
			}
		})
	}
}

// TestStoreHasNothingUncommitted is case C-18 for the store: killed while a
// transaction is in the changelog but not decided, it comes back with what was
// committed, and goes on with what is committed later.
func TestStoreHasNothingUncommitted(t *testing.T) {
	c := newChangelog(t)
	disk, dir := Disk(1<<20), filepath.Join(t.TempDir(), "db")
	db, err := disk.Open(dir)
	require.NoError(t, err)
	s := c.store(db, manual)
	c.commit(map[string]string{"a": "1"})
	m := c.commit(map[string]string{"a": "2", "b": "1"})
	open, _ := c.write(map[string]string{"a": "3", "b": "2"})
	require.NoError(t, s.Follow(t.Context(), m))
	c.holds(s, m)
	require.NoError(t, s.Close())
	require.NoError(t, db.Close())

	c.kill()
	db, err = disk.Open(dir)
	require.NoError(t, err)
	defer db.Close()
	s = c.store(db, manual)
	_, err = c.p.EndTransaction(open, false)
	require.NoError(t, err)
	require.NoError(t, s.CatchUp(t.Context(), m))
	c.holds(s, m)
	require.Equal(t, map[string]string{"a": "2", "b": "1"}, storeContent(t, s))
	m = c.commit(map[string]string{"a": "4", "b": "2", "c": "1"})
	require.NoError(t, s.Follow(t.Context(), m))
	require.Equal(t, map[string]string{"a": "4", "b": "2", "c": "1"}, storeContent(t, s))
	require.Zero(t, s.Stats().Rebuilds)
}

// TestStoreWhosePositionIsGone shows that a store whose position the changelog
// has lost, as after a power cut, is rebuilt, although the changelog is long
// enough again.
func TestStoreWhosePositionIsGone(t *testing.T) {
	c := newChangelog(t)
	db := memoryDatabase(t)
	s := c.store(db, manual)
	kept := c.commit(map[string]string{"a": "1", "b": "1"})
	lost := c.commit(map[string]string{"a": "2", "c": "2"})
	require.NoError(t, s.Follow(t.Context(), lost))
	require.NoError(t, s.Close())

	require.NoError(t, c.p.TruncateTo(kept.End.Offset+1)) // the marker stays
	c.kill()
	c.marks, c.states = c.marks[:2], c.states[:2]
	for c.p.End().Offset < lost.End.Offset+5 {
		c.commit(map[string]string{"b": fmt.Sprint(c.p.End().Offset)})
	}
	last := c.marks[len(c.marks)-1]
	require.Greater(t, last.End.Epoch, lost.End.Epoch)
	s = c.store(db, manual)
	require.ErrorIs(t, s.CatchUp(t.Context(), lost), ErrNotInChangelog)
	require.NoError(t, s.CatchUp(t.Context(), last))
	c.holds(s, last)
	require.EqualValues(t, 1, s.Stats().Rebuilds)
}

// TestStoreBelowLogStart shows that a store that has missed deleted records starts
// over with what there is.
func TestStoreBelowLogStart(t *testing.T) {
	c := newChangelog(t)
	db := memoryDatabase(t)
	s := c.store(db, manual)
	first := c.commit(map[string]string{"a": "1"})
	require.NoError(t, s.Follow(t.Context(), first))
	second := c.commit(map[string]string{"b": "1"})
	third := c.commit(map[string]string{"c": "1"})
	require.NoError(t, c.p.DeleteBefore(second.End.Offset))
	require.NoError(t, s.CatchUp(t.Context(), third))
	require.Equal(t, map[string]string{"c": "1"}, storeContent(t, s))
	require.EqualValues(t, 1, s.Stats().Rebuilds)
}

// brokenDB fails after a number of batches.
type brokenDB struct {
	DB
	left atomic.Int64
}

var errBroken = errors.New("broken")

func (db *brokenDB) Apply(b Batch) error {
	if db.left.Add(-1) < 0 {
		return errBroken
	}
	return db.DB.Apply(b)
}

// TestStoreInterruptedStep stops a step that takes several batches after each of
// them. Replayed to the step's target or beyond, the store is right; it must not
// be taken for one at its old checkpoint, and is rebuilt when it must go there.
func TestStoreInterruptedStep(t *testing.T) {
	rng := newRand(t)
	c := newChangelog(t)
	const keys = 400
	change := func() map[string]string {
		changes := make(map[string]string)
		for i := range keys {
			if rng.IntN(10) != 0 {
				changes[fmt.Sprint("key", i)] = fmt.Sprint(len(c.marks))
			}
		}
		return changes
	}
	for range 3 {
		c.commit(change())
	}
	for _, stepBytes := range []int64{0, 10 << 10} {
		rebuilds := 0
		for tries := 0; ; tries++ {
			batches := int64(tries / 5)
			db := &brokenDB{DB: memoryDatabase(t)}
			db.left.Store(1 << 40)
			options := func(o *StoreOptions) { o.Manual, o.StepBytes = true, stepBytes }
			s := c.store(db, options)
			require.NoError(t, s.CatchUp(t.Context(), c.marks[1]))
			s.batchEntries = 40
			db.left.Store(batches)
			err := s.Follow(t.Context(), c.marks[2])
			if err == nil {
				require.Greater(t, batches, int64(2), "the step takes several batches")
				break
			}
			require.ErrorIs(t, err, errBroken)
			require.NoError(t, s.Close())
			db.left.Store(1 << 40)

			to := c.marks[1+rng.IntN(3)]
			s = c.store(db, options)
			s.batchEntries = 40
			require.NoError(t, s.CatchUp(t.Context(), to))
			c.holds(s, to)
			rebuilds += int(s.Stats().Rebuilds)
			if batches > 0 && to.N == 1 {
				require.EqualValues(t, 1, s.Stats().Rebuilds)
			}
			if to.N > 1 {
				require.Zero(t, s.Stats().Rebuilds)
			}
		}
		t.Logf("StepBytes %d: %d rebuilds", stepBytes, rebuilds)
	}
}

// TestStoreClosesWindows takes a store through windows that fill, close and come back, in
// steps of any length that fail in between, and compares it with the fold of the changelog.
func TestStoreClosesWindows(t *testing.T) {
	rng := newRand(t)
	c := newChangelog(t)
	model := make(map[string]string)
	key := func(start int64, i int) string {
		return string(AppendWindowKey(nil, start, fmt.Appendf(nil, "key%d", i)))
	}
	for n := int64(1); n <= 60; n++ {
		closing := int64(-1)
		if n%3 == 0 {
			closing = rng.Int64N(4)
		}
		c.commitRecords(func(put func(key, value []byte)) map[string]string {
			if closing >= 0 {
				put(appendClosedKey(nil, closing), nil)
				for i := range 30 {
					if _, ok := model[key(closing, i)]; ok {
						put(StoredKey([]byte(key(closing, i))), nil)
						delete(model, key(closing, i))
					}
				}
			}
			for range 1 + rng.IntN(40) {
				k := key(rng.Int64N(4), rng.IntN(30))
				if rng.IntN(5) == 0 {
					put(StoredKey([]byte(k)), nil)
					delete(model, k)
					continue
				}
				model[k] = fmt.Sprint(n)
				put(StoredKey([]byte(k)), append([]byte{valueVersion}, model[k]...))
			}
			return maps.Clone(model)
		})
	}
	for round := range 30 * *roundFlag {
		db := &brokenDB{DB: memoryDatabase(t)}
		db.left.Store(1 << 40)
		at, broken := 0, 0
		for at < 60 {
			s := c.store(db, manual, func(o *StoreOptions) { o.StepBytes = int64(1 + rng.IntN(8<<10)) })
			s.batchEntries = 5
			db.left.Store(int64(rng.IntN(12)))
			to := at + 1 + rng.IntN(min(20, 60-at))
			err := s.CatchUp(t.Context(), c.marks[to])
			if db.left.Store(1 << 40); err != nil {
				require.ErrorIs(t, err, errBroken)
				broken++
				require.NoError(t, s.CatchUp(t.Context(), c.marks[to]), "round %d", round)
			}
			require.Zero(t, s.Stats().Rebuilds)
			c.holds(s, c.marks[to])
			require.NoError(t, s.Close())
			at = to
		}
	}
	// A window closed within a step is one range, whatever it had.
	db := &countingDB{DB: memoryDatabase(t)}
	s := c.store(db, manual)
	require.NoError(t, s.CatchUp(t.Context(), c.marks[60]))
	c.holds(s, c.marks[60])
	require.Positive(t, db.ranges)
	require.LessOrEqual(t, db.ranges, 4)
}

// countingDB counts the ranges it is to remove.
type countingDB struct {
	DB
	ranges int
}

func (db *countingDB) Apply(b Batch) error {
	db.ranges += len(b.Ranges)
	return db.DB.Apply(b)
}

// TestFollowerCoalesces shows that marks that wait together become one step, which
// writes each key once.
func TestFollowerCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChangelog(t)
		s := c.store(memoryDatabase(t), func(o *StoreOptions) { o.Linger = 0 })
		var last Mark
		for i := range 50 {
			last = c.commit(map[string]string{"a": fmt.Sprint(i), "b": "", fmt.Sprint("c", i%5): "x"})
			require.NoError(t, s.Follow(t.Context(), last))
		}
		synctest.Wait()
		require.Zero(t, s.Stats().Steps, "the follower lingers")
		require.NoError(t, s.Reach(t.Context(), last))
		c.holds(s, last)
		require.Equal(t, Stats{Steps: 1, Records: 150, Applied: 7}, s.Stats())
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Follow(t.Context(), last), ErrClosed)
		_, _, err := s.Get([]byte("a"))
		require.ErrorIs(t, err, ErrClosed)
		c.log.Close()
	})
}

// gatedDB waits in Apply until the gate is opened.
type gatedDB struct {
	DB
	gate chan struct{}
}

func (db *gatedDB) Apply(b Batch) error {
	<-db.gate
	return db.DB.Apply(b)
}

// TestFollowIsBounded shows that Follow blocks when the follower lags too far, that
// the end of its context ends the waiting, and that it goes on with the follower.
func TestFollowIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChangelog(t)
		db := &gatedDB{memoryDatabase(t), make(chan struct{})}
		s := c.store(db, func(o *StoreOptions) { o.MaxLag = 10 })
		for range 5 {
			require.NoError(t, s.Follow(t.Context(), c.commit(map[string]string{"a": "1"})), "a lag of 10 is allowed")
		}
		last := c.commit(map[string]string{"a": "2"})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- s.Follow(ctx, last) }()
		synctest.Wait()
		require.Empty(t, result, "Follow blocks")
		cancel()
		require.ErrorIs(t, <-result, context.Canceled)
		go func() { result <- s.Follow(t.Context(), last) }()
		synctest.Wait()
		require.Empty(t, result)
		close(db.gate)
		require.NoError(t, <-result)
		require.NoError(t, s.Reach(t.Context(), last))
		c.holds(s, last)
		require.NoError(t, s.Close())
		c.log.Close()
	})
}

// TestFollowerErrorIsKept shows that what stopped the follower is returned by all
// that follows, and that a store opened anew goes on.
func TestFollowerErrorIsKept(t *testing.T) {
	c := newChangelog(t)
	db := &brokenDB{DB: memoryDatabase(t)}
	s := c.store(db)
	m := c.commit(map[string]string{"a": "1"})
	require.NoError(t, s.Follow(t.Context(), m))
	require.ErrorIs(t, s.Reach(t.Context(), m), errBroken)
	require.ErrorIs(t, s.Follow(t.Context(), m), errBroken)
	require.ErrorIs(t, s.CatchUp(t.Context(), m), errBroken)
	_, _, err := s.Get([]byte("a"))
	require.ErrorIs(t, err, errBroken)
	require.ErrorContains(t, err, `store "test"`)
	require.NoError(t, s.Close())
	db.left.Store(100)
	s = c.store(db)
	require.NoError(t, s.CatchUp(t.Context(), m))
	c.holds(s, m)
}

// TestStoreRefusesUnknownFormats shows that data of a later version is an error
// that says so, in the mark, in a value and in the changelog.
func TestStoreRefusesUnknownFormats(t *testing.T) {
	c := newChangelog(t)
	db := memoryDatabase(t)
	s := c.store(db, manual)
	require.NoError(t, db.Apply(Batch{Entries: []Entry{{Key: []byte("\x01a"), Value: []byte("\x02value")}}}))
	_, _, err := s.Get([]byte("a"))
	require.ErrorIs(t, err, ErrVersion)
	for _, err := range s.Range(nil, nil) {
		require.ErrorIs(t, err, ErrVersion)
	}
	require.NoError(t, db.Apply(Batch{Entries: []Entry{{Key: markKey, Value: []byte("\x02")}}}))
	_, err = OpenStore(StoreOptions{DB: db, Changelog: c.p, Name: "test"})
	require.ErrorIs(t, err, ErrVersion)
	require.ErrorContains(t, err, "newer version")

	for _, key := range []string{"\x02a", "", "\x00m"} {
		r, err := c.p.AppendRecords(t.Context(), log.Record{Key: []byte(key), Value: []byte("\x01")})
		require.NoError(t, err)
		s := c.store(memoryDatabase(t), manual)
		require.ErrorIs(t, s.CatchUp(t.Context(), Mark{1, 1, r.End}), ErrVersion)
		require.NoError(t, c.p.TruncateTo(0))
	}
	_, err = OpenStore(StoreOptions{Changelog: c.p})
	require.ErrorContains(t, err, "DB")
	_, err = OpenStore(StoreOptions{DB: db})
	require.ErrorContains(t, err, "Changelog")
	_, err = OpenStore(StoreOptions{DB: db, Changelog: c.p, MaxLag: -1})
	require.ErrorContains(t, err, "MaxLag")
}

// TestStoreCrash stops a store's database at operations on its files, every one
// with -rounds=8, while it follows a changelog. Whatever is left, its position and its values belong
// together: it catches up with the newest checkpoint, and with any checkpoint in
// between by replaying, without ever being taken for further than it is.
func TestStoreCrash(t *testing.T) {
	rng := newRand(t)
	c := newChangelog(t)
	every := max(1, 8 / *roundFlag)
	if testing.Short() {
		every *= 4
	}
	fs := newCrashes(rng, every)
	db, err := smallDisk(fs).Open("db")
	require.NoError(t, err)
	s := c.store(db, manual, func(o *StoreOptions) { o.StepBytes, o.FlushBytes = 48<<10, 64<<10 })
	for range 80 {
		if rng.IntN(4) == 0 {
			c.abort(randomChanges(rng, 100, 2000))
		}
		m := c.commit(randomChanges(rng, 1+rng.IntN(2000), 2000))
		if rng.IntN(3) != 0 {
			require.NoError(t, s.Follow(t.Context(), m))
		}
	}
	require.NoError(t, s.CatchUp(t.Context(), c.marks[80]))
	require.NoError(t, s.Close())
	require.NoError(t, db.Close())
	reopen := func(fs *vfs.MemFS) (*Store, DB) {
		db, err := smallDisk(fs).Open("db")
		require.NoError(t, err)
		return c.store(db, manual), db
	}
	partial, positions := 0, make(map[log.Offset]bool)
	for i, crashed := range fs.copies {
		s, db := reopen(crashed)
		p := s.current()
		positions[p.done.Offset] = true
		if p.complete() {
			c.holdsContent(s, p.target)
		} else {
			partial++
		}
		// To a checkpoint that is not behind where it was going, and to the last.
		to := c.marks[p.target.N+rng.Int64N(int64(len(c.marks))-p.target.N)]
		require.NoError(t, s.CatchUp(t.Context(), to), "after operation %d", i)
		c.holds(s, to)
		require.NoError(t, s.CatchUp(t.Context(), c.marks[80]))
		c.holds(s, c.marks[80])
		require.Zero(t, s.Stats().Rebuilds)
		require.NoError(t, s.Close())
		require.NoError(t, db.Close())
	}
	t.Logf("%d crashes, at %d positions, %d between checkpoints", len(fs.copies), len(positions), partial)
	require.Greater(t, len(positions), 5)
}

// holdsContent is holds for a store that may never have written a mark.
func (c *changelog) holdsContent(s *Store, m Mark) {
	c.t.Helper()
	require.Equal(c.t, c.states[m.N], storeContent(c.t, s), "checkpoint %d", m.N)
}

// TestStateKeepsSchemas shows that values written under a struct that has since
// got a field are read, from a store that was rebuilt from its changelog.
func TestStateKeepsSchemas(t *testing.T) {
	type oldVisit struct{ Count int64 }
	type newVisit struct {
		Pages string
		Count int64
	}
	c := newChangelog(t)
	checkpoint := func(table interface {
		Barrier(int64, func(key, value []byte) error) error
	}) Mark {
		var b log.BatchBuilder
		n := int64(len(c.marks))
		require.NoError(t, table.Barrier(n, func(key, value []byte) error {
			b.Add(0, key, value, nil)
			return nil
		}))
		r, err := c.p.Append(t.Context(), b.Finish(log.Producer{ID: log.NoProducer}))
		require.NoError(t, err)
		c.marks = append(c.marks, Mark{1, n, r.End})
		return c.marks[n]
	}
	s := c.store(memoryDatabase(t), manual)
	old := NewTable[oldVisit](s, codec.Struct[oldVisit]())
	for i := range 3 {
		key := fmt.Append(nil, "user", i)
		v, _, err := old.Update(Hash(key), key)
		require.NoError(t, err)
		v.Count = int64(i)
	}
	m := checkpoint(old)

	for range 2 {
		s = c.store(memoryDatabase(t), manual)
		require.NoError(t, s.CatchUp(t.Context(), m))
		table := NewTable[newVisit](s, codec.Struct[newVisit]())
		for i := range 3 {
			key := fmt.Append(nil, "user", i)
			v, ok, err := table.Get(Hash(key), key)
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, i, v.Count)
		}
		key := []byte("user0")
		v, _, err := table.Update(Hash(key), key)
		require.NoError(t, err)
		v.Pages = "some"
		m = checkpoint(table)
	}
	schemas := 0
	for range s.o.DB.Range(schemasBegin, schemasEnd) {
		schemas++
	}
	require.NoError(t, s.CatchUp(t.Context(), m))
	require.Equal(t, 2, schemas)
	require.EqualValues(t, 4+2+1, m.End.Offset, "a schema is written once")
}

// TestStoreBelowTheHorizon shows that a store whose position is below a deletion that
// is gone from its changelog is rebuilt, and one above it goes on; and that a store
// says of a database that keeps things in memory only what is on disk.
func TestStoreBelowTheHorizon(t *testing.T) {
	c := newChangelog(t)
	all := map[string]string{}
	for i := range 200 {
		all[fmt.Sprint("key", i)] = fmt.Sprintf("%0500d", i)
	}
	first := c.commit(all)
	behind, ahead := Memory(), Memory()
	open := func(db DB, err error) DB { require.NoError(t, err); return db }
	behindDB, aheadDB := open(behind.Open("behind")), open(ahead.Open("ahead"))
	require.NoError(t, c.store(behindDB).CatchUp(t.Context(), first))
	for key := range all {
		all[key] = ""
	}
	delete(all, "key7")
	c.commit(all)
	require.NoError(t, c.store(aheadDB).CatchUp(t.Context(), c.marks[2]))
	last := c.commit(map[string]string{"pad": fmt.Sprintf("%060000d", 0)}) // the segment before is sealed
	for range 3 {
		_, err := c.p.Compact(t.Context())
		require.NoError(t, err)
		c.late += 25 * time.Hour
	}
	require.Greater(t, c.p.Horizon(), first.End.Offset)
	require.LessOrEqual(t, c.p.Horizon(), c.marks[2].End.Offset+1)
	for db, rebuilds := range map[DB]int64{behindDB: 1, aheadDB: 0} {
		s := c.store(db)
		require.NoError(t, s.CatchUp(t.Context(), last))
		require.Equal(t, rebuilds, s.Stats().Rebuilds)
		require.Equal(t, last.End.Offset, s.Durable())
		found := map[string]string{}
		for e, err := range s.Range(nil, nil) {
			require.NoError(t, err)
			found[string(e.Key)] = string(e.Value)
		}
		require.Equal(t, c.states[3], found)
	}

	disk, err := newDisk(0, vfs.NewMem(), nil).Open("db")
	require.NoError(t, err)
	defer disk.Close()
	s := c.store(disk, func(o *StoreOptions) { o.FlushBytes = 1 })
	require.NoError(t, s.CatchUp(t.Context(), last))
	require.Eventually(t, func() bool { return s.Durable() == last.End.Offset }, 10*time.Second, time.Millisecond)
	next := c.commit(map[string]string{"new": "1"})
	lazy := c.store(disk)
	require.Equal(t, last.End.Offset, lazy.Durable(), "what was read from disk is there")
	require.NoError(t, lazy.CatchUp(t.Context(), next))
	require.Equal(t, last.End.Offset, lazy.Durable(), "nothing was flushed since")
}
