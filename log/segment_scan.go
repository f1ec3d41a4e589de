package log

import (
	"bytes"
	"fmt"
	"runtime/debug"
)

// scanOptions say what a scan expects of a segment.
type scanOptions struct {
	gaps bool                           // offsets may be missing, as after compaction
	each func(at int64, b *Batch) error // called for every good batch; may be nil
}

// scanned is what a scan found: whole good batches up to end, and there either
// nothing more or a fault.
type scanned struct {
	end   int64
	next  Offset
	fault error // what is wrong with the batch at end; nil when there is none
	dirty int64 // bytes from end to the last one that is not zero
}

// corruption is the fault as an error that names the segment's file.
func (f scanned) corruption(s *segment) error {
	return &CorruptionError{File: s.name(logSuffix), Position: f.end, Offset: f.next, Cause: f.fault}
}

// scan reads the first size bytes, checks every batch, and leaves the segment's
// end, next offset and indexes as it found them. It stops at the first batch that
// is not good. Zeros up to the end are preallocated space and no fault.
func (s *segment) scan(size int64, o scanOptions) (found scanned) {
	s.forget()
	found.next = s.base
	defer func() {
		s.end.Store(found.end)
		s.next = found.next
	}()
	defer recoverFault(debug.SetPanicOnFault(true), &found.fault)
	for found.end < size {
		rest := s.data[found.end:size]
		b, err := ParseBatch(rest)
		switch {
		case err != nil && allZero(rest):
			return found
		case err != nil:
		case b.Base != found.next && !(o.gaps && b.Base > found.next):
			err = fmt.Errorf("%w: base offset is %d, expected is %d", ErrInvalidBatch, b.Base, found.next)
		case b.Last-s.base > maxRelative:
			err = fmt.Errorf("%w: last offset %d is too far from the segment's base", ErrInvalidBatch, b.Last)
		case o.each != nil:
			err = o.each(found.end, &b)
		}
		if err != nil {
			found.fault = err
			found.dirty = int64(len(bytes.TrimRight(rest, "\x00")))
			return found
		}
		s.note(found.end, int64(len(b.Bytes)), b.Last, &b)
		found.end += int64(len(b.Bytes))
		found.next = b.Last + 1
	}
	return found
}

// maxRelative is the greatest distance from a segment's base an index can say.
const maxRelative = 1<<31 - 1

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
