package engine

import (
	"math"

	"github.com/thalweg/thalweg/window"
)

// Future finds event times too far ahead of the node's clock in one task, and does with
// their records what the guard says. Nil lets all pass.
type Future struct {
	t       *Task
	guard   window.Guard
	allowed int64 // up to here there is no need to look at the clock
}

// OpenFuture returns what guards a clock of the task; nil where there is no bound.
func (t *Task) OpenFuture(g window.Guard) *Future {
	if g.Ahead <= 0 {
		return nil
	}
	return &Future{t: t, guard: g, allowed: math.MinInt64}
}

// beyond tells whether time is too far ahead.
func (f *Future) beyond(time int64) bool {
	if f == nil || time <= f.allowed {
		return false
	}
	f.allowed = max(f.allowed, f.guard.Limit(f.t.Now()))
	return time > f.allowed
}

// Judge takes the record that m describes: it is marked, or given another time, where its own
// is too far ahead. The error is that of a guard that fails.
func (f *Future) Judge(m *Meta) error {
	m.TooFar = false
	if !f.beyond(m.Time) {
		return nil
	}
	switch f.guard.Policy {
	case window.FutureFail:
		return f.guard.Error(m.Time, f.t.Now())
	case window.FutureClamp:
		m.Time = f.allowed
	default:
		m.TooFar = true
	}
	f.t.counters.FarFuture++
	return nil
}

// Punctuates tells whether a watermark that a record says is to be believed.
func (f *Future) Punctuates(w int64) bool {
	if !f.beyond(w) {
		return true
	}
	f.t.counters.FarFuture++
	return false
}
