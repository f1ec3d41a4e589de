package window

import (
	"errors"
	"fmt"
	"time"
)

// Generator makes the watermark of one source partition from its records. Each
// partition has one of its own, in one goroutine. BoundedDisorder and Punctuation
// are generators; Custom takes others.
type Generator interface {
	// Observe takes the event time of the next record and returns the watermark
	// after it and whether it moved. A watermark lower than before has no effect.
	Observe(t int64) (w int64, moved bool)

	// Watermark is the watermark after the records observed, or Unknown.
	Watermark() int64

	// AppendState appends what LoadState needs to go on from here.
	AppendState(b []byte) []byte

	// LoadState takes the state at the start of b and returns what follows it.
	LoadState(b []byte) (rest []byte, err error)
}

// Strategy says how the watermark of each partition of a source comes about, when
// it counts and whom it has to wait for. It is a plain value; the zero value is
// Ascending.
type Strategy struct {
	bound     time.Duration
	custom    func() Generator
	isCustom  bool
	idle      time.Duration
	guard     Guard
	alignment Alignment
}

// Disorder is the strategy for records that are at most d behind the newest one.
func Disorder(d time.Duration) Strategy { return Strategy{bound: d} }

// Ascending is the strategy for records in the order of their event times: the
// watermark is the newest of them. It is Disorder(0).
func Ascending() Strategy { return Strategy{} }

// Custom is the strategy whose watermarks generators made by f say, one for each
// partition.
func Custom(f func() Generator) Strategy { return Strategy{custom: f, isCustom: true} }

// IdleAfter takes a partition out that was silent for d by the clock on the wall,
// so that the others need not wait for it. Zero means never.
func (s Strategy) IdleAfter(d time.Duration) Strategy { s.idle = d; return s }

// Guard sets what happens to event times far in the future.
func (s Strategy) Guard(g Guard) Strategy { s.guard = g; return s }

// Align makes a partition wait that is more than d of event time ahead of the
// slowest one. Zero means no bound.
func (s Strategy) Align(d time.Duration) Strategy { s.alignment.Drift = d; return s }

// Err returns every fault in s, or nil.
func (s Strategy) Err() error {
	f := faults{of: s}
	if s.isCustom && s.custom == nil {
		f.add("the function that makes generators is nil")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"disorder", s.bound}, {"time to be idle after", s.idle},
		{"time ahead of the clock", s.guard.Ahead}, {"drift", s.alignment.Drift},
	} {
		if d.value < 0 {
			f.add("the %s is %v and must not be negative", d.name, d.value)
		}
		f.whole(d.name, d.value)
	}
	if s.guard.Policy > FutureFail {
		f.add("there is no %v for event times in the future", s.guard.Policy)
	}
	return f.err()
}

// String describes s, as in "disorder 5s idle after 1m0s".
func (s Strategy) String() string {
	text := "ascending"
	switch {
	case s.isCustom:
		text = "custom"
	case s.bound != 0:
		text = fmt.Sprintf("disorder %v", s.bound)
	}
	return text + s.describe()
}

// describe describes all but where watermarks come from.
func (s Strategy) describe() (text string) {
	if s.idle != 0 {
		text += fmt.Sprintf(" idle after %v", s.idle)
	}
	if s.guard.Ahead != 0 {
		text += fmt.Sprintf(" at most %v ahead of the clock, else %v", s.guard.Ahead, s.guard.Policy)
	}
	if s.alignment.Drift != 0 {
		text += fmt.Sprintf(" aligned within %v", s.alignment.Drift)
	}
	return text
}

// Generator returns a new generator for a partition.
func (s Strategy) Generator() Generator {
	if s.isCustom {
		return s.custom()
	}
	return &BoundedDisorder{Bound: s.bound.Milliseconds()}
}

// Idleness returns what finds out whether a partition is idle.
func (s Strategy) Idleness() Idleness { return Idleness{After: s.idle} }

// FutureGuard returns what finds event times far in the future.
func (s Strategy) FutureGuard() Guard { return s.guard }

// Alignment returns what tells which partitions have to wait.
func (s Strategy) Alignment() Alignment { return s.alignment }

// StrategyBy is a Strategy for values V that say themselves how far time has come.
// Punctuated makes one.
type StrategyBy[V any] struct {
	strategy Strategy
	says     func(V) (time.Time, bool)
}

// Punctuated is the strategy whose watermarks the values say: where f returns true,
// no record before the time it returns is to come. Event times do not move it.
func Punctuated[V any](f func(V) (watermark time.Time, ok bool)) StrategyBy[V] {
	return StrategyBy[V]{says: f}
}

// With takes idleness, guard and alignment from s, whose watermarks have no say.
func (p StrategyBy[V]) With(s Strategy) StrategyBy[V] { p.strategy = s; return p }

// Strategy returns idleness, guard and alignment.
func (p StrategyBy[V]) Strategy() Strategy { return p.strategy }

// Err returns every fault in p, or nil.
func (p StrategyBy[V]) Err() error {
	if p.says != nil {
		return p.strategy.Err()
	}
	f := faults{of: p}
	f.add("the function that tells the watermark is nil")
	return errors.Join(f.err(), p.strategy.Err())
}

// String describes p, as in "punctuated idle after 1m0s".
func (p StrategyBy[V]) String() string { return "punctuated" + p.strategy.describe() }

// Says returns the watermark that a value says, and whether it says one: what a
// Punctuation takes, unless the guard finds it too far ahead.
func (p StrategyBy[V]) Says(v V) (w int64, ok bool) {
	at, ok := p.says(v)
	return at.UnixMilli(), ok
}
