package thalweg

import (
	"context"
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// Transact runs f in a transaction: all that f sends, to whatever topics, can be read
// together once it returns nil, and nothing of it ever if it returns an error, or
// panics, or the process ends before. Calls run beside one another.
//
// Readers of committed data that have come to an open transaction wait for its end, so
// f should be quick; after Options.TransactionTimeout it is aborted. The error is that of
// f, or says why the transaction is aborted, unless it matches topic.ErrUnknown: see
// topic.TxProducer.Commit.
func (n *Node) Transact(ctx context.Context, f func(tx *topic.Tx) error) error {
	p, err := n.borrowTx(ctx)
	if err != nil {
		return err
	}
	usable := false
	defer func() { n.returnTx(p, usable) }()
	err = p.Transact(ctx, f)
	if err != nil && n.isDone() {
		err = errors.Join(ErrClosed, err)
	}
	// One that is over, or whose last outcome is not known, is of no more use.
	usable = !errors.Is(err, topic.ErrFenced) && !errors.Is(err, topic.ErrUnknown)
	return err
}

// TxProducer returns a producer of transactions for programs that begin and end them
// explicitly, or that have to fence their predecessor: one with a name ends the one
// before of that name. Whoever asked for it closes it; Node.Close closes those that
// are left.
func (n *Node) TxProducer(ctx context.Context, o topic.TxOptions) (*topic.TxProducer, error) {
	leave, err := n.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	o, err = o.WithDefaults()
	if err != nil {
		return nil, err
	}
	t, err := n.plane.Transactor(ctx, checkpoint.TransactorOptions{Name: o.Name, Timeout: o.Timeout})
	if err != nil {
		return nil, fmt.Errorf("thalweg: begin a producer of transactions: %w", err)
	}
	return topic.NewTxProducer(topicHost{n}, txWriter{t}, n.options.Producer.Now), nil
}

// borrowTx returns a producer for one transaction.
func (n *Node) borrowTx(ctx context.Context) (*topic.TxProducer, error) {
	n.mu.Lock()
	if last := len(n.txs) - 1; last >= 0 && !n.closed {
		p := n.txs[last]
		n.txs = n.txs[:last]
		n.mu.Unlock()
		return p, nil
	}
	n.mu.Unlock()
	return n.TxProducer(ctx, topic.TxOptions{Timeout: n.options.TransactionTimeout})
}

// returnTx keeps one for the next call. There are as many as calls were at once.
func (n *Node) returnTx(p *topic.TxProducer, usable bool) {
	n.mu.Lock()
	if usable && !n.closed {
		n.txs = append(n.txs, p)
		n.mu.Unlock()
		return
	}
	n.mu.Unlock()
	_ = p.Close() // it has told its last error before
}

// OpenTransaction is one that holds back readers of committed data.
type OpenTransaction = checkpoint.OpenTransaction

// Transactions returns the open transactions, the oldest first: whose they are, since
// when they are open, and where. Those of jobs are their open checkpoints.
func (n *Node) Transactions() ([]OpenTransaction, error) {
	leave, err := n.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	return n.plane.Transactions(), nil
}

// AbortTransaction aborts the open transaction of an owner, by the name that
// Transactions gives, and fences the owner. That of a job ends with the job. Where
// there is none it is ErrNoTransaction.
func (n *Node) AbortTransaction(ctx context.Context, owner string) error {
	leave, err := n.enter()
	if err != nil {
		return err
	}
	defer leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	err = n.plane.AbortTransaction(owner)
	if errors.Is(err, checkpoint.ErrNoTransaction) {
		return fmt.Errorf("%w: of %q", ErrNoTransaction, owner)
	}
	return err
}

// TransactionOutcome tells what became of a transaction, by its topic.Tx.ID, for a program
// that died, or was left with topic.ErrUnknown, between asking for the commit and hearing
// of it. An answer other than topic.TxOpen is final, and as durable as the transaction.
//
// It is remembered through restarts for the 32,768 newest runs of transactions at the
// least: a run is what one TxProducer committed, or aborted, one after the other. So a
// producer that never aborts needs one. Older ones are topic.TxForgotten. An id that no
// transaction of this node was ever given is ErrNoTransaction. After the metadata log has
// failed the error matches topic.ErrUnknown, until the node is opened again.
func (n *Node) TransactionOutcome(ctx context.Context, id topic.TxID) (topic.TxOutcome, error) {
	leave, err := n.enter()
	if err != nil {
		return topic.TxForgotten, err
	}
	defer leave()
	outcome, err := n.plane.Outcome(ctx, log.ProducerID(id))
	switch {
	case errors.Is(err, checkpoint.ErrNoTransaction):
		return topic.TxForgotten, fmt.Errorf("%w: of id %d", ErrNoTransaction, id)
	case err != nil:
		return topic.TxForgotten, txError(err)
	}
	return txOutcomes[outcome], nil
}

var txOutcomes = [...]topic.TxOutcome{
	checkpoint.OutcomeForgotten: topic.TxForgotten,
	checkpoint.OutcomeOpen:      topic.TxOpen,
	checkpoint.OutcomeCommitted: topic.TxCommitted,
	checkpoint.OutcomeAborted:   topic.TxAborted,
}

// txWriter gives package topic a transactor, and its errors their meaning there.
type txWriter struct{ t *checkpoint.Transactor }

var _ topic.TxWriter = txWriter{}

func (w txWriter) Begin() error { return txError(w.t.Begin()) }

func (w txWriter) ID() (log.ProducerID, error) {
	id, err := w.t.ID()
	return id, txError(err)
}

func (w txWriter) Write(p *log.Partition, b *log.BatchBuilder) error { return txError(w.t.Write(p, b)) }

func (w txWriter) Commit(ctx context.Context, positions []group.Commit) error {
	return txError(w.t.Commit(ctx, positions))
}

func (w txWriter) Abort() error { return txError(w.t.Abort()) }
func (w txWriter) Close() error { return txError(w.t.Close()) }

func txError(err error) error {
	switch {
	case errors.Is(err, checkpoint.ErrUnknown):
		return fmt.Errorf("%w: %w", topic.ErrUnknown, err)
	case errors.Is(err, checkpoint.ErrFenced):
		return fmt.Errorf("%w: %w", topic.ErrFenced, err)
	}
	return err
}
