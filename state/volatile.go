package state

import "github.com/thalweg/thalweg/topic/codec"

// NewVolatileTable returns a table without a store: it begins empty with each attempt, all
// of it is in memory, and its Barrier writes nothing.
func NewVolatileTable[V any](c codec.Codec[V]) *Table[V] {
	t := &Table[V]{live: live[V]{codec: c, ledger: new(ledger), schema: true}, complete: true, volatile: true}
	t.overlay = newOverlay[V](t.ledger)
	return t
}

// NewVolatileTimers returns timers without a store; see NewVolatileTable.
func NewVolatileTimers() *Timers {
	return timersIn(NewVolatileTable[uint64](tagsCodec{}))
}

// settle is Barrier of a table without a store: what changed is at once as if the store had it.
func (t *Table[V]) settle(n int64) error {
	err := t.overlay.barrier(n, func(*entry[V]) error { return nil })
	t.ledger.pass(Mark{N: n})
	t.overlay.passed(func(*entry[V]) {})
	return err
}
