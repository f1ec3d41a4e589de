package stream

import (
	"encoding/binary"
	"errors"
	"iter"
	"math"
	"slices"

	"github.com/thalweg/thalweg/topic/codec"
)

// pile is the rows of one key in one span of time, by time, and in the order they came
// where that is the same.
type pile[V any] struct{ rows []piled[V] }

// piled is a row in a pile.
type piled[V any] struct {
	time    int64
	matched bool // it has had a match, where that is kept
	value   V
}

// add puts a row in its place.
func (p *pile[V]) add(r piled[V]) {
	i := len(p.rows)
	for i > 0 && p.rows[i-1].time > r.time {
		i--
	}
	p.rows = slices.Insert(p.rows, i, r)
}

// pileOf is the start of the pile that holds t, where piles begin at the multiples of size. The
// first of all begins with time.
func pileOf(t, size int64) int64 {
	into := t % size
	if into < 0 {
		into += size
	}
	if t < math.MinInt64+into {
		return math.MinInt64
	}
	return t - into
}

// pilesIn are the starts of the piles that hold the times in [from, to].
func pilesIn(from, to, size int64) iter.Seq[int64] {
	return func(yield func(start int64) bool) {
		for start := pileOf(from, size); start <= to && yield(start) && start <= math.MaxInt64-size; {
			start = pileOf(start+size, size)
		}
	}
}

// pileCodec is the encoding of a pile in stores and changelogs. For each row:
//
//	varint   event time, ms since the epoch, less that of the row before
//	uvarint  twice the length of the value, plus one for a row that has had a match
//	rest     the value, in its own codec
type pileCodec[V any] struct {
	value codec.Codec[V]
	layout
}

var errPile = errors.New("stream: damaged rows in the state of a join")

func (c pileCodec[V]) Append(dst []byte, p pile[V]) ([]byte, error) {
	var value []byte
	before := int64(0)
	for _, r := range p.rows {
		var err error
		if value, err = c.value.Append(value[:0], r.value); err != nil {
			return dst, err
		}
		dst = binary.AppendVarint(dst, r.time-before)
		before = r.time
		size := uint64(len(value)) << 1
		if r.matched {
			size |= 1
		}
		dst = append(binary.AppendUvarint(dst, size), value...)
	}
	return dst, nil
}

func (c pileCodec[V]) Decode(src []byte) (p pile[V], err error) {
	time := int64(0)
	for len(src) > 0 {
		delta, n := binary.Varint(src)
		if n <= 0 {
			return p, errPile
		}
		src = src[n:]
		size, n := binary.Uvarint(src)
		if n <= 0 || size>>1 > uint64(len(src)-n) {
			return p, errPile
		}
		end := n + int(size>>1)
		time += delta
		r := piled[V]{time: time, matched: size&1 != 0}
		if r.value, err = c.value.Decode(src[n:end]); err != nil {
			return p, err
		}
		p.rows = append(p.rows, r)
		src = src[end:]
	}
	return p, nil
}
