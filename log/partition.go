package log

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/internal/vfs"
)

// Partition is one append-only sequence of records. Its methods may be called
// concurrently.
type Partition struct {
	log      *Log
	name     TopicPartition
	dir      string
	options  Options // resolved
	settings atomic.Pointer[TopicSpec]

	// What readers need. All are stored under mu, unless said otherwise.
	segments   atomic.Pointer[[]*segment] // by base offset, never empty; the last is the active one
	generation atomic.Uint64              // of segments: grows when records were cut off
	start      atomic.Int64               // stored under syncMu
	end        atomic.Int64
	high       atomic.Int64 // high watermark
	stable     atomic.Int64 // last stable offset
	durable    atomic.Int64
	epochs     atomic.Pointer[epochs]
	aborted    atomic.Pointer[abortedTransactions]
	horizon    atomic.Int64             // see Horizon; stored under syncMu
	remote     atomic.Pointer[manifest] // stored under syncMu, once it is on disk
	failed     atomic.Pointer[error]    // first failed write or sync; set once
	closed     atomic.Bool
	abortedNow atomic.Int64 // see Aborted; stored under mu

	progress  signal // something above changed
	callbacks atomic.Pointer[[]*func()]

	// compactMu is held by a compaction, and while segments are copied to the object
	// store, which takes long. It is taken before syncMu.
	compactMu sync.Mutex

	// syncMu serialises what writes files beside appending: syncing, truncating,
	// deleting, putting compacted segments in place and closing. It is taken before
	// mu.
	syncMu     sync.Mutex
	deleted    Deleted
	told       Deleted         // the part of it that was logged
	compaction compactionState // as on disk
	decidedIn  decidedIn       // as the last compaction found
	compacted  CompactionStats // since the partition was opened
	remoteErr  error           // of the last Offload
	unlisted   []string        // objects that are not in the manifest any more
	swept      bool            // objects were looked for that never were
	opened     time.Time       // wall clock; set once

	// mu serialises appends.
	mu          sync.Mutex
	epoch       LeaderEpoch // of the next batch
	capacity    int64       // bytes a new segment is mapped for
	segLimit    int64       // bytes at which it is sealed
	producers   *producers
	unsynced    []*segment // sealed, not known durable yet, oldest first
	dirUnsynced bool       // a segment's directory entry may not be durable
	touched     bool       // the files of the last stop do not tell all there is
	spares      []*spare   // for the next segments
	copies      copies
	markers     BatchBuilder

	worker   *worker                    // syncs
	wanted   atomic.Int64               // offset below which somebody wants all to be durable
	timer    atomic.Pointer[time.Timer] // of what nobody waits for; it runs while armed
	armed    atomic.Bool
	timedOut atomic.Bool // the timer went off
	rolled   atomic.Bool // retention has something to look at
	stop     chan struct{}
	life     context.Context // of requests to the object store, which end with the partition
	endLife  context.CancelFunc

	recovery Recovery
}

// Recovery tells what opening a partition found.
type Recovery struct {
	// Clean is true when the partition was closed properly the last time, so that
	// nothing had to be scanned.
	Clean bool

	// ScannedBytes is how much was read and checked.
	ScannedBytes int64

	// CutBytes is how much was cut away, in CutSegments segments, because it was
	// never known to be durable and not whole: a tail the crash tore, and what
	// followed it. CutFrom is where the log ends since; it is -1 when nothing was
	// cut.
	CutBytes    int64
	CutSegments int
	CutFrom     Offset
}

// Recovery tells what opening the partition found.
func (p *Partition) Recovery() Recovery { return p.recovery }

// MaxBatchBytes is the size of the largest encoded batch the partition takes.
func (p *Partition) MaxBatchBytes() int { return p.options.MaxBatchBytes }

// MaxRecordBytes is the most that key, value and headers of a record may have
// together, 0 where the topic sets no limit.
func (p *Partition) MaxRecordBytes() int64 { return p.spec().MaxRecordBytes }

// Name is the topic and the number of the partition.
func (p *Partition) Name() TopicPartition { return p.name }

// Start is the first offset still kept.
func (p *Partition) Start() Offset { return Offset(p.start.Load()) }

// End is the position after the last batch written.
func (p *Partition) End() Position {
	end := Offset(p.end.Load())
	return Position{Offset: end, Epoch: p.epochs.Load().before(end)}
}

// HighWatermark is the first offset readers do not see yet. Under SyncAlways that
// is the first one not durable, else the end.
func (p *Partition) HighWatermark() Offset { return Offset(p.high.Load()) }

// Size is the number of bytes and of segments that hold the records.
func (p *Partition) Size() (bytes int64, segments int) {
	all := *p.segments.Load()
	for _, s := range all {
		bytes += s.end.Load()
	}
	return bytes, len(all)
}

// LastStable is the first offset readers of committed data do not see yet: that
// of the oldest open transaction, and never above the high watermark.
func (p *Partition) LastStable() Offset { return Offset(p.stable.Load()) }

// Durable is the offset below which all is synced.
func (p *Partition) Durable() Offset { return Offset(p.durable.Load()) }

// Failed is the failed write or sync that took the partition offline, nil while
// there was none.
func (p *Partition) Failed() error {
	if err := p.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Contains tells whether pos is a position of this very log: within start and
// end, and the record before it was written in pos.Epoch. Offset 0 has no record
// before it and is contained with any epoch.
func (p *Partition) Contains(pos Position) bool {
	if pos.Offset < p.Start() || pos.Offset > Offset(p.end.Load()) {
		return false
	}
	return pos.Offset == 0 || p.epochs.Load().before(pos.Offset) == pos.Epoch
}

// PositionAt returns off with the leader epoch of the record before it. An offset
// outside [Start, End] is ErrOffsetOutOfRange.
func (p *Partition) PositionAt(off Offset) (Position, error) {
	if err := p.checkRange(off); err != nil {
		return Position{}, err
	}
	return Position{Offset: off, Epoch: p.epochs.Load().before(off)}, nil
}

// EndOfEpoch is the end of what was written in a leader epoch or before: the offset of
// the first record of a later one, or else the end. A position of that epoch beyond
// it is of a log that was truncated since.
func (p *Partition) EndOfEpoch(epoch LeaderEpoch) Offset {
	end := Offset(p.end.Load())
	return min(p.epochs.Load().endOf(epoch, end), end)
}

func (p *Partition) checkRange(off Offset) error {
	if start, end := p.Start(), Offset(p.end.Load()); off < start || off > end {
		return fmt.Errorf("%w: %s has no offset %d, only [%d, %d]", ErrOffsetOutOfRange, p.name, off, start, end)
	}
	return nil
}

// OpenTransaction is a transaction without a marker.
type OpenTransaction struct {
	ID    ProducerID
	First Offset
	Since time.Time // wall clock at its first batch; after a crash, at the opening
}

// Aborted is the number of transactions that were aborted since the partition was opened:
// readers of committed data pass over what they wrote.
func (p *Partition) Aborted() int64 { return p.abortedNow.Load() }

// Oldest is the time of the first record that is kept, as the record says it. It is zero
// where there is none, and where only the object store has it.
func (p *Partition) Oldest() time.Time {
	start := p.Start()
	if start < (*p.segments.Load())[0].base {
		return time.Time{}
	}
	r := p.Reader(start, ReadUncommitted)
	defer r.Close()
	b, err := r.Next()
	if err != nil {
		return time.Time{} // there is none yet, or it has just gone
	}
	if it := b.Records(); it.Next() {
		return time.UnixMilli(it.Time).UTC()
	}
	return time.Time{}
}

// OpenTransactions returns those of this partition by first offset.
func (p *Partition) OpenTransactions() []OpenTransaction {
	p.mu.Lock()
	defer p.mu.Unlock()
	var open []OpenTransaction
	for _, producer := range p.producers.opened {
		open = append(open, OpenTransaction{
			ID:    producer.id,
			First: producer.transactionFirst,
			Since: time.UnixMilli(producer.transactionSince),
		})
	}
	return open
}

// OnAdvance registers f to be called after the end, the high watermark or the last
// stable offset moved, after records were deleted, and after the partition failed or
// was closed: whenever a reader may learn something. f must neither block nor call
// the partition. The result unregisters it; a call that has begun may still be
// running then.
func (p *Partition) OnAdvance(f func()) (cancel func()) {
	entry := &f
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setCallbacksLocked(append(slices.Clone(*p.callbacks.Load()), entry))
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.setCallbacksLocked(slices.DeleteFunc(slices.Clone(*p.callbacks.Load()), func(e *func()) bool { return e == entry }))
	}
}

func (p *Partition) setCallbacksLocked(callbacks []*func()) { p.callbacks.Store(&callbacks) }

// advanced tells whoever waits that there is something to learn.
func (p *Partition) advanced() {
	p.progress.broadcast()
	for _, f := range *p.callbacks.Load() {
		(*f)()
	}
}

// publishLocked derives high watermark and last stable offset from what is
// written and durable.
func (p *Partition) publishLocked() {
	high := p.end.Load()
	if p.spec().Sync == SyncAlways {
		// What readers have seen stays, also when they saw it under another policy.
		high = max(p.durable.Load(), p.high.Load())
	}
	// A reader that sees the new last stable offset sees the high watermark too.
	p.high.Store(high)
	p.stable.Store(min(high, int64(p.producers.firstOpen(Offset(high)))))
}

// alter makes spec the settings from the next append on.
func (p *Partition) alter(spec TopicSpec) {
	p.mu.Lock()
	p.setSpecLocked(spec)
	p.publishLocked()
	p.rolled.Store(true)
	p.disarm()
	if p.end.Load() > p.durable.Load() {
		p.arm(max(time.Duration(spec.Sync), 0))
	}
	p.mu.Unlock()
	p.worker.wake()
	p.advanced()
}

// active is the segment appends go to.
func (p *Partition) active() *segment {
	segments := *p.segments.Load()
	return segments[len(segments)-1]
}

// find returns the index of the segment that holds off, or would.
func find(segments []*segment, off Offset) int {
	i, found := slices.BinarySearchFunc(segments, off, func(s *segment, off Offset) int {
		switch {
		case s.base < off:
			return -1
		case s.base > off:
			return 1
		}
		return 0
	})
	if found {
		return i
	}
	return max(i-1, 0)
}

// usable is nil while the partition takes writes.
func (p *Partition) usable() error {
	if p.closed.Load() {
		return ErrClosed
	}
	if p.log.readOnly {
		return fmt.Errorf("%w: %s", ErrReadOnly, p.name)
	}
	return p.offline()
}

// offline is nil, or ErrOffline with the failure behind it.
func (p *Partition) offline() error {
	if err := p.Failed(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrOffline, p.name, err)
	}
	return nil
}

// fail takes the partition offline, for good unless it is so already. What was
// written or synced before stands, whether cause came in between is not known.
func (p *Partition) fail(cause error) error {
	if p.failed.CompareAndSwap(nil, &cause) {
		p.options.Logger.Error("partition is offline", "partition", p.name.String(), "error", cause)
	}
	p.advanced()
	return p.offline()
}

// halt ends the worker and refuses all further use. Readers that hold a segment keep
// its mapping.
func (p *Partition) halt() (first bool) {
	p.mu.Lock()
	first = !p.closed.Swap(true)
	p.mu.Unlock()
	if first {
		close(p.stop)
		p.endLife()
		p.disarm()
		p.worker.stop()
	}
	p.compactMu.Lock() // a compaction ends early
	defer p.compactMu.Unlock()
	p.advanced()
	return first
}

// release drops the partition's own pins and descriptors.
func (p *Partition) release() (err error) {
	if p.segments.Load() == nil {
		return nil // it was not opened
	}
	for _, s := range *p.segments.Load() {
		err = errors.Join(err, s.drop())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.spares {
		err = errors.Join(err, p.letGo(s))
	}
	p.spares = nil
	return err
}

// close makes all durable, writes what saves the next open from scanning, and
// cuts the active segment to its end. The result tells what a clean stop may
// claim; after an error it may claim nothing.
func (p *Partition) close() (cleanStop, error) {
	if !p.halt() {
		return cleanStop{}, ErrClosed
	}
	p.syncMu.Lock()
	sealed, err := p.syncRound()
	p.syncMu.Unlock()
	if err == nil {
		p.finishSealed(sealed)
	}
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	defer p.release()
	if err != nil {
		return cleanStop{}, err
	}
	p.mu.Lock()
	touched, end := p.touched, Offset(p.end.Load())
	p.mu.Unlock()
	if !touched {
		return cleanStop{End: end, Epoch: p.epoch}, nil
	}
	p.dropSpares()
	active := p.active()
	if active.absent { // written to by nobody, but producers are to be remembered
		if err := active.create(); err != nil {
			return cleanStop{}, fmt.Errorf("close %s: %w", p.name, err)
		}
	}
	active.sealed.Store(true)
	if err := active.settle(); err != nil {
		return cleanStop{}, p.fail(err)
	}
	err = active.writeIndexes(p.aborted.Load().between(active.base, active.next))
	snapshot := path.Join(p.dir, offsetName(end, snapshotSuffix))
	err = errors.Join(err, replaceFile(p.options.FS, snapshot, p.producers.encodeSnapshot(p.options.Now().UnixMilli())))
	if err != nil {
		return cleanStop{}, fmt.Errorf("close %s: %w", p.name, err)
	}
	return cleanStop{End: end, Epoch: p.epoch}, nil
}

// Acked waits until all below end is below the high watermark and as durable as
// the topic's sync policy demands. Under SyncByOS and SyncEvery it returns at once.
// When ctx ends first, the batches are in the log all the same and may still
// become durable.
func (p *Partition) Acked(ctx context.Context, end Offset) error {
	return p.await(ctx, end, &p.high)
}

// await waits until reached is at least end.
func (p *Partition) await(ctx context.Context, end Offset, reached *atomic.Int64) error {
	for {
		if reached.Load() >= int64(end) {
			return nil
		}
		changed := p.progress.wait()
		switch {
		case reached.Load() >= int64(end):
			return nil
		case p.failed.Load() != nil:
			return p.offline()
		case p.closed.Load():
			return ErrClosed
		case int64(end) > p.end.Load():
			return fmt.Errorf("%w: %s ends at %d, before %d", ErrOffsetOutOfRange, p.name, p.end.Load(), end)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to reach offset %d: %w", p.name, end, ctx.Err())
		}
	}
}

// newPartition returns a partition without segments.
func newPartition(l *Log, name TopicPartition, spec TopicSpec) *Partition {
	p := &Partition{
		log:      l,
		name:     name,
		dir:      path.Join(l.dir, name.String()),
		options:  l.options,
		stop:     make(chan struct{}),
		recovery: Recovery{CutFrom: -1},
	}
	p.worker = newWorker(p.work)
	p.setSpecLocked(spec) // nobody else has it yet
	p.callbacks.Store(new([]*func()))
	p.epochs.Store(new(epochs))
	p.aborted.Store(new(abortedTransactions))
	p.remote.Store(new(manifest))
	p.life, p.endLife = context.WithCancel(context.Background())
	return p
}

// spec is what the topic's settings are now.
func (p *Partition) spec() *TopicSpec { return p.settings.Load() }

func (p *Partition) setSpecLocked(spec TopicSpec) {
	p.settings.Store(&spec)
	p.segLimit = p.options.SegmentBytes
	if spec.SegmentBytes != 0 {
		p.segLimit = spec.SegmentBytes
	}
	// A batch larger than a segment gets one of its own.
	p.capacity = min(max(p.segLimit, int64(p.options.MaxBatchBytes)), math.MaxInt32)
}

// newSegment returns a segment of the partition that is to be written, and closed.
func (p *Partition) newSegment(base Offset) *segment {
	s := newSegment(p.options.FS, p.dir, base, p.options.IndexIntervalBytes)
	s.capacity, s.bound, s.failed = p.capacity, p.log.open, p.fail
	s.writable.Store(true)
	return s
}

// createSegment makes an empty segment with its file.
func (p *Partition) createSegment(base Offset) (*segment, error) {
	s := p.newSegment(base)
	return s, s.create()
}

func (p *Partition) files() vfs.FS { return p.options.FS }
