package stream

import (
	"errors"
	"fmt"
	"slices"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// Cogrouped is several grouped streams with keys of one type, whose records change one
// aggregate, each in its own way:
//
//	app.Stream(orders).GroupBy(Order.Customer).Cogroup(Profile.Ordered).
//		With(app.Stream(visits).GroupByKey(), Profile.Visited).
//		Aggregate().To(profiles)
//
// Records of the streams are taken in the order of event time, as far as they are there.
type Cogrouped[K, A any] struct {
	app    *Topology
	key    codec.Codec[K]
	emit   window.Emit
	inputs []coinput[K, A]
}

// coinput is one of the grouped streams.
type coinput[K, A any] struct {
	by *step
	// read makes the stream change the aggregate: what it adds goes into the port that open
	// gives.
	read func(open func(o *opening) engine.KeyedPort[addition[A]])
}

// addition is one record on its way into the aggregate. It is valid during the call.
type addition[A any] struct {
	to     func(a *A)
	encode func(dst []byte) ([]byte, error) // the record's value
}

// Codec writes the record's value as it is, into a dead letter.
func (addition[A]) Codec(*codec.Registry) (codec.Codec[addition[A]], error) {
	return codec.Func(
		func(dst []byte, a addition[A]) ([]byte, error) { return a.encode(dst) },
		func([]byte) (a addition[A], err error) { return a, errAddition }), nil
}

var errAddition = errors.New("stream: a value of one of several streams does not tell of which it is")

// Cogroup makes the records of g change an A, which begins as its zero value, by add; With
// adds further streams.
func (g Grouped[K, V]) Cogroup[A any](add func(A, V) A) Cogrouped[K, A] {
	c := Cogrouped[K, A]{app: g.g.step.app, key: g.g.key, emit: g.emit}
	return c.With(g, add)
}

// With makes the records of g change the same aggregates, by add.
func (c Cogrouped[K, A]) With[V any](g Grouped[K, V], add func(A, V) A) Cogrouped[K, A] {
	by := g.g
	if add == nil {
		by.step.fault("Cogroup and With need a function, not nil")
	}
	c.inputs = append(slices.Clip(c.inputs), coinput[K, A]{by.step, func(open func(o *opening) engine.KeyedPort[addition[A]]) {
		by.joins, by.keepValue = true, true
		by.downs = append(by.downs, func(o *opening) engine.KeyedPort[V] {
			down := open(o)
			values, err := by.step.app.codecs.Of[V]()
			var record *V // the addition is made once
			a := addition[A]{
				to: func(a *A) { *a = add(*a, *record) },
				encode: func(dst []byte) ([]byte, error) {
					if err != nil {
						return dst, err
					}
					return values.Append(dst, *record)
				},
			}
			return engine.KeyedPort[V]{Watermark: down.Watermark, Idle: down.Idle, Touch: down.Touch,
				Push: func(m *engine.Meta, hash uint64, key []byte, v *V) {
					record = v
					down.Push(m, hash, key, &a)
				}}
		})
	}})
	return c
}

// Emit sets when the aggregation emits; see Grouped.Emit and Windowed.Emit.
func (c Cogrouped[K, A]) Emit(e window.Emit) Cogrouped[K, A] {
	requireWindowEmit(c.app, e)
	c.emit = e
	return c
}

// Aggregate gives the aggregate of each key.
func (c Cogrouped[K, A]) Aggregate() Table[K, A] {
	g := c.join()
	requireEmit(c.app, c.emit)
	return Table[K, A]{aggregate(g, g.step, c.emit, fold[A, addition[A]](addTo[A]))}
}

// AggregateWindow gives the aggregate of each key and window; see Windowed.
func (c Cogrouped[K, A]) AggregateWindow[WK window.KeyOf[K]](spec window.Spec) Table[WK, A] {
	g := c.join()
	if spec.IsSliding() {
		g.step.fault("sliding windows keep the records themselves, which several streams cannot: take windows of another kind")
	}
	w := Grouped[K, addition[A]]{g: g}.Window(spec).Emit(c.emit)
	return Table[WK, A]{aggregateWindows[K, addition[A], WK, A](w, g.step, addTo[A])}
}

// AggregateSession gives the aggregate of each key and session; see SessionWindowed.
func (c Cogrouped[K, A]) AggregateSession[WK window.KeyOf[K]](spec window.Session, merge func(A, A) A) Table[WK, A] {
	g := c.join()
	requireFunc(g.step, merge == nil)
	w := Grouped[K, addition[A]]{g: g}.Session(spec).Emit(c.emit)
	return Table[WK, A]{aggregateSessions[K, addition[A], WK, A](w, g.step, addTo[A], merge)}
}

func addTo[A any](a *A, _ bool, record *addition[A]) { record.to(a) }

// join declares the step, in which the records of all streams meet, and returns what it is
// behind: a grouping that has them all.
func (c Cogrouped[K, A]) join() *grouping[K, addition[A]] {
	var by []*step
	for i, in := range c.inputs {
		by = append(by, in.by)
		if in.by.side == "" && len(c.inputs) > 1 {
			in.by.side = fmt.Sprintf("-%d", i+1)
		}
	}
	st := c.app.declare("cogroup", by...)
	st.joint = true
	g := &grouping[K, addition[A]]{step: st, ownKey: true, key: c.key}
	type cogrouping struct { // in one task
		down engine.KeyedPort[addition[A]]
		time *inputTimes
	}
	open := func(o *opening) *cogrouping {
		j, ok := o.opened[st.id].(*cogrouping)
		if !ok {
			down := g.open(o)
			j = &cogrouping{down, openInputs(o, st, len(c.inputs), down.Watermark, down.Idle)}
			o.opened[st.id] = j
		}
		return j
	}
	for i, in := range c.inputs {
		in.read(func(o *opening) engine.KeyedPort[addition[A]] {
			j := open(o)
			return engine.KeyedPort[addition[A]]{Push: j.down.Push, Touch: j.down.Touch, Watermark: j.time.watermark(i), Idle: j.time.idle(i)}
		})
	}
	return g
}
