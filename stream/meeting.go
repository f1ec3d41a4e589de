package stream

import (
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/window"
)

// meeting is the event time of a joint step in one task: the least of its inputs that
// are not idle, and part of the task's checkpoints.
type meeting struct {
	inputs *window.Merge
	moved  func(w int64) // may be nil
	idle   func()        // may be nil
}

// meet makes the meeting of a number of inputs under a stable name.
func meet(t *engine.Task, name string, inputs int, moved func(w int64), idle func()) *meeting {
	m := &meeting{window.NewMerge(inputs), moved, idle}
	t.AddClock(name, m.inputs.AppendState,
		func(b []byte) error { _, err := m.inputs.LoadState(b); return err },
		func() { m.advance(m.inputs.Watermark(), true) })
	return m
}

// watermark takes the watermark of one input.
func (m *meeting) watermark(input int) func(int64) {
	return func(w int64) { m.advance(m.inputs.Observe(input, w)) }
}

// silent takes the idleness of one input.
func (m *meeting) silent(input int) func() {
	return func() {
		m.advance(m.inputs.Idle(input))
		if m.inputs.IsIdle() && m.idle != nil {
			m.idle()
		}
	}
}

func (m *meeting) advance(w int64, moved bool) {
	if moved && m.moved != nil {
		m.moved(w)
	}
}
