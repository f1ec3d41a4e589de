package stream

import (
	"fmt"
	"reflect"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
)

// JoinOn gives a row for each row of t of which other has the foreign key, which on makes
// of the row's value: what f makes of the two values, under the key that t has, with the
// later of their times. A foreign key that is nil, where K2 is a pointer or slice,
// matches nothing. It follows every change of either table, and one change of a row, to
// another foreign key too, is one change of its result. Like all functions of tables on and
// f must be functions of their arguments.
//
// A row of t is sent to the task that has its foreign key, which keeps it and answers
// now and whenever the row of other changes; so one that very many rows refer to is
// as much work when it changes. The result keeps rows of its own.
//
// A table cannot be joined so with itself, or with what is made of it without a shuffle: join a copy
// of it, made by ToStream().KeyByKV(func(k K, _ V) K { return k }).ToTable().
func (t Table[K, V]) JoinOn[K2, V2, R any](other Table[K2, V2], on func(V) K2, f func(V, V2) R) Table[K, R] {
	return joinOn(t, other, "join on", on == nil, f == nil, false, func(_ K, v V) K2 { return on(v) },
		func(_ []byte, v V, v2 V2, _ bool) (R, error) { return f(v, v2), nil })
}

// JoinOnKV is JoinOn with functions that get the key of the row of t, too.
func (t Table[K, V]) JoinOnKV[K2, V2, R any](other Table[K2, V2], on func(K, V) K2, f func(K, V, V2) R) Table[K, R] {
	return joinOn(t, other, "join on", on == nil, f == nil, false, on, func(key []byte, v V, v2 V2, _ bool) (made R, err error) {
		k, err := t.n.key.Decode(key)
		if err != nil {
			return made, fmt.Errorf("decode key: %w", err)
		}
		return f(k, v, v2), nil
	})
}

// LeftJoinOn is JoinOn with a row for every row of t. ok tells whether other has the foreign
// key; v2 is the zero value where it has not.
func (t Table[K, V]) LeftJoinOn[K2, V2, R any](other Table[K2, V2], on func(V) K2, f func(v V, v2 V2, ok bool) R) Table[K, R] {
	return joinOn(t, other, "left join on", on == nil, f == nil, true, func(_ K, v V) K2 { return on(v) },
		func(_ []byte, v V, v2 V2, ok bool) (R, error) { return f(v, v2, ok), nil })
}

// LeftJoinOnKV is LeftJoinOn with functions that get the key of the row of t, too.
func (t Table[K, V]) LeftJoinOnKV[K2, V2, R any](other Table[K2, V2], on func(K, V) K2, f func(k K, v V, v2 V2, ok bool) R) Table[K, R] {
	return joinOn(t, other, "left join on", on == nil, f == nil, true, on, func(key []byte, v V, v2 V2, ok bool) (made R, err error) {
		k, err := t.n.key.Decode(key)
		if err != nil {
			return made, fmt.Errorf("decode key: %w", err)
		}
		return f(k, v, v2, ok), nil
	})
}

// The three tasks of a join on a foreign key: that of the left row asks, with a request to
// the task of the foreign key; that answers to the task of the result, which may be
// another than the first. What is asked and answered for a row has a version, since an
// answer of its former foreign key can come after that of its present one.

// version orders what a row was: that of a later attempt is newer, and within one that
// with the higher number. At a barrier no answer is on its way, so one is never held
// against those of another attempt but where a foreign key answers for what it has kept.
type version struct{ attempt, n int64 }

func (v version) before(w version) bool {
	return v.attempt < w.attempt || v.attempt == w.attempt && v.n < w.n
}

// request tells the task of a foreign key what became of a left row.
type request[V any] struct {
	key     []byte // of the row, encoded
	version version
	row     V
	has     bool // there is a row; else it is gone from here
	keyed   bool // it has a foreign key, which is the one asked
	silent  bool // another foreign key answers
}

// answer tells the task of a left row what its result is.
type answer[R any] struct {
	version version
	result  R
	has     bool
}

// pairing makes the result of a left row, by its encoded key, and the right one, where ok; else that
// is the zero value.
type pairing[V, V2, R any] func(key []byte, v V, v2 V2, ok bool) (R, error)

// answering is a pairing as one task calls it, under the step's policy: own is of the result, and came of what led to it.
type answering[V, V2, R any] func(own, came *engine.Meta, key []byte, s *subscription[V], v2 V2, ok bool) (r R, is bool)

// openAnswering opens the function of the join s in a task of its middle.
func openAnswering[K, V, V2, R any](o *opening, s, middle *step, pair pairing[V, V2, R]) answering[V, V2, R] {
	g := openGuard[K, Pair[V, V2]](o, middle)
	t, id := o.task, middle.id
	if g == nil {
		return func(_, _ *engine.Meta, key []byte, s *subscription[V], v2 V2, ok bool) (R, bool) {
			t.Running = id
			made, err := pair(key, s.row, v2, ok)
			t.Fail(id, err)
			return made, err == nil
		}
	}
	g.calls.name = s.label()
	keys, err := s.app.codecs.Inner[K]()
	if err != nil {
		o.fail(err)
	}
	return func(own, came *engine.Meta, key []byte, s *subscription[V], v2 V2, ok bool) (made R, is bool) {
		is, cause := g.calls.try(func() (err error) {
			made, err = pair(key, s.row, v2, ok)
			return err
		}, nil)
		if cause != nil {
			g.giveUpPair(own, came, func() (K, error) { return keys.Decode(key) }, Pair[V, V2]{Left: s.row, HasLeft: true, Right: v2, HasRight: ok}, cause)
		}
		return made, is
	}
}

// joinOn is a join on a foreign key. pair gets the encoded key of the left row, and is told
// whether there is a right one, as there always is unless it is a left join.
func joinOn[K, V, K2, V2, R any](t Table[K, V], other Table[K2, V2], kind string, noKey, missing, left bool, on func(K, V) K2, pair pairing[V, V2, R]) Table[K, R] {
	by := t.derive("foreign key", noKey)
	by.changeKey = true
	requests := newGrouping[K2, request[V]](by, false)
	requests.keepValue = true

	middle := by.app.declare("subscriptions", by, other.n.step)
	middle.joint, middle.first = true, []*step{other.n.step}
	meet(middle, other.n)
	back := by.app.declare("group by key", middle)
	back.changeKey = true
	answers := newGrouping[K, answer[R]](back, false)

	s := answers.behind(kind, true)
	requireFunc(s, missing)
	guards[K, Pair[V, V2]](s)
	middle.partOf, middle.policyOf, by.policyOf = s, s, s
	n := newTable[K, R](s)
	n.each, n.settled, n.keeps = t.n.each && other.n.each, true, new(keeping)

	d := &subscriptionsDecl[V, V2, R]{step: middle, store: middle.keep("").ownedBy(subscribedTo), left: left,
		pair: func(o *opening) answering[V, V2, R] { return openAnswering[K](o, s, middle, pair) }}
	value, l := layoutOf[K, V](middle, "rows by foreign key "+plainName(reflect.TypeFor[K2]())+", ")
	d.rows = subscriptionCodec[V]{value, l}
	kept, cells := s.keep("").ownKeys(), cellsOf[K, R](s, nil)
	n.stored = storedCells(n.key, kept, codec.Codec[cell[R]](cells))
	d.results = cells.value

	t.n.read(always, func(o *opening) rowPort[K, V] {
		return openAsking(o, s, by, requests, t.n.key, value, on)
	})
	open := func(o *opening) *subscribing[V, V2, R] {
		b, ok := o.opened[middle.id].(*subscribing[V, V2, R])
		if !ok {
			rows := rowsOf(o, other.n)
			b = d.open(o, answers.enter(o), func(key []byte) (row[V2], bool, error) {
				k, err := requests.key.Decode(key)
				if err != nil {
					return row[V2]{}, false, fmt.Errorf("decode key: %w", err)
				}
				r, ok := rows.get(k)
				return r, ok, nil
			})
			o.opened[middle.id] = b
		}
		return b
	}
	requests.downs = append(requests.downs, func(o *opening) engine.KeyedPort[request[V]] {
		b := open(o)
		return engine.KeyedPort[request[V]]{Push: b.push, Watermark: b.time.watermark(0), Idle: b.time.idle(0)}
	})
	other.n.read(func() bool { return false }, func(o *opening) rowPort[K2, V2] {
		b := open(o)
		var key []byte
		return rowPort[K2, V2]{Watermark: b.time.watermark(1), Idle: b.time.idle(1), Change: func(m *engine.Meta, k K2, c change[V2]) {
			var err error
			if key, err = requests.key.Append(key[:0], k); err != nil {
				b.t.Fail(b.step, fmt.Errorf("encode key: %w", err))
				return
			}
			b.changed(m, key, c.new)
		}}
	})
	answers.downs = append(answers.downs, func(o *opening) engine.KeyedPort[answer[R]] {
		r := openKept[K, answer[R], R](o, n, kept, cells)
		if r == nil {
			return engine.KeyedPort[answer[R]]{}
		}
		r.apply = func(m *engine.Meta, c *cell[R], _ bool, a *answer[R]) bool {
			c.value, c.time = a.result, m.Time
			return a.has
		}
		return newestOnly(o.task, r.port())
	})
	return Table[K, R]{n}
}

// openAsking opens the side of the left table of the join s in one task.
func openAsking[K, V, K2 any](o *opening, s, by *step, requests *grouping[K2, request[V]], keys codec.Codec[K], value codec.Codec[V], on func(K, V) K2) rowPort[K, V] {
	t, step, way, values := o.task, by.id, requests.enter(o), newCloner(value)
	attempt, number := t.Attempt(), int64(0)
	mayBeNil := nilable[K2]()
	own := engine.Meta{Offset: -1}
	var was, is []byte // foreign keys
	var r request[V]   // scratch: it escapes to what follows
	looked := func(k K, v V) (K2, bool) { return on(k, v), true }
	asked := func(_ *engine.Meta, k K, v *V) (K2, bool) { return on(k, *v), true }
	if g := openGuard[K, V](o, by); g != nil {
		g.calls.name = s.label() + "-by"
		asked, looked = g.rows(looked)
	}
	// foreign gives the encoding of a foreign key; ok is false where it is none.
	foreign := func(key []byte, k2 K2) (_ []byte, ok bool) {
		if mayBeNil && isNil(&k2) {
			return key, false
		}
		key, err := requests.key.Append(key[:0], k2)
		if err != nil {
			t.Fail(step, fmt.Errorf("encode foreign key: %w", err))
		}
		return key, err == nil
	}
	return rowPort[K, V]{Watermark: way.Watermark, Idle: way.Idle, Change: func(m *engine.Meta, k K, c change[V]) {
		number++
		key, err := keys.Append(nil, k) // its own: another task keeps it
		if err != nil {
			t.Fail(step, fmt.Errorf("encode key: %w", err))
			return
		}
		var had, has bool // foreign keys
		t.Running = step
		if c.had {
			if k2, ok := looked(k, *c.old); ok {
				was, had = foreign(was, k2)
			}
		}
		none := request[V]{key: key, version: version{attempt, number}}
		if r = none; c.new != nil {
			var k2 K2
			if k2, r.has = asked(m, k, c.new); r.has {
				is, has = foreign(is, k2)
				if r.row, err = values.clone(c.new); err != nil { // another task gets it
					t.Fail(step, fmt.Errorf("copy a row: %w", err))
				}
			}
		}
		if t.Failed() {
			return
		}
		own.Time, own.Offset, own.Origin = m.Time, m.Offset, m.Origin
		moved := had && !(has && string(was) == string(is))
		if moved && r.has {
			to := r
			r = none
			r.keyed, r.silent = true, true
			way.Push(&own, was, &r)
			r = to
		}
		switch {
		case has:
			r.keyed = true
			way.Push(&own, is, &r)
		case had && !r.has:
			r.keyed = true
			way.Push(&own, was, &r)
		default: // no foreign key has to know; the answer goes the same way
			way.Push(&own, key, &r)
		}
	}}
}

// newestOnly drops answers for what a row was when a newer one has come already. A former
// foreign key knows at the next barrier at the latest that it has nothing to say.
func newestOnly[R any](t *engine.Task, p engine.KeyedPort[answer[R]]) engine.KeyedPort[answer[R]] {
	newest, push := make(map[string]version), p.Push
	t.OnBarrier(func() { clear(newest) })
	p.Push = func(m *engine.Meta, hash uint64, key []byte, a *answer[R]) {
		v, ok := newest[string(key)]
		if ok && a.version.before(v) {
			return
		}
		if !ok || v != a.version {
			newest[string(key)] = a.version
		}
		push(m, hash, key, a)
	}
	return p
}

// subscriptionsDecl is the middle of a join on a foreign key as declared.
type subscriptionsDecl[V, V2, R any] struct {
	step    *step
	store   *storeDecl
	rows    subscriptionCodec[V]
	results codec.Codec[R]
	left    bool
	pair    func(o *opening) answering[V, V2, R]
}

// subscribing is the middle of a join on a foreign key, in one task: left rows by their
// foreign keys, beside the right table.
type subscribing[V, V2, R any] struct {
	t     *engine.Task
	step  int
	left  bool
	pair  answering[V, V2, R]
	right func(key []byte) (row[V2], bool, error)
	subs  *subscriptions[V]
	way   way[answer[R]]
	time  *inputTimes

	results *cloner[R]
	own     engine.Meta
	made    answer[R] // scratch: it escapes to what follows
}

func (d *subscriptionsDecl[V, V2, R]) open(o *opening, way way[answer[R]], right func(key []byte) (row[V2], bool, error)) *subscribing[V, V2, R] {
	b := &subscribing[V, V2, R]{t: o.task, step: d.step.id, left: d.left, right: right, way: way,
		results: newCloner(d.results), own: engine.Meta{Offset: -1}, pair: d.pair(o)}
	b.time = openInputs(o, d.step, 2, way.Watermark, way.Idle)
	if store := o.openStore(d.store); store != nil {
		table := state.NewTable[subscription[V]](store.Store, d.rows)
		store.SetTable(table)
		b.subs = &subscriptions[V]{table: table}
	}
	return b
}

// push takes a request of a left row.
func (b *subscribing[V, V2, R]) push(m *engine.Meta, _ uint64, foreign []byte, q *request[V]) {
	s := subscription[V]{version: q.version, time: m.Time, row: q.row}
	switch {
	case !q.keyed:
	case q.has:
		b.t.Fail(b.step, b.subs.put(foreign, q.key, s))
	default:
		b.t.Fail(b.step, b.subs.remove(foreign, q.key))
	}
	switch {
	case b.t.Failed() || q.silent:
	case !q.has:
		b.answer(m.Time, q.key, q.version, nil)
	case !q.keyed:
		b.match(m, q.key, &s, row[V2]{}, false)
	default:
		r, ok, err := b.right(foreign)
		b.t.Fail(b.step, err)
		b.match(m, q.key, &s, r, ok)
	}
}

// changed takes a change of the right row of a foreign key, which is v2 now, nil where it is gone.
func (b *subscribing[V, V2, R]) changed(m *engine.Meta, foreign []byte, v2 *V2) {
	var r row[V2]
	if v2 != nil {
		r = row[V2]{*v2, m.Time}
	}
	b.t.Fail(b.step, b.subs.each(foreign, func(key []byte, s *subscription[V]) error {
		b.match(m, key, s, r, v2 != nil)
		return b.t.Err()
	}))
}

// match answers for a left row that there is, with the right row that it has, where ok.
// m is of the change that leads to it.
func (b *subscribing[V, V2, R]) match(m *engine.Meta, key []byte, s *subscription[V], r row[V2], ok bool) {
	if b.t.Failed() {
		return
	}
	if !ok && !b.left {
		b.answer(m.Time, key, s.version, nil)
		return
	}
	b.own.Time = latest(s.time, true, r.time, ok)
	made, is := b.pair(&b.own, m, key, s, r.value, ok)
	if !is {
		b.answer(m.Time, key, s.version, nil)
		return
	}
	b.answer(b.own.Time, key, s.version, &made)
}

// answer sends a result to the task of the left row, nil where there is none.
func (b *subscribing[V, V2, R]) answer(time int64, key []byte, v version, result *R) {
	b.made = answer[R]{version: v, has: result != nil}
	if result != nil {
		var err error
		if b.made.result, err = b.results.clone(result); err != nil { // another task gets it
			b.t.Fail(b.step, fmt.Errorf("copy a result: %w", err))
			return
		}
	}
	b.own.Time = time
	b.way.Push(&b.own, key, &b.made)
}
