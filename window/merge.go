package window

import (
	"encoding/binary"
	"fmt"
)

// Merge combines the watermarks of several inputs into one: the lowest over the
// inputs that are active, and never lower than before. When none is active it
// is the highest that any of them reached, so the order in which they went idle
// does not matter. An input that comes back behind the others holds the
// combined watermark where it is until it has caught up, so its backlog is not
// made late.
//
// An input that has ended is observed at EndOfTime and has no say from then on;
// the combined watermark is EndOfTime when all inputs have ended. Without any
// input it is Unknown.
//
// It is not safe for concurrent use.
type Merge struct {
	inputs []input

	// low is the lowest watermark over the active inputs that have not ended,
	// EndOfTime if there are none.
	low int64

	// highest is the highest watermark observed of any input, its end aside.
	highest int64

	combined int64 // never decreases
}

type input struct {
	watermark int64 // never decreases; EndOfTime once ended
	idle      bool
}

// NewMerge returns a Merge of so many inputs, all active at Unknown.
func NewMerge(inputs int) *Merge {
	m := &Merge{inputs: make([]input, inputs), highest: Unknown, combined: Unknown}
	for i := range m.inputs {
		m.inputs[i].watermark = Unknown
	}
	m.low = m.lowest()
	return m
}

// Observe takes the watermark of an input, which becomes active. One that is
// lower than before counts as the one before. It returns the combined watermark
// and whether it moved.
func (m *Merge) Observe(i int, w int64) (combined int64, moved bool) {
	in := &m.inputs[i]
	if w <= in.watermark {
		return m.Active(i)
	}
	if w != EndOfTime {
		m.highest = max(m.highest, w)
	}
	// Most records of most inputs move a watermark that is not the lowest.
	held := !in.idle && in.watermark > m.low
	in.watermark, in.idle = w, false
	if held {
		return m.combined, false
	}
	return m.update()
}

// Idle takes an input out until it is observed or made active. Idle again, and
// idle after the end, change nothing.
func (m *Merge) Idle(i int) (combined int64, moved bool) {
	if m.inputs[i].idle {
		return m.combined, false
	}
	m.inputs[i].idle = true
	return m.update()
}

// Active makes an input count again at the watermark it had.
func (m *Merge) Active(i int) (combined int64, moved bool) {
	if !m.inputs[i].idle {
		return m.combined, false
	}
	m.inputs[i].idle = false
	return m.update()
}

// Watermark is the combined watermark.
func (m *Merge) Watermark() int64 { return m.combined }

// IsIdle tells whether no input is active: all are idle or have ended, and not
// all have ended. A task says so to the tasks after it.
func (m *Merge) IsIdle() bool {
	idle := false
	for _, in := range m.inputs {
		if in.watermark != EndOfTime {
			if !in.idle {
				return false
			}
			idle = true
		}
	}
	return idle
}

func (m *Merge) update() (combined int64, moved bool) {
	m.low = m.lowest()
	w := m.low
	if w == EndOfTime && !m.ended() {
		w = m.highest
	}
	if w <= m.combined {
		return m.combined, false
	}
	m.combined = w
	return w, true
}

func (m *Merge) lowest() int64 {
	low := EndOfTime
	for _, in := range m.inputs {
		if !in.idle {
			low = min(low, in.watermark)
		}
	}
	return low
}

// ended tells whether there are inputs and all of them have ended.
func (m *Merge) ended() bool {
	for _, in := range m.inputs {
		if in.watermark != EndOfTime {
			return false
		}
	}
	return len(m.inputs) > 0
}

// The state of a Merge in a checkpoint:
//
//	at      size  field
//	 0         1  version: 1
//	 1         4  number of inputs n, big-endian
//	 5      9*n   per input: 1 if idle, else 0; watermark in 8 bytes, big-endian
//	 5+9*n     8  highest watermark
//	 13+9*n    8  combined watermark
const (
	mergeVersion    = 1
	mergeHeader     = 5
	mergeInputBytes = 9
	mergeTail       = 16
)

// AppendState appends what LoadState needs to go on from here.
func (m *Merge) AppendState(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, mergeVersion), uint32(len(m.inputs)))
	for _, in := range m.inputs {
		idle := byte(0)
		if in.idle {
			idle = 1
		}
		b = binary.BigEndian.AppendUint64(append(b, idle), uint64(in.watermark))
	}
	b = binary.BigEndian.AppendUint64(b, uint64(m.highest))
	return binary.BigEndian.AppendUint64(b, uint64(m.combined))
}

// LoadState takes the state at the start of b and returns what follows it. A
// state of fewer inputs than m has is that of the first ones; the others are
// new, active at Unknown. After an error m is as it was.
func (m *Merge) LoadState(b []byte) (rest []byte, err error) {
	if len(b) < mergeHeader {
		return nil, fmt.Errorf("%w: %d bytes", ErrState, len(b))
	}
	if b[0] != mergeVersion {
		return nil, fmt.Errorf("%w: version %d, this program knows %d", ErrState, b[0], mergeVersion)
	}
	n := int64(binary.BigEndian.Uint32(b[1:]))
	if n > int64(len(m.inputs)) {
		return nil, fmt.Errorf("%w: it has %d inputs, here are %d", ErrState, n, len(m.inputs))
	}
	b = b[mergeHeader:]
	if want := n*mergeInputBytes + mergeTail; int64(len(b)) < want {
		return nil, fmt.Errorf("%w: %d inputs want %d bytes, got %d", ErrState, n, want, len(b))
	}
	next := NewMerge(len(m.inputs))
	reached, ended := Unknown, n > 0
	for i := range next.inputs[:n] {
		in := &next.inputs[i]
		if b[0] > 1 {
			return nil, fmt.Errorf("%w: input %d is neither active nor idle", ErrState, i)
		}
		in.idle, in.watermark = b[0] == 1, int64(binary.BigEndian.Uint64(b[1:]))
		if in.watermark != EndOfTime {
			ended, reached = false, max(reached, in.watermark)
		}
		b = b[mergeInputBytes:]
	}
	next.highest = int64(binary.BigEndian.Uint64(b))
	next.combined = int64(binary.BigEndian.Uint64(b[8:]))
	switch {
	case next.highest < reached || next.highest == EndOfTime:
		return nil, fmt.Errorf("%w: the highest watermark is %d, that of an input %d", ErrState, next.highest, reached)
	case next.combined > next.highest && !(ended && next.combined == EndOfTime):
		return nil, fmt.Errorf("%w: the combined watermark is %d, the highest %d", ErrState, next.combined, next.highest)
	}
	next.low = next.lowest()
	*m = *next
	return b[mergeTail:], nil
}
