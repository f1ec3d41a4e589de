package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/internal/vfs"
)

const (
	// Disk space is reserved ahead of the end in chunks, small ones first so that
	// a small topic stays small.
	firstChunkBytes = 16 << 10
	lastChunkBytes  = 8 << 20

	// Pages are made present this far ahead of the end, once less than half of it
	// is left, unless the segment is small.
	populateBytes = 2 << 20
	populateFrom  = 256 << 10

	// From this size a batch is written by calls instead of copies into the map where
	// its pages are not ready for these. A page that is new, or that the system has
	// written back, costs a fault that takes longer than the copy, and a flush of the
	// address caches when the system writes it back again; the calls cost some
	// microseconds for the batch.
	largeBatchBytes = 8 << 10
)

// segment is a file of consecutive batches, mapped as a whole. One goroutine at a
// time appends, under Partition.mu; any number read. Each holds a pin meanwhile.
type segment struct {
	fs            vfs.FS
	dir           string
	base          Offset
	suffix        string // of the file
	indexInterval int64  // bytes that share an index entry
	capacity      int64  // bytes it is mapped for
	bound         *openSegments
	failed        func(error) error // called when closing it fails to make it durable

	// Whoever holds a pin may use file and mapping, see segment_open.go.
	pins    atomic.Int64 // closed, or how many use it
	used    atomic.Bool  // pinned since the hand of bound passed
	dropped atomic.Bool  // from the log; set once
	slot    int          // in the ring of bound; guarded by its mu

	openMu  sync.Mutex // held while file and mapping come or go
	file    vfs.File   // nil where it is not written any more
	mapping vfs.Mapping
	data    []byte // the mapping's bytes; only [0, end) may be touched

	end    atomic.Int64          // bytes of whole batches; stored by the appender
	absent bool                  // there is no file yet; guarded by Partition.mu
	synced atomic.Int64          // bytes that are durable; stored by whoever syncs
	lost   atomic.Pointer[error] // of a sync that failed: what was not durable then may be gone
	cut    atomic.Bool           // the file has no more bytes than that

	writable atomic.Bool // not all that belongs to a sealed segment is done
	sealed   atomic.Bool // nothing more is appended

	present atomic.Int64 // bytes up to which pages may be made present; stored by the appender

	maxTime  atomic.Int64 // greatest time of a data record, or noTime; stored by the appender
	appended atomic.Int64 // wall clock of the last append in ms, or of the opening where that was not known; stored by the appender

	// Offsets may be missing in it, or between it and the next segment, as after
	// compaction. Both are found when the segment is opened and never change:
	// appending leaves no gaps.
	gaps, gapAfter bool

	// For the appender only.
	next          Offset // offset after the last batch
	allocated     int64  // bytes of the file
	chunk         int64  // how much to allocate next
	populated     int64  // bytes asked to be present
	recycled      int64  // bytes of the file when it was taken for this segment; what it held may still be there
	warm          bool   // the pages of those bytes are as the last writes left them, for all we know
	copies        *copies
	since         time.Time // by Options.Now, at the first batch; zero when a process before wrote it and it is sealed
	sealedAt      time.Time
	lastBatch     int64                  // position of the last batch
	sinceIndexed  int64                  // bytes since the last index entry
	maxTimeOffset Offset                 // last offset of the batch with maxTime, or -1
	header        [batchHeaderBytes]byte // what append writes; here since it would escape
	length        [atLeaderEpoch - atBatchLength]byte
	mark          [markBytes]byte
	snapshot      []byte // producers at next, encoded when the segment was sealed

	indexMu sync.Mutex // guards the indexes below
	offsets []offsetEntry
	times   []timeEntry
	loaded  bool  // false while they are only on disk
	seal    *seal // for checking them when they are loaded; nil until sealed
}

// newSegment returns a segment that is closed, and empty for all that is known. bound
// and failed may be nil where it is not written and only for a moment.
func newSegment(fs vfs.FS, dir string, base Offset, indexInterval int64) *segment {
	s := &segment{fs: fs, dir: dir, base: base, suffix: logSuffix, indexInterval: indexInterval, next: base, maxTimeOffset: -1, loaded: true}
	s.maxTime.Store(noTime)
	s.appended.Store(neverAppended)
	s.pins.Store(closed)
	s.chunk = firstChunkBytes
	return s
}

// create makes the file of an empty segment, which is open then.
func (s *segment) create() error {
	s.bound.acquire()
	s.openMu.Lock()
	defer s.openMu.Unlock()
	file, err := s.fs.Create(s.name(logSuffix))
	if err == nil {
		if err = s.attach(file); err != nil {
			err = errors.Join(err, file.Close())
		}
	}
	if err != nil {
		s.bound.release()
		return err
	}
	s.opened(0)
	return nil
}

// find looks how large the file of a segment is. What it holds is for the caller to
// find out.
func (s *segment) find() error {
	size, err := s.fs.Size(s.name(s.suffix))
	if err == nil && size > math.MaxInt32 {
		err = &CorruptionError{File: s.name(logSuffix), Position: math.MaxInt32, Offset: -1,
			Cause: fmt.Errorf("it has %d bytes, a segment has at most %d", size, math.MaxInt32)}
	}
	s.allocated, s.capacity = size, max(s.capacity, size)
	return err
}

func (s *segment) name(suffix string) string { return path.Join(s.dir, offsetName(s.base, suffix)) }

// room makes sure that n more bytes have disk space.
func (s *segment) room(n int64) error {
	need := s.end.Load() + n
	if need <= s.allocated {
		return nil
	}
	target := min(max(need, s.allocated+s.chunk), max(need, s.capacity))
	if err := s.file.Allocate(target); err != nil {
		return fmt.Errorf("allocate %d bytes for %s: %w", target, s.name(logSuffix), err)
	}
	s.allocated = target
	s.present.Store(target)
	s.chunk = min(2*s.chunk, lastChunkBytes)
	return nil
}

// fits tells whether a batch can go into this segment rather than the next.
func (s *segment) fits(n int64, last Offset, segmentBytes int64) bool {
	end := s.end.Load()
	if end == 0 {
		return end+n <= s.capacity
	}
	return end+n <= min(segmentBytes, s.capacity) && last-s.base <= math.MaxInt32
}

// append puts a batch at the end, stamped with base offset and epoch, and publishes
// it. There must be room. The length comes last: until it is whole there is no
// batch, only a copy that was cut off. A header written in one go could be cut off
// inside the epoch, which no checksum covers.
func (s *segment) append(b *Batch, base, last Offset, epoch LeaderEpoch) error {
	at := s.end.Load()
	end := at + int64(len(b.Bytes))
	stampHeader(&s.header, b, base, epoch)
	copy(s.length[:], s.header[atBatchLength:])
	if at+markBytes <= s.recycled {
		binary.BigEndian.PutUint32(s.header[atBatchLength:], endMark) // it stays until the length is there
	} else {
		clear(s.header[atBatchLength:atLeaderEpoch])
	}
	write, measured, start := s.mapping.Write, false, time.Time{}
	if len(b.Bytes) >= largeBatchBytes {
		start = time.Now()
		if measured = s.warm && end+markBytes <= s.recycled && s.copies.wanted(start); !measured {
			write = s.mapping.WriteCall
		}
	}
	if err := s.markEnd(write, end); err != nil {
		return err
	}
	if err := write(at+batchHeaderBytes, b.Bytes[batchHeaderBytes:]); err != nil {
		return err
	}
	if err := write(at, s.header[:]); err != nil {
		return err
	}
	if err := write(at+atBatchLength, s.length[:]); err != nil {
		return err
	}
	if measured {
		now := time.Now()
		s.copies.took(end-at, now.Sub(start), now)
	}
	s.note(at, int64(len(b.Bytes)), last, b)
	s.end.Store(end)
	return nil
}

// note updates the indexes for a batch at position at.
func (s *segment) note(at, size int64, last Offset, b *Batch) {
	if s.sinceIndexed > s.indexInterval {
		s.indexMu.Lock()
		s.offsets = append(s.offsets, offsetEntry{relative: int32(last - s.base), position: int32(at)})
		s.noteTimeLocked()
		s.indexMu.Unlock()
		s.sinceIndexed = 0
	}
	s.sinceIndexed += size
	if !b.Control && b.Count > 0 && b.MaxTime > s.maxTime.Load() {
		s.maxTimeOffset = last
		s.maxTime.Store(b.MaxTime)
	}
	s.next, s.lastBatch = last+1, at
}

// noteTimeLocked adds the greatest time so far to the time index, unless it is
// its last entry already.
func (s *segment) noteTimeLocked() {
	maxTime := s.maxTime.Load()
	if s.maxTimeOffset < 0 || len(s.times) > 0 && s.times[len(s.times)-1].time >= maxTime {
		return
	}
	s.times = append(s.times, timeEntry{time: maxTime, relative: int32(s.maxTimeOffset - s.base)})
}

// forget empties the indexes before the segment is scanned.
func (s *segment) forget() {
	s.offsets, s.times, s.loaded, s.seal = nil, nil, true, nil
	s.sinceIndexed, s.lastBatch, s.maxTimeOffset = 0, 0, -1
	s.maxTime.Store(noTime)
	s.gaps = false
}

// writeIndexes writes the indexes and the seal of a segment that no longer
// changes, whose aborted transactions are given.
func (s *segment) writeIndexes(aborted abortedTransactions) error {
	s.indexMu.Lock()
	s.noteTimeLocked()
	offsets, times, txns := encodeOffsetIndex(s.offsets), encodeTimeIndex(s.times), encodeTxnIndex(aborted)
	made := seal{
		base: s.base, next: s.next, size: s.end.Load(),
		maxTime: s.maxTime.Load(), maxTimeOffset: s.maxTimeOffset,
		index: sumOf(offsets), timeIndex: sumOf(times), txnIndex: sumOf(txns),
		lastBatch: s.lastBatch, gaps: s.gaps, gapAfter: s.gapAfter,
		appended: s.appended.Load(),
	}
	s.seal = &made
	s.indexMu.Unlock()

	// The seal is last: without it the others count for nothing.
	return errors.Join(
		writeCacheFile(s.fs, s.name(indexSuffix), offsets),
		writeCacheFile(s.fs, s.name(timeIndexSuffix), times),
		writeCacheFile(s.fs, s.name(txnIndexSuffix), txns),
		writeCacheFile(s.fs, s.name(sealSuffix), made.encode()))
}

// loadIndexes returns the indexes, from disk where they are not in memory yet.
func (s *segment) loadIndexes() ([]offsetEntry, []timeEntry, error) {
	s.indexMu.Lock()
	defer s.indexMu.Unlock()
	if s.loaded {
		return s.offsets, s.times, nil
	}
	offsets, err := loadIndex(s, indexSuffix, s.seal.index, decodeOffsetIndex)
	if err == nil {
		s.times, err = loadIndex(s, timeIndexSuffix, s.seal.timeIndex, decodeTimeIndex)
	}
	if s.offsets = offsets; err != nil {
		err = s.rebuildLocked()
	}
	if err != nil {
		return nil, nil, err
	}
	s.loaded = true
	return s.offsets, s.times, nil
}

// loadIndex reads an index file and holds it against its sum.
func loadIndex[E any](s *segment, suffix string, sum fileSum, decode func([]byte) ([]E, error)) ([]E, error) {
	b, err := readSmallFile(s.fs, s.name(suffix))
	if err != nil {
		return nil, err
	}
	if sumOf(b) != sum {
		return nil, errors.New("its checksum differs from the seal's")
	}
	return decode(b)
}

// rebuildLocked makes the indexes of a sealed segment anew from its data. They
// come out as they were, since both ways note the same batches. The reader of the
// segment holds a pin.
func (s *segment) rebuildLocked() error {
	again := newSegment(s.fs, s.dir, s.base, s.indexInterval)
	again.data = s.data // of whoever pins s
	found := again.scan(s.end.Load(), scanOptions{gapsBelow: maxOffset})
	if found.fault != nil {
		return found.corruption(again)
	}
	again.noteTimeLocked()
	s.offsets, s.times = again.offsets, again.times
	// Caches: when they cannot be written, they are made anew next time too.
	offsets, times := encodeOffsetIndex(s.offsets), encodeTimeIndex(s.times)
	made := *s.seal
	made.index, made.timeIndex = sumOf(offsets), sumOf(times)
	s.seal = &made
	_ = errors.Join(
		writeCacheFile(s.fs, s.name(indexSuffix), offsets),
		writeCacheFile(s.fs, s.name(timeIndexSuffix), times),
		writeCacheFile(s.fs, s.name(sealSuffix), made.encode()))
	return nil
}

// seek returns the position of the first batch whose last offset is at least off,
// or end where there is none. The caller holds a pin.
func (s *segment) seek(off Offset, end int64) (position int64, err error) {
	if off <= s.base {
		return 0, nil
	}
	offsets, _, err := s.loadIndexes()
	if err != nil {
		return 0, err
	}
	entry, ok := floorOffset(offsets, int64(off-s.base))
	if ok && int64(entry.position) < end {
		position = int64(entry.position)
	}
	return s.walk(position, off, end)
}

// walk goes from the batch at position to the first one whose last offset is at
// least off.
func (s *segment) walk(position int64, off Offset, end int64) (int64, error) {
	err := vfs.Guard(func() error {
		for position < end {
			b, err := parseHeader(s.data[position:end])
			if err != nil {
				return err
			}
			if b.Last >= off {
				break
			}
			position += int64(len(b.Bytes))
		}
		return nil
	})
	if err != nil {
		return 0, &CorruptionError{File: s.name(logSuffix), Position: position, Offset: off, Cause: err}
	}
	return position, nil
}

// batchAt checks and decodes the batch at position. The caller holds a pin.
func (s *segment) batchAt(position int64) (b Batch, err error) {
	err = vfs.Guard(func() (err error) {
		b, err = ParseBatch(s.data[position:s.end.Load()])
		return err
	})
	if err != nil {
		err = &CorruptionError{File: s.name(logSuffix), Position: position, Offset: -1, Cause: err}
	}
	return b, err
}

// endsWith tells whether the segment's last batch is where the seal says.
func (s *segment) endsWith(made seal) bool {
	if s.pin() != nil {
		return false
	}
	defer s.unpin()
	b, err := s.batchAt(made.lastBatch)
	return err == nil && b.Last+1 == made.next && made.lastBatch+int64(len(b.Bytes)) == made.size
}

// eachBatch calls f for the checked batches from the one that holds off on.
func (s *segment) eachBatch(off Offset, f func(*Batch) error) error {
	end := s.end.Load()
	if end == 0 {
		return nil
	}
	if err := s.pin(); err != nil {
		return err
	}
	defer s.unpin()
	at, err := s.seek(off, end)
	if err != nil {
		return err
	}
	var b Batch // one for all: it escapes
	for at < end {
		if b, err = s.batchAt(at); err != nil {
			return err
		}
		if err := f(&b); err != nil {
			return &CorruptionError{File: s.name(logSuffix), Position: at, Offset: b.Base, Cause: err}
		}
		at += int64(len(b.Bytes))
	}
	return nil
}

// remove deletes the segment's files. Readers that hold a pin go on reading.
func (s *segment) remove() error {
	err := s.fs.Remove(s.name(logSuffix))
	return errors.Join(err, s.removeIndexes())
}

func (s *segment) removeIndexes() (err error) {
	for _, suffix := range []string{sealSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix} {
		err = errors.Join(err, removeIfPresent(s.fs, s.name(suffix)))
	}
	return err
}
