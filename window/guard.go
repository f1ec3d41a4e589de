package window

import (
	"errors"
	"fmt"
	"time"
)

// ErrFarFuture is matched by the error of a Guard.
var ErrFarFuture = errors.New("window: event time too far in the future")

// Guard keeps a record whose event time is absurdly far in the future from moving
// the watermark there, which would make everything after it late. The zero value
// lets every time pass. Whoever reads the records asks TooFar of each, before the
// watermark sees it.
type Guard struct {
	// Ahead is how far an event time may be ahead of the clock on the wall. Zero
	// and below mean no bound.
	Ahead time.Duration

	// Policy is what happens to a record further ahead. The zero value is FutureLate.
	Policy FuturePolicy
}

// FuturePolicy is what happens to a record whose event time is too far ahead.
type FuturePolicy uint8

const (
	// FutureLate treats the record as late: it goes to the late output of the first
	// window or join it comes to, and does not move the watermark.
	FutureLate FuturePolicy = iota

	// FutureClamp gives the record the highest event time that is allowed.
	FutureClamp

	// FutureFail makes it a failure of its step.
	FutureFail
)

// String is "late", "clamp" or "fail".
func (p FuturePolicy) String() string {
	if names := [...]string{"late", "clamp", "fail"}; int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("policy %d", uint8(p))
}

// Limit is the highest event time allowed at now.
func (g Guard) Limit(now time.Time) int64 {
	if g.Ahead <= 0 {
		return EndOfTime
	}
	return saturatingAdd(now.UnixMilli(), g.Ahead.Milliseconds())
}

// TooFar tells whether event time t is above the limit at now.
func (g Guard) TooFar(t int64, now time.Time) bool { return t > g.Limit(now) }

// Error is what FutureFail fails with.
func (g Guard) Error(t int64, now time.Time) error {
	return fmt.Errorf("%w: %s is more than %v ahead of the clock, %s",
		ErrFarFuture, timeText(t), g.Ahead, timeText(now.UnixMilli()))
}
