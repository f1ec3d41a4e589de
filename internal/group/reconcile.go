package group

import "slices"

// Step is what a member has to do next.
type Step struct {
	// Over says that the membership has ended: all that was held is lost.
	Over bool

	// Lost are the partitions that the member does not own any more. Somebody else
	// may read them already.
	Lost []Grant

	// Revoked are those it owns and is to give up: it stops, may commit, and
	// releases them.
	Revoked []Grant

	// Granted are those it owns and may begin to read.
	Granted []Grant

	// Unused are those it owns, never began to read, and is to give up: it
	// releases them.
	Unused []Grant
}

// None tells that there is nothing to do.
func (s Step) None() bool {
	return !s.Over && len(s.Lost)+len(s.Revoked)+len(s.Granted)+len(s.Unused) == 0
}

// Reconcile compares what a member holds, partitions and the epochs of their grants,
// with what the group says of it. A nil group has no members.
func Reconcile(g *Group, id MemberID, held map[Partition]int64) Step {
	var s Step
	if g == nil {
		g = &Group{}
	}
	m, member := g.Members[id]
	s.Over = !member || m.Away != 0
	for p, epoch := range held {
		grant := Grant{Partition: p, Epoch: epoch}
		switch {
		case s.Over || g.Owners[p] != Owner{Member: id, Epoch: epoch}:
			s.Lost = append(s.Lost, grant)
		case g.Target[p] != id:
			s.Revoked = append(s.Revoked, grant)
		}
	}
	if !s.Over {
		for p, o := range g.Owners {
			if o.Member != id || held[p] == o.Epoch {
				continue
			}
			if grant := (Grant{Partition: p, Epoch: o.Epoch}); g.Target[p] == id {
				s.Granted = append(s.Granted, grant)
			} else {
				s.Unused = append(s.Unused, grant)
			}
		}
	}
	for _, grants := range [][]Grant{s.Lost, s.Revoked, s.Granted, s.Unused} {
		slices.SortFunc(grants, func(a, b Grant) int { return a.Partition.Compare(b.Partition) })
	}
	return s
}

// Owned returns what a member owns, ascending.
func (g *Group) Owned(id MemberID) []Partition {
	owned := []Partition{}
	for p, o := range g.Owners {
		if o.Member == id {
			owned = append(owned, p)
		}
	}
	slices.SortFunc(owned, Partition.Compare)
	return owned
}
