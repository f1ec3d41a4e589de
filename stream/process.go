package stream

import (
	"fmt"
	"reflect"
	"time"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// Processor handles the records of each key, one after another, with a state S of the key
// and timers, and emits results R. One value serves all tasks at the same time: what it
// remembers belongs into the state, not into the processor.
//
// What one call emits, sends and changes takes effect together, if it returns nil. An
// error or a panic drops all of it, and the step's error policy decides about the record.
type Processor[K, V, S, R any] interface {
	// Process is called for each record of a key.
	Process(ctx *Context[K, S, R], v V) error

	// Timer is called for each timer that the key has set, once its time has come.
	Timer(ctx *Context[K, S, R], t Timer) error
}

// Timer is a timer of a key.
type Timer struct {
	At   time.Time // whole milliseconds
	Wall bool      // by the node's clock instead of event time
}

// ProcessFunc is a Processor that sets no timers.
type ProcessFunc[K, V, S, R any] func(ctx *Context[K, S, R], v V) error

// Process calls f.
func (f ProcessFunc[K, V, S, R]) Process(ctx *Context[K, S, R], v V) error { return f(ctx, v) }

// Timer is never called.
func (ProcessFunc[K, V, S, R]) Timer(*Context[K, S, R], Timer) error { return nil }

func (ProcessFunc[K, V, S, R]) withoutTimers() {}

// Used is what a Processor uses besides the state of the key: a store of package state, as
// state.KV; a topic.Topic that it Sends to; a Side that it emits into; a Broadcast that it reads.
type Used interface{ Name() string }

// Process hands the records of each key to p, which has a state for each key and timers.
// uses are the stores, topics, sides and broadcasts that p calls for by their handles.
//
// Records come in the order in which they arrive, late ones too: Context.Watermark tells. A
// record without a key, or without a value, is skipped and counted.
//
// Timers are durable and fire once, a key's and all others' of the task in order of their
// time, then key, also after a restart. An event timer fires when the watermark reaches its time,
// before anything newer than that; one that is set at or before the watermark fires right
// after the call. A wall timer fires when the node's clock has come to its time or later.
//
// What is emitted has the time of the record or event timer that is handled, and the headers
// of the record. For a wall timer it has the watermark's time, or that of the timer where
// there is none yet.
//
// The state of a key is kept until Forget. A key whose state is zero when it is first asked
// for and still is when the call returns is not kept.
func (g Grouped[K, V]) Process[S, R any](p Processor[K, V, S, R], uses ...Used) Stream[K, R] {
	s := g.g.behind("process", true)
	out := &node[K, R]{step: s}
	guards[K, V](s)
	s.needsHeaders = true
	if p == nil || reflect.ValueOf(p).Kind() == reflect.Func && reflect.ValueOf(p).IsNil() {
		s.fault("process needs a Processor, not nil")
	}
	d := &processDecl[K, V, S, R]{step: s, out: out, p: p, key: g.g.key}
	if _, without := p.(interface{ withoutTimers() }); !without {
		d.timers = s.keep("timers").keysBehind(timerBytes)
	}
	if reflect.TypeFor[S]().Size() > 0 {
		d.cells = cellsOf[K, S](s, nil)
		s.cells = d.cells
		d.state = s.keep("").ownKeys()
	}
	d.uses = s.use(reflect.TypeFor[K](), uses)
	g.g.downs = append(g.g.downs, d.open)
	return Stream[K, R]{out}
}

// processDecl is a Process as it was declared.
type processDecl[K, V, S, R any] struct {
	step   *step
	out    *node[K, R]
	p      Processor[K, V, S, R]
	key    codec.Codec[K]
	cells  laidOut[S]
	state  *storeDecl // nil where S holds nothing
	timers *storeDecl // nil where none can be set
	uses   uses
}

// The queues of a step's timers.
const (
	eventQueue = iota
	wallQueue
)

// processing is a Process in one task.
type processing[K, V, S, R any] struct {
	t         *engine.Task
	step      int
	p         Processor[K, V, S, R]
	ctx       Context[K, S, R]
	guard     *guard[K, V] // nil under Fail
	own       engine.Meta  // of what timers emit
	watermark func(w int64)

	value   V // of the call
	timer   Timer
	isTimer bool
	attempt func() error
	undo    func()
	keyOf   func() (K, error)
}

// open opens the step in one task.
func (d *processDecl[K, V, S, R]) open(o *opening) engine.KeyedPort[V] {
	t, id := o.task, d.step.id
	p := &processing[K, V, S, R]{t: t, step: id, p: d.p, own: engine.Meta{Offset: -1}}
	c := &p.ctx
	c.scope = scope{t: t, step: id, watermark: window.Unknown}
	c.codec = d.key
	if d.state != nil {
		store := o.openStore(d.state)
		if store == nil {
			return engine.KeyedPort[V]{}
		}
		c.table, c.clone = state.NewTable[cell[S]](store.Store, d.cells), newCloner(d.cells.value)
		store.SetTable(c.table)
	}
	if d.timers != nil {
		store := o.openStore(d.timers)
		if store == nil {
			return engine.KeyedPort[V]{}
		}
		timers := state.NewTimers(store.Store)
		store.SetTable(timers)
		c.timers = [2]*state.TimerQueue{timers.Queue(eventQueue), timers.Queue(wallQueue)}
		t.OnTime(p.nextWall, p.ringWall)
	}
	sides := d.uses.open(o, &c.scope)
	if o.err != nil {
		return engine.KeyedPort[V]{}
	}
	c.down = d.out.open(o)
	time := fanOut(append(sides, port[struct{}, struct{}]{Watermark: c.down.Watermark, Idle: c.down.Idle}))
	p.watermark = time.Watermark
	if p.guard = openGuard[K, V](o, d.step); p.guard != nil {
		c.deferring = true
		p.attempt, p.undo, p.keyOf = p.call, c.takeBack, c.decodeKey
	}
	return engine.KeyedPort[V]{Push: p.push, Watermark: p.advance, Idle: time.Idle}
}

// push handles a record.
func (p *processing[K, V, S, R]) push(m *engine.Meta, hash uint64, key []byte, v *V) {
	p.isTimer, p.value = false, *v
	p.ctx.enter(m, hash, key)
	p.handle(m, v)
	if p.ctx.timers[eventQueue] != nil && !p.t.Failed() {
		p.fire(eventQueue, p.ctx.watermark)
	}
}

// handle makes a call, under the error policy, and lets it take effect.
func (p *processing[K, V, S, R]) handle(m *engine.Meta, v *V) {
	c := &p.ctx
	p.t.Running = p.step
	if p.guard == nil {
		if err := p.call(); err != nil {
			p.t.Fail(p.step, err)
			return
		}
	} else if !p.guard.do(m, p.keyOf, v, p.attempt, p.undo) {
		return
	}
	c.settle()
}

// call calls the program.
func (p *processing[K, V, S, R]) call() error {
	c := &p.ctx
	c.begin()
	var err error
	if p.isTimer {
		err = p.p.Timer(c, p.timer)
	} else {
		err = p.p.Process(c, p.value)
	}
	if err == nil {
		err = c.err
	}
	return err
}

// fire handles the timers up to a time.
func (p *processing[K, V, S, R]) fire(queue int, upTo int64) {
	if upTo == window.Unknown {
		return
	}
	err := p.ctx.timers[queue].Pop(upTo, func(at int64, key []byte, _ uint8) error {
		p.timer = Timer{At: time.UnixMilli(at).UTC(), Wall: queue == wallQueue}
		p.own.Time, p.own.NoKey, p.own.Deleted = at, false, false
		if w := p.ctx.watermark; p.timer.Wall && w != window.Unknown && w != window.EndOfTime {
			p.own.Time = w
		}
		var none V
		p.isTimer, p.value = true, none
		if p.guard != nil {
			p.guard.calls.timer = "event"
			if p.timer.Wall {
				p.guard.calls.timer = "wall"
			}
		}
		p.ctx.enter(&p.own, state.Hash(key), key)
		p.handle(&p.own, nil)
		if p.guard != nil {
			p.guard.calls.timer = ""
		}
		return p.t.Err()
	})
	if err != nil {
		p.t.Fail(p.step, err)
	}
}

// advance takes a watermark: timers fire before it goes on.
func (p *processing[K, V, S, R]) advance(w int64) {
	p.ctx.watermark = w
	if p.ctx.timers[eventQueue] != nil {
		p.fire(eventQueue, w)
	}
	p.t.Fail(p.step, p.ctx.expire(w))
	if p.watermark != nil && !p.t.Failed() {
		p.watermark(w)
	}
}

func (p *processing[K, V, S, R]) nextWall() (ms int64, ok bool) {
	ms, ok, err := p.ctx.timers[wallQueue].Next()
	p.t.Fail(p.step, err)
	return ms, ok
}

func (p *processing[K, V, S, R]) ringWall(now int64) { p.fire(wallQueue, now) }

// uses are what a step uses, by kind.
type uses struct {
	step   *step
	stores []usedStore
	topics []usedTopic
	sides  []openable

	broadcasts []usedBroadcast
}

type usedBroadcast struct {
	name string
	open func(o *opening) any
}

type usedStore struct {
	handle         state.Handle
	kept, expiring *storeDecl // nil for none
}

type usedTopic struct {
	name string
	step *step
}

// openable is a Side, whatever its types.
type openable interface {
	declared() *step
	openSide(o *opening) (opened any, time port[struct{}, struct{}])
}

// use declares what the step, with keys of that type, uses.
func (s *step) use(key reflect.Type, all []Used) (u uses) {
	u.step = s
	seen := make(map[string]bool)
	// keeps checks the name of a store that the step has under it.
	keeps := func(name string) {
		if !validName.MatchString(name) || name == "timers" {
			s.fault(fmt.Sprintf("invalid name of a store, %q: use 1 to 100 letters, digits, '.', '_' and '-', and not \"timers\"", name))
		}
		if seen[name] {
			s.fault(fmt.Sprintf("uses two stores named %q", name))
		}
		seen[name] = true
	}
	for _, x := range all {
		if x == nil {
			s.fault("uses nil: give stores, topics, sides and broadcasts")
			continue
		}
		name := x.Name()
		switch x := x.(type) {
		case state.Handle:
			spec := x.Spec()
			if problem := spec.Problem(); problem != "" {
				s.fault(fmt.Sprintf("store %q: %s", name, problem))
			}
			keeps(name)
			if spec.Owner != nil && spec.Owner.Type() != key {
				s.fault(fmt.Sprintf("store %q is keyed by %v, and the step by %v: give Keyed or KeyedBy the key of the step", name, spec.Owner.Type(), key))
			}
			used := usedStore{handle: x}
			if !spec.NoChangelog {
				used.kept = s.keep(name)
				used.kept.backend = spec.Backend
				used.kept.ownedAs(spec.Owner)
				if spec.TTL > 0 {
					used.expiring = s.keep(name + "-expiry").timersOf(used.kept)
				}
			}
			u.stores = append(u.stores, used)
			s.used = append(s.used, used)
		case attachable:
			switch from := x.stream(); {
			case from.app != s.app:
				s.fault(fmt.Sprintf("uses the broadcast %q of another topology", name))
			case reaches(s, from, make(map[*step]bool)):
				s.fault(fmt.Sprintf("uses the broadcast %q, which is made of what it gives: it would feed itself", name))
			default:
				keeps(name)
				u.broadcasts = append(u.broadcasts, usedBroadcast{name, x.attach(s)})
			}
		case openable:
			side := x.declared()
			if len(side.inputs) > 0 {
				s.fault(fmt.Sprintf("uses the side %q that the step at %s uses: a side has one step that emits into it", name, side.inputs[0].line))
				continue
			}
			if side.app != s.app {
				s.fault(fmt.Sprintf("uses the side %q of another topology", name))
				continue
			}
			if reaches(side, s, make(map[*step]bool)) {
				s.fault(fmt.Sprintf("uses the side %q and reads what it gives: it would feed itself", name))
				continue
			}
			side.inputs = []*step{s}
			s.outputs = append(s.outputs, side)
			u.sides = append(u.sides, x)
		case interface {
			Spec() topic.Spec
			Err() error
		}:
			to := s.app.declare("send", s)
			to.sink = &sink{topic: name, spec: x.Spec()}
			if err := x.Err(); err != nil {
				to.fault(err.Error())
			}
			u.topics = append(u.topics, usedTopic{name, to})
		default:
			s.fault(fmt.Sprintf("uses a %T: give stores of package state, topics, sides and broadcasts", x))
		}
	}
	return u
}

// reaches tells whether what s gives comes to a step.
func reaches(s, to *step, seen map[*step]bool) bool {
	if s == to {
		return true
	}
	seen[s] = true
	for _, out := range s.outputs {
		if !seen[out] && reaches(out, to, seen) {
			return true
		}
	}
	return false
}

// open opens all in one task, and returns where time goes.
func (u *uses) open(o *opening, in *scope) (times []port[struct{}, struct{}]) {
	in.stores, in.sides, in.outputs = make(map[string]state.Opened), make(map[*step]any), make(map[string]*sending)
	for _, used := range u.stores {
		opened, err := u.openStore(o, used)
		if err != nil {
			o.fail(err)
			return nil
		}
		if opened == nil {
			return nil
		}
		in.stores[used.handle.Name()] = opened
		spec := used.handle.Spec()
		if spec.TTL == 0 {
			continue
		}
		if !spec.Wall {
			in.expiring = append(in.expiring, opened)
			continue
		}
		o.task.OnTime(func() (int64, bool) {
			ms, ok, err := opened.NextExpiry()
			o.task.Fail(u.step.id, err)
			return ms, ok
		}, func(now int64) { o.task.Fail(u.step.id, opened.Expire(now)) })
	}
	for _, used := range u.topics {
		out, err := o.task.OpenOutput(used.step.id, used.name, o.run.partitions(used.name))
		if err != nil {
			o.fail(err)
			return nil
		}
		in.outputs[used.name] = &sending{out: out}
	}
	in.broadcasts = make(map[string]any)
	for _, used := range u.broadcasts {
		in.broadcasts[used.name] = used.open(o)
	}
	for _, side := range u.sides {
		opened, time := side.openSide(o)
		in.sides[side.declared()] = opened
		times = append(times, time)
	}
	return times
}

// openStore opens a store of the program's; nil without an error when the opening has failed.
func (u *uses) openStore(o *opening, used usedStore) (state.Opened, error) {
	if used.kept == nil {
		var expiry *state.Timers
		if used.handle.Spec().TTL > 0 {
			expiry = state.NewVolatileTimers()
		}
		opened, err := used.handle.Open(nil, expiry, &o.run.app.codecs)
		if err != nil {
			return nil, err
		}
		n := int64(0)
		o.task.OnBarrier(func() {
			n++
			if expiry != nil {
				o.task.Fail(u.step.id, expiry.Barrier(n, nil))
			}
			o.task.Fail(u.step.id, opened.Barrier(n, nil))
		})
		return opened, nil
	}
	var expiry *state.Timers
	if used.expiring != nil {
		store := o.openStore(used.expiring)
		if store == nil {
			return nil, nil
		}
		expiry = state.NewTimers(store.Store)
		store.SetTable(expiry)
	}
	store := o.openStore(used.kept)
	if store == nil {
		return nil, nil
	}
	opened, err := used.handle.Open(store.Store, expiry, &o.run.app.codecs)
	if err != nil {
		return nil, err
	}
	store.SetTable(opened)
	return opened, nil
}
