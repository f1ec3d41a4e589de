package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/thalweg/thalweg/log"
)

// transactors are the live transactors of a plane.
type transactors struct {
	changed chan struct{}  // holds one signal: a transaction is due before armed
	calls   sync.WaitGroup // calls that may still add one

	mu     sync.Mutex // guards the fields below and those of Transactor that say so; a leaf
	byID   map[log.ProducerID]*Transactor
	armed  time.Time // when the loop looks again; zero while nothing is open
	owed   []owedMarkers
	closed bool
}

// txnPoll is the longest the loop waits while a transaction is open: the plane's clock
// may be faster than its timer, and an end that failed is tried again.
const txnPoll = time.Second

func newTransactors() *transactors {
	return &transactors{changed: make(chan struct{}, 1), byID: map[log.ProducerID]*Transactor{}}
}

// enter begins a call that may add a transactor; it ends with calls.Done.
func (s *transactors) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.calls.Add(1)
	return true
}

// add takes up t, unless it is over by now, and returns those before of its name. Ids
// tell which of two came first in the metadata log.
func (s *transactors) add(t *Transactor) (before []*Transactor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.byID {
		switch {
		case other.name != t.name:
		case other.first > t.first:
			t.over = fenced
		default:
			other.over = fenced
			before = append(before, other)
		}
	}
	if t.over == "" {
		s.byID[t.first] = t
	}
	return before
}

const fenced = "a newer one has its name"

// opened says that t begins a transaction.
func (s *transactors) opened(t *Transactor, id log.ProducerID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.open, t.since, t.touched = id, now, t.touched[:0]
	if due := now.Add(t.timeout); s.armed.IsZero() || due.Before(s.armed) {
		s.armed = due
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// touch says that t is about to write to part.
func (s *transactors) touch(t *Transactor, part *log.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.touched = append(t.touched, part)
}

// ended says that t's transaction is decided and its markers are written.
func (s *transactors) ended(t *Transactor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.open = log.NoProducer
}

// over tells why t is, or nothing while it is not.
func (s *transactors) over(t *Transactor) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.over
}

// condemn says that t is over because of why, unless it is already.
func (s *transactors) condemn(t *Transactor, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.over == "" {
		t.over = why
	}
}

// remove lets go of one that is over for good.
func (s *transactors) remove(t *Transactor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, t.first)
}

// has tells whether t is still to be ended.
func (s *transactors) has(t *Transactor) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[t.first] == t
}

// left returns t's open transaction and what it may have written to.
func (s *transactors) left(t *Transactor) (id log.ProducerID, touched []*log.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.open, slices.Clone(t.touched)
}

// due returns those that are to be ended, and when the next one is; zero while nothing
// is open.
func (s *transactors) due(now time.Time) (due []*Transactor, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.byID {
		at := t.since.Add(t.timeout)
		switch {
		case t.over != "": // an end that failed
			due = append(due, t)
			at = now.Add(txnPoll)
		case t.open == log.NoProducer:
			continue
		case now.After(at):
			t.over = fmt.Sprintf("a transaction was open for longer than %v", t.timeout)
			due = append(due, t)
			continue
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	s.armed = next
	return due, next
}

// txnLoop ends transactors whose transactions are open for too long, and writes the
// markers that are owed.
func (p *Plane) txnLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.txns.changed:
		case <-timer.C:
		}
		if p.failure() != nil {
			return // nothing is decided any more until the log is opened again
		}
		now := p.now()
		due, next := p.txns.due(now)
		for _, t := range due {
			p.logger.Warn("aborting a transaction", "owner", t.name, "why", p.txns.over(t))
			if err := p.endTransactor(t); err != nil && ctx.Err() == nil {
				p.logger.Error("abort a transaction", "owner", t.name, "err", err)
				next = now.Add(txnPoll)
			}
		}
		if p.payOwed() && (next.IsZero() || next.After(now.Add(txnPoll))) {
			next = now.Add(txnPoll)
		}
		if !next.IsZero() {
			// A limit is exceeded a moment after it is reached.
			timer.Reset(min(next.Sub(now)+time.Millisecond, txnPoll))
		}
	}
}

// endTransactor ends one that is condemned, and its open transaction with it.
func (p *Plane) endTransactor(t *Transactor) error {
	if _, err := p.propose(txnOwnerEnd{t.first}, false); err != nil {
		return fmt.Errorf("end the owner of transactions %q: %w", t.name, err)
	}
	return p.abortLeft(t)
}

// abortLeft aborts what is open of a transactor whose owner the metadata log has
// ended. No partition takes writes of it any more, so that touched is all there is.
func (p *Plane) abortLeft(t *Transactor) error {
	id, touched := p.txns.left(t)
	p.stateMu.RLock()
	v := p.state.verdict(id)
	p.stateMu.RUnlock()
	if id != log.NoProducer && v == aborted { // whoever committed it writes the markers
		var err error
		for _, part := range touched {
			err = errors.Join(err, p.abortIn(part, id))
		}
		if err != nil {
			return err
		}
	}
	p.txns.remove(t)
	return nil
}

// abortIn writes the abort marker of a transaction to a partition where it is open.
func (p *Plane) abortIn(part *log.Partition, id log.ProducerID) error {
	_, err := part.EndTransaction(id, false)
	if err == nil || !p.exists(part) { // the topic was deleted
		return nil
	}
	return fmt.Errorf("abort transaction %d in %v: %w", id, part.Name(), err)
}

// exists tells whether the topic of a partition has not been deleted.
func (p *Plane) exists(part *log.Partition) bool {
	now, err := p.log.Partition(part.Name())
	return err == nil && now == part
}

// closeTransactors ends all of them, and lets none begin.
func (p *Plane) closeTransactors() error {
	s := p.txns
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.calls.Wait()
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.byID))
	s.mu.Unlock()
	var err error
	for _, t := range all {
		err = errors.Join(err, t.Close())
	}
	return err
}

// OpenTransaction is one that holds back the last stable offset of partitions.
type OpenTransaction struct {
	ID log.ProducerID

	// Owner is the name of the transactor or job. A transaction of a partition that
	// was copied from elsewhere has an owner by its id: "producer 17".
	Owner string
	Job   bool // the owner is a job: its open checkpoint

	Since      time.Time            // the first batch; after a crash, the opening
	Partitions []log.TopicPartition // where it is open
}

// Transactions returns the open transactions of all partitions, the oldest first.
func (p *Plane) Transactions() []OpenTransaction {
	open := map[log.ProducerID]*OpenTransaction{}
	for part := range p.log.Partitions() {
		for _, o := range part.OpenTransactions() {
			t := open[o.ID]
			if t == nil {
				t = &OpenTransaction{ID: o.ID, Since: o.Since}
				open[o.ID] = t
			}
			t.Partitions = append(t.Partitions, part.Name())
			if o.Since.Before(t.Since) {
				t.Since = o.Since
			}
		}
	}
	all := make([]OpenTransaction, 0, len(open))
	for _, t := range open {
		t.Owner, t.Job = p.ownerName(t.ID)
		slices.SortFunc(t.Partitions, compareTopicPartitions)
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b OpenTransaction) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	return all
}

func (p *Plane) ownerName(id log.ProducerID) (name string, job bool) {
	p.stateMu.RLock()
	defer p.stateMu.RUnlock()
	first := blockOf(id)
	if name, ok := p.state.owners[first]; ok {
		return name, true
	}
	if id < firstBlock {
		return foreignName(id), false
	}
	if o, ok := p.state.txnOwners[first]; ok && o.name != "" {
		return o.name, false
	}
	return anonymousName(first), false
}

func foreignName(id log.ProducerID) string { return fmt.Sprintf("producer %d", id) }

// AbortTransaction aborts the open transaction of an owner, named as Transactions names
// it, and ends the owner: its next call is ErrFenced. Without such a transaction it is
// ErrNoTransaction. That of a job ends with the job.
func (p *Plane) AbortTransaction(owner string) error {
	if t := p.txns.named(owner); t != nil {
		p.txns.condemn(t, "its transaction was aborted by name")
		return p.endTransactor(t)
	}
	for _, t := range p.Transactions() {
		switch {
		case t.Owner != owner:
		case t.Job:
			return fmt.Errorf("checkpoint: the transaction of %q is the open checkpoint of a job: stop the job", owner)
		case t.ID < firstProducer:
			return p.abortForeign(t)
		}
	}
	return fmt.Errorf("%w: %q has none", ErrNoTransaction, owner)
}

// named returns the transactor of a name that has a transaction open.
func (s *transactors) named(name string) *Transactor {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.byID {
		if t.name == name && t.open != log.NoProducer {
			return t
		}
	}
	return nil
}

// abortForeign aborts a transaction of an id that nobody was ever given here: the
// partition it came with has no other owner to ask.
func (p *Plane) abortForeign(t OpenTransaction) error {
	var err error
	for _, tp := range t.Partitions {
		part, e := p.log.Partition(tp)
		if e == nil {
			e = p.abortIn(part, t.ID)
		}
		err = errors.Join(err, e)
	}
	return err
}
