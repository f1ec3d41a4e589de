package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func candidates(n int, topics ...string) []Candidate {
	c := make([]Candidate, n)
	for i := range c {
		c[i] = Candidate{ID: MemberID(i + 1), Topics: topics}
	}
	return c
}

// byMember tells a target as the partitions of each member.
func byMember(target map[Partition]MemberID) map[MemberID][]string {
	m := map[MemberID][]string{}
	for p, id := range target {
		m[id] = append(m[id], fmt.Sprintf("%s%d", p.Topic, p.Number))
	}
	for _, ps := range m {
		slices.Sort(ps)
	}
	return m
}

func TestRange(t *testing.T) {
	a := Assignment{Members: candidates(3, "a", "b"), Partitions: map[string]int32{"a": 5, "b": 2}}
	require.Equal(t, map[MemberID][]string{1: {"a0", "a1", "b0"}, 2: {"a2", "a3", "b1"}, 3: {"a4"}}, byMember(Range(a)))
	a.Members[0].Topics = nil
	require.Equal(t, map[MemberID][]string{2: {"a0", "a1", "a2", "b0"}, 3: {"a3", "a4", "b1"}}, byMember(Range(a)))
	require.Empty(t, Range(Assignment{Partitions: map[string]int32{"a": 1}}))
}

// Whoever joins takes as few partitions as even loads need, and whoever leaves gives
// its own to the others, which keep what they have.
func TestStickyMovesLittle(t *testing.T) {
	a := Assignment{Members: candidates(2, "a"), Partitions: map[string]int32{"a": 6}}
	first := Sticky(a)
	require.Equal(t, map[MemberID][]string{1: {"a0", "a2", "a4"}, 2: {"a1", "a3", "a5"}}, byMember(first))

	with := func(target map[Partition]MemberID, members []Candidate) Assignment {
		for i := range members {
			members[i].Target, members[i].Owned = nil, nil
			for p, id := range target {
				if id == members[i].ID {
					members[i].Target = append(members[i].Target, p)
				}
			}
			slices.SortFunc(members[i].Target, Partition.Compare)
		}
		return Assignment{Members: members, Partitions: a.Partitions}
	}
	second := Sticky(with(first, candidates(3, "a")))
	require.Equal(t, 2, moved(first, second))
	third := Sticky(with(second, candidates(3, "a")[1:]))
	for p, id := range second {
		if id != 1 {
			require.Equal(t, id, third[p])
		}
	}
}

func moved(from, to map[Partition]MemberID) (n int) {
	for p, id := range to {
		if from[p] != id {
			n++
		}
	}
	return n
}

// Whatever members and subscriptions there are: every partition that somebody wants
// has an owner who wants it, nobody could take one of somebody with two more, and the
// same question has the same answer, which then stays.
func TestStickyIsBalancedAndStable(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		a := Assignment{Members: candidates(1 + r.IntN(6)), Partitions: map[string]int32{"a": int32(r.IntN(8)), "b": int32(r.IntN(8)), "c": int32(r.IntN(8))}}
		for i := range a.Members {
			for _, topic := range []string{"a", "b", "c"} {
				if r.IntN(3) > 0 {
					a.Members[i].Topics = append(a.Members[i].Topics, topic)
				}
			}
		}
		for _, p := range a.all() {
			if m := r.IntN(len(a.Members) + 1); m < len(a.Members) {
				a.Members[m].Target = append(a.Members[m].Target, p)
			}
		}
		target := Sticky(a)
		require.Equal(t, target, Sticky(a))
		load := map[MemberID]int{}
		for _, id := range target {
			load[id]++
		}
		for _, p := range a.all() {
			for _, c := range a.Members {
				wants := slices.Contains(c.Topics, p.Topic)
				if wants {
					require.Contains(t, target, p)
					require.Less(t, load[target[p]]-load[c.ID], 2)
				} else {
					require.NotEqual(t, c.ID, target[p])
				}
			}
		}
		for i := range a.Members {
			a.Members[i].Target = nil
			for p, id := range target {
				if id == a.Members[i].ID {
					a.Members[i].Target = append(a.Members[i].Target, p)
				}
			}
		}
		require.Equal(t, target, Sticky(a))
	}
}

// A plan has for each member the topics that exist and that it wants, by name or by
// pattern.
func TestPlan(t *testing.T) {
	s := NewState()
	steps(t, s,
		Join{Group: "g", Member: 1, Static: "z", Subscription: Subscription{Topics: []string{"t", "x"}}},
		Join{Group: "g", Member: 2, Subscription: Subscription{Pattern: "u"}},
		SetTarget{Group: "g", Epoch: 2, Target: map[Partition]MemberID{at(0): 1}})
	a := Plan(s.Groups["g"], map[string]int32{"t": 2, "u1": 1, "u2": 1, "v": 1}, matchPrefix)
	require.Equal(t, Assignment{
		Members: []Candidate{
			{ID: 2, Topics: []string{"u1", "u2"}, Owned: []Partition{}},
			{ID: 1, Static: "z", Topics: []string{"t"}, Owned: []Partition{at(0)}, Target: []Partition{at(0)}},
		},
		Partitions: map[string]int32{"t": 2, "u1": 1, "u2": 1},
	}, a)
}
