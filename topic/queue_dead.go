package topic

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/thalweg/thalweg/internal/queue"
)

// The headers of a dead letter, behind those of the record. Numbers are in decimal.
const (
	HeaderCause      = "thalweg-cause"      // "rejected", "deliveries" (there were MaxDeliveries) or "expired"
	HeaderQueue      = "thalweg-queue"      // the name of the queue
	HeaderTopic      = "thalweg-topic"      // where the record was
	HeaderPartition  = "thalweg-partition"  // and
	HeaderOffset     = "thalweg-offset"     // there
	HeaderDeliveries = "thalweg-deliveries" // how often it was delivered
)

// burial is a record that becomes a dead letter.
type burial struct {
	change queue.Change
	record *handout
	asked  *request // of the consumer that rejected it, or nil
}

const (
	// maxDeadLetters and maxDeadBytes bound what becomes dead letters in one transaction.
	maxDeadLetters = 64
	maxDeadBytes   = 1 << 20

	// deadRetry is how long a record waits that could not become a dead letter, at the least.
	deadRetry = time.Second
)

// bury makes records dead letters: the letters and the change that ends the records in
// the queue are one commit.
func (p *queuePartition) bury(now int64, dead []*burial) {
	for len(dead) > 0 {
		n, size := 0, 0
		for n < len(dead) && n < maxDeadLetters && size < maxDeadBytes {
			b := dead[n]
			if err := p.exhume(b); err != nil {
				p.buried(now, []*burial{b}, err)
				dead = append(dead[:n:n], dead[n+1:]...)
				continue
			}
			if b.record != nil {
				size += len(b.record.key) + len(b.record.value)
			}
			n++
		}
		err := p.inter(now, dead[:n])
		if err == nil || n == 1 || errors.Is(err, ErrUnknown) {
			p.buried(now, dead[:n], err)
		} else {
			for i := range n { // one that cannot be a dead letter must not keep the others from it
				p.buried(now, dead[i:i+1], p.inter(now, dead[i:i+1]))
			}
		}
		dead = dead[n:]
	}
}

// exhume reads the record of a burial, where it was not read yet. One that is gone is
// no dead letter.
func (p *queuePartition) exhume(b *burial) (err error) {
	if b.record != nil {
		return nil
	}
	if b.record, err = p.fetch(b.change.From); err == nil && b.record == nil {
		b.change.Cause = queue.Removed
	}
	p.fetched = nil
	return err
}

// inter commits burials.
func (p *queuePartition) inter(now int64, dead []*burial) error {
	if len(dead) == 0 {
		return nil
	}
	var changes []queue.Change
	for _, b := range dead {
		changes = queue.Join(changes, b.change)
	}
	return p.core.queues.node.Transact(context.Background(), func(tx *Tx) error {
		for _, b := range dead {
			if b.record == nil {
				continue
			}
			if err := tx.SendRecord(p.core.opts.DeadLetters, p.letter(b)); err != nil {
				return err
			}
		}
		return tx.add(p.journal.partition, &entry{time: now, value: p.journal.encode(changes)})
	})
}

// buried lets burials happen, or takes them back.
func (p *queuePartition) buried(now int64, dead []*burial, err error) {
	unknown := errors.Is(err, ErrUnknown)
	p.deadErr = err
	if err != nil {
		p.core.logger().Error("topic: records could not be made dead letters", "partition", p.number, "records", len(dead),
			"dead letters", p.core.opts.DeadLetters.Name(), "error", err)
	}
	for _, b := range dead {
		off := b.change.From
		switch {
		case err == nil:
			p.state.Apply(b.change)
		case unknown: // only who reads the journal anew can tell
			p.state.Lose(off)
			p.journal.frozen = true
		default:
			p.state.Fail(b.change, now+max(deadRetry.Milliseconds(), p.core.rules.Backoff(p.state.Count(off))))
		}
		switch {
		case b.asked == nil:
		case err == nil:
			b.asked.done <- nil
		default:
			b.asked.done <- p.core.failure(b.asked.kind.String(), err, unknown)
		}
	}
}

// letter is the dead letter of a record.
func (p *queuePartition) letter(b *burial) Record[[]byte, []byte] {
	g := b.record
	number := func(n int64) []byte { return strconv.AppendInt(nil, n, 10) }
	return Record[[]byte, []byte]{
		Key: g.key, NoKey: g.key == nil, Value: g.value, Time: time.UnixMilli(g.time),
		Deleted: g.value == nil && g.key != nil, // without either the letter has an empty value
		Headers: append(g.headers[:len(g.headers):len(g.headers)],
			Header{Key: HeaderCause, Value: []byte(b.change.Cause.String())},
			Header{Key: HeaderQueue, Value: []byte(p.core.name)},
			Header{Key: HeaderTopic, Value: []byte(p.core.topic)},
			Header{Key: HeaderPartition, Value: number(int64(p.number))},
			Header{Key: HeaderOffset, Value: number(g.offset)},
			Header{Key: HeaderDeliveries, Value: number(p.state.Count(g.offset))},
		),
	}
}
