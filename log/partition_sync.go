package log

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"
)

// Sync makes all appended so far durable. Callers that wait together share one
// sync. When ctx ends first, the sync goes on.
func (p *Partition) Sync(ctx context.Context) error {
	if p.closed.Load() {
		return ErrClosed
	}
	if err := p.offline(); err != nil {
		return err
	}
	end := Offset(p.end.Load())
	if p.Durable() >= end {
		return nil
	}
	p.want(end)
	return p.await(ctx, end, &p.durable)
}

// The worker of a partition makes durable what is to be. It is woken by appends under
// SyncAlways, by those who wait, and by the partition's timer, which runs only while
// there is something that nobody waits for.

// maxSyncing is how many partitions of a log sync at a time: each takes a thread.
const maxSyncing = 64

// want asks for all below end to be made durable.
func (p *Partition) want(end Offset) {
	for {
		wanted := p.wanted.Load()
		if wanted >= int64(end) || p.wanted.CompareAndSwap(wanted, int64(end)) {
			break
		}
	}
	p.worker.wake()
}

// arm has the worker sync after d, unless it is to do so already.
func (p *Partition) arm(d time.Duration) {
	if p.armed.CompareAndSwap(false, true) {
		p.timer.Store(time.AfterFunc(d, p.timeOver))
	}
}

func (p *Partition) timeOver() {
	p.armed.Store(false)
	p.timedOut.Store(true)
	p.worker.wake()
}

// disarm takes back what arm did.
func (p *Partition) disarm() {
	if t := p.timer.Swap(nil); t != nil && t.Stop() {
		p.armed.Store(false)
	}
}

// sealDelay is how long a sealed segment waits to be synced where the operating system
// decides about that. A sync right behind the append path, of pages that it has just
// written, takes half of its speed. By then much of it is on the disk already, or it
// was dropped, and its pages, which no sync has touched, are written again.
const sealDelay = 5 * time.Second

// work syncs when somebody waits for it, or when the time is over.
func (p *Partition) work() {
	p.log.syncing <- struct{}{}
	defer func() { <-p.log.syncing }()
	if p.rolled.Swap(false) {
		p.retain()
	}
	timedOut, policy := p.timedOut.Swap(false), p.spec().Sync
	switch {
	case policy == SyncAlways, p.wanted.Load() > p.durable.Load(), timedOut && policy != SyncByOS:
		p.syncMu.Lock()
		sealed, _ := p.syncRound() // the error is kept in p.failed, where the next call finds it
		p.syncMu.Unlock()
		p.advanced()
		p.finishSealed(sealed)
	case timedOut:
		if wait := p.syncSealed(time.Now()); wait > 0 {
			p.arm(wait)
		}
	}
}

// syncSealed makes the segments durable that were sealed long enough ago, and returns
// when the next one is due, or 0.
func (p *Partition) syncSealed(now time.Time) (next time.Duration) {
	p.syncMu.Lock()
	p.mu.Lock()
	failed, syncDir := p.failed.Load() != nil, p.dirUnsynced
	var due []*segment
	for _, s := range p.unsynced {
		if wait := sealDelay - now.Sub(s.sealedAt); wait > 0 {
			next = wait
			break
		}
		due = append(due, s)
	}
	p.mu.Unlock()
	if failed || len(due) == 0 {
		p.syncMu.Unlock()
		return next
	}
	err := p.syncFiles(due, syncDir)
	if err == nil {
		p.mu.Lock()
		p.durable.Store(max(p.durable.Load(), int64(due[len(due)-1].next)))
		p.unsynced = p.unsynced[len(due):]
		p.mu.Unlock()
	}
	p.syncMu.Unlock()
	if err == nil {
		p.advanced()
		p.finishSealed(due)
	}
	return next
}

// syncFiles syncs sealed segments and the directory. The caller holds syncMu.
func (p *Partition) syncFiles(sealed []*segment, syncDir bool) error {
	for _, s := range sealed {
		if err := s.settle(); err != nil {
			return p.fail(err)
		}
	}
	if syncDir {
		if err := p.files().SyncDir(p.dir); err != nil {
			return p.fail(fmt.Errorf("sync directory %s: %w", p.dir, err))
		}
	}
	return nil
}

// syncRound makes durable what is written when it begins. A new segment's
// directory entry comes with it. It returns the sealed segments that are durable
// now, for finishSealed. The caller holds syncMu.
func (p *Partition) syncRound() (sealed []*segment, err error) {
	p.mu.Lock()
	if p.failed.Load() != nil {
		p.mu.Unlock()
		return nil, p.offline()
	}
	end, active := p.end.Load(), p.active()
	sealed = slices.Clone(p.unsynced)
	syncDir := p.dirUnsynced
	p.mu.Unlock()
	if end == p.durable.Load() && len(sealed) == 0 && !syncDir {
		return nil, nil
	}

	if err := active.sync(); err != nil {
		return nil, p.fail(err)
	}
	if err := p.syncFiles(sealed, syncDir); err != nil {
		return nil, err
	}

	p.mu.Lock()
	p.durable.Store(end)
	p.unsynced = p.unsynced[len(sealed):]
	if syncDir && p.active() == active {
		p.dirUnsynced = false
	}
	p.publishLocked()
	p.mu.Unlock()
	return sealed, nil
}

// finishSealed writes what makes the next open cheap, for segments that are
// durable and that nobody removed since. All of it can be made anew, so a failure
// is only logged. The caller holds no lock.
func (p *Partition) finishSealed(sealed []*segment) {
	if len(sealed) == 0 {
		return
	}
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	for _, s := range sealed {
		if !s.writable.Load() || !slices.Contains(*p.segments.Load(), s) {
			continue
		}
		err := s.writeIndexes(p.aborted.Load().between(s.base, s.next))
		if err == nil {
			err = replaceFile(p.files(), path.Join(p.dir, offsetName(s.next, snapshotSuffix)), s.snapshot)
		}
		if err = errors.Join(err, s.finish()); err != nil {
			p.options.Logger.Warn("sealed segment is not finished", "segment", s.name(logSuffix), "error", err)
		}
		s.snapshot = nil
	}
	if p.closed.Load() {
		return // closing the log writes it for all partitions
	}
	if err := p.log.Checkpoint(); err != nil {
		p.options.Logger.Warn("recovery point stays where it was", "partition", p.name.String(), "error", err)
	}
}
