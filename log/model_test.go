package log

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

var (
	modelRuns  = flag.Int("modelruns", 0, "random histories of the model test; 0 means 6, or enough for 100,000 operations without -short")
	modelSteps = flag.Int("modelsteps", 60, "rounds of up to 12 operations in each")
	modelSeed  = flag.Uint64("modelseed", 1, "first seed of the model test")
)

// modelRecord is one offset of the model.
type modelRecord struct {
	value string // unique
	time  int64
	base  Offset // of its batch
	last  Offset
	id    ProducerID
	seq   int32 // of the batch
	txn   bool
	end   verdict // of a marker
}

// model is a partition too simple to be wrong. What it holds after a crash is a
// prefix of what it held before.
type model struct {
	records []modelRecord // by offset, from 0
	start   Offset
	durable Offset // all below survives every crash
	serial  int

	// positions are those the log ever gave, with the value of the record before.
	positions map[Position]string
}

func (m *model) end() Offset { return Offset(len(m.records)) }

// verdicts returns how transactions ended, and the first offset of open ones.
func (m *model) verdicts() (ended map[ProducerID]verdict, open map[ProducerID]Offset) {
	ended, open = map[ProducerID]verdict{}, map[ProducerID]Offset{}
	for off, r := range m.records {
		if r.end != undecided {
			ended[r.id] = r.end
			delete(open, r.id)
		} else if _, is := open[r.id]; r.txn && !is {
			open[r.id] = Offset(off)
		}
	}
	return ended, open
}

func (m *model) stable() Offset {
	_, open := m.verdicts()
	stable := m.end()
	for _, first := range open {
		stable = min(stable, first)
	}
	return stable
}

// read returns what a reader from off sees.
func (m *model) read(off Offset, iso Isolation) (seen []string) {
	limit := m.end()
	if iso == ReadCommitted {
		limit = m.stable()
	}
	ended, _ := m.verdicts()
	for ; off < limit; off++ {
		r := m.records[off]
		if r.end == undecided && !(iso != ReadUncommitted && r.txn && ended[r.id] == aborted) {
			seen = append(seen, fmt.Sprintf("%d:%s", off, r.value))
		}
	}
	return seen
}

func (m *model) offsetAt(x int64) (Offset, bool) {
	for off := m.start; off < m.end(); off++ {
		if r := m.records[off]; r.end == undecided && r.time >= x {
			return off, true
		}
	}
	return 0, false
}

// lastBatch returns the newest batch of id.
func (m *model) lastBatch(id ProducerID) (r modelRecord, ok bool) {
	for _, r := range slices.Backward(m.records) {
		if r.id == id && r.end == undecided {
			return r, true
		}
	}
	return modelRecord{}, false
}

// modelRun drives log and model side by side.
type modelRun struct {
	testing.TB
	random *rand.Rand
	mem    *vfs.Mem
	o      Options
	spec   TopicSpec
	batch  int // records in a batch, at most
	owners *blocks
	log    *Log
	p      *Partition
	model  model
	nextID ProducerID
	steps  []string
	count  int                // operations
	hook   func(vfs.Op) error // of mem

	closing bool // Close was called and may have failed
}

func (r *modelRun) note(format string, args ...any) {
	r.steps = append(r.steps, fmt.Sprintf(format, args...))
}

func (r *modelRun) open() {
	r.o.FS = r.mem
	l, err := Open("log", r.o)
	require.NoError(r, err)
	if r.owners != nil {
		l.SetOwners(r.owners)
	}
	require.NoError(r, l.Create("t", r.spec))
	r.log, r.p = l, mustPartition(r, l, "t")
	r.log.owners = nil
	if r.owners != nil {
		l.SetOwners(r.owners)
	}
}

// reopened takes over what the log still has and compares all of it.
func (r *modelRun) reopened(clean bool) {
	m := &r.model
	end := r.p.End().Offset
	require.GreaterOrEqual(r, end, m.durable, "durable records are gone")
	require.LessOrEqual(r, end, m.end())
	if clean {
		require.Equal(r, m.end(), end)
	}
	// A stop is clean, too, when only the last step of Close was cut off.
	require.True(r, r.p.Recovery().Clean == clean || r.closing && end == m.end())
	m.records = m.records[:end]
	m.durable = end
	require.Equal(r, end, r.p.Durable())
	r.compare()
}

func (r *modelRun) compare() {
	m := &r.model
	require.Equal(r, m.end(), r.p.End().Offset)
	require.Equal(r, m.start, r.p.Start())
	require.Equal(r, m.stable(), r.p.LastStable())
	for _, iso := range []Isolation{ReadUncommitted, ReadCommitted, ReadDecided} {
		from := m.start + Offset(r.random.Int64N(int64(m.end()-m.start)+1))
		for _, off := range []Offset{m.start, from} {
			require.Equal(r, m.read(off, iso), readAll(r, r.p, off, iso), "isolation %d from %d", iso, off)
		}
	}
	for range 3 {
		x := r.random.Int64N(110)
		wantOffset, wantFound := m.offsetAt(x)
		got, found, err := r.p.OffsetAt(x)
		require.NoError(r, err)
		require.Equal(r, wantFound, found, "time %d", x)
		require.Equal(r, wantOffset, got, "time %d", x)
	}
	for position, value := range m.positions {
		same := position.Offset <= m.end() && m.records[position.Offset-1].value == value
		if position.Offset < m.start {
			same = false
		}
		require.Equal(r, same, r.p.Contains(position), "position %v", position)
	}
	_, open := m.verdicts()
	var wantOpen, gotOpen []string
	for id, first := range open {
		wantOpen = append(wantOpen, fmt.Sprint(id, first))
	}
	for _, t := range r.p.OpenTransactions() {
		gotOpen = append(gotOpen, fmt.Sprint(t.ID, t.First))
	}
	require.ElementsMatch(r, wantOpen, gotOpen)
}

// append appends a batch and tells whether it was acknowledged.
func (r *modelRun) append(producer Producer) error {
	m := &r.model
	base := m.end()
	var b BatchBuilder
	n := 1 + r.random.IntN(r.batch)
	for range n {
		m.serial++
		value := fmt.Sprintf("v%d %s", m.serial, strings.Repeat("x", r.random.IntN(200)))
		at := r.random.Int64N(100)
		b.Add(at, nil, []byte(value), nil)
		// What fails may be there all the same.
		m.records = append(m.records, modelRecord{
			value: value, time: at, base: base, last: base + Offset(n) - 1,
			id: producer.ID, seq: producer.Sequence, txn: producer.Transactional,
		})
	}
	batch, err := r.p.Encode(&b, producer)
	require.NoError(r, err)
	got, err := r.p.Append(context.Background(), batch)
	if err != nil {
		return err
	}
	require.False(r, got.Duplicate)
	require.Equal(r, base, got.Base)
	require.Equal(r, m.end()-1, got.Last)
	m.positions[got.End] = m.records[got.Last].value
	if r.spec.Sync == SyncAlways {
		m.durable = m.end()
	}
	return nil
}

// producer returns what the next batch of id says of it.
func (r *modelRun) producer(id ProducerID, txn bool) Producer {
	p := Producer{ID: id, Transactional: txn}
	if last, ok := r.model.lastBatch(id); ok {
		p.Sequence = addSequence(last.seq, int32(last.last-last.base+1))
	}
	return p
}

func (r *modelRun) step() error {
	m := &r.model
	ended, open := m.verdicts()
	openIDs := slices.Sorted(maps.Keys(open))
	switch k := r.random.IntN(100); {
	case k < 20:
		r.note("append")
		return r.append(plain)
	case k < 35:
		id := ProducerID(1 + r.random.IntN(3))
		r.note("append of %d", id)
		return r.append(r.producer(id, false))
	case k < 45 || k < 55 && len(openIDs) == 0:
		r.nextID++
		r.note("begin %d", r.nextID)
		return r.append(r.producer(r.nextID, true))
	case k < 55:
		id := openIDs[r.random.IntN(len(openIDs))]
		r.note("transactional append of %d", id)
		return r.append(r.producer(id, true))
	case k < 67 && len(openIDs) > 0:
		id, commit := openIDs[r.random.IntN(len(openIDs))], r.random.IntN(2) == 0
		r.note("end %d %t", id, commit)
		base := m.end()
		m.serial++
		m.records = append(m.records, modelRecord{value: fmt.Sprint("marker ", m.serial), base: base, last: base, id: id, end: verdictOf(commit)})
		end, err := r.p.EndTransaction(id, commit)
		if err == nil {
			err = r.p.Acked(context.Background(), end.Offset)
		}
		if err == nil {
			require.Equal(r, m.end(), end.Offset)
			if r.spec.Sync == SyncAlways {
				m.durable = m.end()
			}
		}
		return err
	case k < 75:
		ids := append([]ProducerID{1, 2, 3}, openIDs...)
		id := ids[r.random.IntN(len(ids))]
		last, ok := m.lastBatch(id)
		if !ok {
			return nil
		}
		r.note("repeat %d", id)
		var b BatchBuilder
		for off := last.base; off <= last.last; off++ {
			b.Add(1, nil, nil, nil)
		}
		got, err := r.p.Write(b.Finish(Producer{ID: id, Sequence: last.seq, Transactional: last.txn}))
		if err != nil {
			return err
		}
		require.True(r, got.Duplicate, "repetition of %+v", last)
		require.Equal(r, [2]Offset{last.base, last.last}, [2]Offset{got.Base, got.Last})
		_, err = r.p.Write(batchOf(Producer{ID: id, Sequence: addSequence(last.seq, 1000), Transactional: last.txn}, 1, "gap"))
		if errors.Is(err, ErrOffline) {
			return err
		}
		require.ErrorIs(r, err, ErrOutOfOrder)
		return nil
	case k < 78:
		for id, v := range ended {
			r.note("end %d again", id)
			_, err := r.p.EndTransaction(id, v == committed)
			if err != nil {
				return err
			}
			if r.owners != nil {
				_, err = r.p.Write(batchOf(r.producer(id, true), 1, "late"))
				if errors.Is(err, ErrOffline) {
					return err
				}
				require.ErrorIs(r, err, ErrFenced)
			}
			return nil
		}
		return nil
	case k < 82:
		off := m.start + Offset(r.random.Int64N(int64(m.end()-m.start)+1))
		r.note("delete before %d", off)
		before := m.start
		m.start = off
		err := r.p.DeleteBefore(off)
		if err != nil {
			m.start = before // or off, if it got that far
			return deletionCut{err, off}
		}
		if off > before {
			m.durable = m.end()
		}
		return nil
	case k < 85:
		off := m.start + Offset(r.random.Int64N(int64(m.end()-m.start)+1))
		if off == m.end() {
			return nil
		}
		off = max(m.records[off].base, m.start)
		if m.records[off].base < m.start {
			return nil
		}
		r.note("truncate to %d", off)
		m.durable = min(m.durable, off)
		err := r.p.TruncateTo(off)
		if err == nil {
			m.records = m.records[:off]
		}
		return err
	case k < 90:
		r.note("sync")
		err := r.p.Sync(context.Background())
		if err == nil {
			m.durable = m.end()
		}
		return err
	case k < 91:
		return r.retain(TopicSpec{RetentionBytes: 1 + r.random.Int64N(2000)})
	case k < 92:
		r.note("checkpoint")
		return r.log.Checkpoint()
	default:
		return undisturbed(r.mem, r.hook, r.compare)
	}
}

// undisturbed calls f, which reads, with nothing that stops the file system meanwhile:
// a read may have to open a file again.
func undisturbed(mem *vfs.Mem, hook func(vfs.Op) error, f func()) error {
	mem.SetHook(nil)
	defer mem.SetHook(hook)
	if _, err := mem.List("log"); err != nil {
		return err // it has stopped already
	}
	f()
	return nil
}

// retain applies settings, which the topic does not have by itself, so that nothing is
// dropped at another time.
func (r *modelRun) retain(spec TopicSpec) error {
	m := &r.model
	r.p.syncMu.Lock()
	defer r.p.syncMu.Unlock()
	before, to := m.start, r.p.firstWanted(spec, time.Now())
	r.note("retain %d bytes, from %d", spec.RetentionBytes, to)
	require.LessOrEqual(r, to, max(m.stable(), before))
	if to <= before {
		return nil
	}
	m.start = to
	if err := r.p.moveStart(to); err != nil {
		m.start = before
		return deletionCut{err, to}
	}
	bytes, segments := r.p.Size()
	require.True(r, segments == 1 || bytes >= spec.RetentionBytes)
	return nil
}

// deletionCut is a deletion that failed: the start may have moved.
type deletionCut struct {
	error
	off Offset
}

func (e deletionCut) Unwrap() error { return e.error }

var errInjected = errors.New("injected")

// TestModel runs random operations against the model, through clean stops, kills,
// power cuts and failed syncs, one after the other on the same files. What the log is
// set to, in compression, sizes and syncing, makes no difference to what it holds.
func TestModel(t *testing.T) {
	const enough = 100_000
	count := 0
	more := func(runs int) bool {
		switch {
		case *modelRuns > 0:
			return runs < *modelRuns
		case testing.Short():
			return runs < 6
		}
		return count < enough
	}
	for i := 0; more(i) && !t.Failed(); i++ {
		count += runModel(t, *modelSeed+uint64(i))
	}
	t.Logf("%d operations", count)
}

// oneOf draws one of values.
func oneOf[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }

func runModel(t *testing.T, seed uint64) int {
	random := rand.New(rand.NewPCG(seed, 7))
	r := &modelRun{TB: t, random: random, mem: vfs.NewMem(), nextID: 1000}
	r.model.positions = map[Position]string{}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d: %s", seed, strings.Join(r.steps, ", "))
		}
	}()
	r.o = small(r.mem)
	r.o.ProducerExpiry = -1
	r.o.MaxBatchBytes = 8 << 10
	r.o.IndexIntervalBytes = oneOf(random, int64(1), 100, 1<<20)
	r.o.MaxOpenSegments = oneOf(random, 0, 1, 3)
	r.spec = TopicSpec{
		Partitions:   1,
		Sync:         oneOf(random, SyncByOS, SyncAlways, SyncEvery(time.Millisecond)),
		SegmentBytes: oneOf(random, int64(300), 1<<10, 8<<10),
		Compression:  oneOf(random, 0, Gzip, Snappy, LZ4, Zstd),
	}
	r.batch = oneOf(random, 1, 4, 20)
	r.note("%+v, index interval %d, %d open, batches of %d", r.spec, r.o.IndexIntervalBytes, r.o.MaxOpenSegments, r.batch)
	if random.IntN(2) == 0 {
		r.owners = &blocks{}
	}
	r.open()
	for range *modelSteps {
		// Half of the time something ends the process within the next operations.
		countdown := -1
		if random.IntN(4) == 0 {
			countdown = random.IntN(30)
		}
		mode := random.IntN(3)
		var mu sync.Mutex // the worker calls the hook too
		r.hook = func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if countdown == 0 && (mode != 2 || op.Kind == vfs.OpSync) {
				if mode == 2 {
					countdown = -1
					return errInjected
				}
				if op.Length > 0 && mode == 1 {
					return vfs.StopPartway(op.Length / 2)
				}
				return vfs.ErrStopped
			}
			if countdown > 0 {
				countdown--
			}
			return nil
		}
		r.mem.SetHook(r.hook)
		var err error
		for n := 1 + random.IntN(12); n > 0 && err == nil; n-- {
			err = r.step()
			r.count++
		}
		switch {
		case err == nil && random.IntN(12) == 0:
			r.note("close")
			r.closing = true
			if err = r.log.Close(); err == nil {
				r.mem.SetHook(nil)
				r.open()
				r.reopened(true)
				r.closing = false
				continue
			}
		case err == nil && random.IntN(12) == 0:
			err = vfs.ErrStopped
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, vfs.ErrStopped) && !errors.Is(err, errInjected) {
			require.NoError(t, err)
		}
		r.crash(err)
	}
	r.mem.SetHook(nil)
	r.log.abandon()
	return r.count
}

// crash ends the process and perhaps the machine, and opens what is left.
func (r *modelRun) crash(cause error) {
	r.mem.Stop()
	r.log.abandon()
	killed := r.random.IntN(2) == 0
	failedSync := !errors.Is(cause, vfs.ErrStopped)
	r.note("crash by %v, killed %t", cause, killed)
	m := &r.model
	if killed {
		r.mem = r.mem.Kill()
	} else {
		r.mem = r.mem.Crash(r.random.Uint64())
	}
	r.open()
	var deletion deletionCut
	if errors.As(cause, &deletion) && r.p.Start() == deletion.off {
		m.start = deletion.off
	}
	if killed && !failedSync && !errors.As(cause, &deletion) {
		require.GreaterOrEqual(r, r.p.End().Offset, m.durable)
	}
	r.reopened(false)
	r.closing = false
}
