package window

import (
	"fmt"
	"time"
)

// Emit says when a windowed aggregate emits. The zero value is OnClose; it is a
// plain value that can be compared.
//
// Whoever keeps the window calls a method for what happens to it, and emits where
// that returns another mark than NoResult. The end of a window is there its EndsAt.
type Emit struct {
	kind   emitKind
	ended  bool          // also at the end, and with every change after it
	period time.Duration // Every and Early
}

type emitKind uint8

const (
	emitOnClose emitKind = iota
	emitOnUpdate
	emitEvery
	emitEarly
)

var (
	// OnClose emits one result per window and key, when the watermark closes
	// the window.
	OnClose = Emit{kind: emitOnClose}

	// OnUpdate emits a result after every change, until the window closes.
	OnUpdate = Emit{kind: emitOnUpdate}
)

// Every emits a result after a change, but at most one every d of the clock on the
// wall: what has changed goes out together when the clock passes a multiple of d,
// and what has changed since then when the window closes.
func Every(d time.Duration) Emit { return Emit{kind: emitEvery, period: d} }

// Early emits one result per window and key when the watermark closes the window,
// as OnClose does, and before the window's end what has changed, marked as early,
// whenever the clock on the wall passes a multiple of d.
func Early(d time.Duration) Emit { return Emit{kind: emitEarly, period: d} }

// LateUpdates emits a result when the watermark reaches the end of the window
// instead of waiting until the grace is over, and one again with every record that
// comes within the grace. It changes nothing for OnUpdate and Every, which do that
// in their own way.
func (e Emit) LateUpdates() Emit {
	e.ended = e.kind == emitOnClose || e.kind == emitEarly
	return e
}

// Err returns every fault in e, or nil.
func (e Emit) Err() error {
	f := faults{of: e}
	if e.kind == emitEvery || e.kind == emitEarly {
		f.positive("period", e.period)
	}
	return f.err()
}

// String describes e, as in "early every 1s with late updates".
func (e Emit) String() string {
	var s string
	switch e.kind {
	case emitOnClose:
		s = "on close"
	case emitOnUpdate:
		s = "on update"
	case emitEvery:
		s = fmt.Sprintf("every %v", e.period)
	case emitEarly:
		s = fmt.Sprintf("early every %v", e.period)
	}
	if e.ended {
		s += " with late updates"
	}
	return s
}

// Mark says what a result is worth.
type Mark uint8

const (
	// NoResult is that there is none.
	NoResult Mark = iota

	// EarlyResult comes before the watermark has reached the window's end: records
	// that belong into the window are still expected.
	EarlyResult

	// EndResult comes when the watermark has reached the end, with a grace to come:
	// all is there that is not late.
	EndResult

	// LateResult comes after the end, with a record that came within the grace.
	LateResult

	// FinalResult is the last one of the window.
	FinalResult
)

// String is "none", "early", "end", "late" or "final".
func (m Mark) String() string {
	if names := [...]string{"none", "early", "end", "late", "final"}; int(m) < len(names) {
		return names[m]
	}
	return fmt.Sprintf("mark %d", uint8(m))
}

// Updated tells what to emit when a record has changed a window that ends at end,
// at watermark w.
func (e Emit) Updated(end, w int64) Mark {
	if e.kind == emitOnUpdate || e.ended && w >= end {
		return timing(end, w)
	}
	return NoResult
}

// Ticks tells whether Ticked is to be called, of windows that have changed since
// their last result, whenever NextTick has come.
func (e Emit) Ticks() bool { return e.period > 0 }

// NextTick is the first multiple of the period after now: all tasks tick together,
// and so does a task after a restart.
func (e Emit) NextTick(now time.Time) time.Time {
	ms := e.period.Milliseconds()
	return time.UnixMilli((floorDiv(now.UnixMilli(), ms) + 1) * ms)
}

// Ticked tells what to emit of a changed window when the clock ticks.
func (e Emit) Ticked(end, w int64) Mark {
	if e.kind == emitEvery || e.kind == emitEarly && w < end {
		return timing(end, w)
	}
	return NoResult
}

// Ends tells whether Ended is to be called when the watermark reaches the end of a
// window that it does not close.
func (e Emit) Ends() bool { return e.ended }

// Ended tells what to emit when the watermark reaches the end of a window and does
// not close it yet.
func (e Emit) Ended() Mark {
	if e.ended {
		return EndResult
	}
	return NoResult
}

// Closed tells what to emit when the watermark closes a window that ends at end and
// goes there from w. Changed says that the window has changed since its last result.
func (e Emit) Closed(changed bool, end, w int64) Mark {
	switch {
	case e.kind == emitOnUpdate, e.kind == emitEvery && !changed:
		return NoResult
	case e.ended && w >= end:
		return NoResult // the result of the end, or of a change after it, was the last
	}
	return FinalResult
}

func timing(end, w int64) Mark {
	if w < end {
		return EarlyResult
	}
	return LateResult
}
