package stream

import (
	"fmt"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
)

// edge is where a table becomes a stream, in one task: it keeps the newest value of each
// row that changed since the last barrier and pushes it at the next, in order of the
// first change. A row that came and went in between is passed over. With each it passes
// on every change at once.
type edge[K, V any] struct {
	t    *engine.Task
	step int
	key  codec.Codec[K]
	each bool
	down port[K, V]

	changed map[string]int // by encoded key, the place in rows
	rows    []changedRow[K, V]
	buf     []byte
	own     engine.Meta
	value   V // scratch
}

// changedRow is a row that changed since the last barrier.
type changedRow[K, V any] struct {
	key   K
	value V
	time  int64
	had   bool // there was a row at the last barrier
	has   bool // there is one
}

func openEdge[K, V any](o *opening, n *tableNode[K, V], down port[K, V]) *edge[K, V] {
	e := &edge[K, V]{t: o.task, step: n.step.id, key: n.key, each: n.each, down: down,
		changed: make(map[string]int), own: engine.Meta{Offset: -1}}
	o.task.OnBarrier(e.flush)
	return e
}

func (e *edge[K, V]) change(m *engine.Meta, k K, c change[V]) {
	if e.each {
		e.own.CopyHeaders(m) // of windows that mark their results
		if c.new != nil {
			e.push(k, *c.new, m.Time, true)
		} else if c.had {
			var none V
			e.push(k, none, m.Time, false)
		}
		return
	}
	var err error
	if e.buf, err = e.key.Append(e.buf[:0], k); err != nil {
		e.t.Fail(e.step, fmt.Errorf("encode key: %w", err))
		return
	}
	i, ok := e.changed[string(e.buf)]
	if !ok {
		i = len(e.rows)
		e.changed[string(e.buf)] = i
		e.rows = append(e.rows, changedRow[K, V]{key: k, had: c.had})
	}
	r := &e.rows[i]
	r.time, r.has = m.Time, c.new != nil
	if r.has {
		r.value = *c.new
	} else {
		var none V
		r.value = none
	}
}

// flush pushes what changed.
func (e *edge[K, V]) flush() {
	for i := range e.rows {
		r := &e.rows[i]
		if r.has || r.had {
			e.push(r.key, r.value, r.time, r.has)
		}
		if e.t.Failed() {
			return
		}
	}
	clear(e.rows)
	clear(e.changed)
	e.rows = e.rows[:0]
}

func (e *edge[K, V]) push(k K, v V, time int64, has bool) {
	e.own.Time, e.own.Deleted = time, !has
	e.value = v
	e.down.Push(&e.own, k, &e.value)
}
