package log

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/thalweg/thalweg/internal/vfs"
)

// Reader reads batches in order. It is for one goroutine. It pins the segment it
// reads, so that what Next returned stays readable even when the segment is
// deleted meanwhile; a reader that has nothing to read pins none.
type Reader struct {
	p         *Partition
	isolation Isolation
	next      Offset // offset after the last batch returned or passed over

	segment    *segment      // nil before the first Next and after Close
	pinned     bool          // segment is
	position   int64         // of the batch with next, in segment
	found      bool          // the batch at position was searched for and may begin before next
	generation uint64        // of the partition's segments when segment was found
	remote     *remoteReader // made when it is needed
	batch      Batch
	unpacker   unpacker // of batch

	// The epoch of the records in [epochFrom, epochTo), against which batches are
	// checked: it is not part of their checksum.
	epoch              LeaderEpoch
	epochFrom, epochTo Offset

	lastEpoch LeaderEpoch // of the batch before next
	hasLast   bool        // lastEpoch is valid
	closed    bool
}

// Reader returns a reader positioned at from. An offset outside [Start, End] is
// ErrOffsetOutOfRange at the first Next. Close it when done.
func (p *Partition) Reader(from Offset, iso Isolation) *Reader {
	return &Reader{p: p, isolation: iso, next: from, unpacker: unpacker{from: &p.log.decoders}}
}

// limit is the offset at which readers of the isolation stop.
func (p *Partition) limit(iso Isolation) Offset {
	switch iso {
	case ReadCommitted:
		return Offset(p.stable.Load())
	case ReadAppended:
		return Offset(p.end.Load())
	}
	return Offset(p.high.Load())
}

// Next returns the next data batch that holds a readable record at or after the
// position, or io.EOF when there is none yet; control batches and, by isolation,
// aborted ones are passed over. The batch, with what its Records give, is valid until
// the next call of a method of the Reader. It never waits for records to be written;
// those that are in the object store alone it fetches, and ErrRemote may go away when
// Next is called again.
//
// A position that was deleted or cut away, or is beyond the end, is
// ErrOffsetOutOfRange; the reader stays where it is. A batch that is not what was
// written is a *CorruptionError.
func (r *Reader) Next() (*Batch, error) {
	p := r.p
	if r.closed || p.closed.Load() {
		return nil, ErrClosed
	}
	if int64(r.next) < p.start.Load() {
		return nil, p.checkRange(r.next)
	}
	// The limit comes before the generation: what is below the limit now is not
	// cut away without the generation growing first.
	limit := p.limit(r.isolation)
	for r.next < limit {
		if err := r.resume(); err != nil {
			return nil, err
		}
		if r.segment == nil || r.generation != p.generation.Load() || r.position >= r.segment.end.Load() {
			var err error
			if limit, err = r.locate(); err != nil {
				return nil, err
			}
			if r.next >= limit {
				break // a gap reaches up to it, or the log was cut meanwhile
			}
		}
		if err := r.read(); err != nil {
			return nil, err
		}
		b := &r.batch
		if b.Base >= limit {
			// Up to here compaction has left nothing.
			r.next, r.hasLast = limit, false
			break
		}
		r.position += int64(len(b.Bytes))
		b.First = max(b.Base, r.next)
		r.next = b.Last + 1
		r.lastEpoch, r.hasLast = b.Epoch, true
		if b.Control || b.Count == 0 { // compaction leaves batches without records
			continue
		}
		if b.Producer.Transactional && r.isolation != ReadUncommitted && p.aborted.Load().hides(b.Producer.ID, b.Base) {
			continue
		}
		return b, nil
	}
	if int64(r.next) > p.end.Load() {
		return nil, p.checkRange(r.next)
	}
	r.pause()
	return nil, io.EOF
}

// pause lets go of the segment, which is still the one to go on with, since there may
// be nothing to read for long.
func (r *Reader) pause() {
	if r.pinned && r.segment.fs != nil { // a piece from the object store is there no more than once
		r.segment.unpin()
		r.pinned = false
	}
}

// resume takes back what pause did, unless the segment was dropped meanwhile.
func (r *Reader) resume() error {
	if r.segment == nil || r.pinned {
		return nil
	}
	switch err := r.segment.pin(); {
	case errors.Is(err, errDropped):
		r.segment = nil
	case err != nil:
		return fmt.Errorf("read %s: %w", r.p.name, err)
	default:
		r.pinned = true
	}
	return nil
}

// locate pins the segment that holds next and finds its batch there, unless next is at
// or above the limit now, which it returns.
func (r *Reader) locate() (limit Offset, err error) {
	p := r.p
	for {
		// What is below the limit now is in the segments, or the generation grows
		// before it is cut away; with a new generation come its segments.
		limit = p.limit(r.isolation)
		r.generation = p.generation.Load()
		segments := *p.segments.Load()
		if r.next < segments[0].base {
			if err := r.locateRemote(); err != nil {
				return 0, err
			}
			if r.position < r.segment.end.Load() {
				return limit, nil
			}
			continue // it is in the next piece
		}
		i := find(segments, r.next)
		s := segments[i]
		if s == r.segment {
			switch {
			case r.position < s.end.Load(), r.next >= limit:
				return limit, nil
			case i+1 < len(segments) && s.gapAfter:
				r.next = segments[i+1].base // the gap that compaction left
				continue
			case r.generation != p.generation.Load():
				continue
			}
			return 0, &CorruptionError{File: s.name(logSuffix), Position: r.position, Offset: r.next,
				Cause: errors.New("the segment ends before the offset")}
		}
		if err := s.pin(); errors.Is(err, errDropped) {
			if p.closed.Load() {
				return 0, ErrClosed
			}
			if err := p.checkRange(r.next); err != nil {
				return 0, err
			}
			continue // deleted since the list was read
		} else if err != nil {
			return 0, fmt.Errorf("read %s: %w", p.name, err)
		}
		r.release()
		r.segment, r.pinned = s, true
		position, err := s.seek(r.next, s.end.Load())
		if err != nil {
			r.release()
			return 0, err
		}
		r.position, r.found = position, true
		r.epochTo = 0
	}
}

// locateRemote makes the present segment a piece of one that is in the object store
// alone.
func (r *Reader) locateRemote() error {
	s, err := r.fromRemote().fetch(r.next)
	if err != nil {
		return err
	}
	r.release()
	r.segment, r.pinned = s, true
	r.position, err = s.seek(r.next, s.end.Load())
	r.found, r.epochTo = true, 0
	return err
}

// read checks and decodes the batch at the position.
func (r *Reader) read() (err error) {
	s := r.segment
	if err := r.parse(s.data[r.position:s.end.Load()]); err != nil {
		return &CorruptionError{File: s.name(logSuffix), Position: r.position, Offset: r.next, Cause: err}
	}
	b := &r.batch
	// Neither base offset nor epoch is part of the checksum. Only the first batch
	// after a search may begin before next.
	if b.Base > r.next && !s.gaps || b.Base < r.next && !r.found || b.Last < r.next {
		return &CorruptionError{File: s.name(logSuffix), Position: r.position, Offset: r.next,
			Cause: fmt.Errorf("%w: it has offsets %d to %d", ErrInvalidBatch, b.Base, b.Last)}
	}
	r.found = false
	if b.Base < r.epochFrom || b.Base >= r.epochTo || b.Epoch != r.epoch {
		return r.checkEpoch()
	}
	return nil
}

func (r *Reader) parse(b []byte) error {
	return vfs.Guard(func() (err error) {
		r.batch, err = ParseBatch(b)
		r.batch.unpacker = &r.unpacker
		return err
	})
}

// checkEpoch compares the batch's epoch with what the leader epoch file says.
func (r *Reader) checkEpoch() error {
	epoch, from, to, ok := r.p.epochs.Load().at(r.batch.Base)
	if !ok {
		return nil // older than the first epoch known
	}
	r.epoch, r.epochFrom, r.epochTo = epoch, from, to
	if r.batch.Epoch != epoch {
		return &CorruptionError{File: r.segment.name(logSuffix), Position: r.position, Offset: r.next,
			Cause: fmt.Errorf("%w: leader epoch is %d, that of the offset is %d", ErrInvalidBatch, r.batch.Epoch, epoch)}
	}
	return nil
}

// Offset is the offset after the last batch returned or passed over.
func (r *Reader) Offset() Offset { return r.next }

// Position is Offset with the epoch of the batch before it.
func (r *Reader) Position() Position {
	if r.hasLast {
		return Position{Offset: r.next, Epoch: r.lastEpoch}
	}
	return Position{Offset: r.next, Epoch: r.p.epochs.Load().before(r.next)}
}

// Seek makes off the position.
func (r *Reader) Seek(off Offset) {
	r.release()
	if r.remote != nil {
		r.remote.reset()
	}
	r.next, r.hasLast = off, false
}

// Wait returns once Next may have something new, or ctx ends. It fails with
// ErrClosed and, since nothing new can come, with ErrOffline and ErrReadOnly.
func (r *Reader) Wait(ctx context.Context) error {
	p := r.p
	for {
		changed := p.progress.wait()
		switch {
		case r.closed || p.closed.Load():
			return ErrClosed
		case r.next < p.limit(r.isolation), int64(r.next) < p.start.Load(), int64(r.next) > p.end.Load():
			return nil
		case p.failed.Load() != nil:
			return p.offline()
		case p.log.readOnly:
			return fmt.Errorf("%w: %s ends at offset %d", ErrReadOnly, p.name, p.end.Load())
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close releases the segment the reader pins. The batch returned last is not
// valid any more.
func (r *Reader) Close() {
	r.release()
	if r.remote != nil {
		r.remote.reset()
	}
	r.closed = true
}

func (r *Reader) release() {
	if r.pinned {
		r.segment.unpin()
	}
	r.segment, r.pinned = nil, false
}
