package group

import (
	"maps"
	"slices"
)

// Assignment is what a target is computed from.
type Assignment struct {
	// Members are in an order that is the same for everybody: see Group.Ordered.
	Members []Candidate

	// Partitions are how many there are of each topic that a member wants.
	Partitions map[string]int32
}

// Candidate is a member as an Assign function sees it.
type Candidate struct {
	ID     MemberID
	Static string
	Topics []string    // that it wants and that exist, ascending
	Owned  []Partition // what it owns, ascending
	Target []Partition // what it was to own before, ascending
}

// Assign says who is to own each partition. It is a pure function of a.
type Assign func(a Assignment) map[Partition]MemberID

// Plan collects what an Assign function needs. match tells whether a pattern matches
// a topic, partitions has all topics that exist.
func Plan(g *Group, partitions map[string]int32, match func(pattern, topic string) bool) Assignment {
	a := Assignment{Partitions: map[string]int32{}}
	topics := slices.Sorted(maps.Keys(partitions))
	for _, id := range g.Ordered() {
		m := g.Members[id]
		c := Candidate{ID: id, Static: m.Static, Owned: g.Owned(id)}
		for _, t := range topics {
			_, named := slices.BinarySearch(m.Subscription.Topics, t)
			if named || m.Subscription.Pattern != "" && match(m.Subscription.Pattern, t) {
				c.Topics = append(c.Topics, t)
				a.Partitions[t] = partitions[t]
			}
		}
		a.Members = append(a.Members, c)
	}
	at := map[MemberID]int{}
	for i, c := range a.Members {
		at[c.ID] = i
	}
	for p, id := range g.Target {
		if i, ok := at[id]; ok {
			a.Members[i].Target = append(a.Members[i].Target, p)
		}
	}
	for i := range a.Members {
		slices.SortFunc(a.Members[i].Target, Partition.Compare)
	}
	return a
}

// all returns every partition, ascending.
func (a Assignment) all() []Partition {
	var all []Partition
	for _, t := range slices.Sorted(maps.Keys(a.Partitions)) {
		for n := range a.Partitions[t] {
			all = append(all, Partition{Topic: t, Number: n})
		}
	}
	return all
}

// Range gives each member a run of neighbouring partitions of each topic it wants,
// in the order of the members: partitions of the same number of topics with as many
// partitions go to the same member.
func Range(a Assignment) map[Partition]MemberID {
	target := map[Partition]MemberID{}
	for _, t := range slices.Sorted(maps.Keys(a.Partitions)) {
		var takers []MemberID
		for _, c := range a.Members {
			if _, wants := slices.BinarySearch(c.Topics, t); wants {
				takers = append(takers, c.ID)
			}
		}
		n := int(a.Partitions[t])
		for i := range n {
			if len(takers) == 0 {
				break
			}
			// The first n % len(takers) members get one more.
			share, more := n/len(takers), n%len(takers)
			at := 0
			if i < more*(share+1) {
				at = i / (share + 1)
			} else {
				at = more + (i-more*(share+1))/share
			}
			target[Partition{Topic: t, Number: int32(i)}] = takers[at]
		}
	}
	return target
}

// Sticky spreads the partitions evenly and moves as few as it can: who owns a
// partition keeps it unless another who wants it has at least two fewer.
func Sticky(a Assignment) map[Partition]MemberID {
	s := sticky{
		load:  make([]int, len(a.Members)),
		wants: map[string][]int{},
		owner: map[Partition]int{},
	}
	for i, c := range a.Members {
		for _, t := range c.Topics {
			s.wants[t] = append(s.wants[t], i)
		}
	}
	all := a.all()
	keep := func(i int, p Partition) {
		_, taken := s.owner[p]
		if !taken && p.Number < a.Partitions[p.Topic] && slices.Contains(s.wants[p.Topic], i) {
			s.give(p, i)
		}
	}
	// What was to move and has not moved yet still is to: else two targets in a row
	// would move it twice.
	for i, c := range a.Members {
		for _, p := range c.Target {
			keep(i, p)
		}
	}
	for i, c := range a.Members {
		for _, p := range c.Owned {
			keep(i, p)
		}
	}
	for _, p := range all {
		if _, taken := s.owner[p]; taken {
			continue
		}
		if least, ok := s.least(p.Topic); ok {
			s.give(p, least)
		}
	}
	// Each move makes the loads more even, so this ends.
	for moved := true; moved; {
		moved = false
		for _, p := range all {
			from, taken := s.owner[p]
			if !taken {
				continue
			}
			if to, _ := s.least(p.Topic); s.load[from]-s.load[to] >= 2 {
				s.load[from]--
				s.give(p, to)
				moved = true
			}
		}
	}
	target := make(map[Partition]MemberID, len(s.owner))
	for p, i := range s.owner {
		target[p] = a.Members[i].ID
	}
	return target
}

// sticky is an assignment in the making. Members are their places in it.
type sticky struct {
	load  []int
	wants map[string][]int // members by topic
	owner map[Partition]int
}

func (s *sticky) give(p Partition, to int) {
	s.owner[p] = to
	s.load[to]++
}

// least is the member with the fewest partitions of those that want a topic.
func (s *sticky) least(topic string) (least int, ok bool) {
	for _, i := range s.wants[topic] {
		if !ok || s.load[i] < s.load[least] {
			least, ok = i, true
		}
	}
	return least, ok
}
