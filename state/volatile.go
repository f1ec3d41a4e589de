package state

import "github.com/thalweg/thalweg/topic/codec"

// NewVolatileTable returns a table without a store: it begins empty with each attempt, all
// of it is in memory, and its Barrier writes nothing.
func NewVolatileTable[V any](c codec.Codec[V]) *Table[V] {
	return &Table[V]{newVolatileTable(valuesOf(c))}
}

func newVolatileTable(v *values) table {
	l := &ledger{entrySize: int64(v.stride)}
	return table{
		live:     live{values: v, ledger: l, schema: true},
		overlay:  newOverlay(v, l),
		complete: true,
		volatile: true,
	}
}

// NewVolatileTimers returns timers without a store; see NewVolatileTable.
func NewVolatileTimers() *Timers {
	return timersIn(NewVolatileTable[uint64](tagsCodec{}))
}

// settle is Barrier of a table without a store: what changed is at once as if the store had it.
func (t *table) settle(n int64) error {
	err := t.overlay.barrier(n, func(*entry) error { return nil })
	t.live.ledger.pass(Mark{N: n})
	t.overlay.passed(func(*entry) {})
	return err
}
