package topic

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
)

// Consumer reads a topic as a member of a group: each partition is read by one
// consumer of the group at a time, from where the group has got to.
//
// One goroutine reads, by Records, Batches or Poll; Commit and CommitAt are its own
// too. The other methods may be called concurrently. A consumer joins its group when
// it is asked for records first; its functions (ConsumerOptions.OnAssign and so on)
// are called while it is.
type Consumer[K, V any] struct {
	c      *consumer
	source source[Record[K, V]]
}

// NewConsumer returns a consumer of t on n in a group, creating the topic if need be.
// A group's name has 1 to 255 bytes. Close the consumer when done with it.
func NewConsumer[K, V any](n GroupNode, t Topic[K, V], groupName string, o ConsumerOptions) (*Consumer[K, V], error) {
	keys, values, err := t.Codecs(nil)
	if err := errors.Join(t.Err(), err); err != nil {
		return nil, err
	}
	if _, err := open(n, t.s); err != nil {
		return nil, fmt.Errorf("topic: open %q: %w", t.Name(), err)
	}
	iso := t.Isolation()
	c, err := newConsumer(n, groupName, group.Subscription{Topics: []string{t.Name()}}, func(string) log.Isolation { return iso }, o)
	if err != nil {
		return nil, err
	}
	timed := t.timing(n)
	c.timing = func(string) timing { return timed }
	d := &decoder[K, V]{topic: t.Name(), keys: keys, values: values, timing: timed}
	decode := func(it *log.RecordIterator, cl *claim) (Record[K, V], error) {
		return d.record(it, int(cl.name.Partition))
	}
	return &Consumer[K, V]{c: c, source: source[Record[K, V]]{c: c, decode: decode}}, nil
}

// Records iterates over the records of the partitions that are assigned to the
// consumer, and waits for more until ctx ends; the last step then yields ctx's error,
// as it yields any other. Records of one partition come in order; in a topic declared
// Delayed one that is not due holds back those behind it, and what has expired is
// passed over.
//
// A record is finished when the loop asks for the next one. Automatic commits cover
// what is finished: a record that the loop was left with is delivered again, unless
// Commit was called for it. A record that cannot be decoded ends the iteration with a
// *CodecError and stays where it is: SeekPartition behind it to go on.
func (c *Consumer[K, V]) Records(ctx context.Context) iter.Seq2[Record[K, V], error] {
	return c.source.records(ctx)
}

// Batches iterates over what Poll returns. A batch is finished when the loop asks for
// the next one.
func (c *Consumer[K, V]) Batches(ctx context.Context) iter.Seq2[[]Record[K, V], error] {
	return c.source.batches(ctx)
}

// Poll returns the next records of one partition, at least one, and waits for them
// until ctx ends. The slice is valid until the next call, which also says that the
// records are finished; before Close or a long pause say so by Commit.
func (c *Consumer[K, V]) Poll(ctx context.Context) ([]Record[K, V], error) {
	return c.source.poll(ctx)
}

// Commit commits the position behind all records that were handed out, the one that
// the loop has in hand included. On return it is as durable as the topic asks. ErrStale
// says that a partition was lost meanwhile; the positions of the others are committed.
// An error that matches ErrUnknown leaves open whether they are.
func (c *Consumer[K, V]) Commit(ctx context.Context) error { return c.c.commitHanded(ctx) }

// CommitAt is Commit of positions that the program names, of partitions that are
// assigned to the consumer. Offsets are not compared with what the log holds. It
// moves no reader: use SeekPartition for that.
func (c *Consumer[K, V]) CommitAt(ctx context.Context, at ...Committed) error {
	return c.c.commitAt(ctx, at)
}

// Committed returns the position of the group in a partition. ok is false where it has
// none.
func (c *Consumer[K, V]) Committed(partition int) (at Committed, ok bool) {
	return c.c.committed(c.topic(), partition)
}

// Seek makes all assigned partitions go on at pos. Nothing is committed by it.
func (c *Consumer[K, V]) Seek(pos Position) error {
	return c.c.seek(pos, func(*claim) bool { return true })
}

// SeekPartition makes one partition go on at pos. One that is not assigned is
// ErrNotAssigned.
func (c *Consumer[K, V]) SeekPartition(partition int, pos Position) error {
	return c.c.seekPartition(c.topic(), partition, pos)
}

// Pause stops the delivery of assigned partitions, of all where none is named, until
// Resume or until they are given up. The consumer keeps them, and has to be read on.
func (c *Consumer[K, V]) Pause(partitions ...int) { c.c.pause(true, anyOf(partitions)) }

// Resume ends a Pause, of all partitions where none is named.
func (c *Consumer[K, V]) Resume(partitions ...int) { c.c.pause(false, anyOf(partitions)) }

func anyOf(partitions []int) func(*claim) bool {
	return func(cl *claim) bool {
		return len(partitions) == 0 || slices.Contains(partitions, int(cl.name.Partition))
	}
}

// Assigned returns the partitions that the consumer reads at present, ascending.
func (c *Consumer[K, V]) Assigned() []int {
	assigned := []int{}
	for _, tp := range c.c.assigned() {
		assigned = append(assigned, int(tp.Partition))
	}
	return assigned
}

// Lag walks the assigned partitions with the number of offsets between what is
// finished and what can be seen.
func (c *Consumer[K, V]) Lag() iter.Seq2[int, int64] {
	return func(yield func(int, int64) bool) {
		for tp, lag := range c.c.lag() {
			if !yield(int(tp.Partition), lag) {
				return
			}
		}
	}
}

// Close commits what is finished, unless ConsumerOptions.CommitInterval leaves that to
// the program, and leaves the group; a static consumer keeps its place for
// ConsumerOptions.SessionTimeout. A goroutine that reads gets ErrClosed. Repeated calls
// return the first one's result.
func (c *Consumer[K, V]) Close() error { return c.c.close() }

func (c *Consumer[K, V]) topic() string { return c.c.subscription.Topics[0] }
