package stream

import (
	"fmt"
	"iter"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
)

// Broadcast is a stream that goes to every task of the Process steps that use it: each has
// the newest record of each key, and can look at all of them whatever key it works on. It is for
// rules, settings and the like:
//
//	rules := app.Stream(ruleChanges).Broadcast("rules")
//	payments.GroupByKey().Process(check{rules}, rules).To(alerts)
//
// A record without a value deletes its key. What a task has is state as any other: it is
// part of the checkpoint, and at each checkpoint the same in all tasks. The newest record of a key
// is the one that came last to the task where the records of the key come together: those of a topic
// are in its partition, those of a stream whose keys were changed take a shuffle.
//
// Of what has come to a task it takes first what is older in event time, and of the same time the
// broadcast, also across checkpoints. That is exact where the records of each partition are in order
// and the topic has them before the job reads that far; a rule that comes later than records
// newer than it holds for what comes behind it, and after a restart for all that is read again.
// It holds no event time back: that of the task is its other input's.
type Broadcast[K, V any] struct {
	name string
	n    *node[K, V]
}

// Broadcast makes a broadcast of the stream. The name is that of the state in each
// step that uses it, and unique there. A record without a key is skipped and counted.
func (s Stream[K, V]) Broadcast(name string) Broadcast[K, V] {
	if colocated(s.n.step) {
		return Broadcast[K, V]{name, s.n}
	}
	// Several tasks could send records of one key, each of the tasks that use them would take
	// them in an order of its own, and they would go on with different rules.
	by := s.n.step.app.declare("group by key", s.n.step)
	by.needsKey, by.side, by.ordered = true, "-"+name, true
	g := group(s, by, true, func(k K, _ *V) K { return k }).g
	g.shuffled, g.deletes = true, true
	return Broadcast[K, V]{name, g.goOn("to broadcast")}
}

// Name is the name given to Stream.Broadcast.
func (b Broadcast[K, V]) Name() string { return b.name }

// Get returns the newest value of k. What it points to may be read only.
func (b Broadcast[K, V]) Get(in Scope, k K) (v V, ok bool) {
	c := in.inner()
	rows := b.rows(c)
	if rows == nil {
		return v, false
	}
	var err error
	if rows.buf, err = rows.key.Append(rows.buf[:0], k); err != nil {
		c.fail(fmt.Errorf("broadcast %q: encode key: %w", b.name, err))
		return v, false
	}
	found, ok, err := rows.table.Get(state.Hash(rows.buf), rows.buf)
	if err != nil {
		c.fail(fmt.Errorf("broadcast %q: %w", b.name, err))
	}
	if !ok {
		return v, false
	}
	return found.value, true
}

// All gives all keys with their newest values, in order of the encoded keys. What they point to may be
// read only.
func (b Broadcast[K, V]) All(in Scope) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		c := in.inner()
		rows := b.rows(c)
		if rows == nil {
			return
		}
		err := rows.table.Scan(nil, nil, func(key []byte, found *cell[V]) bool {
			k, err := rows.key.Decode(key)
			if err != nil {
				c.fail(fmt.Errorf("broadcast %q: decode key: %w", b.name, err))
				return false
			}
			return yield(k, found.value)
		})
		if err != nil {
			c.fail(fmt.Errorf("broadcast %q: %w", b.name, err))
		}
	}
}

// rows are those of the step that calls; nil where it may not, or has failed.
func (b Broadcast[K, V]) rows(c *scope) *broadcastRows[K, V] {
	if c.err != nil {
		return nil
	}
	rows, ok := c.broadcasts[b.name].(*broadcastRows[K, V])
	if !ok {
		c.fail(fmt.Errorf("the step reads the broadcast %q, which it was not given: add it to the call of Process", b.name))
	}
	return rows
}

// broadcastRows are what a broadcast has come to in one task.
type broadcastRows[K, V any] struct {
	key   codec.Codec[K]
	table *state.Table[cell[V]]
	buf   []byte
}

// attachable is a Broadcast, whatever its types.
type attachable interface {
	stream() *step
	attach(s *step) (open func(o *opening) any)
}

func (b Broadcast[K, V]) stream() *step { return b.n.step }

// attach makes the broadcast an input of s. What it returns opens it in one task.
func (b Broadcast[K, V]) attach(s *step) (open func(o *opening) any) {
	by := s.app.declare("broadcast", b.n.step)
	by.needsKey, by.side = true, "-"+b.name
	cast := &broadcasting[V]{by: by}
	by.group = cast
	by.outputs = append(by.outputs, s)
	s.inputs, s.first, s.joint = append(s.inputs, by), append(s.first, by), true
	key, err := s.app.codecs.Inner[K]()
	if err != nil {
		by.fault(fmt.Sprintf("no codec for the key: %v", err))
	}
	kept, cells := s.keep(b.name), cellsOf[K, V](s, nil)
	kept.everywhere = true
	connect(b.n, by, func(o *opening) port[K, V] {
		t, sender := o.task, o.run.exchange(by).(*engine.Exchange[V]).OpenSender(o.task, o.run.sender(by, o.task))
		buf := make([]byte, 0, 64)
		return port[K, V]{Push: func(m *engine.Meta, k K, v *V) {
			if m.NoKey {
				t.Counters().NoKey++
				return
			}
			var err error
			if buf, err = key.Append(buf[:0], k); err != nil {
				t.Fail(by.id, fmt.Errorf("encode key: %w", err))
				return
			}
			sender.Send(m, buf, v)
		}}
	})
	openRows := func(o *opening) *broadcastRows[K, V] {
		rows, ok := o.opened[by.id].(*broadcastRows[K, V])
		if !ok {
			rows = &broadcastRows[K, V]{key: key}
			o.opened[by.id] = rows
			if store := o.openStore(kept); store != nil {
				rows.table = state.NewTable[cell[V]](store.Store, cells)
				store.SetTable(rows.table)
			}
		}
		return rows
	}
	cast.open = func(o *opening) engine.KeyedPort[V] {
		t, rows, values := o.task, openRows(o), newCloner(cells.value)
		return engine.KeyedPort[V]{Push: func(m *engine.Meta, hash uint64, key []byte, v *V) {
			if m.Deleted {
				t.Fail(s.id, rows.table.Delete(hash, key))
				return
			}
			own, err := values.clone(v) // all tasks get the same
			if err == nil {
				var c *cell[V]
				if c, _, err = rows.table.Update(hash, key); err == nil {
					c.value, c.time = own, m.Time
				}
			}
			t.Fail(s.id, err)
		}}
	}
	return func(o *opening) any { return openRows(o) }
}

// broadcasting is the cut in front of a step that uses a broadcast.
type broadcasting[V any] struct {
	open func(o *opening) engine.KeyedPort[V]
	by   *step
}

func (b *broadcasting[V]) mustShuffle() bool { return true }

func (b *broadcasting[V]) shuffle() {}

// spreads holds since all is in every task.
func (b *broadcasting[V]) spreads() bool { return true }

func (b *broadcasting[V]) meet() {}

func (b *broadcasting[V]) newExchange(senders, receivers int, inOrder bool) any {
	return engine.NewExchange[V](engine.ExchangeOptions{Senders: senders, Receivers: receivers, KeepValue: true, InOrder: inOrder, Broadcast: true})
}

func (b *broadcasting[V]) openStage(o *opening, shard int) {
	o.run.exchange(b.by).(*engine.Exchange[V]).OpenReceiver(o.task, shard, b.open(o))
}
