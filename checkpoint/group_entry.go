package checkpoint

import (
	"cmp"
	"maps"
	"slices"

	"github.com/thalweg/thalweg/internal/group"
)

// groupEntry is a command of the group protocol and the time it was written at.
//
//	size  field
//	 ...  time, Unix ms
//	 1    kind of command
//	 ...  the fields of the command, as package group lists them
type groupEntry struct {
	time    int64
	command group.Command
}

type groupKind uint64

const (
	groupJoin groupKind = iota + 1
	groupLeave
	groupAway
	groupSetTarget
	groupRelease
	groupCommit
	groupDelete
	groupExpire
	groupForgetTopic
	groupRestart
)

func (groupEntry) kind() entryKind { return kindGroup }

func (e groupEntry) appendTo(b []byte) []byte {
	b = appendInt(b, e.time)
	kind := func(k groupKind) []byte { return appendUint(b, uint64(k)) }
	switch c := e.command.(type) {
	case group.Join:
		b = appendUint(appendString(kind(groupJoin), c.Group), uint64(c.Member))
		return appendInt(appendSubscription(appendString(b, c.Static), c.Subscription), c.Session)
	case group.Leave:
		return appendUint(appendString(kind(groupLeave), c.Group), uint64(c.Member))
	case group.Away:
		return appendUint(appendString(kind(groupAway), c.Group), uint64(c.Member))
	case group.SetTarget:
		return appendTarget(appendInt(appendString(kind(groupSetTarget), c.Group), c.Epoch), c.Target)
	case group.Release:
		b = appendUint(appendString(kind(groupRelease), c.Group), uint64(c.Member))
		b = appendUint(b, uint64(len(c.Grants)))
		for _, g := range c.Grants {
			b = appendInt(appendGroupPartition(b, g.Partition), g.Epoch)
		}
		return b
	case group.Commit:
		return appendCommit(kind(groupCommit), c)
	case group.Delete:
		return appendString(kind(groupDelete), c.Group)
	case group.Expire:
		return appendInt(appendString(kind(groupExpire), c.Group), c.Idle)
	case group.ForgetTopic:
		return appendString(kind(groupForgetTopic), c.Topic)
	}
	return kind(groupRestart)
}

func (d *decoder) groupEntry() groupEntry {
	e := groupEntry{time: d.int()}
	switch k := groupKind(d.uint()); k {
	case groupJoin:
		e.command = group.Join{Group: d.string(), Member: d.member(), Static: d.string(), Subscription: d.subscription(), Session: d.int()}
	case groupLeave:
		e.command = group.Leave{Group: d.string(), Member: d.member()}
	case groupAway:
		e.command = group.Away{Group: d.string(), Member: d.member()}
	case groupSetTarget:
		e.command = group.SetTarget{Group: d.string(), Epoch: d.int(), Target: d.target()}
	case groupRelease:
		c := group.Release{Group: d.string(), Member: d.member()}
		for range d.count(minGrant) {
			g := group.Grant{Partition: d.groupPartition(), Epoch: d.int()}
			if n := len(c.Grants); n > 0 && c.Grants[n-1].Partition.Compare(g.Partition) >= 0 {
				d.fail("partitions out of order")
			}
			c.Grants = append(c.Grants, g)
		}
		e.command = c
	case groupCommit:
		e.command = d.commit()
	case groupDelete:
		e.command = group.Delete{Group: d.string()}
	case groupExpire:
		e.command = group.Expire{Group: d.string(), Idle: d.int()}
	case groupForgetTopic:
		e.command = group.ForgetTopic{Topic: d.string()}
	case groupRestart:
		e.command = group.Restart{}
	default:
		d.fail("kind %d of a group's command", k)
	}
	return e
}

// The least sizes of what is counted: strings have one byte, numbers one each.
const (
	minGrant     = 3
	minCommitted = 6
	minTarget    = 3
	minMember    = 7
	minOwner     = 4
	minKept      = 5
	minGroup     = 8
)

func appendGroupPartition(b []byte, p group.Partition) []byte {
	return appendInt(appendString(b, p.Topic), int64(p.Number))
}

func (d *decoder) groupPartition() group.Partition {
	return group.Partition{Topic: d.string(), Number: d.int32()}
}

func (d *decoder) member() group.MemberID { return group.MemberID(d.uint()) }

func appendGroupPosition(b []byte, p group.Position) []byte {
	return appendString(appendInt(appendInt(b, p.Offset), int64(p.LeaderEpoch)), p.Metadata)
}

func (d *decoder) groupPosition() group.Position {
	return group.Position{Offset: d.int(), LeaderEpoch: d.int32(), Metadata: d.string()}
}

// appendCommit encodes the positions of a group: group, member, and by partition the
// epoch of the grant and the position.
func appendCommit(b []byte, c group.Commit) []byte {
	b = appendUint(appendString(b, c.Group), uint64(c.Member))
	b = appendUint(b, uint64(len(c.Positions)))
	for _, p := range c.Positions {
		b = appendGroupPosition(appendInt(appendGroupPartition(b, p.Partition), p.Epoch), p.Position)
	}
	return b
}

func (d *decoder) commit() group.Commit {
	c := group.Commit{Group: d.string(), Member: d.member()}
	for range d.count(minCommitted) {
		p := group.Committed{Grant: group.Grant{Partition: d.groupPartition(), Epoch: d.int()}, Position: d.groupPosition()}
		if n := len(c.Positions); n > 0 && c.Positions[n-1].Partition.Compare(p.Partition) >= 0 {
			d.fail("partitions out of order")
		}
		c.Positions = append(c.Positions, p)
	}
	return c
}

func appendSubscription(b []byte, s group.Subscription) []byte {
	b = appendUint(b, uint64(len(s.Topics)))
	for _, t := range s.Topics {
		b = appendString(b, t)
	}
	return appendString(b, s.Pattern)
}

func (d *decoder) subscription() (s group.Subscription) {
	for range d.count(1) {
		t := d.string()
		if n := len(s.Topics); n > 0 && s.Topics[n-1] >= t {
			d.fail("topics out of order")
		}
		s.Topics = append(s.Topics, t)
	}
	s.Pattern = d.string()
	return s
}

func appendTarget(b []byte, target map[group.Partition]group.MemberID) []byte {
	return appendByPartition(b, target, func(b []byte, m group.MemberID) []byte { return appendUint(b, uint64(m)) })
}

func (d *decoder) target() map[group.Partition]group.MemberID {
	return decodeByPartition(d, minTarget, d.member)
}

// appendByPartition encodes a count and the elements of m by partition.
func appendByPartition[V any](b []byte, m map[group.Partition]V, value func([]byte, V) []byte) []byte {
	b = appendUint(b, uint64(len(m)))
	for _, p := range sortedKeys(m, group.Partition.Compare) {
		b = value(appendGroupPartition(b, p), m[p])
	}
	return b
}

func decodeByPartition[V any](d *decoder, size int, value func() V) map[group.Partition]V {
	n := d.count(size)
	m := make(map[group.Partition]V, n)
	var before group.Partition
	for i := range n {
		p := d.groupPartition()
		if i > 0 && before.Compare(p) >= 0 {
			d.fail("partitions out of order")
		}
		before = p
		m[p] = value()
	}
	return m
}

// appendGroups encodes the groups of a snapshot: a count, then by name epoch, epoch of
// the target, idle, members by id, target, owners and positions by partition.
func appendGroups(b []byte, s *group.State) []byte {
	b = appendUint(b, uint64(len(s.Groups)))
	for _, name := range sortedOrdered(s.Groups) {
		g := s.Groups[name]
		b = appendInt(appendInt(appendInt(appendString(b, name), g.Epoch), g.TargetEpoch), g.Idle)
		b = appendUint(b, uint64(len(g.Members)))
		for _, id := range slices.SortedFunc(maps.Keys(g.Members), cmp.Compare[group.MemberID]) {
			m := g.Members[id]
			b = appendSubscription(appendString(appendUint(b, uint64(id)), m.Static), m.Subscription)
			b = appendInt(appendInt(appendInt(b, m.Session), m.Joined), m.Away)
		}
		b = appendTarget(b, g.Target)
		b = appendByPartition(b, g.Owners, func(b []byte, o group.Owner) []byte {
			return appendInt(appendUint(b, uint64(o.Member)), o.Epoch)
		})
		b = appendByPartition(b, g.Positions, appendGroupPosition)
	}
	return b
}

func (d *decoder) groups() *group.State {
	s := group.NewState()
	before := ""
	for i := range d.count(minGroup) {
		name := d.string()
		if i > 0 && before >= name {
			d.fail("groups out of order")
		}
		before = name
		g := &group.Group{Epoch: d.int(), TargetEpoch: d.int(), Idle: d.int()}
		n := d.count(minMember)
		g.Members = make(map[group.MemberID]group.Member, n)
		last := group.MemberID(0)
		for j := range n {
			id := d.member()
			if j > 0 && last >= id {
				d.fail("members out of order")
			}
			last = id
			g.Members[id] = group.Member{Static: d.string(), Subscription: d.subscription(), Session: d.int(), Joined: d.int(), Away: d.int()}
		}
		g.Target = d.target()
		g.Owners = decodeByPartition(d, minOwner, func() group.Owner { return group.Owner{Member: d.member(), Epoch: d.int()} })
		g.Positions = decodeByPartition(d, minKept, d.groupPosition)
		s.Groups[name] = g
	}
	return s
}
