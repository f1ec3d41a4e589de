package log

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"

	"github.com/thalweg/thalweg/internal/vfs"
)

// compactionPass goes once over the segments that may be compacted: it learns the
// newest offset of as many keys as fit, from where the pass before stopped, and then
// rewrites all segments up to there.
type compactionPass struct {
	*compaction
	sources    []*segment
	from       Offset   // below it no key has an older record left
	until      Offset   // where the sources end
	decided    Offset   // below it all may be compacted
	guard      Offset   // above all markers that decide about what is below decided
	full       bool     // the map took less than all keys
	offsets    []Offset // of the records of a batch
	found      decidedIn
	generation uint64
	filter     compactionFilter
}

// decidedIn is what a pass found about the sealed segments, which end at until: below
// it no transaction is open there.
type decidedIn struct{ until, below Offset }

// begin finds what may be compacted; nil when that is nothing.
func (c *compaction) begin() (*compactionPass, error) {
	p := c.p
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	if err := p.usable(); err != nil {
		return nil, err
	}
	sources := slices.Clone(p.compactable(c.limit.Records, c.now))
	if len(sources) == 0 {
		return nil, nil
	}
	pass := &compactionPass{
		compaction: c, sources: sources,
		from:       max(p.compaction.cleaned, sources[0].base),
		until:      sources[len(sources)-1].next,
		generation: p.generation.Load(),
	}
	retention := p.spec().TombstoneRetention
	if retention == 0 {
		retention = defaultTombstoneRetention
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pass.filter = compactionFilter{
		aborted:   *p.aborted.Load(),
		lastOf:    p.producers.lastOffsets(c.now.UnixMilli()),
		now:       c.now.UnixMilli(),
		retention: retention.Milliseconds(),
		limit:     c.limit.Horizon,
		open:      make(map[ProducerID]struct{}),
		unpacker:  p.log.decoders.unpacker(),
		compressor: func(codec Compression) *Compressor {
			if codec == p.spec().Compression {
				return p.log.compressors.of(codec, p.spec().CompressionLevel)
			}
			return p.log.compressors.of(codec, 0)
		},
	}
	return pass, nil
}

func (c *compactionPass) release() { c.p.log.decoders.done(c.filter.unpacker) }

func (c *compactionPass) run() error {
	if err := c.decide(); err != nil {
		return err
	}
	if err := c.secure(); err != nil {
		return err
	}
	if err := c.collectKeys(); err != nil {
		return err
	}
	for group := range c.groups() {
		if err := c.rewrite(group); err != nil {
			return err
		}
	}
	c.stats.Kept = c.filter.kept
	c.stats.Removed += c.filter.removed
	return c.finish()
}

// decide finds out how far the pass may go. A record may take the place of another
// only when the marker that commits it is on disk, too, and can no longer be cut off:
// so the last stable offset counts that holds at the end of the sources, whatever
// came after them.
func (c *compactionPass) decide() error {
	open := make(map[ProducerID]Offset) // by their first offsets
	err := c.eachHeader(func(b *Batch) bool {
		_, is := open[b.Producer.ID]
		switch {
		case !b.Producer.Transactional:
		case b.Control:
			delete(open, b.Producer.ID)
		case !is:
			open[b.Producer.ID] = b.Base
		}
		return true
	})
	if err != nil {
		return err
	}
	c.decided = c.until
	for _, first := range open {
		c.decided = min(c.decided, first)
	}
	c.found = decidedIn{c.until, c.decided}
	c.decided = max(c.from, min(c.decided, c.limit.Records))
	c.guard = c.decided
	clear(open)
	return c.eachHeader(func(b *Batch) bool {
		_, is := open[b.Producer.ID]
		switch {
		case b.Base < c.decided && b.Last >= c.decided:
			c.guard = max(c.guard, b.Last+1)
		case b.Control && is:
			c.guard = max(c.guard, b.Last+1)
		}
		switch {
		case !b.Producer.Transactional:
		case b.Control:
			delete(open, b.Producer.ID)
		case b.Base < c.decided:
			open[b.Producer.ID] = b.Base
		}
		return b.Last < c.decided || len(open) > 0
	})
}

// secure writes down what producers are remembered for right above what is about to
// change: the batches that tell it may go.
func (c *compactionPass) secure() error {
	p := c.p
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	if err := c.valid(); err != nil {
		return err
	}
	return p.ensureSnapshotAt(c.guard)
}

// valid tells whether the pass may go on. The caller holds syncMu.
func (c *compactionPass) valid() error {
	if err := c.p.usable(); err != nil {
		return err
	}
	if c.p.generation.Load() != c.generation {
		return fmt.Errorf("%w: records were cut off meanwhile", ErrOffsetOutOfRange)
	}
	return nil
}

// eachHeader walks the headers of all batches, unchecked, as long as f is true.
func (c *compactionPass) eachHeader(f func(*Batch) bool) error {
	for _, s := range c.sources {
		if more, err := c.eachHeaderOf(s, f); err != nil || !more {
			return err
		}
	}
	return nil
}

func (c *compactionPass) eachHeaderOf(s *segment, f func(*Batch) bool) (more bool, err error) {
	if err := s.pin(); err != nil {
		return false, err
	}
	defer s.unpin()
	var b Batch // one for all: it escapes
	for at, end := int64(0), s.end.Load(); at < end; {
		if b, err = parseHeader(s.data[at:end]); err != nil {
			return false, &CorruptionError{File: s.name(logSuffix), Position: at, Offset: s.base, Cause: err}
		}
		if !f(&b) {
			return false, nil
		}
		at += int64(len(b.Bytes))
		if err := c.step(batchHeaderBytes); err != nil {
			return false, err
		}
	}
	return true, nil
}

// collectKeys fills the map, and finds the offset up to which it holds all.
func (c *compactionPass) collectKeys() error {
	dirty := int64(0)
	for _, s := range c.sources {
		if s.next > c.from && s.base < c.decided {
			dirty += s.end.Load()
		}
	}
	if c.keys == nil {
		records := min(dirty/(minRecordBytes+1), int64(c.decided-c.from))
		c.keys = newKeyMap(records, c.p.options.CompactionMemoryBytes)
	}
	c.keys.reset()
	c.filter.keys, c.filter.end = c.keys, c.decided
	for _, s := range c.sources {
		if s.next <= c.from || s.base >= c.decided {
			continue
		}
		err := s.eachBatch(max(c.from, s.base), c.collectBatch)
		if errors.Is(err, errKeysEnd) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errKeysEnd ends the collection of keys.
var errKeysEnd = errors.New("no more keys")

func (c *compactionPass) collectBatch(b *Batch) error {
	c.stats.ReadBytes += int64(len(b.Bytes))
	if err := c.step(int64(len(b.Bytes))); err != nil {
		return err
	}
	if b.Control || b.Producer.Transactional && c.filter.aborted.hides(b.Producer.ID, b.Base) {
		return nil
	}
	b.First, b.unpacker = max(b.Base, c.from), c.filter.unpacker
	it := b.Records()
	hashes, offsets := c.filter.hashes[:0], c.offsets[:0]
	for it.Next() {
		if it.Key != nil && it.Offset < c.decided {
			hashes, offsets = append(hashes, c.keys.hash(it.Key)), append(offsets, it.Offset)
		}
	}
	c.filter.hashes, c.offsets = hashes, offsets
	if it.Err() != nil {
		return it.Err()
	}
	for i, off := range offsets {
		if i%warmBatch == 0 {
			c.keys.warm(hashes[i:])
		}
		if !c.keys.put(hashes[i], off) {
			c.filter.end, c.full = off, true
			return errKeysEnd
		}
	}
	if b.Last >= c.decided {
		return errKeysEnd
	}
	return nil
}

// groups walks the segments to be rewritten, in order: each group becomes one
// segment. Small ones come together as long as they fit into one.
func (c *compactionPass) groups() func(yield func([]*segment) bool) {
	return func(yield func([]*segment) bool) {
		rest := c.sources
		for len(rest) > 0 && rest[0].base < c.filter.end {
			n, size := 1, rest[0].end.Load()
			for n < len(rest) && rest[n].base < c.filter.end && !rest[n-1].gapAfter &&
				size+rest[n].end.Load() <= c.p.segLimit && rest[n].next-rest[0].base <= math.MaxInt32 {
				size += rest[n].end.Load()
				n++
			}
			if !yield(rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// rewrite replaces the segments of a group by one, unless nothing changes.
func (c *compactionPass) rewrite(group []*segment) error {
	if c.buffer == nil {
		c.buffer = make([]byte, 0, min(cleanedBuffer, c.p.segLimit))
	}
	for _, s := range group {
		if err := s.pin(); err != nil {
			return err
		}
		defer s.unpin()
	}
	out := newCleanedSegment(c.p, group, c.buffer)
	defer out.discard() // of no effect once it is in place
	c.filter.aborts = c.filter.aborts[:0]
	var b Batch // one for all: it escapes
	for i, s := range group {
		for at, end := int64(0), s.end.Load(); at < end; {
			var err error
			if b, err = s.batchAt(at); err != nil {
				return err
			}
			at += int64(len(b.Bytes))
			c.stats.ReadBytes += int64(len(b.Bytes))
			kept, err := c.filter.next(&b, i == len(group)-1 && at == end)
			if err != nil {
				return &CorruptionError{File: s.name(logSuffix), Position: at - int64(len(b.Bytes)), Offset: b.Base, Cause: err}
			}
			before := out.written
			if err := out.append(&b, kept); err != nil {
				return err
			}
			if err := c.step(int64(len(b.Bytes)) + out.written - before); err != nil {
				return err
			}
		}
	}
	if !out.changed {
		return nil
	}
	if err := out.finish(); err != nil {
		return err
	}
	if err := c.swap(group, out); err != nil {
		return err
	}
	c.stats.WrittenBytes += out.made.end.Load()
	c.stats.Segments++
	return nil
}

// swap puts a cleaned segment in the place of its group. Until it is a .swap file
// nothing has happened; from then on it is completed, now or by the next opening,
// and a failure takes the partition offline.
func (c *compactionPass) swap(group []*segment, out *cleanedSegment) error {
	p := c.p
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	if err := c.valid(); err != nil {
		return err
	}
	if at := slices.Index(*p.segments.Load(), group[0]); at < 0 {
		return nil // deleted meanwhile, it or some of its segments: the others wait for the next time
	}
	next := p.compaction
	next.touched = max(next.touched, c.guard)
	next.horizon = max(next.horizon, c.filter.horizon)
	if err := p.saveCompaction(next); err != nil {
		return err
	}
	files := p.files()
	swap := out.made.name(logSuffix + swapSuffix)
	if err := files.Rename(out.name, swap); err != nil {
		return err
	}
	out.placed = true
	err := files.SyncDir(p.dir)
	if err == nil {
		err = p.completeSwap(group)
	}
	if err != nil {
		return p.fail(fmt.Errorf("replace segments by %s: %w", swap, err))
	}
	c.exchange(group, out)
	txns := c.filter.aborts
	if err := out.made.writeIndexes(txns); err != nil {
		p.options.Logger.Warn("indexes of a compacted segment are not written", "segment", out.made.name(logSuffix), "error", err)
	}
	return nil
}

// saveCompaction makes next the partition's compaction state, on disk first. The
// caller holds syncMu.
func (p *Partition) saveCompaction(next compactionState) error {
	if next == p.compaction {
		return nil
	}
	if err := replaceFile(p.files(), path.Join(p.dir, compactionFile), next.encode()); err != nil {
		return err
	}
	p.compaction = next
	p.horizon.Store(int64(next.horizon))
	return nil
}

// exchange shows readers the new segment. Those that pinned an old one go on
// reading it.
func (c *compactionPass) exchange(group []*segment, out *cleanedSegment) {
	p := c.p
	p.mu.Lock()
	segments := *p.segments.Load()
	at := slices.Index(segments, group[0])
	p.touched = true
	replaced := slices.Concat(segments[:at], []*segment{out.made}, segments[at+len(group):])
	p.segments.Store(&replaced)
	p.mu.Unlock()
	for _, s := range group {
		_ = s.drop()
	}
}

// finish notes how far the pass got.
func (c *compactionPass) finish() error {
	p := c.p
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	if err := c.valid(); err != nil {
		return err
	}
	next := p.compaction
	next.cleaned = max(next.cleaned, c.filter.end)
	next.touched = max(next.touched, c.guard)
	next.settleAt = c.filter.settleAt
	if err := p.saveCompaction(next); err != nil {
		return err
	}
	p.decidedIn = c.found
	if _, err := p.removeSnapshots(func(off Offset) bool { return off < next.touched }); err != nil {
		p.options.Logger.Warn("snapshots that count no more are not removed", "partition", p.name.String(), "error", err)
	}
	return nil
}

// cleanedSegment is a segment being written by compaction. Nothing is written as
// long as it is the segment there is.
type cleanedSegment struct {
	p       *Partition
	source  *segment // the first of the group
	name    string   // of the file
	made    *segment
	file    vfs.File
	buffer  []byte
	written int64 // bytes, those in buffer too
	flushed int64
	changed bool // it is another one than source
	placed  bool // the file has another name
}

// cleanedBuffer is how much is written at once, at most.
const cleanedBuffer = 1 << 20

func newCleanedSegment(p *Partition, group []*segment, buffer []byte) *cleanedSegment {
	source := group[0]
	made := p.newSegment(source.base)
	made.writable.Store(false)
	made.gapAfter = group[len(group)-1].gapAfter
	made.appended.Store(source.appended.Load())
	for _, s := range group[1:] {
		made.appended.Store(max(made.appended.Load(), s.appended.Load()))
	}
	return &cleanedSegment{
		p: p, source: source, made: made, name: made.name(logSuffix + cleanedSuffix),
		buffer: buffer, changed: len(group) > 1,
	}
}

// append adds what is kept of b, which may be nothing.
func (o *cleanedSegment) append(b *Batch, kept []byte) error {
	if !o.changed && (len(kept) != len(b.Bytes) || &kept[0] != &b.Bytes[0]) {
		// Up to here it was the same.
		o.changed = true
		prefix := o.written
		o.written = 0
		if err := o.write(o.source.data[:prefix]); err != nil {
			return err
		}
	}
	if len(kept) == 0 {
		return nil
	}
	if o.written+int64(len(kept)) > math.MaxInt32 {
		return fmt.Errorf("%w: the compacted segment %s exceeds %d bytes", ErrTooLarge, o.name, math.MaxInt32)
	}
	after, err := parseHeader(kept)
	if err != nil {
		return err
	}
	if b.Base > o.made.next {
		o.made.gaps = true
	}
	o.made.note(o.written, int64(len(kept)), b.Last, &after)
	if !o.changed {
		o.written += int64(len(kept))
		return nil
	}
	return o.write(kept)
}

func (o *cleanedSegment) write(b []byte) error {
	o.written += int64(len(b))
	for len(b) > 0 {
		n := min(len(b), cap(o.buffer)-len(o.buffer))
		o.buffer = append(o.buffer, b[:n]...)
		b = b[n:]
		if len(o.buffer) == cap(o.buffer) {
			if err := o.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *cleanedSegment) flush() (err error) {
	if o.file == nil {
		if o.file, err = o.p.files().Create(o.name); err != nil {
			return err
		}
	}
	if _, err := o.file.WriteAt(o.buffer, o.flushed); err != nil {
		return fmt.Errorf("write %s: %w", o.name, err)
	}
	o.flushed += int64(len(o.buffer))
	o.buffer = o.buffer[:0]
	return nil
}

// finish puts the whole file on disk.
func (o *cleanedSegment) finish() error {
	if err := o.flush(); err != nil {
		return err
	}
	if err := o.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", o.name, err)
	}
	err := o.file.Close()
	o.file = nil
	o.made.end.Store(o.written)
	o.made.synced.Store(o.written)
	o.made.capacity = o.written
	return err
}

// discard removes the file, unless it is in its place.
func (o *cleanedSegment) discard() {
	if o.placed || o.flushed == 0 && o.file == nil {
		return
	}
	if o.file != nil {
		_ = o.file.Close()
	}
	if err := removeIfPresent(o.p.files(), o.name); err != nil {
		o.p.options.Logger.Warn("what compaction wrote in vain is not removed; the next opening does it", "file", o.name, "error", err)
	}
}
