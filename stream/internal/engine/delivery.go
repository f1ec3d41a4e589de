package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/topic"
)

const (
	// firstRetry and lastRetry bound the time between two tries of a sink.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second

	// preparedRecords is how many records a two-phase sink is given before it prepares,
	// when there are always more.
	preparedRecords = 100_000

	// deliveredKept is how many delivered offsets may stay in the log.
	deliveredKept = 16 << 10
)

// External is where a delivery hands records to: the typed face of a user's sink. It is
// called by one goroutine at a time.
type External interface {
	// Take decodes a record and adds it to the batch.
	Take(at topic.LogPosition, r *topic.RecordIterator) error
	// Write hands the batch over. After an error it is called again with the same.
	Write(ctx context.Context) error
	// Reset empties the batch.
	Reset()
}

// TwoPhase is an External whose writes count once they are committed.
type TwoPhase interface {
	External
	Prepare(ctx context.Context) (handle []byte, err error)
	Commit(ctx context.Context, handle []byte) error
	Abort(ctx context.Context) error
}

// DeliveryOptions describes a delivery to OpenDelivery.
type DeliveryOptions struct {
	Partition *topic.LogPartition // of the internal topic, read committed
	Start     topic.LogPosition
	Sink      External
	Batch     int // records of one Write
	Backlog   int // offsets it may be behind before the job's sources wait
	Tries     int // the job fails when so many in a row did; 0 is never
	Step      int
	Name      string
}

// Delivery is the input of a task that hands the records of one partition of an internal topic
// to a sink outside. The sink is called by a goroutine of the delivery's own, so
// that one that is slow, or away, holds up no barrier: a checkpoint names what has
// been delivered by then.
type Delivery struct {
	t    *Task
	o    DeliveryOptions
	tx   TwoPhase // nil for a plain sink
	stop func()   // unregisters from the partition
	wake chan struct{}

	turn chan struct{} // semaphore: held while the sink is called, and to keep it from being called

	// The goroutine that has the turn owns these.
	reader     *topic.LogReader
	records    topic.RecordIterator
	epoch      topic.LogEpoch // of the batch being read
	inBatch    bool
	read       topic.LogPosition // after the last record taken
	taken      int               // records in the batch
	unprepared int               // records written since the last handle
	failures   int               // in a row
	retryAt    time.Time
	kept       topic.LogOffset // delivered records before were deleted

	mu        sync.Mutex // guards the fields below; a leaf
	h         handover
	committed topic.LogPosition // done in the newest complete checkpoint
	status    DeliveryStatus

	// Of the barrier being passed; the task's.
	barrier checkpoint.Input
	handle  []byte
	decides bool // the handle is new: the sink commits when the checkpoint is complete
}

// DeliveryStatus is what can be seen of a delivery.
type DeliveryStatus struct {
	Delivered int64 // records handed over since the attempt began
	Behind    int64 // offsets committed and not handed over
	Retries   int64
	Err       error // why the sink is not getting on; nil when it is
}

// OpenDelivery opens a delivery in task t, which has no other input.
func OpenDelivery(t *Task, o DeliveryOptions) {
	d := &Delivery{t: t, o: o, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1), committed: o.Start, kept: o.Partition.Start()}
	d.tx, _ = o.Sink.(TwoPhase)
	d.h = newHandover(d.tx != nil, o.Start, nil)
	d.stop = o.Partition.OnAdvance(d.signal)
	d.seek(o.Start)
	t.inputs = append(t.inputs, d)
	t.sources++
	t.job.deliveries = append(t.job.deliveries, d)
	t.AddClock(o.Name, func(b []byte) []byte { return append(b, d.handle...) }, d.restore, func() {})
	t.OnBarrier(d.passBarrier)
	t.OnComplete(d.complete)
}

// restore takes the handle of the checkpoint the attempt starts from.
func (d *Delivery) restore(handle []byte) error {
	if len(handle) > 0 && d.tx == nil {
		return errors.New("the sink has something prepared that only a two-phase sink can commit: run the job once more with the sink it had")
	}
	d.handle = handle
	d.h = newHandover(d.tx != nil, d.o.Start, handle)
	return nil
}

func (d *Delivery) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// seek begins to read at pos. What was deleted before it had been delivered: a
// checkpoint that was committed says so, also where a power cut has taken that.
func (d *Delivery) seek(pos topic.LogPosition) {
	if d.reader != nil {
		d.reader.Close()
	}
	pos.Offset = max(pos.Offset, d.o.Partition.Start())
	d.reader = d.o.Partition.Reader(pos.Offset, topic.ReadCommitted)
	d.inBatch, d.read, d.taken, d.unprepared = false, pos, 0, 0
	d.o.Sink.Reset()
}

// Task side.

// poll lets a delivery without a goroutine do a piece of work.
func (d *Delivery) poll() bool { return d.t.stepped() && d.step(d.t.job.ctx) }

func (d *Delivery) passBarrier() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.barrier = checkpoint.Input{Partition: d.o.Partition.Name()}
	d.decides = d.h.phase == phasePrepared
	d.barrier.Next, d.handle = d.h.report(d.t.generation)
}

func (d *Delivery) position() checkpoint.Input { return d.barrier }

// complete takes note that checkpoint n, the one the task passed last, is complete.
func (d *Delivery) complete(n int64) {
	d.mu.Lock()
	d.committed = d.barrier.Next
	d.h.complete(n)
	d.mu.Unlock()
	d.signal()
	d.t.job.signal() // it may have waited for this to end
}

func (d *Delivery) atRest() bool { return true }

func (d *Delivery) silent(lanes []heldLane) []heldLane { return lanes }

// close lets go of the partition. The sink is not called by anybody any more: what it
// has and no checkpoint will name is dropped. What this misses the next attempt drops.
func (d *Delivery) close() {
	d.stop()
	defer d.reader.Close()
	if d.t.job.killed {
		return
	}
	if d.h.droppable() {
		ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
		defer cancel()
		_ = d.call(func() error { return d.tx.Abort(ctx) })
	}
	if c, ok := d.o.Sink.(io.Closer); ok {
		if err := d.call(c.Close); err != nil {
			d.t.job.o.Logger.Warn("stream: close a sink", "job", d.t.job.o.Name, "sink", d.o.Partition.Name(), "error", err)
		}
	}
}

// Sink side.

// run hands records over until ctx ends or the delivery has failed the job.
func (d *Delivery) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case d.turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		worked := d.step(ctx)
		wait := d.retryAt.Sub(d.t.job.o.Now())
		<-d.turn
		if worked {
			continue
		}
		var again <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			again = timer.C
		}
		select {
		case <-d.wake:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// step does one thing for the sink, and tells whether there was any.
func (d *Delivery) step(ctx context.Context) (worked bool) {
	if ctx.Err() != nil || d.retryAt.After(d.t.job.o.Now()) {
		return false
	}
	d.mu.Lock()
	next, handle := d.h.next(), d.h.handle
	d.mu.Unlock()
	switch next {
	case actionCommit:
		if d.try(func() error { return d.tx.Commit(ctx, handle) }, "commit") {
			d.advance(func(h *handover) { h.committed() })
		}
	case actionAbort:
		if d.try(func() error { return d.tx.Abort(ctx) }, "abort") {
			d.mu.Lock()
			d.h.aborted()
			from := d.h.done
			d.mu.Unlock()
			d.seek(from)
		}
	case actionWrite:
		return d.write(ctx)
	case actionWait:
		return false
	}
	return true
}

// write hands the next batch over, or, when all is, prepares it.
func (d *Delivery) write(ctx context.Context) (worked bool) {
	if err := d.fill(); err != nil {
		d.fail(err, nil)
		return false
	}
	if d.taken > 0 {
		n := d.taken
		if !d.try(func() error { return d.o.Sink.Write(ctx) }, "write") {
			if d.tx != nil { // it may have some of the batch
				d.spoil()
			}
			return true
		}
		d.o.Sink.Reset()
		d.taken = 0
		d.unprepared += n
		at := d.read
		d.advance(func(h *handover) { h.wrote(at); d.status.Delivered += int64(n) })
		d.tidy()
		if d.unprepared < preparedRecords || !d.preparable() {
			return true
		}
	} else {
		d.passOver()
	}
	if d.unprepared == 0 || !d.preparable() {
		return false
	}
	var handle []byte
	if !d.try(func() (err error) { handle, err = d.tx.Prepare(ctx); return err }, "prepare") {
		d.spoil()
		return true
	}
	d.unprepared = 0
	d.advance(func(h *handover) { h.prepared(handle) })
	return true
}

// passOver takes note of markers and aborted records at the end of what there is to read.
func (d *Delivery) passOver() {
	d.read = d.reader.Position()
	d.mu.Lock()
	before := d.h.done
	d.h.wrote(d.read)
	if d.unprepared == 0 && d.h.preparable() {
		d.h.prepared(nil)
	}
	moved := d.h.done != before
	d.mu.Unlock()
	if moved {
		d.t.moved()
		d.t.job.delivered()
	}
	d.tidy()
}

// fill takes records until the batch is full or there are no more. A batch that
// is being tried again stays as it is.
func (d *Delivery) fill() error {
	if d.taken > 0 {
		return nil
	}
	for d.taken < d.o.Batch {
		if !d.inBatch {
			b, err := d.reader.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read %s: %w", d.o.Partition.Name(), err)
			}
			d.records, d.inBatch, d.epoch = b.Records(), true, b.Epoch
		}
		if !d.records.Next() {
			if err := d.records.Err(); err != nil {
				return fmt.Errorf("read %s: %w", d.o.Partition.Name(), err)
			}
			d.inBatch = false
			continue
		}
		at := topic.LogPosition{Offset: d.records.Offset, Epoch: d.epoch}
		if err := d.o.Sink.Take(at, &d.records); err != nil {
			return fmt.Errorf("offset %d of %s: %w", at.Offset, d.o.Partition.Name(), err)
		}
		d.taken++
		d.read = topic.LogPosition{Offset: at.Offset + 1, Epoch: at.Epoch}
	}
	return nil
}

func (d *Delivery) preparable() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.h.preparable()
}

// spoil has all written since the last handle dropped and written again.
func (d *Delivery) spoil() {
	d.mu.Lock()
	d.h.spoil()
	d.mu.Unlock()
	d.unprepared = 0
}

// advance changes how far the delivery is, which a checkpoint is to name.
func (d *Delivery) advance(f func(h *handover)) {
	d.mu.Lock()
	f(&d.h)
	d.mu.Unlock()
	d.t.moved()
	d.t.job.delivered()
}

// try calls the sink. After an error it is called again a while later, longer each time,
// until it agrees: records wait in the log, and the job goes on. A panic, or too
// many errors in a row, ends the job.
func (d *Delivery) try(f func() error, doing string) (ok bool) {
	err := d.call(f)
	if err == nil {
		if d.failures > 0 {
			d.t.job.o.Logger.Info("stream: a sink is well again", "job", d.t.job.o.Name, "sink", d.o.Partition.Name(), "after tries", d.failures)
		}
		d.failures, d.retryAt = 0, time.Time{}
		d.mu.Lock()
		d.status.Err = nil
		d.mu.Unlock()
		return true
	}
	if _, panicked := errors.AsType[*PanicError](err); panicked || d.t.job.ctx.Err() != nil {
		return false // the job is over, and told why
	}
	err = fmt.Errorf("%s: %w", doing, err)
	d.failures++
	if d.o.Tries > 0 && d.failures >= d.o.Tries {
		d.fail(fmt.Errorf("%d tries in a row failed, the last one: %w", d.failures, err), nil)
		return false
	}
	wait := min(firstRetry<<min(d.failures-1, 16), lastRetry)
	d.retryAt = d.t.job.o.Now().Add(wait)
	d.mu.Lock()
	d.status.Retries++
	d.status.Err = err
	d.mu.Unlock()
	d.t.job.o.Logger.Warn("stream: a sink failed and is tried again", "job", d.t.job.o.Name, "sink", d.o.Partition.Name(),
		"try", d.failures, "again in", wait, "error", err)
	return false
}

// call calls the sink, and ends the job when it panics or does not come back.
func (d *Delivery) call(f func() error) (err error) {
	returned := false
	defer func() {
		if r := recover(); r != nil {
			err = &PanicError{r}
			d.fail(err, debug.Stack())
		} else if !returned {
			d.fail(errGoexit, debug.Stack())
		}
	}()
	err = f()
	returned = true
	return err
}

// fail ends the job.
func (d *Delivery) fail(cause error, stack []byte) {
	f := &Failure{Job: d.t.job.o.Name, Source: d.o.Partition.Name(), Offset: -1, Cause: cause, Stack: stack}
	f.Step, f.Line = d.t.job.o.StepName(d.o.Step)
	d.t.job.fail(f)
}

// tidy deletes what was delivered according to a complete checkpoint, once it is worth it.
func (d *Delivery) tidy() {
	d.mu.Lock()
	upTo := d.committed.Offset
	d.mu.Unlock()
	if upTo-d.kept < deliveredKept {
		return
	}
	if err := d.o.Partition.DeleteBefore(upTo); err != nil {
		d.fail(fmt.Errorf("delete what was delivered from %s: %w", d.o.Partition.Name(), err), nil)
		return
	}
	d.kept = upTo
}

// behind is the number of offsets that are there and not handed over.
func (d *Delivery) behind() int64 {
	end := d.o.Partition.LastStable()
	d.mu.Lock()
	defer d.mu.Unlock()
	return int64(end - d.h.written.Offset)
}

// settled tells whether all before end was delivered, and a complete checkpoint says so.
func (d *Delivery) settled(end topic.LogOffset) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.committed.Offset >= end && d.h.phase == phaseOpen && !d.h.spoiled
}

// pause waits until the sink is not being called, and keeps it from being called again.
func (d *Delivery) pause(ctx context.Context) (paused bool) {
	select {
	case d.turn <- struct{}{}:
		return true
	case <-d.t.job.finished:
	case <-ctx.Done():
	}
	return false
}

// commitNow commits what a complete checkpoint has decided, if the sink agrees at once.
// The delivery is paused.
func (d *Delivery) commitNow(ctx context.Context) {
	d.mu.Lock()
	d.h.complete(d.t.job.completed.Load()) // the task may not have seen it yet
	commit, handle := d.h.next() == actionCommit, d.h.handle
	d.mu.Unlock()
	if commit && d.try(func() error { return d.tx.Commit(ctx, handle) }, "commit") {
		d.advance(func(h *handover) { h.committed() })
	}
}

// Status is what can be seen of the delivery. It may be called by anybody.
func (d *Delivery) Status() DeliveryStatus {
	behind := d.behind()
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.status
	s.Behind = behind
	return s
}
