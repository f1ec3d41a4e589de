package group

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// MemberID names a member for as long as it is one. Whoever joins chooses it at
// random; zero is nobody.
type MemberID uint64

// Partition is a partition of a topic.
type Partition struct {
	Topic  string
	Number int32
}

// Compare orders partitions by topic and number.
func (p Partition) Compare(q Partition) int {
	return cmp.Or(strings.Compare(p.Topic, q.Topic), cmp.Compare(p.Number, q.Number))
}

// Position is how far a partition was read.
type Position struct {
	Offset      int64 // of the first record not read
	LeaderEpoch int32 // of the record before it
	Metadata    string
}

// Grant is a partition that a member owns since an epoch of the group.
type Grant struct {
	Partition Partition
	Epoch     int64
}

// Owner is who owns a partition, and since when.
type Owner struct {
	Member MemberID
	Epoch  int64
}

// Subscription is which topics a member wants: those named and those whose whole
// name matches the pattern.
type Subscription struct {
	Topics  []string // ascending, each once
	Pattern string   // a regular expression; empty for none
}

// Equal tells whether both name the same topics in the same way.
func (s Subscription) Equal(o Subscription) bool {
	return s.Pattern == o.Pattern && slices.Equal(s.Topics, o.Topics)
}

// Member is a member of a group.
type Member struct {
	Static       string // its name over restarts; empty for a member that has none
	Subscription Subscription
	Session      int64 // ms without a sign of life after which it is over
	Joined       int64 // epoch of the group at its joining
	Away         int64 // Unix ms since when a static member's program is gone; zero while it is there
}

// Group is one group.
type Group struct {
	Epoch       int64
	TargetEpoch int64 // the epoch the target was made for
	Idle        int64 // Unix ms since when there are no members; zero while there are
	Members     map[MemberID]Member
	Target      map[Partition]MemberID
	Owners      map[Partition]Owner
	Positions   map[Partition]Position // of all partitions a target ever had; see Position
}

// noPosition is the offset of a partition that the group knows and has no position in.
const noPosition = -1

// Position returns the group's position in a partition, if it has one.
func (g *Group) Position(p Partition) (at Position, ok bool) {
	at, ok = g.Positions[p]
	if !ok || at.Offset == noPosition {
		return Position{}, false
	}
	return at, true
}

func newGroup(now int64) *Group {
	return &Group{
		Idle:      max(now, 1),
		Members:   map[MemberID]Member{},
		Target:    map[Partition]MemberID{},
		Owners:    map[Partition]Owner{},
		Positions: map[Partition]Position{},
	}
}

// Clone returns an independent copy.
func (g *Group) Clone() *Group {
	c := *g
	c.Members, c.Target = maps.Clone(g.Members), maps.Clone(g.Target)
	c.Owners, c.Positions = maps.Clone(g.Owners), maps.Clone(g.Positions)
	return &c
}

// Phase is where a group is in its protocol.
//
//	Empty ──join──▶ Assigning ──target──▶ Reconciling ──last release──▶ Stable
//	  ▲                 ▲                      │                          │
//	  └──last leave─────┴──────join, leave─────┴──────────────────────────┘
type Phase uint8

const (
	Empty       Phase = iota // no members; its positions are kept
	Assigning                // the target is older than the members
	Reconciling              // a member owns what the target gives to another, or to nobody
	Stable                   // everybody owns what the target says
)

func (p Phase) String() string {
	return [...]string{"empty", "assigning", "reconciling", "stable"}[p]
}

// Phase returns where the group is.
func (g *Group) Phase() Phase {
	switch {
	case len(g.Members) == 0:
		return Empty
	case g.TargetEpoch < g.Epoch:
		return Assigning
	}
	for p, o := range g.Owners {
		if g.Target[p] != o.Member {
			return Reconciling
		}
	}
	return Stable
}

// Assigner is the member that is to propose the target: of those that are there the
// one that joined first. It is zero when nobody is there.
func (g *Group) Assigner() MemberID {
	var first MemberID
	for id, m := range g.Members {
		if m.Away == 0 && (first == 0 || m.Joined < g.Members[first].Joined) {
			first = id
		}
	}
	return first
}

// Ordered returns the members in the order of their static ids and then of their
// joining, which is the same for everybody who asks.
func (g *Group) Ordered() []MemberID {
	return slices.SortedFunc(maps.Keys(g.Members), func(a, b MemberID) int {
		m, n := g.Members[a], g.Members[b]
		return cmp.Or(strings.Compare(m.Static, n.Static), cmp.Compare(m.Joined, n.Joined))
	})
}

// settle grants what nobody owns to whom the target names.
func (g *Group) settle(r rules) (granted bool) {
	for p, m := range g.Target {
		if _, owned := g.Owners[p]; !owned || r.grantBeforeRelease && g.Owners[p].Member != m {
			g.Owners[p] = Owner{Member: m, Epoch: g.Epoch}
			granted = true
		}
	}
	return granted
}

// remove takes a member and all it owns out of the group.
func (g *Group) remove(id MemberID, now int64) {
	delete(g.Members, id)
	maps.DeleteFunc(g.Owners, func(_ Partition, o Owner) bool { return o.Member == id })
	maps.DeleteFunc(g.Target, func(_ Partition, m MemberID) bool { return m == id })
	g.Epoch++
	if len(g.Members) == 0 {
		g.Idle = max(now, 1)
	}
}

// Names tells whether the group has to do with a topic beyond subscribing to it.
func (g *Group) Names(topic string) bool {
	for p := range g.Positions {
		if p.Topic == topic {
			return true
		}
	}
	for p := range g.Owners {
		if p.Topic == topic {
			return true
		}
	}
	for p := range g.Target {
		if p.Topic == topic {
			return true
		}
	}
	return false
}
