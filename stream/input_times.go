package stream

import "github.com/thalweg/thalweg/window"

// inputTimes merges the event time of the inputs of one step in one task.
type inputTimes struct {
	merge    *window.Merge
	down     func(w int64)
	downIdle func()
}

// openInputs opens the event time of a step with several inputs; it is part of the
// checkpoint. down and idle may be nil.
func openInputs(o *opening, s *step, inputs int, down func(int64), idle func()) *inputTimes {
	x := &inputTimes{merge: window.NewMerge(inputs), down: down, downIdle: idle}
	o.task.AddClock(s.kind+" "+s.name, x.merge.AppendState,
		func(b []byte) error { _, err := x.merge.LoadState(b); return err },
		func() { x.advance(x.merge.Watermark()) })
	return x
}

func (x *inputTimes) advance(w int64) {
	if x.down != nil && w != window.Unknown {
		x.down(w)
	}
}

func (x *inputTimes) watermark(input int) func(int64) {
	return func(w int64) {
		if w, moved := x.merge.Observe(input, w); moved {
			x.advance(w)
		}
	}
}

func (x *inputTimes) idle(input int) func() {
	return func() {
		if w, moved := x.merge.Idle(input); moved {
			x.advance(w)
		}
		if x.merge.IsIdle() && x.downIdle != nil {
			x.downIdle()
		}
	}
}
