package topic

import (
	"fmt"

	"github.com/thalweg/thalweg/internal/group"
)

// txPositions are the positions of a consumer in a transaction.
type txPositions struct {
	consumer *consumer
	moves    []move
	commit   group.Commit
}

// Commit makes the position of c part of the transaction: that behind all records it
// has handed out, the one in hand included. It is for the goroutine that reads from c.
// From now on c commits nothing by itself, only with a transaction or when it is told to.
//
// If a partition is somebody else's by the time the transaction is committed, all of it
// is aborted with ErrStale. After an abort the records are not delivered again while c
// is open: run the transaction once more for those in hand, or Seek back.
func (tx *Tx) Commit[K, V any](c *Consumer[K, V]) error { return tx.commit(c.c) }

// CommitRaw is Commit for a consumer of several topics.
func (tx *Tx) CommitRaw(c *RawConsumer) error { return tx.commit(c.c) }

func (tx *Tx) commit(c *consumer) error {
	if c.opts.Delivery == AtMostOnce {
		return tx.fail(fmt.Errorf("topic: group %q: a consumer that delivers at most once has committed before: it cannot be part of a transaction", c.group))
	}
	p, err := c.inTransaction()
	if err != nil {
		return tx.fail(err)
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.usableLocked(); err != nil {
		return err
	}
	tx.positions[c] = p
	return nil
}

// inTransaction returns the positions behind what was handed out, of partitions where
// the group is elsewhere, and ends the automatic commits.
func (c *consumer) inTransaction() (txPositions, error) {
	c.polls.Add(1)
	c.manual.Store(true)
	// A commit of its own that is under way ends before, or the group would go back.
	c.commitMu.Lock()
	defer c.commitMu.Unlock()
	c.mu.Lock()
	if c.left {
		c.mu.Unlock()
		return txPositions{}, ErrClosed
	}
	p := txPositions{consumer: c}
	for _, cl := range c.ownedLocked() {
		off := cl.positionLocked()
		if cl == c.current && c.handed > 0 && cl.seek == noSeek {
			off = LogOffset(c.handed)
		}
		if int64(off) != cl.committed && cl.err == nil && !cl.deleted {
			p.moves = append(p.moves, move{claim: cl, to: cl.at(off, "")})
		}
	}
	c.mu.Unlock()
	p.commit = c.commitOf(p.moves)
	return p, nil
}

// committed says that the positions are the group's now.
func (p *txPositions) committed() {
	p.consumer.mu.Lock()
	defer p.consumer.mu.Unlock()
	for _, m := range p.moves {
		m.claim.committed = m.to.Offset
	}
}

// automatic tells whether the consumer commits by itself what is finished.
func (c *consumer) automatic() bool { return c.opts.automatic() && !c.manual.Load() }
