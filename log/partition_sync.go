package log

import (
	"context"
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

// want asks for all below end to be made durable.
func (p *Partition) want(end Offset) {
	for {
		wanted := p.wanted.Load()
		if wanted >= int64(end) || p.wanted.CompareAndSwap(wanted, int64(end)) {
			break
		}
	}
	p.wake()
}

// wake makes the sync loop look for work.
func (p *Partition) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// syncLoop syncs when somebody waits for it, or when the interval is over.
func (p *Partition) syncLoop() {
	interval := time.NewTimer(time.Hour)
	interval.Stop()
	defer interval.Stop()
	for {
		due := false
		select {
		case <-p.stop:
			return
		case <-interval.C:
			p.armed.Store(false)
			due = true
		case <-p.kick:
			switch {
			case p.spec.Sync == SyncAlways || p.wanted.Load() > p.durable.Load():
				due = true
			case p.spec.Sync > 0 && !p.armed.Load():
				p.armed.Store(true)
				interval.Reset(time.Duration(p.spec.Sync))
			}
		}
		if due {
			p.syncMu.Lock()
			_ = p.syncRound() // kept in p.failed, where the next call finds it
			p.syncMu.Unlock()
		}
	}
}

// syncRound makes durable what is written when it begins. A new segment's
// directory entry comes with it. The caller holds syncMu.
func (p *Partition) syncRound() error {
	p.mu.Lock()
	if p.failed.Load() != nil {
		p.mu.Unlock()
		return p.offline()
	}
	end, active := p.end.Load(), p.active()
	sealed := slices.Clone(p.unsynced)
	syncDir := p.dirUnsynced
	p.mu.Unlock()
	if end == p.durable.Load() && len(sealed) == 0 && !syncDir {
		return nil
	}

	for _, s := range sealed {
		// Other tools expect a segment to end with its last batch.
		if err := s.file.Truncate(s.end.Load()); err != nil {
			return p.failRound(fmt.Errorf("cut %s to its end: %w", s.name(logSuffix), err))
		}
		if err := s.file.Sync(); err != nil {
			return p.failRound(fmt.Errorf("sync %s: %w", s.name(logSuffix), err))
		}
	}
	if err := active.file.Sync(); err != nil {
		return p.failRound(fmt.Errorf("sync %s: %w", active.name(logSuffix), err))
	}
	if syncDir {
		if err := p.files().SyncDir(p.dir); err != nil {
			return p.failRound(fmt.Errorf("sync directory %s: %w", p.dir, err))
		}
	}

	p.mu.Lock()
	p.durable.Store(end)
	p.unsynced = p.unsynced[len(sealed):]
	if syncDir && p.active() == active {
		p.dirUnsynced = false
	}
	p.publishLocked()
	p.mu.Unlock()
	p.advanced()

	for _, s := range sealed {
		p.finishSealed(s)
	}
	if len(sealed) > 0 && !p.closed.Load() {
		if err := p.log.Checkpoint(); err != nil {
			p.options.Logger.Warn("recovery point stays where it was", "partition", p.name.String(), "error", err)
		}
	}
	return nil
}

func (p *Partition) failRound(cause error) error {
	err := p.fail(cause)
	p.advanced()
	return err
}

// finishSealed writes what makes the next open cheap, for a segment that is
// durable. All of it can be made anew, so a failure is only logged.
func (p *Partition) finishSealed(s *segment) {
	err := s.writeIndexes(p.aborted.Load().between(s.base, s.next))
	if err == nil {
		err = replaceFile(p.files(), path.Join(p.dir, offsetName(s.next, snapshotSuffix)), s.snapshot)
	}
	if err != nil {
		p.options.Logger.Warn("indexes of a sealed segment are not written", "segment", s.name(logSuffix), "error", err)
	}
	s.snapshot = nil
	if err := s.closeFile(); err != nil {
		p.options.Logger.Warn("sealed segment is not closed", "segment", s.name(logSuffix), "error", err)
	}
}
