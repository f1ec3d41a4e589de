package topic

import (
	"context"
	"fmt"
	"math"

	"github.com/thalweg/thalweg/log"
)

// A producer that begins again after a stop does not know which of its last records
// are in the log. The log does: it numbers each producer's records in a partition,
// and remembers where the last batches went. So the records are numbered on from
// there, or, after Repeat, from an earlier number on; a record whose number the log
// has is answered with its place and not written.

// Written returns how many records this producer has stored in a partition: the
// number of the next one, since they count from 0. Begun again with the same
// ProducerOptions.Name it knows of those before, until the log forgets them
// (log.Options.ProducerExpiry) and it counts from 0 once more. Numbers begin again
// after 2^31-1. Records that are queued do not count yet.
func (p *Producer[K, V]) Written(partition int) (int64, error) {
	q, err := p.queue(partition)
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return int64(q.sequence), nil
}

// Repeat says that the next records sent to a partition are those from number from
// on, up to the last one stored. They are answered with the place where they are and
// not stored again; whether they are the same is the caller's to know. Records of
// the last five batches can be repeated; earlier ones, and a number that leaves a gap,
// are log.ErrOutOfOrder, and then nothing has changed.
//
// A record is repeated in its partition alone: where partitions were added since, its
// key may belong to another one, and it is stored there.
//
// Repeat first waits for what is queued for the partition. Nothing else may be sent
// to it meanwhile.
func (p *Producer[K, V]) Repeat(ctx context.Context, partition int, from int64) error {
	q, err := p.queue(partition)
	if err != nil {
		return err
	}
	if o := q.last(); o != nil {
		select {
		case <-o.done:
		case <-ctx.Done():
			return fmt.Errorf("topic: repeat records of %s: %w", q.name, ctx.Err())
		}
	}
	return q.repeat(from)
}

func (p *Producer[K, V]) queue(partition int) (*partitionQueue, error) {
	queues := p.sender.partitions()
	if partition < 0 || partition >= len(queues) {
		return nil, fmt.Errorf("topic %q has %d partitions, there is no partition %d", p.topic, len(queues), partition)
	}
	return queues[partition], nil
}

// repeat makes the records added from now on repeat those from a number on.
func (q *partitionQueue) repeat(from int64) error {
	state, _ := q.partition.ProducerState(q.s.id) // before mu, which is a leaf
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case q.failed != nil:
		return q.failed
	case q.open != nil || len(q.full) > 0 || q.flying != nil:
		return fmt.Errorf("topic: repeat records of %s: others are being sent", q.name)
	case from == int64(q.sequence):
		q.repeated = nil
		return nil
	}
	for i, b := range state.Recent {
		skip := (from - int64(b.Sequence)) & math.MaxInt32
		if from < 0 || from > math.MaxInt32 || skip >= int64(b.Count) {
			continue
		}
		b.Base += log.Offset(skip)
		b.Count -= int32(skip)
		q.repeated = append([]log.SentBatch{b}, state.Recent[i+1:]...)
		return nil
	}
	return fmt.Errorf("topic: repeat records of %s: %w: number %d is not among the last batches, and the next is %d",
		q.name, log.ErrOutOfOrder, from, q.sequence)
}

// repeatLocked notes that the record just added to b, the open batch, repeats the
// next one of repeated. A batch repeats records of one earlier batch: those alone
// have consecutive offsets.
func (q *partitionQueue) repeatLocked(b *pendingBatch) {
	r := &q.repeated[0]
	if b.builder.Len() == 1 {
		b.repeats = r.Base
	}
	r.Base++
	if r.Count--; r.Count == 0 {
		q.repeated = q.repeated[1:]
		q.closeOpenLocked()
	}
}
