package queue

import "slices"

// span is the offsets [From, To).
type span struct{ from, to int64 }

// ranges is a set of offsets: spans ascending, none empty, none touching another.
type ranges []span

// at returns the index of the first span that ends above off.
func (r ranges) at(off int64) int {
	i, _ := slices.BinarySearchFunc(r, off, func(s span, off int64) int {
		if s.to <= off {
			return -1
		}
		return 1
	})
	return i
}

func (r ranges) contains(off int64) bool {
	i := r.at(off)
	return i < len(r) && r[i].from <= off
}

// add adds [from, to) and returns how many of the offsets are new.
func (r *ranges) add(from, to int64) (added int64) {
	if from >= to {
		return 0
	}
	added = to - from
	i := r.at(from)
	if i > 0 && (*r)[i-1].to == from {
		i--
	}
	j := i
	for ; j < len(*r) && (*r)[j].from <= to; j++ {
		s := (*r)[j]
		added -= max(0, min(to, s.to)-max(from, s.from))
		from, to = min(from, s.from), max(to, s.to)
	}
	*r = slices.Replace(*r, i, j, span{from, to})
	return added
}

// cut removes all offsets from off on.
func (r *ranges) cut(off int64) {
	i := r.at(off)
	if i < len(*r) && (*r)[i].from < off {
		(*r)[i].to = off
		i++
	}
	*r = (*r)[:i]
}
