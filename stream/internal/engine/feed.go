package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/thalweg/thalweg/topic"
)

const (
	// feedAhead is how many records a feed may be ahead of what is committed before it waits.
	feedAhead = 1 << 17
	// feedKept is how many records that are committed stay in the feed's partition before they
	// are deleted, many at a time.
	feedKept = 1 << 14
)

// Feed brings what comes from outside of the log into a partition that the job reads as any
// other. Each batch ends with a mark: a record without key and value, whose header is the position
// behind the batch. So the records and how far they go are there together or not at all,
// and a later run goes on behind them.
//
// A feed has one goroutine, or is stepped.
type Feed struct {
	o    FeedOptions
	job  *Job
	next topic.LogOffset // of the batch to be written
	kept topic.LogOffset // what is before was deleted
	b    topic.BatchBuilder
	end  atomic.Int64 // once the input has ended, where that is; else negative. Written by the feed
	over bool         // it has ended or failed
}

// FeedOptions describes a feed to NewFeed.
type FeedOptions struct {
	Partition *topic.LogPartition
	Step      int
	Source    FeedSource
}

// FeedSource is what a feed reads.
type FeedSource interface {
	// Open tells the position to go on behind; nil is the beginning.
	Open(after []byte)

	// Fill adds what is there to b, a batch at most, and waits for the first record where there
	// is none; where the feed is stepped it does not wait. ended tells that no more is to come.
	Fill(ctx context.Context, b *topic.BatchBuilder) (f Filled, err error)

	// Holds tells whether something was taken that is to be in the next batch.
	Holds() bool

	Close()
}

// Filled is what Fill has added.
type Filled struct {
	Records int
	Time    int64 // of the last one, ms
	After   []byte
	Durable []func() // to be called once it is durable
	Ended   bool
}

// FeedMark is the header of a mark.
const FeedMark = "thalweg-after"

// ErrFedElsewhere is why a feed ends whose partition another one has written.
var ErrFedElsewhere = errors.New("stream: another run of the job reads the same source")

// NewFeed opens a feed. It begins where the partition says the one before it stopped.
func NewFeed(o FeedOptions) (*Feed, error) {
	f := &Feed{o: o, next: o.Partition.End().Offset, kept: o.Partition.Start()}
	f.end.Store(-1)
	after, err := f.lastMark()
	if err != nil {
		return nil, fmt.Errorf("find where %s stops: %w", o.Partition.Name(), err)
	}
	o.Source.Open(after)
	return f, nil
}

// lastMark is the position of the last mark; nil where there is none.
func (f *Feed) lastMark() (after []byte, err error) {
	if f.next == f.o.Partition.Start() {
		return nil, nil
	}
	r := f.o.Partition.Reader(f.next-1, topic.ReadUncommitted)
	defer r.Close()
	b, err := r.Next()
	if errors.Is(err, io.EOF) {
		err = errors.New("its last record cannot be read")
	}
	if err != nil {
		return nil, err
	}
	found := false
	for records := b.Records(); records.Next(); {
		found = records.Key == nil && records.Value == nil
		for _, h := range records.Headers() {
			if found && h.Key == FeedMark {
				after = append([]byte(nil), h.Value...)
			}
		}
	}
	if !found {
		return nil, errors.New("its last record is no mark: something else has written it")
	}
	return after, nil
}

// End is where the partition ends for good; negative while more may come.
func (f *Feed) End() topic.LogOffset { return topic.LogOffset(f.end.Load()) }

// run feeds until ctx ends, the input has ended or something fails.
func (f *Feed) run(ctx context.Context) {
	for ctx.Err() == nil && !f.over {
		if f.ahead() {
			if f.job.await(ctx, func() bool { return !f.ahead() }, nil) != nil {
				break
			}
		}
		f.step(ctx)
	}
	if !f.over && f.o.Source.Holds() { // what was taken is written
		f.step(ctx)
	}
}

// ahead tells whether the feed has to wait for the job.
func (f *Feed) ahead() bool { return int64(f.next-f.job.committedTo(f.o.Partition.Name())) > feedAhead }

// step brings one batch.
func (f *Feed) step(ctx context.Context) (worked bool) {
	if f.over {
		return false
	}
	filled, err := f.o.Source.Fill(ctx, &f.b)
	if filled.Records > 0 && err == nil {
		err = f.write(ctx, filled)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return false
	case err != nil:
		f.fail(err)
		return true
	}
	for _, done := range filled.Durable {
		done()
	}
	if filled.Ended {
		f.over = true
		f.end.Store(int64(f.next))
		for _, t := range f.job.tasks {
			t.Signal()
		}
	}
	f.tidy()
	return filled.Records > 0 || filled.Ended
}

// write appends the batch and its mark.
func (f *Feed) write(ctx context.Context, filled Filled) error {
	f.b.Add(filled.Time, nil, nil, []topic.Header{{Key: FeedMark, Value: filled.After}})
	batch, err := topic.EncodePlain(f.o.Partition, &f.b)
	if err != nil {
		return err
	}
	f.b.Reset()
	at, err := f.o.Partition.WriteIf(batch, func(t topic.LogTail) error {
		if t.End() != f.next {
			return ErrFedElsewhere
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write to %s: %w", f.o.Partition.Name(), err)
	}
	f.next = at.End.Offset
	return f.o.Partition.Acked(ctx, f.next)
}

// tidy deletes what the job has committed, once it is worth it. The last mark stays.
func (f *Feed) tidy() {
	upTo := min(f.job.committedTo(f.o.Partition.Name()), f.next-1)
	if upTo-f.kept < feedKept {
		return
	}
	if err := f.o.Partition.DeleteBefore(upTo); err != nil {
		f.fail(fmt.Errorf("delete what is committed from %s: %w", f.o.Partition.Name(), err))
		return
	}
	f.kept = upTo
}

func (f *Feed) fail(cause error) {
	f.over = true
	failure := &Failure{Job: f.job.o.Name, Offset: -1, Cause: cause}
	failure.Step, failure.Line = f.job.o.StepName(f.o.Step)
	if p, ok := errors.AsType[*PanicError](cause); ok {
		failure.Cause = p
	}
	if s, ok := cause.(interface{ Trace() []byte }); ok {
		failure.Stack = s.Trace()
	}
	f.job.fail(failure)
}

// committedTo is how far the job has committed a partition.
func (j *Job) committedTo(tp topic.TopicPartition) topic.LogOffset {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.committed[tp].Offset
}
