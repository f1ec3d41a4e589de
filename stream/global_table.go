package stream

import (
	"fmt"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// GlobalTable is a topic read as a table, whole, by every task that joins a stream with it: any
// record finds any row, whatever the partitions of either. The newest record of each key is
// its row, and a record without a value deletes it. It is for what is small and changes now
// and then: each task has all rows in memory.
//
// Before a task reads its first record it has all rows that there were when the job
// began. What comes later it reads as it comes, before it goes on with its stream,
// whatever the event times: a global table is not kept in step with the streams that are
// joined with it, has no watermark and holds none back; Job.Lag and Job.CatchUp are of the streams alone. A task that starts again has
// the rows as they were in the checkpoint that it starts from, or later ones, where the topic is
// compacted or its records were deleted; never older ones.
type GlobalTable[K, V any] struct{ g *globalTable[K, V] }

// globalTable is a global table as declared.
type globalTable[K, V any] struct {
	step      *step
	isolation topic.Isolation
	key       codec.Codec[K]
	value     codec.Codec[V]
}

// globalTopic is what a step reads as a whole.
type globalTopic struct {
	topic string
	spec  topic.Spec
}

// GlobalTable reads a topic as a table that every task has as a whole. The job creates the topic
// where it does not exist. A record without a key is skipped and counted. One that cannot be
// decoded ends the job, or is passed over and counted where OnError of the topology says
// Skip or DeadLetter; it is not written as a dead letter, since it is read again with each run.
func (app *Topology) GlobalTable[K, V any](t topic.Topic[K, V]) GlobalTable[K, V] {
	s := app.declare("global table")
	s.global = &globalTopic{t.Name(), t.Spec()}
	s.guarded, s.letterCodecs = true, func() error { return nil }
	g := &globalTable[K, V]{step: s, isolation: topic.ReadCommitted}
	if t.IsUncommitted() {
		g.isolation = topic.ReadUncommitted
	}
	if spec := t.Spec(); spec.Delayed || spec.TimeToLive > 0 {
		s.fault(fmt.Sprintf("topic %q is declared Delayed or with a TimeToLive, and what the table has would depend on when it is read", t.Name()))
	}
	err := t.Err()
	if err == nil {
		g.key, g.value, err = t.Codecs(nil)
	}
	if err != nil {
		s.fault(err.Error())
	}
	return GlobalTable[K, V]{g}
}

// JoinGlobal joins each record of the stream with the row whose key on makes of its
// value, as the task's copy of the table is at that moment, and drops those without one. A
// key that is nil, where K2 is a pointer or slice, has no row. A result has the time of the
// record; a record without a value is skipped and counted.
func (s Stream[K, V]) JoinGlobal[K2, V2, R any](g GlobalTable[K2, V2], on func(V) K2, f func(V, V2) R) Stream[K, R] {
	return joinGlobal(s, g.g, "join global", on == nil || f == nil, false, func(_ K, v V) K2 { return on(v) }, func(_ K, v V, v2 V2, _ bool) R { return f(v, v2) })
}

// JoinGlobalKV is JoinGlobal with functions that get the key of the record, too.
func (s Stream[K, V]) JoinGlobalKV[K2, V2, R any](g GlobalTable[K2, V2], on func(K, V) K2, f func(K, V, V2) R) Stream[K, R] {
	out := joinGlobal(s, g.g, "join global", on == nil || f == nil, false, on, func(k K, v V, v2 V2, _ bool) R { return f(k, v, v2) })
	out.n.step.needsKey = true
	return out
}

// LeftJoinGlobal is JoinGlobal with a result for every record: ok tells whether there is a row;
// v2 is the zero value where there is none.
func (s Stream[K, V]) LeftJoinGlobal[K2, V2, R any](g GlobalTable[K2, V2], on func(V) K2, f func(v V, v2 V2, ok bool) R) Stream[K, R] {
	return joinGlobal(s, g.g, "left join global", on == nil || f == nil, true, func(_ K, v V) K2 { return on(v) }, func(_ K, v V, v2 V2, ok bool) R { return f(v, v2, ok) })
}

// LeftJoinGlobalKV is LeftJoinGlobal with functions that get the key of the record, too.
func (s Stream[K, V]) LeftJoinGlobalKV[K2, V2, R any](g GlobalTable[K2, V2], on func(K, V) K2, f func(k K, v V, v2 V2, ok bool) R) Stream[K, R] {
	out := joinGlobal(s, g.g, "left join global", on == nil || f == nil, true, on, f)
	out.n.step.needsKey = true
	return out
}

func joinGlobal[K, V, K2, V2, R any](s Stream[K, V], g *globalTable[K2, V2], kind string, missing, left bool, on func(K, V) K2, pair func(K, V, V2, bool) R) Stream[K, R] {
	out := &node[K, R]{step: s.n.step.app.declare(kind, s.n.step)}
	requireFunc(out.step, missing)
	guards[K, V](out.step)
	if g.step.app != s.n.step.app {
		out.step.fault("joins a global table of another topology; build both on one")
	}
	// Not an input: that would make the step one where records of a key meet.
	g.step.outputs = append(g.step.outputs, out.step)
	out.step.looksUp = g.step.global
	id, mayBeNil := out.step.id, nilable[K2]()
	connect(s.n, out.step, func(o *opening) port[K, V] {
		t, down, rows := o.task, out.open(o), g.open(o)
		join := func(k K, v V) (made R, ok bool) {
			var found *V2
			if key := on(k, v); !mayBeNil || !isNil(&key) {
				var err error
				if found, err = rows.get(key); err != nil {
					t.Fail(id, err)
					return made, false
				}
			}
			if found == nil && !left {
				return made, false
			}
			right, ok := valueOf(found)
			return pair(k, v, right, ok), true
		}
		joined := func(_ *engine.Meta, k K, v *V) (R, bool) { return join(k, *v) }
		if g := openGuard[K, V](o, out.step); g != nil {
			joined, _ = g.rows(join)
		}
		var made R // scratch: it escapes to what follows
		return port[K, V]{Watermark: down.Watermark, Idle: down.Idle, Push: func(m *engine.Meta, k K, v *V) {
			if m.Deleted {
				t.Counters().NoValue++
				return
			}
			t.Running = id
			var ok bool
			if made, ok = joined(m, k, v); ok {
				down.Push(m, k, &made)
			}
		}}
	})
	return Stream[K, R]{out}
}

// globalRows are the rows of a global table in one task.
type globalRows[K, V any] struct {
	key  codec.Codec[K]
	rows map[string]*V // by encoded key
	buf  []byte
}

// get looks up a row, nil where there is none. It may be read only.
func (r *globalRows[K, V]) get(k K) (*V, error) {
	var err error
	if r.buf, err = r.key.Append(r.buf[:0], k); err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return r.rows[string(r.buf)], nil
}

// open opens the table in a task, once.
func (g *globalTable[K, V]) open(o *opening) *globalRows[K, V] {
	if rows, ok := o.opened[g.step.id].(*globalRows[K, V]); ok {
		return rows
	}
	rows := &globalRows[K, V]{key: g.key, rows: make(map[string]*V)}
	o.opened[g.step.id] = rows
	t, id, name := o.task, g.step.id, g.step.global.topic
	options := engine.GlobalOptions{Isolation: g.isolation, Compacted: g.step.global.spec.Compact, SkipDeleted: o.run.app.skip, Step: id}
	if spec, ok := o.run.env.Plane.Log().Spec(name); ok {
		options.Compacted = spec.Compact
	}
	for i := range o.run.partitions(name) {
		p, err := o.run.env.Plane.Log().Partition(topic.TopicPartition{Topic: name, Partition: topic.PartitionID(i)})
		if err != nil {
			o.fail(err)
			return rows
		}
		options.Partitions = append(options.Partitions, p)
	}
	skips := g.step.policy().verdict != verdictFail
	options.Take = func(r *topic.RecordIterator) error {
		if r.Key == nil {
			t.Counters().NoKey++
			return nil
		}
		if r.Value == nil {
			delete(rows.rows, string(r.Key))
			return nil
		}
		v, err := g.value.Decode(r.Value)
		if err != nil {
			err = fmt.Errorf("decode value: %w", err)
			if !skips {
				return err
			}
			t.Skipped(id, err, nil)
			t.Counters().Skipped++
			return nil
		}
		rows.rows[string(r.Key)] = &v
		return nil
	}
	engine.OpenGlobal(t, options)
	return rows
}
