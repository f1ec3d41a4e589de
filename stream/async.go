package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// Defaults of Async.
const (
	DefaultAsyncLimit   = 64
	DefaultAsyncTimeout = 30 * time.Second
)

// Async says how MapAsync makes its calls. The zero value suits many.
type Async struct {
	// Limit is how many records of a task may be at the step: in a call, or waiting for one, or
	// for the result of an earlier record of their key. With as many the task reads no more. A
	// task that reads what others send it may have a batch more than that waiting; there are
	// never more calls at a time. Zero means DefaultAsyncLimit.
	Limit int

	// Timeout ends the context of a call. Zero means DefaultAsyncTimeout, negative none.
	Timeout time.Duration

	// Retries is how often a call that fails is made again before the step's error policy
	// decides about the record. Zero means not at all.
	Retries int

	// Backoff is the wait before the first of these calls. It doubles with each, up to
	// MaxBackoff. Zero means DefaultBackoff and DefaultMaxBackoff.
	Backoff, MaxBackoff time.Duration

	// Unordered lets each result go on when it is there. Without it the results of a key have the
	// order of its records.
	Unordered bool
}

// withDefaults returns a resolved copy, or what is wrong with it.
func (a Async) withDefaults() (Async, string) {
	switch {
	case a.Limit < 0:
		return a, fmt.Sprintf("Async.Limit of %d: give 1 or more, or 0 for %d", a.Limit, DefaultAsyncLimit)
	case a.Retries < 0:
		return a, fmt.Sprintf("Async.Retries of %d: give 0 or more", a.Retries)
	case a.Backoff < 0 || a.MaxBackoff < 0 || a.MaxBackoff > 0 && a.MaxBackoff < a.Backoff:
		return a, fmt.Sprintf("Async.Backoff of %v and MaxBackoff of %v: give two waits, the second not below the first", a.Backoff, a.MaxBackoff)
	}
	if a.Limit == 0 {
		a.Limit = DefaultAsyncLimit
	}
	if a.Timeout == 0 {
		a.Timeout = DefaultAsyncTimeout
	}
	if a.Backoff == 0 {
		a.Backoff = DefaultBackoff
	}
	if a.MaxBackoff == 0 {
		a.MaxBackoff = max(DefaultMaxBackoff, a.Backoff)
	}
	return a, ""
}

// MapAsync replaces each value by what f makes of it, with calls that wait for something
// outside: several run at a time, beside the task, which goes on reading.
//
// Results of a key come in the order of its records, while their calls run at the same
// time. The watermark does not overtake a record whose call is not over. A record without a
// value goes on as it is, in its place.
//
// f must come back when its context ends, which it does after Async.Timeout and when the
// run ends: until then its place among Limit is taken. A call that fails in the end, or
// panics, is what OnError decides about; the calls that Retry asks for are made after
// Async.Retries, and beside the task too.
//
// A checkpoint does not wait for calls: the records they are for are part of it. After a
// restart these calls are made again, and their results count once.
//
// The step has state, and with it a name that lasts; see As.
func (s Stream[K, V]) MapAsync[R any](how Async, f func(context.Context, V) (R, error)) Stream[K, R] {
	st := s.n.step.app.declare("map async", s.n.step)
	out := &node[K, R]{step: st}
	requireFunc(st, f == nil)
	guards[K, V](st)
	how, problem := how.withDefaults()
	if problem != "" {
		st.fault(problem)
	}
	st.needsKey, st.unkeyed = true, true
	key, err := st.app.codecs.Inner[K]()
	if err != nil {
		st.fault(fmt.Sprintf("no codec for the key: %v", err))
	}
	value, l := layoutOf[K, V](st, "records on their way, ")
	store := st.keep("").keysBehind(windowBytes)
	store.numbered, store.anyTask = true, how.Unordered
	d := &asyncDecl[K, V, R]{step: st, out: out, how: how, f: f, key: key, records: asyncCodec[V]{value, l}, store: store}
	connect(s.n, st, d.open)
	return Stream[K, R]{out}
}

// asyncDecl is a MapAsync as it was declared.
type asyncDecl[K, V, R any] struct {
	step    *step
	out     *node[K, R]
	how     Async
	f       func(context.Context, V) (R, error)
	key     codec.Codec[K]
	records asyncCodec[V]
	store   *storeDecl
}

// mapping is a MapAsync in one task.
type mapping[K, V, R any] struct {
	d      *asyncDecl[K, V, R]
	t      *engine.Task
	guard  *guard[K, V] // nil under Fail
	values *cloner[V]
	table  *state.Table[asyncRecord[V]] // what is pending, as of the last barrier
	calls  *engine.Calls
	order  asyncOrder[*asyncCall[K, V, R]]
	down   port[K, R]

	headers   bool  // something behind reads them
	w         int64 // watermark of the input
	forwarded int64 // the watermark that has gone on
	saved     int64 // the same in the checkpoint the attempt starts from
	idle      bool  // that the input is idle has gone on
	buf       []byte
}

// asyncCall is a record on its way through the step.
type asyncCall[K, V, R any] struct {
	meta   engine.Meta
	key    K
	value  V
	w      int64 // of the input when the record came
	hash   uint64
	stored []byte // its key in the table, once it is there

	result R
	err    error
}

// open opens the step in one task.
func (d *asyncDecl[K, V, R]) open(o *opening) port[K, V] {
	a := &mapping[K, V, R]{d: d, t: o.task, w: window.Unknown, forwarded: window.Unknown, saved: window.Unknown,
		headers: d.step.headersAreRead() || d.step.policy().letters != nil}
	a.values, a.order.unordered = newCloner(d.records.value), d.how.Unordered
	store := o.openStore(d.store)
	if store == nil {
		return port[K, V]{}
	}
	a.table = state.NewTable[asyncRecord[V]](store.Store, d.records)
	store.SetTable(a.table)
	a.calls = o.task.OpenCalls(d.how.Limit)
	a.down = d.out.open(o)
	a.guard = openGuard[K, V](o, d.step)
	o.task.OnBarrier(a.barrier)
	in := port[K, V]{Push: a.push, Watermark: a.watermark, Idle: a.becomeIdle}
	a.t.AddClock(engine.CallsOf+d.step.name, a.save, a.load, a.resume)
	if err := a.restore(); err != nil {
		o.fail(fmt.Errorf("step %q: what was on its way: %w", d.step.name, err))
	}
	return in
}

// push takes a record.
func (a *mapping[K, V, R]) push(m *engine.Meta, k K, v *V) {
	if a.idle { // time behind has not waited for this input, and has to again
		a.idle = false
		if a.down.Watermark != nil && a.forwarded != window.Unknown {
			a.down.Watermark(a.forwarded)
		}
	}
	c := &asyncCall[K, V, R]{meta: *m, key: k, w: a.w}
	var headers []byte
	if a.headers {
		headers = m.AppendHeaders(nil)
	}
	c.meta.SetHeaders(headers)
	var err error
	if a.buf, err = a.encodeKey(a.buf[:0], c); err != nil {
		a.t.Fail(a.d.step.id, fmt.Errorf("encode key: %w", err))
		return
	}
	if !m.Deleted {
		if c.value, err = a.values.clone(v); err != nil { // it may be one that an operator above goes on to change
			a.t.Fail(a.d.step.id, fmt.Errorf("copy the value: %w", err))
			return
		}
	}
	p := a.order.arrive(orderKey(m.NoKey, a.buf), c)
	if m.Deleted {
		a.finish(p)
		return
	}
	a.begin(p)
}

func (a *mapping[K, V, R]) encodeKey(dst []byte, c *asyncCall[K, V, R]) ([]byte, error) {
	if c.meta.NoKey {
		return dst, nil
	}
	return a.d.key.Append(dst, c.key)
}

// orderKey tells keys apart, and records without one from all others.
func orderKey(noKey bool, encoded []byte) string {
	if noKey {
		return ""
	}
	return "k" + string(encoded)
}

// begin starts the call of a record, which has arrived.
func (a *mapping[K, V, R]) begin(p *pendingCall[*asyncCall[K, V, R]]) {
	c := p.item
	a.told()
	a.calls.Start(func(ctx context.Context) { a.call(ctx, c) }, func(err error) {
		if err != nil {
			c.err = err
		}
		a.finish(p)
	})
}

// told says what is pending.
func (a *mapping[K, V, R]) told() { a.calls.Pending(a.order.pending, a.order.first(), a.order.next) }

// call makes the calls for one record, beside the task.
func (a *mapping[K, V, R]) call(ctx context.Context, c *asyncCall[K, V, R]) {
	if c.meta.Deleted { // was held when the job stopped
		return
	}
	own := ErrorPolicy{first: a.d.how.Backoff, limit: a.d.how.MaxBackoff}
	policy := a.d.step.policy()
	for n := 0; ; n++ {
		if c.err = a.once(ctx, c); c.err == nil || ctx.Err() != nil {
			return
		}
		wait := own.wait(n)
		if again := n - a.d.how.Retries; again >= 0 {
			if again >= policy.retries {
				return
			}
			wait = policy.wait(again)
		}
		if !a.t.Sleep(wait) {
			return
		}
	}
}

// once makes one call.
func (a *mapping[K, V, R]) once(ctx context.Context, c *asyncCall[K, V, R]) error {
	limit := a.d.how.Timeout
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	err := safely(func() (err error) {
		c.result, err = a.d.f(ctx, c.value)
		return err
	})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the call took longer than Async.Timeout, %v: %w", limit, err)
	}
	return err
}

// finish hands on the results that may go now, and time behind them.
func (a *mapping[K, V, R]) finish(p *pendingCall[*asyncCall[K, V, R]]) {
	a.order.finish(p, a.emit)
	a.told()
	a.passTime()
}

// emit hands on the result of a record, or has the error policy decide about it.
func (a *mapping[K, V, R]) emit(c *asyncCall[K, V, R]) {
	if a.t.Failed() {
		return
	}
	if c.stored != nil {
		a.t.Fail(a.d.step.id, a.table.Delete(c.hash, c.stored))
	}
	a.t.About(&c.meta)
	a.t.Running = a.d.step.id
	switch {
	case c.err == nil:
		a.down.Push(&c.meta, c.key, &c.result)
	case a.guard == nil:
		failStep(a.t, a.d.step.id, c.err)
	default:
		a.guard.giveUp(&c.meta, func() (K, error) { return c.key, nil }, &c.value, c.err)
	}
}

// watermark takes that of the input.
func (a *mapping[K, V, R]) watermark(w int64) {
	a.w = w
	a.order.mark(w, false)
	a.passTime()
}

// becomeIdle takes that the input is idle.
func (a *mapping[K, V, R]) becomeIdle() {
	a.order.mark(a.w, true)
	a.passTime()
}

// passTime lets time go on as far as nothing is pending before it.
func (a *mapping[K, V, R]) passTime() {
	w, idle, ok := a.order.time()
	if !ok || a.t.Failed() {
		return
	}
	a.pass(w)
	if idle && !a.idle && !a.t.Failed() {
		a.idle = true
		if a.down.Idle != nil {
			a.down.Idle()
		}
	}
}

func (a *mapping[K, V, R]) pass(w int64) {
	if w <= a.forwarded {
		return
	}
	a.forwarded, a.idle = w, false
	if a.down.Watermark != nil {
		a.down.Watermark(w)
	}
}

// barrier puts what is pending, and was not at the last barrier, into the state.
func (a *mapping[K, V, R]) barrier() {
	for p := a.order.newest; p != nil && p.item.stored == nil; p = p.before {
		c := p.item
		key, err := a.encodeKey(nil, c)
		if err != nil {
			a.t.Fail(a.d.step.id, fmt.Errorf("encode key: %w", err))
			return
		}
		c.stored = state.AppendWindowKey(nil, p.n, key)
		c.hash = state.Hash(c.stored)
		kept, _, err := a.table.Update(c.hash, c.stored)
		if err != nil {
			a.t.Fail(a.d.step.id, err)
			return
		}
		*kept = a.record(c)
	}
}

// record is what the state says of a record on its way.
func (a *mapping[K, V, R]) record(c *asyncCall[K, V, R]) asyncRecord[V] {
	r := asyncRecord[V]{time: c.meta.Time, w: c.w, offset: c.meta.Offset, noKey: c.meta.NoKey, deleted: c.meta.Deleted, tooFar: c.meta.TooFar, value: c.value}
	r.from, r.hasFrom = a.t.Origin(&c.meta)
	r.headers = c.meta.AppendHeaders(nil)
	return r
}

// restore takes up what was on its way at the checkpoint the attempt starts from.
func (a *mapping[K, V, R]) restore() error {
	var wrong error
	var all []restoredCall[*asyncCall[K, V, R]]
	err := a.table.Scan(nil, nil, func(stored []byte, r *asyncRecord[V]) bool {
		n, key, err := state.SplitWindowKey(stored)
		if err != nil {
			wrong = err
			return false
		}
		c := &asyncCall[K, V, R]{value: r.value, w: r.w, stored: append([]byte(nil), stored...), hash: state.Hash(stored),
			meta: engine.Meta{Time: r.time, Offset: r.offset, NoKey: r.noKey, Deleted: r.deleted, TooFar: r.tooFar}}
		if r.hasFrom {
			c.meta.Origin = a.t.OriginOf(r.from)
		}
		c.meta.SetHeaders(r.headers)
		if !r.noKey {
			if c.key, wrong = a.d.key.Decode(append([]byte(nil), key...)); wrong != nil {
				return false
			}
		}
		all = append(all, restoredCall[*asyncCall[K, V, R]]{n, r.w, orderKey(r.noKey, key), c})
		return true
	})
	if err = errors.Join(wrong, err); err != nil {
		return err
	}
	a.order.restoreAll(all, a.begin)
	return nil
}

// save, load and resume keep the watermark that has gone on, as part of the checkpoint.
func (a *mapping[K, V, R]) save(b []byte) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(a.forwarded))
}

func (a *mapping[K, V, R]) load(b []byte) error {
	if len(b) != 8 {
		return errAsyncTime
	}
	a.saved = int64(binary.BigEndian.Uint64(b))
	return nil
}

func (a *mapping[K, V, R]) resume() { a.pass(a.saved) }

var errAsyncTime = errors.New("stream: damaged event time of a MapAsync in the checkpoint")
