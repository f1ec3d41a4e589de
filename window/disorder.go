package window

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// BoundedDisorder generates the watermark of one source partition, whose
// records may be up to Bound behind the newest one: the highest event time so
// far minus Bound. The zero value allows no disorder. It is not safe for
// concurrent use.
type BoundedDisorder struct {
	// Bound is the disorder allowed, in milliseconds. Below zero means zero.
	Bound int64

	seen   bool
	newest int64 // highest event time, once seen
}

// Observe takes the event time of the next record and returns the watermark
// after it and whether it moved. No record can end time: the watermark stays
// below EndOfTime.
func (g *BoundedDisorder) Observe(t int64) (w int64, moved bool) {
	if g.seen && t <= g.newest {
		return g.Watermark(), false
	}
	before := g.Watermark()
	g.seen, g.newest = true, t
	w = g.Watermark()
	return w, w > before
}

// Watermark is the watermark after the records observed, or Unknown.
func (g *BoundedDisorder) Watermark() int64 {
	if !g.seen {
		return Unknown
	}
	return saturatingAdd(min(g.newest, EndOfTime-1), -max(g.Bound, 0))
}

// disorderState is one byte, 1 once a record was seen, and the highest event
// time in eight, big-endian.
const disorderState = 9

// ErrState is matched by the errors of LoadState.
var ErrState = errors.New("window: cannot take watermark state")

// AppendState appends what LoadState needs to go on from here. Bound is not
// part of it.
func (g *BoundedDisorder) AppendState(b []byte) []byte {
	if !g.seen {
		return binary.BigEndian.AppendUint64(append(b, 0), 0)
	}
	return binary.BigEndian.AppendUint64(append(b, 1), uint64(g.newest))
}

// LoadState takes the state at the start of b and returns what follows it.
// After an error g is as it was.
func (g *BoundedDisorder) LoadState(b []byte) (rest []byte, err error) {
	if len(b) < disorderState {
		return nil, fmt.Errorf("%w: want %d bytes, got %d", ErrState, disorderState, len(b))
	}
	seen, newest := b[0] == 1, int64(binary.BigEndian.Uint64(b[1:]))
	if b[0] > 1 || !seen && newest != 0 {
		return nil, fmt.Errorf("%w: an event time neither seen nor unseen", ErrState)
	}
	g.seen, g.newest = seen, newest
	return b[disorderState:], nil
}
