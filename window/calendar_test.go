package window_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/window"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

func at(t testing.TB, text string) int64 {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return moment.UnixMilli()
}

// Days of 23, 24 and 25 hours, of half an hour more or less, without a midnight,
// with two, and one that a country left out.
func TestDaysWhereTheClockIsChanged(t *testing.T) {
	for _, c := range []struct {
		zone, what, start, end string
		hours                  float64
	}{
		{"Europe/Berlin", "forward at 2", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00", 23},
		{"Europe/Berlin", "back at 3", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00", 25},
		{"Europe/Berlin", "a plain day", "2026-07-01T00:00:00+02:00", "2026-07-02T00:00:00+02:00", 24},
		{"Europe/Berlin", "before 1970", "1940-04-01T00:00:00+01:00", "1940-04-01T23:00:00+01:00", 23},
		{"America/Sao_Paulo", "begins at 1, there is no midnight", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00", 23},
		{"America/Sao_Paulo", "back at midnight, into the day before", "2018-02-17T00:00:00-02:00", "2018-02-18T00:00:00-03:00", 25},
		{"America/Sao_Paulo", "the day after that", "2018-02-18T00:00:00-03:00", "2018-02-19T00:00:00-03:00", 24},
		{"America/Havana", "back at 1, midnight comes twice", "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00", 25},
		{"America/Havana", "forward at midnight", "2026-03-08T01:00:00-04:00", "2026-03-09T00:00:00-04:00", 23},
		{"Asia/Kolkata", "half an hour beside UTC", "2026-01-01T00:00:00+05:30", "2026-01-02T00:00:00+05:30", 24},
		{"Australia/Lord_Howe", "half an hour forward", "2026-10-04T00:00:00+10:30", "2026-10-05T00:00:00+11:00", 23.5},
		{"Australia/Lord_Howe", "half an hour back", "2026-04-05T00:00:00+11:00", "2026-04-06T00:00:00+10:30", 24.5},
		{"America/St_Johns", "back at a minute past midnight, into the day before", "2008-11-02T00:00:00-02:30", "2008-11-03T00:00:00-03:30", 25},
		{"America/St_Johns", "the day before that", "2008-11-01T00:00:00-02:30", "2008-11-02T00:00:00-02:30", 24},
		{"Pacific/Apia", "before the day left out", "2011-12-29T00:00:00-10:00", "2011-12-30T00:00:00-10:00", 24},
		{"Pacific/Apia", "after it", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00", 24},
		{"Europe/Berlin", "the last of a leap year that only the zone's rule tells of", "2040-12-31T00:00:00+01:00", "2041-01-01T00:00:00+01:00", 24},
		{"Australia/Lord_Howe", "by the rule, half an hour back", "2060-04-04T00:00:00+11:00", "2060-04-05T00:00:00+10:30", 24.5},
		{"", "UTC where there is no location", "1969-12-31T00:00:00Z", "1970-01-01T00:00:00Z", 24},
	} {
		s := window.Days(1, zone(t, c.zone))
		if c.zone == "" {
			s = window.Days(1, nil)
		}
		require.NoError(t, s.Err())
		start, end := at(t, c.start), at(t, c.end)
		require.EqualValues(t, c.hours*3_600_000, end-start, "%+v", c)
		for _, in := range []int64{start, start + 1, (start + end) / 2, end - 1} {
			require.Equal(t, start, s.Last(in), "%+v at %s", c, time.UnixMilli(in).UTC())
			require.Equal(t, start, s.First(in), "%+v", c)
			require.Equal(t, []int64{start}, slices.Collect(s.Starts(in)), "%+v", c)
		}
		require.Equal(t, end, s.End(start), "%+v", c)
		require.Equal(t, end, s.Last(end), "%+v: the next begins where it ends", c)
		require.Less(t, s.Last(start-1), start, "%+v", c)
		require.Equal(t, start, s.End(s.Last(start-1)), "%+v: the one before ends where it begins", c)
		require.False(t, s.Closed(start, end-1))
		require.True(t, s.Closed(start, end))
		g := s.Grace(time.Hour)
		require.False(t, g.Closed(start, end+3_599_999))
		require.True(t, g.Closed(start, end+3_600_000))
	}
}

// Several days, weeks from a weekday on, months, quarters and years, and days that
// begin at another hour by the clock.
func TestCalendarWindows(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for _, c := range []struct {
		spec                 window.Spec
		in, start, end, text string
	}{
		{window.Days(2, berlin), "1970-01-02T12:00:00+01:00", "1970-01-01T00:00:00+01:00", "1970-01-03T00:00:00+01:00", "2 days in Europe/Berlin"},
		{window.Days(2, berlin), "1969-12-31T12:00:00+01:00", "1969-12-30T00:00:00+01:00", "1970-01-01T00:00:00+01:00", "2 days in Europe/Berlin"},
		{window.Weeks(1, berlin, time.Monday), "2026-03-29T12:00:00+02:00", "2026-03-23T00:00:00+01:00", "2026-03-30T00:00:00+02:00", "1 week from Monday in Europe/Berlin"},
		{window.Weeks(1, berlin, time.Sunday), "2026-03-29T12:00:00+02:00", "2026-03-29T00:00:00+01:00", "2026-04-05T00:00:00+02:00", "1 week from Sunday in Europe/Berlin"},
		{window.Weeks(1, berlin, time.Thursday), "1970-01-01T00:00:00+01:00", "1970-01-01T00:00:00+01:00", "1970-01-08T00:00:00+01:00", "1 week from Thursday in Europe/Berlin"},
		{window.Weeks(2, berlin, time.Friday), "1970-01-01T00:00:00+01:00", "1969-12-26T00:00:00+01:00", "1970-01-09T00:00:00+01:00", "2 weeks from Friday in Europe/Berlin"},
		{window.Months(1, berlin), "2024-02-29T23:59:59+01:00", "2024-02-01T00:00:00+01:00", "2024-03-01T00:00:00+01:00", "1 month in Europe/Berlin"},
		{window.Months(1, berlin), "1969-12-31T23:00:00Z", "1970-01-01T00:00:00+01:00", "1970-02-01T00:00:00+01:00", "1 month in Europe/Berlin"},
		{window.Months(3, berlin), "2026-03-31T23:59:59+02:00", "2026-01-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00", "3 months in Europe/Berlin"},
		{window.Months(3, berlin), "1969-12-31T22:59:59Z", "1969-10-01T00:00:00+01:00", "1970-01-01T00:00:00+01:00", "3 months in Europe/Berlin"},
		{window.Months(12, nil), "2026-11-30T00:00:00Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "12 months in UTC"},
		{window.Days(1, berlin).Offset(6 * time.Hour), "2026-03-29T05:59:59+02:00", "2026-03-28T06:00:00+01:00", "2026-03-29T06:00:00+02:00", "1 day in Europe/Berlin offset 6h0m0s"},
		{window.Days(1, berlin).Offset(150 * time.Minute), "2026-03-29T03:00:00+02:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00", "1 day in Europe/Berlin offset 2h30m0s"},
		{window.Days(1, berlin).Offset(-2 * time.Hour).Grace(time.Minute), "2026-07-01T22:00:00+02:00", "2026-07-01T22:00:00+02:00", "2026-07-02T22:00:00+02:00", "1 day in Europe/Berlin offset -2h0m0s grace 1m0s"},
		{window.Months(1, nil).Offset(24 * time.Hour), "2026-03-01T23:59:59Z", "2026-02-02T00:00:00Z", "2026-03-02T00:00:00Z", "1 month in UTC offset 24h0m0s"},
	} {
		require.NoError(t, c.spec.Err())
		require.Equal(t, c.text, c.spec.String())
		require.True(t, c.spec.IsSingle())
		start, end := at(t, c.start), at(t, c.end)
		require.Equal(t, start, c.spec.Last(at(t, c.in)), "%v at %s", c.spec, c.in)
		require.Equal(t, end, c.spec.End(start), "%v at %s", c.spec, c.in)
		require.Equal(t, start, c.spec.Last(end-1), "%v at %s", c.spec, c.in)
	}
}

// In any zone and at any time a record is in the one window that holds it, found by
// walking the days from the definition: a window begins when the clock first shows
// its date.
func TestCalendarEqualsItsDefinition(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	zones := []string{
		"Europe/Berlin", "America/Sao_Paulo", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns",
		"Pacific/Apia", "Africa/Monrovia", "America/Havana", "Antarctica/Troll", "Asia/Manila",
	}
	for range 60 {
		loc := zone(t, zones[r.IntN(len(zones))])
		// A day at a random time from 1840 to 2100, and the days around it.
		day := time.UnixMilli(r.Int64N(260*31_556_952_000) - 130*31_556_952_000).In(loc)
		y, m, d := day.Date()
		var shown []int64 // when the clock first shows each date, by trying minute after minute
		from := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Add(-72 * time.Hour)
		date := func(u time.Time) int64 { _, off := u.In(loc).Zone(); return u.Unix() + int64(off) }
		highest := int64(math.MinInt64)
		for u := from; u.Before(from.Add(6 * 24 * time.Hour)); u = u.Add(time.Second * 15) {
			number := floorDiv(date(u), 86400)
			if number > highest {
				if highest != math.MinInt64 {
					shown = append(shown, firstSecond(u, number, date))
				}
				highest = number
			}
		}
		s := window.Days(1, loc)
		for i := range len(shown) - 1 {
			start, end := shown[i], shown[i+1]
			for range 5 {
				in := start + r.Int64N(end-start)
				require.Equal(t, start, s.Last(in), "%v at %v", s, time.UnixMilli(in).In(loc))
			}
			require.Equal(t, end, s.End(start), "%v at %v", s, time.UnixMilli(start).In(loc))
		}
	}
}

// firstSecond is the first second, of the last 15 up to u, at which the clock shows
// the day with the number.
func firstSecond(u time.Time, number int64, date func(time.Time) int64) int64 {
	for back := 14; ; back-- {
		if v := u.Add(-time.Duration(back) * time.Second); floorDiv(date(v), 86400) >= number {
			return v.Truncate(time.Second).UnixMilli()
		}
	}
}

func floorDiv(a, b int64) int64 { return int64(math.Floor(float64(a) / float64(b))) }

// Windows of any calendar follow each other without gap or overlap, and time goes
// into the one that holds it, from the lowest time to the highest.
func TestCalendarWindowsFollowEachOther(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "America/St_Johns"} {
		loc := zone(t, name)
		for _, s := range []window.Spec{
			window.Days(1, loc), window.Days(7, loc).Offset(31 * time.Hour), window.Weeks(3, loc, time.Saturday),
			window.Months(1, loc), window.Months(5, loc).Offset(-time.Second), window.Months(12, loc),
			window.Days(1, time.FixedZone("odd", 100*3600+7)),
		} {
			require.NoError(t, s.Err())
			for range 40 {
				in := r.Int64N(2*250*31_556_952_000) - 250*31_556_952_000
				if r.IntN(4) == 0 {
					in = r.Int64() - r.Int64()
				}
				start := s.Last(in)
				end := s.End(start)
				require.Less(t, start, end, "%v at %d", s, in)
				if in >= -1<<62 {
					require.LessOrEqual(t, start, in, "%v at %d", s, in)
				}
				require.Less(t, in, end, "%v at %d", s, in)
				require.Equal(t, start, s.Last(start), "%v at %d", s, in)
				require.EqualValues(t, 1, s.Windows(in))
				if end != window.EndOfTime {
					require.Equal(t, start, s.Last(end-1), "%v at %d", s, in)
					require.Equal(t, end, s.Last(end), "%v at %d", s, in)
				}
				require.LessOrEqual(t, s.OldestOpen(in), in)
			}
			for _, in := range []int64{math.MinInt64, math.MinInt64 + 1, math.MaxInt64 - 1, math.MaxInt64} {
				start := s.Last(in)
				require.Less(t, start, s.End(start), "%v at %d", s, in)
				require.True(t, s.Closed(start, window.EndOfTime))
			}
		}
	}
}

// What cannot be a calendar is told.
func TestCalendarFaults(t *testing.T) {
	for _, c := range []struct {
		spec window.Spec
		want string
	}{
		{window.Days(0, time.UTC), "window: invalid specification: 0 days in UTC: a window of 0 days; it has to be from 1 to 4000000"},
		{window.Weeks(-1, time.UTC, time.Monday), "window: invalid specification: -1 weeks from Monday in UTC: a window of -1 weeks; it has to be from 1 to 4000000"},
		{window.Months(math.MaxInt, time.UTC), fmt.Sprintf("window: invalid specification: %d months in UTC: a window of %[1]d months; it has to be from 1 to 4000000", math.MaxInt)},
		{window.Weeks(1, time.UTC, 7), "window: invalid specification: 1 week from %!Weekday(7) in UTC: there is no weekday 7"},
		{window.Days(1, time.Local), "window: invalid specification: 1 day in Local: time.Local is another zone on another machine; name one with time.LoadLocation"},
		{window.Days(1, time.UTC).Offset(1), "window: invalid specification: 1 day in UTC offset 1ns: the offset is 1ns; event time counts whole milliseconds"},
		{window.Days(1, time.UTC).Grace(-time.Second), "window: invalid specification: 1 day in UTC grace -1s: the grace is -1s and must not be negative"},
	} {
		require.EqualError(t, c.spec.Err(), c.want)
		require.ErrorIs(t, c.spec.Err(), window.ErrSpec)
	}
	require.NoError(t, window.Days(4_000_000, nil).Err())
	require.Equal(t, window.Days(1, nil), window.Days(1, time.UTC), "specifications can be compared")
}

func BenchmarkCalendar(b *testing.B) {
	s := window.Days(1, zone(b, "Europe/Berlin"))
	at := int64(1_700_000_000_000)
	var sum int64
	for b.Loop() {
		at += 17
		sum += s.Last(at)
	}
	_ = sum
}
