package log

import (
	"errors"
	"fmt"
)

// OffsetAt returns the lowest offset whose record has a time of at least timeMs.
// Times need not grow with offsets. Only records below the high watermark count,
// committed or not.
func (p *Partition) OffsetAt(timeMs int64) (off Offset, found bool, err error) {
	if p.closed.Load() {
		return 0, false, ErrClosed
	}
	for {
		generation := p.generation.Load()
		start, high := p.Start(), p.HighWatermark()
		off, found, pinned, err := p.offsetAt(timeMs, start, high)
		if pinned && generation == p.generation.Load() && start == p.Start() {
			return off, found, err
		}
		// Records were deleted or cut off meanwhile.
		if p.closed.Load() {
			return 0, false, ErrClosed
		}
	}
}

// offsetAt looks in the segments there are now. pinned is false when one of them
// went away.
func (p *Partition) offsetAt(timeMs int64, start, high Offset) (off Offset, found, pinned bool, err error) {
	segments := *p.segments.Load()
	if local := segments[0].base; start < local {
		if off, found, err = p.offsetAtRemote(timeMs, start, local, high); found || err != nil {
			return off, found, true, err
		}
	}
	for _, s := range segments {
		if s.maxTime.Load() < timeMs || s.end.Load() == 0 {
			continue
		}
		if err := s.pin(); errors.Is(err, errDropped) {
			return 0, false, false, nil
		} else if err != nil {
			return 0, false, true, fmt.Errorf("look for a time in %s: %w", p.name, err)
		}
		u := p.log.decoders.unpacker()
		off, found, err = s.offsetAt(timeMs, start, high, u)
		p.log.decoders.done(u)
		s.unpin()
		if found || err != nil {
			return off, found, true, err
		}
	}
	return 0, false, true, nil
}

// offsetAt looks for the first record of [start, high) with a time of at least
// timeMs. The caller holds a pin.
func (s *segment) offsetAt(timeMs int64, start, high Offset, u *unpacker) (Offset, bool, error) {
	_, times, err := s.loadIndexes()
	if err != nil {
		return 0, false, err
	}
	from := max(s.base, start)
	// Whatever came up to an entry with an earlier time is earlier, too.
	if entry, ok := belowTime(times, timeMs); ok {
		from = max(from, s.base+Offset(entry.relative)+1)
	}
	end := s.end.Load()
	at, err := s.seek(from, end)
	if err != nil {
		return 0, false, err
	}
	for at < end {
		b, err := s.batchAt(at)
		if err != nil {
			return 0, false, err
		}
		if b.Base >= high {
			break
		}
		if !b.Control && b.MaxTime >= timeMs {
			b.First, b.unpacker = max(b.Base, start), u
			it := b.Records()
			for it.Next() {
				if it.Time >= timeMs {
					return it.Offset, it.Offset < high, nil
				}
			}
			if errors.Is(it.Err(), ErrTooLarge) {
				return 0, false, fmt.Errorf("look for a time in %s: %w", s.name(logSuffix), it.Err())
			}
			if it.Err() != nil {
				return 0, false, &CorruptionError{File: s.name(logSuffix), Position: at, Offset: b.Base, Cause: it.Err()}
			}
		}
		at += int64(len(b.Bytes))
	}
	return 0, false, nil
}
