package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/thalweg/thalweg/internal/vfs"
)

// TruncateTo removes all records at end and above. A batch that holds end goes as
// a whole, so the log may end below. Readers keep what they pinned; those that
// stand above the new end get ErrOffsetOutOfRange. The next batch is written in a
// new leader epoch. A failure takes the partition offline.
func (p *Partition) TruncateTo(end Offset) error {
	p.syncMu.Lock()
	p.mu.Lock()
	cut, err := p.truncateLocked(end)
	p.mu.Unlock()
	p.syncMu.Unlock()
	if cut {
		p.advanced()
	}
	return err
}

func (p *Partition) truncateLocked(end Offset) (cut bool, err error) {
	if err := p.usable(); err != nil {
		return false, err
	}
	if end >= Offset(p.end.Load()) {
		return false, nil
	}
	if err := p.checkRange(end); err != nil {
		return false, err
	}
	if touched := p.compaction.touched; end < touched {
		return false, fmt.Errorf("%w: cut %s at %d: it is compacted up to %d, and records before the cut may be gone for newer ones behind it",
			ErrOffsetOutOfRange, p.name, end, touched)
	}
	segments := *p.segments.Load()
	if local := segments[0].base; end < local {
		return false, fmt.Errorf("%w: cut %s at %d: below %d it is in the object store alone", ErrOffsetOutOfRange, p.name, end, local)
	}
	at := find(segments, end)
	split := segments[at]
	if err := split.pin(); err != nil {
		return false, err
	}
	defer split.unpin()
	position, err := split.seek(end, split.end.Load())
	if err != nil {
		return false, err
	}
	if position < split.end.Load() {
		b, err := split.batchAt(position)
		if err != nil {
			return false, err
		}
		end = b.Base
	}

	if err := p.forgetRemote(func(s *remoteSegment) bool { return s.next > end }); err != nil {
		return false, err
	}

	// Readers stop below end before anything changes under them, and the recovery
	// point must not promise what is about to go.
	p.end.Store(int64(end))
	p.durable.Store(min(p.durable.Load(), int64(end)))
	p.wanted.Store(min(p.wanted.Load(), int64(end)))
	p.publishTruncatedLocked(end)
	err = p.log.Checkpoint()
	if err == nil {
		err = p.cutSegmentsLocked(at, position, end)
	}
	if err != nil {
		return true, p.fail(fmt.Errorf("truncate to offset %d: %w", end, err))
	}
	return true, nil
}

// publishTruncatedLocked lowers what readers see; the producers are still those
// of the longer log.
func (p *Partition) publishTruncatedLocked(end Offset) {
	p.stable.Store(min(p.stable.Load(), int64(end)))
	p.high.Store(min(p.high.Load(), int64(end)))
}

// cutSegmentsLocked replaces the segment at the given index by its first position
// bytes and removes those after it. The old file is not cut, since readers may
// have it mapped: its beginning is copied and renamed over it.
func (p *Partition) cutSegmentsLocked(at int, position int64, end Offset) error {
	segments := *p.segments.Load()
	split := segments[at]
	files := p.files()
	for _, s := range slices.Backward(segments[at+1:]) {
		if err := errors.Join(s.drop(), s.remove()); err != nil {
			return err
		}
	}
	snapshots, err := p.removeSnapshots(func(offset Offset) bool { return offset > end })
	if err != nil {
		return err
	}
	if err := split.removeIndexes(); err != nil {
		return err
	}
	// No segment may survive its predecessor's end.
	if err := files.SyncDir(p.dir); err != nil {
		return err
	}
	if err := copyPrefix(files, split, position); err != nil {
		return err
	}
	active := p.newSegment(split.base)
	if err := cmp.Or(active.find(), active.pin()); err != nil {
		return err
	}
	found := active.scan(position, scanOptions{gapsBelow: p.compaction.touched})
	active.unpin()
	if found.fault != nil || found.next != end {
		return errors.Join(fmt.Errorf("the copy ends at offset %d: %w", found.next, found.fault), active.drop())
	}
	active.synced.Store(position)
	active.since = p.options.Now()

	// The leader epoch file keeps the epochs that are cut away until the next batch
	// is written: after a crash they tell which numbers are taken.
	known := p.epochs.Load().truncate(end)
	last, _ := p.epochs.Load().last()
	p.epoch = max(p.epoch, last+1)
	kept := p.aborted.Load().between(0, end)
	p.epochs.Store(&known)
	p.aborted.Store(&kept)
	shorter := append(slices.Clone(segments[:at]), active)
	p.segments.Store(&shorter)
	p.generation.Add(1)
	p.touched = true
	_ = split.drop()
	p.unsynced = slices.DeleteFunc(slices.Clone(p.unsynced), func(s *segment) bool { return s.base >= split.base })
	if err := p.reloadProducersLocked(snapshots, end); err != nil {
		return err
	}
	p.publishLocked()
	return nil
}

// reloadProducersLocked rebuilds the producers as they were at end.
func (p *Partition) reloadProducersLocked(snapshots []Offset, end Offset) error {
	again, from := p.loadSnapshot(snapshots, end)
	again.owners = p.producers.owners
	now := p.options.Now().UnixMilli()
	if err := again.replayAll(*p.segments.Load(), from, end, now); err != nil {
		return err
	}
	if again.owners != nil {
		again.setOwners(again.owners)
	}
	p.producers = again
	return nil
}

// copyPrefix replaces a segment's file by its first n bytes, durably. The caller holds
// a pin.
func copyPrefix(files vfs.FS, s *segment, n int64) error {
	temporary := s.name(logSuffix) + temporarySuffix
	f, err := files.Create(temporary)
	if err != nil {
		return err
	}
	if n > 0 {
		_, err = f.WriteAt(s.data[:n], 0)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = files.Rename(temporary, s.name(logSuffix))
	}
	if err == nil {
		err = files.SyncDir(s.dir)
	}
	return err
}

// DeleteBefore moves the log start to off and drops segments wholly below it. An
// off at or below the start changes nothing; one above the high watermark is
// ErrOffsetOutOfRange. What producers wrote is remembered all the same.
func (p *Partition) DeleteBefore(off Offset) error {
	if off <= p.Start() {
		return nil
	}
	// Together with the data the snapshots become durable from which producers
	// are rebuilt once the records are gone.
	if err := p.Sync(context.Background()); err != nil {
		return err
	}
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	if err := p.usable(); err != nil {
		return err
	}
	if off <= p.Start() {
		return nil
	}
	if high := p.HighWatermark(); off > high {
		return fmt.Errorf("%w: delete before %d, but the high watermark of %s is %d", ErrOffsetOutOfRange, off, p.name, high)
	}
	return p.moveStart(off)
}

// moveStart makes off, which is above the start and not above the high watermark,
// the log start. Segments below it go even when they are not synced: a start that a
// power cut leaves above the end makes an empty log. The caller holds syncMu.
func (p *Partition) moveStart(off Offset) error {
	segments := *p.segments.Load()
	n := 0
	for n+1 < len(segments) && segments[n+1].base <= off {
		n++
	}
	if n > 0 {
		if err := p.ensureSnapshot(segments[n-1], segments[n].base); err != nil {
			return err
		}
	}
	before := p.start.Swap(int64(off))
	if err := p.log.Checkpoint(); err != nil {
		p.start.Store(before)
		return err
	}
	p.mu.Lock()
	p.touched = true
	kept := slices.Clone((*p.segments.Load())[n:]) // appends may have added one
	p.segments.Store(&kept)
	p.unsynced = slices.DeleteFunc(slices.Clone(p.unsynced), func(s *segment) bool { return s.base < kept[0].base })
	known := p.epochs.Load().deleteBefore(min(off, kept[0].base))
	p.epochs.Store(&known)
	aborted := p.aborted.Load().between(off, maxOffset)
	p.aborted.Store(&aborted)
	p.mu.Unlock()
	p.deleted.Records += int64(off) - before
	for _, s := range segments[:n] {
		p.deleted.Segments++
		p.deleted.Bytes += s.end.Load()
	}
	p.advanced() // readers below the start have something to learn
	return errors.Join(p.removeDropped(segments[:n]), p.forgetRemote(func(s *remoteSegment) bool { return s.next <= off }))
}

// ensureSnapshot makes sure that producers can be rebuilt from the segment with the
// given base on, the one after before. The worker has written the snapshot, unless
// that failed or is still to come.
func (p *Partition) ensureSnapshot(before *segment, base Offset) error {
	name := path.Join(p.dir, offsetName(base, snapshotSuffix))
	if before.snapshot != nil {
		return replaceFile(p.files(), name, before.snapshot)
	}
	return p.ensureSnapshotAt(base)
}

// ensureSnapshotAt is ensureSnapshot for any offset between two batches that are on
// disk.
func (p *Partition) ensureSnapshotAt(off Offset) error {
	name := path.Join(p.dir, offsetName(off, snapshotSuffix))
	if b, err := readSmallFile(p.files(), name); err == nil {
		if _, err := decodeSnapshot(b, p.options.ProducerExpiry); err == nil {
			return nil
		}
	}
	files, err := p.listFiles()
	if err != nil {
		return err
	}
	at, from := p.loadSnapshot(files.snapshots, off)
	now := p.options.Now().UnixMilli()
	if err := at.replayAll(*p.segments.Load(), from, off, now); err != nil {
		return err
	}
	return replaceFile(p.files(), name, at.encodeSnapshot(now))
}

// removeDropped removes segments that are no longer part of the log, the oldest
// first, and the snapshots only they needed.
func (p *Partition) removeDropped(dropped []*segment) error {
	if len(dropped) == 0 {
		return nil
	}
	var err error
	var spares []*spare
	for _, s := range dropped {
		made, removeErr := p.removeOrRetire(s, spares)
		if made != nil {
			spares = append(spares, made)
		}
		err = errors.Join(err, removeErr)
	}
	first := (*p.segments.Load())[0].base
	_, snapshotErr := p.removeSnapshots(func(offset Offset) bool { return offset < first })
	syncErr := p.files().SyncDir(p.dir)
	if syncErr == nil {
		p.keepSpares(spares)
	} else {
		for _, s := range spares {
			p.discard(s)
		}
	}
	if err = errors.Join(err, snapshotErr, syncErr); err != nil {
		return fmt.Errorf("remove deleted segments of %s: %w", p.name, err)
	}
	return nil
}

// removeOrRetire removes a dropped segment's files, or keeps the large one as a
// spare besides those in hand.
func (p *Partition) removeOrRetire(s *segment, inHand []*spare) (made *spare, err error) {
	if p.wantsSpare(s.end.Load(), inHand) {
		if made, err = s.retire(); made == nil {
			p.log.open.releaseSpare()
		}
	}
	if made != nil {
		return made, s.removeIndexes()
	}
	if err != nil {
		p.options.Logger.Warn("segment file is not kept as a spare", "segment", s.name(logSuffix), "error", err)
	}
	return nil, errors.Join(s.drop(), s.remove())
}

// removeSnapshots removes the snapshots for which gone is true and returns the
// offsets of the others.
func (p *Partition) removeSnapshots(gone func(Offset) bool) (left []Offset, err error) {
	files, err := p.listFiles()
	if err != nil {
		return nil, err
	}
	for _, offset := range files.snapshots {
		if !gone(offset) {
			left = append(left, offset)
			continue
		}
		if err := removeIfPresent(p.files(), path.Join(p.dir, offsetName(offset, snapshotSuffix))); err != nil {
			return nil, err
		}
	}
	return left, nil
}
