package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// Windowed is a grouped stream in windows of event time, in front of an aggregation.
//
// A window of the clock or the calendar is [Start, End) and closes when the watermark
// reaches its end plus grace. A sliding window includes its end, and closes when the
// watermark is past that plus grace; its aggregate is folded from its records when it
// is emitted, in the order of their times, so a function that fails there ends the
// job whatever the error policy, and with OnUpdate each record is folded into each
// of its windows again and again.
// A record none of whose windows is open is late: it goes to Late and changes
// nothing else, and is counted where nothing reads Late. A result has the highest
// event time of the records in it; results of one close come ordered by window end,
// then start, then key.
//
// Windows of processing time (window.Spec.ProcessingTime) go by the node's clock: a record is
// in those of the time at which it is processed, which is the time of results too, and what is
// behind them has the clock's watermark. So what is in which window depends on when it is
// processed, also when it is again after a crash.
type Windowed[K, V any] struct {
	g    *grouping[K, V]
	spec window.Spec
	emit window.Emit
	late *bool // something reads the late side

	counts bool // a record that stands for several is to be folded as often
}

// Emit sets when the aggregation emits: OnClose, the default, once for each window
// and key when the window closes; OnUpdate with every change; for Every, Early and
// LateUpdates see there, and HeaderResult for how their results are marked. What Every and
// Early have not emitted yet is part of the checkpoint. Tables that need what a row was
// take OnClose or OnUpdate.
func (w Windowed[K, V]) Emit(e window.Emit) Windowed[K, V] {
	requireWindowEmit(w.g.step.app, e)
	w.emit = e
	return w
}

// Count counts the records of each key and window.
//
// Where the records are shuffled, those of a key and window are counted before they are sent, if
// nothing else needs them one by one; see Grouped.Combine.
func (w Windowed[K, V]) Count[WK window.KeyOf[K]]() Table[WK, int64] {
	w.counts = true
	return Table[WK, int64]{aggregateWindows[K, V, WK, int64](w, w.g.behind("count", false), count[V])}
}

// Reduce folds the values of each key and window; the first one is where it begins.
func (w Windowed[K, V]) Reduce[WK window.KeyOf[K]](f func(V, V) V) Table[WK, V] {
	s := w.g.behind("reduce", true)
	requireFunc(s, f == nil)
	return Table[WK, V]{aggregateWindows[K, V, WK, V](w, s, reduce(f))}
}

// Aggregate folds the values of each key and window into an A, which begins as its
// zero value.
func (w Windowed[K, V]) Aggregate[A any, WK window.KeyOf[K]](add func(A, V) A) Table[WK, A] {
	s := w.g.behind("aggregate", true)
	requireFunc(s, add == nil)
	return Table[WK, A]{aggregateWindows[K, V, WK, A](w, s, accumulate(add))}
}

// Late gives the records that come after all their windows have closed, as they came.
func (w Windowed[K, V]) Late[_ lazily[V]]() Stream[K, V] {
	if w.spec.IsProcessingTime() {
		w.g.step.app.fault("late", fmt.Sprintf("none is late by the clock, in windows that are %v: take those of event time, or leave Late out", w.spec))
	}
	s := w.g.behind("late", true)
	*w.late = true
	out := &node[K, V]{step: s}
	key, spec := w.g.key, w.spec
	w.g.downs = append(w.g.downs, func(o *opening) engine.KeyedPort[V] {
		t, down := o.task, out.open(o)
		watermark := window.Unknown
		return engine.KeyedPort[V]{
			Push: func(m *engine.Meta, _ uint64, encoded []byte, v *V) {
				if !m.TooFar && !spec.Late(m.Time, watermark) {
					return
				}
				k, err := key.Decode(encoded)
				if err != nil {
					t.Fail(s.id, fmt.Errorf("decode key: %w", err))
					return
				}
				down.Push(m, k, v)
			},
			Watermark: func(w int64) {
				watermark = w
				if down.Watermark != nil {
					down.Watermark(w)
				}
			},
			Idle: down.Idle,
		}
	})
	return Stream[K, V]{out}
}

// windowing is an aggregation by key and window in one task.
type windowing[K, V, WK, A any] struct {
	t         *engine.Task
	step      int
	spec      window.Spec
	fold      fold[A, V]
	table     *state.WindowTable[cell[A]]
	watermark int64
	open      bounds // of the window of the record before, where each record is in one
	bounds    bounds // of the window asked for last
	passes    int64  // least watermark that moves what is passed on
	single    bool   // each record is in one window
	onUpdate  bool
	countLate bool
	counts    bool // fold a record that stands for several as often
	emit      func(start int64, key []byte, c *cell[A], was change[A], mark window.Mark)
	emits     window.Emit
	marks     *marks      // nil with OnClose and OnUpdate
	ticks     *ticks      // nil where the clock on the wall has no say
	nextEnd   int64       // with LateUpdates: no window ends below
	own       engine.Meta // of what is emitted
	out       *tableOut[WK, A]
	clone     *cloner[A]
	old       A      // scratch: what the row was
	key       []byte // scratch: window and key

	// guarded, where it is not nil, folds under the step's error policy.
	guarded func(m *engine.Meta, key []byte, a *A, first bool, v *V) (ok bool)
}

func aggregateWindows[K, V any, WK window.KeyOf[K], A any](w Windowed[K, V], s *step, f fold[A, V]) *tableNode[WK, A] {
	if w.spec.IsSliding() {
		return aggregateSliding[K, V, WK, A](w, s, f)
	}
	n := newTable[WK, A](s)
	guards[K, V](s)
	w.g.windows = append(w.g.windows, foldedIn{s, w.spec, w.emit, w.counts})
	// Results are emitted when they are made, and are not kept once their window has closed.
	n.each, n.kept, n.settled = true, false, w.emit == window.OnClose
	n.closing = func(k WK) int64 { return window.Key[K](k).Start.UnixMilli() }
	inWindows(s, n.key, w.g.key)
	kept, cells := s.keep("").keysBehind(windowBytes), cellsOf[K, A](s, &w.spec)
	changed := keepChanged(s, w.emit, windowBytes)
	s.checkToo(func() string { return checkMarked(w.emit, n.wantsOld()) })
	key, spec := w.g.key, w.spec
	n.stored = storedWindows[K](n, key, spec, kept, codec.Codec[cell[A]](cells))
	w.g.downs = append(w.g.downs, func(o *opening) engine.KeyedPort[V] {
		store := o.openStore(kept)
		if store == nil {
			return engine.KeyedPort[V]{}
		}
		a := &windowing[K, V, WK, A]{
			t: o.task, step: s.id, spec: spec, fold: f, watermark: window.Unknown, single: spec.IsSingle(),
			passes: window.Unknown,
			emits:  w.emit, marks: marksOf(w.emit), nextEnd: window.Unknown,
			onUpdate: w.emit == window.OnUpdate, countLate: !*w.late, counts: w.counts,
			table: state.NewWindowTable[cell[A]](store.Store, cells), own: engine.Meta{Offset: -1}, out: n.openTable(o),
			clone: newCloner(cells.value), guarded: guardFold[K](o, s, key, newCloner(cells.value), f),
		}
		store.SetTable(a.table)
		if w.emit.Ends() {
			a.rememberWatermark(s.name)
		}
		a.ticks = openTicks(o, s, changed, w.emit, a.ticked)
		a.emit = func(start int64, encoded []byte, c *cell[A], made change[A], mark window.Mark) {
			k, err := key.Decode(encoded)
			if err != nil {
				a.t.Fail(s.id, fmt.Errorf("decode key: %w", err))
				return
			}
			wk := WK(window.Key[K]{Key: k, Start: time.UnixMilli(start).UTC(), End: time.UnixMilli(a.boundsOf(start).end).UTC()})
			a.own.Time, made.new = c.time, &c.value
			a.marks.mark(&a.own, mark)
			a.out.change(&a.own, wk, made)
		}
		port := engine.KeyedPort[V]{Push: a.push, Watermark: a.advance, Idle: a.out.Idle, Touch: func(hashes []uint64) {
			if a.single && a.table.Bytes() > touchBytes {
				a.table.Touch(a.open.start, hashes)
			}
		}}
		if spec.IsProcessingTime() {
			port = byWall(o, s, port, a.nextClose)
		}
		return port
	})
	return n
}

func (a *windowing[K, V, WK, A]) push(m *engine.Meta, hash uint64, key []byte, v *V) {
	if a.single && m.Time >= a.open.start && m.Time < a.open.end && !m.TooFar {
		a.add(m, a.open.start, hash, key, v)
		return
	}
	if m.TooFar || a.spec.Late(m.Time, a.watermark) {
		if a.countLate {
			a.t.Counters().Late += 1 + int64(m.More)
		}
		return
	}
	if a.single {
		last := a.spec.Last(m.Time)
		a.open = *a.boundsOf(last)
		a.add(m, last, hash, key, v)
		return
	}
	for start := range a.spec.Starts(m.Time) {
		if !a.spec.Closed(start, a.watermark) && !a.add(m, start, hash, key, v) {
			return
		}
	}
}

// add takes a record into the window that starts at start. It is false where the fold failed.
func (a *windowing[K, V, WK, A]) add(m *engine.Meta, start int64, hash uint64, key []byte, v *V) bool {
	c, existed, err := a.table.Update(start, hash, key)
	if err != nil {
		a.t.Fail(a.step, err)
		return false
	}
	a.t.Running = a.step
	var made change[A]
	if a.onUpdate && existed {
		made.had, made.oldTime = true, c.time
		made.old = a.wasIn(c)
	}
	if a.guarded == nil {
		a.fold(&c.value, !existed, v)
		if a.counts {
			for range m.More {
				a.fold(&c.value, false, v)
			}
		}
	} else if !a.guarded(m, key, &c.value, !existed, v) {
		if !existed {
			a.t.Fail(a.step, a.table.Delete(start, hash, key))
		}
		return false
	}
	if !existed || m.Time > c.time {
		c.time = m.Time
	}
	switch {
	case a.onUpdate:
		a.emit(start, key, c, made, window.NoResult)
	case a.marks != nil:
		a.changed(start, key, c)
	}
	return true
}

// changed emits a window that a record has changed, or remembers it until the clock ticks.
func (a *windowing[K, V, WK, A]) changed(start int64, key []byte, c *cell[A]) {
	end := a.boundsOf(start).end
	a.nextEnd = min(a.nextEnd, end)
	if mark := a.emits.Updated(end, a.watermark); mark != window.NoResult {
		a.emit(start, key, c, change[A]{}, mark)
	} else if a.ticks != nil && !c.queued {
		c.queued = true
		a.key = state.AppendWindowKey(a.key[:0], start, key)
		a.ticks.add(a.key)
	}
}

// ticked emits a window that has changed since its last result, now that the clock ticks.
func (a *windowing[K, V, WK, A]) ticked(windowKey []byte) error {
	start, key, err := state.SplitWindowKey(windowKey)
	if err != nil {
		return err
	}
	c, ok, err := a.table.Get(start, state.Hash(key), key)
	if err != nil || !ok {
		return err
	}
	c.queued = false
	if mark := a.emits.Ticked(a.boundsOf(start).end, a.watermark); mark != window.NoResult {
		a.emit(start, key, c, change[A]{}, mark)
	}
	return a.t.Err()
}

// takeChanged tells whether a window has changed since its last result, and forgets it.
func (a *windowing[K, V, WK, A]) takeChanged(start int64, key []byte) bool {
	if a.ticks == nil {
		return false
	}
	a.key = state.AppendWindowKey(a.key[:0], start, key)
	return a.ticks.take(a.key)
}

// rememberWatermark makes the watermark part of the checkpoint: windows that it is past have
// had the result of their end.
func (a *windowing[K, V, WK, A]) rememberWatermark(step string) {
	a.t.AddClock(engine.EndsOf+step,
		func(b []byte) []byte { return binary.AppendVarint(b, a.watermark) },
		func(b []byte) error {
			r := numbers{src: b}
			if a.watermark = r.varint(); r.damaged || len(r.src) > 0 {
				return errEnds
			}
			return nil
		},
		func() {})
}

var errEnds = errors.New("stream: damaged watermark of windows in the checkpoint")

// end emits the open windows whose end the watermark has reached on its way from before.
func (a *windowing[K, V, WK, A]) end(before int64) error {
	a.nextEnd = window.EndOfTime
	for _, start := range a.table.Windows() {
		end := a.boundsOf(start).end
		if end > a.watermark {
			a.nextEnd = min(a.nextEnd, end)
		}
		if end > a.watermark || end <= before {
			continue
		}
		err := a.table.ScanWindow(start, func(key []byte, c *cell[A]) error {
			a.takeChanged(start, key)
			c.queued = false
			a.emit(start, key, c, change[A]{}, a.emits.Ended())
			return a.t.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// wasIn is a copy of what is in c, if somebody asks for it.
func (a *windowing[K, V, WK, A]) wasIn(c *cell[A]) *A {
	if !a.out.old {
		return nil
	}
	var err error
	if a.old, err = a.clone.clone(&c.value); err != nil {
		a.t.Fail(a.step, err)
	}
	return &a.old
}

// advance closes the windows that watermark w closes, oldest first, and passes on a
// watermark that no result still to come is below: one belongs to a window that w
// has not closed, so its time is at least that window's start.
func (a *windowing[K, V, WK, A]) advance(w int64) {
	before := a.watermark
	a.watermark = w
	if w >= a.open.closesAt {
		a.open = bounds{}
	}
	for !a.t.Failed() {
		start, ok := a.table.Oldest()
		if !ok || w < a.boundsOf(start).closesAt {
			break
		}
		err := a.table.CloseWindow(start, func(key []byte, c *cell[A]) error {
			changed := a.takeChanged(start, key)
			if mark := a.emits.Closed(changed, a.boundsOf(start).end, before); mark != window.NoResult {
				a.emit(start, key, c, change[A]{}, mark)
			}
			return a.t.Err()
		})
		if err != nil {
			a.t.Fail(a.step, err)
			return
		}
	}
	if a.emits.Ends() && w >= a.nextEnd && !a.t.Failed() {
		a.t.Fail(a.step, a.end(before))
	}
	if a.out.Watermark == nil || w < a.passes {
		return
	}
	oldest := a.spec.OldestOpen(w)
	a.passes = a.spec.ClosesAt(oldest)
	a.out.Watermark(oldest)
}

// nextClose is when the first of the open windows closes.
func (a *windowing[K, V, WK, A]) nextClose() (at int64, ok bool) {
	start, ok := a.table.Oldest()
	if !ok {
		return 0, false
	}
	return a.boundsOf(start).closesAt, true
}

// bounds are what the start of a window says; where the calendar does, it takes a
// while to find out.
type bounds struct {
	start, end, closesAt int64
	known                bool
}

func (a *windowing[K, V, WK, A]) boundsOf(start int64) *bounds {
	if b := &a.bounds; !b.known || b.start != start {
		*b = bounds{start, a.spec.End(start), a.spec.ClosesAt(start), true}
	}
	return &a.bounds
}
