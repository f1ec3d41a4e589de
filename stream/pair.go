package stream

import (
	"encoding/binary"
	"errors"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// Pair is the dead letter of a join: what its function has failed for. The key is that of the result. HeaderTopic,
// HeaderPartition, HeaderOffset and the headers of the record are those of the one that came last, as far as
// there is one that a single record of a topic led to; HeaderTime is the time that the result would have.
//
// Stream.Replay has a join of streams try its pairs again. For a join of tables the row of one side has to
// come again, after which the result is what the two rows then make:
//
//	letters := app.Replay[string, stream.Pair[Order, Customer]](dead, "enriched")
//	orders := app.Stream(changes).Merge(letters.Map(func(p stream.Pair[Order, Customer]) Order { return p.Left })).ToTable()
//
// A letter tells what the row was when the join failed: look whether the row is still that where it changes
// often. A row of which a join on a foreign key cannot tell that key is no pair: its letter is the row, and names the
// step with "-by" behind it.
type Pair[A, B any] struct {
	Left     A
	Right    B
	HasLeft  bool // false where an outer join has no left one
	HasRight bool // false where a left or outer join has no right one
}

// pairOf is the pair of two values, of which there may be only one.
func pairOf[A, B any](a *A, b *B) (p Pair[A, B]) {
	p.Left, p.HasLeft = valueOf(a)
	p.Right, p.HasRight = valueOf(b)
	return p
}

// The encoding of a Pair, in dead letters:
//
//	1 byte   flags: 1 there is a left value, 2 there is a right one
//	4 bytes  length of the left value, big-endian; with both only
//	         the left value, in its own codec, with flag 1 only
//	rest     the right value, in its own codec, with flag 2 only
const (
	pairLeft  = 1
	pairRight = 2
	pairBoth  = pairLeft | pairRight

	pairHeader = 5 // flags and length
)

var errPair = errors.New("stream: damaged pair in a dead letter")

// Codec makes Pair a codec.Provider: the two values as r has them.
func (Pair[A, B]) Codec(r *codec.Registry) (codec.Codec[Pair[A, B]], error) {
	left, err := r.Of[A]()
	if err != nil {
		return nil, err
	}
	right, err := r.Of[B]()
	if err != nil {
		return nil, err
	}
	return codec.Func(
		func(dst []byte, p Pair[A, B]) (_ []byte, err error) {
			begin := len(dst)
			dst = append(dst, 0)
			if p.HasLeft && p.HasRight {
				dst = append(dst, 0, 0, 0, 0)
			}
			value := len(dst)
			if p.HasLeft {
				dst[begin] |= pairLeft
				if dst, err = left.Append(dst, p.Left); err != nil {
					return dst, err
				}
			}
			if p.HasRight {
				if dst[begin] |= pairRight; p.HasLeft {
					binary.BigEndian.PutUint32(dst[begin+1:], uint32(len(dst)-value))
				}
				dst, err = right.Append(dst, p.Right)
			}
			return dst, err
		},
		func(src []byte) (p Pair[A, B], err error) {
			l, r, flags, err := splitPair(src)
			p.HasLeft, p.HasRight = flags&pairLeft != 0, flags&pairRight != 0
			if err == nil && p.HasLeft {
				p.Left, err = left.Decode(l)
			}
			if err == nil && p.HasRight {
				p.Right, err = right.Decode(r)
			}
			return p, err
		}), nil
}

// splitPair finds the encodings of the two values.
func splitPair(src []byte) (left, right []byte, flags byte, err error) {
	if len(src) == 0 {
		return nil, nil, 0, errPair
	}
	switch flags = src[0]; flags {
	case pairLeft:
		return src[1:], nil, flags, nil
	case pairRight:
		return nil, src[1:], flags, nil
	case pairBoth:
		if len(src) < pairHeader {
			return nil, nil, 0, errPair
		}
		n := binary.BigEndian.Uint32(src[1:])
		if rest := src[pairHeader:]; uint64(n) <= uint64(len(rest)) {
			return rest[:n], rest[n:], flags, nil
		}
	}
	return nil, nil, 0, errPair
}

// pairs is the function of a join as one task calls it, under the step's policy where it has one.
type pairs[K, A, B, R any] struct {
	// made is for a pair that comes to be: own is of the result, and came of what led to it, nil where that is
	// no record.
	made func(own, came *engine.Meta, k K, a *A, b *B) (R, bool)

	// looked is for one that was, or is looked up.
	looked func(a *A, b *B) (R, bool)
}

// openPairs opens the function of the join s.
func openPairs[K, A, B, R any](o *opening, s *step, pair func(*A, *B) R) pairs[K, A, B, R] {
	g := openGuard[K, Pair[A, B]](o, s)
	if g == nil {
		t, id := o.task, s.id
		looked := func(a *A, b *B) (R, bool) {
			t.Running = id
			return pair(a, b), true
		}
		return pairs[K, A, B, R]{looked: looked, made: func(_, _ *engine.Meta, _ K, a *A, b *B) (R, bool) { return looked(a, b) }}
	}
	var (
		key   K
		left  *A
		right *B
		r     R
	)
	attempt := func() error {
		r = pair(left, right)
		return nil
	}
	keyOf := func() (K, error) { return key, nil }
	return pairs[K, A, B, R]{
		made: func(own, came *engine.Meta, k K, a *A, b *B) (R, bool) {
			key, left, right = k, a, b
			ok, cause := g.calls.try(attempt, nil)
			if cause != nil {
				g.giveUpPair(own, came, keyOf, pairOf(a, b), cause)
			}
			return r, ok
		},
		looked: func(a *A, b *B) (R, bool) {
			left, right = a, b
			ok := g.calls.quietly(attempt)
			return r, ok
		},
	}
}

// giveUpPair deals with a pair for which the function has failed for good.
func (g *guard[K, V]) giveUpPair(own, came *engine.Meta, key func() (K, error), p V, cause error) {
	m := *own
	if came != nil {
		m.Offset, m.Origin = came.Offset, came.Origin
		m.CopyHeaders(came)
	}
	g.giveUp(&m, key, &p, cause)
}

// Replay has the join of streams that made s try the pairs of its dead letters again, and gives what it makes
// of them, under the join's error policy: a pair that fails again is a new letter, for the next start.
//
//	joined := impressions.LeftJoin(clicks, window.Within(time.Minute), outcome).As("outcomes").OnError(stream.DeadLetter(dead))
//	joined.Merge(joined.Replay(dead)).To(outcomes)
//
// Each pair is tried once, and no other comes of it: what the two records have made with others is not made
// again, and none is late. The result has the time it would have had, so that it is late for windows that have
// closed. What is said of Topology.Replay holds here, too.
func (s Stream[K, R]) Replay(dead topic.Topic[[]byte, []byte]) Stream[K, R] {
	join := s.n.step
	n := declareReplay[K, R](join.app, dead)
	again, ok := join.again.(func() (decoder[K, R], error))
	if !ok {
		n.step.fault("Replay of a stream needs the result of a Join, LeftJoin or OuterJoin with another stream: of other steps Topology.Replay brings the dead letters back")
		return Stream[K, R]{n}
	}
	n.step.policyOf = join
	openReplay(n, join.label, again)
	return Stream[K, R]{n}
}

// pairsAgain makes results of the dead letters of a join.
func pairsAgain[K, A, B, R any](app *Topology, pair func(*A, *B) R) func() (decoder[K, R], error) {
	return func() (decoder[K, R], error) {
		keys, err := app.codecs.Of[K]()
		if err != nil {
			return nil, err
		}
		values, err := app.codecs.Of[Pair[A, B]]()
		if err != nil {
			return nil, err
		}
		decode := decodeBoth(keys, values)
		return func(key, value []byte) (k K, r R, err error) {
			k, p, err := decode(key, value)
			if err == nil {
				r = pair(ifAny(&p.Left, p.HasLeft), ifAny(&p.Right, p.HasRight))
			}
			return k, r, err
		}, nil
	}
}
