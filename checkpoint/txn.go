package checkpoint

import (
	"fmt"

	"github.com/thalweg/thalweg/log"
)

// txn is the transaction an owner works on, step by step.
//
//	idle ──begin──▶ open ──seal──▶ sealed ──ended──▶ idle
//	                  └──spoil──▶ spoilt ──seal(abort)──▶ sealed
//	any ──end──▶ over
//
// Invariant: ids count up, and an id is used again only if nothing was written with
// it and nothing proposed.
type txn struct {
	state txnState
	id    log.ProducerID // of the transaction that is open or sealed, or of the next one
	last  log.ProducerID // of the owner's block
}

type txnState uint8

const (
	txnIdle   txnState = iota
	txnOpen            // takes writes
	txnSpoilt          // a write failed: it can only be aborted
	txnSealed          // its verdict is being proposed, or its markers written
	txnOver            // the owner is over
)

func (s txnState) String() string {
	return [...]string{"idle", "open", "spoilt", "sealed", "over"}[s]
}

func newTxn(first log.ProducerID) txn { return txn{id: first, last: first + blockSize - 1} }

// begin opens the next transaction.
func (t *txn) begin() error {
	switch {
	case t.state == txnOver:
		return ErrFenced
	case t.state != txnIdle:
		return fmt.Errorf("%w: one is %v already; commit or abort it first", ErrNoTransaction, t.state)
	case t.id > t.last:
		return ErrExhausted
	}
	t.state = txnOpen
	return nil
}

// admits tells whether a write belongs to an open transaction.
func (t *txn) admits() error {
	switch t.state {
	case txnOver:
		return ErrFenced
	case txnSpoilt:
		return fmt.Errorf("%w: a write of it failed, so that it can only be aborted", ErrNoTransaction)
	case txnOpen:
		return nil
	}
	return fmt.Errorf("%w: begin one first", ErrNoTransaction)
}

// spoil says that a write failed, so that nobody knows all that was written.
func (t *txn) spoil() {
	if t.state == txnOpen {
		t.state = txnSpoilt
	}
}

// seal ends the writing: the verdict is about to be proposed. Only a transaction whose
// writes all succeeded can be committed.
func (t *txn) seal(commit bool) error {
	if commit || t.state != txnSpoilt {
		if err := t.admits(); err != nil {
			return err
		}
	}
	t.state = txnSealed
	return nil
}

// ended makes way for the next transaction. used says that the id was written or
// proposed with.
func (t *txn) ended(used bool) {
	if t.state != txnSealed {
		return
	}
	t.state = txnIdle
	if used {
		t.id++
	}
}

// end says that the owner is over.
func (t *txn) end() { t.state = txnOver }
