package log

import (
	"encoding/binary"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/thalweg/thalweg/internal/vfs"
)

// A file whose segment was dropped is used again by a later segment of the same
// partition: its pages are in memory and mapped, its blocks are on the disk. Between
// the two it is a spare, under a name that is not a segment's.
//
// The batches it held stay in it behind the new end. They cannot come back: all of
// their offsets are below the log start, so below every offset that is expected in
// the new segment, and a mark says where the log ends (see endMark).
const (
	// spareSuffix ends the name of a spare. Kafka's tools delete such files.
	spareSuffix = ".deleted"

	// A partition keeps this many spares, as long as they are no larger together.
	// One is in use while the next one is being made.
	maxSpares     = 8
	maxSpareBytes = 512 << 20
)

// endMark stands in place of the length of a batch where the log ends in a file that
// was used before: a new file has a zero there. No batch has a negative length.
const endMark = 0xffffffff

// markBytes is how much of a batch's prefix the mark takes, together with the base
// offset before it.
const markBytes = atLeaderEpoch

// spare is a file without a segment, still mapped.
type spare struct {
	name    string
	file    vfs.File
	mapping vfs.Mapping
	size    int64
	since   time.Time
	warm    bool // its pages are as the last writes left them, for all we know
}

// letGo closes a spare, whose file stays where it is.
func (p *Partition) letGo(s *spare) error {
	p.log.open.releaseSpare()
	p.log.open.release()
	return errors.Join(s.file.Close(), s.mapping.Unmap())
}

// retire makes a segment that is no longer part of the log a spare. It fails when
// somebody still reads it, and when it is not open; then, and on an error, the segment
// is as it was. The spare must not be used before the directory is synced: its old name would come
// back with what was written under the new one.
func (s *segment) retire() (*spare, error) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	if !s.pins.CompareAndSwap(0, closed) {
		return nil, nil
	}
	if s.mapping == nil {
		s.pins.Store(0)
		return nil, nil
	}
	made, err := s.asSpareLocked()
	if err != nil {
		s.pins.Store(0)
		return nil, err
	}
	s.dropped.Store(true)
	s.bound.remove(s) // it is still counted
	s.file, s.mapping, s.data = nil, nil, nil
	return made, nil
}

func (s *segment) asSpareLocked() (*spare, error) {
	// The descriptor is closed once the segment was synced.
	made := &spare{name: s.name(logSuffix) + spareSuffix, file: s.file, mapping: s.mapping, warm: s.file != nil, since: time.Now()}
	if made.file == nil {
		file, err := s.fs.Open(s.name(logSuffix))
		if err != nil {
			return nil, err
		}
		made.file, s.file = file, file
		file.Adopt(s.mapping)
	}
	size, err := made.file.Size()
	if err != nil {
		return nil, err
	}
	made.size = size
	return made, s.fs.Rename(s.name(logSuffix), made.name)
}

// recycleSegment makes an empty segment of a spare, whose name it takes away.
func (p *Partition) recycleSegment(base Offset, old *spare) (*segment, error) {
	s := p.newSegment(base)
	s.file, s.mapping, s.data = old.file, old.mapping, old.mapping.Bytes()
	s.allocated, s.recycled, s.populated = old.size, old.size, old.size
	s.warm, s.copies = old.warm, &p.copies
	// Before it has the name of a segment, the file must not begin as one.
	if err := s.markEnd(s.mapping.Write, 0); err != nil {
		return nil, err
	}
	if err := s.fs.Rename(old.name, s.name(logSuffix)); err != nil {
		return nil, err
	}
	s.opened(0)
	return s, nil
}

// markEnd says that the log ends at a position, if what the file held before
// follows there.
func (s *segment) markEnd(write func(int64, []byte) error, at int64) error {
	left := s.recycled - at
	if left <= 0 {
		return nil
	}
	mark := s.mark[:min(left, markBytes)]
	clear(mark)
	if left >= markBytes { // else the end of the file is near enough
		binary.BigEndian.PutUint32(mark[atBatchLength:], endMark)
	}
	return write(at, mark)
}

// endsBefore tells whether b begins with the mark of the end, or with a batch that
// the file held before it became the segment with the given base.
func endsBefore(b []byte, base Offset) bool {
	if len(b) >= markBytes && binary.BigEndian.Uint32(b[atBatchLength:]) == endMark {
		return true
	}
	frame, err := frameBatch(b)
	if err != nil || verifyChecksum(frame) != nil {
		return false
	}
	was := Offset(binary.BigEndian.Uint64(frame))
	return was >= 0 && was < base
}

// keepSpares takes over what retire made, once the directory is synced.
func (p *Partition) keepSpares(more []*spare) {
	p.mu.Lock()
	p.spares = append(p.spares, more...)
	p.mu.Unlock()
}

// wantsSpare tells whether one more spare of about the given size is welcome,
// besides those in hand, and counts it.
func (p *Partition) wantsSpare(size int64, inHand []*spare) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, total := 1, size
	for _, all := range [][]*spare{p.spares, inHand} {
		for _, s := range all {
			n, total = n+1, total+s.size
		}
	}
	return n <= maxSpares && total <= maxSpareBytes && p.log.open.acquireSpare()
}

// takeSpareLocked returns a spare that can become a segment, or nil.
func (p *Partition) takeSpareLocked() *spare {
	for len(p.spares) > 0 {
		last := len(p.spares) - 1
		s := p.spares[last]
		p.spares = p.spares[:last]
		if int64(len(s.mapping.Bytes())) == p.capacity {
			return s
		}
		p.discard(s) // of another size than segments have now
	}
	return nil
}

// discard removes a spare. A file that stays is removed when the log is opened.
func (p *Partition) discard(s *spare) {
	if err := errors.Join(p.letGo(s), p.files().Remove(s.name)); err != nil {
		p.options.Logger.Warn("spare segment file stays", "file", s.name, "error", err)
	}
}

// dropSpares removes all spares.
func (p *Partition) dropSpares() { p.dropSparesBefore(time.Now()) }

// dropSparesBefore removes the spares that nobody has needed since a time.
func (p *Partition) dropSparesBefore(limit time.Time) {
	var gone []*spare
	p.mu.Lock()
	p.spares = slices.DeleteFunc(p.spares, func(s *spare) bool {
		old := !s.since.After(limit)
		if old {
			gone = append(gone, s)
		}
		return old
	})
	p.mu.Unlock()
	for _, s := range gone {
		p.discard(s)
	}
}

// nextSegmentLocked makes an empty segment, of a spare where there is one.
func (p *Partition) nextSegmentLocked(base Offset) (*segment, error) {
	old := p.takeSpareLocked()
	if old == nil {
		return p.createSegment(base)
	}
	s, err := p.recycleSegment(base, old)
	if err != nil {
		// Under which name it is now is not known, but it is empty under both.
		p.options.Logger.Warn("segment file cannot be used again", "file", old.name, "error", err)
		_ = p.letGo(old)
		if err := errors.Join(removeIfPresent(p.files(), old.name), removeIfPresent(p.files(), path.Join(p.dir, offsetName(base, logSuffix)))); err != nil {
			return nil, err
		}
		return p.createSegment(base)
	}
	p.log.open.releaseSpare()
	return s, nil
}
