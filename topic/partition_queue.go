package topic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/thalweg/thalweg/log"
)

// want says what the caller of add wants to know of its record.
type want struct {
	outcome bool         // it keeps the batch's outcome
	hurry   bool         // somebody waits: the batch does not linger
	report  bool         // Flush reports a failure
	done    func(Result) // called with the result, unless nil
}

// ticket is a record's place: number index of the batch with that outcome.
type ticket struct {
	outcome   *outcome // nil unless want.outcome
	partition int
	index     int32
	time      int64 // of the record, Unix milliseconds
}

// result is what became of the record; its batch is done.
func (t *ticket) result() Result {
	return resultOf(t.partition, t.outcome.res, t.outcome.err, t.index, t.time)
}

// appender is what a queue needs of its partition; *log.Partition is one. An
// Append that fails but returns where the batch went has written it.
type appender interface {
	Name() log.TopicPartition
	Encode(b *log.BatchBuilder, p log.Producer) ([]byte, error)
	Write(batch []byte) (log.AppendResult, error)
	WriteIf(batch []byte, holds func(log.Tail) error) (log.AppendResult, error)
	Append(ctx context.Context, batch []byte) (log.AppendResult, error)
	Acked(ctx context.Context, end log.Offset) error
	HighWatermark() log.Offset
	ProducerState(id log.ProducerID) (log.ProducerState, bool)
	Reader(from log.Offset, iso log.Isolation) *log.Reader
	Start() log.Offset
	Horizon() log.Offset
}

// partitionQueue collects a producer's records of one partition in batches and
// writes them in order, one batch at a time. While one is in flight the next
// fills up, so the slower the disk, the larger the batches. A second one in flight
// would save nothing, since there is no network to cross, and be stored out of order
// where the first fails.
type partitionQueue struct {
	s         *sender
	partition appender
	name      TopicPartition
	wake      chan struct{} // one token: the writer has something to look at
	versions  versions      // of the partition's keys, for conditions

	mu      sync.Mutex      // guards the fields below; a leaf
	open    *pendingBatch   // being filled; nil or not empty
	serial  uint32          // of open or, while nil, of the batch to come
	full    []*pendingBatch // closed before open, oldest first
	flying  *pendingBatch   // with the writer
	hurried bool            // open is not to linger
	running bool            // the writer has been started
	closed  bool
	failed  error // a *queueError no batch can get past; set once, by the writer

	sequence int32           // of the next batch's first record; changed by the writer alone
	repeated []log.SentBatch // what the records to come repeat, less those added already
}

// anySerial is for records whose partition is given, whatever batch is open.
const anySerial = -1

// errBatchClosed says that the batch a record without key was meant for is full
// or gone.
var errBatchClosed = errors.New("topic: batch is closed")

// queueError is why a queue takes no more records.
type queueError struct {
	partition TopicPartition
	err       error
}

func (e *queueError) Error() string {
	return fmt.Sprintf("topic: produce to %s: %v", e.partition, e.err)
}
func (e *queueError) Unwrap() error { return e.err }

func newPartitionQueue(s *sender, p appender) *partitionQueue {
	return &partitionQueue{s: s, partition: p, name: p.Name(), wake: make(chan struct{}, 1), versions: versions{partition: p}}
}

// add appends e to the batch being filled or, where it is full, to a new one,
// for which it may wait. With a serial other than anySerial it adds to the batch
// of that number alone, or returns errBatchClosed.
func (q *partitionQueue) add(ctx context.Context, e *entry, w want, serial int64) (ticket, error) {
	size := e.maxSize()
	var spare *pendingBatch // acquired while mu was released
	q.mu.Lock()
	for {
		err := q.admitLocked(size, serial)
		if err == nil && q.open == nil && spare != nil {
			q.open, spare = spare, nil
			q.open.opened = time.Now()
		}
		if err == nil && q.open == nil {
			q.mu.Unlock()
			if spare, err = q.s.acquire(ctx, size); err != nil {
				return ticket{}, fmt.Errorf("topic: produce to %s: wait for memory: %w", q.name, err)
			}
			q.mu.Lock()
			continue
		}
		var t ticket
		if err == nil {
			t = q.appendLocked(e, w)
		}
		q.mu.Unlock()
		if spare != nil { // somebody else has opened a batch meanwhile, or this one may not be
			q.s.release(spare)
		}
		return t, err
	}
}

// admitLocked closes the open batch if it has no room for size bytes, and
// returns why a record may not be added, if so.
func (q *partitionQueue) admitLocked(size int, serial int64) error {
	switch {
	case q.closed:
		return ErrClosed
	case q.failed != nil:
		return q.failed
	case q.open != nil && !q.open.fits(size, q.s.opts.BatchBytes):
		q.closeOpenLocked()
	}
	if serial != anySerial && serial != int64(q.serial) {
		return errBatchClosed
	}
	return nil
}

// closeOpenLocked makes the open batch wait for the writer behind those before it.
func (q *partitionQueue) closeOpenLocked() {
	q.full = append(q.full, q.open)
	q.open, q.hurried = nil, false
	q.serial++
	q.signal()
}

// appendLocked adds e to the open batch and wakes the writer if it has to know.
func (q *partitionQueue) appendLocked(e *entry, w want) ticket {
	b := q.open
	t := q.addLocked(b, e, w)
	if !q.hurried && (w.hurry || q.s.waiting.Load() > 0) {
		q.hurried = true
		q.signal()
	} else if t.index == 0 {
		q.signal()
	}
	if len(q.repeated) > 0 {
		q.repeatLocked(b)
	}
	return t
}

// addLocked adds e to b and starts the writer with the first record.
func (q *partitionQueue) addLocked(b *pendingBatch, e *entry, w want) ticket {
	t := ticket{partition: int(q.name.Partition), index: int32(b.builder.Len()), time: e.time}
	b.builder.Add(e.time, e.key, e.value, e.headers)
	if w.outcome {
		t.outcome = b.awaited()
	}
	if w.report {
		b.queued++
	}
	if w.done != nil {
		b.callbacks = append(b.callbacks, callback{f: w.done, index: t.index, time: e.time})
	}
	if !q.running {
		q.running = true
		q.s.writers.Go(q.run)
	}
	return t
}

// addIf adds e as a batch of its own, which is written only if c holds then.
func (q *partitionQueue) addIf(ctx context.Context, e *entry, c *check) (ticket, error) {
	b, err := q.s.acquire(ctx, e.maxSize())
	if err != nil {
		return ticket{}, fmt.Errorf("topic: produce to %s: wait for memory: %w", q.name, err)
	}
	q.mu.Lock()
	switch {
	case q.closed:
		err = ErrClosed
	case q.failed != nil:
		err = q.failed
	case len(q.repeated) > 0:
		err = fmt.Errorf("topic: produce to %s: records are being repeated, and those have no conditions", q.name)
	}
	if err != nil {
		q.mu.Unlock()
		q.s.release(b)
		return ticket{}, err
	}
	defer q.mu.Unlock()
	if q.open != nil {
		q.closeOpenLocked()
	}
	b.condition, b.opened = c, time.Now()
	t := q.addLocked(b, e, want{outcome: true})
	q.full = append(q.full, b)
	q.signal()
	return t, nil
}

// signal lets the writer look again. It never blocks.
func (q *partitionQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// present is the number of the batch being filled, or of the one to come.
func (q *partitionQueue) present() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.serial
}

// hurry ends the lingering of the open batch.
func (q *partitionQueue) hurry() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open != nil {
		q.hurried = true
		q.signal()
	}
}

// last hurries the queue and returns the outcome of its newest batch, or nil if
// all are done. Batches are done in order, so then all of them are.
func (q *partitionQueue) last() *outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.open != nil:
		q.hurried = true
		q.signal()
		return q.open.awaited()
	case len(q.full) > 0:
		return q.full[len(q.full)-1].awaited()
	case q.flying != nil:
		return q.flying.awaited()
	}
	return nil
}

// close refuses records from now on and lets the writer end once it has written
// those it has.
func (q *partitionQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// run is the writer's goroutine. It ends when the queue is closed and empty.
func (q *partitionQueue) run() {
	linger := time.NewTimer(0)
	defer linger.Stop()
	for {
		b, wait, done := q.take()
		switch {
		case b != nil:
			q.write(b)
		case done:
			return
		case wait > 0:
			linger.Reset(wait)
			select {
			case <-q.wake:
			case <-linger.C:
			}
		default:
			<-q.wake
		}
	}
}

// take returns the batch to write next. When there is none yet it returns how
// long the open one still lingers, or 0 if nothing is open; done says that
// nothing will come.
func (q *partitionQueue) take() (b *pendingBatch, wait time.Duration, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.full) > 0 {
		b = q.full[0]
		q.full = slices.Delete(q.full, 0, 1)
		q.flying = b
		return b, 0, false
	}
	if q.open == nil {
		return nil, 0, q.closed
	}
	if !q.hurried && !q.closed {
		if wait = q.s.opts.Linger - time.Since(q.open.opened); wait > 0 {
			return nil, wait, false
		}
	}
	b, q.open, q.hurried = q.open, nil, false
	q.serial++
	q.flying = b
	return b, 0, false
}

// write writes a batch, waits for its acknowledgement and tells everybody
// concerned: Flush first, then the callbacks, then who waits.
func (q *partitionQueue) write(b *pendingBatch) {
	res, err := q.append(b)

	q.mu.Lock()
	q.flying = nil
	o := b.outcome // nobody asks for it any more
	q.mu.Unlock()

	if err != nil {
		q.s.fail(b.queued, err)
	}
	for _, c := range b.callbacks {
		c.f(resultOf(int(q.name.Partition), res, err, c.index, c.time))
	}
	if o != nil {
		o.res, o.err = res, err
		close(o.done)
	}
	q.s.release(b)
}

// append writes b to the partition and returns where it went.
func (q *partitionQueue) append(b *pendingBatch) (log.AppendResult, error) {
	if q.failed != nil {
		return log.AppendResult{}, q.failed
	}
	n := b.builder.Len()
	left := q.s.timeLeft(b)
	if left <= 0 {
		return log.AppendResult{}, fmt.Errorf("%w: %d records for %s waited longer than %v and were not written", ErrTimeout, n, q.name, q.s.opts.DeliveryTimeout)
	}
	if b.repeats >= 0 {
		if err := q.acked(left, b.repeats+log.Offset(n)); err != nil {
			return log.AppendResult{}, fmt.Errorf("%w: repeat %d records of %s: %w", ErrUnknown, n, q.name, err)
		}
		return log.AppendResult{Base: b.repeats}, nil
	}
	res, err := q.put(b, left)
	written := res.End.Offset > 0
	if written { // its numbers are used up whatever else may be wrong
		q.mu.Lock()
		q.sequence = int32((int64(q.sequence) + int64(n)) & math.MaxInt32)
		q.mu.Unlock()
	}
	switch {
	case err == nil:
		return res, nil
	case b.condition != nil && b.condition.refused != nil:
		return log.AppendResult{}, b.condition.refused
	case written && errors.Is(err, context.DeadlineExceeded):
		// It stays in the log, and the batches behind it go on.
		return log.AppendResult{}, fmt.Errorf("%w: %w: %d records of %s were written but not acknowledged within %v", ErrUnknown, ErrTimeout, n, q.name, q.s.opts.DeliveryTimeout)
	case errors.Is(err, context.DeadlineExceeded):
		return log.AppendResult{}, fmt.Errorf("%w: %d records for %s were not written: %w", ErrTimeout, n, q.name, err)
	case written || errors.Is(err, log.ErrOffline):
		// Written, but maybe not as durable as asked; or the write itself failed,
		// after which recovery may still find the batch whole.
		q.giveUp(err)
		return log.AppendResult{}, fmt.Errorf("%w: produce to %s: %w", ErrUnknown, q.name, err)
	case errors.Is(err, log.ErrClosed) || errors.Is(err, log.ErrFenced) || errors.Is(err, log.ErrOutOfOrder):
		return log.AppendResult{}, q.giveUp(err)
	}
	// Another batch may fare better.
	return log.AppendResult{}, fmt.Errorf("topic: produce %d records to %s: %w", n, q.name, err)
}

// put writes b and waits until it is acknowledged, both for left at most.
func (q *partitionQueue) put(b *pendingBatch, left time.Duration) (log.AppendResult, error) {
	batch, err := q.partition.Encode(&b.builder, log.Producer{ID: q.s.id, Sequence: q.sequence})
	if err != nil {
		return log.AppendResult{}, err
	}
	var res log.AppendResult
	if b.condition != nil {
		res, err = b.condition.write(q.partition, batch)
	} else {
		res, err = q.partition.Write(batch)
	}
	switch {
	case errors.Is(err, log.ErrUnknownOwner) && b.condition == nil:
		ctx, cancel := context.WithTimeout(context.Background(), left)
		defer cancel()
		return q.partition.Append(ctx, batch) // which waits for the owner
	case err != nil:
		return log.AppendResult{}, err
	}
	return res, q.acked(left, res.End.Offset)
}

// acked waits until all below end is acknowledged, for left at most. Mostly it is
// already, and no timer is needed.
func (q *partitionQueue) acked(left time.Duration, end log.Offset) error {
	if q.partition.HighWatermark() >= end {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	return q.partition.Acked(ctx, end)
}

// giveUp makes err the answer to every record of the queue that is not written.
func (q *partitionQueue) giveUp(err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failed = &queueError{partition: q.name, err: err}
	q.hurried = q.open != nil
	return q.failed
}

// resultOf is the result of record index, with the given time, of a batch.
func resultOf(partition int, res log.AppendResult, err error, index int32, timeMs int64) Result {
	if res.AppendTime != 0 {
		timeMs = res.AppendTime
	}
	r := Result{Partition: partition, Offset: -1, Time: time.UnixMilli(timeMs).UTC(), Err: err}
	if err == nil {
		r.Offset = int64(res.Base) + int64(index)
	}
	return r
}
