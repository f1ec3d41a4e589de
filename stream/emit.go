package stream

import (
	"fmt"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// HeaderResult is the header that tells what a result of a window is worth, where Every,
// Early or LateUpdates have it emit more than one: "early", "end", "late" or "final", the
// String of a window.Mark. It is on the records of the table's stream, and stays
// with them through steps that keep headers.
const HeaderResult = "thalweg-result"

// requireEmit is a fault where an aggregation without windows cannot emit as e says.
func requireEmit(app *Topology, e window.Emit) {
	if err := e.Err(); err != nil {
		app.fault("emit", err.Error())
	} else if e != window.OnClose && e != window.OnUpdate {
		app.fault("emit", fmt.Sprintf("it cannot emit %v; take window.OnClose or window.OnUpdate", e))
	}
}

// requireWindowEmit is a fault where e is none.
func requireWindowEmit(app *Topology, e window.Emit) {
	if err := e.Err(); err != nil {
		app.fault("emit", err.Error())
	}
}

// checkMarked tells why an aggregation of windows cannot emit as e says where tables behind
// it want to know what rows were: what was emitted last is not kept.
func checkMarked(e window.Emit, wantsOld bool) (problem string) {
	if wantsOld && e != window.OnClose && e != window.OnUpdate {
		return fmt.Sprintf("emits %v, and a table behind it needs what its rows were: take window.OnClose or window.OnUpdate, "+
			"or make a table of the results with ToStream and ToTable", e)
	}
	return ""
}

// marks are the headers of results by their mark. Nil gives none.
type marks [window.FinalResult + 1][]byte

func marksOf(e window.Emit) *marks {
	if e == window.OnClose || e == window.OnUpdate {
		return nil
	}
	m := new(marks)
	for mark := window.EarlyResult; mark <= window.FinalResult; mark++ {
		m[mark] = topic.AppendHeaders(nil, []topic.Header{{Key: HeaderResult, Value: []byte(mark.String())}})
	}
	return m
}

func (m *marks) mark(meta *engine.Meta, mark window.Mark) {
	if m != nil {
		meta.SetHeaders(m[mark])
	}
}

// keepChanged declares the store of a step's ticks, of which so many bytes come before the key of
// the records; nil where it needs none.
func keepChanged(s *step, e window.Emit, before int) *storeDecl {
	if !e.Ticks() {
		return nil
	}
	d := s.keep("changed").keysBehind(timerBytes + before)
	d.together = true
	return d
}

// ticks remembers what has changed since its last result, until the clock on the wall
// comes to the next multiple of a period: a durable timer for each.
//
// Invariant: all timers that are set are set to at.
type ticks struct {
	t     *engine.Task
	step  int
	emit  window.Emit
	queue *state.TimerQueue
	at    int64 // Unix ms
}

// openTicks opens the ticks of a step; nil where there are none. ticked is called with what
// has changed, in the order of its bytes.
func openTicks(o *opening, s *step, d *storeDecl, e window.Emit, ticked func(key []byte) error) *ticks {
	if d == nil {
		return nil
	}
	store := o.openStore(d)
	if store == nil {
		return nil
	}
	all := state.NewTimers(store.Store)
	store.SetTable(all)
	k := &ticks{t: o.task, step: s.id, emit: e, queue: all.Queue(0)}
	if at, ok := k.next(); ok {
		k.at = at
	}
	k.t.OnTime(k.next, func(now int64) {
		k.t.Fail(k.step, k.queue.Pop(now, func(_ int64, key []byte, _ uint8) error { return ticked(key) }))
	})
	return k
}

// next is when the clock ticks next, if anything has changed.
func (k *ticks) next() (at int64, ok bool) {
	at, ok, err := k.queue.Next()
	k.t.Fail(k.step, err)
	return at, ok
}

// add remembers key until the next tick.
func (k *ticks) add(key []byte) {
	if _, ok := k.next(); !ok {
		k.at = k.emit.NextTick(k.t.Now()).UnixMilli()
	}
	k.t.Fail(k.step, k.queue.Add(k.at, key, 0))
}

// take tells whether key is remembered, and forgets it.
func (k *ticks) take(key []byte) bool {
	ok, err := k.queue.Has(k.at, key, 0)
	if ok && err == nil {
		err = k.queue.Cancel(k.at, key, 0)
	}
	k.t.Fail(k.step, err)
	return ok
}
