package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
)

// metadataPartition is the metadata log of a node that is alone.
var metadataPartition = log.TopicPartition{Topic: "__thalweg_metadata"}

const (
	defaultSyncInterval = 3 * time.Second
	// snapshotAfter is how many bytes of entries the metadata log may gain before
	// it is cut, or eight times the last snapshot where that is more.
	snapshotAfter = 8 << 20
	// metadataSegmentBytes is small, since what a snapshot replaces goes by segments.
	metadataSegmentBytes = 16 << 20
)

// PlaneOptions configures Open. The zero value suits production.
type PlaneOptions struct {
	FS  vfs.FS           // nil means the operating system's
	Log log.Options      // FS, Now and Logger of the plane win where they are set
	Now func() time.Time // nil means time.Now

	// SyncInterval is the time between background syncs, which make checkpoints
	// known-durable: what a power cut can take back is at most about that old.
	// Zero means 3 s; negative means never, and what has to be remembered then
	// grows until SyncAll is called.
	SyncInterval time.Duration

	// GroupRetention is how long a consumer group without members is kept, with its
	// positions. Zero means 7 days, negative for ever.
	GroupRetention time.Duration

	// Logger receives structured events. Nil discards them.
	Logger *slog.Logger
}

// Plane is the log plane of one node: its partitions, the metadata log and the
// state machine over it, which hands out producer ids and decides every
// transaction. Its methods may be called concurrently.
type Plane struct {
	log    *log.Log
	meta   *log.Partition
	logger *slog.Logger
	now    func() time.Time

	groups *groupWatch
	txns   *transactors

	cancel context.CancelFunc // ends the goroutines counted by wg
	wg     sync.WaitGroup

	syncMu sync.Mutex // one SyncAll at a time; taken before proposeMu

	proposeMu sync.Mutex // orders entries and is held while one is written; before stateMu
	builder   log.BatchBuilder
	entryBuf  []byte
	grown     int64 // bytes of entries since the last snapshot
	cutAfter  int64 // bytes of entries after which to write the next

	stateMu   sync.RWMutex // held across nothing that blocks: package log asks under a partition's lock
	state     *metadata
	unmarked  map[int64]struct{} // Completes whose markers are not all written, by index
	failed    error              // the metadata log failed; set once
	recovered recovery
	held      map[log.ProducerID]struct{}              // named producers that are open
	followers map[log.TopicPartition]func() log.Offset // of changelogs that a running job's store follows, how far those have it on disk

	jobsMu   sync.Mutex          // taken with none of the others held, and none taken under it
	sessions map[string]*Session // nil while a job is being started
	fellBack int64               // sessions that did
	closed   bool

	closeOnce sync.Once
	closeErr  error
}

// recovery counts what Open did.
type recovery struct {
	committed, aborted int // transactions ended, once per partition
}

// Open opens the log in dir, replays the metadata log and ends every transaction
// whose owner is over, by the verdict the metadata log gives: also those of jobs that
// nobody starts again, so that nothing stays open.
func Open(dir string, o PlaneOptions) (*Plane, error) {
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	lo := o.Log
	if o.FS != nil {
		lo.FS = o.FS
	}
	if o.Now != nil {
		lo.Now = o.Now
	}
	if o.Logger != nil {
		lo.Logger = o.Logger
	}
	p := &Plane{
		logger: logger, now: o.Now,
		unmarked: map[int64]struct{}{},
		held:     map[log.ProducerID]struct{}{},
		sessions: map[string]*Session{},
		cutAfter: snapshotAfter,
		groups:   newGroupWatch(o.GroupRetention),
		txns:     newTransactors(),
	}
	if p.now == nil {
		p.now = time.Now
	}
	asked := lo.CompactionLimit
	lo.CompactionLimit = func(tp log.TopicPartition) log.CompactionLimit {
		limit := p.limitCompaction(tp)
		if asked != nil {
			other := asked(tp)
			limit.Records, limit.Horizon = min(limit.Records, other.Records), min(limit.Horizon, other.Horizon)
		}
		return limit
	}
	l, err := log.Open(dir, lo)
	if err != nil {
		return nil, err
	}
	p.log = l
	segmentBytes := int64(metadataSegmentBytes)
	if lo.SegmentBytes > 0 {
		segmentBytes = min(segmentBytes, lo.SegmentBytes)
	}
	if err := p.recover(segmentBytes); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	if every := o.SyncInterval; every >= 0 {
		if every == 0 {
			every = defaultSyncInterval
		}
		p.wg.Go(func() { p.syncLoop(ctx, every) })
	}
	p.wg.Go(func() { p.groupLoop(ctx) })
	p.wg.Go(func() { p.txnLoop(ctx) })
	return p, nil
}

// recover replays the metadata log, ends the owners of the process before and then
// their transactions.
func (p *Plane) recover(segmentBytes int64) (err error) {
	if _, exists := p.log.Spec(metadataPartition.Topic); !exists {
		spec := log.TopicSpec{Partitions: 1, SegmentBytes: segmentBytes}
		if err := p.log.Create(metadataPartition.Topic, spec); err != nil {
			return fmt.Errorf("create the metadata log: %w", err)
		}
	}
	if p.meta, err = p.log.Partition(metadataPartition); err != nil {
		return fmt.Errorf("open the metadata log: %w", err)
	}
	state, err := p.replay()
	if err != nil {
		return fmt.Errorf("replay the metadata log: %w", err)
	}
	p.stateMu.Lock() // compaction asks already
	p.state = state
	p.stateMu.Unlock()
	if _, err := p.propose(nodeStart{unclean: !p.meta.Recovery().Clean}, true); err != nil {
		return err
	}
	if err := p.restartGroups(); err != nil {
		return err
	}
	p.log.SetOwners(p)
	for part := range p.log.Partitions() {
		if err := p.settle(part, ""); err != nil {
			return err
		}
		// Every id is durable in the metadata log before it is used.
		for _, open := range part.OpenTransactions() {
			if open.ID >= firstProducer {
				return fmt.Errorf("%w: transaction %d of %v is unknown: the metadata log was lost or replaced by an older one", ErrInvalid, open.ID, part.Name())
			}
		}
	}
	if err := p.forgetProducers(); err != nil {
		return err
	}
	if n := p.recovered; n.committed+n.aborted > 0 {
		p.logger.Info("ended transactions left open", "committed", n.committed, "aborted", n.aborted)
	}
	return nil
}

func (p *Plane) replay() (*metadata, error) {
	r := newReplayer(int64(p.meta.Start()))
	rd := p.meta.Reader(p.meta.Start(), log.ReadUncommitted)
	defer rd.Close()
	for {
		b, err := rd.Next()
		if err == io.EOF {
			return r.finish()
		}
		if err != nil {
			return nil, err
		}
		it := b.Records()
		for it.Next() {
			p.grown += int64(len(it.Value))
			if err := r.add(int64(it.Offset), it.Value); err != nil {
				return nil, fmt.Errorf("at offset %d: %w", it.Offset, err)
			}
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
	}
}

// Log is the node's log. Its partitions may be read and written freely; those that
// jobs write in transactions only through a Session.
func (p *Plane) Log() *log.Log { return p.log }

// FellBack counts the sessions since Open that started from an older checkpoint than the
// newest completed one: see Session.FellBack.
func (p *Plane) FellBack() int64 {
	p.jobsMu.Lock()
	defer p.jobsMu.Unlock()
	return p.fellBack
}

// Owner implements log.Owners.
func (p *Plane) Owner(id log.ProducerID) (first log.ProducerID, over, known bool) {
	p.stateMu.RLock()
	defer p.stateMu.RUnlock()
	return p.state.owner(id)
}

// AcquireProducer hands out a producer id for an idempotent producer. It is durable
// before it returns, so that no later process hands it out again.
func (p *Plane) AcquireProducer(ctx context.Context) (log.ProducerID, error) {
	if err := ctx.Err(); err != nil {
		return log.NoProducer, err
	}
	r, err := p.propose(producerBegin{}, true)
	if err != nil {
		return log.NoProducer, err
	}
	return r.first, nil
}

// ReleaseProducer ends a plain producer: batches with its id are refused from now on.
// That of a name keeps its id and may be acquired again.
func (p *Plane) ReleaseProducer(id log.ProducerID) error {
	if p.releaseNamed(id) {
		return nil
	}
	_, err := p.propose(producerEnd{id}, false)
	return err
}

// propose appends an entry to the metadata log and applies it; with synced it returns
// only once the entry is durable. A rejection is the result's err. An error from
// the log leaves it open whether the entry will be there when the log is opened
// again: it is kept, and every later proposal refused, since they would build
// on an answer nobody has.
func (p *Plane) propose(e entry, synced bool) (result, error) {
	r, _, err := p.proposeAt(e, synced)
	return r, err
}

// proposeAt is propose and tells the entry's index.
func (p *Plane) proposeAt(e entry, synced bool) (result, int64, error) {
	r, index, err := p.append(e)
	if err == nil && synced {
		if err = p.meta.Sync(context.Background()); err != nil {
			err = p.fail(err)
		}
	}
	if err == nil {
		err = r.err
	}
	return r, index, err
}

func (p *Plane) append(e entry) (result, int64, error) {
	p.proposeMu.Lock()
	defer p.proposeMu.Unlock()
	at, err := p.writeLocked(e)
	if err != nil {
		return result{}, -1, err
	}
	index := int64(at.Base)
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	r := p.state.apply(index, e)
	if r.err == nil && !r.repeat {
		p.acceptedLocked(index, e, r)
	}
	return r, index, nil
}

// acceptedLocked notes what follows from an entry beside the state. stateMu is held.
func (p *Plane) acceptedLocked(index int64, e entry, r result) {
	switch e := e.(type) {
	case complete:
		if len(e.ends) > 0 {
			p.unmarked[index] = struct{}{}
		}
	case txnCommit:
		if len(e.ends) > 0 {
			p.unmarked[index] = struct{}{}
		}
		for _, c := range e.positions {
			p.groups.applied(c, false)
		}
	case groupEntry:
		p.groups.applied(e.command, r.groups)
	}
}

// writeLocked appends the record of one entry. proposeMu is held.
func (p *Plane) writeLocked(e entry) (log.AppendResult, error) {
	if err := p.failure(); err != nil {
		return log.AppendResult{}, err
	}
	p.entryBuf = encodeEntry(p.entryBuf[:0], e)
	p.builder.Reset()
	p.builder.Add(p.now().UnixMilli(), nil, p.entryBuf, nil)
	at, err := p.meta.Write(p.builder.Finish(log.Producer{ID: log.NoProducer}))
	switch {
	case err == nil:
		p.grown += int64(len(p.entryBuf))
	case errors.Is(err, log.ErrOffline):
		err = p.fail(err)
	default: // a full disk, or an entry that is too large: nothing was written
		err = fmt.Errorf("metadata entry of %d bytes: %w", len(p.entryBuf), err)
	}
	return at, err
}

// fail keeps the first failure of the metadata log and returns it.
func (p *Plane) fail(cause error) error {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	if p.failed == nil {
		p.failed = fmt.Errorf("%w: %w", ErrMetadata, cause)
		p.logger.Error("the metadata log failed; nothing more is committed until it is opened again", "err", cause)
	}
	return p.failed
}

// failure is why nothing more is accepted, or nil.
func (p *Plane) failure() error {
	p.stateMu.RLock()
	defer p.stateMu.RUnlock()
	return p.failed
}

// settle ends the open transactions of a partition that are decided. Once others are at
// work it commits those of a job alone: the entry of another may not be durable yet, and
// who proposed it writes the markers when it is.
func (p *Plane) settle(part *log.Partition, job string) error {
	open := part.OpenTransactions()
	if len(open) == 0 {
		return nil
	}
	ids := make([]log.ProducerID, len(open))
	for i, o := range open {
		ids[i] = o.ID
	}
	p.stateMu.RLock()
	ends := p.state.endings(ids)
	if job != "" {
		ends = slices.DeleteFunc(ends, func(e ending) bool { return e.commit && !p.state.completedBy(e.txn, job) })
	}
	p.stateMu.RUnlock()
	for _, e := range ends {
		if err := p.end(part, e); err != nil {
			return err
		}
	}
	return nil
}

// end writes one marker. Where appends are acknowledged only when durable, so is the
// marker: readers do not see past what is not.
func (p *Plane) end(part *log.Partition, e ending) error {
	at, err := part.EndTransaction(e.txn, e.commit)
	if err == nil && p.strict(part.Name()) {
		err = part.Acked(context.Background(), at.Offset)
	}
	if err != nil {
		return fmt.Errorf("end transaction %d of %v: %w", e.txn, part.Name(), err)
	}
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	if e.commit {
		p.recovered.committed++
	} else {
		p.recovered.aborted++
	}
	return nil
}

// strict tells whether appends to a partition wait for the disk.
func (p *Plane) strict(tp log.TopicPartition) bool {
	spec, ok := p.log.Spec(tp.Topic)
	return ok && spec.Sync == log.SyncAlways
}

// marked says that all markers of the Complete at index are written.
func (p *Plane) marked(index int64) {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	delete(p.unmarked, index)
}

// settled says that every partition was settled after the job's last attempt had ended:
// nothing of the job lacks a marker.
func (p *Plane) settled(job string) {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	for _, c := range p.state.completed {
		if c.job == job {
			delete(p.unmarked, c.index)
		}
	}
}

// SyncAll syncs every partition and then records in the metadata log which
// checkpoints are known to be durable and whose markers are: what they replace is
// forgotten. It also cuts the metadata log when it has grown.
func (p *Plane) SyncAll(ctx context.Context) error {
	p.syncMu.Lock()
	defer p.syncMu.Unlock()

	// Everything completed up to here has its data and its markers in the logs
	// already, so that the syncs below make all of it durable.
	upTo := p.completedAndMarked()
	if err := p.syncPartitions(ctx); err != nil {
		return err
	}
	// The Completes themselves must be durable before anything says so of them.
	if err := p.meta.Sync(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return p.fail(err)
	}
	if p.forgets(upTo) {
		if _, err := p.propose(durable{upTo}, false); err != nil {
			return err
		}
	}
	return p.cut(ctx, false)
}

// completedAndMarked is the highest index such that every Complete at or below it
// has all its markers written.
func (p *Plane) completedAndMarked() int64 {
	p.stateMu.RLock()
	defer p.stateMu.RUnlock()
	upTo := p.state.applied
	for index := range p.unmarked {
		upTo = min(upTo, index-1)
	}
	return upTo
}

// forgets tells whether a durable entry would free anything.
func (p *Plane) forgets(upTo int64) bool {
	p.stateMu.RLock()
	defer p.stateMu.RUnlock()
	if cs := p.state.completed; len(cs) > 0 && cs[0].index <= upTo {
		return true
	}
	for _, j := range p.state.jobs {
		if len(j.checkpoints) > 1 && j.checkpoints[1].index <= upTo {
			return true
		}
		if len(j.checkpoints) > 0 && j.checkpoints[0].index > p.state.durableTo && j.checkpoints[0].index <= upTo {
			return true
		}
	}
	return false
}

// syncPartitions syncs one partition after the other. Appends to a file stand still
// while the disk commits it: several at once would stop a whole job for their sum.
func (p *Plane) syncPartitions(ctx context.Context) error {
	for part := range p.log.Partitions() {
		if part == p.meta || part.Durable() >= part.End().Offset {
			continue
		}
		err := part.Sync(ctx)
		if _, exists := p.log.Spec(part.Name().Topic); err != nil && exists {
			return fmt.Errorf("sync %v: %w", part.Name(), err)
		}
		// A partition that was deleted meanwhile has nothing to keep.
	}
	return nil
}

// cut writes a snapshot and drops the entries before it, when they have grown to more
// than it is worth or always.
func (p *Plane) cut(ctx context.Context, always bool) error {
	first, done, err := p.writeSnapshot(always)
	if err != nil || !done {
		return err
	}
	// Only when the snapshot is on disk are the entries before it to spare.
	if err := p.meta.Sync(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return p.fail(err)
	}
	if err := p.meta.DeleteBefore(first); err != nil {
		return fmt.Errorf("cut the metadata log at %d: %w", first, err)
	}
	return nil
}

func (p *Plane) writeSnapshot(always bool) (first log.Offset, done bool, err error) {
	p.proposeMu.Lock()
	defer p.proposeMu.Unlock()
	if !always && p.grown < p.cutAfter {
		return 0, false, nil
	}
	p.stateMu.RLock()
	b := encodeSnapshot(nil, p.state)
	p.stateMu.RUnlock()
	for i, part := range cutSnapshot(b) {
		at, err := p.writeLocked(part)
		if err != nil {
			return 0, false, err
		}
		if i == 0 {
			first = at.Base
		}
		p.stateMu.Lock()
		p.state.applied = int64(at.Base)
		p.stateMu.Unlock()
	}
	p.grown = 0
	p.cutAfter = max(snapshotAfter, 8*int64(len(b)))
	return first, true, nil
}

func (p *Plane) syncLoop(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := p.SyncAll(ctx); err != nil && ctx.Err() == nil {
			p.logger.Error("background sync", "err", err)
		}
	}
}

// nonce tells an attempt's proposer from others.
func nonce() uint64 { return rand.Uint64() }

// Close closes the sessions that are still open, ends the background sync, records
// what is durable and closes the log. It may be repeated and returns the first result.
func (p *Plane) Close() error {
	p.closeOnce.Do(func() { p.closeErr = p.close() })
	return p.closeErr
}

func (p *Plane) close() error {
	p.jobsMu.Lock()
	p.closed = true
	sessions := slices.Collect(maps.Values(p.sessions))
	p.jobsMu.Unlock()

	var err error
	for _, s := range sessions {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	p.cancel()
	p.wg.Wait()
	err = errors.Join(err, p.closeTransactors())
	if p.failure() == nil {
		err = errors.Join(err, p.SyncAll(context.Background()))
	}
	p.stateMu.Lock()
	if p.failed == nil {
		p.failed = ErrClosed
	}
	p.stateMu.Unlock()
	return errors.Join(err, p.log.Close())
}
