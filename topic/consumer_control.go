package topic

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/thalweg/thalweg/internal/group"
)

// Committed is the position of a group in one partition.
type Committed struct {
	// Topic may be left empty for a consumer of one topic.
	Topic     string
	Partition int

	// Offset is that of the first record not read.
	Offset int64

	// LeaderEpoch is that of the record before it, by which a log that was truncated
	// since is noticed. Zero in a commit lets the consumer look it up; -1 is unknown.
	LeaderEpoch int32

	// Metadata is the program's own, at most MaxMetadata bytes.
	Metadata string
}

// MaxMetadata bounds the metadata of a position, in bytes.
const MaxMetadata = 4096

// commitHanded commits behind all that was handed out: it is for the goroutine that
// reads, or, once the consumer is being closed, covers what is finished.
func (c *consumer) commitHanded(ctx context.Context) error {
	if c.opts.Delivery == AtMostOnce {
		return nil // it was committed before
	}
	c.polls.Add(1)
	c.mu.Lock()
	closed, left := c.closed, c.left
	c.mu.Unlock()
	if left {
		return ErrClosed
	}
	if !closed && c.current != nil && c.handed > 0 {
		c.current.done.Store(c.handed)
	}
	return c.commitFinished(ctx, c.owned())
}

// commitAt commits positions that the program names.
func (c *consumer) commitAt(ctx context.Context, at []Committed) error {
	c.polls.Add(1)
	c.commitMu.Lock()
	defer c.commitMu.Unlock()
	moves, err := c.movesTo(at)
	if err != nil {
		return err
	}
	return c.commit(ctx, moves)
}

func (c *consumer) movesTo(at []Committed) ([]move, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return nil, ErrClosed
	}
	var moves []move
	for _, a := range at {
		cl, err := c.claimLocked(a.Topic, a.Partition)
		switch {
		case err != nil:
			return nil, fmt.Errorf("topic: commit: %w: %w", ErrStale, err)
		case a.Offset < 0:
			return nil, fmt.Errorf("topic: commit offset %d of %s: it must not be negative", a.Offset, cl.name)
		case len(a.Metadata) > MaxMetadata:
			return nil, fmt.Errorf("topic: commit %s with %d bytes of metadata: give at most %d", cl.name, len(a.Metadata), MaxMetadata)
		case slices.ContainsFunc(moves, func(m move) bool { return m.claim == cl }):
			return nil, fmt.Errorf("topic: commit: %s is named twice", cl.name)
		}
		to := cl.at(LogOffset(a.Offset), a.Metadata)
		if a.LeaderEpoch != 0 {
			to.LeaderEpoch = a.LeaderEpoch
		}
		moves = append(moves, move{claim: cl, to: to})
	}
	slices.SortFunc(moves, func(a, b move) int { return a.claim.grant.Partition.Compare(b.claim.grant.Partition) })
	return moves, nil
}

// claimLocked returns the claim of a partition; mu is held.
func (c *consumer) claimLocked(topic string, partition int) (*claim, error) {
	if topic == "" && len(c.subscription.Topics) == 1 && c.subscription.Pattern == "" {
		topic = c.subscription.Topics[0]
	}
	for name, cl := range c.claims {
		if name.Topic == topic && int(name.Partition) == partition {
			return cl, nil
		}
	}
	return nil, fmt.Errorf("%w: %s-%d", ErrNotAssigned, topic, partition)
}

// committed returns the position of the consumer's group in a partition.
func (c *consumer) committed(topic string, partition int) (Committed, bool) {
	at, known := c.groupPosition(group.Partition{Topic: topic, Number: int32(partition)})
	return committedOf(group.Partition{Topic: topic, Number: int32(partition)}, at), known
}

func committedOf(p group.Partition, at group.Position) Committed {
	return Committed{Topic: p.Topic, Partition: int(p.Number), Offset: at.Offset, LeaderEpoch: at.LeaderEpoch, Metadata: at.Metadata}
}

// seek makes the claims that which chooses go on at pos.
func (c *consumer) seek(pos Position, which func(*claim) bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cl := range c.ownedLocked() {
		if !which(cl) {
			continue
		}
		off, err := pos.ResolveFor(cl.partition, cl.isolation)
		if err != nil {
			return fmt.Errorf("topic: seek: %w", err)
		}
		cl.seek = off
	}
	c.notice()
	return nil
}

func (c *consumer) seekPartition(topic string, partition int, pos Position) error {
	c.mu.Lock()
	cl, err := c.claimLocked(topic, partition)
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("topic: seek: %w", err)
	}
	return c.seek(pos, func(o *claim) bool { return o == cl })
}

// pause stops or resumes the claims that which chooses.
func (c *consumer) pause(paused bool, which func(*claim) bool) {
	c.mu.Lock()
	for _, cl := range c.claims {
		if which(cl) {
			cl.paused = paused
		}
	}
	c.mu.Unlock()
	c.notice()
}

// assigned returns what the consumer reads, ascending; nothing once it is closed.
func (c *consumer) assigned() []TopicPartition {
	c.mu.Lock()
	defer c.mu.Unlock()
	tps := []TopicPartition{}
	if c.closed {
		return tps
	}
	for _, cl := range c.ownedLocked() {
		tps = append(tps, cl.name)
	}
	return tps
}

// lag walks the partitions the consumer reads with the number of offsets between what
// is finished and what can be seen.
func (c *consumer) lag() iter.Seq2[TopicPartition, int64] {
	return func(yield func(TopicPartition, int64) bool) {
		type behind struct {
			name TopicPartition
			lag  int64
		}
		c.mu.Lock()
		var all []behind
		for _, cl := range c.ownedLocked() {
			at := cl.positionLocked()
			all = append(all, behind{cl.name, int64(max(visibleEnd(cl.partition, cl.isolation)-at, 0))})
		}
		c.mu.Unlock()
		for _, b := range all {
			if !yield(b.name, b.lag) {
				return
			}
		}
	}
}
