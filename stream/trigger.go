package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// Triggered is a grouped stream in the global window of each key, which a trigger has give
// results, in front of an aggregation: window.Count makes windows of a count.
//
// A window takes every record of its key, whatever its time: none is late. After a
// result it begins anew, unless the trigger says Keep. Its time is the highest event time of
// the records in it, or the watermark or the time that fired the trigger, if that is higher, so
// that windows behind it never find it late. What has had no result when the input ends, as that of a
// bounded run does, gives a last one then, by key.
//
// Kept are the aggregate of each key with records, or of each key with Keep, and where the
// trigger goes by time a timer for it. Stream.State of the result lets that be read.
type Triggered[K, V any] struct {
	g       *grouping[K, V]
	trigger window.Trigger
	until   func(V) bool // nil without
}

// Trigger puts all records of each key into one window, which gives results when t says so.
func (g Grouped[K, V]) Trigger(t window.Trigger) Triggered[K, V] {
	if err := t.Err(); err != nil {
		g.g.step.app.fault("trigger", err.Error())
	}
	return Triggered[K, V]{g: g.g, trigger: t}
}

// TriggerBy is Trigger with one that values decide on as well.
func (g Grouped[K, V]) TriggerBy(t window.TriggerBy[V]) Triggered[K, V] {
	if err := t.Err(); err != nil {
		g.g.step.app.fault("trigger", err.Error())
	}
	g.g.keepValue = true
	return Triggered[K, V]{g: g.g, trigger: t.Trigger, until: t.Says}
}

// Count counts the records of each window.
func (w Triggered[K, V]) Count[_ lazily[V]]() Stream[K, int64] {
	return aggregateTriggered(w, w.g.behind("count", w.until != nil), count[V])
}

// Reduce folds the values of each window; the first one is where it begins.
func (w Triggered[K, V]) Reduce[_ lazily[V]](f func(V, V) V) Stream[K, V] {
	s := w.g.behind("reduce", true)
	requireFunc(s, f == nil)
	return aggregateTriggered(w, s, reduce(f))
}

// Aggregate folds the values of each window into an A, which begins as its zero value.
func (w Triggered[K, V]) Aggregate[A any](add func(A, V) A) Stream[K, A] {
	s := w.g.behind("aggregate", true)
	requireFunc(s, add == nil)
	return aggregateTriggered(w, s, accumulate(add))
}

func aggregateTriggered[K, V, A any](w Triggered[K, V], s *step, f fold[A, V]) Stream[K, A] {
	out := &node[K, A]{step: s}
	guards[K, V](s)
	s.dropsHeaders = true
	kept, timers := s.keep("").ownKeys(), (*storeDecl)(nil)
	if w.trigger.IsTimed() {
		timers = s.keep("timers").keysBehind(timerBytes)
	}
	value, l := layoutOf[K, A](s, "windows of a trigger, ")
	s.cells = paneCodec[A]{value, l}
	key := w.g.key
	w.g.downs = append(w.g.downs, func(o *opening) engine.KeyedPort[V] {
		a := &triggering[K, V, A]{t: o.task, step: s.id, trigger: w.trigger, key: key, w: window.Unknown, own: engine.Meta{Offset: -1}, down: out.open(o)}
		a.fold = func(v *A, first bool, x *V) {
			f(v, first, x)
			a.says = w.until != nil && w.until(*x)
		}
		if a.guarded = guardFold[K](o, s, key, newCloner(value), a.fold); w.trigger.Keeps() && shares(reflect.TypeFor[A]()) {
			a.clone = newCloner(value)
		}
		store := o.openStore(kept)
		if store == nil {
			return engine.KeyedPort[V]{}
		}
		a.table = state.NewTable[pane[A]](store.Store, paneCodec[A]{value, l})
		store.SetTable(a.table)
		if timers != nil {
			if store = o.openStore(timers); store == nil {
				return engine.KeyedPort[V]{}
			}
			all := state.NewTimers(store.Store)
			store.SetTable(all)
			a.due[eventQueue], a.due[wallQueue] = all.Queue(eventQueue), all.Queue(wallQueue)
			o.task.OnTime(a.nextWall, func(now int64) { a.pop(wallQueue, now) })
		}
		return engine.KeyedPort[V]{Push: a.push, Watermark: a.advance, Idle: a.down.Idle}
	})
	return Stream[K, A]{out}
}

// pane is the window of a key.
type pane[A any] struct {
	window.Pane
	time  int64 // highest event time of its records
	value A
}

// paneCodec is the encoding of a pane in stores and changelogs:
//
//	varint   highest event time of its records, ms since the epoch
//	uvarint  records since the last result, and where there are any
//	         varint  lowest event time of those, less the highest
//	         varint  when the first of those was processed, ms since the epoch
//	rest     the aggregate, in its own codec
type paneCodec[A any] struct {
	value codec.Codec[A]
	layout
}

func (c paneCodec[A]) Append(dst []byte, p pane[A]) ([]byte, error) {
	dst = binary.AppendVarint(dst, p.time)
	dst = binary.AppendUvarint(dst, uint64(p.Count))
	if p.Count > 0 {
		dst = binary.AppendVarint(dst, p.Lowest-p.time)
		dst = binary.AppendVarint(dst, p.Since)
	}
	return c.value.Append(dst, p.value)
}

var errPane = errors.New("stream: damaged window of a trigger in the state")

func (c paneCodec[A]) Decode(src []byte) (p pane[A], err error) {
	r := numbers{src: src}
	p.time, p.Count = r.varint(), int64(r.uvarint())
	if p.Count > 0 && !r.damaged {
		p.Lowest, p.Since = p.time+r.varint(), r.varint()
	}
	if r.damaged || p.Count < 0 {
		return pane[A]{}, errPane
	}
	p.value, err = c.value.Decode(r.src)
	return p, err
}

// triggering is an aggregation by key under a trigger in one task.
//
// A window with records has a timer in each queue that the trigger has a say in, at the time
// that it is due then.
type triggering[K, V, A any] struct {
	t       *engine.Task
	step    int
	trigger window.Trigger
	key     codec.Codec[K]
	fold    fold[A, V]
	says    bool // the value that was folded last fires the trigger
	table   *state.Table[pane[A]]
	due     [2]*state.TimerQueue // nil where no time has a say
	w       int64
	own     engine.Meta // of what is emitted
	down    port[K, A]
	clone   *cloner[A] // where the aggregate goes on to change what was emitted; else nil
	result  A

	// guarded, where it is not nil, folds under the step's error policy.
	guarded func(m *engine.Meta, key []byte, a *A, first bool, v *V) (ok bool)
}

func (a *triggering[K, V, A]) push(m *engine.Meta, hash uint64, key []byte, v *V) {
	p, existed, err := a.table.Update(hash, key)
	if err != nil {
		a.t.Fail(a.step, err)
		return
	}
	a.t.Running = a.step
	if a.guarded == nil {
		a.fold(&p.value, !existed, v)
	} else if !a.guarded(m, key, &p.value, !existed, v) {
		if !existed {
			a.t.Fail(a.step, a.table.Delete(hash, key))
		}
		return
	}
	time := instantOf(a.t, m, a.w)
	if !existed || time > p.time {
		p.time = time
	}
	was := p.Pane
	fires := a.trigger.Add(&p.Pane, time, a.t.Now().UnixMilli()) || a.says
	if !fires && (a.w == window.EndOfTime || a.trigger.DueAt(p.Pane) > a.w) {
		a.setTimers(key, was, p.Pane)
		return
	}
	a.setTimers(key, was, window.Pane{})
	a.fire(hash, key, p, a.w)
}

// setTimers makes the timers of a key those of a pane that was another.
func (a *triggering[K, V, A]) setTimers(key []byte, was, is window.Pane) {
	if a.due[eventQueue] == nil {
		return
	}
	for queue, dueAt := range [...]func(window.Pane) int64{eventQueue: a.trigger.DueAt, wallQueue: a.trigger.DueAtWall} {
		before, after := int64(math.MaxInt64), int64(math.MaxInt64) // none
		if was.Count > 0 {
			before = dueAt(was)
		}
		if is.Count > 0 {
			after = dueAt(is)
		}
		if before == after {
			continue
		}
		if before != math.MaxInt64 {
			a.t.Fail(a.step, a.due[queue].Cancel(before, key, 0))
		}
		if after != math.MaxInt64 {
			a.t.Fail(a.step, a.due[queue].Add(after, key, 0))
		}
	}
}

// fire gives the result of a window, at a time or after, and begins the next one.
func (a *triggering[K, V, A]) fire(hash uint64, key []byte, p *pane[A], at int64) {
	k, err := a.key.Decode(key)
	if err != nil {
		a.t.Fail(a.step, fmt.Errorf("decode key: %w", err))
		return
	}
	a.own.Time = p.time
	if at != window.EndOfTime {
		a.own.Time = max(a.own.Time, at)
	}
	if a.result = p.value; a.clone != nil {
		if a.result, err = a.clone.clone(&p.value); err != nil {
			a.t.Fail(a.step, err)
			return
		}
	}
	if p.Pane = (window.Pane{}); !a.trigger.Keeps() {
		if err := a.table.Delete(hash, key); err != nil {
			a.t.Fail(a.step, err)
			return
		}
	}
	a.down.Push(&a.own, k, &a.result)
}

func (a *triggering[K, V, A]) nextWall() (at int64, ok bool) {
	at, ok, err := a.due[wallQueue].Next()
	a.t.Fail(a.step, err)
	return at, ok
}

// pop fires the windows whose timers are due.
func (a *triggering[K, V, A]) pop(queue int, upTo int64) {
	a.t.Fail(a.step, a.due[queue].Pop(upTo, func(at int64, key []byte, _ uint8) error {
		hash := state.Hash(key)
		p, ok, err := a.table.Update(hash, key)
		if err != nil || !ok {
			return err
		}
		a.setOther(queue, key, p.Pane)
		if queue == wallQueue {
			at = a.w
		}
		a.fire(hash, key, p, at)
		return a.t.Err()
	}))
}

// setOther cancels the timer of a pane that is not in the queue.
func (a *triggering[K, V, A]) setOther(queue int, key []byte, p window.Pane) {
	other, at := wallQueue, a.trigger.DueAtWall(p)
	if queue == wallQueue {
		other, at = eventQueue, a.trigger.DueAt(p)
	}
	if at != math.MaxInt64 {
		a.t.Fail(a.step, a.due[other].Cancel(at, key, 0))
	}
}

// advance moves the watermark to w, and fires what is due by then.
func (a *triggering[K, V, A]) advance(w int64) {
	if a.due[eventQueue] != nil {
		a.pop(eventQueue, min(w, window.EndOfTime-1))
	}
	if w == window.EndOfTime && !a.t.Failed() {
		a.end()
	}
	if a.w = w; a.down.Watermark != nil && !a.t.Failed() {
		a.down.Watermark(w)
	}
}

// end gives the last results: no record is to come.
func (a *triggering[K, V, A]) end() {
	var keys [][]byte
	err := a.table.Scan(nil, nil, func(key []byte, p *pane[A]) bool {
		if p.Count > 0 {
			keys = append(keys, append([]byte(nil), key...))
		}
		return true
	})
	for _, key := range keys {
		if err != nil || a.t.Failed() {
			break
		}
		var p *pane[A]
		hash := state.Hash(key)
		if p, _, err = a.table.Update(hash, key); err == nil {
			a.setTimers(key, p.Pane, window.Pane{})
			a.fire(hash, key, p, a.w)
		}
	}
	a.t.Fail(a.step, err)
}
