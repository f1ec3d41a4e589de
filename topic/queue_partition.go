package topic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/thalweg/thalweg/internal/queue"
	"github.com/thalweg/thalweg/log"
)

// queuePartition is one partition of an open queue. One goroutine owns it: it takes
// what was asked since it looked last, decides, writes all the changes at once, and
// then lets them happen and answers.
type queuePartition struct {
	core    *queueCore
	number  int
	records *log.Partition
	timed   timing
	journal queueJournal
	state   *queue.State
	existed bool // the queue did, before it was opened

	ahead    forward        // reads on
	again    *log.Reader    // fetches records that are due again
	fetched  *handout       // what it fetched last
	written  []queue.Change // scratch
	pending  []queue.Change // happened, and are written with the next: they can be found out again
	spare    []*handout     // delivered and written, but nobody waited any more
	deferred []*request     // that wait for a change of their record
	deadErr  error          // of the last attempt to move dead letters
	cancel   func()         // of the callback of records
	wake     chan struct{}  // capacity 1
	timer    *time.Timer

	isReady bool // guarded by queueCore.mu

	mu     sync.Mutex // guards the fields below; a leaf
	inbox  []*request
	back   []*handout // handed out to who was gone
	closed bool
}

// answer is what somebody says of a delivery, or asks.
type answer struct {
	kind          answerKind
	offset, count int64
	after         time.Duration
	status        *QueuePartitionStatus
}

type answerKind uint8

const (
	answerAck answerKind = iota
	answerReject
	answerRelease
	answerExtend
	answerStatus
)

func (k answerKind) String() string {
	return [...]string{"acknowledge a record", "reject a record", "release a record", "extend a lock", "ask the status"}[k]
}

// request is an answer that waits for the partition.
type request struct {
	answer
	done   chan error // capacity 1
	change queue.Change
}

const (
	// maxHandouts bounds what is written at once, so that nobody waits for too many others.
	maxHandouts = 256

	// maxPending bounds the changes that wait for others to be written with.
	maxPending = 256
)

// openQueuePartition folds the journal. A queue that is new begins where its options say.
func openQueuePartition(c *queueCore, records, states *log.Partition, from Position) (*queuePartition, error) {
	p := &queuePartition{
		core:    c,
		number:  int(records.Name().Partition),
		records: records,
		timed:   c.timed,
		journal: queueJournal{partition: states, topic: c.topic, least: c.queues.opts.SnapshotBytes},
		wake:    make(chan struct{}, 1),
	}
	now := c.now()
	var err error
	if p.state, err = p.journal.fold(); err != nil {
		return nil, err
	}
	p.existed = p.state != nil
	if !p.existed {
		start, err := from.Resolve(records)
		if err != nil {
			return nil, err
		}
		at, err := records.PositionAt(start)
		if err != nil {
			return nil, err
		}
		p.state = queue.New(int64(start), int64(at.Epoch))
		if err := p.journal.snapshot(now, p.state); err != nil {
			return nil, err
		}
	}
	if err := p.cut(now); err != nil {
		return nil, err
	}
	p.state.Resume(now, c.rules)
	p.ahead.reader = records.Reader(log.Offset(p.state.Next()), log.ReadCommitted)
	p.again = records.Reader(log.Offset(p.state.Next()), log.ReadCommitted)
	p.timer = time.NewTimer(0)
	p.cancel = records.OnAdvance(p.wakeUp)
	return p, nil
}

// cut forgets records that the partition lost in a power cut, since others have their
// offsets now.
func (p *queuePartition) cut(now int64) error {
	end := int64(p.records.End().Offset)
	if epoch := p.state.Epoch(); epoch >= 0 {
		end = int64(p.records.EndOfEpoch(log.LeaderEpoch(epoch)))
	}
	reached := p.state.Reached()
	if reached <= end {
		return nil
	}
	p.core.logger().Warn("topic: the log lost records that the queue knows; those that have their offsets are delivered",
		"partition", p.number, "from", end, "to", reached)
	c := queue.Change{Kind: queue.Cut, From: end}
	if _, err := p.journal.append(now, []queue.Change{c}); err != nil {
		return err
	}
	p.state.Apply(c)
	return nil
}

// release lets go of what openQueuePartition took.
func (p *queuePartition) release() {
	p.cancel()
	p.timer.Stop()
	p.ahead.reader.Close()
	p.again.Close()
}

// wakeUp has the partition look at what there is to do. It does not block; the nil
// partition has nothing to do.
func (p *queuePartition) wakeUp() {
	if p == nil {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// answer asks the partition and waits for what it says.
func (p *queuePartition) answer(ctx context.Context, a answer) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("topic: %s of queue %q: %w", a.kind, p.core.name, err) // and nothing is asked
	}
	r := &request{answer: a, done: make(chan error, 1)}
	if a.status != nil {
		r.status = new(QueuePartitionStatus) // the asker's own may be gone when it is written
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrQueueClosed
	}
	p.inbox = append(p.inbox, r)
	p.mu.Unlock()
	p.wakeUp()
	select {
	case err := <-r.done:
		if a.status != nil {
			*a.status = *r.status
		}
		return err
	case <-ctx.Done():
		return p.core.failure(a.kind.String(), ctx.Err(), true)
	}
}

// takeBack has the partition hand out g to somebody else. queueCore.mu is held.
func (p *queuePartition) takeBack(g *handout) {
	p.mu.Lock()
	p.back = append(p.back, g)
	p.mu.Unlock()
	p.wakeUp()
}

// run is the partition's goroutine.
func (p *queuePartition) run(ctx context.Context) {
	defer p.release()
	for {
		select {
		case <-p.wake:
		case <-p.timer.C:
		case <-ctx.Done():
			p.finish()
			return
		}
		p.round()
	}
}

// finish writes what is left and refuses all that was asked and will be.
func (p *queuePartition) finish() {
	p.mu.Lock()
	p.closed = true
	left := append(p.deferred, p.inbox...)
	p.mu.Unlock()
	if len(p.pending) > 0 {
		_, _ = p.journal.append(p.core.now(), p.pending) // it would be found out again
	}
	for _, r := range left {
		r.done <- ErrQueueClosed
	}
}

// delivering is a record about to be handed out.
type delivering struct {
	to     *receiver
	record *handout
	change queue.Change
}

// round does all there is to do now.
func (p *queuePartition) round() {
	now := p.core.now()
	p.state.Expire(now)
	answered, dead := p.decide(now)
	handouts, found, err := p.assign(now)
	dead = append(dead, found...)
	p.write(now, answered, handouts)
	p.bury(now, dead)
	if err != nil {
		p.refuse(err)
	}
	if p.journal.due() && len(p.pending) == 0 {
		if err := p.journal.snapshot(now, p.state); err != nil {
			p.core.logger().Warn("topic: the state of a queue could not be cut short; it is tried again later", "partition", p.number, "error", err)
		}
	}
	// What was written may have made more records due, or room for them.
	if len(p.deferred)+len(answered)+len(handouts)+len(dead) > 0 {
		p.wakeUp()
	}
	p.arm()
}

// arm sets the timer to when there is something to do by itself.
func (p *queuePartition) arm() {
	now := p.core.now()
	at, ok := p.state.Wake(now)
	if due := p.ahead.due; due != 0 && (!ok || due < at) {
		at, ok = max(due, now), true
	}
	if !ok {
		p.timer.Stop()
		return
	}
	p.timer.Reset(min(time.Duration(min(at-now, clockCheck.Milliseconds()))*time.Millisecond, clockCheck))
}

// decide takes what was asked. What is refused or needs no write is answered at once.
func (p *queuePartition) decide(now int64) (answered []*request, dead []*burial) {
	p.mu.Lock()
	asked, back := p.inbox, p.back
	p.inbox, p.back = nil, nil
	p.mu.Unlock()
	for _, g := range back {
		if p.state.TakeBack(g.offset, g.count) {
			p.spare = append(p.spare, g)
		}
	}
	asked = append(p.deferred, asked...)
	p.deferred = nil
	for _, r := range asked {
		if r.kind == answerStatus {
			r.done <- p.fillStatus(r.status)
			continue
		}
		if p.state.Busy(r.offset) {
			p.deferred = append(p.deferred, r)
			continue
		}
		var err error
		switch r.kind {
		case answerAck:
			r.change, err = p.state.Ack(r.offset, r.count)
		case answerReject:
			r.change, err = p.state.Reject(r.offset, r.count)
		case answerRelease:
			due := int64(0)
			if r.after != 0 {
				due = now + max(milliseconds(r.after), 0)
			}
			r.change, err = p.state.Release(now, r.offset, r.count, due)
		case answerExtend:
			err = p.state.Extend(now, r.offset, r.count)
		}
		switch {
		case errors.Is(err, queue.ErrStale):
			r.done <- &DeliveryOverError{Queue: p.core.name, Partition: p.number, Offset: r.offset, Count: int(r.count)}
		case err != nil || r.kind == answerExtend:
			r.done <- err
		case r.kind == answerReject && p.core.opts.hasDeadLetters():
			dead = append(dead, &burial{change: r.change, asked: r})
		default:
			answered = append(answered, r)
		}
	}
	return answered, dead
}

// assign finds records for those who wait.
func (p *queuePartition) assign(now int64) (handouts []delivering, dead []*burial, err error) {
	for len(p.spare) > 0 {
		r := p.core.take(p)
		if r == nil {
			return nil, nil, nil
		}
		g := p.spare[0]
		p.spare = p.spare[1:]
		p.hand(now, r, g)
	}
	for len(handouts) < maxHandouts && len(dead) < maxDeadLetters {
		var g *handout
		if g, dead, err = p.candidate(now, dead); g == nil {
			p.core.pass(p)
			break
		}
		r := p.core.take(p)
		if r == nil {
			break
		}
		if !p.state.Known(g.offset) {
			p.state.Take(g.offset, now)
		}
		c := p.state.Deliver(g.offset)
		g.count = c.Count
		p.fetched = nil
		handouts = append(handouts, delivering{to: r, record: g, change: c})
	}
	return handouts, dead, err
}

// hand gives a record that was delivered to r, or keeps it for another.
func (p *queuePartition) hand(now int64, r *receiver, g *handout) {
	g.until = now + p.core.rules.Lock
	if !p.core.give(r, g, nil) {
		p.spare = append(p.spare, g)
		p.wakeUp()
		return
	}
	p.state.Handed(now, g.offset)
}

// write writes the changes of a round, lets them happen and tells whom they concern;
// or, where they could not be written, takes them back and says so.
func (p *queuePartition) write(now int64, answered []*request, handouts []delivering) {
	if len(answered)+len(handouts) == 0 && len(p.pending) < maxPending {
		return
	}
	changes := append(p.written[:0], p.pending...)
	for _, r := range answered {
		changes = queue.Join(changes, r.change)
	}
	for _, d := range handouts {
		changes = append(changes, d.change)
	}
	p.written = changes[:0]
	unknown, err := p.journal.append(now, changes)
	if err != nil {
		for _, r := range answered {
			p.state.Abandon(r.change, now)
			r.done <- p.core.failure(r.kind.String(), err, unknown)
		}
		for _, d := range handouts {
			p.state.Abandon(d.change, now)
			p.core.give(d.to, nil, p.core.failure("deliver a record", err, false))
		}
		return
	}
	p.pending = p.pending[:0]
	for _, r := range answered {
		p.state.Apply(r.change)
		r.done <- nil
	}
	now = p.core.now() // the write may have taken long
	for _, d := range handouts {
		p.state.Apply(d.change)
		p.hand(now, d.to, d.record)
	}
}

// refuse tells all who wait that the partition cannot go on.
func (p *queuePartition) refuse(err error) {
	for {
		r := p.core.take(p)
		if r == nil {
			return
		}
		p.core.give(r, nil, fmt.Errorf("topic: queue %q: %w", p.core.name, err))
	}
}

// happened lets changes happen that can be found out again, and keeps them to be
// written with others.
func (p *queuePartition) happened(changes ...queue.Change) {
	for _, c := range changes {
		p.state.Apply(c)
	}
	p.pending = queue.Join(p.pending, changes...)
}

func (p *queuePartition) fillStatus(s *QueuePartitionStatus) error {
	*s = statusOf(p.state)
	s.Partition = p.number
	s.DeadLetterError = p.deadErr
	return describeRecords(s, p.state, p.records)
}
