package topic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/internal/group"
)

// join makes the consumer a member, under an id nobody had before.
func (c *consumer) join(ctx context.Context) error {
	id := group.MemberID(rand.Uint64() | 1)
	session := c.opts.SessionTimeout.Milliseconds()
	err := c.node.ProposeGroup(ctx, group.Join{
		Group: c.group, Member: id, Static: c.opts.StaticID, Subscription: c.subscription, Session: session,
	})
	if err != nil {
		return fmt.Errorf("topic: join group %q: %w", c.group, err)
	}
	if c.joinedAs(id) {
		return nil
	}
	_ = c.node.ProposeGroup(context.WithoutCancel(ctx), group.Leave{Group: c.group, Member: id}) // closed meanwhile
	return ErrClosed
}

// joinedAs notes the membership and starts run, unless the consumer is closed.
func (c *consumer) joinedAs(id group.MemberID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.member, c.joined = id, true
	if c.cancel == nil {
		background, cancel := context.WithCancel(context.Background())
		c.cancel = cancel
		c.wg.Go(func() { c.run(background) }) // Close cancels it and waits for it
	}
	return true
}

// run does what a consumer does beside its program, until it is closed: it looks
// after the group's target, commits, and notices a program that does not come back.
func (c *consumer) run(ctx context.Context) {
	var due <-chan time.Time
	if c.opts.automatic() {
		tick := time.NewTicker(c.opts.CommitInterval)
		defer tick.Stop()
		due = tick.C
	}
	life := time.NewTicker(max(c.opts.PollTimeout/4, time.Millisecond))
	defer life.Stop()
	alive := pulse{since: time.Now()}
	for {
		changed, topics := c.node.GroupChanged(c.group), c.node.TopicsChanged()
		if err := c.plan(ctx); err != nil {
			c.fail(err)
		}
		c.notice()
		for look := false; !look; {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				look = true
			case <-topics:
				look = true
			case <-due:
				if c.automatic() {
					c.commitInBackground(ctx)
				}
			case now := <-life.C:
				if c.isAlive(&alive, now) {
					continue
				}
				c.expire(ctx, now.Sub(alive.since))
			}
		}
	}
}

// pulse is the progress last seen, and when it was.
type pulse struct {
	polls int64 // calls for records: never decreases
	done  int64 // of all claims together: never decreases while polls stays, for only a call changes the claims
	since time.Time
}

// isAlive tells whether the program has come back, or finished something, in time.
func (c *consumer) isAlive(last *pulse, now time.Time) bool {
	seen := pulse{polls: c.polls.Load(), since: now}
	c.mu.Lock()
	for _, cl := range c.claims {
		seen.done += cl.done.Load()
	}
	c.mu.Unlock()
	if c.waiting.Load() || seen.polls != last.polls || seen.done != last.done {
		*last = seen
	}
	return now.Sub(last.since) < c.opts.PollTimeout
}

// expire ends the membership of a program that does not come back. What it has
// finished is committed before.
func (c *consumer) expire(ctx context.Context, after time.Duration) {
	c.mu.Lock()
	member := c.member
	joined := c.joined && c.expired != member
	c.mu.Unlock()
	if !joined {
		return
	}
	if c.automatic() {
		c.commitInBackground(ctx)
	}
	err := c.node.ProposeGroup(ctx, group.Leave{Group: c.group, Member: member})
	if err != nil && ctx.Err() == nil {
		c.opts.Logger.Warn("a consumer does not poll and could not be taken out of its group", "group", c.group, "err", err)
		return
	}
	c.mu.Lock()
	c.expired = member
	c.mu.Unlock()
	c.opts.Logger.Warn("a consumer has lost its partitions: its program did not poll in time",
		"group", c.group, "member", memberName(member), "after", after, "limit", c.opts.PollTimeout)
}

// plan proposes a target where that is for this consumer to do: when it is the member
// that has been there for longest, and members or partitions have changed.
func (c *consumer) plan(ctx context.Context) error {
	for ctx.Err() == nil {
		g := c.groupToPlan()
		if g == nil {
			return nil
		}
		assignment := group.Plan(g, c.partitions(), c.matches)
		if g.TargetEpoch == g.Epoch && c.planned(assignment, g) {
			return nil
		}
		target, err := c.askAssignor(assignment)
		if err != nil {
			return err
		}
		err = c.node.ProposeGroup(ctx, group.SetTarget{Group: c.group, Epoch: g.Epoch, Target: target})
		switch {
		case err == nil:
			c.lastPlan, c.lastEpoch = assignment.Partitions, g.Epoch+1
			return nil
		case errors.Is(err, group.ErrEpoch): // somebody was faster; it may still be for us to do
		case errors.Is(err, group.ErrNotMember), errors.Is(err, group.ErrUnknown), ctx.Err() != nil:
			return nil
		default:
			return fmt.Errorf("topic: assign the partitions of group %q: %w", c.group, err)
		}
	}
	return nil
}

// groupToPlan returns a copy of the group if its target is for this consumer to make.
func (c *consumer) groupToPlan() (g *group.Group) {
	c.mu.Lock()
	member, joined := c.member, c.joined
	c.mu.Unlock()
	c.node.Group(c.group, func(now *group.Group) {
		if now != nil && joined && now.Assigner() == member {
			g = now.Clone()
		}
	})
	return g
}

// partitions returns how many every topic has, those of our own apart.
func (c *consumer) partitions() map[string]int32 {
	partitions := map[string]int32{}
	for name, spec := range c.node.Topics() {
		if !strings.HasPrefix(name, "__") {
			partitions[name] = int32(spec.Partitions)
		}
	}
	return partitions
}

// planned tells whether the target of g was made for the partitions of a.
func (c *consumer) planned(a group.Assignment, g *group.Group) bool {
	if c.lastEpoch == g.TargetEpoch {
		return maps.Equal(c.lastPlan, a.Partitions)
	}
	// It was made by another, or in another life.
	total := 0
	for t, n := range a.Partitions {
		for i := range n {
			if _, ok := g.Target[group.Partition{Topic: t, Number: i}]; !ok {
				return false
			}
		}
		total += int(n)
	}
	return total == len(g.Target)
}

// askAssignor calls the program's function, whose panic becomes an error of the
// consumer.
func (c *consumer) askAssignor(a group.Assignment) (target map[group.Partition]group.MemberID, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("topic: the Assignor of group %q panicked: %v", c.group, r)
		}
	}()
	return c.opts.Assignor.assign(a)
}

// matches tells whether a topic's whole name matches a pattern.
func (c *consumer) matches(pattern, topic string) bool {
	re := c.patterns[pattern]
	if re == nil {
		var err error
		if re, err = regexp.Compile("^(?:" + pattern + ")$"); err != nil {
			return false // every consumer checks its own before it joins
		}
		if c.patterns == nil {
			c.patterns = map[string]*regexp.Regexp{}
		}
		c.patterns[pattern] = re
	}
	return re.MatchString(topic)
}

// commitInBackground commits what is finished. A failure is tried again at the next
// interval, unless it is of those after which nothing is known.
func (c *consumer) commitInBackground(ctx context.Context) {
	err := c.commitFinished(ctx, c.owned())
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, ErrUnknown):
		c.fail(err)
	default:
		c.opts.Logger.Warn("commit positions", "group", c.group, "err", err)
	}
}

// owned returns the claims by partition.
func (c *consumer) owned() []*claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ownedLocked()
}

func (c *consumer) ownedLocked() []*claim {
	return slices.SortedFunc(maps.Values(c.claims), func(a, b *claim) int {
		return a.grant.Partition.Compare(b.grant.Partition)
	})
}

// commitFinished moves the positions of claims to what the program has finished.
func (c *consumer) commitFinished(ctx context.Context, claims []*claim) error {
	c.commitMu.Lock()
	defer c.commitMu.Unlock()
	c.mu.Lock()
	var moves []move
	for _, cl := range claims {
		if off := cl.positionLocked(); int64(off) != cl.committed && cl.err == nil && !cl.deleted {
			moves = append(moves, move{claim: cl, to: cl.at(off, "")})
		}
	}
	c.mu.Unlock()
	return c.commit(ctx, moves)
}

// move is a position to commit.
type move struct {
	claim *claim
	to    group.Position
}

// commit proposes moves, ascending by partition, in one step. Those that are refused
// because the partition is not owned any more do not keep the others from being
// committed. commitMu is held.
func (c *consumer) commit(ctx context.Context, moves []move) error {
	var refused error
	for len(moves) > 0 {
		err := c.node.ProposeGroup(ctx, c.commitOf(moves))
		var stale *group.StaleError
		switch {
		case err == nil:
			c.mu.Lock()
			for _, m := range moves {
				m.claim.committed = m.to.Offset
			}
			c.mu.Unlock()
			return refused
		case errors.As(err, &stale):
			refused = fmt.Errorf("topic: commit: %w", err)
			c.notice()
			moves = slices.DeleteFunc(moves, func(m move) bool { return slices.Contains(stale.Partitions, m.claim.grant.Partition) })
		case errors.Is(err, group.ErrNotMember), errors.Is(err, group.ErrUnknown):
			c.notice()
			return fmt.Errorf("topic: commit: %w: %w", ErrStale, err)
		default:
			return fmt.Errorf("topic: commit positions of group %q: %w", c.group, err)
		}
	}
	return refused
}

// commitOf is the step that moves positions.
func (c *consumer) commitOf(moves []move) group.Commit {
	c.mu.Lock()
	defer c.mu.Unlock()
	step := group.Commit{Group: c.group, Member: c.member}
	for _, m := range moves {
		step.Positions = append(step.Positions, group.Committed{Grant: m.claim.grant, Position: m.to})
	}
	return step
}
