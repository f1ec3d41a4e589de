package stream

import (
	"fmt"
	"math"
	"time"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// sliding is an aggregation by key and sliding window in one task.
//
// It keeps no aggregates but the records themselves, in piles of time as joins do, and a
// timer for each window, which may turn out to hold nothing. A window is folded when it is
// emitted, in the order of event time: with one result per window that is no more
// work than taking each record into all its windows, and does not depend on the order of arrival.
type sliding[K, V, A any] struct {
	t    *engine.Task
	step int
	spec window.Spec
	key  codec.Codec[K]
	fold fold[A, V]

	piles  *state.WindowTable[pile[V]]
	pileMs int64
	timers *state.TimerQueue // of windows, by window start and key; none with onUpdate
	w      int64             // watermark

	onUpdate  bool
	countLate bool
	old       bool // changes must tell what rows were
	values    *cloner[V]
	change    func(k K, start, time int64, c change[A])
	down      func(w int64) // may be nil

	rows    []piled[V] // scratch: those of a key in a span of time
	times   []int64    // scratch: theirs, each once
	is, was A
	buf     []byte
}

// aggregateSliding is aggregateWindows where the windows slide.
func aggregateSliding[K, V any, WK window.KeyOf[K], A any](w Windowed[K, V], s *step, f fold[A, V]) *tableNode[WK, A] {
	n := newTable[WK, A](s)
	n.each, n.kept, n.settled = true, false, true
	n.closing = func(k WK) int64 { return window.Key[K](k).Start.UnixMilli() }
	s.changeKey = true
	requireEmit(s.app, w.emit)
	pileMs := w.spec.SizeMs() + 1
	value, l := layoutOf[K, V](s, fmt.Sprintf("records of windows %v in piles of %d ms, ", w.spec.Grace(0), pileMs))
	piles, timers := s.keep("").keysBehind(windowBytes), s.keep("timers").keysBehind(timerBytes+windowBytes)
	key := w.g.key
	w.g.keepValue = true
	w.g.downs = append(w.g.downs, func(o *opening) engine.KeyedPort[V] {
		a := &sliding[K, V, A]{t: o.task, step: s.id, spec: w.spec, key: key, fold: f, pileMs: pileMs, w: window.Unknown,
			onUpdate: w.emit == window.OnUpdate, countLate: !*w.late, values: newCloner(value)}
		out := n.openTable(o)
		a.old, a.down = out.old, out.Watermark
		own := engine.Meta{Offset: -1}
		a.change = func(k K, start, at int64, c change[A]) {
			own.Time = at
			out.change(&own, WK(window.Key[K]{Key: k, Start: time.UnixMilli(start).UTC(), End: time.UnixMilli(a.spec.End(start)).UTC()}), c)
		}
		store := o.openStore(piles)
		if store == nil {
			return engine.KeyedPort[V]{}
		}
		a.piles = state.NewWindowTable[pile[V]](store.Store, pileCodec[V]{value, l})
		store.SetTable(a.piles)
		if store = o.openStore(timers); store == nil {
			return engine.KeyedPort[V]{}
		}
		all := state.NewTimers(store.Store)
		store.SetTable(all)
		a.timers = all.Queue(0)
		return engine.KeyedPort[V]{Push: a.push, Watermark: a.advance, Idle: out.Idle}
	})
	return n
}

func (a *sliding[K, V, A]) push(m *engine.Meta, hash uint64, key []byte, v *V) {
	t := m.Time
	if m.TooFar || a.spec.Late(t, a.w) {
		if a.countLate {
			a.t.Counters().Late++
		}
		return
	}
	value, err := a.values.clone(v) // it may be one that an operator above goes on to change
	if err == nil {
		var p *pile[V]
		if p, _, err = a.piles.Update(pileOf(t, a.pileMs), hash, key); err == nil {
			p.add(piled[V]{time: t, value: value})
		}
	}
	switch {
	case err != nil:
	case a.onUpdate:
		err = a.update(t, hash, key)
	default:
		if err = a.set(a.spec.First(t), key); err == nil && t < window.EndOfTime {
			err = a.set(t+1, key) // it holds nothing yet, perhaps
		}
	}
	a.t.Fail(a.step, err)
}

// set sets the timer of a window, unless it has closed.
func (a *sliding[K, V, A]) set(start int64, key []byte) error {
	closes := a.spec.ClosesAt(start)
	if a.w >= closes {
		return nil
	}
	a.buf = state.AppendWindowKey(a.buf[:0], start, key)
	return a.timers.Add(closes, a.buf, 0)
}

// update emits the open windows that a record at t changes, which is kept already: those
// that hold it, and the one that begins after it.
func (a *sliding[K, V, A]) update(t int64, hash uint64, key []byte) error {
	size := a.spec.SizeMs()
	if err := a.gather(plus(t, -size-1), plus(t, size+1), hash, key); err != nil {
		return err
	}
	k, err := a.key.Decode(key)
	if err != nil {
		return fmt.Errorf("decode key: %w", err)
	}
	a.times = a.times[:0]
	added, alone := 0, true // the record, and whether it is the only one at its time
	for i, r := range a.rows {
		if r.time == t {
			alone, added = i == 0 || a.rows[i-1].time != t, i
		}
		if i == 0 || a.rows[i-1].time != r.time {
			a.times = append(a.times, r.time)
		}
	}
	for start := range a.spec.Slides(a.times, t) {
		// The window that ends with the record is new, unless it begins after another.
		isNew := alone && start == a.spec.First(t) && !a.has(start-1)
		if a.emit(k, start, added, !isNew); a.t.Failed() {
			return a.t.Err()
		}
	}
	if start, made := a.spec.SlidesAfter(a.times, t); made && alone {
		a.emit(k, start, -1, false)
	}
	return a.t.Err()
}

// has tells whether a record at t was gathered.
func (a *sliding[K, V, A]) has(t int64) bool {
	for _, at := range a.times {
		if at == t {
			return true
		}
	}
	return false
}

// emit emits a window of the records gathered, unless it has closed or holds none. added is
// the record that is new in it, or -1; was tells that it was there before, if it held
// another.
func (a *sliding[K, V, A]) emit(k K, start int64, added int, was bool) {
	if a.spec.Closed(start, a.w) {
		return
	}
	from, to, end := 0, 0, a.spec.End(start)
	for i, r := range a.rows {
		if r.time < start {
			from = i + 1
		}
		if r.time <= end {
			to = i + 1
		}
	}
	if from >= to {
		return
	}
	c := change[A]{new: &a.is, had: was && to-from > 1}
	if c.had && a.old {
		a.folded(&a.was, from, to, added)
		c.old = &a.was
	}
	if last := to - 1; c.had {
		if last == added {
			last--
		}
		c.oldTime = a.rows[last].time
	}
	a.folded(&a.is, from, to, -1)
	a.change(k, start, a.rows[to-1].time, c)
}

// folded folds rows [from, to) but for one into result.
func (a *sliding[K, V, A]) folded(result *A, from, to, without int) {
	var none A
	*result = none
	a.t.Running = a.step
	first := true
	for i := from; i < to; i++ {
		if i == without {
			continue
		}
		v, err := a.values.clone(&a.rows[i].value) // the fold may change it
		if err != nil {
			a.t.Fail(a.step, err)
			return
		}
		a.fold(result, first, &v)
		first = false
	}
}

// gather makes rows those of a key with times in [from, to].
func (a *sliding[K, V, A]) gather(from, to int64, hash uint64, key []byte) error {
	a.rows = a.rows[:0]
	for start := range pilesIn(from, to, a.pileMs) {
		p, ok, err := a.piles.Get(start, hash, key)
		if err != nil {
			return err
		}
		for i := 0; ok && i < len(p.rows); i++ {
			if r := p.rows[i]; r.time >= from && r.time <= to {
				a.rows = append(a.rows, r)
			}
		}
	}
	return nil
}

// advance emits the windows that watermark w closes, and forgets the records that no open
// window has anything to do with.
func (a *sliding[K, V, A]) advance(w int64) {
	err := a.timers.Pop(w, func(_ int64, windowKey []byte, _ uint8) error {
		start, key, err := state.SplitWindowKey(windowKey)
		if err == nil {
			err = a.gather(start, a.spec.End(start), state.Hash(key), key)
		}
		if err != nil || len(a.rows) == 0 {
			return err
		}
		k, err := a.key.Decode(key)
		if err != nil {
			return fmt.Errorf("decode key: %w", err)
		}
		a.emit(k, start, -1, false)
		return a.t.Err()
	})
	a.w = w
	for err == nil {
		start, ok := a.piles.Oldest()
		if !ok || !a.spec.Forgotten(plus(start, a.pileMs-1), w) {
			break
		}
		err = a.piles.CloseWindow(start, func([]byte, *pile[V]) error { return nil })
	}
	if a.t.Fail(a.step, err); a.down != nil && !a.t.Failed() {
		a.down(a.spec.OldestOpen(w))
	}
}

// plus is a+b, or the end of int64 it would have passed.
func plus(a, b int64) int64 {
	switch sum := a + b; {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	default:
		return sum
	}
}
