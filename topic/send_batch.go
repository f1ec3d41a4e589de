package topic

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// SendBatch writes records in one call and returns when each is as durable as the
// topic asks or has failed. The results are in the order of records. The error is
// that of the first record that failed, and matches ErrUnknown if any result's does.
// Records share batches but may fail apart: for all or nothing see Node.Transact.
//
// When ctx ends, records not handed over yet have definite errors, and those on
// their way errors that match ErrUnknown.
func (p *Producer[K, V]) SendBatch(ctx context.Context, records []Record[K, V]) ([]Result, error) {
	tickets := make([]ticket, len(records))
	results := make([]Result, len(records))
	for i := range records {
		var err error
		if tickets[i], err = p.put(ctx, &records[i], want{outcome: true}); err != nil {
			results[i] = Result{Partition: -1, Offset: -1, Err: err}
		}
	}
	p.sender.hurry()
	var first error
	unknown := false
	for i := range results {
		r := &results[i]
		if t := &tickets[i]; r.Err == nil {
			*r = Result{Partition: t.partition, Time: time.UnixMilli(t.time).UTC()}
			if _, r.Offset, r.Err = p.sender.await(ctx, *t); r.Err == nil {
				*r = t.result()
			}
		}
		if r.Err != nil && first == nil {
			first = r.Err
		}
		unknown = unknown || errors.Is(r.Err, ErrUnknown)
	}
	if unknown && !errors.Is(first, ErrUnknown) {
		first = fmt.Errorf("%w: of a later record: %w", ErrUnknown, first)
	}
	return results, first
}

// Async hands over one record and returns before it is written, as Queue does. What
// became of it the result tells, and Flush, if it failed.
func (p *Producer[K, V]) Async(ctx context.Context, k K, v V) (*Pending, error) {
	return p.AsyncRecord(ctx, Record[K, V]{Key: k, Value: v})
}

// AsyncRecord is Async for a record with headers, a time or neither key nor value.
func (p *Producer[K, V]) AsyncRecord(ctx context.Context, r Record[K, V]) (*Pending, error) {
	t, err := p.put(ctx, &r, want{outcome: true, report: true})
	if err != nil {
		return nil, err
	}
	return &Pending{ticket: t, sender: p.sender}, nil
}

// Pending is a record on its way. Its methods may be called concurrently.
type Pending struct {
	ticket ticket
	sender *sender
}

// Done is closed once the record is as durable as the topic asks, or has failed. The
// record may linger until then; Wait ends that.
func (p *Pending) Done() <-chan struct{} { return p.ticket.outcome.done }

// Wait waits until the record is as durable as the topic asks, and returns where it
// is stored. When ctx ends first the error matches ErrUnknown; Wait may be called
// again.
func (p *Pending) Wait(ctx context.Context) (partition int, offset int64, err error) {
	select {
	case <-p.ticket.outcome.done: // also when ctx has ended
		ctx = context.WithoutCancel(ctx)
	default:
		p.sender.known()[p.ticket.partition].hurry()
	}
	return p.sender.await(ctx, p.ticket)
}

// Result tells what became of the record; ok is false while that is not known.
func (p *Pending) Result() (r Result, ok bool) {
	select {
	case <-p.ticket.outcome.done:
		return p.ticket.result(), true
	default:
		return Result{}, false
	}
}
