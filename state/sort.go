package state

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
)

// sortedID is an entry, or a change, with the first bytes of its key that differ from those of
// others, which settle most comparisons without touching what it stands for.
type sortedID struct {
	prefix uint64
	id     uint32
}

// sorter sorts a list by key.
type sorter struct {
	list    []sortedID
	scratch []sortedID
}

// sorters are for those who sort now and then: what they need is large, and not for long.
var sorters = sync.Pool{New: func() any { return new(sorter) }}

// radixFrom is from how many elements on a sort goes byte by byte.
const radixFrom = 512

// begin empties the list, with room for n.
func (s *sorter) begin(n int) { s.list = slices.Grow(s.list[:0], n) }

func (s *sorter) add(prefix uint64, id uint32) { s.list = append(s.list, sortedID{prefix, id}) }

// sort sorts the list by key, where compare compares those of ids. What is equal keeps its
// order.
func (s *sorter) sort(compare func(a, b uint32) int) {
	all := s.list
	if len(all) < radixFrom {
		slices.SortStableFunc(all, func(a, b sortedID) int {
			if a.prefix != b.prefix {
				return cmp.Compare(a.prefix, b.prefix)
			}
			return compare(a.id, b.id)
		})
		return
	}
	s.byPrefix()
	all = s.list
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && all[to].prefix == all[from].prefix {
			to++
		}
		if to-from > 1 {
			slices.SortStableFunc(all[from:to], func(a, b sortedID) int { return compare(a.id, b.id) })
		}
		from = to
	}
}

// byPrefix is a radix sort from the last byte of the prefix to the first, over those that
// differ at all.
func (s *sorter) byPrefix() {
	from := s.list
	differ := uint64(0)
	for i := range from {
		differ |= from[i].prefix ^ from[0].prefix
	}
	if cap(s.scratch) < len(from) {
		s.scratch = make([]sortedID, cap(from))
	}
	to := s.scratch[:len(from)]
	for shift := 0; shift < 64; shift += 8 {
		if differ>>shift&0xFF == 0 {
			continue
		}
		var starts [256]int
		for i := range from {
			starts[byte(from[i].prefix>>shift)]++
		}
		at := 0
		for digit, n := range starts {
			starts[digit] = at
			at += n
		}
		for i := range from {
			digit := byte(from[i].prefix >> shift)
			to[starts[digit]] = from[i]
			starts[digit]++
		}
		from, to = to, from
	}
	s.list, s.scratch = from, to
}

// keyPrefix is the first 8 bytes of key as a number; short keys end in zeros.
func keyPrefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}
