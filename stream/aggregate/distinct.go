package aggregate

import (
	"bytes"
	"iter"
	"maps"
	"slices"

	"github.com/thalweg/thalweg/topic/codec"
)

// Distinct keeps each of what of makes of the values once. It holds them all; see
// ApproxDistinct where only their number is asked for and may be large.
func Distinct[V any, T comparable](of func(V) T) func(Set[T], V) Set[T] {
	return func(s Set[T], v V) Set[T] { return s.Add(of(v)) }
}

// Set is the values added, each once by ==. A NaN is never the same as another, and so a
// new value each time. Add and Merge change the set they are called on.
type Set[T comparable] struct{ values map[T]struct{} }

// Add takes one more value in.
func (s Set[T]) Add(v T) Set[T] {
	if s.values == nil {
		s.values = make(map[T]struct{})
	}
	s.values[v] = struct{}{}
	return s
}

// Merge takes in all that o has.
func (s Set[T]) Merge(o Set[T]) Set[T] {
	if s.values == nil {
		s.values = make(map[T]struct{}, len(o.values))
	}
	maps.Copy(s.values, o.values)
	return s
}

// Len is how many values there are.
func (s Set[T]) Len() int { return len(s.values) }

// Has tells whether v is one of them.
func (s Set[T]) Has(v T) bool {
	_, ok := s.values[v]
	return ok
}

// All walks the values in no particular order.
func (s Set[T]) All() iter.Seq[T] { return maps.Keys(s.values) }

// Codec makes Set a codec.Provider.
func (Set[T]) Codec(r *codec.Registry) (codec.Codec[Set[T]], error) {
	value, err := r.Of[T]()
	if err != nil {
		return nil, err
	}
	return newCodec(formatSet, func(dst []byte, s Set[T]) (_ []byte, err error) {
		var all []byte
		ends := make([]int, 1, len(s.values)+1)
		for v := range s.values {
			if all, err = value.Append(all, v); err != nil {
				return dst, err
			}
			ends = append(ends, len(all))
		}
		encoded := make([][]byte, len(s.values))
		for i := range encoded {
			encoded[i] = all[ends[i]:ends[i+1]]
		}
		slices.SortFunc(encoded, bytes.Compare)
		for _, e := range encoded {
			dst = appendBytes(dst, e)
		}
		return dst, nil
	}, func(r *reader) (s Set[T], err error) {
		var before []byte
		for n := 0; len(r.rest) > 0; n++ {
			b := r.bytes(r.uvarint())
			if r.bad || n > 0 && bytes.Compare(before, b) > 0 {
				return s, errDamaged
			}
			v, err := value.Decode(b)
			if err != nil {
				return s, err
			}
			if s = s.Add(v); s.Len() != n+1 {
				return s, errDamaged
			}
			before = b
		}
		return s, nil
	}, value), nil
}
