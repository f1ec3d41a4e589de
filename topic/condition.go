package topic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/thalweg/thalweg/log"
)

// NoVersion is the version of a key without one: it was never written, or deleted.
const NoVersion = -1

// Condition says what has to be true for SendIf to store a record. It is a value.
type Condition struct {
	kind      conditionKind
	partition int
	offset    log.Offset
}

type conditionKind uint8

const (
	conditionNone conditionKind = iota
	conditionEnd
	conditionVersion
)

// EndIs holds while the end offset of a partition, that of the next record there, is
// offset: nobody has written to it since.
func EndIs(partition int, offset int64) Condition {
	return Condition{kind: conditionEnd, partition: partition, offset: log.Offset(offset)}
}

// VersionIs holds while the newest record of the key is the one at offset. It is for
// topics that keep the newest record of each key.
func VersionIs(offset int64) Condition {
	return Condition{kind: conditionVersion, offset: log.Offset(offset)}
}

// Absent holds while the key has no record, or the newest one is a tombstone.
func Absent() Condition { return VersionIs(NoVersion) }

// ConflictError reports a condition that does not hold. It matches ErrConflict. The
// record is not in the log.
type ConflictError struct {
	Partition TopicPartition

	// Expected and Found are end offsets of the partition, or versions of the key:
	// the offset of its newest record, or NoVersion.
	Expected, Found int64
	Version         bool // they are versions
}

func (e *ConflictError) Error() string {
	what := "the end"
	if e.Version {
		what = "the key's version"
	}
	return fmt.Sprintf("topic: conflict in %s: %s is %s, expected was %s", e.Partition, what, e.text(e.Found), e.text(e.Expected))
}

func (e *ConflictError) text(offset int64) string {
	if e.Version && offset == NoVersion {
		return "none"
	}
	return fmt.Sprint(offset)
}

// Is makes the error match ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// SendIf stores r if c holds at the moment at which it is stored, whoever else writes
// to the partition, and waits as SendRecord does. If it does not hold the error is a
// *ConflictError that tells what is there, and that can be read by then (by readers of
// committed data once older transactions have ended). A record of an open transaction is no
// version of its key yet: where it would decide, SendIf waits until the transaction
// has ended.
//
// The record is a batch of its own, behind what this producer has queued before. When ctx
// ends before its turn has come it is not written; while it is being written the error
// matches ErrUnknown. To find out then, send it once more: the conflict tells what is
// there.
// Versions are known from an index of the partition's keys, which the first SendIf
// with a version builds by reading the partition once, and later ones bring up to
// date: it takes the key and some 60 bytes of memory for each key that is not
// deleted, in each partition that is asked, until the producer is closed. While
// transactions are open, each call also reads what was written since the oldest began.
func (p *Producer[K, V]) SendIf(ctx context.Context, r Record[K, V], c Condition) (partition int, offset int64, err error) {
	if err := ctx.Err(); err != nil {
		return -1, -1, fmt.Errorf("topic: send to %q: %w", p.topic, err)
	}
	s := p.scratch.Get().(*scratch)
	defer p.recycle(s)
	e, err := p.encode(s, &r, len(p.sender.partitions()))
	if err != nil {
		return -1, -1, err
	}
	q, err := p.conditionalQueue(&e, c)
	if err != nil {
		return -1, -1, err
	}
	for {
		partition, offset, err = p.sendIf(ctx, q, &e, c)
		if errors.Is(err, errAgain) {
			continue
		}
		if c, ok := errors.AsType[*ConflictError](err); ok {
			q.readable(ctx, c)
			return -1, -1, c
		}
		u, ok := errors.AsType[*undecidedError](err)
		if !ok {
			return partition, offset, err
		}
		if err := q.decided(ctx, u.offset); err != nil {
			return -1, -1, fmt.Errorf("topic: send to %s: wait for the transaction of offset %d: %w", q.name, u.offset, err)
		}
	}
}

// conditionalQueue returns the queue of the partition e goes to.
func (p *Producer[K, V]) conditionalQueue(e *entry, c Condition) (*partitionQueue, error) {
	if err := p.sender.checkSize(e); err != nil {
		return nil, err
	}
	switch c.kind {
	case conditionEnd:
		if e.partition != anyPartition && e.partition != c.partition {
			return nil, fmt.Errorf("topic %q: the record belongs to partition %d, the condition is about partition %d", p.topic, e.partition, c.partition)
		}
		return p.queue(c.partition)
	case conditionVersion:
		if e.key == nil {
			return nil, fmt.Errorf("%w: a version of topic %q is that of a key", ErrNoKey, p.topic)
		}
		return p.sender.known()[e.partition], nil
	}
	return nil, fmt.Errorf("topic %q: SendIf needs a condition: EndIs, VersionIs or Absent", p.topic)
}

func (p *Producer[K, V]) sendIf(ctx context.Context, q *partitionQueue, e *entry, c Condition) (partition int, offset int64, err error) {
	k := &check{condition: c, name: q.name}
	if c.kind == conditionVersion {
		// The writer may need the key after ctx has ended.
		k.versions, k.key = &q.versions, bytes.Clone(e.key)
		// What may take long comes before the writer's turn.
		if err := k.versions.catchUp(); err != nil {
			return -1, -1, fmt.Errorf("topic: read the keys of %s: %w", q.name, err)
		}
	}
	t, err := q.addIf(ctx, e, k)
	if err != nil {
		return -1, -1, err
	}
	select {
	case <-t.outcome.done:
	case <-ctx.Done():
		// Its outcome is asked for, rather than left open, where its turn has not come.
		q.withdraw(t.outcome, fmt.Errorf("topic: send to %s: the record was not written: %w", q.name, ctx.Err()))
	}
	select {
	case <-t.outcome.done:
		ctx = context.WithoutCancel(ctx)
	default:
	}
	return p.sender.await(ctx, t)
}

// withdraw ends a batch with err unless the writer has it already.
func (q *partitionQueue) withdraw(o *outcome, err error) {
	q.mu.Lock()
	i := slices.IndexFunc(q.full, func(b *pendingBatch) bool { return b.outcome == o })
	if i < 0 {
		q.mu.Unlock()
		return
	}
	b := q.full[i]
	q.full = slices.Delete(q.full, i, i+1)
	q.mu.Unlock()
	o.err = err
	close(o.done)
	q.s.release(b)
}

// decided waits until the transaction that wrote the record at offset has ended.
func (q *partitionQueue) decided(ctx context.Context, offset log.Offset) error {
	r := q.partition.Reader(offset, log.ReadCommitted)
	defer r.Close()
	return r.Wait(ctx)
}

// errAgain says that records were deleted while they were read.
var errAgain = errors.New("topic: the log start has moved")

// readable waits until what a conflict found is acknowledged, so that whoever is told
// of it can read it. Whether that succeeds makes no difference to the conflict.
func (q *partitionQueue) readable(ctx context.Context, c *ConflictError) {
	end := log.Offset(c.Found)
	if c.Version {
		end++
	}
	_ = q.partition.Acked(ctx, end)
}

// undecidedError says that a condition depends on an open transaction, which wrote
// the record at offset.
type undecidedError struct{ offset log.Offset }

func (e *undecidedError) Error() string {
	return fmt.Sprintf("topic: the record at offset %d belongs to an open transaction", e.offset)
}

// check is a condition on its way to the partition.
type check struct {
	condition Condition
	name      TopicPartition
	versions  *versions // nil where the condition is not about a key
	key       []byte
	refused   error // why the batch was not written, if the condition was why
}

// write writes batch if the condition holds.
func (c *check) write(p appender, batch []byte) (log.AppendResult, error) {
	if c.versions == nil {
		return p.WriteIf(batch, func(end log.Tail) error { return c.compare(end.End(), false) })
	}
	tail, err := c.versions.tail(c.key)
	if err != nil {
		return log.AppendResult{}, c.refuse(c.readError(err))
	}
	defer tail.close()
	return p.WriteIf(batch, func(end log.Tail) error {
		found, err := tail.version(end)
		if _, undecided := errors.AsType[*undecidedError](err); undecided {
			return c.refuse(err)
		}
		if err != nil {
			return c.refuse(c.readError(err))
		}
		return c.compare(found, true)
	})
}

func (c *check) compare(found log.Offset, version bool) error {
	if found == c.condition.offset {
		return nil
	}
	return c.refuse(&ConflictError{Partition: c.name, Expected: int64(c.condition.offset), Found: int64(found), Version: version})
}

func (c *check) refuse(err error) error {
	c.refused = err
	return err
}

func (c *check) readError(err error) error {
	if errors.Is(err, log.ErrOffsetOutOfRange) {
		err = fmt.Errorf("%w: %w", errAgain, err)
	}
	return fmt.Errorf("topic: read the keys of %s: %w", c.name, err)
}
