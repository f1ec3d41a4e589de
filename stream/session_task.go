package stream

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// sessioning is an aggregation by key and session in one task.
//
// A session has one timer. It is set for when the session as it began would close; when it
// fires and the session has grown it is set anew, so growing costs no timer. Sessions
// that have become one keep the latest of their timers, and the others find nothing.
type sessioning[K, V, A any] struct {
	t     *engine.Task
	step  int
	spec  window.Session
	alone func(t int64, v V) window.Span // nil where the gap is that of spec
	key   codec.Codec[K]
	fold  fold[A, V]
	merge func(A, A) A
	emits window.Emit

	table  *state.Table[openSessions[A]]
	timers *state.TimerQueue
	w      int64 // watermark
	before int64 // the one before
	// longest is the longest gap of a record so far, in ms; part of the checkpoint.
	longest int64

	change  func(key K, span window.Span, c change[A], mark window.Mark) // pushes a change of the row of a session
	marked  bool                                                         // results are more than one, and marked
	ticks   *ticks                                                       // nil where the clock on the wall has no say
	old     bool                                                         // changes must tell what rows were
	clone   *cloner[A]
	down    func(w int64) // may be nil
	idle    func()        // likewise
	late    port[K, V]
	counted bool // nothing reads what is late

	guard *guard[K, V] // nil where a failure ends the job
	now   joined[A]    // what becomes of the record being pushed

	closing []closingSession // sessions that close or end at the same time
	keys    []byte           // theirs
	at      int64            // when those in closing do
	spans   []window.Span    // scratch
}

// joined is what becomes of the sessions of a key when a record comes.
type joined[A any] struct {
	span     window.Span // takes the place of open[from:to]
	from, to int
	late     bool
	value    A
	was      []window.Span // of open[from:to]
	olds     []A           // likewise their aggregates, where somebody asks for them
}

// closingSession is a session that closes or ends, of the key in sessioning.keys.
type closingSession struct {
	window.Span
	stays    bool // it does not close yet
	from, to int  // its key
}

func (a *sessioning[K, V, A]) open(o *opening, rows, timers *storeDecl, cells codec.Codec[openSessions[A]]) engine.KeyedPort[V] {
	store := o.openStore(rows)
	if store == nil {
		return engine.KeyedPort[V]{}
	}
	a.table = state.NewTable[openSessions[A]](store.Store, cells)
	store.SetTable(a.table)
	if store = o.openStore(timers); store == nil {
		return engine.KeyedPort[V]{}
	}
	all := state.NewTimers(store.Store)
	store.SetTable(all)
	a.timers = all.Queue(0)
	if a.alone != nil {
		a.rememberLongest(rows.step.name)
	}
	return engine.KeyedPort[V]{Push: a.pusher(), Watermark: a.advance, Idle: a.idle, Touch: func(hashes []uint64) {
		if a.table.Bytes() > touchBytes {
			a.table.Touch(hashes)
		}
	}}
}

// rememberLongest makes the longest gap a part of the checkpoint.
func (a *sessioning[K, V, A]) rememberLongest(step string) {
	a.t.AddClock(engine.LongestGap+step,
		func(b []byte) []byte { return binary.AppendVarint(b, a.longest) },
		func(b []byte) error {
			r := numbers{src: b}
			if a.longest = r.varint(); r.damaged || len(r.src) > 0 {
				return errSessions
			}
			return nil
		},
		func() {})
}

// pusher is how a record comes in, under the step's error policy.
func (a *sessioning[K, V, A]) pusher() func(m *engine.Meta, hash uint64, key []byte, v *V) {
	if a.guard == nil {
		return func(m *engine.Meta, hash uint64, key []byte, v *V) {
			if m.TooFar {
				a.tooLate(m, key, v)
			} else if row, ok := a.sessionsOf(hash, key); ok {
				a.join(row, m.Time, v, func(value *A) A { return *value })
				a.settle(m, hash, key, v)
			}
		}
	}
	// A failed function must not have changed what is kept: it gets copies.
	var (
		row     []openSession[A]
		time    int64
		value   *V
		encoded []byte
		failed  error
	)
	copied := func(value *A) A {
		c, err := a.clone.clone(value)
		if err != nil {
			failed = err
		}
		return c
	}
	attempt := func() error {
		a.join(row, time, value, copied)
		return nil
	}
	decode := func() (K, error) { return a.key.Decode(encoded) }
	return func(m *engine.Meta, hash uint64, key []byte, v *V) {
		if m.TooFar {
			a.tooLate(m, key, v)
			return
		}
		var ok bool
		if row, ok = a.sessionsOf(hash, key); !ok {
			return
		}
		time, value, encoded, failed = m.Time, v, key, nil
		ok = a.guard.do(m, decode, v, attempt, nil)
		if failed != nil {
			a.t.Fail(a.step, fmt.Errorf("copy an aggregate before a function changes it: %w", failed))
			return
		}
		if ok {
			a.settle(m, hash, key, v)
		}
	}
}

// sessionsOf are the open sessions of a key, to be read; ok is false where that failed.
func (a *sessioning[K, V, A]) sessionsOf(hash uint64, key []byte) (open []openSession[A], ok bool) {
	row, found, err := a.table.Get(hash, key)
	if err != nil {
		a.t.Fail(a.step, err)
		return nil, false
	}
	if !found {
		return nil, true
	}
	return row.open, true
}

// join finds what becomes of the open sessions of a key when a record at time comes, and
// what the aggregate is then. It takes aggregates as take gives them.
func (a *sessioning[K, V, A]) join(open []openSession[A], time int64, v *V, take func(*A) A) {
	a.t.Running = a.step
	alone := a.spec.At(time)
	if a.alone != nil {
		alone = a.alone(time, *v)
		a.longest = max(a.longest, alone.Until-time)
	}
	a.spans = a.spans[:0]
	for i := range open {
		a.spans = append(a.spans, open[i].Span)
	}
	j := &a.now
	j.span, j.from, j.to, j.late = a.spec.Merge(a.spans, alone, a.w)
	var none A
	if j.value, j.olds = none, j.olds[:0]; j.late {
		return
	}
	for i := j.from; i < j.to && a.old; i++ {
		was, err := a.clone.clone(&open[i].value)
		if err != nil {
			a.t.Fail(a.step, err)
		}
		j.olds = append(j.olds, was)
	}
	if j.from < j.to {
		j.value = take(&open[j.from].value)
		for i := j.from + 1; i < j.to; i++ {
			j.value = a.merge(j.value, take(&open[i].value))
		}
	}
	a.fold(&j.value, j.from == j.to, v)
}

// settle makes what join found the state of the key, and emits it where every change is.
func (a *sessioning[K, V, A]) settle(m *engine.Meta, hash uint64, key []byte, v *V) {
	j := &a.now
	if j.late {
		a.tooLate(m, key, v)
		return
	}
	row, _, err := a.table.Update(hash, key)
	if err != nil {
		a.t.Fail(a.step, err)
		return
	}
	made := openSession[A]{Span: j.span, value: j.value, timer: window.Unknown}
	j.was = j.was[:0]
	for _, was := range row.open[j.from:j.to] {
		made.timer = max(made.timer, was.timer)
		made.changed = made.changed || was.changed
		made.shown = append(made.shown, was.shown...)
		j.was = append(j.was, was.Span)
	}
	if due := a.dueAt(j.span, a.w); j.from == j.to || made.timer > due {
		made.timer = due
		err = a.timers.Add(due, key, 0)
	}
	mark, shown := a.emits.Updated(a.spec.EndsAt(j.span), a.w), made.shown
	switch {
	case a.marked && mark != window.NoResult:
		made.show()
	case a.ticks != nil && !made.changed:
		made.changed = true
		a.ticks.add(key)
	}
	row.open = slices.Replace(row.open, j.from, j.to, made)
	switch {
	case err != nil:
		a.t.Fail(a.step, err)
	case a.emits == window.OnUpdate:
		a.update(key)
	case a.marked && mark != window.NoResult:
		a.emit(key, j.span, shown, mark)
	}
}

// dueAt is when a session is to be looked at, behind watermark w: when it ends, where there is a
// result of that, or else closes.
func (a *sessioning[K, V, A]) dueAt(span window.Span, w int64) int64 {
	if ends := a.spec.EndsAt(span); a.emits.Ends() && ends > w {
		return ends
	}
	return a.spec.ClosesAt(span)
}

// emit emits a result of a session, which is in now, and deletes those of the windows it had
// before.
func (a *sessioning[K, V, A]) emit(key []byte, span window.Span, shown []window.Span, mark window.Mark) {
	k, ok := a.decode(key)
	if !ok {
		return
	}
	made := change[A]{new: &a.now.value}
	for _, was := range shown {
		if was.First == span.First && was.Last == span.Last {
			made.had, made.oldTime = true, was.Last
		} else if a.change(k, was, change[A]{had: true, oldTime: was.Last}, mark); a.t.Failed() {
			return
		}
	}
	a.change(k, span, made, mark)
}

// ticked emits the sessions of a key that have changed since their last result, now that the
// clock ticks.
func (a *sessioning[K, V, A]) ticked(key []byte) error {
	hash := state.Hash(key)
	open, ok := a.sessionsOf(hash, key)
	for i := 0; ok && i < len(open); i++ {
		if !open[i].changed {
			continue
		}
		row, _, err := a.table.Update(hash, key)
		if err != nil {
			return err
		}
		open = row.open
		s := &open[i]
		s.changed = false
		if mark := a.emits.Ticked(a.spec.EndsAt(s.Span), a.w); mark != window.NoResult {
			a.now.value = s.value
			a.emit(key, s.Span, s.show(), mark)
		}
	}
	return a.t.Err()
}

// update emits what the record changed: the rows of sessions whose window is another one
// now are deleted, and there is one of the session that they make.
func (a *sessioning[K, V, A]) update(key []byte) {
	k, ok := a.decode(key)
	if !ok {
		return
	}
	j := &a.now
	made := change[A]{new: &j.value}
	for i, was := range j.was {
		c := change[A]{had: true, oldTime: was.Last}
		if a.old {
			c.old = &j.olds[i]
		}
		if was.First == j.span.First && was.Last == j.span.Last {
			made.had, made.old, made.oldTime = true, c.old, was.Last
		} else if a.change(k, was, c, window.NoResult); a.t.Failed() {
			return
		}
	}
	a.change(k, j.span, made, window.NoResult)
}

// tooLate hands on a record that belongs to no open session.
func (a *sessioning[K, V, A]) tooLate(m *engine.Meta, key []byte, v *V) {
	if a.counted {
		a.t.Counters().Late++
	} else if k, ok := a.decode(key); ok {
		a.late.Push(m, k, v)
	}
}

func (a *sessioning[K, V, A]) decode(key []byte) (k K, ok bool) {
	k, err := a.key.Decode(key)
	if err != nil {
		a.t.Fail(a.step, fmt.Errorf("decode key: %w", err))
	}
	return k, err == nil
}

// advance closes the sessions that watermark w closes, and passes on a watermark that no
// result still to come is below.
func (a *sessioning[K, V, A]) advance(w int64) {
	a.before, a.w = a.w, w
	err := a.timers.Pop(w, func(at int64, key []byte, _ uint8) error { return a.due(at, key) })
	if err == nil {
		err = a.close()
	}
	if a.t.Fail(a.step, err); a.t.Failed() {
		return
	}
	if a.late.Watermark != nil {
		a.late.Watermark(w)
	}
	if a.down != nil {
		a.down(a.spec.OldestOpen(w, a.longest))
	}
}

// next is the time of the first timer.
func (a *sessioning[K, V, A]) next() (at int64, ok bool) {
	at, ok, err := a.timers.Next()
	a.t.Fail(a.step, err)
	return at, ok
}

// due looks at the sessions of a key whose timer is set to at: those that close then are
// put aside until all of that time are found, the others have grown.
func (a *sessioning[K, V, A]) due(at int64, key []byte) error {
	if at != a.at {
		if err := a.close(); err != nil {
			return err
		}
		a.at = at
	}
	hash := state.Hash(key)
	open, ok := a.sessionsOf(hash, key)
	for i := 0; ok && i < len(open); i++ {
		s := open[i]
		if s.timer != at {
			continue
		}
		closes := a.spec.ClosesAt(s.Span)
		if next := a.dueAt(s.Span, at); closes > at {
			row, _, err := a.table.Update(hash, key)
			if err != nil {
				return err
			}
			open = row.open
			open[i].timer = next
			if err := a.timers.Add(next, key, 0); err != nil {
				return err
			}
			if !a.emits.Ends() || a.spec.EndsAt(s.Span) != at || closes <= a.w {
				continue
			}
		}
		from := len(a.keys)
		a.keys = append(a.keys, key...)
		a.closing = append(a.closing, closingSession{s.Span, closes > at, from, len(a.keys)})
	}
	return a.t.Err()
}

// close closes the sessions put aside, or emits the results of their ends, by their last
// time, then first, then key.
func (a *sessioning[K, V, A]) close() error {
	slices.SortFunc(a.closing, func(x, y closingSession) int {
		return cmp.Or(cmp.Compare(x.Last, y.Last), cmp.Compare(x.First, y.First), bytes.Compare(a.keys[x.from:x.to], a.keys[y.from:y.to]))
	})
	for _, c := range a.closing {
		key := a.keys[c.from:c.to]
		s, err := a.take(key, c.Span, c.stays)
		if err != nil {
			return err
		}
		mark := a.emits.Ended()
		if !c.stays {
			mark = a.emits.Closed(s.changed, a.spec.EndsAt(c.Span), a.before)
		}
		if a.now.value = s.value; mark != window.NoResult {
			a.emit(key, c.Span, s.shown, mark)
		}
		if a.t.Failed() {
			return a.t.Err()
		}
	}
	a.closing, a.keys = a.closing[:0], a.keys[:0]
	return nil
}

// take returns a session as it is, and removes it, or has its result out.
func (a *sessioning[K, V, A]) take(key []byte, span window.Span, stays bool) (s openSession[A], err error) {
	hash := state.Hash(key)
	row, _, err := a.table.Update(hash, key)
	if err != nil {
		return s, err
	}
	i := slices.IndexFunc(row.open, func(s openSession[A]) bool { return s.Span == span })
	if s = row.open[i]; stays {
		row.open[i].show()
		return s, nil
	}
	if row.open = slices.Delete(row.open, i, i+1); len(row.open) == 0 {
		err = a.table.Delete(hash, key)
	}
	return s, err
}
