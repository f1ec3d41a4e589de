package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/thalweg/thalweg/log"
)

const (
	// maxBatchBytes and maxBatchEntries bound a batch of a step, well below the size
	// at which Pebble keeps a batch apart from its memtable.
	maxBatchBytes   = 1 << 20
	maxBatchEntries = 16 << 10
)

// Follow tells the follower that checkpoint to is committed. It does not wait for
// the store to get there unless the follower lags by more than MaxLag records or
// the store is Manual. When ctx ends the waiting, the mark is queued all the
// same. A fault of the follower is returned from then on.
func (s *Store) Follow(ctx context.Context, to Mark) error {
	if s.o.Manual {
		return s.stepTo(ctx, to)
	}
	for queued := false; ; queued = true {
		if err := s.usable(); err != nil {
			return err
		}
		s.mu.Lock()
		if !queued && s.mark.before(to) && !to.before(s.target) {
			s.target = to
			if s.queued.IsZero() {
				s.queued = time.Now()
			}
		}
		lag := int64(s.target.End.Offset - s.progress.done.Offset)
		moved := s.moved
		if lag > s.o.MaxLag {
			s.hurry = true
		}
		s.mu.Unlock()
		s.signal()
		if lag <= s.o.MaxLag {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Reach waits until the store is at checkpoint to, or beyond. The mark must have
// been given to Follow, or be about to be.
func (s *Store) Reach(ctx context.Context, to Mark) error {
	for {
		if err := s.usable(); err != nil {
			return err
		}
		s.mu.Lock()
		there := !s.mark.before(to)
		moved := s.moved
		s.hurry = s.hurry || !there
		s.mu.Unlock()
		if there {
			return nil
		}
		s.signal()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// expedite makes the follower take its next step without lingering.
func (s *Store) expedite() {
	s.mu.Lock()
	s.hurry = true
	s.mu.Unlock()
	s.signal()
}

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// follow is the follower: it takes a step whenever there is a target, all queued
// marks together. It ends with ctx or at the first fault.
func (s *Store) follow(ctx context.Context) {
	for {
		target, wait := s.next()
		switch {
		case wait == 0:
			err := s.stepTo(ctx, target)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				s.fail(err)
				return
			}
		case wait < 0:
			select {
			case <-s.wake:
			case <-ctx.Done():
				return
			}
		default:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-s.wake:
				timer.Stop()
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
	}
}

// next returns the checkpoint to go to and how long to wait first; negative means
// that there is nothing to do.
func (s *Store) next() (Mark, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued.IsZero() {
		return Mark{}, -1
	}
	if s.hurry || s.o.Linger < 0 || int64(s.target.End.Offset-s.progress.done.Offset) >= s.o.StepRecords {
		return s.target, 0
	}
	return s.target, max(0, time.Until(s.queued.Add(s.o.Linger)))
}

func (s *Store) fail(err error) {
	s.o.Logger.Error("state: follower stopped", "store", s.o.Name, "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
		s.movedLocked()
	}
}

// lock takes the step semaphore.
func (s *Store) lock(ctx context.Context) error {
	select {
	case s.step <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.step <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) unlock() { <-s.step }

// stepTo brings the store forward to checkpoint to, unless it is there already.
func (s *Store) stepTo(ctx context.Context, to Mark) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	return s.stepToLocked(ctx, to)
}

// stepToLocked is stepTo with the step held.
func (s *Store) stepToLocked(ctx context.Context, to Mark) error {
	if err := s.usable(); err != nil {
		return err
	}
	if !s.Mark().before(to) {
		s.reached(s.current(), nil)
		return nil
	}
	if to.End.Offset < s.current().done.Offset {
		return s.wrap("follow", fmt.Errorf("checkpoint %d/%d at offset %d is behind the store, at %d", to.Attempt, to.N, to.End.Offset, s.current().done.Offset))
	}
	return s.advance(ctx, to)
}

// CatchUp brings the store to exactly checkpoint to: after a restart or a
// rollback, and before tables are made. A store that is ahead, or whose position
// is not in the changelog, is cleared and rebuilt from the whole changelog. Marks
// still queued are dropped. CatchUp returns ErrNotInChangelog when the changelog
// does not hold to. When ctx ends, the store is between checkpoints; CatchUp may be
// called again.
func (s *Store) CatchUp(ctx context.Context, to Mark) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if err := s.usable(); err != nil {
		return err
	}
	s.mu.Lock()
	s.queued, s.hurry, s.target = time.Time{}, false, to
	s.mu.Unlock()
	if why := s.unfit(to); why != "" {
		if err := s.rebuild(to, why); err != nil {
			return err
		}
	}
	return s.advance(ctx, to)
}

// unfit tells why the store cannot be replayed to a checkpoint, or "".
func (s *Store) unfit(to Mark) string {
	p := s.current()
	switch {
	case p.target.End.Offset > to.End.Offset:
		// Also where done is not: what was begun towards target cannot be undone.
		return "ahead"
	case p.done.Offset < s.o.Changelog.Start():
		return "below the start of the changelog"
	case p.done.Offset < s.o.Changelog.Horizon() && p != progress{}:
		return "below the horizon of the changelog, which no longer has all deletions since"
	case !s.contains(p.done):
		return "not at a position of the changelog"
	case !s.contains(p.target.End):
		return "was on its way to a position that is not in the changelog"
	}
	return ""
}

// contains tells whether pos is a position of the changelog. The start of all
// offsets is one in every log; there is no record before it to compare.
func (s *Store) contains(pos log.Position) bool {
	return pos.Offset == 0 || s.o.Changelog.Contains(pos)
}

// rebuild empties the store, in one batch.
func (s *Store) rebuild(to Mark, why string) error {
	p := s.current()
	s.o.Logger.Warn("state: rebuilding store from the whole changelog",
		"store", s.o.Name, "why", why, "attempt", p.target.Attempt, "checkpoint", p.target.N,
		"target", p.target.End.Offset, "done", p.done.Offset, "wanted", to.End.Offset)
	start := log.Position{}
	if off := s.o.Changelog.Start(); off > 0 {
		var err error
		if start, err = s.o.Changelog.PositionAt(off); err != nil {
			return s.wrap("rebuild", err)
		}
	}
	empty := progress{target: Mark{End: start}, done: start}
	batch := Batch{Clear: true, Entries: []Entry{{Key: markKey, Value: empty.append(nil)}}}
	if err := s.o.DB.Apply(batch); err != nil {
		return s.wrap("rebuild", err)
	}
	s.mu.Lock()
	s.durable, s.flush = 0, pendingFlush{}
	s.mu.Unlock()
	s.reached(empty, func(st *Stats) { st.Rebuilds++ })
	return nil
}

// advance replays the changelog from where the store is up to checkpoint to: the
// one way in which a store moves. It is called with the step held.
//
// A step is one batch, or several when it is large. The first says where the step
// goes and the last that it is there. After a crash between them the store has
// some newer values than its position tells. It does not matter: each belongs to
// a record between that position and the step's target, the store is not allowed
// to stop before that target, and replaying the records in between overwrites all
// such keys with their newest values.
//
// A step whose changes outgrow StepBytes is cut in two. Its first part ends at a
// position that is no checkpoint, which is written as such.
func (s *Store) advance(ctx context.Context, to Mark) error {
	if !s.contains(to.End) {
		return s.wrap("follow", fmt.Errorf("%w: checkpoint %d/%d ends at offset %d, epoch %d; the changelog ends at %+v", ErrNotInChangelog, to.Attempt, to.N, to.End.Offset, to.End.Epoch, s.o.Changelog.End()))
	}
	s.changes = changesPool.Get().(*changes)
	defer func() {
		s.changes.reset()
		changesPool.Put(s.changes)
		s.changes = nil
	}()
	r := s.o.Changelog.Reader(s.current().done.Offset, log.ReadDecided)
	defer r.Close()
	var records int64
	for r.Offset() < to.End.Offset {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch, err := r.Next()
		if errors.Is(err, io.EOF) {
			if r.Offset() >= to.End.Offset {
				break
			}
			// The position is in the log, so that what is missing is on its way
			// below the high watermark.
			if err := r.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return s.wrap("read the changelog", err)
		}
		n, err := s.collect(batch, to.End.Offset)
		if err != nil {
			return s.wrap("read the changelog", err)
		}
		records += n
		s.unflushed += int64(len(batch.Bytes))
		if s.changes.size() > s.o.StepBytes && r.Offset() < to.End.Offset {
			if err := s.apply(progress{to, r.Position()}, records); err != nil {
				return err
			}
			records = 0
		}
	}
	if err := s.apply(progress{to, to.End}, records); err != nil {
		return err
	}
	return s.flushMuch()
}

// collect adds the records of a batch below end to the changes of the step.
func (s *Store) collect(b *log.Batch, end log.Offset) (records int64, err error) {
	it := b.Records()
	for it.Next() {
		if it.Offset >= end {
			break
		}
		if len(it.Key) == 0 || it.Key[0] > kindClosed {
			return records, fmt.Errorf("%w: key %x at offset %d; was it written by a newer version?", ErrVersion, it.Key, it.Offset)
		}
		if string(it.Key) == string(markKey) {
			return records, fmt.Errorf("%w: key %x at offset %d is reserved", ErrVersion, it.Key, it.Offset)
		}
		records++
		if it.Key[0] != kindClosed {
			s.changes.put(it.Key, it.Value)
			continue
		}
		start, err := parseClosedKey(it.Key)
		if err != nil {
			return records, fmt.Errorf("%w at offset %d", err, it.Offset)
		}
		s.changes.close(start)
	}
	return records, it.Err()
}

// apply writes the collected changes, and how far they bring the store.
func (s *Store) apply(to progress, records int64) error {
	// From the first batch on the store may be ahead of done; see advance.
	begun := progress{target: to.target, done: s.begin(to.target)}
	keys, ranges := s.changes.sort(), s.changes.ranges()
	left, size := keys, 0
	flush := func() error {
		p := begun
		if left == 0 {
			p = to
		}
		s.entries[0].Value = p.append(nil)
		err := s.o.DB.Apply(Batch{Ranges: ranges, Entries: s.entries})
		clear(s.entries)
		s.entries, ranges, size = s.entries[:0], nil, 0
		return err
	}
	err := s.changes.all(func(key, value []byte) error {
		if len(s.entries) == 0 {
			s.entries = append(s.entries, Entry{Key: markKey}) // sorts before every value
		}
		s.entries = append(s.entries, Entry{key, value})
		size += len(key) + len(value)
		left--
		if left == 0 || size < maxBatchBytes && len(s.entries) < s.batchEntries {
			return nil
		}
		return flush()
	})
	if err == nil {
		if len(s.entries) == 0 {
			s.entries = append(s.entries, Entry{Key: markKey})
		}
		err = flush()
	}
	s.changes.reset()
	if err != nil {
		return s.wrap("apply", err)
	}
	s.reached(to, func(st *Stats) {
		st.Steps++
		st.Records += records
		st.Applied += int64(keys)
	})
	return nil
}

// begin notes that the store is on its way to target and returns how far it is.
func (s *Store) begin(target Mark) (done log.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.target = target
	return s.progress.done
}

// flushMuch has the database write out what it holds when much would have to be read
// again after a crash.
func (s *Store) flushMuch() error {
	f, ok := s.o.DB.(Flusher)
	if !ok || s.unflushed < s.o.FlushBytes {
		return nil
	}
	s.unflushed = 0
	at := s.current().done.Offset
	done, err := f.Flush()
	if err != nil {
		return s.wrap("flush", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.durableLocked()
	s.flush = pendingFlush{at, done}
	return nil
}

// pendingFlush is a flush under way, and how far the store had come when it began.
type pendingFlush struct {
	at   log.Offset
	done <-chan struct{} // nil for none
}

// Durable is the changelog offset below which the store has all and keeps it
// through a crash. A deletion below it need not be in the changelog any more.
func (s *Store) Durable() log.Offset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.durableLocked()
}

func (s *Store) durableLocked() log.Offset {
	select {
	case <-s.flush.done:
		s.durable, s.flush = max(s.durable, s.flush.at), pendingFlush{}
	default:
	}
	if _, ok := s.o.DB.(Flusher); !ok {
		return s.progress.done.Offset
	}
	// A store that is being rebuilt has yet to see deletions again.
	return min(s.durable, s.progress.done.Offset)
}

// current is how far the store is. With the step held nobody else changes it.
func (s *Store) current() progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress
}

// reached records how far the store has come.
func (s *Store) reached(p progress, count func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = p
	if p.complete() {
		s.mark = p.target
	}
	if !s.mark.before(s.target) {
		s.queued, s.hurry = time.Time{}, false
	}
	if count != nil {
		count(&s.stats)
	}
	s.movedLocked()
}
