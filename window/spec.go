package window

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
)

// ErrSpec is matched by the errors of every Err method here.
var ErrSpec = errors.New("window: invalid specification")

// Spec describes windows by what they have to do with time: Tumbling, Hopping,
// Sliding, Days, Weeks and Months make one. It is a plain value that can be
// compared; the methods that take times may be called when Err returns nil.
//
// Sliding windows are where the records of a key are, the others are where the
// clock says. A window's name is its start: no two of a Spec begin together.
type Spec struct {
	kind       kind
	processing bool
	weekday    time.Weekday  // Weeks: the first day of one
	size       time.Duration // not of a calendar
	every      time.Duration // Tumbling and Hopping
	offset     time.Duration
	grace      time.Duration
	units      int            // of a calendar: how many days, weeks or months make a window
	loc        *time.Location // of a calendar
}

type kind uint8

const (
	aligned kind = iota // Tumbling and Hopping
	sliding
	days
	weeks
	months
)

// Grace keeps a window open until the watermark is d past its end.
func (s Spec) Grace(d time.Duration) Spec { s.grace = d; return s }

// Offset moves the start of every window by d, which may be negative:
// Tumbling(24*time.Hour).Offset(-time.Hour) are the days of Berlin's winter. A
// calendar's windows move by d on the clock of their zone: the days of
// Days(1, berlin).Offset(6*time.Hour) begin at six in the morning, in summer and
// in winter.
func (s Spec) Offset(d time.Duration) Spec { s.offset = d; return s }

// ProcessingTime makes the windows ones of the clock on the wall: a record is in
// the windows of the time at which it is processed, whatever its event time, and
// they close as that clock goes on. Nothing is late then and there is no grace.
// What such windows hold differs from run to run.
func (s Spec) ProcessingTime() Spec { s.processing = true; return s }

// Err returns every fault in s, or nil.
func (s Spec) Err() error {
	f := faults{of: s}
	switch s.kind {
	case aligned:
		s.checkAligned(&f)
	case sliding:
		s.checkSliding(&f)
	default:
		s.checkCalendar(&f)
	}
	f.grace(s.grace, s.processing)
	return f.err()
}

// String describes s, as in "hopping 1m0s every 10s grace 5s".
func (s Spec) String() string {
	var b strings.Builder
	switch s.kind {
	case aligned:
		s.describeAligned(&b)
	case sliding:
		fmt.Fprintf(&b, "sliding %v", s.size)
	default:
		s.describeCalendar(&b)
	}
	if s.offset != 0 {
		fmt.Fprintf(&b, " offset %v", s.offset)
	}
	describeTail(&b, s.grace, s.processing)
	return b.String()
}

// IsSliding tells whether the windows are where the records of a key are: see
// Slides.
func (s Spec) IsSliding() bool { return s.kind == sliding }

// IsProcessingTime tells whether the windows are ones of the clock on the wall.
func (s Spec) IsProcessingTime() bool { return s.processing }

// IsSingle tells whether every time is in one window: of windows that tumble, and
// of calendars.
func (s Spec) IsSingle() bool { return s.kind != sliding && s.every == s.size }

// SizeMs is the size in milliseconds, zero for a calendar.
func (s Spec) SizeMs() int64 { return s.size.Milliseconds() }

// EveryMs is the advance of tumbling and hopping windows in milliseconds.
func (s Spec) EveryMs() int64 { return s.every.Milliseconds() }

// GraceMs is the grace in milliseconds.
func (s Spec) GraceMs() int64 { return s.grace.Milliseconds() }

// Last is the start of the newest window that holds t, or of the newest that
// could where the windows are sliding ones.
//
// No window starts so close to the lowest int64 that going one step further
// back would wrap. Times below the first window there is go into that one.
func (s Spec) Last(t int64) int64 {
	switch s.kind {
	case aligned:
		return s.lastAligned(t)
	case sliding:
		return t
	}
	return s.startOnCalendar(t)
}

// First is the start of the oldest window that holds t, or of the oldest that
// could where the windows are sliding ones.
func (s Spec) First(t int64) int64 {
	switch s.kind {
	case aligned:
		return s.firstAligned(t)
	case sliding:
		return saturatingAdd(t, -s.SizeMs())
	}
	return s.startOnCalendar(t)
}

// Windows is how many windows hold t. Of sliding ones it is zero, for t alone
// does not tell.
func (s Spec) Windows(t int64) int64 {
	switch s.kind {
	case aligned:
		return (s.lastAligned(t)-s.firstAligned(t))/s.EveryMs() + 1
	case sliding:
		return 0
	}
	return 1
}

// Starts walks the starts of the windows that hold t, oldest first, and nothing
// where they are sliding ones.
func (s Spec) Starts(t int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		n := s.Windows(t)
		for start := s.First(t); n > 0 && yield(start); n-- {
			start += s.EveryMs()
		}
	}
}

// End is the end of the window that starts at start: the first time after it,
// and of a sliding window the last time in it.
func (s Spec) End(start int64) int64 {
	if s.kind <= sliding {
		return saturatingAdd(start, s.SizeMs())
	}
	return s.endOnCalendar(start)
}

// EndsAt is the least watermark at which all records of the window that starts at
// start are there, but for those that come within the grace.
func (s Spec) EndsAt(start int64) int64 {
	if s.kind == sliding {
		return saturatingAdd(s.End(start), 1)
	}
	return s.End(start)
}

// ClosesAt is the least watermark that closes the window that starts at start:
// nothing more is to come.
func (s Spec) ClosesAt(start int64) int64 { return saturatingAdd(s.EndsAt(start), s.GraceMs()) }

// Closed tells whether watermark w closes the window that starts at start. For
// a window that excludes its end that is w >= end + grace, for a sliding one
// w > end + grace.
func (s Spec) Closed(start, w int64) bool { return w >= s.ClosesAt(start) }

// Late tells whether watermark w has closed all windows that hold t, or could.
func (s Spec) Late(t, w int64) bool { return t < w && s.Closed(s.Last(t), w) }

// OldestOpen is the start of the oldest window that watermark w leaves open, now
// or ever. No record that is yet to be taken in, and no result yet to come, has an
// event time below it.
func (s Spec) OldestOpen(w int64) int64 {
	switch {
	case w == EndOfTime:
		return EndOfTime
	case w <= -ordinary:
		return Unknown // no window there is too old to come
	}
	return s.First(saturatingAdd(w, -s.GraceMs()))
}

// faults collects what is wrong with a specification.
type faults struct {
	of   fmt.Stringer
	errs []error
}

func (f *faults) add(format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("%w: %v: %s", ErrSpec, f.of, fmt.Sprintf(format, args...)))
}

func (f *faults) err() error { return errors.Join(f.errs...) }

// whole requires whole milliseconds, as event time has no others.
func (f *faults) whole(name string, d time.Duration) {
	if d%time.Millisecond != 0 {
		f.add("the %s is %v; event time counts whole milliseconds", name, d)
	}
}

// positive requires a length of time.
func (f *faults) positive(name string, d time.Duration) {
	if d <= 0 {
		f.add("the %s is %v and must be positive", name, d)
	}
	f.whole(name, d)
}

// grace requires what all kinds of windows ask of a grace.
func (f *faults) grace(d time.Duration, processing bool) {
	if d < 0 {
		f.add("the grace is %v and must not be negative", d)
	}
	f.whole("grace", d)
	if processing && d > 0 {
		f.add("in processing time nothing is late, so a grace only delays results; leave it out")
	}
}

// describeTail describes what all kinds of windows have.
func describeTail(b *strings.Builder, grace time.Duration, processing bool) {
	if grace != 0 {
		fmt.Fprintf(b, " grace %v", grace)
	}
	if processing {
		b.WriteString(" in processing time")
	}
}
