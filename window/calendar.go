package window

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Days describes windows of n days of the calendar in the time zone of loc,
// counted from 1970-01-01. A day has 23 or 25 hours where the clock is put
// forward or back. Nil is UTC.
//
// A window begins when the clock of the zone first shows its date: where midnight
// does not exist, when the clock has jumped over it; where it comes twice, the
// first time; and a date that the zone left out has no window.
func Days(n int, loc *time.Location) Spec { return Spec{kind: days, units: n, loc: orUTC(loc)} }

// Weeks describes windows of n weeks that begin on a day of the week, counted from
// the one that holds 1970-01-01, a Thursday. For the rest see Days.
func Weeks(n int, loc *time.Location, first time.Weekday) Spec {
	return Spec{kind: weeks, units: n, loc: orUTC(loc), weekday: first}
}

// Months describes windows of n months of the calendar, counted from January 1970:
// 3 are the quarters, 12 the years. For the rest see Days.
func Months(n int, loc *time.Location) Spec { return Spec{kind: months, units: n, loc: orUTC(loc)} }

func orUTC(loc *time.Location) *time.Location {
	if loc == nil {
		return time.UTC
	}
	return loc
}

// maxUnits bounds the length of a window; whoever needs one of more than ten
// thousand years needs none.
const maxUnits = 4_000_000

func (s Spec) checkCalendar(f *faults) {
	if s.units < 1 || s.units > maxUnits {
		f.add("a window of %d %s; it has to be from 1 to %d", s.units, s.kind.unit(s.units), maxUnits)
	}
	if s.loc == time.Local {
		f.add("time.Local is another zone on another machine; name one with time.LoadLocation")
	}
	if s.weekday < time.Sunday || s.weekday > time.Saturday {
		f.add("there is no weekday %d", s.weekday)
	}
	f.whole("offset", s.offset)
}

func (s Spec) describeCalendar(b *strings.Builder) {
	fmt.Fprintf(b, "%d %s", s.units, s.kind.unit(s.units))
	if s.kind == weeks {
		fmt.Fprintf(b, " from %v", s.weekday)
	}
	fmt.Fprintf(b, " in %v", s.loc)
}

func (k kind) unit(n int) string {
	name := map[kind]string{days: "day", weeks: "week", months: "month"}[k]
	if n != 1 {
		name += "s"
	}
	return name
}

// startOnCalendar is the start of the window that holds t. Times further than
// ordinary from 1970 are in the first window and in the last.
func (s Spec) startOnCalendar(t int64) int64 { return s.begins(s.number(t)) }

// endOnCalendar is the start of the window after the one that starts at start.
func (s Spec) endOnCalendar(start int64) int64 {
	if end := s.begins(s.number(start) + 1); end < ordinary {
		return end
	}
	return EndOfTime
}

// number is that of the window that holds t, counted from the one of 1970.
//
// The clock may have shown the date of a later window before, and been put back
// over midnight: what has begun goes on.
func (s Spec) number(t int64) int64 {
	t = max(-ordinary, min(t, ordinary))
	n := s.numberOnClock(t + offsetAt(t, s.loc))
	for s.begins(n+1) <= t {
		n++
	}
	return n
}

// begins is the time at which window n begins.
func (s Spec) begins(n int64) int64 { return firstShown(s.startOnClock(n), s.loc) }

const dayMs = 24 * 60 * 60 * 1000

// weekZero is how many days after 1970-01-01 the first week from a weekday on
// begins: from -6 to 0.
func (s Spec) weekZero() int64 { return -floorMod(int64(time.Thursday-s.weekday), 7) }

// numberOnClock is the number of the window whose dates the clock shows. A time
// on the clock is in milliseconds, as if the clock were one of UTC.
func (s Spec) numberOnClock(clock int64) int64 {
	clock -= s.offset.Milliseconds()
	switch day := floorDiv(clock, dayMs); s.kind {
	case days:
		return floorDiv(day, int64(s.units))
	case weeks:
		return floorDiv(day-s.weekZero(), 7*int64(s.units))
	default:
		year, month, _ := time.UnixMilli(clock).UTC().Date()
		return floorDiv(12*int64(year-1970)+int64(month-time.January), int64(s.units))
	}
}

// startOnClock is what the clock shows when window n begins.
func (s Spec) startOnClock(n int64) int64 {
	n *= int64(s.units)
	var start int64
	switch s.kind {
	case days:
		start = n * dayMs
	case weeks:
		start = (7*n + s.weekZero()) * dayMs
	default:
		month := time.January + time.Month(floorMod(n, 12))
		start = time.Date(1970+int(floorDiv(n, 12)), month, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	}
	return start + s.offset.Milliseconds()
}

// firstShown is the first time at which the clock of loc shows a time or has
// passed it by a jump.
//
// It goes back from offset to offset, by the lower bounds of ZoneBounds: the upper
// ones may lie before the time asked for, on the last day of a leap year that only
// a zone's rule tells of.
func firstShown(clock int64, loc *time.Location) int64 {
	// No zone has jumped by more than a day, so two days are enough to both sides.
	about := clock - offsetAt(clock, loc)
	to := about + 2*dayMs
	first := to
	for {
		at := time.UnixMilli(to - 1).In(loc)
		_, offset := at.Zone()
		from := int64(math.MinInt64)
		if start, _ := at.ZoneBounds(); !start.IsZero() {
			from = start.UnixMilli()
		}
		if t := max(clock-int64(offset)*1000, from); t < to {
			first = t
		}
		if from <= about-2*dayMs {
			return first
		}
		to = from
	}
}

// offsetAt is how far the clock of loc is ahead of UTC at t, in milliseconds.
func offsetAt(t int64, loc *time.Location) int64 {
	_, offset := time.UnixMilli(t).In(loc).Zone()
	return int64(offset) * 1000
}
