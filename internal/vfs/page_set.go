package vfs

import (
	"iter"
	"math/bits"
)

// pageSet is a set of page numbers. The zero value is empty.
type pageSet []uint64

func (s *pageSet) add(page int64) {
	word := int(page / 64)
	if word >= len(*s) {
		*s = append(*s, make([]uint64, word+1-len(*s))...)
	}
	(*s)[word] |= 1 << (page % 64)
}

func (s pageSet) has(page int64) bool {
	word := int(page / 64)
	return word < len(s) && s[word]&(1<<(page%64)) != 0
}

func (s pageSet) remove(page int64) {
	if word := int(page / 64); word < len(s) {
		s[word] &^= 1 << (page % 64)
	}
}

// removeFrom takes page and all above it out.
func (s pageSet) removeFrom(page int64) {
	word := int(page / 64)
	if word >= len(s) {
		return
	}
	s[word] &= 1<<(page%64) - 1
	clear(s[word+1:])
}

func (s pageSet) len() int64 {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return int64(n)
}

// end is the page after the last one.
func (s pageSet) end() int64 {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != 0 {
			return int64(i)*64 + int64(bits.Len64(s[i]))
		}
	}
	return 0
}

// all walks the pages in order. The set may shrink meanwhile.
func (s pageSet) all() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for i := range s {
			for word := s[i]; word != 0; word &= word - 1 {
				if !yield(int64(i)*64 + int64(bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}

// union walks the pages of s and of t in order, each once.
func (s pageSet) union(t pageSet) iter.Seq[int64] {
	both := make(pageSet, max(len(s), len(t)))
	copy(both, s)
	for i, word := range t {
		both[i] |= word
	}
	return both.all()
}
