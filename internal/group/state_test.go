package group

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// steps applies commands to a state and fails the test where one is refused.
func steps(t *testing.T, s *State, commands ...Command) {
	t.Helper()
	for i, c := range commands {
		require.NoError(t, s.Apply(int64(1000+i), c).Err, "%+v", c)
	}
}

func at(n int32) Partition { return Partition{"t", n} }

func commitAt(m MemberID, p Partition, epoch, offset int64) Commit {
	return Commit{Group: "g", Member: m, Positions: []Committed{{Grant: Grant{p, epoch}, Position: Position{Offset: offset}}}}
}

// A position belongs to a grant: when that has ended it is void, also when the
// partition has come back to the same member.
func TestPositionsBelongToAGrant(t *testing.T) {
	s := NewState()
	steps(t, s, Join{Group: "g", Member: 1}, Join{Group: "g", Member: 2})
	g := s.Groups["g"]
	move := func(to MemberID) int64 {
		t.Helper()
		steps(t, s, SetTarget{Group: "g", Epoch: g.Epoch, Target: map[Partition]MemberID{at(0): to}})
		if o, ok := g.Owners[at(0)]; ok && o.Member != to {
			steps(t, s, Release{Group: "g", Member: o.Member, Grants: []Grant{{at(0), o.Epoch}}})
		}
		require.Equal(t, to, g.Owners[at(0)].Member)
		return g.Owners[at(0)].Epoch
	}
	first := move(1)
	steps(t, s, commitAt(1, at(0), first, 10))
	second := move(2)
	require.Greater(t, second, first)
	steps(t, s, commitAt(2, at(0), second, 50))

	stale := func(c Commit) {
		t.Helper()
		err := s.Apply(1, c).Err
		require.ErrorIs(t, err, ErrStale)
		require.Equal(t, int64(50), g.Positions[at(0)].Offset)
	}
	stale(commitAt(1, at(0), first, 12))
	third := move(1)
	stale(commitAt(1, at(0), first, 12))
	stale(commitAt(2, at(0), second, 51))
	steps(t, s, commitAt(1, at(0), third, 60))

	// All or none.
	c := commitAt(1, at(0), third, 70)
	c.Positions = append(c.Positions, Committed{Grant: Grant{at(1), third}})
	var e *StaleError
	require.ErrorAs(t, s.Apply(1, c).Err, &e)
	require.Equal(t, []Partition{at(1)}, e.Partitions)
	require.Equal(t, int64(60), g.Positions[at(0)].Offset)

	steps(t, s, Leave{Group: "g", Member: 1})
	require.ErrorIs(t, s.Apply(1, commitAt(1, at(0), third, 70)).Err, ErrNotMember)
	require.ErrorIs(t, s.Apply(1, commitAt(0, at(0), 0, 70)).Err, ErrNotEmpty)
	require.ErrorIs(t, s.Apply(1, Commit{Group: "none", Member: 1}).Err, ErrUnknown)
}

// A static member that comes back has its partitions at once and under new grants,
// without a new target; until then nobody else gets them.
func TestStaticMembersComeBack(t *testing.T) {
	s := NewState()
	wants := Subscription{Topics: []string{"t"}}
	steps(t, s,
		Join{Group: "g", Member: 1, Static: "one", Subscription: wants, Session: 500}, Join{Group: "g", Member: 2, Subscription: wants},
		SetTarget{Group: "g", Epoch: 2, Target: map[Partition]MemberID{at(0): 1, at(1): 2}})
	g := s.Groups["g"]
	require.ErrorIs(t, s.Apply(1, Join{Group: "g", Member: 3, Static: "one"}).Err, ErrStaticInUse)
	old := g.Owners[at(0)]
	require.NoError(t, s.Apply(2000, Restart{}).Err)
	require.NotContains(t, g.Members, MemberID(2))
	require.Equal(t, int64(2000), g.Members[1].Away)
	require.Equal(t, map[Partition]Owner{at(0): old}, g.Owners)
	require.ErrorIs(t, s.Apply(1, commitAt(1, at(0), old.Epoch, 9)).Err, ErrNotMember, "an instance that is gone")
	require.True(t, Reconcile(g, 1, map[Partition]int64{at(0): old.Epoch}).Over)

	steps(t, s, SetTarget{Group: "g", Epoch: g.Epoch, Target: map[Partition]MemberID{at(0): 1}})
	steps(t, s, Join{Group: "g", Member: 3, Static: "one", Subscription: wants, Session: 500})
	require.Equal(t, Stable, g.Phase())
	require.Equal(t, Owner{Member: 3, Epoch: g.Epoch}, g.Owners[at(0)])
	require.Equal(t, []Grant{{at(0), g.Epoch}}, Reconcile(g, 3, nil).Granted)

	// With another subscription it needs a new target.
	steps(t, s, Away{Group: "g", Member: 3}, Join{Group: "g", Member: 4, Static: "one", Subscription: Subscription{Pattern: "t"}, Session: 500})
	require.Equal(t, Assigning, g.Phase())

	require.NoError(t, s.Apply(5000, Away{Group: "g", Member: 4}).Err)
	due, next := s.Due(5499, 100)
	require.Empty(t, due)
	require.Equal(t, int64(5500), next)
	due, _ = s.Due(5500, 100)
	require.Equal(t, []Command{Leave{Group: "g", Member: 4}}, due)
	require.ErrorIs(t, s.Apply(1, Away{Group: "g", Member: 9}).Err, ErrNotMember)
}

// A partition that is added to a topic is read from its beginning, whoever has left
// meanwhile; those that were there from the start have no position before one is
// committed.
func TestPositionsOfAddedPartitions(t *testing.T) {
	s := NewState()
	known := func(n int32) bool {
		from, ok := s.Groups["g"].Position(at(n))
		require.Zero(t, from.Offset)
		return ok
	}
	target := func(m MemberID, count int32) {
		all := map[Partition]MemberID{}
		for i := range count {
			all[at(i)] = m
		}
		steps(t, s, SetTarget{Group: "g", Epoch: s.Groups["g"].Epoch, Target: all})
	}
	steps(t, s, Join{Group: "g", Member: 1})
	target(1, 2)
	require.False(t, known(0) || known(1))
	steps(t, s, Leave{Group: "g", Member: 1}, Join{Group: "g", Member: 2})
	target(2, 2)
	require.False(t, known(0) || known(1), "nobody has begun to read")
	target(2, 4)
	require.False(t, known(0) || known(1))
	require.True(t, known(2) && known(3))
	steps(t, s, Leave{Group: "g", Member: 2}, Join{Group: "g", Member: 3})
	target(3, 5)
	require.True(t, known(4), "added while nobody was there")
	require.False(t, known(0))

	steps(t, s, ForgetTopic{Topic: "t"})
	target(3, 3)
	require.False(t, known(2), "another topic of the name")
}

// A group without members is kept for the retention and can be changed and deleted
// meanwhile; one with members can not.
func TestIdleGroups(t *testing.T) {
	s := NewState()
	require.NoError(t, s.Apply(1000, commitAt(0, at(0), 0, 5)).Err, "positions set before the group was ever used")
	due, next := s.Due(1099, 100)
	require.Empty(t, due)
	require.Equal(t, int64(1100), next)
	steps(t, s, Join{Group: "g", Member: 1})
	due, next = s.Due(1<<60, 100)
	require.Empty(t, due)
	require.Zero(t, next)
	require.ErrorIs(t, s.Apply(1, Delete{Group: "g"}).Err, ErrNotEmpty)
	require.ErrorIs(t, s.Apply(1, commitAt(0, at(0), 0, 6)).Err, ErrNotEmpty)
	require.NoError(t, s.Apply(3000, Leave{Group: "g", Member: 1}).Err)
	require.ErrorIs(t, s.Apply(3000, Leave{Group: "g", Member: 1}).Err, ErrNotMember)
	due, _ = s.Due(3100, 100)
	require.Equal(t, []Command{Expire{Group: "g", Idle: 3000}}, due)
	due, next = s.Due(3100, -1)
	require.Empty(t, due)
	require.Zero(t, next)
	steps(t, s, Expire{Group: "g", Idle: 2999})
	require.Contains(t, s.Groups, "g", "it was idle since another time")
	steps(t, s, Expire{Group: "g", Idle: 3000})
	require.Empty(t, s.Groups)
	require.ErrorIs(t, s.Apply(1, Delete{Group: "g"}).Err, ErrUnknown)
	steps(t, s, commitAt(0, at(0), 0, 5), Delete{Group: "g"})
	require.Empty(t, s.Groups)
}

// A topic that goes takes its positions and owners along; its consumers are told.
func TestForgetTopic(t *testing.T) {
	s := NewState()
	other := Partition{"u", 0}
	steps(t, s, Join{Group: "g", Member: 1},
		SetTarget{Group: "g", Epoch: 1, Target: map[Partition]MemberID{at(0): 1, other: 1}},
		commitAt(1, at(0), 2, 5), commitAt(1, other, 2, 6))
	g := s.Groups["g"]
	require.True(t, g.Names("t"))
	require.True(t, s.Apply(1, ForgetTopic{Topic: "t"}).Changed)
	require.False(t, g.Names("t"))
	require.Equal(t, Stable, g.Phase())
	require.Equal(t, map[Partition]Position{other: {Offset: 6}}, g.Positions)
	step := Reconcile(g, 1, map[Partition]int64{at(0): 2, other: 2})
	require.Equal(t, Step{Lost: []Grant{{at(0), 2}}}, step)
	require.False(t, s.Apply(1, ForgetTopic{Topic: "t"}).Changed)
}

// What a member was granted and never began to read it just gives up.
func TestReconcile(t *testing.T) {
	s := NewState()
	steps(t, s, Join{Group: "g", Member: 1}, Join{Group: "g", Member: 2},
		SetTarget{Group: "g", Epoch: 2, Target: map[Partition]MemberID{at(0): 1, at(1): 1, at(2): 1}})
	g := s.Groups["g"]
	held := map[Partition]int64{at(0): 3, at(2): 3}
	require.Equal(t, Step{Granted: []Grant{{at(1), 3}}}, Reconcile(g, 1, held))
	steps(t, s, SetTarget{Group: "g", Epoch: 3, Target: map[Partition]MemberID{at(0): 2, at(1): 2, at(2): 1}})
	require.Equal(t, Reconciling, g.Phase())
	require.Equal(t, Step{Revoked: []Grant{{at(0), 3}}, Unused: []Grant{{at(1), 3}}}, Reconcile(g, 1, held))
	require.True(t, Reconcile(g, 2, nil).None(), "nothing is granted before it is released")
	require.True(t, Reconcile(nil, 1, nil).Over)
	require.ErrorIs(t, s.Apply(1, SetTarget{Group: "g", Epoch: 3}).Err, ErrEpoch)
	require.ErrorIs(t, s.Apply(1, SetTarget{Group: "g", Epoch: 4, Target: map[Partition]MemberID{at(0): 9}}).Err, ErrNotMember)
}
