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

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

var (
	compactionRuns  = flag.Int("compactionruns", 40, "random histories of the model test of compaction")
	compactionSteps = flag.Int("compactionsteps", 150, "operations in each")
)

// keyedRecord is one offset of the model; nothing is ever taken out of it but by a
// cut.
type keyedRecord struct {
	key, value string
	tombstone  bool
	base, last Offset // of its batch
	id         ProducerID
	seq        int32
	txn        bool
	end        verdict // of a marker
}

// follower is a reader that keeps a table and its place, as a store does.
type follower struct {
	next  Offset
	table map[string]string
}

// compactionRun drives a compacted partition and a model of it side by side.
type compactionRun struct {
	testing.TB
	random    *rand.Rand
	mem       *vfs.Mem
	o         Options
	spec      TopicSpec
	time      clock
	log       *Log
	p         *Partition
	records   []keyedRecord
	durable   Offset
	start     Offset
	followers []follower
	nextID    ProducerID
	serial    int
	steps     []string
	hook      func(vfs.Op) error // of mem
}

func (r *compactionRun) note(format string, args ...any) {
	r.steps = append(r.steps, fmt.Sprintf(format, args...))
}

func (r *compactionRun) open() {
	r.o.FS = r.mem
	l, err := Open("log", r.o)
	require.NoError(r, err)
	require.NoError(r, l.Create("t", r.spec))
	r.log, r.p = l, mustPartition(r, l, "t")
}

func (r *compactionRun) end() Offset { return Offset(len(r.records)) }

// transactions returns the first offsets of open ones, and the verdicts of others.
func (r *compactionRun) transactions() (open map[ProducerID]Offset, ended map[ProducerID]verdict) {
	open, ended = map[ProducerID]Offset{}, map[ProducerID]verdict{}
	for off, rec := range r.records {
		if rec.end != undecided {
			ended[rec.id] = rec.end
			delete(open, rec.id)
		} else if _, is := open[rec.id]; rec.txn && !is {
			open[rec.id] = Offset(off)
		}
	}
	return open, ended
}

func (r *compactionRun) stable() Offset {
	open, _ := r.transactions()
	stable := r.end()
	for _, first := range open {
		stable = min(stable, first)
	}
	return stable
}

// visible returns the committed records below the last stable offset.
func (r *compactionRun) visible() (seen map[Offset]keyedRecord, order []Offset) {
	seen = map[Offset]keyedRecord{}
	_, ended := r.transactions()
	for off := r.start; off < r.stable(); off++ {
		rec := r.records[off]
		if rec.end == undecided && !(rec.txn && ended[rec.id] == aborted) {
			seen[off] = rec
			order = append(order, off)
		}
	}
	return seen, order
}

// compare holds what is in the log against the model: nothing that was not written
// there, the newest record of every key unless it is a tombstone below the horizon,
// and below what was compacted no other.
func (r *compactionRun) compare() {
	p := r.p
	if testing.Verbose() {
		for _, s := range *p.segments.Load() {
			r.note("[%d,%d) %d bytes gaps %t", s.base, s.next, s.end.Load(), s.gaps)
		}
		r.note("start %d end %d stable %d compaction %+v", p.Start(), p.End().Offset, p.LastStable(), p.compaction)
	}
	require.Equal(r, r.end(), p.End().Offset)
	require.Equal(r, r.start, p.Start())
	require.Equal(r, r.stable(), p.LastStable())
	visible, order := r.visible()
	newest, newestClean := map[string]Offset{}, map[string]Offset{}
	cleaned := p.compaction.cleaned
	for _, off := range order {
		newest[visible[off].key] = off
		if off < cleaned {
			newestClean[visible[off].key] = off
		}
	}
	table := map[string]string{}
	for key, off := range newest {
		if !visible[off].tombstone {
			table[key] = visible[off].value
		}
	}
	present := map[Offset]bool{}
	got := map[string]string{}
	for _, s := range readKeyed(r, p, p.Start(), ReadCommitted) {
		var off Offset
		fmt.Sscan(s, &off)
		rec, ok := visible[off]
		require.True(r, ok, "%s was not committed", s)
		want := fmt.Sprintf("%d %s", off, rec.key)
		if !rec.tombstone {
			want += "=" + rec.value
		}
		require.Equal(r, want, s)
		if off < cleaned {
			require.Equal(r, newestClean[rec.key], off, "%s has a newer one below %d", s, cleaned)
		}
		present[off] = true
		fold(got, []string{s})
	}
	for _, off := range order {
		rec := visible[off]
		switch {
		case present[off], off < cleaned && newestClean[rec.key] != off:
		case rec.tombstone && off < p.Horizon():
		case off < p.compaction.touched && newest[rec.key] != off: // of a compaction that was cut off
		default:
			r.Fatalf("offset %d of key %s is missing; cleaned %d, horizon %d", off, rec.key, cleaned, p.Horizon())
		}
	}
	require.Equal(r, table, got)
	_, ended := r.transactions()
	for _, s := range readKeyed(r, p, p.Start(), ReadUncommitted) {
		var off Offset
		fmt.Sscan(s, &off)
		if rec := r.records[off]; rec.txn && ended[rec.id] == aborted {
			require.GreaterOrEqual(r, off, cleaned, "%s was aborted", s)
		}
	}
	for i := range r.followers {
		f := &r.followers[i]
		if r.random.IntN(3) > 0 {
			continue
		}
		if f.table == nil || f.next < p.Start() || f.next < p.Horizon() {
			*f = follower{next: p.Start(), table: map[string]string{}}
		}
		reader := p.Reader(f.next, ReadCommitted)
		fold(f.table, moreKeyed(r, reader))
		f.next = max(f.next, min(reader.Offset(), p.LastStable()))
		reader.Close()
		require.Equal(r, table, f.table, "follower %d", i)
	}
	for id := ProducerID(1); id <= 3; id++ {
		r.repeat(id)
	}
}

// repeat sends the last batch of a producer again.
func (r *compactionRun) repeat(id ProducerID) {
	at := r.end() - 1
	for at >= 0 && (r.records[at].id != id || r.records[at].end != undecided) {
		at--
	}
	if at < 0 {
		return
	}
	last := r.records[at]
	values := make([]string, last.last-last.base+1)
	for i := range values {
		values[i] = "k"
	}
	got, err := r.p.Write(keyed(Producer{ID: id, Sequence: last.seq}, 1, values...))
	if errors.Is(err, ErrOffline) {
		return
	}
	require.NoError(r, err)
	require.True(r, got.Duplicate)
	require.Equal(r, [2]Offset{last.base, last.last}, [2]Offset{got.Base, got.Last})
}

func (r *compactionRun) append(producer Producer) error {
	base, n := r.end(), 1+r.random.IntN(4)
	var b BatchBuilder
	for range n {
		r.serial++
		rec := keyedRecord{
			key: fmt.Sprint("k", r.random.IntN(6)), value: fmt.Sprintf("%d%s", r.serial, strings.Repeat("x", r.random.IntN(80))),
			tombstone: r.random.IntN(4) == 0, base: base, last: base + Offset(n) - 1,
			id: producer.ID, seq: producer.Sequence, txn: producer.Transactional,
		}
		value := []byte(rec.value)
		if rec.tombstone {
			value = nil
		}
		b.Add(r.random.Int64N(100), []byte(rec.key), value, nil)
		r.records = append(r.records, rec)
	}
	got, err := r.p.Append(context.Background(), b.Finish(producer))
	if err == nil {
		require.Equal(r, base, got.Base)
		r.acked()
	}
	return err
}

func (r *compactionRun) acked() {
	if r.spec.Sync == SyncAlways {
		r.durable = r.end()
	}
}

func (r *compactionRun) step() error {
	open, _ := r.transactions()
	ids := slices.Sorted(maps.Keys(open))
	switch k := r.random.IntN(100); {
	case k < 25:
		r.note("append")
		return r.append(plain)
	case k < 38:
		id := ProducerID(1 + r.random.IntN(3))
		seq := int32(0)
		for _, rec := range r.records {
			if rec.id == id {
				seq = addSequence(rec.seq, int32(rec.last-rec.base+1))
			}
		}
		r.note("append of %d", id)
		return r.append(Producer{ID: id, Sequence: seq})
	case k < 48 || k < 55 && len(ids) == 0:
		r.nextID++
		r.note("begin %d", r.nextID)
		return r.append(transactional(r.nextID, 0))
	case k < 55:
		id := ids[r.random.IntN(len(ids))]
		n := int32(0)
		for _, rec := range r.records {
			if rec.id == id {
				n++
			}
		}
		r.note("append to %d", id)
		return r.append(transactional(id, n))
	case k < 70 && len(ids) > 0:
		id, commit := ids[r.random.IntN(len(ids))], r.random.IntN(2) == 0
		r.note("end %d %t", id, commit)
		base := r.end()
		r.records = append(r.records, keyedRecord{id: id, base: base, last: base, end: verdictOf(commit)})
		end, err := r.p.EndTransaction(id, commit)
		if err == nil {
			err = r.p.Acked(context.Background(), end.Offset)
		}
		if err == nil {
			r.acked()
		}
		return err
	case k < 78:
		r.note("compact at %d", r.time.ms)
		_, err := r.p.Compact(context.Background())
		if err == nil && r.p.Durable() == r.end() {
			r.durable = r.end()
		}
		return err
	case k < 84:
		r.time.ms += r.random.Int64N(2000)
		if r.p.usable() != nil {
			return nil
		}
		r.note("roll")
		return r.p.rollOlder(0, r.p.active().since)
	case k < 87:
		off := r.start + Offset(r.random.Int64N(int64(r.end()-r.start)/3+1))
		r.note("delete before %d", off)
		before := r.start
		r.start = off
		clear(r.followers) // what is deleted so goes without a tombstone
		if err := r.p.DeleteBefore(off); err != nil {
			r.start = before
			return deletionCut{err, off}
		}
		if off > before {
			r.durable = r.end()
		}
		return nil
	case k < 90:
		return r.cut()
	case k < 94:
		r.note("sync")
		err := r.p.Sync(context.Background())
		if err == nil {
			r.durable = r.end()
		}
		return err
	default:
		return undisturbed(r.mem, r.hook, r.compare)
	}
}

// cut cuts the log at a batch above what was compacted.
func (r *compactionRun) cut() error {
	least := max(r.p.compaction.touched, r.start)
	if least >= r.end() {
		return nil
	}
	off := least + Offset(r.random.Int64N(int64(r.end()-least)))
	off = r.records[off].base
	if off < least {
		return nil
	}
	r.note("cut at %d", off)
	r.durable = min(r.durable, off)
	err := r.p.TruncateTo(off)
	if err == nil {
		r.records = r.records[:off]
		r.forgetAhead()
	}
	return err
}

// forgetAhead makes followers start over that have read what is gone or undecided
// again.
func (r *compactionRun) forgetAhead() {
	for i := range r.followers {
		if r.followers[i].next > r.p.LastStable() {
			r.followers[i] = follower{}
		}
	}
}

// crash ends the process and perhaps the machine, and opens what is left.
func (r *compactionRun) crash(cause error) {
	r.mem.Stop()
	r.log.abandon()
	killed := r.random.IntN(2) == 0
	r.note("crash by %v, killed %t", cause, killed)
	if killed {
		r.mem = r.mem.Kill()
	} else {
		r.mem = r.mem.Crash(r.random.Uint64())
	}
	r.open()
	if deletion, ok := errors.AsType[deletionCut](cause); ok && r.p.Start() == deletion.off {
		r.start = deletion.off
	}
	end := r.p.End().Offset
	require.GreaterOrEqual(r, end, r.durable)
	require.LessOrEqual(r, end, r.end())
	r.records = r.records[:end]
	r.durable = end
	r.forgetAhead()
	r.compare()
}

// TestCompactionModel compacts a partition at random times, in the middle of
// transactions, deletions, cuts, kills, power cuts and failed syncs, with memory for
// few keys and segments of few batches, and shows that at any time its fold is that
// of all that was ever written, for new readers and for slow ones.
func TestCompactionModel(t *testing.T) {
	runs := *compactionRuns
	if testing.Short() {
		runs = 2
	}
	for i := range runs {
		seed := *modelSeed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runCompactionModel(t, seed) })
	}
}

func runCompactionModel(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 11))
	r := &compactionRun{TB: t, random: random, mem: vfs.NewMem(), nextID: 1000, followers: make([]follower, 3)}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d: %s", seed, strings.Join(r.steps, ", "))
		}
	}()
	r.o = small(r.mem)
	r.o.ProducerExpiry, r.o.SegmentAge, r.o.CompactionInterval, r.o.Now = -1, -1, -1, r.time.now
	r.o.SegmentBytes = []int64{300, 1000, 5000}[random.IntN(3)]
	r.o.MaxOpenSegments = oneOf(random, 0, 1, 3)
	r.o.CompactionMemoryBytes = []int64{1, 4 * keySlotBytes, 1 << 20}[random.IntN(3)]
	r.spec = TopicSpec{Partitions: 1, Compact: true, Sync: []Sync{SyncByOS, SyncAlways}[random.IntN(2)], TombstoneRetention: 1000 * 1e6}
	r.open()
	for range *compactionSteps {
		countdown := -1
		if random.IntN(4) == 0 {
			countdown = random.IntN(40)
		}
		mode := random.IntN(3)
		var mu sync.Mutex // the worker calls the hook too
		r.hook = func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			countdown--
			switch {
			case countdown != 0:
				return nil
			case mode == 2 && op.Kind == vfs.OpSync:
				return errInjected
			case mode == 2:
				countdown++
				return nil
			case mode == 1 && op.Length > 0:
				return vfs.StopPartway(op.Length / 2)
			}
			return vfs.ErrStopped
		}
		r.mem.SetHook(r.hook)
		var err error
		for n := 1 + random.IntN(5); n > 0 && err == nil; n-- {
			err = r.step()
		}
		switch {
		case err == nil && random.IntN(15) == 0:
			r.note("close")
			if err = r.log.Close(); err == nil {
				r.mem.SetHook(nil)
				r.open()
				require.True(t, r.p.Recovery().Clean)
				r.durable = r.end()
				r.compare()
				continue
			}
		case err == nil && random.IntN(15) == 0:
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
}
