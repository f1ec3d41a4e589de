package topic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
)

// TxOptions configures a TxProducer. The zero value suits programs that use Transact
// alone.
type TxOptions struct {
	// Name makes a new TxProducer fence the one before of the same name, in this
	// process or one before: its open transaction is aborted, and it can do nothing
	// more. It also names the transaction where somebody looks for what is open. Empty
	// means a made name that no other has.
	Name string

	// Timeout is how long a transaction may be open, by the node's clock. One that is
	// open for longer is aborted and its TxProducer fenced. Zero means 1 minute.
	Timeout time.Duration
}

const defaultTxTimeout = time.Minute

// WithDefaults returns the resolved options, or an error that names the field out of
// range.
func (o TxOptions) WithDefaults() (TxOptions, error) {
	if o.Timeout == 0 {
		o.Timeout = defaultTxTimeout
	}
	if o.Timeout < 0 {
		return o, fmt.Errorf("topic: TxOptions.Timeout is %v: it must be positive; a transaction without a limit could hold back readers for ever", o.Timeout)
	}
	if len(o.Name) > maxNameBytes {
		return o, fmt.Errorf("topic: TxOptions.Name has %d bytes; give at most %d", len(o.Name), maxNameBytes)
	}
	return o, nil
}

// TxWriter writes the transactions of one owner, one after the other. A node provides
// it. Its errors match ErrUnknown where the outcome is not known and ErrFenced where
// the owner is over.
type TxWriter interface {
	Begin() error
	ID() (log.ProducerID, error)                          // of the open transaction, whose outcome is remembered from then on
	Write(part *log.Partition, b *log.BatchBuilder) error // and resets b
	Commit(ctx context.Context, positions []group.Commit) error
	Abort() error
	Close() error
}

// TxProducer runs transactions, one after the other. Its methods may be called
// concurrently, but a transaction has to end before the next can begin.
type TxProducer struct {
	node   Node
	writer TxWriter
	now    func() time.Time

	mu      sync.Mutex           // guards the fields below; a leaf
	current *Tx                  // nil while none is open
	ending  bool                 // Commit or Abort of it has begun
	topics  map[*declaration]any // *txTopic of each topic used lately
}

// NewTxProducer returns a producer of transactions on n that writes with w, which it
// closes. A nil now means time.Now.
func NewTxProducer(n Node, w TxWriter, now func() time.Time) *TxProducer {
	if now == nil {
		now = time.Now
	}
	return &TxProducer{node: n, writer: w, now: now, topics: map[*declaration]any{}}
}

// Begin opens a transaction. The one before must have been committed or aborted.
func (p *TxProducer) Begin() (*Tx, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		return nil, fmt.Errorf("%w: commit or abort it first", ErrTxOpen)
	}
	if err := p.writer.Begin(); err != nil {
		return nil, fmt.Errorf("topic: begin a transaction: %w", err)
	}
	p.current = &Tx{p: p, batches: map[*log.Partition]*log.BatchBuilder{}, positions: map[*consumer]txPositions{}}
	return p.current, nil
}

// Commit commits the open transaction and returns when it is, and its records are as
// durable as their topics ask. They can be read then, once older transactions in the
// same partitions have ended too; a reader of several partitions may come to it in one
// before the other. Where a partition takes no more, since its disk is full or it is
// offline, they can be read when it does again, at the latest when the node has been
// opened anew: it is tried again until then. When ctx ends before the commit is decided
// it is aborted. An error means that it is aborted, unless it matches ErrUnknown: the
// metadata log failed while it was written, so that nobody can be asked before the node
// has been opened again. It tells then what became of the transaction, by its Tx.ID.
func (p *TxProducer) Commit(ctx context.Context) error {
	tx, err := p.take()
	if err != nil {
		return err
	}
	defer p.release()
	if err := tx.end(true); err != nil {
		err = fmt.Errorf("topic: commit: the transaction is aborted: %w", err)
		if e := p.writer.Abort(); e != nil && !errors.Is(e, ErrFenced) {
			err = errors.Join(err, e)
		}
		return err
	}
	var commits []group.Commit
	for _, c := range tx.positions { // nothing is added any more
		if len(c.moves) > 0 {
			commits = append(commits, c.commit)
		}
	}
	if err := p.writer.Commit(ctx, commits); err != nil {
		for c := range tx.positions {
			c.notice() // it may have lost partitions
		}
		return fmt.Errorf("topic: commit: %w", staleOf(err))
	}
	for _, c := range tx.positions {
		c.committed()
	}
	return nil
}

// staleOf makes an error about a membership that is over match ErrStale.
func staleOf(err error) error {
	if errors.Is(err, group.ErrNotMember) || errors.Is(err, group.ErrUnknown) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return err
}

// Abort aborts the open transaction; without one it does nothing. Whatever its error
// says, the transaction is never committed.
func (p *TxProducer) Abort() error {
	tx, err := p.take()
	if err != nil {
		return nil
	}
	defer p.release()
	_ = tx.end(false) // it is aborted whatever has failed
	if err := p.writer.Abort(); err != nil {
		return fmt.Errorf("topic: abort: %w", err)
	}
	return nil
}

// take begins the end of the open transaction, which release completes.
func (p *TxProducer) take() (*Tx, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil || p.ending {
		return nil, fmt.Errorf("%w: begin one first", ErrTxEnded)
	}
	p.ending = true
	return p.current, nil
}

func (p *TxProducer) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current, p.ending = nil, false
}

// Transact runs f in a transaction, which it commits if f returns nil and aborts
// otherwise, also when f panics. The error is that of f, or of Commit. f must not keep
// tx.
func (p *TxProducer) Transact(ctx context.Context, f func(tx *Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	tx, err := p.Begin()
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done { // f panics
			_ = p.Abort()
		}
	}()
	err = f(tx)
	done = true
	if err != nil {
		return errors.Join(err, p.Abort())
	}
	return p.Commit(ctx)
}

// Close aborts the open transaction, if there is one, and ends the producer. It may be
// repeated.
func (p *TxProducer) Close() error {
	if tx, err := p.take(); err == nil {
		defer p.release()
		_ = tx.end(false)
	}
	return p.writer.Close()
}
