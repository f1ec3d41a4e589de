package window

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"
)

// ErrSpec is matched by every error of Spec.Err.
var ErrSpec = errors.New("window: invalid specification")

// Spec describes windows [start, end) of one size, aligned to 1970 plus the
// offset: start = offset + k*every for every whole k. It is a plain value; the
// methods that take times may be called when Err returns nil.
type Spec struct {
	size, every, offset, grace time.Duration
}

// Tumbling describes windows that follow each other without gap or overlap.
func Tumbling(size time.Duration) Spec { return Spec{size: size, every: size} }

// Hopping describes windows of a size that start every so often, so that an
// event is in about size/every of them. The size need not be a multiple.
func Hopping(size, every time.Duration) Spec { return Spec{size: size, every: every} }

// Grace keeps a window open until the watermark is d past its end.
func (s Spec) Grace(d time.Duration) Spec { s.grace = d; return s }

// Offset moves the start of every window by d, which may be negative:
// Tumbling(24*time.Hour).Offset(-time.Hour) are the days of Berlin's winter.
func (s Spec) Offset(d time.Duration) Spec { s.offset = d; return s }

// Err returns every fault in s, or nil.
func (s Spec) Err() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %v: %s", ErrSpec, s, fmt.Sprintf(format, args...)))
	}
	if s.size <= 0 {
		fault("the size is %v and must be positive", s.size)
	}
	if s.every <= 0 && s.every != s.size {
		fault("windows start every %v, which must be positive", s.every)
	}
	if s.every > s.size && s.size > 0 {
		fault("windows start every %v but are only %v long, so events between them would be in none", s.every, s.size)
	}
	if s.grace < 0 {
		fault("the grace is %v and must not be negative", s.grace)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"size", s.size}, {"start interval", s.every}, {"offset", s.offset}, {"grace", s.grace}} {
		if d.value%time.Millisecond != 0 && !(d.name == "start interval" && s.every == s.size) {
			fault("the %s is %v; event time counts whole milliseconds", d.name, d.value)
		}
	}
	return errors.Join(errs...)
}

// String describes s, as in "hopping 1m0s every 10s grace 5s".
func (s Spec) String() string {
	var b strings.Builder
	if s.every == s.size {
		fmt.Fprintf(&b, "tumbling %v", s.size)
	} else {
		fmt.Fprintf(&b, "hopping %v every %v", s.size, s.every)
	}
	if s.offset != 0 {
		fmt.Fprintf(&b, " offset %v", s.offset)
	}
	if s.grace != 0 {
		fmt.Fprintf(&b, " grace %v", s.grace)
	}
	return b.String()
}

// SizeMs is the size in milliseconds.
func (s Spec) SizeMs() int64 { return s.size.Milliseconds() }

// EveryMs is the advance in milliseconds.
func (s Spec) EveryMs() int64 { return s.every.Milliseconds() }

// GraceMs is the grace in milliseconds.
func (s Spec) GraceMs() int64 { return s.grace.Milliseconds() }

// Last is the start of the newest window that holds t. The windows that hold t
// start at Last(t), Last(t)-EveryMs(), ... down to First(t); see Starts.
//
// No window starts so close to the lowest int64 that going one step further
// back would wrap. Times below the first window there is go into that one.
func (s Spec) Last(t int64) int64 {
	every := s.EveryMs()
	start := saturatingAdd(t, -s.sinceStart(t, every))
	if t > -ordinary {
		return start
	}
	return max(start, s.lowest(every))
}

// First is the start of the oldest window that holds t.
func (s Spec) First(t int64) int64 {
	every := s.EveryMs()
	into := s.sinceStart(t, every)
	back := (s.SizeMs() - 1 - into) / every * every // to the oldest that ends after t
	start := saturatingAdd(saturatingAdd(t, -into), -back)
	if t > -ordinary {
		return start
	}
	return max(start, s.lowest(every))
}

// Starts walks the starts of the windows that hold t, oldest first.
func (s Spec) Starts(t int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		every, last := s.EveryMs(), s.Last(t)
		for start := s.First(t); yield(start) && start < last; {
			start += every
		}
	}
}

// End is the excluded end of the window that starts at start.
func (s Spec) End(start int64) int64 { return saturatingAdd(start, s.SizeMs()) }

// Closed tells whether watermark w closes the window that starts at start:
// w >= end + grace.
func (s Spec) Closed(start, w int64) bool { return w >= saturatingAdd(s.End(start), s.GraceMs()) }

// sinceStart is how far t is from the start of the newest window that holds
// it: in [0, every), also for negative times.
func (s Spec) sinceStart(t, every int64) int64 {
	if -ordinary < t && t < ordinary {
		return floorMod(t-s.offset.Milliseconds(), every)
	}
	return floorMod(floorMod(t, every)-floorMod(s.offset.Milliseconds(), every), every)
}

// ordinary bounds the times that no setting of a Spec, a time.Duration, can
// carry past the ends of int64.
const ordinary = 1 << 62

// lowest is the lowest start that every can be taken from without wrapping.
func (s Spec) lowest(every int64) int64 {
	t := math.MinInt64 + every // sinceStart < every: one start is in [t, t+every)
	return t + floorMod(-s.sinceStart(t, every), every)
}

// floorMod is the remainder of a division rounded down: in [0, b) for b > 0.
func floorMod(a, b int64) int64 {
	m := a % b
	if m < 0 {
		m += b
	}
	return m
}

// saturatingAdd is a+b, or the end of int64 it would have passed.
func saturatingAdd(a, b int64) int64 {
	sum := a + b
	switch {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	}
	return sum
}
