package log

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// remoteReader gets batches of segments that are in the object store alone, a chunk
// at a time, and the next chunk ahead when they are read one after the other. It
// holds two chunks at most.
type remoteReader struct {
	p *Partition

	// Where the chunk after the last one begins; segment is nil after a seek.
	segment *remoteSegment
	at      int64
	next    Offset // of the batch there, or below

	ahead *chunk // being fetched, or ready; nil for none
}

// chunk is a piece of a segment that is fetched.
type chunk struct {
	segment *remoteSegment
	at      int64
	cancel  context.CancelFunc
	done    chan struct{} // closed when the fields below are set
	data    []byte
	err     error
}

// fetch returns a segment in memory whose batches are those of the chunk with off, or
// those before it.
func (r *remoteReader) fetch(off Offset) (*segment, error) {
	m := r.p.remote.Load()
	found := m.find(off)
	if found == nil {
		if err := r.p.checkRange(off); err != nil {
			return nil, err
		}
		return nil, &CorruptionError{File: m.prefix(r.p.name), Offset: off,
			Cause: errors.New("the offset is neither in the directory nor in the object store")}
	}
	sequential := r.segment != nil && r.segment.base == found.base && off >= r.next
	at := r.at
	if !sequential {
		var err error
		if at, err = r.seek(found, off); err != nil {
			return nil, err
		}
	}
	data, err := r.take(found, at)
	if err != nil {
		return nil, err
	}
	s := newSegment(nil, m.prefix(r.p.name), found.base, 0)
	s.gaps, s.data = found.gaps, data
	s.pins.Store(1) // the reader's, and no other
	s.dropped.Store(true)
	s.end.Store(int64(len(data)))

	last, err := lastBatch(data)
	if err != nil {
		return nil, &CorruptionError{File: m.object(r.p.name, found), Position: at, Offset: off, Cause: err}
	}
	r.segment, r.at, r.next = found, at+int64(len(data)), last+1
	if r.at >= int64(found.data.size) {
		r.segment, r.at = m.find(found.next), 0 // nil at the end of what is there
	}
	if r.segment != nil && (sequential || at == 0) {
		r.fetchAhead()
	}
	return s, nil
}

// seek returns the position of a batch at or before the one that holds off.
func (r *remoteReader) seek(s *remoteSegment, off Offset) (int64, error) {
	if off <= s.base || s.index.size == 0 {
		return 0, nil
	}
	b, err := r.section(s, int64(s.data.size), s.index)
	if err != nil {
		return 0, err
	}
	entries, err := decodeOffsetIndex(b)
	if err != nil {
		return 0, r.damaged(s, int64(s.data.size), err)
	}
	entry, _ := floorOffset(entries, int64(off-s.base))
	return int64(entry.position), nil
}

// section reads an index of a segment and holds it against its sum.
func (r *remoteReader) section(s *remoteSegment, at int64, sum fileSum) ([]byte, error) {
	ctx, cancel := r.context()
	defer cancel()
	b, err := r.read(ctx, s, at, int64(sum.size))
	if err == nil && sumOf(b) != sum {
		err = r.damaged(s, at, errors.New("the index there has another checksum than the manifest says"))
	}
	return b, err
}

func (r *remoteReader) damaged(s *remoteSegment, at int64, cause error) error {
	return &CorruptionError{File: r.p.remote.Load().object(r.p.name, s), Position: at, Offset: s.base, Cause: cause}
}

// take returns whole batches from position at on: those that were fetched ahead,
// where it is they.
func (r *remoteReader) take(s *remoteSegment, at int64) ([]byte, error) {
	if a := r.ahead; a != nil && a.segment.base == s.base && a.at == at {
		<-a.done
		a.cancel()
		if r.ahead = nil; a.err == nil {
			return a.data, nil
		}
	}
	r.stopAhead()
	ctx, cancel := r.context()
	defer cancel()
	return r.chunk(ctx, s, at)
}

func (r *remoteReader) fetchAhead() {
	ctx, cancel := r.context()
	a := &chunk{segment: r.segment, at: r.at, cancel: cancel, done: make(chan struct{})}
	r.ahead = a
	go func() { // stopAhead ends it and waits for it
		defer close(a.done)
		a.data, a.err = r.chunk(ctx, a.segment, a.at)
	}()
}

func (r *remoteReader) stopAhead() {
	if r.ahead != nil {
		r.ahead.cancel()
		<-r.ahead.done
		r.ahead = nil
	}
}

// reset forgets where the reader is.
func (r *remoteReader) reset() {
	r.stopAhead()
	r.segment = nil
}

// context ends with the partition, or when an answer takes too long.
func (r *remoteReader) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.p.life, r.p.options.RemoteTimeout)
}

// chunk reads about as much as the options say, cut to whole batches, and one batch
// at least.
func (r *remoteReader) chunk(ctx context.Context, s *remoteSegment, at int64) ([]byte, error) {
	left := int64(s.data.size) - at
	b, err := r.read(ctx, s, at, min(left, max(r.p.options.RemoteReadBytes, batchHeaderBytes)))
	if err != nil {
		return nil, err
	}
	whole := 0
	for {
		size := batchSize(b[whole:])
		if whole == 0 && size > int64(len(b)) && size <= left {
			if b, err = r.read(ctx, s, at, size); err != nil {
				return nil, err
			}
			continue
		}
		if size <= 0 || size > int64(len(b)-whole) {
			break
		}
		whole += int(size)
	}
	if whole == 0 {
		return nil, r.damaged(s, at, fmt.Errorf("%w: there is no whole batch", ErrInvalidBatch))
	}
	return b[:whole:whole], nil
}

// batchSize is the size of the batch at the start of b by its length field, 0 where
// that is not there.
func batchSize(b []byte) int64 {
	if len(b) < batchHeaderBytes {
		return 0
	}
	return max(0, lengthExcludes+int64(int32(binary.BigEndian.Uint32(b[atBatchLength:]))))
}

// lastBatch returns the last offset of the last batch of whole ones.
func lastBatch(data []byte) (Offset, error) {
	var last Offset
	for len(data) > 0 {
		b, err := parseHeader(data)
		if err != nil {
			return 0, err
		}
		last, data = b.Last, data[len(b.Bytes):]
	}
	return last, nil
}

func (r *remoteReader) read(ctx context.Context, s *remoteSegment, at, size int64) ([]byte, error) {
	name := r.p.remote.Load().object(r.p.name, s)
	b := make([]byte, size)
	n, err := r.p.options.Remote.ReadAt(ctx, name, b, at)
	if err == io.EOF && n == len(b) {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read %s from %d on: %w", ErrRemote, name, at, err)
	}
	return b, nil
}

// offsetAtRemote is OffsetAt for what is in the object store alone, below local.
func (p *Partition) offsetAtRemote(timeMs int64, start, local, high Offset) (off Offset, found bool, err error) {
	m := p.remote.Load()
	r := p.Reader(0, ReadUncommitted)
	defer r.Close()
	for i := range m.segments {
		s := &m.segments[i]
		if s.maxTime < timeMs || s.next <= start || s.base >= local {
			continue
		}
		b, err := r.fromRemote().section(s, int64(s.data.size)+int64(s.index.size), s.timeIndex)
		if err != nil {
			return 0, false, err
		}
		times, err := decodeTimeIndex(b)
		if err != nil {
			return 0, false, r.remote.damaged(s, int64(s.data.size)+int64(s.index.size), err)
		}
		from := max(s.base, start)
		if entry, ok := belowTime(times, timeMs); ok {
			from = max(from, s.base+Offset(entry.relative)+1)
		}
		for r.Seek(from); r.next < min(s.next, high); {
			b, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return 0, false, err
			}
			if b.MaxTime < timeMs {
				continue
			}
			b.First = max(b.Base, start)
			it := b.Records()
			for it.Next() {
				if it.Time >= timeMs {
					return it.Offset, it.Offset < high, nil
				}
			}
			if it.Err() != nil {
				return 0, false, fmt.Errorf("look for a time in %s: %w", m.object(p.name, s), it.Err())
			}
		}
	}
	return 0, false, nil
}

// fromRemote returns the part of the reader that reads from the object store.
func (r *Reader) fromRemote() *remoteReader {
	if r.remote == nil {
		r.remote = &remoteReader{p: r.p}
	}
	return r.remote
}
