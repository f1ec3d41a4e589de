package queue

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

var (
	modelSeed      = flag.Uint64("queue.seed", 0, "first seed of the histories; 0 for a random one")
	modelHistories = flag.Int("queue.histories", 0, "number of histories; 0 for the default")
)

// item is a record of the model's partition.
type item struct {
	off      int64
	due      int64 // 0 for at once
	expires  int64 // 0 for never
	poison   bool  // no delivery of it succeeds
	delivery int64 // deliveries that were written
	until    int64 // end of the lock of the last delivery handed out, 0 for none
	end      Cause // what ended it, as written
}

// delivery is what a consumer of the model has.
type delivery struct {
	*item
	count int64
}

// world drives a State as a queue does, over a partition, a log and consumers that are
// too simple to be wrong.
type world struct {
	random *rand.Rand
	rules  Rules
	now    int64
	state  *State
	log    [][]byte // records since the last snapshot and with it

	items  []*item // by offset
	end    int64   // of the partition
	lost   int64   // offsets below were deleted
	held   []delivery
	calm   bool
	totals Totals
}

func newWorld(seed uint64, without faults) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 0)), now: 1_000_000}
	w.rules = Rules{
		Lock: 100, MaxDeliveries: int64(w.random.IntN(5)), BackoffMin: 10, BackoffMax: 50,
		InFlight: 1 + w.random.IntN(6), LookAhead: 1 + w.random.IntN(4), without: without,
	}
	w.state = New(0, -1)
	w.log = [][]byte{AppendSnapshot(nil, "t", w.state)}
	w.state.Resume(w.now, w.rules)
	return w
}

func (w *world) item(off int64) *item {
	i, ok := slices.BinarySearchFunc(w.items, off, func(it *item, off int64) int { return int(it.off - off) })
	if !ok {
		return nil
	}
	return w.items[i]
}

// write writes changes down and lets them happen, or takes them back.
func (w *world) write(changes ...Change) bool {
	if len(changes) == 0 {
		return true
	}
	if !w.calm && w.random.IntN(15) == 0 {
		for _, c := range changes {
			w.state.Abandon(c, w.now)
		}
		return false
	}
	w.log = append(w.log, AppendChanges(nil, changes))
	for _, c := range changes {
		w.state.Apply(c)
		switch c.Kind {
		case Delivered:
			w.totals[0]++
		case Done:
			for _, it := range w.items {
				if it.off >= c.From && it.off < c.To {
					it.end, it.until = c.Cause, 0
				}
			}
			w.totals[c.Cause] += c.To - c.From
		}
	}
	return true
}

func (w *world) produce() {
	for range w.random.IntN(4) {
		w.end += int64(w.random.IntN(2)) // a gap
		it := &item{off: w.end, poison: w.random.IntN(6) == 0}
		if w.random.IntN(4) == 0 {
			it.due = w.now + w.random.Int64N(300)
		}
		if w.random.IntN(6) == 0 {
			it.expires = w.now + w.random.Int64N(600)
		}
		w.items = append(w.items, it)
		w.end++
	}
}

// candidate is what a queue does to find the record to deliver next.
func (w *world) candidate() (*item, bool) {
	s := w.state
	for {
		if off, dead, ok := s.Due(w.now); ok {
			it := w.item(off)
			switch {
			case off < w.lost:
				w.write(s.Kill(off, Removed))
			case dead:
				w.write(s.Kill(off, Exhausted))
			case it.expires != 0 && it.expires <= w.now:
				w.write(s.Kill(off, Expired))
			default:
				return it, true
			}
			if s.Busy(off) { // the write was refused: it is due again now
				return nil, false
			}
			continue
		}
		if !s.CanTake() {
			return nil, false
		}
		next := s.UntilUnknown(s.Next())
		s.Pass(next)
		if next < w.lost {
			w.skip(w.lost, Removed)
			continue
		}
		i := slices.IndexFunc(w.items, func(it *item) bool { return it.off >= next })
		if i < 0 {
			return nil, false
		}
		it := w.items[i]
		if it.off > next {
			w.skip(it.off, Skipped)
			continue
		}
		switch {
		case s.Known(it.off):
			s.Pass(it.off + 1)
		case it.expires != 0 && it.expires <= w.now:
			w.skip(it.off+1, Expired)
		case it.due > w.now && !s.CanHold():
			return nil, false
		default:
			s.Take(it.off, it.due)
		}
	}
}

// skip writes what is not refused: such changes are kept until they can be written.
func (w *world) skip(to int64, cause Cause) {
	calm := w.calm
	w.calm = true
	w.write(w.state.Skip(to, cause)...)
	w.calm = calm
}

// deliver hands records to consumers.
func (w *world) deliver() error {
	w.state.Expire(w.now)
	for range w.random.IntN(4) {
		it, ok := w.candidate()
		if !ok {
			return nil
		}
		switch {
		case it.end != 0:
			return fmt.Errorf("record %d is handed out, it was %v", it.off, it.end)
		case it.until > w.now:
			return fmt.Errorf("record %d is handed out at %d, and locked until %d", it.off, w.now, it.until)
		case it.due > w.now:
			return fmt.Errorf("record %d is handed out at %d, and due at %d", it.off, w.now, it.due)
		case w.rules.MaxDeliveries > 0 && it.delivery >= w.rules.MaxDeliveries:
			return fmt.Errorf("record %d is handed out for the %d-th time", it.off, it.delivery+1)
		}
		c := w.state.Deliver(it.off)
		if c.Count != it.delivery+1 {
			return fmt.Errorf("record %d is handed out as number %d after %d deliveries", it.off, c.Count, it.delivery)
		}
		if !w.write(c) {
			return nil
		}
		it.delivery++
		w.state.Handed(w.now, it.off)
		it.until = w.now + w.rules.Lock
		w.held = append(w.held, delivery{it, c.Count})
		if n := w.inFlight(); n > w.rules.InFlight {
			return fmt.Errorf("%d records are in flight, %d are allowed", n, w.rules.InFlight)
		}
	}
	return nil
}

func (w *world) inFlight() (n int) {
	for _, it := range w.items {
		if it.delivery > 0 && it.end == 0 {
			n++
		}
	}
	return n
}

// answer has a consumer do something with a delivery, in time or late.
func (w *world) answer() error {
	if len(w.held) == 0 {
		return nil
	}
	i := w.random.IntN(len(w.held))
	d := w.held[i]
	current := d.count == d.delivery && d.end == 0
	var c Change
	var err error
	switch n := w.random.IntN(10); {
	case n < 5 && !d.poison:
		c, err = w.state.Ack(d.off, d.count)
	case n < 6:
		c, err = w.state.Reject(d.off, d.count)
	case n < 7:
		c, err = w.state.Release(w.now, d.off, d.count, 0)
	case n < 8:
		c, err = w.state.Release(w.now, d.off, d.count, w.now+w.random.Int64N(100)+1)
	case n < 9 && !w.calm:
		if err = w.state.Extend(w.now, d.off, d.count); err == nil {
			if !current || d.until <= w.now {
				return fmt.Errorf("delivery %d of record %d is extended, of %d", d.count, d.off, d.delivery)
			}
			d.until = w.now + w.rules.Lock
		}
		return nil
	default:
		w.held = slices.Delete(w.held, i, i+1) // forgotten
		return nil
	}
	if err != nil {
		if current && d.until > w.now {
			return fmt.Errorf("delivery %d of record %d is refused at %d, locked until %d", d.count, d.off, w.now, d.until)
		}
		return nil
	}
	if !current {
		return fmt.Errorf("delivery %d of record %d is answered, of %d, end %v", d.count, d.off, d.delivery, d.end)
	}
	if w.random.IntN(3) > 0 { // else the answer may be repeated
		w.held = slices.Delete(w.held, i, i+1)
	}
	if c.Kind == Done && c.Cause == Rejected && !w.calm && w.random.IntN(4) == 0 {
		w.state.Fail(c, w.now+20) // it could not be made a dead letter
		d.until = 0
		return nil
	}
	if w.write(c) {
		d.until = 0
	}
	return nil
}

// crash ends the process: the state is folded anew from what was written.
func (w *world) crash() error {
	var s *State
	for _, b := range w.log {
		e, err := Decode(b)
		if err != nil {
			return err
		}
		if s, err = e.Fold(s); err != nil {
			return err
		}
	}
	if s.start != w.state.start || !slices.Equal(s.done, w.state.done) || s.totals != w.state.totals {
		return fmt.Errorf("folded: start %d, done %v, totals %v; was: %d, %v, %v", s.start, s.done, s.totals, w.state.start, w.state.done, w.state.totals)
	}
	for off, r := range w.state.held {
		if r.count > 0 && (s.held[off] == nil || s.held[off].count != r.count) {
			return fmt.Errorf("record %d had %d deliveries, folded are %v", off, r.count, s.held[off])
		}
	}
	s.Resume(w.now, w.rules)
	w.state, w.held = s, nil
	for _, it := range w.items {
		it.until = 0
	}
	return nil
}

func (w *world) step() error {
	w.now += int64(w.random.IntN(30))
	if !w.calm {
		w.produce()
		switch n := w.random.IntN(40); {
		case n == 0:
			if err := w.crash(); err != nil {
				return err
			}
		case n < 3:
			w.log = [][]byte{AppendSnapshot(nil, "t", w.state)}
		case n == 3 && w.end > 0:
			w.lost = max(w.lost, w.random.Int64N(w.end)-10)
		}
	}
	for range 3 {
		if err := w.deliver(); err != nil {
			return err
		}
		if err := w.answer(); err != nil {
			return err
		}
	}
	return w.check()
}

// check holds after every step.
func (w *world) check() error {
	s := w.state
	if s.totals != w.totals {
		return fmt.Errorf("totals %v, written were %v", s.totals, w.totals)
	}
	ahead, inFlight := 0, 0
	for off, r := range s.held {
		if off < s.start || s.done.contains(off) || r.busy {
			return fmt.Errorf("record %d is held and done, or busy", off)
		}
		if off >= s.next {
			ahead++
		}
		if r.count > 0 {
			inFlight++
		}
	}
	if ahead != s.ahead || inFlight != s.inFlight {
		return fmt.Errorf("%d ahead and %d in flight, counted %d and %d", ahead, inFlight, s.ahead, s.inFlight)
	}
	last := s.start
	for i, r := range s.done {
		if r.from <= last && (i > 0 || r.from == last) || r.to <= r.from {
			return fmt.Errorf("done is %v from %d on", s.done, s.start)
		}
		last = r.to
	}
	if delayed := len(s.held) - s.inFlight; delayed > w.rules.LookAhead+1 {
		return fmt.Errorf("%d records are held back, %d are allowed", delayed, w.rules.LookAhead)
	}
	return nil
}

// history runs one history to its end: disturbed, then calm until all is done.
func history(seed uint64, without faults) error {
	w := newWorld(seed, without)
	for range 30 + w.random.IntN(150) {
		if err := w.step(); err != nil {
			return err
		}
	}
	w.calm = true
	for range 100 * (len(w.items) + 10) {
		if w.state.start >= w.end && len(w.state.held) == 0 {
			break
		}
		if w.rules.MaxDeliveries == 0 { // nothing ends a poison record but a consumer
			for _, it := range w.items {
				it.poison = false
			}
		}
		if err := w.step(); err != nil {
			return err
		}
	}
	if w.state.start != w.end || len(w.state.held) > 0 {
		return fmt.Errorf("done up to %d of %d at the end of the bound, held %v", w.state.start, w.end, slices.Sorted(maps.Keys(w.state.held)))
	}
	sum := int64(0)
	for c := Acked; c <= causes; c++ {
		sum += w.totals[c]
	}
	if sum != w.end {
		return fmt.Errorf("%d of %d offsets are accounted for: %v", sum, w.end, w.totals)
	}
	for _, it := range w.items {
		switch {
		case it.end == 0:
			return fmt.Errorf("record %d has no end", it.off)
		case it.end == Acked && it.poison:
			return fmt.Errorf("record %d was acknowledged by nobody", it.off)
		case it.end == Exhausted && it.delivery != w.rules.MaxDeliveries:
			return fmt.Errorf("record %d was given up after %d deliveries of %d", it.off, it.delivery, w.rules.MaxDeliveries)
		case it.end == Skipped:
			return fmt.Errorf("record %d was skipped", it.off)
		}
	}
	return nil
}

// In random histories of deliveries, answers in time and late, refused writes,
// crashes, snapshots, deletions, delays and expiries no record has two valid locks,
// what is done is never handed out again, counts are exact and never go back, and in
// the end every offset is done, for exactly one cause.
func TestRandomHistories(t *testing.T) {
	n := *modelHistories
	if n == 0 {
		n = 3000
		if testing.Short() {
			n = 300
		}
	}
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	t.Logf("%d histories from seed %d on (-queue.seed)", n, seed)
	for i := range n {
		if err := history(seed+uint64(i), faults{}); err != nil {
			t.Fatalf("seed %d: %v", seed+uint64(i), err)
		}
	}
}

// The histories see each rule of the protocol when it is taken out.
func TestHistoriesSeeEveryRule(t *testing.T) {
	for name, without := range map[string]faults{
		"an answer to any delivery":      {anyCount: true},
		"the same count for the next":    {keepLock: true},
		"a restart that forgets counts":  {forgetCount: true},
		"no limit of deliveries":         {noLimit: true},
		"more in flight than is allowed": {overfill: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(1000) {
				if err := history(seed, without); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Fatal("1000 histories saw no difference")
		})
	}
}
