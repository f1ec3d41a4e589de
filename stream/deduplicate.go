package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/window"
)

// Deduplicate passes on the first record of each key, as it came and at once. One that
// comes after it with the same key and a time at most within from its time, before or
// behind, is a duplicate: it is dropped, and counted in TaskStatus.Duplicates. A record
// further away is a first one again. within is of whole milliseconds; with zero only
// records of the same time are duplicates.
//
// A record more than within behind the watermark is late: of what it might repeat some
// is forgotten. It goes to LateFor, and is counted where nothing reads that.
//
// The key and the time of a first record are kept until the watermark is twice within
// past it, and then for up to twice within more, since they are forgotten many at a time.
func (g Grouped[K, V]) Deduplicate[_ lazily[V]](within time.Duration) Stream[K, V] {
	s := g.g.behind("deduplicate", true)
	out := &node[K, V]{step: s}
	d := &deduplication[K, V]{g: g.g, spec: window.Within(within)}
	s.sides = []any{d}
	if within < 0 || within%time.Millisecond != 0 {
		s.fault(fmt.Sprintf("duplicates within %v; take whole milliseconds, zero or more", within))
		return Stream[K, V]{out}
	}
	d.pileMs = 2*within.Milliseconds() + 1
	coded := firstsCodec{layout{text: fmt.Sprintf("times of first records in piles of %d ms, key %s", d.pileMs, plainName(reflect.TypeFor[K]()))}}
	kept := s.keep("").keysBehind(windowBytes)
	g.g.downs = append(g.g.downs, func(o *opening) engine.KeyedPort[V] {
		store := o.openStore(kept)
		if store == nil {
			return engine.KeyedPort[V]{}
		}
		t := &deduplicating[K, V]{deduplication: d, t: o.task, step: s.id, w: window.Unknown,
			table: state.NewWindowTable[firsts](store.Store, coded), down: out.open(o), countLate: len(d.late) == 0}
		store.SetTable(t.table)
		ports := make([]port[K, V], len(d.late))
		for i, late := range d.late {
			ports[i] = late.open(o)
		}
		t.late = fanOut(ports)
		both := fanOut([]port[K, V]{t.down, t.late})
		return engine.KeyedPort[V]{Push: t.push, Idle: both.Idle, Watermark: func(w int64) {
			t.advance(w)
			if both.Watermark != nil {
				both.Watermark(w)
			}
		}}
	})
	return Stream[K, V]{out}
}

// LateFor gives the records that come too late for a Deduplicate of this very group, which
// unique is the result of, as they came.
func (g Grouped[K, V]) LateFor[_ lazily[V]](unique Stream[K, V]) Stream[K, V] {
	step := g.g.step.app.declare("late", unique.n.step)
	out := &node[K, V]{step: step}
	for _, side := range unique.n.step.sides {
		if d, ok := side.(*deduplication[K, V]); ok && d.g == g.g {
			d.late = append(d.late, out)
			return Stream[K, V]{out}
		}
	}
	step.fault("LateFor needs the result of a Deduplicate of this very group")
	return Stream[K, V]{out}
}

// deduplication is a Deduplicate as declared.
type deduplication[K, V any] struct {
	g      *grouping[K, V]
	spec   window.Join // a record and its duplicates
	pileMs int64       // first records are kept, and forgotten, by piles of such a span of time
	late   []*node[K, V]
}

// deduplicating is a deduplication in one task.
type deduplicating[K, V any] struct {
	*deduplication[K, V]
	t         *engine.Task
	step      int
	table     *state.WindowTable[firsts] // by the start of the pile, and key
	w         int64                      // the watermark
	down      port[K, V]
	late      port[K, V]
	countLate bool
}

func (d *deduplicating[K, V]) push(m *engine.Meta, hash uint64, key []byte, v *V) {
	if m.TooFar || d.spec.LeftClosed(m.Time, d.w) {
		if d.countLate {
			d.t.Counters().Late++
		} else {
			d.pass(d.late, m, key, v)
		}
		return
	}
	// The piles that reach from one end of the span to the other are two at most.
	from, to := d.spec.Rights(m.Time)
	for start := range pilesIn(from, to, d.pileMs) {
		f, ok, err := d.table.Get(start, hash, key)
		if err != nil {
			d.t.Fail(d.step, err)
			return
		}
		if ok && f.within(from, to) {
			d.t.Counters().Duplicates++
			return
		}
	}
	f, _, err := d.table.Update(pileOf(m.Time, d.pileMs), hash, key)
	if err != nil {
		d.t.Fail(d.step, err)
		return
	}
	f.add(m.Time)
	d.pass(d.down, m, key, v)
}

func (d *deduplicating[K, V]) pass(to port[K, V], m *engine.Meta, key []byte, v *V) {
	k, err := d.g.key.Decode(key)
	if err != nil {
		d.t.Fail(d.step, fmt.Errorf("decode key: %w", err))
		return
	}
	to.Push(m, k, v)
}

// advance moves the watermark to w. A pile is forgotten when all that might repeat the
// last in it would be late.
func (d *deduplicating[K, V]) advance(w int64) {
	d.w = w
	for !d.t.Failed() {
		start, ok := d.table.Oldest()
		if !ok {
			return
		}
		_, last := d.spec.Rights(plus(start, d.pileMs-1))
		if !d.spec.LeftClosed(last, w) {
			return
		}
		d.t.Fail(d.step, d.table.CloseWindow(start, func([]byte, *firsts) error { return nil }))
	}
}

// firsts are the times of the first records of one key in one pile. They are further apart
// than half of what the pile spans, and so two at most.
type firsts struct {
	times [2]int64
	n     int
}

func (f *firsts) within(from, to int64) bool {
	for _, t := range f.times[:f.n] {
		if from <= t && t <= to {
			return true
		}
	}
	return false
}

func (f *firsts) add(t int64) {
	f.times[f.n] = t
	f.n++
}

// firstsCodec is the encoding of firsts in stores and changelogs: one or two varints,
// times in ms since the epoch.
type firstsCodec struct{ layout }

func (firstsCodec) Append(dst []byte, f firsts) ([]byte, error) {
	for _, t := range f.times[:f.n] {
		dst = binary.AppendVarint(dst, t)
	}
	return dst, nil
}

var errFirsts = errors.New("stream: damaged times in the state of a deduplication")

func (firstsCodec) Decode(src []byte) (f firsts, err error) {
	for len(src) > 0 {
		t, n := binary.Varint(src)
		if n <= 0 || f.n == len(f.times) {
			return firsts{}, errFirsts
		}
		f.add(t)
		src = src[n:]
	}
	return f, nil
}
