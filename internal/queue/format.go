package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// A record of a queue's log is changes or a snapshot. Integers are unsigned varints of
// the shortest form, those marked signed zigzag varints; offsets are below 2^63.
//
//	format version, 1 byte: 1
//	changes, one or more, each:
//	  kind, 1 byte
//	  1 delivered: offset, count
//	  2 done:      first offset, number of offsets, cause (1 byte)
//	  3 released:  offset, count, due in Unix ms (signed)
//	  5 epoch:     leader epoch (signed)
//	  6 cut:       offset
//	or a snapshot:
//	  kind, 1 byte: 4
//	  topic: length, bytes
//	  start, leader epoch (signed)
//	  totals: their number, then each
//	  done above start: number of spans, then each: offsets since the end of the last
//	  span (since start for the first), offsets in it
//	  delivered and not done: number, then each: offsets since the one before (since
//	  start for the first), count, due in Unix ms (signed), 0 for one that was locked
//
// The record batch around it has the checksum.
const (
	formatVersion = 1
	kindSnapshot  = 4

	// maxPrealloc bounds what a damaged length can ask for before its bytes are seen.
	maxPrealloc = 1 << 10
)

var (
	// ErrFormat is matched where bytes are no record of a queue's log.
	ErrFormat = errors.New("queue: invalid record")

	// ErrVersion is matched where a record is of a later version.
	ErrVersion = errors.New("queue: unknown format version")
)

// Entry is a record of a queue's log.
type Entry struct {
	Snapshot *State // or nil
	Topic    string // of a snapshot
	Changes  []Change
}

// AppendChanges encodes changes, at least one.
func AppendChanges(dst []byte, changes []Change) []byte {
	dst = append(dst, formatVersion)
	for _, c := range changes {
		dst = append(dst, byte(c.Kind))
		switch c.Kind {
		case Delivered:
			dst = appendUint(dst, c.From, c.Count)
		case Done:
			dst = appendUint(dst, c.From, c.To-c.From)
			dst = append(dst, byte(c.Cause))
		case Released:
			dst = appendUint(dst, c.From, c.Count)
			dst = binary.AppendVarint(dst, c.At)
		case Epoch:
			dst = binary.AppendVarint(dst, c.At)
		case Cut:
			dst = appendUint(dst, c.From)
		}
	}
	return dst
}

// AppendSnapshot encodes all of s that outlives a process.
func AppendSnapshot(dst []byte, topic string, s *State) []byte {
	dst = append(dst, formatVersion, kindSnapshot)
	dst = appendUint(dst, int64(len(topic)))
	dst = append(dst, topic...)
	dst = appendUint(dst, s.start)
	dst = binary.AppendVarint(dst, s.epoch)
	dst = appendUint(dst, int64(len(s.totals)))
	dst = appendUint(dst, s.totals[:]...)
	dst = appendUint(dst, int64(len(s.done)))
	last := s.start
	for _, r := range s.done {
		dst = appendUint(dst, r.from-last, r.to-r.from)
		last = r.to
	}
	delivered := make([]int64, 0, s.inFlight)
	for _, off := range slices.Sorted(maps.Keys(s.held)) {
		if s.held[off].count > 0 {
			delivered = append(delivered, off)
		}
	}
	dst = appendUint(dst, int64(len(delivered)))
	last = s.start
	for _, off := range delivered {
		r := s.held[off]
		dst = appendUint(dst, off-last, r.count)
		due := r.at
		if r.locked {
			due = 0
		}
		dst = binary.AppendVarint(dst, due)
		last = off
	}
	return dst
}

func appendUint(dst []byte, values ...int64) []byte {
	for _, v := range values {
		dst = binary.AppendUvarint(dst, uint64(v))
	}
	return dst
}

// Decode decodes a record. A snapshot has to be resumed.
func Decode(b []byte) (Entry, error) {
	d := decoder{rest: b}
	if version := d.byte(); !d.bad && version != formatVersion {
		return Entry{}, fmt.Errorf("%w: %d, known is %d", ErrVersion, version, formatVersion)
	}
	var e Entry
	for first := true; first || len(d.rest) > 0 && !d.bad; first = false {
		kind := d.byte()
		switch {
		case first && kind == kindSnapshot:
			d.snapshot(&e)
			if !d.bad && len(d.rest) > 0 {
				return Entry{}, fmt.Errorf("%w: %d bytes follow a snapshot", ErrFormat, len(d.rest))
			}
		case !d.bad:
			e.Changes = append(e.Changes, d.change(Kind(kind)))
		}
	}
	if d.bad {
		return Entry{}, fmt.Errorf("%w: at byte %d of %d", ErrFormat, len(b)-len(d.rest), len(b))
	}
	return e, nil
}

// decoder reads fields. Once one was bad all are zero.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) fail() int64 {
	d.bad = true
	return 0
}

func (d *decoder) byte() byte {
	if d.bad || len(d.rest) == 0 {
		d.fail()
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) raw() uint64 {
	v, n := binary.Uvarint(d.rest)
	if d.bad || n <= 0 || n > 1 && d.rest[n-1] == 0 { // cut off, or not the shortest form
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// uint reads an integer below 2^63 that is at least least.
func (d *decoder) uint(least int64) int64 {
	v := d.raw()
	if v > math.MaxInt64 || int64(v) < least {
		return d.fail()
	}
	return int64(v)
}

func (d *decoder) int() int64 {
	v := d.raw()
	return int64(v>>1) ^ -int64(v&1)
}

// sum adds two integers that are not negative.
func (d *decoder) sum(a, b int64) int64 {
	if a > math.MaxInt64-1-b {
		return d.fail()
	}
	return a + b
}

func (d *decoder) change(kind Kind) Change {
	c := Change{Kind: kind}
	switch kind {
	case Delivered:
		c.From, c.Count = d.uint(0), d.uint(1)
		c.To = d.sum(c.From, 1)
	case Done:
		c.From = d.uint(0)
		c.To = d.sum(c.From, d.uint(1))
		c.Cause = Cause(d.byte())
		if c.Cause < 1 || c.Cause > causes {
			d.fail()
		}
	case Released:
		c.From, c.Count, c.At = d.uint(0), d.uint(1), d.int()
		c.To = d.sum(c.From, 1)
	case Epoch:
		c.At = d.int()
	case Cut:
		c.From = d.uint(0)
	default:
		d.fail()
	}
	return c
}

func (d *decoder) snapshot(e *Entry) {
	n := d.uint(0)
	if n > int64(len(d.rest)) {
		d.fail()
		return
	}
	e.Topic, d.rest = string(d.rest[:n]), d.rest[n:]
	s := New(d.uint(0), 0)
	s.epoch = d.int()
	if d.uint(0) != int64(len(s.totals)) {
		d.fail()
		return
	}
	for i := range s.totals {
		s.totals[i] = d.uint(0)
	}
	spans := d.uint(0)
	s.done = make(ranges, 0, min(spans, maxPrealloc))
	last := s.start
	for range spans {
		if d.bad {
			return
		}
		from := d.sum(last, d.uint(1)) // at least one that is not done lies between
		last = d.sum(from, d.uint(1))
		s.done = append(s.done, span{from, last})
	}
	last = s.start
	delivered := d.uint(0)
	for i := range delivered {
		if d.bad {
			return
		}
		off := d.sum(last, d.uint(min(i, 1)))
		r := &record{count: d.uint(1), at: d.int()}
		r.locked = r.at == 0
		if s.done.contains(off) {
			d.fail()
			return
		}
		s.held[off] = r
		last = off
	}
	s.inFlight, s.ahead = len(s.held), len(s.held)
	e.Snapshot = s
}

// Fold lets an entry happen to s, which may be nil before the first snapshot. It
// returns the state after it.
func (e Entry) Fold(s *State) (*State, error) {
	if e.Snapshot != nil {
		return e.Snapshot, nil
	}
	if s == nil {
		return nil, fmt.Errorf("%w: changes before the first snapshot", ErrFormat)
	}
	for _, c := range e.Changes {
		s.Apply(c)
	}
	return s, nil
}
