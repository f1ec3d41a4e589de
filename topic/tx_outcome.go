package topic

import "fmt"

// TxID names a transaction of a node: no other is ever given the same. It is a positive
// integer, to be stored as such.
type TxID int64

// ID names the transaction for good, so that a program can note it before it asks for
// the commit, and ask what became of it after a restart: Node.TransactionOutcome. From
// this call on there is an answer even for a transaction that sends nothing.
func (tx *Tx) ID() (TxID, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.ended {
		return 0, tx.usableLocked()
	}
	if tx.id == 0 {
		id, err := tx.p.writer.ID()
		if err != nil {
			return 0, fmt.Errorf("topic: name a transaction: %w", err)
		}
		tx.id = id
	}
	return TxID(tx.id), nil
}

// TxOutcome is what became of a transaction.
//
//	TxOpen ──▶ TxCommitted
//	       └─▶ TxAborted     and both, in the end ──▶ TxForgotten
type TxOutcome uint8

const (
	TxForgotten TxOutcome = iota // it ended too long ago
	TxOpen                       // it has not ended; after a restart none is
	TxCommitted
	TxAborted
)

var txOutcomeNames = [...]string{TxForgotten: "forgotten", TxOpen: "open", TxCommitted: "committed", TxAborted: "aborted"}

func (o TxOutcome) String() string {
	if int(o) < len(txOutcomeNames) {
		return txOutcomeNames[o]
	}
	return fmt.Sprintf("outcome %d", uint8(o))
}
