package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/thalweg/thalweg/internal/vfs"
)

// CompactionLimit says how far a partition may be compacted, for those who rely on
// records being there. The zero value permits nothing.
type CompactionLimit struct {
	// Records is the offset from which on records stay as they are. Those below may
	// go, but only for newer ones that are below it, too.
	Records Offset

	// Horizon is the offset from which on tombstones and markers stay, however old
	// they are.
	Horizon Offset
}

// NoCompactionLimit permits everything.
func NoCompactionLimit() CompactionLimit {
	return CompactionLimit{Records: maxOffset, Horizon: maxOffset}
}

// CompactionStats tells what a compaction did, or several of them together.
type CompactionStats struct {
	// Passes are how often the partition was gone through, from where the pass before
	// stopped: more than once when its keys do not fit into Options.CompactionMemoryBytes.
	Passes int

	ReadBytes    int64 // of the batches that were looked at, as stored
	WrittenBytes int64 // into new segments, indexes left out

	// Kept and Removed are numbers of records and of transactions' markers: those that
	// stayed in what the last pass read, and those that all passes have removed.
	Kept, Removed int64

	Segments int           // that were made, in place of at least as many
	Took     time.Duration // by the wall clock, waiting for Options.CompactionBytesPerSecond included
}

// add counts another compaction that came later.
func (s *CompactionStats) add(o CompactionStats) {
	s.Passes += o.Passes
	s.ReadBytes += o.ReadBytes
	s.WrittenBytes += o.WrittenBytes
	s.Kept = o.Kept
	s.Removed += o.Removed
	s.Segments += o.Segments
	s.Took += o.Took
}

// Compacted returns what compactions have done since the partition was opened, those
// that were interrupted included; Kept is that of the last one.
func (p *Partition) Compacted() CompactionStats {
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	return p.compacted
}

// Horizon is the offset below which tombstones or markers were removed by
// compaction, 0 when none were. Whoever has read up to an offset below it, and no
// further, may miss a deletion by reading on: it has to start over from Start.
func (p *Partition) Horizon() Offset { return Offset(p.horizon.Load()) }

// Compact compacts the partition now, whatever its dirty ratio: of each key that
// has newer records below the last stable offset, the older ones go. Offsets stay.
// The newest segment is never touched, nor is what the topic's MinCompactionLag and
// Options.CompactionLimit protect. One partition of a Log is compacted at a time;
// Compact waits for its turn. A topic without Compact is refused.
//
// When ctx ends, or the log is closed, what was compacted so far stays so, and the
// rest is as it was.
func (p *Partition) Compact(ctx context.Context) (CompactionStats, error) {
	if !p.spec().Compact {
		return CompactionStats{}, fmt.Errorf("log: %s is not compacted: set TopicSpec.Compact", p.name)
	}
	if err := p.finishAllSealed(); err != nil {
		return CompactionStats{}, err
	}
	return p.compact(ctx)
}

// finishAllSealed puts all sealed segments on disk, as the worker does in time.
func (p *Partition) finishAllSealed() error {
	p.syncMu.Lock()
	if err := p.usable(); err != nil {
		p.syncMu.Unlock()
		return err
	}
	_, err := p.syncRound()
	p.mu.Lock()
	segments := *p.segments.Load()
	sealed := slices.DeleteFunc(slices.Clone(segments[:len(segments)-1]), func(s *segment) bool {
		return !s.writable.Load() || slices.Contains(p.unsynced, s)
	})
	p.mu.Unlock()
	p.syncMu.Unlock()
	if err != nil {
		return err
	}
	p.advanced()
	p.finishSealed(sealed)
	return nil
}

// compact waits for its turn and compacts what is compactable.
func (p *Partition) compact(ctx context.Context) (CompactionStats, error) {
	select {
	case p.log.compacting <- struct{}{}:
	case <-ctx.Done():
		return CompactionStats{}, ctx.Err()
	}
	defer func() { <-p.log.compacting }()
	// Whoever closes the partition waits for the end of a compaction.
	p.compactMu.Lock()
	defer p.compactMu.Unlock()

	began := time.Now() // not the wall clock of the records
	c := compaction{p: p, ctx: ctx, pace: pace{perSecond: p.options.CompactionBytesPerSecond, began: began}}
	err := c.run()
	c.stats.Took = time.Since(began)
	if c.stats.Passes > 0 {
		p.syncMu.Lock()
		p.compacted.add(c.stats)
		p.syncMu.Unlock()
	}
	if err != nil {
		return c.stats, fmt.Errorf("compact %s: %w", p.name, err)
	}
	if c.stats.Passes == 0 {
		return c.stats, nil
	}
	p.options.Logger.Info("partition compacted", "partition", p.name.String(), "passes", c.stats.Passes,
		"read", c.stats.ReadBytes, "written", c.stats.WrittenBytes, "removed", c.stats.Removed, "took", c.stats.Took)
	return c.stats, nil
}

// compactLoop looks every interval for partitions that are worth compacting.
func (l *Log) compactLoop() {
	tick := time.NewTicker(l.options.CompactionInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		for _, p := range l.compactionDue() {
			_, err := p.compact(context.Background())
			switch {
			case errors.Is(err, ErrClosed):
			case err != nil:
				l.options.Logger.Warn("compaction failed; it is tried again", "partition", p.name.String(), "error", err)
			}
		}
	}
}

// compactionDue returns the partitions to compact now, the dirtiest first. It seals
// active segments that hold records older than MaxCompactionLag.
func (l *Log) compactionDue() []*Partition {
	type candidate struct {
		p     *Partition
		ratio int64
	}
	var due []candidate
	now := l.options.Now()
	for p := range l.Partitions() {
		if !p.spec().Compact || p.usable() != nil {
			continue
		}
		if lag := p.spec().MaxCompactionLag; lag > 0 {
			if err := p.rollOlder(lag, now); err != nil {
				l.options.Logger.Warn("segment is not sealed for compaction", "partition", p.name.String(), "error", err)
			}
		}
		if ratio, is := p.compactionDue(now); is {
			due = append(due, candidate{p, ratio})
		}
	}
	slices.SortStableFunc(due, func(a, b candidate) int { return cmp.Compare(b.ratio, a.ratio) })
	partitions := make([]*Partition, len(due))
	for i, c := range due {
		partitions[i] = c.p
	}
	return partitions
}

// rollOlder seals the active segment when its first batch is older than age.
func (p *Partition) rollOlder(age time.Duration, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	active := p.active()
	if p.usable() != nil || active.end.Load() == 0 || now.Sub(active.since) < age {
		return nil
	}
	_, err := p.rollLocked(Offset(p.end.Load()), now)
	return err
}

// compactionDue tells whether the partition is worth compacting, and how much of
// what can be compacted is dirty, per mille.
func (p *Partition) compactionDue(now time.Time) (ratio int64, due bool) {
	limit := p.compactionLimit()
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	state := p.compaction
	sources := p.compactable(limit.Records, now)
	if len(sources) == 0 {
		return 0, false
	}
	end := min(limit.Records, p.LastStable())
	if until := sources[len(sources)-1].next; until == p.decidedIn.until {
		end = min(end, p.decidedIn.below) // as the last compaction found: nothing was sealed since
	}
	var clean, dirty int64
	var oldest time.Time // of what is dirty
	for _, s := range sources {
		bytes := s.end.Load()
		from, to := max(s.base, state.cleaned), min(s.next, end)
		if from >= to {
			clean += bytes
			continue
		}
		if dirty == 0 {
			oldest = cmp.Or(s.since, p.opened)
		}
		part := int64(float64(bytes) * float64(to-from) / float64(s.next-s.base))
		dirty += max(part, 1)
		clean += bytes - part
	}
	if dirty > 0 {
		ratio = dirty * 1000 / (clean + dirty)
	}
	lag := p.spec().MaxCompactionLag
	switch {
	case dirty > 0 && ratio >= int64(cmp.Or(p.spec().DirtyRatio, defaultDirtyRatio)):
		return ratio, true
	case dirty > 0 && lag > 0 && now.Sub(oldest) >= lag:
		return ratio, true
	}
	return ratio, state.settleAt > 0 && now.UnixMilli() >= state.settleAt
}

// compactionLimit asks how far the partition may be compacted. The caller holds no
// lock.
func (p *Partition) compactionLimit() CompactionLimit {
	if p.options.CompactionLimit == nil {
		return NoCompactionLimit()
	}
	return p.options.CompactionLimit(p.name)
}

// compactable returns the segments that may be rewritten: those at the beginning
// that are sealed, on disk with all that belongs to them, and as old as the topic
// demands, as far as they begin below a limit. The caller holds syncMu.
func (p *Partition) compactable(below Offset, now time.Time) []*segment {
	segments, lag := *p.segments.Load(), p.spec().MinCompactionLag
	for i, s := range segments {
		young := lag > 0 && s.appended.Load() > now.Add(-lag).UnixMilli()
		if i == len(segments)-1 || s.writable.Load() || s.base >= below || young {
			return segments[:i]
		}
	}
	return nil
}

// compaction is one run of Compact.
type compaction struct {
	p     *Partition
	ctx   context.Context
	pace  pace
	stats CompactionStats

	now    time.Time
	limit  CompactionLimit
	goal   Offset // below it all is to be compacted
	keys   *keyMap
	buffer []byte // for what is written, empty
}

// run makes as many passes as the keys need.
func (c *compaction) run() error {
	p := c.p
	c.now = p.options.Now()
	c.limit = p.compactionLimit()
	for {
		pass, err := c.begin()
		if err != nil || pass == nil {
			return err
		}
		c.stats.Passes++
		err = vfs.Guard(pass.run)
		pass.release()
		if errors.Is(err, errDropped) {
			return nil // segments went meanwhile: the others wait for the next time
		}
		if err != nil {
			return err
		}
		if c.stats.Passes == 1 {
			c.goal = pass.decided
		}
		if !pass.full || pass.filter.end >= c.goal {
			return nil
		}
	}
}

// step accounts for bytes of work, waits as the pace demands, and tells when to
// stop.
func (c *compaction) step(bytes int64) error {
	wait := c.pace.add(bytes)
	if wait < 0 {
		return nil
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-c.ctx.Done():
		case <-c.p.log.stop:
		case <-c.p.stop:
		case <-timer.C:
		}
	}
	switch {
	case c.ctx.Err() != nil:
		return c.ctx.Err()
	case isClosed(c.p.log.stop), isClosed(c.p.stop):
		return ErrClosed
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pace spreads work over time.
type pace struct {
	perSecond int64 // 0 for no bound
	began     time.Time
	done      int64
	unchecked int64
}

// paceBytes is how much is done between two looks at the clock.
const paceBytes = 256 << 10

// add notes bytes of work and returns how long to wait; negative before it is time
// to look.
func (w *pace) add(bytes int64) time.Duration {
	w.done += bytes
	w.unchecked += bytes
	step := int64(paceBytes)
	if w.perSecond > 0 {
		step = min(step, w.perSecond/8)
	}
	if w.unchecked < step {
		return -1
	}
	w.unchecked = 0
	if w.perSecond == 0 {
		return 0
	}
	due := time.Duration(float64(w.done) / float64(w.perSecond) * float64(time.Second))
	return max(0, due-time.Since(w.began))
}
