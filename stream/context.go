package stream

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// Context is what a Processor has to work with during one call, and valid no longer.
type Context[K, S, R any] struct {
	scope
	codec codec.Codec[K]
	down  port[K, R]

	table   *state.Table[cell[S]] // nil where S holds nothing
	clone   *cloner[S]
	state   *S // of the key, once it was asked for
	existed bool
	was     cell[S] // what the state was, where a failed call is taken back
	nothing S

	key     K
	keyRead bool
	result  R // scratch: it escapes to what follows
	timers  [2]*state.TimerQueue
}

// scope is the part of a Context that does not depend on its types.
type scope struct {
	t          *engine.Task
	step       int
	stores     map[string]state.Opened
	expiring   []state.Opened // by event time
	sides      map[*step]any
	outputs    map[string]*sending
	broadcasts map[string]any // by name
	watermark  int64
	deferring  bool // a failed call is not the end: effects wait until it returns, and state can be taken back

	m       *engine.Meta
	hash    uint64
	encoded []byte
	err     error    // first failure of the call
	effects []func() // in order
	undos   []func()
}

// Scope is satisfied by every *Context.
type Scope interface {
	state.Scope
	inner() *scope
}

func (c *scope) inner() *scope { return c }

// Scope is where handles of stores find them: their methods call it.
func (c *scope) Scope() state.Call { return storeCall{c} }

// storeCall is a call as the stores of the program see it.
type storeCall struct{ *scope }

func (c storeCall) Opened(name string) state.Opened { return c.stores[name] }
func (c storeCall) Fail(err error)                  { c.fail(err) }
func (c storeCall) Err() error                      { return c.err }
func (c storeCall) Key() []byte                     { return c.encoded }
func (c storeCall) Undo(f func())                   { c.undo(f) }
func (c storeCall) Undoes() bool                    { return c.deferring }

func (c storeCall) Instant(wall bool) int64 {
	if wall {
		return c.t.Now().UnixMilli()
	}
	return max(c.watermark, instantOf(c.t, c.m, c.watermark))
}

// instantOf is the event time of a record, or how far time has come where its own says nothing.
func instantOf(t *engine.Task, m *engine.Meta, watermark int64) int64 {
	switch {
	case !m.TooFar:
		return m.Time
	case watermark == window.Unknown:
		return t.Now().UnixMilli()
	}
	return watermark
}

// fail keeps the first failure of the call.
func (c *scope) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// undo registers what takes a change back.
func (c *scope) undo(f func()) { c.undos = append(c.undos, f) }

// effect does f, or when the call has returned.
func (c *scope) effect(f func(m *engine.Meta)) {
	m := c.m
	if c.deferring {
		c.effects = append(c.effects, func() { f(m) })
		return
	}
	f(m)
	c.t.Running = c.step
}

// expire removes from the stores what has had its time at watermark w.
func (c *scope) expire(w int64) error {
	if w == window.Unknown {
		return nil
	}
	var errs []error
	for _, o := range c.expiring {
		errs = append(errs, o.Expire(w))
	}
	return errors.Join(errs...)
}

// enter prepares for a record or timer of a key.
func (c *Context[K, S, R]) enter(m *engine.Meta, hash uint64, key []byte) {
	c.m, c.hash, c.encoded = m, hash, key
	c.keyRead = false
}

// begin prepares for a call, the first or another one for the same record.
func (c *Context[K, S, R]) begin() {
	c.err, c.state = nil, nil
	c.effects, c.undos = c.effects[:0], c.undos[:0]
}

// settle lets a call that has returned nil take effect.
func (c *Context[K, S, R]) settle() {
	if c.state != nil && !c.existed && c.table != nil && reflect.ValueOf(c.state).Elem().IsZero() {
		c.t.Fail(c.step, c.table.Delete(c.hash, c.encoded))
	}
	c.state = nil
	for i := 0; i < len(c.effects) && !c.t.Failed(); i++ {
		c.effects[i]()
	}
	clear(c.effects)
	clear(c.undos)
}

// takeBack undoes what a failed call has changed.
func (c *Context[K, S, R]) takeBack() {
	c.err = nil
	for i := len(c.undos) - 1; i >= 0; i-- {
		c.undos[i]()
	}
	if c.err != nil {
		c.t.Fail(c.step, c.err)
	}
	clear(c.effects)
	clear(c.undos)
	c.effects, c.undos = c.effects[:0], c.undos[:0]
}

// Key is the key of the record or timer.
func (c *Context[K, S, R]) Key() K {
	if !c.keyRead {
		var err error
		if c.key, err = c.codec.Decode(c.encoded); err != nil {
			c.fail(fmt.Errorf("decode key: %w", err))
		}
		c.keyRead = true
	}
	return c.key
}

func (c *Context[K, S, R]) decodeKey() (K, error) { return c.codec.Decode(c.encoded) }

// State is the state of the key, to read and change in place: zero at first, and kept when
// the call returns.
func (c *Context[K, S, R]) State() *S {
	switch {
	case c.state != nil:
		return c.state
	case c.table == nil || c.err != nil:
		var none S
		c.nothing = none
		return &c.nothing
	}
	kept, existed, err := c.table.Update(c.hash, c.encoded)
	if err != nil {
		c.fail(err)
		return &c.nothing
	}
	if c.deferring {
		c.keepWas(kept, existed)
	}
	kept.time = max(kept.time, c.m.Time)
	c.state, c.existed = &kept.value, existed
	return c.state
}

// keepWas registers what brings the state back.
func (c *Context[K, S, R]) keepWas(kept *cell[S], existed bool) {
	if !existed {
		c.undo(func() {
			if err := c.table.Delete(c.hash, c.encoded); err != nil {
				c.fail(err)
			}
		})
		return
	}
	c.was.time = kept.time
	var err error
	if c.was.value, err = c.clone.clone(&kept.value); err != nil {
		c.fail(fmt.Errorf("keep what the state is before it changes: %w", err))
		return
	}
	c.undo(func() {
		kept, _, err := c.table.Update(c.hash, c.encoded)
		if err != nil {
			c.fail(err)
			return
		}
		*kept = c.was
	})
}

// Forget drops the state of the key. Its timers stay.
func (c *Context[K, S, R]) Forget() {
	if c.table == nil || c.err != nil {
		return
	}
	c.State() // so that it can be brought back
	c.state = nil
	if err := c.table.Delete(c.hash, c.encoded); err != nil {
		c.fail(err)
	}
}

// Emit gives a result, with the key of the call. Maps, slices and pointers in it must not be those of
// State or of a store: what is behind may still read them when a later call changes them.
func (c *Context[K, S, R]) Emit(r R) {
	if c.err != nil {
		return
	}
	k := c.Key()
	if c.deferring {
		m := c.m
		c.effects = append(c.effects, func() { c.push(m, k, r) })
		return
	}
	c.push(c.m, k, r)
	c.t.Running = c.step
}

func (c *Context[K, S, R]) push(m *engine.Meta, k K, r R) {
	c.result = r
	c.down.Push(m, k, &c.result)
}

// Send writes a record to a topic, which must have been given to Process. It has the time
// and the headers that Emit would give it.
func (c *Context[K, S, R]) Send[K2, V2 any](t topic.Topic[K2, V2], k K2, v V2) {
	if c.err != nil {
		return
	}
	out, ok := c.outputs[t.Name()]
	if !ok {
		c.fail(fmt.Errorf("the step sends to topic %q, which it was not given: add it to the call of Process", t.Name()))
		return
	}
	push, err := openSending(c.t, c.step, out, t)
	if err != nil {
		c.fail(err)
		return
	}
	c.effect(func(m *engine.Meta) { push(m, k, &v) })
}

// sending is an output of a step that sends.
type sending struct {
	out  *engine.Output
	push any // func(m *engine.Meta, k K, v *V), made by the first Send
}

func openSending[K, V any](t *engine.Task, step int, s *sending, to topic.Topic[K, V]) (func(m *engine.Meta, k K, v *V), error) {
	if s.push == nil {
		w, err := newOutlet(to)
		if err != nil {
			return nil, err
		}
		s.push = w.writer(t, step, s.out)
	}
	push, ok := s.push.(func(m *engine.Meta, k K, v *V))
	if !ok {
		return nil, fmt.Errorf("the step sends to topic %q with other types than before", to.Name())
	}
	return push, nil
}

// Time is the event time of the record, or the time of the event timer; for a wall timer see
// Process.
func (c *Context[K, S, R]) Time() time.Time { return time.UnixMilli(c.m.Time).UTC() }

// Watermark is the task's: no record older than it is expected. It is the zero Time while
// there is none.
func (c *Context[K, S, R]) Watermark() time.Time {
	if c.watermark == window.Unknown {
		return time.Time{}
	}
	return time.UnixMilli(c.watermark).UTC()
}

// Now is the time of the node's clock.
func (c *Context[K, S, R]) Now() time.Time { return c.t.Now() }

// Headers are those of the record; their values are valid during the call. A timer has none.
func (c *Context[K, S, R]) Headers() []topic.Header { return c.m.Headers() }

// Context ends when the attempt does, which the call should not outlast.
func (c *Context[K, S, R]) Context() context.Context { return c.t.Context() }

// SetTimer has Timer called once event time has come to at, to the millisecond above. The same
// timer set twice fires once.
func (c *Context[K, S, R]) SetTimer(at time.Time) { c.setTimer(eventQueue, at) }

// SetWallTimer has Timer called once the node's clock has come to at, to the millisecond above.
func (c *Context[K, S, R]) SetWallTimer(at time.Time) { c.setTimer(wallQueue, at) }

func (c *Context[K, S, R]) setTimer(queue int, at time.Time) {
	q := c.timers[queue]
	if q == nil {
		c.fail(errors.New("a ProcessFunc sets a timer and has nothing to handle it: make it a Processor, with a method Timer"))
		return
	}
	c.timing(func(key []byte) error { return q.Add(timerMs(at), key, 0) })
}

// CancelTimer removes a timer of the key. One that is not set, or has fired, is no mistake.
func (c *Context[K, S, R]) CancelTimer(t Timer) {
	q := c.timers[eventQueue]
	if t.Wall {
		q = c.timers[wallQueue]
	}
	if q != nil {
		c.timing(func(key []byte) error { return q.Cancel(timerMs(t.At), key, 0) })
	}
}

// timing changes a timer of the key, when the call has returned if it may be taken back.
func (c *Context[K, S, R]) timing(change func(key []byte) error) {
	if c.err != nil {
		return
	}
	if !c.deferring {
		if err := change(c.encoded); err != nil {
			c.fail(err)
		}
		return
	}
	c.effects = append(c.effects, func() { c.t.Fail(c.step, change(c.encoded)) })
}

// timerMs is the first millisecond that is not before at.
func timerMs(at time.Time) int64 {
	ms := at.UnixMilli()
	if at.Sub(time.UnixMilli(ms)) > 0 {
		ms++
	}
	return ms
}
