package topic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/thalweg/thalweg/log"
)

// sender is the part of a producer that knows no types: it spreads encoded
// records over the partitions' queues and bounds the memory they take.
type sender struct {
	topic  string
	id     log.ProducerID
	opts   ProducerOptions
	limit  sizeLimit // of a record, as entry.maxSize counts
	growth growth    // of the topic, unless its node is nil
	layout atomic.Pointer[layout]

	// maxRecord is the topic's limit of a record, as entry.payload counts; 0 is none.
	maxRecord  func() int64
	compressor *log.Compressor // nil for the topic's

	memory  *semaphore.Weighted // bytes, opts.MemoryBytes in all
	waiting atomic.Int32        // callers that wait for memory; while > 0 no batch lingers

	// sticky is where records without key go: a partition (high 32 bits) and the
	// serial number of the batch there that they fill (low 32 bits). Whoever
	// finds that batch closed moves on to the next partition.
	sticky atomic.Uint64

	writers sync.WaitGroup // the goroutines of queues

	growing sync.Mutex // held while queues are added; taken before mu
	closed  bool       // none is added any more; guarded by growing

	mu      sync.Mutex // guards the fields below; a leaf
	free    []*pendingBatch
	failed  int   // queued records that failed since the last report
	first   error // of them
	unknown bool  // one of them matched ErrUnknown
}

func newSender[P appender](topic string, id log.ProducerID, partitions []P, o ProducerOptions) *sender {
	s := &sender{
		topic:  topic,
		id:     id,
		opts:   o,
		limit:  sizeLimit{o.MemoryBytes, "ProducerOptions.MemoryBytes"},
		memory: semaphore.NewWeighted(int64(o.MemoryBytes)),
	}
	if s.limit.bytes > maxRecordBytes {
		s.limit = sizeLimit{maxRecordBytes, "the format"}
	}
	s.maxRecord = func() int64 { return 0 }
	l := &layout{}
	for _, p := range partitions {
		l.queues = append(l.queues, newPartitionQueue(s, p))
	}
	s.layout.Store(l)
	// Producers start at different partitions, or many short-lived ones would
	// fill the first alone.
	s.sticky.Store(packSticky(int(uint64(id)%uint64(len(partitions))), 0))
	return s
}

// layout is the queues of a sender. It is never changed: one with more of them takes
// its place.
type layout struct {
	queues  []*partitionQueue // by partition
	changed <-chan struct{}   // closed when there may be more
}

// known returns the queues there are.
func (s *sender) known() []*partitionQueue { return s.layout.Load().queues }

// partitions returns a queue for each partition that the topic has now.
func (s *sender) partitions() []*partitionQueue {
	if l := s.layout.Load(); !isClosed(l.changed) {
		return l.queues
	}
	return s.grow()
}

// grow adds queues for the partitions that were added to the topic.
func (s *sender) grow() []*partitionQueue {
	s.growing.Lock()
	defer s.growing.Unlock()
	queues := s.known()
	if s.closed {
		return queues
	}
	more, changed := s.growth.next(len(queues))
	var added []*partitionQueue
	for _, p := range more {
		added = append(added, newPartitionQueue(s, p))
	}
	if s.opts.Name != "" {
		s.resume(added)
	}
	queues = append(slices.Clip(queues), added...)
	s.layout.Store(&layout{queues, changed})
	return queues
}

// sizeLimit is a number of bytes and what sets it.
type sizeLimit struct {
	bytes   int
	setting string
}

// maxRecordBytes keeps a record far enough below the 1 GiB its format can say.
const maxRecordBytes = 1<<30 - 1<<10

// resume makes queues go on where the log says that the producer stopped.
func (s *sender) resume(queues []*partitionQueue) {
	for _, q := range queues {
		if state, ok := q.partition.ProducerState(s.id); ok {
			q.sequence = state.Next
		}
	}
}

// put adds e to a batch of its partition. It waits for memory only.
func (s *sender) put(ctx context.Context, e *entry, w want) (ticket, error) {
	if err := s.checkSize(e); err != nil {
		return ticket{}, err
	}
	if e.partition != anyPartition {
		return s.known()[e.partition].add(ctx, e, w, anySerial)
	}
	for {
		sticky := s.sticky.Load()
		queues := s.known() // after sticky, whose partition is one of them
		partition, serial := unpackSticky(sticky)
		t, err := queues[partition].add(ctx, e, w, int64(serial))
		if _, ok := errors.AsType[*queueError](err); ok {
			return s.putElsewhere(ctx, queues, e, w, partition, err)
		}
		if err != errBatchClosed {
			return t, err
		}
		next := (partition + 1) % len(queues)
		s.sticky.CompareAndSwap(sticky, packSticky(next, queues[next].present()))
	}
}

// checkSize refuses a record that is too large.
func (s *sender) checkSize(e *entry) error { return s.limit.check(s.topic, e, s.maxRecord()) }

// check refuses a record of topic that exceeds the limit, or the topic's own, which is
// maxRecord bytes of payload unless that is zero.
func (l sizeLimit) check(topic string, e *entry, maxRecord int64) error {
	if size := e.maxSize(); size > l.bytes {
		return &TooLargeError{Topic: topic, Size: size, Limit: l.bytes, Setting: l.setting}
	}
	if maxRecord != 0 {
		if size := e.payload(); int64(size) > maxRecord {
			return &TooLargeError{Topic: topic, Size: size, Limit: int(maxRecord), Setting: "the topic's MaxRecordBytes"}
		}
	}
	return nil
}

// putElsewhere adds a record without key, which the queue of partition refused
// with err for good, to the first queue after it that still takes records.
func (s *sender) putElsewhere(ctx context.Context, queues []*partitionQueue, e *entry, w want, partition int, err error) (ticket, error) {
	for i := 1; i < len(queues); i++ {
		next := (partition + i) % len(queues)
		t, nextErr := queues[next].add(ctx, e, w, anySerial)
		if _, ok := errors.AsType[*queueError](nextErr); ok {
			continue
		}
		s.sticky.Store(packSticky(next, queues[next].present()))
		return t, nextErr
	}
	return ticket{}, err
}

func packSticky(partition int, serial uint32) uint64 { return uint64(partition)<<32 | uint64(serial) }
func unpackSticky(v uint64) (partition int, serial uint32) {
	return int(v >> 32), uint32(v)
}

// acquire returns an empty batch with room for a record of size bytes, waiting
// until the memory budget has it. Meanwhile no batch lingers.
func (s *sender) acquire(ctx context.Context, size int) (*pendingBatch, error) {
	reserved := min(max(size, s.opts.BatchBytes), s.opts.MemoryBytes)
	if !s.memory.TryAcquire(int64(reserved)) {
		s.waiting.Add(1)
		defer s.waiting.Add(-1)
		s.hurry()
		if err := s.memory.Acquire(ctx, int64(reserved)); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 && reserved == s.opts.BatchBytes {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		return b, nil
	}
	b := newPendingBatch(reserved)
	b.builder.Compress(s.compressor)
	return b, nil
}

// release takes back a batch nobody uses any more.
func (s *sender) release(b *pendingBatch) {
	reserved := b.reserved
	if reserved == s.opts.BatchBytes { // a larger one would keep a rare record's memory for good
		b.reset()
		s.mu.Lock()
		s.free = append(s.free, b)
		s.mu.Unlock()
	}
	s.memory.Release(int64(reserved))
}

// timeLeft is how long b may still take.
func (s *sender) timeLeft(b *pendingBatch) time.Duration {
	if s.opts.DeliveryTimeout < 0 {
		return math.MaxInt64
	}
	return s.opts.DeliveryTimeout - time.Since(b.opened)
}

// fail notes that n queued records failed, for Flush to report.
func (s *sender) fail(n int, err error) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == 0 {
		s.first = err
	}
	s.failed += n
	s.unknown = s.unknown || errors.Is(err, ErrUnknown)
}

// failures returns what fail has noted since the last call, or nil.
func (s *sender) failures() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == 0 {
		return nil
	}
	err := &FlushError{Failed: s.failed, First: s.first, unknown: s.unknown}
	s.failed, s.first, s.unknown = 0, nil, false
	return err
}

// await waits for the outcome of a record. ctx ends the waiting alone.
func (s *sender) await(ctx context.Context, t ticket) (partition int, offset int64, err error) {
	select {
	case <-t.outcome.done:
	case <-ctx.Done():
		return -1, -1, fmt.Errorf("%w: send to topic %q, partition %d: %w", ErrUnknown, s.topic, t.partition, ctx.Err())
	}
	if t.outcome.err != nil {
		return -1, -1, t.outcome.err
	}
	return t.partition, int64(t.outcome.res.Base) + int64(t.index), nil
}

// hurry ends the lingering of all open batches.
func (s *sender) hurry() {
	for _, q := range s.known() {
		q.hurry()
	}
}

// flush waits until every record added before the call is written or has failed.
func (s *sender) flush(ctx context.Context) error {
	var pending []*outcome
	for _, q := range s.known() {
		if o := q.last(); o != nil {
			pending = append(pending, o)
		}
	}
	for _, o := range pending {
		select {
		case <-o.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// close lets the queues write what they hold and waits until they have.
func (s *sender) close() {
	s.growing.Lock()
	s.closed = true
	s.growing.Unlock()
	for _, q := range s.known() {
		q.close()
	}
	s.writers.Wait()
}
