package queue

import (
	"errors"
	"math"
)

// ErrStale refuses an answer to a delivery that is over: its lock ran out and the
// record was handed out again or went to the dead letters, or it was answered before.
var ErrStale = errors.New("queue: the delivery is over")

// Rules are the settings a queue runs by.
type Rules struct {
	Lock                   int64 // ms a delivery is locked for
	MaxDeliveries          int64 // 0 for any number
	BackoffMin, BackoffMax int64 // ms; doubled with each delivery
	InFlight               int   // records delivered and not done
	LookAhead              int   // records held back until they are due

	without faults
}

// faults are rules that the tests take out, one at a time, to show that they see the
// difference. Nothing outside the tests uses another than the zero value.
type faults struct {
	anyCount    bool // an answer under a lower count is accepted
	keepLock    bool // a lock that ran out is handed out again under the same count
	forgetCount bool // a resumed record begins to count anew
	noLimit     bool // nothing becomes a dead letter
	overfill    bool // InFlight is not looked at
}

// Backoff is how long a record waits after its count-th delivery failed, in ms.
func (r Rules) Backoff(count int64) int64 {
	wait := r.BackoffMin
	for ; count > 1 && wait < r.BackoffMax && wait <= math.MaxInt64/2; count-- {
		wait *= 2
	}
	return min(wait, r.BackoffMax)
}

// unhanded is the end of a lock whose record nobody was given yet.
const unhanded = math.MaxInt64

// record is one that was taken up and is not done.
type record struct {
	count  int64 // deliveries
	at     int64 // Unix ms: when it is due, or its lock ends. As replayed: 0 for a lock
	locked bool
	late   bool // its last lock ran out, and nobody has got it since
	busy   bool // a change of it was decided and has not happened yet
	lost   bool // nobody knows whether that change was written
}

// State is a queue over one partition. It is for one goroutine. Make one with New.
type State struct {
	rules    Rules
	start    int64 // all below is done
	next     int64 // first offset not taken up, at least start
	epoch    int64 // leader epoch of the newest record taken up, -1 before any
	done     ranges
	held     map[int64]*record
	inFlight int // of those held: delivered, or about to be
	ahead    int // of those held: at next or above
	totals   Totals

	locks, retries, delays alarms
}

// New returns the state of a queue that begins at start, a position in the leader
// epoch given. It has to Resume before it decides anything.
func New(start, epoch int64) *State {
	return &State{start: start, next: start, epoch: epoch, held: map[int64]*record{}}
}

// Start is the first offset that is not done.
func (s *State) Start() int64 { return s.start }

// Next is the first offset that was not taken up since Resume.
func (s *State) Next() int64 { return s.next }

// Epoch is the leader epoch of the newest record taken up.
func (s *State) Epoch() int64 { return s.epoch }

// Totals counts what is done with, and deliveries.
func (s *State) Totals() Totals { return s.totals }

// Held is the number of records that were delivered and are not done, and of those
// that wait until they are due for the first time.
func (s *State) Held() (inFlight, delayed int) { return s.inFlight, len(s.held) - s.inFlight }

// DoneAbove is how many offsets above Start are done.
func (s *State) DoneAbove() (n int64) {
	for _, r := range s.done {
		n += r.to - r.from
	}
	return n
}

// Reached is the end of all the state knows of.
func (s *State) Reached() int64 {
	reached := max(s.start, s.next)
	if n := len(s.done); n > 0 {
		reached = max(reached, s.done[n-1].to)
	}
	for off := range s.held {
		reached = max(reached, off+1)
	}
	return reached
}

// Resume prepares a state that was folded from its changes to decide: the locks are
// gone with those who had them, and the partition is to be read from Start again.
func (s *State) Resume(now int64, r Rules) {
	s.rules, s.next = r, s.start
	s.locks, s.retries, s.delays = nil, nil, nil
	s.inFlight, s.ahead = len(s.held), len(s.held)
	for off, h := range s.held {
		if r.without.forgetCount {
			h.count = 1
		}
		if h.locked {
			h.locked, h.at = false, now+s.wait(h.count)
		}
		s.retries.push(alarm{h.at, off, h.count})
	}
}

// wait is how long a record waits after its count-th delivery failed.
func (s *State) wait(count int64) int64 {
	if s.exhausted(count) {
		return 0 // it is not for a consumer any more
	}
	return s.rules.Backoff(count)
}

func (s *State) exhausted(count int64) bool {
	return s.rules.MaxDeliveries > 0 && count >= s.rules.MaxDeliveries && !s.rules.without.noLimit
}

// Known tells whether the record at off is done or was taken up.
func (s *State) Known(off int64) bool {
	return off < s.start || s.held[off] != nil || s.done.contains(off)
}

// UntilUnknown returns the first offset at or above off that is not done.
func (s *State) UntilUnknown(off int64) int64 {
	off = max(off, s.start)
	if i := s.done.at(off); i < len(s.done) && s.done[i].from <= off {
		return s.done[i].to
	}
	return off
}

// Pass moves Next over offsets that are Known.
func (s *State) Pass(to int64) {
	if to <= s.next {
		return
	}
	if s.ahead > 0 {
		for off := range s.held {
			if off >= s.next && off < to {
				s.ahead--
			}
		}
	}
	s.next = to
}

// Skip moves Next to an offset and returns the changes that end what is neither done
// nor held below it.
func (s *State) Skip(to int64, cause Cause) (changes []Change) {
	for from := s.next; from < to; {
		if from = s.UntilUnknown(from); from >= to {
			break
		}
		end := to
		if i := s.done.at(from); i < len(s.done) {
			end = min(end, s.done[i].from)
		}
		if s.ahead > 0 {
			for off := range s.held {
				if off >= from {
					end = min(end, off)
				}
			}
		}
		if end > from {
			changes = add(changes, Change{Kind: Done, From: from, To: end, Cause: cause})
		}
		from = end
		if s.held[from] != nil {
			from++
		}
	}
	s.Pass(to)
	return changes
}

// CanTake tells whether a record that nobody was given yet may be taken up now.
func (s *State) CanTake() bool {
	return s.inFlight < s.rules.InFlight || s.rules.without.overfill
}

// CanHold tells whether another record that is not due may be held back.
func (s *State) CanHold() bool { return len(s.held)-s.inFlight < s.rules.LookAhead }

// Take takes up the record at Next or above, which is due at a time in Unix ms.
func (s *State) Take(off, due int64) {
	s.Pass(off + 1)
	s.held[off] = &record{at: due}
	s.delays.push(alarm{due, off, 0})
}

// Due returns the record that is to be looked at next: one of those held that is due,
// by the time it is, those delivered before first. dead tells that it was delivered as
// often as allowed.
func (s *State) Due(now int64) (off int64, dead, ok bool) {
	if a, ok := s.first(&s.retries); ok && a.at <= now {
		return a.offset, s.exhausted(a.count), true
	}
	if s.CanTake() {
		if a, ok := s.first(&s.delays); ok && a.at <= now {
			return a.offset, false, true
		}
	}
	return 0, false, false
}

// first returns the first alarm of waiting records that is not void.
func (s *State) first(h *alarms) (alarm, bool) {
	for len(*h) > 0 {
		a := (*h)[0]
		if r := s.held[a.offset]; r != nil && !r.locked && !r.busy && r.count == a.count && r.at == a.at {
			return a, true
		}
		h.pop()
	}
	return alarm{}, false
}

// Wake is the next time after now at which Due or Expire has something new to say.
func (s *State) Wake(now int64) (at int64, ok bool) {
	at = math.MaxInt64
	for _, h := range []*alarms{&s.retries, &s.delays} {
		if a, ok := s.first(h); ok && a.at > now {
			at = min(at, a.at)
		}
	}
	if len(s.locks) > 0 {
		at = min(at, max(s.locks[0].at, now+1))
	}
	return at, at != math.MaxInt64
}

// Expire ends the locks that have run out.
func (s *State) Expire(now int64) {
	for len(s.locks) > 0 && s.locks[0].at <= now {
		a := s.locks[0]
		s.locks.pop()
		r := s.held[a.offset]
		switch {
		case r == nil || !r.locked || r.count != a.count:
		case r.at > now: // it was extended
			s.locks.push(alarm{r.at, a.offset, a.count})
		default:
			r.locked, r.late, r.at = false, true, now+s.wait(r.count)
			s.retries.push(alarm{r.at, a.offset, r.count})
		}
	}
}

// Deliver hands out a record that waits.
func (s *State) Deliver(off int64) Change {
	r := s.held[off]
	r.busy = true
	if r.count == 0 {
		s.inFlight++
	}
	count := r.count + 1
	if s.rules.without.keepLock {
		count = max(r.count, 1)
	}
	return Change{Kind: Delivered, From: off, To: off + 1, Count: count}
}

// Handed starts the lock of a record that was delivered.
func (s *State) Handed(now, off int64) {
	r := s.held[off]
	r.at = now + s.rules.Lock
	s.locks.push(alarm{r.at, off, r.count})
}

// answered returns the record of a delivery that may still be answered.
func (s *State) answered(off, count int64) (*record, error) {
	r := s.held[off]
	if r == nil || r.busy || !r.locked && !r.late || r.count != count && !s.rules.without.anyCount {
		return nil, ErrStale
	}
	return r, nil
}

// Busy tells that a change of the record was decided and has not happened yet: an
// answer has to wait until it has.
func (s *State) Busy(off int64) bool {
	r := s.held[off]
	return r != nil && r.busy && !r.lost
}

// Lose says that nobody knows whether a decision was written. The record is left as it
// is, for nobody, until the state is folded anew.
func (s *State) Lose(off int64) { s.held[off].lost = true }

// Ack says that a delivery did its work. It is accepted as long as the record was not
// handed out again, even if the lock has run out.
func (s *State) Ack(off, count int64) (Change, error) { return s.end(off, count, Acked) }

// Reject says that no delivery ever will. It is accepted as Ack is.
func (s *State) Reject(off, count int64) (Change, error) { return s.end(off, count, Rejected) }

func (s *State) end(off, count int64, cause Cause) (Change, error) {
	if _, err := s.answered(off, count); err != nil {
		return Change{}, err
	}
	return s.Kill(off, cause), nil
}

// Kill ends a record that is held.
func (s *State) Kill(off int64, cause Cause) Change {
	s.held[off].busy = true
	return Change{Kind: Done, From: off, To: off + 1, Cause: cause}
}

// Release gives a delivery back. The record is due again at a time in Unix ms, or,
// where due is zero, after its back-off.
func (s *State) Release(now, off, count, due int64) (Change, error) {
	r, err := s.answered(off, count)
	if err != nil {
		return Change{}, err
	}
	switch {
	case s.exhausted(r.count):
		due = now
	case due == 0:
		due = now + s.rules.Backoff(r.count)
	}
	r.busy = true
	return Change{Kind: Released, From: off, To: off + 1, Count: r.count, At: due}, nil
}

// Extend starts the lock of a delivery anew.
func (s *State) Extend(now, off, count int64) error {
	r, err := s.answered(off, count)
	if err != nil {
		return err
	}
	if !r.locked {
		return ErrStale
	}
	r.at = now + s.rules.Lock
	return nil
}

// Abandon takes back a decision that could not be written. The record is what it was
// before, and where it was waiting it is due at a time in Unix ms.
func (s *State) Abandon(c Change, due int64) {
	r := s.held[c.From]
	if r == nil || !r.busy {
		return
	}
	r.busy = false
	if c.Kind == Delivered && r.count == 0 {
		s.inFlight--
	}
	if r.locked {
		return
	}
	r.at = max(r.at, due)
	if r.count == 0 {
		s.delays.push(alarm{r.at, c.From, 0})
	} else {
		s.retries.push(alarm{r.at, c.From, r.count})
	}
}

// Fail gives up ending a record that could not be made a dead letter: whatever its
// lock was, it is due again at a time in Unix ms.
func (s *State) Fail(c Change, due int64) {
	r := s.held[c.From]
	r.locked, r.late, r.at = false, false, due
	s.Abandon(c, due)
}

// Apply lets a change happen.
func (s *State) Apply(c Change) {
	switch c.Kind {
	case Delivered:
		r := s.held[c.From]
		if r == nil { // replayed
			r = &record{}
			s.held[c.From] = r
		}
		*r = record{count: c.Count, at: unhanded, locked: true}
		s.totals[0]++
	case Released:
		if r := s.held[c.From]; r != nil {
			*r = record{count: r.count, at: c.At}
			s.retries.push(alarm{r.at, c.From, r.count})
		}
	case Done:
		s.finish(c)
	case Epoch:
		s.epoch = c.At
	case Cut:
		s.cut(c.From)
	}
}

func (s *State) finish(c Change) {
	drop := func(off int64) {
		r := s.held[off]
		if r == nil {
			return
		}
		if r.count > 0 {
			s.inFlight--
		}
		if off >= s.next {
			s.ahead--
		}
		delete(s.held, off)
	}
	if c.To-c.From <= int64(len(s.held)) {
		for off := c.From; off < c.To; off++ {
			drop(off)
		}
	} else {
		for off := range s.held {
			if off >= c.From && off < c.To {
				drop(off)
			}
		}
	}
	s.totals[c.Cause] += s.done.add(max(c.From, s.start), c.To)
	if len(s.done) > 0 && s.done[0].from <= s.start {
		s.start = s.done[0].to
		s.done = s.done[1:]
	}
}

// cut forgets all from off on: other records will have these offsets. Only a state
// that has to Resume is cut.
func (s *State) cut(off int64) {
	s.start, s.next = min(s.start, off), min(s.next, off)
	s.done.cut(off)
	for o := range s.held {
		if o >= off {
			delete(s.held, o)
		}
	}
}

// Done tells whether the record at off is done.
func (s *State) Done(off int64) bool { return off < s.start || s.done.contains(off) }

// TakeBack stops the lock of a delivery that nobody is to have after all: it is
// Handed to another. It tells whether the delivery still holds.
func (s *State) TakeBack(off, count int64) bool {
	r := s.held[off]
	if r == nil || !r.locked || r.busy || r.count != count {
		return false
	}
	r.at = unhanded
	return true
}

// Count is how often the record at off was delivered, as far as it is held.
func (s *State) Count(off int64) int64 {
	if r := s.held[off]; r != nil {
		return r.count
	}
	return 0
}
