package aggregate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/thalweg/thalweg/topic/codec"
)

// MaxTop is the most that a Ranking keeps.
const MaxTop = 10_000

// Top keeps the n values with the highest scores, 1 to MaxTop: score and key of each. Of
// those with the same score the lower key comes first. A key has one place, by the highest
// of its scores: scores that fall need a table instead, and a Ranking of its final rows.
//
// Any other n is a fault of the program: the first value that is added ends the job with it.
func Top[V any, K, S cmp.Ordered](n int, key func(V) K, score func(V) S) func(Ranking[K, S], V) Ranking[K, S] {
	return func(r Ranking[K, S], v V) Ranking[K, S] { return r.Add(n, key(v), score(v)) }
}

// Ranking is the highest scores among those added, with their keys. It does not change:
// Add and Merge return another.
type Ranking[K, S cmp.Ordered] struct {
	n      int            // the most it keeps; 0 where nothing was added
	places []Ranked[K, S] // by rank, each key once
}

// Ranked is a place in a Ranking.
type Ranked[K, S cmp.Ordered] struct {
	Key   K
	Score S
}

func compareRanks[K, S cmp.Ordered](a, b Ranked[K, S]) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Key, b.Key))
}

// Add takes in a key and its score, and keeps the first n.
func (r Ranking[K, S]) Add(n int, key K, score S) Ranking[K, S] {
	if n < 1 || n > MaxTop {
		panic(fmt.Sprintf("aggregate: a ranking of %d places; take 1 to %d", n, MaxTop))
	}
	r.n = n
	if len(r.places) > n {
		r.places = r.places[:n:n]
	}
	return r.with(Ranked[K, S]{key, score})
}

// with takes in one more place.
func (r Ranking[K, S]) with(p Ranked[K, S]) Ranking[K, S] {
	to, there := slices.BinarySearchFunc(r.places, p, compareRanks)
	if there || to >= r.n {
		return r
	}
	from := slices.IndexFunc(r.places, func(o Ranked[K, S]) bool { return cmp.Compare(o.Key, p.Key) == 0 })
	if from >= 0 && from < to {
		return r // higher already
	}
	end := len(r.places)
	if from < 0 {
		from = min(end, r.n-1) // the last one goes where there are n
	}
	places := make([]Ranked[K, S], 0, end+1)
	places = append(append(places, r.places[:to]...), p)
	places = append(places, r.places[to:from]...)
	if from < end {
		places = append(places, r.places[from+1:]...)
	}
	r.places = places
	return r
}

// Merge takes in all that o has. Where the two do not keep as many, the smaller number
// counts.
func (r Ranking[K, S]) Merge(o Ranking[K, S]) Ranking[K, S] {
	switch {
	case o.n == 0:
		return r
	case r.n == 0:
		return o
	}
	if r.n = min(r.n, o.n); len(r.places) > r.n {
		r.places = r.places[:r.n:r.n]
	}
	for _, p := range o.places {
		r = r.with(p)
	}
	return r
}

// Len is how many places are taken.
func (r Ranking[K, S]) Len() int { return len(r.places) }

// All walks the places from the first, with their rank, which begins at 1.
func (r Ranking[K, S]) All() iter.Seq2[int, Ranked[K, S]] {
	return func(yield func(int, Ranked[K, S]) bool) {
		for i, p := range r.places {
			if !yield(i+1, p) {
				return
			}
		}
	}
}

// Codec makes Ranking a codec.Provider.
func (Ranking[K, S]) Codec(r *codec.Registry) (codec.Codec[Ranking[K, S]], error) {
	keys, err := r.Of[K]()
	if err != nil {
		return nil, err
	}
	scores, err := r.Of[S]()
	if err != nil {
		return nil, err
	}
	return newCodec(formatRanking, func(dst []byte, r Ranking[K, S]) (_ []byte, err error) {
		dst = binary.AppendUvarint(dst, uint64(r.n))
		var buf []byte
		for _, p := range r.places {
			if dst, buf, err = appendSized(dst, buf, keys, p.Key); err != nil {
				return dst, err
			}
			if dst, buf, err = appendSized(dst, buf, scores, p.Score); err != nil {
				return dst, err
			}
		}
		return dst, nil
	}, func(in *reader) (r Ranking[K, S], err error) {
		n := in.uvarint()
		if n > MaxTop {
			return r, errDamaged
		}
		r.n = int(n)
		for len(in.rest) > 0 {
			var p Ranked[K, S]
			key := in.bytes(in.uvarint())
			score := in.bytes(in.uvarint())
			if in.bad || len(r.places) == r.n {
				return r, errDamaged
			}
			if p.Key, err = keys.Decode(key); err != nil {
				return r, err
			}
			if p.Score, err = scores.Decode(score); err != nil {
				return r, err
			}
			if last := len(r.places) - 1; last >= 0 && compareRanks(r.places[last], p) >= 0 {
				return r, errDamaged
			}
			r.places = append(r.places, p)
		}
		return r, r.eachOnce()
	}, nil), nil
}

// eachOnce is an error where a key has two places.
func (r Ranking[K, S]) eachOnce() error {
	keys := make([]K, len(r.places))
	for i, p := range r.places {
		keys[i] = p.Key
	}
	slices.Sort(keys)
	for i := 1; i < len(keys); i++ {
		if cmp.Compare(keys[i-1], keys[i]) == 0 {
			return errDamaged
		}
	}
	return nil
}
