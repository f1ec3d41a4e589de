package group

import (
	"fmt"
	"maps"
	"slices"
)

// State is all groups, by name. It changes by Apply alone, so two that applied the
// same commands are equal. Make one with NewState.
type State struct {
	Groups map[string]*Group
	rules  rules
}

// NewState returns a state without groups.
func NewState() *State { return &State{Groups: map[string]*Group{}} }

// rules are those that the tests take out, one at a time, to show that they see the
// difference. Nothing outside the tests uses another than the zero value.
type rules struct {
	grantBeforeRelease bool // the target alone makes an owner
	acceptStaleEpoch   bool // a commit under an older grant of the same member counts
	acceptNotOwner     bool // a commit of a member that is not the owner counts
	keepOnExpiry       bool // who leaves keeps what it owned
	anyEpochTarget     bool // a target is accepted whatever the group has become
}

// Result is what a command did. A command that is refused (Err set) changed nothing.
type Result struct {
	Changed bool // members, subscriptions, target or owners: whoever watches a group has to look
	Err     error
}

// Apply takes the step of c, written at now, Unix ms.
func (s *State) Apply(now int64, c Command) Result {
	switch c := c.(type) {
	case Join:
		return s.join(now, c)
	case Leave:
		return s.leave(now, c)
	case Away:
		return s.away(now, c)
	case SetTarget:
		return s.setTarget(c)
	case Release:
		return s.release(c)
	case Commit:
		if err := s.Check(c); err != nil {
			return Result{Err: err}
		}
		s.commit(now, c)
		return Result{}
	case Delete:
		return s.delete(c)
	case Expire:
		if g := s.Groups[c.Group]; g != nil && g.Idle == c.Idle && len(g.Members) == 0 {
			delete(s.Groups, c.Group)
		}
		return Result{}
	case ForgetTopic:
		return s.forgetTopic(c)
	case Restart:
		return s.restart(now)
	}
	return Result{Err: fmt.Errorf("group: unknown command %T", c)}
}

// Check returns why c would be refused: for those that commit positions together with
// something else, in the same step. What it allows, Apply takes.
func (s *State) Check(c Commit) error {
	g := s.Groups[c.Group]
	if c.Member == 0 {
		if g != nil && len(g.Members) > 0 {
			return fmt.Errorf("%w: %q: close its consumers first", ErrNotEmpty, c.Group)
		}
		return nil
	}
	if g == nil {
		return fmt.Errorf("%w: %q", ErrUnknown, c.Group)
	}
	if m, ok := g.Members[c.Member]; !ok || m.Away != 0 {
		return fmt.Errorf("%w: %016x of group %q", ErrNotMember, uint64(c.Member), c.Group)
	}
	var stale []Partition
	for _, p := range c.Positions {
		o := g.Owners[p.Partition]
		if o.Member != c.Member && !s.rules.acceptNotOwner || o.Epoch != p.Epoch && !s.rules.acceptStaleEpoch {
			stale = append(stale, p.Partition)
		}
	}
	if len(stale) > 0 {
		return &StaleError{Group: c.Group, Partitions: stale}
	}
	return nil
}

func (s *State) commit(now int64, c Commit) {
	g := s.Groups[c.Group]
	if g == nil {
		g = newGroup(now)
		s.Groups[c.Group] = g
	}
	if len(g.Members) == 0 {
		g.Idle = max(now, 1)
	}
	for _, p := range c.Positions {
		g.Positions[p.Partition] = p.Position
	}
}

func (s *State) join(now int64, c Join) Result {
	g := s.Groups[c.Group]
	if c.Member == 0 {
		return Result{Err: fmt.Errorf("%w: member zero", ErrNotMember)}
	}
	if g == nil {
		g = newGroup(now)
	}
	m, known := g.Members[c.Member]
	if known && m.Session == c.Session && m.Away == 0 && m.Subscription.Equal(c.Subscription) {
		return Result{} // a repetition
	}
	old, taken := c.Member, false
	if !known && c.Static != "" {
		if old, taken = g.static(c.Static); taken && g.Members[old].Away == 0 {
			return Result{Err: fmt.Errorf("%w: %q of group %q: close the other consumer, or give this one another id", ErrStaticInUse, c.Static, c.Group)}
		}
	}
	current := g.TargetEpoch == g.Epoch
	g.Epoch++
	switch {
	case taken:
		m = g.Members[old]
		g.rename(old, c.Member)
		if current && m.Subscription.Equal(c.Subscription) {
			g.TargetEpoch = g.Epoch // the target stays as good as it was
		}
	case !known:
		m = Member{Static: c.Static, Joined: g.Epoch}
	}
	m.Subscription, m.Session, m.Away = c.Subscription, c.Session, 0
	g.Members[c.Member] = m
	g.Idle = 0
	s.Groups[c.Group] = g
	return Result{Changed: true}
}

// static returns the member with a static id.
func (g *Group) static(name string) (MemberID, bool) {
	for id, m := range g.Members {
		if m.Static == name {
			return id, true
		}
	}
	return 0, false
}

// rename gives all that old had to id, under new grants.
func (g *Group) rename(old, id MemberID) {
	delete(g.Members, old)
	for p, m := range g.Target {
		if m == old {
			g.Target[p] = id
		}
	}
	for p, o := range g.Owners {
		if o.Member == old {
			g.Owners[p] = Owner{Member: id, Epoch: g.Epoch}
		}
	}
}

func (s *State) leave(now int64, c Leave) Result {
	g := s.Groups[c.Group]
	if g == nil {
		return Result{Err: fmt.Errorf("%w: %q", ErrUnknown, c.Group)}
	}
	if _, ok := g.Members[c.Member]; !ok {
		return Result{Err: fmt.Errorf("%w: %016x of group %q", ErrNotMember, uint64(c.Member), c.Group)}
	}
	owned := map[Partition]Owner{}
	if s.rules.keepOnExpiry {
		maps.Copy(owned, g.Owners)
	}
	g.remove(c.Member, now)
	maps.Copy(g.Owners, owned)
	return Result{Changed: true}
}

func (s *State) away(now int64, c Away) Result {
	g := s.Groups[c.Group]
	if g == nil {
		return Result{Err: fmt.Errorf("%w: %q", ErrUnknown, c.Group)}
	}
	m, ok := g.Members[c.Member]
	if !ok || m.Static == "" {
		return Result{Err: fmt.Errorf("%w: static, %016x of group %q", ErrNotMember, uint64(c.Member), c.Group)}
	}
	if m.Away == 0 {
		m.Away = max(now, 1)
		g.Members[c.Member] = m
	}
	return Result{Changed: true} // another member may have to propose the target
}

func (s *State) setTarget(c SetTarget) Result {
	g := s.Groups[c.Group]
	if g == nil {
		return Result{Err: fmt.Errorf("%w: %q", ErrUnknown, c.Group)}
	}
	if c.Epoch != g.Epoch && !s.rules.anyEpochTarget {
		return Result{Err: fmt.Errorf("%w: target for epoch %d of group %q, which is at %d", ErrEpoch, c.Epoch, c.Group, g.Epoch)}
	}
	for p, m := range c.Target {
		if _, ok := g.Members[m]; !ok && !s.rules.anyEpochTarget {
			return Result{Err: fmt.Errorf("%w: %016x of group %q, which a target gives %s-%d", ErrNotMember, uint64(m), c.Group, p.Topic, p.Number)}
		}
	}
	g.meet(c.Target)
	g.Epoch++
	g.TargetEpoch = g.Epoch
	g.Target = maps.Clone(c.Target)
	if g.Target == nil {
		g.Target = map[Partition]MemberID{}
	}
	g.settle(s.rules)
	return Result{Changed: true}
}

// meet remembers the partitions of a target. Those that were added to a topic which the
// group knew already get a position at their beginning: nothing of them was there when
// the group began. The others get none before somebody commits one.
func (g *Group) meet(target map[Partition]MemberID) {
	highest := map[string]int32{} // that the group knows, by topic
	for p := range g.Positions {
		highest[p.Topic] = max(highest[p.Topic], p.Number)
	}
	for p := range target {
		if _, known := g.Positions[p]; known {
			continue
		}
		if last, known := highest[p.Topic]; known && p.Number > last {
			g.Positions[p] = Position{LeaderEpoch: -1}
		} else {
			g.Positions[p] = Position{Offset: noPosition, LeaderEpoch: -1}
		}
	}
}

func (s *State) release(c Release) Result {
	g := s.Groups[c.Group]
	if g == nil {
		return Result{Err: fmt.Errorf("%w: %q", ErrUnknown, c.Group)}
	}
	freed := false
	for _, grant := range c.Grants {
		if g.Owners[grant.Partition] == (Owner{Member: c.Member, Epoch: grant.Epoch}) {
			delete(g.Owners, grant.Partition)
			freed = true
		}
	}
	g.settle(s.rules)
	return Result{Changed: freed}
}

func (s *State) delete(c Delete) Result {
	g := s.Groups[c.Group]
	if g == nil {
		return Result{Err: fmt.Errorf("%w: %q", ErrUnknown, c.Group)}
	}
	if len(g.Members) > 0 {
		return Result{Err: fmt.Errorf("%w: %q: close its consumers first", ErrNotEmpty, c.Group)}
	}
	delete(s.Groups, c.Group)
	return Result{}
}

func (s *State) forgetTopic(c ForgetTopic) (r Result) {
	for _, g := range s.Groups {
		before := len(g.Target) + len(g.Owners)
		maps.DeleteFunc(g.Positions, func(p Partition, _ Position) bool { return p.Topic == c.Topic })
		maps.DeleteFunc(g.Target, func(p Partition, _ MemberID) bool { return p.Topic == c.Topic })
		maps.DeleteFunc(g.Owners, func(p Partition, _ Owner) bool { return p.Topic == c.Topic })
		if len(g.Target)+len(g.Owners) != before {
			if g.TargetEpoch == g.Epoch {
				g.TargetEpoch++
			}
			g.Epoch++
			r.Changed = true
		}
	}
	return r
}

func (s *State) restart(now int64) (r Result) {
	for _, g := range s.Groups {
		for _, id := range slices.Collect(maps.Keys(g.Members)) {
			m := g.Members[id]
			if m.Static == "" {
				g.remove(id, now)
				r.Changed = true
			} else if m.Away == 0 {
				m.Away = max(now, 1)
				g.Members[id] = m
				r.Changed = true
			}
		}
	}
	return r
}

// Due returns what time alone has brought about at now, Unix ms: the end of members
// that have been away for their session, and of groups that have been without members
// for the retention, unless that is negative. next is when there may be more, or
// zero.
func (s *State) Due(now, retention int64) (due []Command, next int64) {
	at := func(when int64, c Command) {
		switch {
		case when <= now:
			due = append(due, c)
		case next == 0 || when < next:
			next = when
		}
	}
	for name, g := range s.Groups {
		for id, m := range g.Members {
			if m.Away != 0 {
				at(m.Away+m.Session, Leave{Group: name, Member: id})
			}
		}
		if g.Idle != 0 && retention >= 0 {
			at(g.Idle+retention, Expire{Group: name, Idle: g.Idle})
		}
	}
	return due, next
}

// Clone returns an independent copy.
func (s *State) Clone() *State {
	c := &State{Groups: make(map[string]*Group, len(s.Groups)), rules: s.rules}
	for name, g := range s.Groups {
		c.Groups[name] = g.Clone()
	}
	return c
}
