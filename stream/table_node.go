package stream

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
)

// tableNode is a step that gives a table. What reads it reads one of three things:
//
//   - streams read its edge: each changed row as it is at the next barrier, or each
//     change at once where each is set;
//   - table operators read its changes, each pushed right after the state changed;
//   - those that look rows up have a view of them (rows), which at every instant is
//     the fold of the changes pushed to them.
type tableNode[K, V any] struct {
	node[K, V] // the edge
	readers    []rowReader[K, V]
	key        codec.Codec[K] // identity of a key is its encoding

	each    bool // the edge passes on each change at once
	kept    bool // rows can be looked up: windows that have closed cannot
	settled bool // a row that was passed on is not changed in place any more

	stored *stored[K, V] // how its rows are read from outside; nil where they cannot be

	keeps  *keeping    // set for a table with a store of rows of its own
	pastOf func() bool // of a table made of one that may have a history: whether it has; else nil

	// closing, where it is not nil, tells when the row of a window is final: once a
	// watermark that the table passes on is above it.
	closing func(k K) int64
}

// newTable makes the node of a step that gives a table.
func newTable[K, V any](s *step) *tableNode[K, V] {
	s.table, s.dropsHeaders = true, true
	n := &tableNode[K, V]{node: node[K, V]{step: s}, kept: true}
	var err error
	if n.key, err = s.app.codecs.Inner[K](); err != nil {
		s.fault(fmt.Sprintf("no codec for the key: %v", err))
	}
	s.check = func() string {
		if _, err := s.app.codecs.Inner[V](); err != nil && n.mustCopy() {
			return fmt.Sprintf("rows are copied before they go into a group, since they share memory with the state, and there is no codec for that: %v", err)
		}
		return ""
	}
	return n
}

// hasPast tells, once the topology is complete, whether rows can be looked up as of a time.
func (n *tableNode[K, V]) hasPast() bool {
	return n.keeps != nil && n.keeps.history > 0 || n.pastOf != nil && n.pastOf()
}

// mustCopy tells whether streams behind the table get copies of its rows: where a row is
// changed in place later, with maps or slices in it, and something behind keeps what it
// gets, or another task reads it.
func (n *tableNode[K, V]) mustCopy() bool {
	return !n.settled && shares(reflect.TypeFor[V]()) && isGrouped(n.step)
}

// isGrouped tells whether what streams behind s get comes to a grouping.
func isGrouped(s *step) bool {
	return slices.ContainsFunc(s.outputs, func(out *step) bool {
		return !out.table && (out.group != nil || isGrouped(out))
	})
}

// copying is down, for copies of rows where they are needed.
func (n *tableNode[K, V]) copying(o *opening, down port[K, V]) port[K, V] {
	if !n.mustCopy() {
		return down
	}
	value, err := n.step.app.codecs.Inner[V]()
	if err != nil {
		o.fail(err) // Validate has said so
		return down
	}
	push, values := down.Push, newCloner(value)
	var row V // scratch: it escapes to what follows
	down.Push = func(m *engine.Meta, k K, v *V) {
		if m.Deleted {
			push(m, k, v)
			return
		}
		if row, err = values.clone(v); err != nil {
			o.task.Fail(n.step.id, fmt.Errorf("copy a row: %w", err))
			return
		}
		push(m, k, &row)
	}
	return down
}

// rowReader is a table operator behind a table.
type rowReader[K, V any] struct {
	old  func() bool // tells, once the topology is complete, whether it needs what rows were
	open func(o *opening) rowPort[K, V]
}

// read adds a reader of the changes.
func (n *tableNode[K, V]) read(old func() bool, open func(o *opening) rowPort[K, V]) {
	n.readers = append(n.readers, rowReader[K, V]{old, open})
}

// wantsOld tells whether a reader needs what rows were before their change.
func (n *tableNode[K, V]) wantsOld() bool {
	for _, r := range n.readers {
		if r.old() {
			return true
		}
	}
	return false
}

func always() bool { return true }

// change is one change of a row. Values are valid during the call, and may be read
// only.
type change[V any] struct {
	old *V   // what the row was; nil where it was absent, or where no reader asked for it
	had bool // there was a row
	new *V   // nil where the row is gone

	oldTime int64 // event time of old
}

// rowPort is the entrance of a reader of changes, opened for one task. Watermark and
// Idle are nil where nothing behind it depends on time.
type rowPort[K, V any] struct {
	Change    func(m *engine.Meta, k K, c change[V])
	Watermark func(w int64)
	Idle      func()
}

// row is a row of a table as it stands, with its event time.
type row[V any] struct {
	value V
	time  int64
}

// rows are a table in one task, to be looked up.
type rows[K, V any] struct {
	get func(k K) (row[V], bool) // as after the newest change

	// asOf looks a row up as it was at an event time, where the table has a history; known is
	// false where that does not reach so far back.
	asOf func(k K, t int64) (r row[V], ok, known bool)

	// The newest change. While it is being pushed, those it has not reached yet see
	// the row as it was.
	n      uint64
	key    K
	before change[V]
	same   func(a, b K) bool
}

// rowsOf returns the rows of n in the task: one value for all who ask, whether the table
// is open already or not.
func rowsOf[K, V any](o *opening, n *tableNode[K, V]) *rows[K, V] {
	r, ok := o.tables[n.step.id].(*rows[K, V])
	if !ok {
		var x, y []byte
		r = &rows[K, V]{same: func(a, b K) bool {
			var errX, errY error
			x, errX = n.key.Append(x[:0], a)
			y, errY = n.key.Append(y[:0], b)
			return errX == nil && errY == nil && string(x) == string(y)
		}}
		o.tables[n.step.id] = r
	}
	return r
}

// view is how one reader of a table's changes sees its rows: with all changes it has
// taken, and no other.
type view[K, V any] struct {
	rows *rows[K, V]
	seen uint64 // changes taken
}

func viewOf[K, V any](o *opening, n *tableNode[K, V]) *view[K, V] {
	return &view[K, V]{rows: rowsOf(o, n)}
}

// took says that the reader has got the change that is being pushed.
func (v *view[K, V]) took() { v.seen = v.rows.n }

// get returns the row of k. The value may be read only.
func (v *view[K, V]) get(k K) (row[V], bool) {
	r := v.rows
	if v.seen != r.n && r.same(k, r.key) {
		if !r.before.had {
			return row[V]{}, false
		}
		return row[V]{*r.before.old, r.before.oldTime}, true
	}
	return r.get(k)
}

// tableOut is what a table pushes its changes into, in one task.
type tableOut[K, V any] struct {
	rows      *rows[K, V]
	readers   []rowPort[K, V]
	edge      *edge[K, V] // nil where no stream reads the table
	stream    port[K, V]  // what is behind the edge
	old       bool        // changes must tell what rows were
	Watermark func(w int64)
	Idle      func()
}

// openTable opens all that reads the table. The caller sets rows.get where rows are
// looked up.
func (n *tableNode[K, V]) openTable(o *opening) *tableOut[K, V] {
	out := &tableOut[K, V]{rows: rowsOf(o, n), old: n.wantsOld()}
	var time []port[K, V]
	for _, r := range n.readers {
		p := r.open(o)
		out.readers = append(out.readers, p)
		time = append(time, port[K, V]{Watermark: p.Watermark, Idle: p.Idle})
	}
	if len(n.downs) > 0 {
		out.stream = n.copying(o, n.node.open(o))
		out.edge = openEdge(o, n, out.stream)
		time = append(time, out.stream)
	}
	all := fanOut(time)
	out.Watermark, out.Idle = all.Watermark, all.Idle
	return out
}

// read tells whether anything reads the table's changes.
func (out *tableOut[K, V]) read() bool { return out.edge != nil || len(out.readers) > 0 }

// change pushes a change of the row of k, which is at m.Time.
func (out *tableOut[K, V]) change(m *engine.Meta, k K, c change[V]) {
	if len(out.readers) > 0 {
		r := out.rows
		r.n++
		r.key, r.before = k, c
		for i := range out.readers {
			out.readers[i].Change(m, k, c)
		}
	}
	if out.edge != nil {
		out.edge.change(m, k, c)
	}
}
