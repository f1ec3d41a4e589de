package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
)

// defaultGroupRetention is how long the positions of a group without members are kept.
const defaultGroupRetention = 7 * 24 * time.Hour

// groupRetry is when an end that could not be written is tried again.
const groupRetry = time.Second

// groupWatch tells those who wait for a group that it changed. Its mu is a leaf.
type groupWatch struct {
	retention time.Duration
	due       chan struct{} // holds one signal: what is due has to be worked out again

	mu      sync.Mutex
	waiting map[string]chan struct{} // closed at the next change
}

func newGroupWatch(retention time.Duration) *groupWatch {
	if retention == 0 {
		retention = defaultGroupRetention
	}
	return &groupWatch{retention: retention, due: make(chan struct{}, 1), waiting: map[string]chan struct{}{}}
}

// applied tells whom it may concern that c was accepted.
func (w *groupWatch) applied(c group.Command, changed bool) {
	if c, ok := c.(group.Commit); !ok || c.Member == 0 {
		select {
		case w.due <- struct{}{}:
		default:
		}
	}
	if !changed {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name, one := groupOf(c)
	for waiting, ch := range w.waiting {
		if !one || waiting == name {
			close(ch)
			delete(w.waiting, waiting)
		}
	}
}

// groupOf is the group a command is about; one is false where it is about all.
func groupOf(c group.Command) (name string, one bool) {
	switch c := c.(type) {
	case group.Join:
		return c.Group, true
	case group.Leave:
		return c.Group, true
	case group.Away:
		return c.Group, true
	case group.SetTarget:
		return c.Group, true
	case group.Release:
		return c.Group, true
	case group.Commit:
		return c.Group, true
	case group.Delete:
		return c.Group, true
	case group.Expire:
		return c.Group, true
	}
	return "", false
}

// ProposeGroup takes a step of the group protocol: see package group for its errors.
// A commit of positions is as durable on return as the strictest of its topics asks;
// the other commands are about the members of this process, which a power cut ends
// anyway. An error that matches ErrUnknown leaves it open whether the step was taken;
// any other means that it was not.
func (p *Plane) ProposeGroup(ctx context.Context, c group.Command) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.failure(); err != nil {
		return err // nothing is written any more
	}
	synced := false
	if c, ok := c.(group.Commit); ok {
		synced = slices.ContainsFunc(c.Positions, func(at group.Committed) bool {
			return p.strict(log.TopicPartition{Topic: at.Partition.Topic, Partition: log.PartitionID(at.Partition.Number)})
		})
	}
	r, err := p.propose(groupEntry{p.now().UnixMilli(), c}, synced)
	if errors.Is(err, ErrMetadata) && r.err == nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// Group calls f with a group as it is now, nil where there is none. f must neither
// keep nor change it, nor call the plane.
func (p *Plane) Group(name string, f func(*group.Group)) {
	p.stateMu.RLock()
	defer p.stateMu.RUnlock()
	f(p.state.groups.Groups[name])
}

// Groups returns the names of all groups, ascending.
func (p *Plane) Groups() []string {
	p.stateMu.RLock()
	defer p.stateMu.RUnlock()
	return sortedOrdered(p.state.groups.Groups)
}

// GroupChanged returns a channel that is closed when members, target or owners of a
// group change after the call.
func (p *Plane) GroupChanged(name string) <-chan struct{} {
	w := p.groups
	w.mu.Lock()
	defer w.mu.Unlock()
	ch := w.waiting[name]
	if ch == nil {
		ch = make(chan struct{})
		w.waiting[name] = ch
	}
	return ch
}

// ForgetTopic takes a topic that is to be deleted out of all groups: a later topic of
// its name has other records.
func (p *Plane) ForgetTopic(ctx context.Context, topic string) error {
	named := false
	p.stateMu.RLock()
	for _, g := range p.state.groups.Groups {
		named = named || g.Names(topic)
	}
	p.stateMu.RUnlock()
	if !named {
		return nil
	}
	return p.ProposeGroup(ctx, group.ForgetTopic{Topic: topic})
}

// restartGroups ends the memberships of the process before.
func (p *Plane) restartGroups() error {
	members := 0
	for _, g := range p.state.groups.Groups {
		members += len(g.Members)
	}
	if members == 0 {
		return nil
	}
	_, err := p.propose(groupEntry{p.now().UnixMilli(), group.Restart{}}, false)
	return err
}

// groupLoop ends what is over by time alone: static members that did not come back,
// and groups that nobody joined for the retention.
func (p *Plane) groupLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.groups.due:
		case <-timer.C:
		}
		now := p.now().UnixMilli()
		retention := p.groups.retention.Milliseconds()
		p.stateMu.RLock()
		due, next := p.state.groups.Due(now, retention)
		p.stateMu.RUnlock()
		wait := time.Duration(next-now) * time.Millisecond
		for _, c := range due {
			err := p.ProposeGroup(ctx, c)
			switch {
			case ctx.Err() != nil, p.failure() != nil:
				return
			case err == nil:
				p.logger.Info("ended by time", "group", fmt.Sprintf("%+v", c))
			case errors.Is(err, group.ErrNotMember), errors.Is(err, group.ErrUnknown): // it has come back, or gone
			default:
				p.logger.Error("end a member or a group", "err", err)
				next, wait = 1, groupRetry
			}
		}
		if next != 0 {
			timer.Reset(max(wait, 10*time.Millisecond))
		}
	}
}
