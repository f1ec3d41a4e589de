package topic

import (
	"context"
	"fmt"
	"iter"

	"github.com/thalweg/thalweg/log"
)

// source hands out the records of a consumer as values of R.
type source[R any] struct {
	c      *consumer
	decode func(it *log.RecordIterator, cl *claim) (R, error)
	polled []R // what Poll returned last
}

// records iterates. Under at least once a record is finished when the loop asks for the next.
func (s *source[R]) records(ctx context.Context) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		var none R
		leave, err := s.c.enter()
		if err != nil {
			yield(none, err)
			return
		}
		defer leave()
		defer func() { s.c.handed = 0 }() // what the loop was left with is not finished
		for {
			b, cl, err := s.c.next(ctx)
			if err == nil {
				err = s.deliver(ctx, b, cl, yield)
			}
			if err == errStopped {
				return
			}
			if err != nil {
				yield(none, err)
				return
			}
		}
	}
}

// deliver yields the records of a batch until the program or the group wants
// something else. What is left is read again.
func (s *source[R]) deliver(ctx context.Context, b *log.Batch, cl *claim, yield func(R, error) bool) error {
	c := s.c
	ahead := int64(0)
	if c.opts.Delivery == AtMostOnce {
		ahead = 1 // a record is over when it is handed out
	}
	it := b.Records()
	for it.Next() {
		if cl.holdback.passes(&it, int(cl.name.Partition)) {
			continue
		}
		r, err := s.decode(&it, cl)
		if err != nil {
			cl.done.Store(int64(it.Offset))
			return err
		}
		cl.done.Store(int64(it.Offset) + ahead)
		c.handed = int64(it.Offset) + 1
		if !yield(r, nil) {
			return errStopped
		}
		// What was committed ahead is handed out before anything else is done.
		if ctx.Err() != nil || c.attention.Load() && (ahead == 0 || c.isClosed()) {
			return nil // the record is finished: next looks, and comes back to the rest
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("topic: read %s: %w", cl.name, err)
	}
	c.handed = int64(b.Last) + 1
	return nil
}

// poll returns the next records of one partition. Asking finishes those before.
func (s *source[R]) poll(ctx context.Context) ([]R, error) {
	leave, err := s.c.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	clear(s.polled)
	s.polled = s.polled[:0]
	for len(s.polled) == 0 {
		if err := s.fill(ctx); err != nil {
			return nil, err
		}
	}
	if s.c.opts.Delivery == AtMostOnce {
		s.c.current.done.Store(s.c.handed)
	}
	return s.polled, nil
}

// fill takes records of the batch that poll left, or else of the next one.
func (s *source[R]) fill(ctx context.Context) error {
	c := s.c
	if c.batch == nil || c.handed == 0 || c.attention.Load() {
		b, _, err := c.next(ctx)
		if err != nil {
			return err
		}
		c.batch, c.records = b, b.Records()
	} else {
		c.polls.Add(1)
		c.current.done.Store(c.handed)
	}
	for c.records.Next() {
		if c.current.holdback.passes(&c.records, int(c.current.name.Partition)) {
			continue
		}
		r, err := s.decode(&c.records, c.current)
		if err != nil {
			c.batch = nil // what is in hand comes first; the next call meets the record again
			if len(s.polled) > 0 {
				return nil
			}
			c.current.done.Store(int64(c.records.Offset))
			c.handed = 0
			return err
		}
		s.polled = append(s.polled, r)
		c.handed = int64(c.records.Offset) + 1
		if len(s.polled) == c.opts.MaxPollRecords {
			return nil
		}
	}
	if err := c.records.Err(); err != nil {
		c.batch = nil
		return fmt.Errorf("topic: read %s: %w", c.current.name, err)
	}
	c.handed = int64(c.batch.Last) + 1
	c.batch = nil
	return nil
}

// batches iterates over what poll returns. A batch is finished when the loop asks for
// the next.
func (s *source[R]) batches(ctx context.Context) iter.Seq2[[]R, error] {
	return func(yield func([]R, error) bool) {
		finished := false
		defer func() {
			if !finished {
				s.c.handed = 0
			}
		}()
		for {
			b, err := s.poll(ctx)
			finished = false
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(b, nil) {
				return
			}
			finished = true
		}
	}
}
