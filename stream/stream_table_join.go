package stream

import (
	"fmt"

	"github.com/thalweg/thalweg/stream/internal/engine"
)

// JoinTable joins each record of the stream with the row of its key, as the table is at that
// moment, and drops those without one. Changes of the table alone give nothing. A result
// has the time of the record.
//
// Of the records that both sides have to offer the one with the lower event time is read
// first, at the same time that of the table: a replay finds what was there. Where
// the table has nothing to read, the stream does not wait for it.
//
// Where the table has a History a record is joined with the row as it was at the record's time.
// One for whose time the history does not tell is late: it gives nothing, goes to LateFor,
// and is counted where nothing reads that.
//
// A record without a key is skipped and counted, as is one without a value. The stream is
// shuffled where it is not spread over its tasks as the table is.
func (s Stream[K, V]) JoinTable[V2, R any](t Table[K, V2], f func(V, V2) R) Stream[K, R] {
	return joinTable(s, t, "join table", f == nil, false, func(v *V, v2 *V2) R { return f(*v, *v2) })
}

// LeftJoinTable is JoinTable with a result for every record: ok tells whether there is a row; v2
// is the zero value where there is none. A record without a key matches nothing, and
// gives a result too.
func (s Stream[K, V]) LeftJoinTable[V2, R any](t Table[K, V2], f func(v V, v2 V2, ok bool) R) Stream[K, R] {
	return joinTable(s, t, "left join table", f == nil, true, func(v *V, v2 *V2) R {
		right, ok := valueOf(v2)
		return f(*v, right, ok)
	})
}

func joinTable[K, V, V2, R any](s Stream[K, V], t Table[K, V2], kind string, missing, left bool, pair func(*V, *V2) R) Stream[K, R] {
	by := s.n.step.app.declare("group by key", s.n.step)
	by.needsKey, by.side = true, "-stream"
	g := group(s, by, true, func(k K, _ *V) K { return k }).g
	g.keepValue, g.keyless = true, left
	g.meet()
	st := s.n.step.app.declare(kind, by, t.n.step)
	requireFunc(st, missing)
	guards[K, V](st)
	st.joint, st.first = true, []*step{t.n.step}
	meet(st, t.n)
	side := &joinSide[K, V]{of: s.n.step, g: g}
	st.sides = []any{side}
	st.check = func() string {
		if len(side.late) > 0 && !t.n.hasPast() {
			return "LateFor of a join with a table that has no History: nothing is late for it"
		}
		return ""
	}
	out := &node[K, R]{step: st}
	g.downs = append(g.downs, func(o *opening) engine.KeyedPort[V] {
		task, down, rows := o.task, out.open(o), rowsOf(o, t.n)
		late, find := side.openLate(o), func(k K, _ int64) (r row[V2], ok, known bool) {
			r, ok = rows.get(k)
			return r, ok, true
		}
		if t.n.hasPast() {
			find = func(k K, at int64) (row[V2], bool, bool) { return rows.asOf(k, at) }
		}
		time := fanOut([]port[struct{}, struct{}]{{Watermark: down.Watermark, Idle: down.Idle}, {Watermark: late.Watermark, Idle: late.Idle}})
		var made R
		push := func(m *engine.Meta, k K, v *V, v2 *V2) {
			task.Running = st.id
			made = pair(v, v2)
			down.Push(m, k, &made)
		}
		if guard := openGuard[K, V](o, st); guard != nil {
			var right *V2
			paired := guard.call(func(_ K, v *V) (R, error) { return pair(v, right), nil })
			push = func(m *engine.Meta, k K, v *V, v2 *V2) {
				right = v2
				var ok bool
				if made, ok = paired(m, k, v); ok {
					down.Push(m, k, &made)
				}
			}
		}
		return engine.KeyedPort[V]{Watermark: time.Watermark, Idle: time.Idle, Push: func(m *engine.Meta, _ uint64, key []byte, v *V) {
			if m.NoKey {
				var none K
				push(m, none, v, nil)
				return
			}
			k, err := g.key.Decode(key)
			if err != nil {
				task.Fail(st.id, fmt.Errorf("decode key: %w", err))
				return
			}
			switch r, ok, known := find(k, m.Time); {
			case ok:
				push(m, k, v, &r.value)
			case !known && len(side.late) > 0:
				late.Push(m, k, v)
			case !known:
				task.Counters().Late++
			case left:
				push(m, k, v, nil)
			}
		}}
	})
	return Stream[K, R]{out}
}
