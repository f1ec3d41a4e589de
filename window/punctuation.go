package window

import (
	"encoding/binary"
	"fmt"
)

// Punctuation generates the watermark of one source partition whose records say
// themselves how far time has come: it moves when one does, and not with the event
// times. The zero value is at Unknown. It is not safe for concurrent use.
type Punctuation struct {
	moved     bool
	watermark int64 // once moved; never decreases
}

// Punctuate takes the watermark a record says, and returns the watermark after it
// and whether it moved. No record can end time.
func (p *Punctuation) Punctuate(w int64) (now int64, moved bool) {
	w = min(w, EndOfTime-1)
	if w <= p.Watermark() {
		return p.Watermark(), false
	}
	p.moved, p.watermark = true, w
	return w, true
}

// Observe takes the event time of a record, which does not move the watermark.
func (p *Punctuation) Observe(int64) (w int64, moved bool) { return p.Watermark(), false }

// Watermark is the highest watermark that a record said, or Unknown.
func (p *Punctuation) Watermark() int64 {
	if !p.moved {
		return Unknown
	}
	return p.watermark
}

// punctuationState is the watermark in eight bytes, big-endian.
const punctuationState = 8

// AppendState appends what LoadState needs to go on from here.
func (p *Punctuation) AppendState(b []byte) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(p.Watermark()))
}

// LoadState takes the state at the start of b and returns what follows it. After
// an error p is as it was.
func (p *Punctuation) LoadState(b []byte) (rest []byte, err error) {
	if len(b) < punctuationState {
		return nil, fmt.Errorf("%w: want %d bytes, got %d", ErrState, punctuationState, len(b))
	}
	w := int64(binary.BigEndian.Uint64(b))
	if w == EndOfTime {
		return nil, fmt.Errorf("%w: no record can end time", ErrState)
	}
	*p = Punctuation{moved: w != Unknown, watermark: w}
	if !p.moved {
		p.watermark = 0
	}
	return b[punctuationState:], nil
}
