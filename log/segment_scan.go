package log

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/thalweg/thalweg/internal/vfs"
)

// scanOptions say what a scan expects of a segment.
type scanOptions struct {
	gapsBelow Offset                         // offsets may be missing below, as after compaction, and a batch begins there
	recycled  bool                           // what the file held before it became this segment may follow the end
	each      func(at int64, b *Batch) error // called for every good batch; may be nil
}

// scanned is what a scan found: whole good batches up to end, and there either
// nothing more or a fault.
type scanned struct {
	end   int64
	next  Offset
	gap   Offset // the first offset that is missing, or -1 once no more may be
	fault error  // what is wrong with the batch at end; nil when there is none
	dirty int64  // bytes from end to the last one that is not zero
}

// certain is the offset below which the batches follow one another, or the last
// gap that there may be is over. A base offset is not part of a checksum: a gap may
// be one that was damaged.
func (f scanned) certain() Offset {
	if f.gap >= 0 {
		return f.gap
	}
	return f.next
}

// corruption is the fault as an error that names the segment's file.
func (f scanned) corruption(s *segment) error {
	if errors.Is(f.fault, errLegacyFormat) {
		return fmt.Errorf("%s at byte %d: %w", s.name(logSuffix), f.end, f.fault)
	}
	return &CorruptionError{File: s.name(logSuffix), Position: f.end, Offset: f.next, Cause: f.fault}
}

// scan reads the first size bytes, checks every batch, and leaves the segment's
// end, next offset and indexes as it found them. It stops at the first batch that
// is not good. Zeros up to the end are preallocated space and no fault.
func (s *segment) scan(size int64, o scanOptions) (found scanned) {
	s.forget()
	found.next, found.gap = s.base, -1
	err := vfs.Guard(func() error {
		for found.end < size {
			b, err := s.checkNext(s.data[found.end:size], found, o)
			if err != nil {
				return err
			}
			if b.Bytes == nil {
				return nil
			}
			if b.Base > found.next && found.gap < 0 {
				found.gap, s.gaps = found.next, true
			}
			s.note(found.end, int64(len(b.Bytes)), b.Last, &b)
			found.end += int64(len(b.Bytes))
			found.next = b.Last + 1
			if found.next >= o.gapsBelow {
				found.gap = -1
			}
		}
		return nil
	})
	if err != nil {
		found.fault = err
		// The pages may be what is bad: counting must not end the process either.
		_ = vfs.Guard(func() error {
			found.dirty = s.dirty(s.data[found.end:size], o)
			return nil
		})
	}
	s.end.Store(found.end)
	s.next = found.next
	return found
}

// checkNext checks the batch at the start of rest. Without a batch and without an
// error the segment ends there.
func (s *segment) checkNext(rest []byte, found scanned, o scanOptions) (Batch, error) {
	b, err := ParseBatch(rest)
	switch {
	case err != nil && allZero(rest):
		return Batch{}, nil
	case o.recycled && (err != nil || b.Base < s.base) && endsBefore(rest, s.base):
		return Batch{}, nil
	case err != nil:
		return Batch{}, err
	case b.Base != found.next && !(b.Base > found.next && b.Base <= o.gapsBelow):
		return Batch{}, fmt.Errorf("%w: base offset is %d, expected is %d (only compacted topics have gaps)", ErrInvalidBatch, b.Base, found.next)
	case b.Last-s.base > math.MaxInt32:
		return Batch{}, fmt.Errorf("%w: last offset %d is too far from the segment's base %d", ErrInvalidBatch, b.Last, s.base)
	case o.each != nil:
		if err := o.each(found.end, &b); err != nil {
			return Batch{}, err
		}
	}
	return b, nil
}

// dirty is how many bytes of rest, which begins with a batch that is not good, come
// from this segment.
func (s *segment) dirty(rest []byte, o scanOptions) int64 {
	for at := 0; o.recycled; {
		if endsBefore(rest[at:], s.base) {
			return int64(at)
		}
		frame, err := frameBatch(rest[at:])
		if err != nil {
			break
		}
		at += len(frame)
	}
	return int64(len(bytes.TrimRight(rest, "\x00")))
}

// allZero tells whether b holds zeros only.
func allZero(b []byte) bool {
	var zeros [4096]byte
	for len(b) > len(zeros) {
		if !bytes.Equal(b[:len(zeros)], zeros[:]) {
			return false
		}
		b = b[len(zeros):]
	}
	return bytes.Equal(b, zeros[:len(b)])
}
