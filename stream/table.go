package stream

import (
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// Table is the newest value of each key: of a topic, of a stream, of an aggregation, or
// made of other tables. It is a description, a plain value that may be used any number
// of times.
//
// Tables made of tables follow each change of a row: what the row was is taken out of
// what was made of it, and what it is put in. Streams made of tables get each row that
// changed once a checkpoint, as it is then; Emit sets otherwise. A row that is gone is
// a record without a value. The time of a row is that of the record that made it, of an
// aggregate the highest of its records, of a join the later of both sides.
//
// Windowed aggregations give tables whose rows cannot be looked up once their window
// has closed, so a join does not take them: ToStream and ToTable make a table of the
// results that keeps them.
type Table[K, V any] struct{ n *tableNode[K, V] }

// Emit sets when streams behind the table get its changes: OnUpdate, each at once;
// OnClose, the default, each changed row once a checkpoint. What is made of the table
// after the call does alike. Windowed aggregations have an Emit of their own.
func (t Table[K, V]) Emit(e window.Emit) Table[K, V] {
	if t.n.closing != nil {
		t.n.step.app.fault(t.n.step.label(), "Emit of a table of windows: call it on the windowed stream, before the aggregation")
	}
	t.n.each = e == window.OnUpdate
	return t
}

// ToStream gives the changes of the table as they are emitted.
func (t Table[K, V]) ToStream() Stream[K, V] { return Stream[K, V]{&t.n.node} }

// To writes the changes of the table to a topic, which is created where it does not
// exist. A row that is gone is written as a tombstone. What is written becomes visible
// to committed readers with the checkpoint it belongs to.
func (t Table[K, V]) To(out topic.Topic[K, V]) { to(&t.n.node, out) }

// Change is one change of a row: what it was and what it is.
type Change[V any] struct {
	Old, New V
	Inserted bool // there was no row: Old is the zero value
	Deleted  bool // there is none any more: New is the zero value
}

// ChangeOf is satisfied by Change[V] alone; it lets a method's result type be inferred.
type ChangeOf[V any] interface{ Change[V] }

// Changes gives every change of the table, each at once, with what the row was.
func (t Table[K, V]) Changes[C ChangeOf[V]]() Stream[K, C] {
	out := &node[K, C]{step: t.n.step.app.declare("changes", t.n.step)}
	t.n.read(always, func(o *opening) rowPort[K, V] {
		down := out.open(o)
		own := engine.Meta{Offset: -1}
		var made C
		return rowPort[K, V]{Watermark: down.Watermark, Idle: down.Idle, Change: func(m *engine.Meta, k K, c change[V]) {
			made = C(changeOf(c))
			own.Time = m.Time
			down.Push(&own, k, &made)
		}}
	})
	return Stream[K, C]{out}
}

func changeOf[V any](c change[V]) Change[V] {
	made := Change[V]{Inserted: !c.had, Deleted: c.new == nil}
	if c.had {
		made.Old = *c.old
	}
	if c.new != nil {
		made.New = *c.new
	}
	return made
}
