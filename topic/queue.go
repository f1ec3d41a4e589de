package topic

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/thalweg/thalweg/internal/queue"
)

// Queue is a queue over a topic: any number of consumers share its records, whatever
// the number of partitions, and each record is acknowledged on its own. Its state is
// kept with the node, so that a queue goes on where it was, counts of deliveries
// included.
//
// Every record is delivered at least once: it is delivered again when it is released,
// when its lock runs out, and after a crash while somebody had it. It is never
// delivered again once Ack or Reject returned nil and that is durable, which is as the
// topic's Sync says. A delivery is counted before it is handed out, so that a record
// that kills the process reaches the limit too; a process that is killed at that very
// moment has counted one that nobody saw.
//
// Records of one partition are handed out in the order of their offsets, but what was
// released or ran out of time comes again when it is due, before records that were
// never delivered. With several consumers they are worked on at the same time.
//
// Partitions that are added to the topic are served from their beginning.
//
// Only committed records are delivered. Offsets that retention or compaction removed
// are passed over and counted in Status.
//
// The methods of a Queue may be called concurrently.
type Queue[K, V any] struct {
	core    *queueCore
	decoder decoder[K, V]

	closing sync.Once
	closed  chan struct{}
}

// Received is a record that belongs to its receiver until it is answered, by Ack,
// Release or Reject, or its lock runs out. An answer that comes too late is a
// *DeliveryOverError. One of an Ack or Reject, though not of the others, is accepted
// as long as the record has not been handed out again.
//
// An answer returns when it is as durable as the topic asks; answers given at the same
// time share a write. When its context ends first, or the write fails so that nobody
// knows, the error matches ErrUnknown: the answer may count all the same. After any
// other error it does not.
type Received[K, V any] struct {
	Record[K, V]

	// Count is the number of this delivery of the record, 1 for the first.
	Count int

	// LockedUntil is when the lock runs out unless it is extended, by the clock of the
	// node and as of the moment the record was handed out.
	LockedUntil time.Time

	partition *queuePartition
}

// Receive iterates over the records as they are handed out, each to one of those who
// receive, and waits for more until ctx ends or the queue is closed. The last step
// yields the error, as it yields any other. A record whose key or value cannot be
// decoded is an error too; it is released, so that it becomes a dead letter in the end
// if nobody can decode it.
//
// What the loop body does not answer stays locked, also when the loop ends.
func (q *Queue[K, V]) Receive(ctx context.Context) iter.Seq2[*Received[K, V], error] {
	return func(yield func(*Received[K, V], error) bool) {
		for {
			g, err := q.core.receive(ctx, q.closed)
			var d *Received[K, V]
			if err == nil {
				d, err = q.delivery(ctx, g)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(d, nil) {
				return
			}
		}
	}
}

// delivery makes a typed delivery of what was handed out.
func (q *Queue[K, V]) delivery(ctx context.Context, g *handout) (*Received[K, V], error) {
	raw := Record[[]byte, []byte]{
		Key: g.key, Value: g.value, NoKey: g.key == nil, Deleted: g.value == nil, Headers: g.headers,
		Time: time.UnixMilli(g.time).UTC(), Partition: g.partition.number, Offset: g.offset,
	}
	raw.NotBefore, raw.Expires = q.decoder.timing.explicit(g.headers)
	d := &Received[K, V]{Count: int(g.count), LockedUntil: time.UnixMilli(g.until).UTC(), partition: g.partition}
	var err error
	if d.Record, err = q.decoder.typed(raw); err != nil {
		d.Offset = g.offset
		_ = d.Release(ctx, 0) // else its lock runs out
		return nil, err
	}
	return d, nil
}

// Ack says that the record is done: it is not delivered again.
func (d *Received[K, V]) Ack(ctx context.Context) error {
	return d.partition.answer(ctx, answer{kind: answerAck, offset: d.Offset, count: int64(d.Count)})
}

// Reject says that the record cannot be done: it becomes a dead letter at once. It
// returns when the record is in the topic of dead letters, if the queue has one.
func (d *Received[K, V]) Reject(ctx context.Context) error {
	return d.partition.answer(ctx, answer{kind: answerReject, offset: d.Offset, count: int64(d.Count)})
}

// Release gives the record back: it is handed out again, to anybody, after the given
// time. Zero means the queue's back-off, negative at once. The last delivery that
// MaxDeliveries allows makes it a dead letter.
func (d *Received[K, V]) Release(ctx context.Context, after time.Duration) error {
	return d.partition.answer(ctx, answer{kind: answerRelease, offset: d.Offset, count: int64(d.Count), after: after})
}

// Extend starts the lock anew, for QueueOptions.Lock from now on.
func (d *Received[K, V]) Extend(ctx context.Context) error {
	return d.partition.answer(ctx, answer{kind: answerExtend, offset: d.Offset, count: int64(d.Count)})
}

// Status tells how the queue is.
func (q *Queue[K, V]) Status(ctx context.Context) (QueueStatus, error) { return q.core.status(ctx) }

// Close ends what is receiving from this handle. Deliveries that are not answered
// yet can be until the last handle of the queue is closed; after that their records
// are handed out again by whoever opens the queue next. It is safe to repeat.
func (q *Queue[K, V]) Close() error {
	q.closing.Do(func() {
		close(q.closed)
		q.core.queues.leave(q.core)
	})
	return nil
}

// QueueStatus tells how a queue is.
type QueueStatus struct {
	Name, Topic string
	Partitions  []QueuePartitionStatus
}

// QueuePartitionStatus tells how a queue is in one partition. The counts of what was
// delivered and what became of it are exact and cover the whole life of the queue.
type QueuePartitionStatus struct {
	Partition int
	Start     int64 // all records below are done
	Backlog   int64 // offsets that can be read and are not done; markers count until they are passed over
	InFlight  int   // records delivered and not done, locked or waiting for the next delivery
	Delayed   int   // records seen that are not due yet

	// Oldest is the time of the first record that is not done; zero when there is none.
	Oldest time.Time

	Delivered    int64 // deliveries
	Acknowledged int64
	Rejected     int64 // dead letters, since they were rejected
	Exhausted    int64 // dead letters, since they were delivered MaxDeliveries times
	Expired      int64 // dead letters, since their time to live was over
	Removed      int64 // offsets that were deleted from the topic before they were done
	Skipped      int64 // offsets without a record that is to be delivered: markers, aborted records, what compaction took

	// DeadLetterError is why records could not be moved to the topic of dead letters
	// the last time; nil when they could. It is tried again.
	DeadLetterError error
}

// DeadLetters is the number of records that became dead letters.
func (s QueuePartitionStatus) DeadLetters() int64 { return s.Rejected + s.Exhausted + s.Expired }

// statusOf is what a state says of itself.
func statusOf(s *queue.State) QueuePartitionStatus {
	t := s.Totals()
	inFlight, delayed := s.Held()
	return QueuePartitionStatus{
		Start:        s.Start(),
		InFlight:     inFlight,
		Delayed:      delayed,
		Delivered:    t.Deliveries(),
		Acknowledged: t.Of(queue.Acked),
		Rejected:     t.Of(queue.Rejected),
		Exhausted:    t.Of(queue.Exhausted),
		Expired:      t.Of(queue.Expired),
		Removed:      t.Of(queue.Removed),
		Skipped:      t.Of(queue.Skipped),
	}
}
