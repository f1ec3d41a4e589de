package stream

import (
	"fmt"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/window"
)

// Join pairs each record of s with every record of other that has the same key and a
// time that w matches with its own, and gives what f makes of the two values.
//
// A pair comes out when its second record comes in, with the later of the two times. A
// record is kept while a match may come that is not late; see window.Join. One that
// comes when it would be closed already is late: it changes nothing, goes to LateFor, and
// is counted where nothing reads that. A record without a key is skipped and counted,
// as is one without a value.
//
// The records of a key come together in one task. Topics that are spread alike by the key,
// with the same number of partitions, are read as they are; a stream with another key is
// shuffled first.
func (s Stream[K, V]) Join[V2, R any](other Stream[K, V2], w window.Join, f func(V, V2) R) Stream[K, R] {
	return joinStreams(s, other, "join", w, f == nil, [2]bool{}, func(v *V, v2 *V2) R { return f(*v, *v2) })
}

// LeftJoin is Join, and each record of s without a match comes out once too, with its own
// time, when it is certain that none comes: once the watermark closes it. ok tells whether
// there is a match; v2 is the zero value where there is none. A record of s without a key
// matches nothing and comes out at once.
func (s Stream[K, V]) LeftJoin[V2, R any](other Stream[K, V2], w window.Join, f func(v V, v2 V2, ok bool) R) Stream[K, R] {
	return joinStreams(s, other, "left join", w, f == nil, [2]bool{true}, func(v *V, v2 *V2) R {
		if v2 == nil {
			var none V2
			return f(*v, none, false)
		}
		return f(*v, *v2, true)
	})
}

// OuterJoin is LeftJoin for both sides: a record of other without a match comes out too.
// okLeft and okRight tell which of the two there is.
func (s Stream[K, V]) OuterJoin[V2, R any](other Stream[K, V2], w window.Join, f func(v V, okLeft bool, v2 V2, okRight bool) R) Stream[K, R] {
	return joinStreams(s, other, "outer join", w, f == nil, [2]bool{true, true}, func(v *V, v2 *V2) R {
		var left V
		var right V2
		if v != nil {
			left = *v
		}
		if v2 != nil {
			right = *v2
		}
		return f(left, v != nil, right, v2 != nil)
	})
}

// LateFor gives the records of s that come too late for a join, which joined is the result of,
// as they came: a join with another stream, or with a table that has a History.
func (s Stream[K, V]) LateFor[R any](joined Stream[K, R]) Stream[K, V] {
	step := s.n.step.app.declare("late", joined.n.step)
	out := &node[K, V]{step: step}
	for _, side := range joined.n.step.sides {
		if side, ok := side.(*joinSide[K, V]); ok && side.of == s.n.step {
			side.late = append(side.late, out)
			return Stream[K, V]{out}
		}
	}
	step.fault("LateFor needs the result of a Join, LeftJoin or OuterJoin of this very stream with another, or of a JoinTable or LeftJoinTable of it")
	return Stream[K, V]{out}
}

// joinSide is one input of a join as declared.
type joinSide[K, V any] struct {
	of     *step // the stream joined
	g      *grouping[K, V]
	store  *storeDecl
	rows   pileCodec[V]
	pileMs int64
	late   []*node[K, V] // what reads its late records
}

// openLate opens what reads the late records of the side.
func (d *joinSide[K, V]) openLate(o *opening) port[K, V] {
	ports := make([]port[K, V], len(d.late))
	for i, late := range d.late {
		ports[i] = late.open(o)
	}
	return fanOut(ports)
}

// declareSide groups a side of the join step that is about to be declared.
func declareSide[K, V any](s Stream[K, V], side string) *joinSide[K, V] {
	by := s.n.step.app.declare("group by key", s.n.step)
	by.needsKey, by.side = true, "-"+side
	g := group(s, by, true, func(k K, _ *V) K { return k }).g
	g.joins, g.keepValue = true, true
	return &joinSide[K, V]{of: s.n.step, g: g}
}

// keep declares the side's store. Its rows are kept in piles that are dropped as a whole,
// of such a span of time that those that match one record are in two or three.
func (d *joinSide[K, V]) keep(s *step, side string, w window.Join) {
	from, to := w.Rights(0)
	d.pileMs = max(to-from, 1)
	value, l := layoutOf[K, V](s, fmt.Sprintf("%s rows in piles of %d ms, ", side, d.pileMs))
	d.store, d.rows = s.keep(side).keysBehind(windowBytes), pileCodec[V]{value, l}
}

func joinStreams[K, V, V2, R any](s Stream[K, V], other Stream[K, V2], kind string, w window.Join, missing bool,
	keep [2]bool, pair func(*V, *V2) R) Stream[K, R] {
	left, right := declareSide(s, "left"), declareSide(other, "right")
	st := s.n.step.app.declare(kind, left.g.step, right.g.step)
	out := &node[K, R]{step: st}
	requireFunc(st, missing)
	guards[K, Pair[V, V2]](st)
	st.again = pairsAgain[K](st.app, pair)
	st.joint, st.sides = true, []any{left, right}
	left.g.keyless, right.g.keyless = keep[0], keep[1]
	if err := w.Err(); err != nil {
		st.fault(err.Error())
		return Stream[K, R]{out}
	}
	left.keep(st, "left", w)
	right.keep(st, "right", w)
	var unmatched *storeDecl
	if keep != [2]bool{} {
		unmatched = st.keep("unmatched").keysBehind(timerBytes)
	}
	open := func(o *opening) *joining[K, V, V2, R] {
		j, ok := o.opened[st.id].(*joining[K, V, V2, R])
		if !ok {
			j = &joining[K, V, V2, R]{t: o.task, step: st.id, key: left.g.key, spec: w, w: window.Unknown, own: engine.Meta{Offset: -1}}
			o.opened[st.id] = j
			j.down = out.open(o)
			j.pair = openPairs[K](o, st, pair)
			j.openTimers(o, unmatched)
			j.left = openSide(o, st, left, keep[0], w.LeftClosesAt, w.Rights)
			j.right = openSide(o, st, right, keep[1], w.RightClosesAt, w.Lefts)
			j.time = openInputs(o, st, 2, j.advance, j.down.Idle)
		}
		return j
	}
	left.g.downs = append(left.g.downs, func(o *opening) engine.KeyedPort[V] {
		j := open(o)
		return engine.KeyedPort[V]{Push: j.pushLeft, Watermark: j.time.watermark(0), Idle: j.time.idle(0)}
	})
	right.g.downs = append(right.g.downs, func(o *opening) engine.KeyedPort[V2] {
		j := open(o)
		return engine.KeyedPort[V2]{Push: j.pushRight, Watermark: j.time.watermark(1), Idle: j.time.idle(1)}
	})
	return Stream[K, R]{out}
}
