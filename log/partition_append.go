package log

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"
)

// AppendResult tells where a batch went.
type AppendResult struct {
	Base, Last Offset
	End        Position // the position right after the batch
	Duplicate  bool     // an exact repetition: Base and Last are those of the first time
	AppendTime int64    // Unix ms that readers see as the time of all its records; 0 where these keep their own
}

// ownerPoll is how often Append looks again for an owner nobody announced.
const ownerPoll = 20 * time.Millisecond

// Write appends one encoded batch, stamping base offset and leader epoch into the
// log's copy, and returns without waiting for the sync policy. The batch stays
// the caller's.
//
// The batch's header is checked, its checksum and records are not: they come from
// a BatchBuilder of this process, by way of Encode, and a reader checks them.
// WriteForeign takes batches from elsewhere.
//
// A batch of a producer id whose owner is not known yet is ErrUnknownOwner; Append
// waits for it. An error other than ErrOffline left the log as it was.
func (p *Partition) Write(batch []byte) (AppendResult, error) {
	b, err := p.checkBatch(batch)
	if err != nil {
		return AppendResult{}, err
	}
	return p.write(&b, nil)
}

// WriteForeign is Write for a batch that another process encoded: its checksum and
// every record are checked first.
func (p *Partition) WriteForeign(batch []byte) (AppendResult, error) {
	b, err := p.checkBatch(batch)
	if err == nil {
		err = verifyChecksum(b.Bytes)
	}
	if err == nil {
		err = p.checkRecords(&b)
	}
	if err != nil {
		return AppendResult{}, err
	}
	return p.write(&b, nil)
}

// checkBatch decodes a batch to be appended, and refuses what cannot be.
func (p *Partition) checkBatch(batch []byte) (Batch, error) {
	if len(batch) > p.options.MaxBatchBytes {
		return Batch{}, fmt.Errorf("%w: %d bytes for %s, at most %d are allowed", ErrTooLarge, len(batch), p.name, p.options.MaxBatchBytes)
	}
	b, err := parseHeader(batch)
	switch {
	case err != nil:
		return Batch{}, err
	case len(b.Bytes) != len(batch):
		return Batch{}, fmt.Errorf("%w: %d bytes follow the batch", ErrInvalidBatch, len(batch)-len(b.Bytes))
	case b.Control:
		return Batch{}, fmt.Errorf("%w: markers are written by EndTransaction", ErrInvalidBatch)
	case b.Count < 1 || Offset(b.Count) != b.Last-b.Base+1:
		return Batch{}, fmt.Errorf("%w: %d records for %d offsets", ErrInvalidBatch, b.Count, b.Last-b.Base+1)
	}
	if p.spec().Compact {
		return b, p.checkKeys(&b)
	}
	return b, nil
}

// write appends a batch that was checked, if holds is nil or returns nil.
func (p *Partition) write(b *Batch, holds func(Tail) error) (AppendResult, error) {
	p.mu.Lock()
	result, err := p.writeLocked(b, holds)
	p.mu.Unlock()
	if err != nil {
		return AppendResult{}, err
	}
	if !result.Duplicate {
		p.advanced()
	}
	return result, nil
}

func (p *Partition) writeLocked(b *Batch, holds func(Tail) error) (AppendResult, error) {
	if err := p.usable(); err != nil {
		return AppendResult{}, err
	}
	now := p.options.Now()
	nowMs := now.UnixMilli()
	if b.Producer.ID != NoProducer {
		duplicate, err := p.producers.check(b, nowMs)
		if err != nil {
			return AppendResult{}, fmt.Errorf("append to %s: %w", p.name, err)
		}
		if duplicate != nil {
			return AppendResult{
				Base:       duplicate.base,
				Last:       duplicate.last,
				End:        Position{Offset: duplicate.last + 1, Epoch: p.epochs.Load().before(duplicate.last + 1)},
				Duplicate:  true,
				AppendTime: p.appendTimeOf(duplicate),
			}, nil
		}
	}
	if holds != nil {
		if err := holds(Tail{p}); err != nil {
			return AppendResult{}, err
		}
	}
	if p.spec().AppendTime {
		b.AppendTime, b.MaxTime = true, nowMs
	}
	base, last, err := p.appendLocked(b, now)
	if err != nil {
		return AppendResult{}, err
	}
	if b.Producer.ID != NoProducer {
		p.producers.apply(b, base, last, nowMs)
	}
	p.publishLocked()
	result := AppendResult{Base: base, Last: last, End: Position{Offset: last + 1, Epoch: p.epoch}}
	if b.AppendTime {
		result.AppendTime = b.MaxTime
	}
	return result, nil
}

// appendTimeOf is the append time of a batch written before, or 0 when it is gone or
// its records have times of their own.
func (p *Partition) appendTimeOf(sent *sentBatch) int64 {
	segments := *p.segments.Load()
	s := segments[find(segments, sent.base)]
	if s.pin() != nil {
		return 0
	}
	defer s.unpin()
	end := s.end.Load()
	at, err := s.seek(sent.last, end)
	if err != nil || at == end {
		return 0
	}
	b, err := s.batchAt(at)
	if err != nil || b.Base != sent.base || !b.AppendTime {
		return 0
	}
	return b.MaxTime
}

// appendLocked puts a batch, data or marker, at the end of the log. The caller
// updates the producers and then publishes.
func (p *Partition) appendLocked(b *Batch, now time.Time) (base, last Offset, err error) {
	base = Offset(p.end.Load())
	if b.Last-b.Base >= maxOffset-base {
		return 0, 0, fmt.Errorf("%w: %s has no offsets left after %d", ErrInvalidBatch, p.name, base)
	}
	last = base + b.Last - b.Base
	if err := p.recordEpochLocked(base); err != nil {
		return 0, 0, err
	}
	size := int64(len(b.Bytes))
	active := p.active()
	if !active.fits(size, last, p.segLimit) || p.agedLocked(active, now) {
		if active, err = p.rollLocked(base, now); err != nil {
			return 0, 0, err
		}
	}
	if active.absent {
		if err := active.create(); err != nil {
			return 0, 0, fmt.Errorf("append to %s: %w", p.name, err)
		}
		active.absent, p.dirUnsynced = false, true
	}
	if err := active.pin(); err != nil {
		return 0, 0, fmt.Errorf("append to %s: %w", p.name, err)
	}
	defer active.unpin()
	if err := active.room(size); err != nil {
		return 0, 0, err
	}
	if active.end.Load() == 0 {
		active.since = now
	}
	active.appended.Store(now.UnixMilli())
	if err := active.append(b, base, last, p.epoch); err != nil {
		return 0, 0, p.fail(fmt.Errorf("write to %s: %w", active.name(logSuffix), err))
	}
	if size < largeBatchBytes {
		p.log.populate(active) // a write by call maps no page
	}
	p.end.Store(int64(last + 1))
	p.touched = true
	switch policy := p.spec().Sync; {
	case policy == SyncAlways:
		p.worker.wake()
	case policy > 0:
		p.arm(time.Duration(policy))
	}
	return base, last, nil
}

// agedLocked tells whether the active segment is old enough to be sealed. A clock
// that went back starts its age anew.
func (p *Partition) agedLocked(active *segment, now time.Time) bool {
	if p.options.SegmentAge < 0 || active.end.Load() == 0 {
		return false
	}
	age := now.Sub(active.since)
	if age < 0 {
		active.since = now
	}
	return age >= p.options.SegmentAge
}

// rollLocked seals the active segment and appends an empty one. A failure leaves
// everything as it was.
func (p *Partition) rollLocked(base Offset, now time.Time) (*segment, error) {
	segments := *p.segments.Load()
	old := segments[len(segments)-1]
	if old.base == base {
		return nil, fmt.Errorf("%w: it does not fit a segment of %d bytes", ErrTooLarge, p.capacity)
	}
	active, err := p.nextSegmentLocked(base)
	if err != nil {
		return nil, fmt.Errorf("roll %s: %w", p.name, err)
	}
	old.sealedAt = time.Now()
	old.sealed.Store(true)
	old.snapshot = p.producers.encodeSnapshot(now.UnixMilli())
	p.unsynced = append(p.unsynced, old)
	p.dirUnsynced = true
	grown := append(slices.Clip(segments), active)
	p.segments.Store(&grown)
	// The sealed segment is synced, cut and indexed off the append path.
	if p.spec().RetentionBytes > 0 {
		p.rolled.Store(true)
		p.worker.wake()
	}
	if p.spec().Sync == SyncByOS {
		p.arm(sealDelay)
	} else {
		p.want(base)
	}
	return active, nil
}

// recordEpochLocked writes the leader epoch file before the first batch of an
// epoch, so that no batch has an epoch the file does not know.
func (p *Partition) recordEpochLocked(base Offset) error {
	known := *p.epochs.Load()
	if last, ok := known.last(); ok && last == p.epoch {
		return nil
	}
	more := known.with(p.epoch, base)
	if err := replaceFile(p.options.FS, path.Join(p.dir, leaderEpochFile), encodeEpochs(more)); err != nil {
		return err
	}
	p.epochs.Store(&more)
	return nil
}

// Append is Write followed by Acked. It waits for the owner of the batch's
// producer id to become known. When ctx ends while the owner is awaited nothing is
// written; when it ends later the batch is in the log all the same and may still
// become durable.
func (p *Partition) Append(ctx context.Context, batch []byte) (AppendResult, error) {
	result, err := p.Write(batch)
	if errors.Is(err, ErrUnknownOwner) {
		result, err = p.writeWhenOwned(ctx, batch)
	}
	if err != nil {
		return AppendResult{}, err
	}
	return result, p.Acked(ctx, result.End.Offset)
}

// writeWhenOwned is Write once the owner is known, or ctx ends.
func (p *Partition) writeWhenOwned(ctx context.Context, batch []byte) (AppendResult, error) {
	again := time.NewTicker(ownerPoll)
	defer again.Stop()
	for {
		changed := p.log.ownersChanged.wait()
		result, err := p.Write(batch)
		if !errors.Is(err, ErrUnknownOwner) {
			return result, err
		}
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			return AppendResult{}, errors.Join(err, ctx.Err())
		}
	}
}

// AppendRecords encodes records into one batch without producer id and appends it.
func (p *Partition) AppendRecords(ctx context.Context, records ...Record) (AppendResult, error) {
	if len(records) == 0 {
		return AppendResult{}, fmt.Errorf("%w: no records", ErrInvalidBatch)
	}
	// Before anything is copied: a record can be larger than memory has room for
	// twice.
	size := batchHeaderBytes
	for i := range records {
		r := &records[i]
		size += len(r.Key) + len(r.Value)
		for _, h := range r.Headers {
			size += len(h.Key) + len(h.Value)
		}
		if size > p.options.MaxBatchBytes {
			return AppendResult{}, fmt.Errorf("%w: %d bytes up to record %d of %d for %s, at most %d are allowed",
				ErrTooLarge, size, i, len(records), p.name, p.options.MaxBatchBytes)
		}
	}
	builder := p.log.builders.Get().(*BatchBuilder)
	defer p.log.builders.Put(builder)
	builder.Reset()
	for _, r := range records {
		builder.Add(r.Time, r.Key, r.Value, r.Headers)
	}
	batch, err := p.Encode(builder, Producer{ID: NoProducer})
	if err != nil {
		return AppendResult{}, err
	}
	return p.Append(ctx, batch)
}

// EndTransaction writes the marker that commits or aborts id's transaction, and
// returns the position after it without waiting for the sync policy. An end that
// repeats the same verdict, and one of an id that wrote nothing here, succeed and
// write nothing; the opposite verdict is ErrFenced. Markers are written for owners
// that are over, too.
func (p *Partition) EndTransaction(id ProducerID, commit bool) (Position, error) {
	p.mu.Lock()
	wrote, err := p.endTransactionLocked(id, verdictOf(commit))
	end := p.End()
	p.mu.Unlock()
	if err != nil {
		return Position{}, err
	}
	if wrote {
		p.advanced()
	}
	return end, nil
}

func (p *Partition) endTransactionLocked(id ProducerID, v verdict) (wrote bool, err error) {
	if err := p.usable(); err != nil {
		return false, err
	}
	open := p.producers.byID[id]
	if open == nil || !open.open() {
		ended := p.producers.endedAs(id)
		if ended == undecided && p.aborted.Load().of(id) {
			ended = aborted
		}
		if ended != undecided && ended != v {
			return false, fmt.Errorf("%w: the transaction of producer %d in %s is %s, it cannot become %s", ErrFenced, id, p.name, ended, v)
		}
		p.producers.endWithoutRecords(id)
		p.touched = true
		return false, nil
	}
	now := p.options.Now()
	encoded := encodeMarker(&p.markers, now.UnixMilli(), Producer{ID: id, Epoch: open.epoch, Transactional: true}, marker{commit: v == committed})
	b, err := parseHeader(encoded)
	if err != nil {
		return false, err
	}
	_, last, err := p.appendLocked(&b, now)
	if err != nil {
		return false, err
	}
	first, _ := p.producers.end(id, v, now.UnixMilli())
	if v == aborted {
		p.abortedNow.Add(1)
		// Before the last stable offset moves, so that no reader passes it unaware.
		more := append(*p.aborted.Load(), abortedTransaction{
			id: id, first: first, last: last, lastStable: p.producers.firstOpen(last + 1),
		})
		p.aborted.Store(&more)
	}
	p.publishLocked()
	return true, nil
}
