package stream

import (
	"fmt"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// joining is a join of two streams in one task.
type joining[K, V, V2, R any] struct {
	t     *engine.Task
	step  int
	key   codec.Codec[K]
	spec  window.Join
	pair  pairs[K, V, V2, R]
	left  matching[K, V]
	right matching[K, V2]
	down  port[K, R]

	timers *state.TimerQueue // closes records that have no match yet, by side; nil in an inner join
	time   *inputTimes
	w      int64 // watermark of both

	own    engine.Meta  // of what is emitted
	came   *engine.Meta // of the record that it is emitted for; nil for one that has no match
	result R
}

// matching is one side of a join in one task.
type matching[K, V any] struct {
	table    *state.WindowTable[pile[V]] // rows by piles of time, and key
	pileMs   int64
	keep     bool                           // rows without a match come out too
	closesAt func(t int64) int64            // the watermark that closes a row at t
	matches  func(t int64) (from, to int64) // times of the other side that match a row at t
	late     port[K, V]
	counted  bool // nothing reads what is late
}

// Tags of timers.
const (
	leftTag uint8 = iota
	rightTag
)

func openSide[K, V any](o *opening, s *step, d *joinSide[K, V], keep bool, closesAt func(int64) int64,
	matches func(int64) (int64, int64)) matching[K, V] {
	m := matching[K, V]{pileMs: d.pileMs, keep: keep, closesAt: closesAt, matches: matches, counted: len(d.late) == 0}
	m.late = d.openLate(o)
	if store := o.openStore(d.store); store != nil {
		m.table = state.NewWindowTable[pile[V]](store.Store, d.rows)
		store.SetTable(m.table)
	}
	return m
}

func (j *joining[K, V, V2, R]) openTimers(o *opening, d *storeDecl) {
	if d == nil {
		return
	}
	if store := o.openStore(d); store != nil {
		timers := state.NewTimers(store.Store)
		store.SetTable(timers)
		j.timers = timers.Queue(0)
	}
}

func (j *joining[K, V, V2, R]) pushLeft(m *engine.Meta, hash uint64, key []byte, v *V) {
	j.arrive(&j.left, &j.right, leftTag, m, hash, key, v, j.emit)
}

func (j *joining[K, V, V2, R]) pushRight(m *engine.Meta, hash uint64, key []byte, v2 *V2) {
	j.arrive(&j.right, &j.left, rightTag, m, hash, key, v2, func(m *engine.Meta, key []byte, v2 *V2, v *V) { j.emit(m, key, v, v2) })
}

// arrive takes a record of one side: it is paired with the open rows of the other that
// match it, oldest first, and kept for those to come.
func (j *joining[K, V, V2, R]) arrive[A, B any](own *matching[K, A], other *matching[K, B], tag uint8,
	m *engine.Meta, hash uint64, key []byte, a *A, emit func(m *engine.Meta, key []byte, a *A, b *B)) {
	j.own.Time, j.own.Offset, j.own.NoKey = m.Time, m.Offset, m.NoKey
	j.came = m
	if m.TooFar || j.w >= own.closesAt(m.Time) {
		j.tooLate(own, m, key, a)
		return
	}
	if m.NoKey { // only where it comes out without a match
		emit(&j.own, key, a, nil)
		return
	}
	matched := false
	from, to := own.matches(m.Time)
	for start := range pilesIn(from, to, other.pileMs) {
		p, ok, err := other.table.Get(start, hash, key)
		if err != nil {
			j.t.Fail(j.step, err)
			return
		}
		if !ok {
			continue
		}
		first := false // the first match of some row
		for i := range p.rows {
			r := &p.rows[i]
			if r.time < from || r.time > to || j.w >= other.closesAt(r.time) {
				continue
			}
			matched, first = true, first || !r.matched
			j.own.Time = max(m.Time, r.time)
			if emit(&j.own, key, a, &r.value); j.t.Failed() {
				return
			}
		}
		if first && other.keep {
			if p, _, err = other.table.Update(start, hash, key); err != nil {
				j.t.Fail(j.step, err)
				return
			}
			for i := range p.rows {
				if r := &p.rows[i]; r.time >= from && r.time <= to && j.w < other.closesAt(r.time) {
					r.matched = true
				}
			}
		}
	}
	j.store(own, tag, m.Time, hash, key, piled[A]{m.Time, matched, *a})
}

// store keeps a row, and sees to it that one without a match comes out when it closes.
func (j *joining[K, V, V2, R]) store[A any](own *matching[K, A], tag uint8, t int64, hash uint64, key []byte, r piled[A]) {
	p, _, err := own.table.Update(pileOf(t, own.pileMs), hash, key)
	if err == nil {
		p.add(r)
		if own.keep && !r.matched {
			err = j.timers.Add(own.closesAt(t), key, tag)
		}
	}
	j.t.Fail(j.step, err)
}

// tooLate hands on a record that no match could come for any more.
func (j *joining[K, V, V2, R]) tooLate[A any](own *matching[K, A], m *engine.Meta, key []byte, a *A) {
	if own.counted {
		j.t.Counters().Late++
		return
	}
	k, ok := j.decode(m, key)
	if ok {
		own.late.Push(m, k, a)
	}
}

func (j *joining[K, V, V2, R]) decode(m *engine.Meta, key []byte) (k K, ok bool) {
	if m.NoKey {
		return k, true
	}
	k, err := j.key.Decode(key)
	if err != nil {
		j.t.Fail(j.step, fmt.Errorf("decode key: %w", err))
	}
	return k, err == nil
}

// emit pushes what a pair, or one side of it, gives.
func (j *joining[K, V, V2, R]) emit(m *engine.Meta, key []byte, v *V, v2 *V2) {
	k, ok := j.decode(m, key)
	if !ok {
		return
	}
	if j.result, ok = j.pair.made(m, j.came, k, v, v2); ok {
		j.down.Push(m, k, &j.result)
	}
}

// advance moves the watermark of both sides to w: what has no match and is closed comes
// out, by the time it closed, then key, then side; and piles that are closed go.
func (j *joining[K, V, V2, R]) advance(w int64) {
	j.w, j.came = w, nil
	if j.timers != nil {
		err := j.timers.Pop(w, func(at int64, key []byte, tag uint8) error {
			if tag == leftTag {
				return j.left.unmatched(at, key, func(t int64, v *V) error {
					j.own = engine.Meta{Time: t, Offset: -1}
					j.emit(&j.own, key, v, nil)
					return j.t.Err()
				})
			}
			return j.right.unmatched(at, key, func(t int64, v2 *V2) error {
				j.own = engine.Meta{Time: t, Offset: -1}
				j.emit(&j.own, key, nil, v2)
				return j.t.Err()
			})
		})
		j.t.Fail(j.step, err)
	}
	j.t.Fail(j.step, j.left.drop(w))
	j.t.Fail(j.step, j.right.drop(w))
	if j.t.Failed() {
		return
	}
	for _, f := range []func(int64){j.left.late.Watermark, j.right.late.Watermark} {
		if f != nil {
			f(w)
		}
	}
	if j.down.Watermark != nil {
		j.down.Watermark(j.spec.OldestOpen(w))
	}
}

// unmatched calls f for the rows of a key that close at a watermark without a match.
func (m *matching[K, V]) unmatched(at int64, key []byte, f func(t int64, v *V) error) error {
	t := at - m.closesAt(0)
	p, ok, err := m.table.Get(pileOf(t, m.pileMs), state.Hash(key), key)
	if err != nil || !ok {
		return err
	}
	for i := range p.rows {
		if r := &p.rows[i]; r.time == t && !r.matched {
			if err := f(t, &r.value); err != nil {
				return err
			}
		}
	}
	return nil
}

// drop forgets the piles of which every row is closed.
func (m *matching[K, V]) drop(w int64) error {
	for {
		start, ok := m.table.Oldest()
		if !ok || w < m.closesAt(plus(start, m.pileMs-1)) {
			return nil
		}
		if err := m.table.CloseWindow(start, func([]byte, *pile[V]) error { return nil }); err != nil {
			return err
		}
	}
}
