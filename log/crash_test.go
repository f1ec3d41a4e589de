package log

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

var (
	crashSeeds = flag.Int("crashseeds", 1, "power cuts tried for each operation of the crash tests")
	crashSeed  = flag.Uint64("crashseed", 1, "first seed of the crash tests")
)

// history is what the user of a partition was told, and what may be true besides.
type history struct {
	created bool
	policy  Sync

	// acked holds the value of each offset that must be there; possible all values
	// an offset ever got.
	acked    map[Offset]string
	possible map[Offset][]string
	end      Offset // of the log as written

	start, startTried Offset

	transaction map[string]ProducerID  // of a value, if it has one
	decided     map[ProducerID]verdict // acknowledged
	tried       map[ProducerID]bool    // the end was asked for

	sequence int32 // of producer 7: next
	lastSent AppendResult
	lastAck  bool // lastSent was acknowledged and not cut away
}

func newHistory(policy Sync) *history {
	return &history{
		policy: policy, acked: map[Offset]string{}, possible: map[Offset][]string{},
		transaction: map[string]ProducerID{}, decided: map[ProducerID]verdict{}, tried: map[ProducerID]bool{},
	}
}

// append writes a batch of values and waits until it is acknowledged.
func (h *history) append(p *Partition, producer Producer, values ...string) error {
	base := h.end
	for i, value := range values {
		// Before the attempt: what fails may be there all the same.
		off := base + Offset(i)
		h.possible[off] = append(h.possible[off], value)
		if producer.Transactional {
			h.transaction[value] = producer.ID
		}
	}
	got, err := p.Append(context.Background(), batchOf(producer, 1, values...))
	if err != nil {
		return err
	}
	if got.Base != base {
		return fmt.Errorf("written at %d, expected is %d", got.Base, base)
	}
	h.end = got.Last + 1
	for i, value := range values {
		h.acked[base+Offset(i)] = value
	}
	if producer.ID == 7 {
		h.sequence, h.lastSent, h.lastAck = addSequence(producer.Sequence, int32(len(values))), got, true
	}
	return nil
}

func (h *history) idempotent(p *Partition, values ...string) error {
	h.lastAck = false
	return h.append(p, Producer{ID: 7, Sequence: h.sequence}, values...)
}

const markerValue = "a marker"

func (h *history) endTransaction(p *Partition, id ProducerID, commit bool) error {
	h.tried[id] = true
	h.possible[h.end] = append(h.possible[h.end], markerValue)
	end, err := p.EndTransaction(id, commit)
	if err == nil {
		err = p.Acked(context.Background(), end.Offset)
	}
	if err == nil {
		h.decided[id] = verdictOf(commit)
		h.end = end.Offset
	}
	return err
}

func (h *history) deleteBefore(p *Partition, off Offset) error {
	h.startTried = max(h.startTried, off)
	err := p.DeleteBefore(off)
	if err == nil {
		h.start = off
	}
	return err
}

// truncateTo cuts at a batch boundary. Everything above may be gone as soon as the
// cut begins, and is gone when it returns.
func (h *history) truncateTo(p *Partition, end Offset) error {
	for off := range h.acked {
		if off >= end {
			delete(h.acked, off)
		}
	}
	if h.lastSent.Last >= end {
		h.lastAck = false
	}
	err := p.TruncateTo(end)
	if err == nil {
		h.end = end
		for off := range h.possible {
			if off >= end {
				delete(h.possible, off)
			}
		}
	}
	return err
}

// scenario goes through everything that writes files, until the first error.
func (h *history) scenario(mem *vfs.Mem) error {
	o := small(mem)
	o.ProducerExpiry = -1
	open := func() (*Log, *Partition, error) {
		l, err := Open("log", o)
		if err != nil {
			return nil, nil, err
		}
		if err := l.Create("t", TopicSpec{Partitions: 1, Sync: h.policy}); err != nil {
			return l, nil, err
		}
		h.created = true
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
	long := strings.Repeat("x", 200)
	steps := []func() error{
		func() error { return h.idempotent(p, "a0", "a1") },
		func() error { return h.append(p, transactional(100, 0), "c0"+long, "c1"+long) },
		func() error { return h.append(p, plain, "n0"+long) },
		func() error { return h.append(p, transactional(101, 0), "d0"+long) },
		func() error { return h.endTransaction(p, 100, true) },
		func() error { return h.idempotent(p, "b0"+long, "b1"+long) },
		func() error { return h.append(p, transactional(101, 1), "d1"+long) },
		func() error { return h.endTransaction(p, 101, false) },
		func() error { return h.deleteBefore(p, 4) },
		func() error { return h.append(p, plain, "n1"+long, "n2"+long, "n3"+long) },
		func() error { return p.Sync(context.Background()) },
		func() error { return l.Close() },
		func() (err error) { l, p, err = open(); return err },
		func() error { return h.append(p, transactional(102, 0), "e0"+long) },
		func() error { return h.idempotent(p, "f0"+long) },
		func() error { return h.append(p, plain, "n4"+long, "n5"+long, "n6"+long) },
		func() error { return h.endTransaction(p, 102, false) },
		func() error { return h.append(p, transactional(103, 0), "g0"+long, "g1"+long) },
		func() error { return h.truncateTo(p, 16) },
		func() error { return h.append(p, plain, "n7"+long) },
		func() error { return h.append(p, transactional(104, 0), "i0"+long) },
		func() error { return h.endTransaction(p, 104, true) },
		func() error { return h.append(p, plain, "n8"+strings.Repeat("y", 2000)) },
		func() error { return h.deleteBefore(p, 13) },
		func() error { return h.idempotent(p, "last") },
		// Into files that were used before, up to other places in them.
		func() error { return h.append(p, plain, "o0"+long, "o1"+long, "o2"+long) },
		func() error { return h.append(p, transactional(105, 0), "o3") },
		func() error { return h.append(p, plain, "o4"+long, "o5"+long, "o6") },
		func() error { return h.endTransaction(p, 105, true) },
		func() error { return h.append(p, plain, "o7"+long, "o8"+long) },
		func() error { return h.deleteBefore(p, h.end-3) },
		func() error { return h.append(p, plain, "o9"+long+long, "p0") },
		func() error { return h.idempotent(p, "p1") },
		func() error { return h.append(p, plain, "p2"+long) },
		func() error { return h.truncateTo(p, h.end-1) },
		func() error { return h.append(p, plain, "p3"+long, "p4"+long, "p5"+long) },
		func() error { return h.append(p, plain, "p6"+long, "p7"+long) },
		func() error { return h.idempotent(p, "p8") },
		func() error { return l.Close() },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// check holds a reopened log against what was told.
func (h *history) check(mem *vfs.Mem) error {
	o := small(mem)
	o.ProducerExpiry = -1
	l, err := Open("log", o)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer l.abandon()
	p, err := l.Partition(TopicPartition{Topic: "t"})
	if err != nil {
		if h.created {
			return err
		}
		return l.Close()
	}
	if start := p.Start(); start < h.start || start > max(h.start, h.startTried) {
		return fmt.Errorf("start is %d, told was %d, tried %d", start, h.start, h.startTried)
	}
	if p.Durable() != p.End().Offset {
		return fmt.Errorf("durable is %d after opening, the end %d", p.Durable(), p.End().Offset)
	}
	all, err := h.read(p, ReadUncommitted)
	if err != nil {
		return err
	}
	for off, value := range h.acked {
		if got := all[off]; off >= p.Start() && got != value {
			return fmt.Errorf("offset %d has %.10q, acknowledged was %.10q", off, got, value)
		}
	}
	for off, value := range all {
		if !slices.Contains(h.possible[off], value) {
			return fmt.Errorf("offset %d has %.10q, which was never written there", off, value)
		}
	}
	for off := p.Start(); off < p.End().Offset; off++ {
		if _, ok := all[off]; !ok && !slices.Contains(h.possible[off], markerValue) {
			return fmt.Errorf("offset %d is missing", off)
		}
	}
	if err := h.checkCommitted(p, all); err != nil {
		return err
	}
	if err := h.checkProducer(p, all); err != nil {
		return err
	}
	// And it goes on from there, also after a clean stop.
	before := p.End().Offset
	if _, err := p.AppendRecords(context.Background(), record(1, "more")); err != nil {
		return fmt.Errorf("append after reopening: %w", err)
	}
	if err := l.Close(); err != nil {
		return fmt.Errorf("close after reopening: %w", err)
	}
	if l, err = Open("log", o); err != nil {
		return fmt.Errorf("open again: %w", err)
	}
	p, _ = l.Partition(TopicPartition{Topic: "t"})
	if !p.Recovery().Clean {
		return fmt.Errorf("a clean stop is not recognised: %+v", p.Recovery())
	}
	again, err := h.read(p, ReadUncommitted)
	if err != nil {
		return err
	}
	all[before] = "more"
	if fmt.Sprint(again) != fmt.Sprint(all) {
		return fmt.Errorf("after a clean stop there is %v, before it was %v", again, all)
	}
	return l.Close()
}

// read returns the values by offset.
func (h *history) read(p *Partition, iso Isolation) (map[Offset]string, error) {
	values := map[Offset]string{}
	r := p.Reader(p.Start(), iso)
	defer r.Close()
	for {
		b, err := r.Next()
		if err == io.EOF {
			return values, nil
		}
		if err != nil {
			return nil, err
		}
		it := b.Records()
		for it.Next() {
			values[it.Offset] = string(it.Value)
		}
		if it.Err() != nil {
			return nil, it.Err()
		}
	}
}

func (h *history) checkCommitted(p *Partition, all map[Offset]string) error {
	// End what is open, as a recovering owner does, so that all can be seen.
	open := map[ProducerID]bool{}
	for _, t := range p.OpenTransactions() {
		open[t.ID] = true
		if v := h.decided[t.ID]; v != undecided && len(h.acked) > 0 && h.stillAcked(p, t.ID) {
			return fmt.Errorf("transaction %d is open, acknowledged as %s", t.ID, v)
		}
		if _, err := p.EndTransaction(t.ID, false); err != nil {
			return err
		}
		all2 := p.End().Offset - 1
		h.possible[all2] = append(h.possible[all2], markerValue)
	}
	if err := p.Sync(context.Background()); err != nil {
		return err
	}
	committedValues, err := h.read(p, ReadCommitted)
	if err != nil {
		return err
	}
	for off, value := range all {
		id, is := h.transaction[value]
		_, seen := committedValues[off]
		switch {
		case !is && !seen:
			return fmt.Errorf("offset %d, of no transaction, is hidden", off)
		case is && open[id] && seen:
			return fmt.Errorf("offset %d of the aborted transaction %d is seen", off, id)
		case is && !open[id] && h.decided[id] == committed && !seen:
			return fmt.Errorf("offset %d of the committed transaction %d is hidden", off, id)
		case is && !open[id] && h.decided[id] == aborted && seen:
			return fmt.Errorf("offset %d of the aborted transaction %d is seen", off, id)
		case is && !open[id] && !h.tried[id]:
			return fmt.Errorf("transaction %d has ended by itself", id)
		}
	}
	return nil
}

// stillAcked tells whether the marker of id cannot have been cut away since.
func (h *history) stillAcked(p *Partition, id ProducerID) bool { return id != 102 && id != 103 }

func (h *history) checkProducer(p *Partition, all map[Offset]string) error {
	if !h.lastAck {
		return nil
	}
	last, ok := h.acked[h.lastSent.Last]
	if !ok {
		return nil
	}
	var values []string
	for off := h.lastSent.Base; off < h.lastSent.Last; off++ {
		values = append(values, h.acked[off])
	}
	count := int32(h.lastSent.Last - h.lastSent.Base + 1)
	repeated := Producer{ID: 7, Sequence: addSequence(h.sequence, -count)}
	got, err := p.Write(batchOf(repeated, 1, append(values, last)...))
	if err != nil || !got.Duplicate || got.Base != h.lastSent.Base {
		return fmt.Errorf("a repetition of the last batch is answered by %+v, %v; the first answer was %+v", got, err, h.lastSent)
	}
	if _, err := p.Write(batchOf(Producer{ID: 7, Sequence: addSequence(h.sequence, 7)}, 1, "gap")); !errors.Is(err, ErrOutOfOrder) {
		return fmt.Errorf("a gap is answered by %v", err)
	}
	return nil
}

// TestCrashAtEveryOperation stops the machine at every file operation and shows
// that under SyncAlways all that was acknowledged is there afterwards, and nothing
// is half there.
func TestCrashAtEveryOperation(t *testing.T) {
	everyOperation(t, SyncAlways, func(mem *vfs.Mem, seed uint64) *vfs.Mem { return mem.Crash(seed) })
}

// TestKillAtEveryOperation kills the process at every file operation, in the
// middle of copies too, and shows that without any syncing all that was written is
// there afterwards.
func TestKillAtEveryOperation(t *testing.T) {
	everyOperation(t, SyncByOS, func(mem *vfs.Mem, _ uint64) *vfs.Mem { return mem.Kill() })
}

// TestPowerCutAfterKill shows that what a log says is durable after it recovered
// from a kill stays after a power cut, whatever was only in memory before.
func TestPowerCutAfterKill(t *testing.T) {
	everyOperation(t, SyncByOS, func(mem *vfs.Mem, seed uint64) *vfs.Mem {
		mem = mem.Kill()
		l, err := Open("log", small(mem))
		if err == nil {
			l.abandon()
		}
		return mem.Crash(seed)
	})
}

func everyOperation(t *testing.T, policy Sync, after func(*vfs.Mem, uint64) *vfs.Mem) {
	whole := vfs.NewMem()
	var recycled atomic.Int64
	whole.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpRename && strings.HasSuffix(op.Name, spareSuffix) {
			recycled.Add(1)
		}
		return nil
	})
	require.NoError(t, newHistory(policy).scenario(whole))
	total := whole.Ops()
	require.GreaterOrEqual(t, recycled.Load(), int64(3), "files used again")
	t.Logf("%d operations, first seed %d", total, *crashSeed)
	for n := int64(1); n <= 2*(total+5); n += sampled[int64](13) {
		// Every operation twice: not done at all, and done in part.
		n, partway := (n+1)/2, n%2 == 0
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
			case partway && op.N == n && op.Length > 0:
				return vfs.StopPartway(random.Int64N(op.Length))
			}
			return vfs.ErrStopped
		})
		h := newHistory(policy)
		err := h.scenario(mem)
		if err != nil && !errors.Is(err, vfs.ErrStopped) {
			t.Fatalf("operation %d: %v", n, err)
		}
		for i := range *crashSeeds {
			seed := *crashSeed + uint64(i)
			copied := *h
			if err := copied.check(after(mem, seed)); err != nil {
				t.Fatalf("stopped at operation %d of %d, seed %d: %v", n, total, seed, err)
			}
		}
	}
}
