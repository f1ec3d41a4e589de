package topic

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/thalweg/thalweg/internal/queue"
	"github.com/thalweg/thalweg/log"
)

// forward is a reader that stands at a record.
type forward struct {
	reader *log.Reader
	it     log.RecordIterator
	at     bool            // it stands at a record
	epoch  log.LeaderEpoch // of its batch
	due    int64           // Unix ms: when it is, where it is not held back with others for lack of room; else 0
}

// candidate returns the next record to hand out, nil when there is none now. Records
// that are to become dead letters on the way are appended to dead.
func (p *queuePartition) candidate(now int64, dead []*burial) (*handout, []*burial, error) {
	for len(dead) < maxDeadLetters {
		off, exhausted, ok := p.state.Due(now)
		if !ok {
			g, more, err := p.fresh(now, dead)
			if g == nil && len(more) > len(dead) && err == nil {
				dead = more
				continue
			}
			return g, more, err
		}
		g, err := p.fetch(off)
		if err != nil {
			return nil, dead, err
		}
		cause := queue.Cause(0)
		switch {
		case g == nil:
			p.happened(p.state.Kill(off, queue.Removed))
			continue
		case exhausted:
			cause = queue.Exhausted
		case p.expired(now, g):
			cause = queue.Expired
		default:
			return g, dead, nil
		}
		dead = p.end(g, cause, dead)
	}
	return nil, dead, nil
}

// fresh returns the next record that was never handed out, nil when there is none or
// none is due.
func (p *queuePartition) fresh(now int64, dead []*burial) (*handout, []*burial, error) {
	p.ahead.due = 0
	for p.state.CanTake() && len(dead) < maxDeadLetters {
		ok, err := p.advance()
		if !ok || err != nil {
			return nil, dead, err
		}
		it := &p.ahead.it
		off := int64(it.Offset)
		p.reaches(p.ahead.epoch)
		p.happened(p.state.Skip(off, queue.Skipped)...)
		if p.state.Known(off) {
			p.state.Pass(off + 1)
			continue
		}
		due, expires := p.timed.of(it)
		due = min(due, expires) // then it is looked at again
		switch {
		case expires <= now && p.core.opts.hasDeadLetters():
			p.state.Take(off, now)
			dead = p.end(p.copy(it), queue.Expired, dead)
		case expires <= now:
			p.happened(p.state.Skip(off+1, queue.Expired)...)
		case due > now && p.state.CanHold():
			p.state.Take(off, due)
		case due > now:
			p.ahead.due = due
			return nil, dead, nil
		default:
			return p.copy(it), dead, nil
		}
	}
	return nil, dead, nil
}

// expired tells whether a record is past its time to live.
func (p *queuePartition) expired(now int64, g *handout) bool {
	_, expires := p.timed.times(g.time, g.headers)
	return expires <= now
}

// reaches notes the leader epoch of what is about to be done with.
func (p *queuePartition) reaches(epoch log.LeaderEpoch) {
	if int64(epoch) > p.state.Epoch() {
		p.happened(queue.Change{Kind: queue.Epoch, At: int64(epoch)})
	}
}

// end ends a record that is held and is not for a consumer any more.
func (p *queuePartition) end(g *handout, cause queue.Cause, dead []*burial) []*burial {
	c := p.state.Kill(g.offset, cause)
	if !p.core.opts.hasDeadLetters() {
		p.happened(c)
		return dead
	}
	p.fetched = nil
	return append(dead, &burial{change: c, record: g})
}

// advance stands at the first record at or after Next; false when there is none yet.
func (p *queuePartition) advance() (bool, error) {
	f := &p.ahead
	for {
		next := p.state.UntilUnknown(p.state.Next())
		p.state.Pass(next)
		for f.at && int64(f.it.Offset) < next {
			f.at = f.it.Next()
		}
		if f.at {
			return true, nil
		}
		if err := f.it.Err(); err != nil {
			return false, fmt.Errorf("read %s: %w", p.records.Name(), err)
		}
		if int64(f.reader.Offset()) < next {
			f.reader.Seek(log.Offset(next))
		}
		b, err := f.reader.Next()
		switch {
		case err == io.EOF:
			// What follows Next up to here were no records.
			p.reaches(f.reader.Position().Epoch)
			p.happened(p.state.Skip(int64(f.reader.Offset()), queue.Skipped)...)
			return false, nil
		case errors.Is(err, log.ErrOffsetOutOfRange) && int64(p.records.Start()) > next:
			start := p.records.Start()
			if at, err := p.records.PositionAt(start); err == nil {
				p.reaches(at.Epoch)
			}
			p.happened(p.state.Skip(int64(start), queue.Removed)...)
			f.reader.Seek(start)
		case err != nil:
			return false, fmt.Errorf("read %s: %w", p.records.Name(), err)
		default:
			f.it, f.epoch = b.Records(), b.Epoch
			f.at = f.it.Next()
		}
	}
}

// fetch reads the record at off; nil when it is not there any more.
func (p *queuePartition) fetch(off int64) (*handout, error) {
	if g := p.fetched; g != nil && g.offset == off {
		return g, nil
	}
	it, ok, err := recordAt(p.again, off)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p.records.Name(), err)
	}
	if !ok {
		return nil, nil
	}
	return p.copy(&it), nil
}

// recordAt reads the record at off; false when it is not there any more.
func recordAt(r *log.Reader, off int64) (it log.RecordIterator, ok bool, err error) {
	r.Seek(log.Offset(off))
	b, err := r.Next()
	if err == io.EOF || errors.Is(err, log.ErrOffsetOutOfRange) {
		return it, false, nil
	}
	if err != nil {
		return it, false, err
	}
	it = b.Records()
	if !it.Next() {
		return it, false, it.Err()
	}
	return it, int64(it.Offset) == off, nil
}

// copy copies the record that it stands at out of the log.
func (p *queuePartition) copy(it *log.RecordIterator) *handout {
	if g := p.fetched; g != nil && g.offset == int64(it.Offset) {
		return g
	}
	p.fetched = &handout{
		partition: p,
		offset:    int64(it.Offset),
		time:      it.Time,
		key:       slices.Clone(it.Key),
		value:     slices.Clone(it.Value),
	}
	if it.HasHeaders() {
		p.fetched.headers = copyHeaders(it.Headers())
	}
	return p.fetched
}

// describeRecords adds to s what the partition's records tell.
func describeRecords(s *QueuePartitionStatus, state *queue.State, records *log.Partition) error {
	end := int64(records.LastStable())
	start := max(state.Start(), int64(records.Start()))
	s.Backlog = max(end-start-state.DoneAbove(), 0)
	r := records.Reader(log.Offset(start), log.ReadCommitted)
	defer r.Close()
	for {
		b, err := r.Next()
		if err == io.EOF || errors.Is(err, log.ErrOffsetOutOfRange) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("topic: read %s: %w", records.Name(), err)
		}
		it := b.Records()
		for it.Next() {
			if !state.Done(int64(it.Offset)) {
				s.Oldest = time.UnixMilli(it.Time).UTC()
				return nil
			}
		}
		if next := state.UntilUnknown(int64(r.Offset())); next > int64(r.Offset()) {
			r.Seek(log.Offset(next))
		}
	}
}
