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
// timer for each window, which may turn out to hold nothing, and which tells who reads the table
// that the window is open. A window is folded when it is
// emitted, in the order of event time: with one result per window that is no more
// work than taking each record into all its windows, and does not depend on the order of arrival.
type sliding[K, V, A any] struct {
	t    *engine.Task
	step int
	spec window.Spec
	key  codec.Codec[K]
	fold fold[A, V]

	guard *guard[K, V] // nil under Fail

	piles  *state.WindowTable[pile[V]]
	pileMs int64
	timers *state.TimerQueue // of windows, by window start and key
	w      int64             // watermark
	emits  window.Emit
	marked bool   // results are more than one, and marked
	ticks  *ticks // nil where the clock on the wall has no say

	onUpdate  bool
	countLate bool
	old       bool // changes must tell what rows were
	values    *cloner[V]
	change    func(k K, start, time int64, c change[A], mark window.Mark)
	down      func(w int64) // may be nil

	rows    []piled[V] // scratch: those of a key in a span of time
	times   []int64    // scratch: theirs, each once
	is, was A
	buf     []byte
}

// aggregateSliding is aggregateWindows where the windows slide.
func aggregateSliding[K, V any, WK window.KeyOf[K], A any](w Windowed[K, V], s *step, f fold[A, V]) *tableNode[WK, A] {
	n := newTable[WK, A](s)
	guards[K, V](s)
	n.each, n.kept, n.settled = true, false, true
	n.closing = func(k WK) int64 { return window.Key[K](k).Start.UnixMilli() }
	inWindows(s, n.key, w.g.key)
	pileMs := w.spec.SizeMs() + 1
	value, l := layoutOf[K, V](s, fmt.Sprintf("records of windows %v in piles of %d ms, ", w.spec.Grace(0), pileMs))
	piles, timers := s.keep("").keysBehind(windowBytes), s.keep("timers").keysBehind(timerBytes+windowBytes)
	changed := keepChanged(s, w.emit, windowBytes)
	s.checkToo(func() string { return checkMarked(w.emit, n.wantsOld()) })
	key := w.g.key
	n.stored = storedPiles[K, WK, V, A]{w.spec, pileMs, n.key, key, piles, timers, pileCodec[V]{value, l}, f, s}.stored()
	w.g.keepValue = true
	w.g.downs = append(w.g.downs, func(o *opening) engine.KeyedPort[V] {
		a := &sliding[K, V, A]{t: o.task, step: s.id, spec: w.spec, key: key, fold: f, pileMs: pileMs, w: window.Unknown,
			emits: w.emit, onUpdate: w.emit == window.OnUpdate, countLate: !*w.late, values: newCloner(value)}
		out := n.openTable(o)
		a.old, a.down = out.old, out.Watermark
		own := engine.Meta{Offset: -1}
		headers := marksOf(w.emit)
		a.marked = headers != nil
		a.change = func(k K, start, at int64, c change[A], mark window.Mark) {
			own.Time = at
			headers.mark(&own, mark)
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
		a.guard = openGuard[K, V](o, s)
		a.ticks = openTicks(o, s, changed, w.emit, a.ticked)
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
	if err == nil {
		err = a.set(a.spec.First(t), key)
	}
	if err == nil && t < window.EndOfTime {
		err = a.set(t+1, key) // it holds nothing yet, perhaps
	}
	switch {
	case err != nil:
	case a.onUpdate:
		err = a.update(t, hash, key)
	case a.marked:
		err = a.touch(t, hash, key)
	}
	a.t.Fail(a.step, err)
}

// Tags of the timers of a window.
const (
	closeTag uint8 = iota
	endTag
)

// touch sees to the windows that a record at t has changed: each gives a result now, or when the
// clock ticks, or none before it ends.
func (a *sliding[K, V, A]) touch(t int64, hash uint64, key []byte) error {
	size := a.spec.SizeMs()
	if err := a.gather(plus(t, -size-1), plus(t, size+1), hash, key); err != nil {
		return err
	}
	a.collectTimes()
	k, err := a.key.Decode(key)
	if err != nil {
		return fmt.Errorf("decode key: %w", err)
	}
	note := func(start int64) {
		if a.spec.Closed(start, a.w) {
			return
		}
		if mark := a.emits.Updated(a.spec.EndsAt(start), a.w); mark != window.NoResult {
			a.emit(k, start, -1, false, mark)
		} else if a.ticks != nil {
			a.buf = state.AppendWindowKey(a.buf[:0], start, key)
			a.ticks.add(a.buf)
		}
	}
	for start := range a.spec.Slides(a.times, t) {
		if note(start); a.t.Failed() {
			return a.t.Err()
		}
	}
	if start, made := a.spec.SlidesAfter(a.times, t); made && a.alone(t) {
		note(start)
	}
	return a.t.Err()
}

// ticked emits a window that has changed since its last result, now that the clock ticks.
func (a *sliding[K, V, A]) ticked(windowKey []byte) error {
	start, key, err := state.SplitWindowKey(windowKey)
	if err != nil || a.spec.Closed(start, a.w) {
		return err
	}
	return a.result(start, key, a.emits.Ticked(a.spec.EndsAt(start), a.w))
}

// result emits a window of a key, if there is a result of that mark.
func (a *sliding[K, V, A]) result(start int64, key []byte, mark window.Mark) error {
	if mark == window.NoResult {
		return nil
	}
	if err := a.gather(start, a.spec.End(start), state.Hash(key), key); err != nil || len(a.rows) == 0 {
		return err
	}
	k, err := a.key.Decode(key)
	if err != nil {
		return fmt.Errorf("decode key: %w", err)
	}
	a.emit(k, start, -1, false, mark)
	return a.t.Err()
}

// takeChanged tells whether a window has changed since its last result, and forgets it.
func (a *sliding[K, V, A]) takeChanged(windowKey []byte) bool {
	return a.ticks != nil && a.ticks.take(windowKey)
}

// set sets the timers of a window, unless it has closed.
func (a *sliding[K, V, A]) set(start int64, key []byte) error {
	closes := a.spec.ClosesAt(start)
	if a.w >= closes {
		return nil
	}
	a.buf = state.AppendWindowKey(a.buf[:0], start, key)
	if ends := a.spec.EndsAt(start); a.emits.Ends() && a.w < ends && ends < closes {
		if err := a.timers.Add(ends, a.buf, endTag); err != nil {
			return err
		}
	}
	return a.timers.Add(closes, a.buf, closeTag)
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
	a.collectTimes()
	added, alone := 0, a.alone(t) // the record, the last one at its time
	for i, r := range a.rows {
		if r.time == t {
			added = i
		}
	}
	for start := range a.spec.Slides(a.times, t) {
		// The window that ends with the record is new, unless it begins after another.
		isNew := alone && start == a.spec.First(t) && !a.has(start-1)
		if a.emit(k, start, added, !isNew, window.NoResult); a.t.Failed() {
			return a.t.Err()
		}
	}
	if start, made := a.spec.SlidesAfter(a.times, t); made && alone {
		a.emit(k, start, -1, false, window.NoResult)
	}
	return a.t.Err()
}

// collectTimes makes times those of rows.
func (a *sliding[K, V, A]) collectTimes() {
	a.times = a.times[:0]
	for i, r := range a.rows {
		if i == 0 || a.rows[i-1].time != r.time {
			a.times = append(a.times, r.time)
		}
	}
}

// alone tells whether only one record of those gathered is at t.
func (a *sliding[K, V, A]) alone(t int64) bool {
	n := 0
	for _, r := range a.rows {
		if r.time == t {
			n++
		}
	}
	return n == 1
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
func (a *sliding[K, V, A]) emit(k K, start int64, added int, was bool, mark window.Mark) {
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
	if c.had && (a.old || a.guard != nil) {
		if c.had = a.folded(&a.was, k, from, to, added, true); c.had && a.old {
			c.old = &a.was
		}
	}
	if last := to - 1; c.had {
		if last == added {
			last--
		}
		c.oldTime = a.rows[last].time
	}
	if !a.folded(&a.is, k, from, to, added, false) {
		c.new = nil
	}
	if c.had || c.new != nil {
		a.change(k, start, a.rows[to-1].time, c, mark)
	}
}

// folded folds rows [from, to) into result, as they were before the one added or with it, and tells whether
// there is a result: rows for which the fold fails are left out, where the policy says so. What failed
// before one was added is not counted again.
func (a *sliding[K, V, A]) folded(result *A, k K, from, to, added int, before bool) (any bool) {
	var none A
	*result = none
	a.t.Running = a.step
	if a.guard != nil {
		return a.foldedUnder(result, k, from, to, added, before)
	}
	for i := from; i < to; i++ {
		if before && i == added {
			continue
		}
		if err := a.take(result, !any, i); err != nil {
			a.t.Fail(a.step, err)
			return false
		}
		any = true
	}
	return any
}

// take folds one of rows.
func (a *sliding[K, V, A]) take(result *A, first bool, i int) error {
	v, err := a.values.clone(&a.rows[i].value) // the fold may change it
	if err == nil {
		a.fold(result, first, &v)
	}
	return err
}

// foldedUnder is folded under the step's error policy. A call that fails may have changed the
// result: it is made anew then, without that row.
func (a *sliding[K, V, A]) foldedUnder(result *A, k K, from, to, added int, before bool) bool {
	in, dirty := make([]int, 0, to-from), false // rows that are folded; the result is not of them alone
	again := func() error {
		var none A
		*result = none
		for n, i := range in {
			if err := a.take(result, n == 0, i); err != nil {
				return err
			}
		}
		dirty = false
		return nil
	}
	own, keyOf := engine.Meta{Offset: -1}, func() (K, error) { return k, nil }
	for i := from; i < to && !a.t.Failed(); i++ {
		if before && i == added {
			continue
		}
		attempt := func() error {
			if dirty {
				if err := again(); err != nil {
					return err
				}
			}
			dirty = true
			err := a.take(result, len(in) == 0, i)
			dirty = err != nil
			return err
		}
		ok := false
		if before || added >= 0 && i != added {
			ok = a.guard.calls.quietly(attempt)
		} else {
			own.Time = a.rows[i].time
			ok = a.guard.do(&own, keyOf, &a.rows[i].value, attempt, nil)
		}
		if ok {
			in = append(in, i)
		}
	}
	return len(in) > 0 && (!dirty || a.guard.calls.quietly(again)) && !a.t.Failed()
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
	err := a.timers.Pop(w, func(_ int64, windowKey []byte, tag uint8) error {
		start, key, err := state.SplitWindowKey(windowKey)
		switch {
		case err != nil:
			return err
		case tag == closeTag:
			return a.result(start, key, a.emits.Closed(a.takeChanged(windowKey), a.spec.EndsAt(start), a.w))
		case a.spec.Closed(start, w): // its last result follows
			return nil
		}
		a.takeChanged(windowKey)
		return a.result(start, key, a.emits.Ended())
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
