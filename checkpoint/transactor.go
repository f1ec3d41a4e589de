package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
)

// TransactorOptions configures Plane.Transactor.
type TransactorOptions struct {
	// Name makes a new transactor end the one before of the same name, whose open
	// transaction is aborted. Empty means a name nobody else gets.
	Name string

	// Timeout is how long a transaction may be open, by the plane's clock. One that is
	// open for longer is aborted and its transactor over. It must be positive.
	Timeout time.Duration
}

// Transactor writes plain transactions, one after the other. Its methods may be called
// concurrently; each waits for the one before.
type Transactor struct {
	p       *Plane
	name    string
	first   log.ProducerID
	timeout time.Duration

	mu      sync.Mutex // held across appends and proposals; taken before every lock of Plane
	txn     txn
	written map[*log.Partition]*txnWritten // in the open transaction
	asked   bool                           // for the id of it: its outcome gets an entry whatever it wrote

	// Guarded by Plane.txns.mu.
	open    log.ProducerID   // the open transaction, NoProducer without one
	since   time.Time        // its begin
	touched []*log.Partition // by it, each before the first write to it
	over    string           // why the transactor is over; empty while it is not
}

// txnWritten is what a transaction wrote to one partition.
type txnWritten struct {
	sequence int32 // of the next record
	end      log.Position
}

// Transactor begins an owner of transactions. It is durable before it returns, and what
// the one before of its name had open is aborted.
func (p *Plane) Transactor(ctx context.Context, o TransactorOptions) (*Transactor, error) {
	if o.Timeout <= 0 {
		return nil, fmt.Errorf("checkpoint: TransactorOptions.Timeout is %v: it must be positive", o.Timeout)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !p.txns.enter() {
		return nil, ErrClosed
	}
	defer p.txns.calls.Done()
	r, err := p.propose(txnOwnerBegin{o.Name, nonce()}, true)
	if err != nil {
		return nil, err
	}
	t := &Transactor{p: p, name: o.Name, first: r.first, timeout: o.Timeout, txn: newTxn(r.first), written: map[*log.Partition]*txnWritten{}, open: log.NoProducer}
	if o.Name == "" {
		t.name = anonymousName(r.first)
	}
	// The entry has ended the one before.
	for _, before := range p.txns.add(t) {
		if err := p.abortLeft(before); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	return t, nil
}

// anonymousName is what a transactor without a name is called where it has to be.
func anonymousName(first log.ProducerID) string {
	return fmt.Sprintf("transact-%d", (first-firstBlock)/blockSize)
}

// Name is that of the options, or a made one.
func (t *Transactor) Name() string { return t.name }

// Begin opens a transaction. Without one before that is still open it waits for nothing.
func (t *Transactor) Begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.alive(); err != nil {
		return err
	}
	if err := t.txn.begin(); err != nil {
		return err
	}
	t.p.txns.opened(t, t.txn.id, t.p.now())
	return nil
}

// ID names the open transaction for good: Plane.Outcome tells what became of it, in the
// next process too, once the metadata log has been opened again.
func (t *Transactor) ID() (log.ProducerID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.alive(); err != nil {
		return log.NoProducer, err
	}
	if err := t.txn.admits(); err != nil {
		return log.NoProducer, err
	}
	t.asked = true
	return t.txn.id, nil
}

// alive is nil while the transactor is not over.
func (t *Transactor) alive() error {
	why := t.p.txns.over(t)
	if why == "" {
		return nil
	}
	t.txn.end()
	return fmt.Errorf("%w: %s", ErrFenced, why)
}

// Write appends what b holds as part of the open transaction and resets b. It does not
// wait for the sync policy: Commit does. After a failure the transaction can only be
// aborted.
func (t *Transactor) Write(part *log.Partition, b *log.BatchBuilder) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.alive(); err != nil {
		return err
	}
	if err := t.txn.admits(); err != nil {
		return err
	}
	if b.Len() == 0 {
		return nil
	}
	w := t.written[part]
	if w == nil {
		w = &txnWritten{}
		t.written[part] = w
		t.p.txns.touch(t, part)
	}
	n := b.Len()
	batch, err := part.Encode(b, log.Producer{ID: t.txn.id, Sequence: w.sequence, Transactional: true})
	var at log.AppendResult
	if err == nil {
		at, err = part.Write(batch)
	}
	if err != nil {
		t.txn.spoil()
		if errors.Is(err, log.ErrFenced) { // the partition may know before this does
			t.txn.end()
			err = cmp.Or(t.alive(), fmt.Errorf("%w: %w", ErrFenced, err))
		}
		return fmt.Errorf("write %v: %w", part.Name(), err)
	}
	b.Reset()
	w.sequence = int32((int64(w.sequence) + int64(n)) & math.MaxInt32)
	w.end = at.End
	return nil
}

// Commit commits the open transaction and with it positions of consumer groups. What
// was written is as durable as its topics ask before the entry is, and the entry
// before the markers. When ctx ends before the entry is proposed the transaction is
// aborted.
//
// An error that matches ErrUnknown leaves open whether the transaction is committed: the
// metadata log failed under the entry, and says so when it is opened again. Any other
// means that it is aborted; one of package group says that a position is not accepted.
// Once the entry is there nothing is an error: a marker that cannot be written is tried
// again until it is, at the latest when the plane is opened again, and until then
// readers wait for it.
func (t *Transactor) Commit(ctx context.Context, positions []group.Commit) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.alive(); err != nil {
		return err
	}
	if err := t.txn.seal(true); err != nil {
		return err
	}
	if len(t.written) == 0 && len(positions) == 0 && !t.asked {
		t.endLocked(false)
		return nil
	}
	e, strict := t.entry(positions)
	if err := t.await(ctx, strict, positions); err != nil {
		return t.giveUp(err)
	}
	if err := t.p.failure(); err != nil {
		return t.giveUp(err) // nothing is written any more
	}
	r, index, err := t.p.proposeAt(e, strict)
	switch {
	case errors.Is(err, ErrMetadata) && r.err == nil:
		t.txn.end()
		return fmt.Errorf("%w: commit transaction %d: %w", ErrUnknown, t.txn.id, err)
	case err != nil:
		return t.giveUp(err)
	}
	parts := slices.Collect(maps.Keys(t.written))
	owed := t.p.mark(owedMarkers{txn: e.id, commit: true, index: index, parts: parts})
	// Before the entry may be forgotten, or whoever ends the owner would take the
	// transaction for one that was never committed.
	t.endLocked(true)
	t.p.owe(owed)
	return nil
}

// entry is the commit of the open transaction; strict says that it waits for the disk.
func (t *Transactor) entry(positions []group.Commit) (e txnCommit, strict bool) {
	e = txnCommit{id: t.txn.id, time: t.p.now().UnixMilli(), ends: map[log.TopicPartition]log.Position{}}
	for part, w := range t.written {
		e.ends[part.Name()] = w.end
		strict = strict || t.p.strict(part.Name())
	}
	e.positions = slices.SortedFunc(slices.Values(positions), func(a, b group.Commit) int { return strings.Compare(a.Group, b.Group) })
	for _, c := range positions {
		for _, at := range c.Positions {
			strict = strict || t.p.strict(groupPartition(at.Partition))
		}
	}
	return e, strict
}

func groupPartition(p group.Partition) log.TopicPartition {
	return log.TopicPartition{Topic: p.Topic, Partition: log.PartitionID(p.Number)}
}

// await waits until what the entry will name is as durable as the entry: everything,
// what was read too, where it waits for the disk.
func (t *Transactor) await(ctx context.Context, strict bool, positions []group.Commit) error {
	if !strict {
		return ctx.Err() // nothing waits for the disk
	}
	var g errgroup.Group
	for part, w := range t.written {
		g.Go(func() error { return syncTo(ctx, part, w.end.Offset) })
	}
	for _, c := range positions {
		for _, at := range c.Positions {
			if part, err := t.p.log.Partition(groupPartition(at.Partition)); err == nil {
				g.Go(func() error { return syncTo(ctx, part, log.Offset(at.Position.Offset)) })
			}
		}
	}
	return g.Wait()
}

func syncTo(ctx context.Context, part *log.Partition, end log.Offset) error {
	if part.Durable() >= end {
		return nil
	}
	return part.Sync(ctx)
}

// giveUp aborts a transaction that could not be committed because of cause.
func (t *Transactor) giveUp(cause error) error {
	id := t.txn.id
	if err := t.abortLocked(); err != nil && !errors.Is(err, ErrFenced) {
		cause = errors.Join(cause, err)
	}
	if over := t.alive(); over != nil && !errors.Is(cause, ErrFenced) {
		cause = errors.Join(over, cause)
	}
	return fmt.Errorf("transaction %d is aborted: %w", id, cause)
}

// Abort aborts the open transaction; without one it does nothing. The transaction is
// never committed, whatever the error.
func (t *Transactor) Abort() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.txn.state == txnIdle {
		return nil
	}
	if err := t.alive(); err != nil {
		return err
	}
	if err := t.txn.seal(false); err != nil {
		return err
	}
	return t.abortLocked()
}

// abortLocked aborts the sealed transaction.
func (t *Transactor) abortLocked() error {
	if len(t.written) == 0 && !t.asked {
		t.endLocked(false) // no partition has heard of it
		return nil
	}
	if _, err := t.p.propose(txnAbort{t.txn.id}, false); err != nil {
		// Nothing can commit it any more: with its owner it is over.
		t.txn.end()
		if over := t.alive(); over != nil {
			return over
		}
		return fmt.Errorf("abort transaction %d: %w", t.txn.id, err)
	}
	owed := t.p.mark(owedMarkers{txn: t.txn.id, parts: slices.Collect(maps.Keys(t.written))})
	t.endLocked(true)
	t.p.owe(owed)
	return nil
}

// endLocked makes way for the next transaction.
func (t *Transactor) endLocked(used bool) {
	clear(t.written)
	t.asked = false
	t.txn.ended(used)
	t.p.txns.ended(t)
}

// Close aborts what is open and ends the transactor. It may be repeated.
func (t *Transactor) Close() error {
	if !t.p.txns.has(t) {
		return nil
	}
	t.p.txns.condemn(t, "it is closed")
	return t.p.endTransactor(t)
}
