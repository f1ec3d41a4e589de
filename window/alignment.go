package window

import "time"

// Alignment keeps the fast inputs of a job from running ahead of the slow ones, so
// that what waits for the slow ones stays bounded. The zero value lets all run.
type Alignment struct {
	// Drift is how far the watermark of an input may be ahead of that of the
	// slowest one before it has to wait. Zero and below mean no bound.
	Drift time.Duration
}

// Waits tells whether an input at watermark w has to wait for the slowest one. That
// one itself never has to, so somebody goes on.
func (a Alignment) Waits(w, slowest int64) bool {
	return slowest != Unknown && w != EndOfTime && w > a.Limit(slowest)
}

// Limit is the highest watermark at which an input need not wait for one at slowest.
func (a Alignment) Limit(slowest int64) int64 {
	if a.Drift <= 0 {
		return EndOfTime
	}
	return saturatingAdd(slowest, a.Drift.Milliseconds())
}

// Slowest is the lowest watermark of the inputs that others may have to wait for,
// or Unknown. An input that is idle, has ended or has no watermark yet holds nobody
// back: no record of it may ever come.
func (m *Merge) Slowest() int64 {
	slowest := EndOfTime
	for _, in := range m.inputs {
		if !in.idle && in.watermark != Unknown {
			slowest = min(slowest, in.watermark)
		}
	}
	if slowest == EndOfTime {
		return Unknown
	}
	return slowest
}

// Waits tells whether input i has to wait for the slowest of m. One that is idle
// does not: it has nothing to read.
func (m *Merge) Waits(i int, a Alignment) bool {
	return !m.inputs[i].idle && a.Waits(m.inputs[i].watermark, m.Slowest())
}
