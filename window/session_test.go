package window_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/window"
)

// sessions are those of one key, kept by what the package says of each record.
type sessions struct {
	spec   window.Session
	open   []window.Span
	closed []window.Span
	late   []int64
}

func (k *sessions) add(a window.Span, w int64) {
	merged, from, to, late := k.spec.Merge(k.open, a, w)
	if late {
		k.late = append(k.late, a.First)
		return
	}
	k.open = slices.Replace(k.open, from, to, merged)
}

func (k *sessions) advance(w int64) {
	for len(k.open) > 0 && k.spec.Closed(k.open[0], w) {
		k.closed = append(k.closed, k.open[0])
		k.open = k.open[1:]
	}
}

// Case C-03: records exactly one gap apart are together, whichever key's record
// moves the watermark first, and one further apart is not.
func TestSessionsOneGapApart(t *testing.T) {
	s := window.Gap(100 * ms)
	require.NoError(t, s.Err())
	type record struct {
		key string
		t   int64
	}
	for _, run := range [][]record{
		{{"a", 1000}, {"c", 1000}, {"b", 1100}, {"a", 1100}, {"c", 1101}, {"b", 1300}},
		{{"a", 1000}, {"c", 1000}, {"a", 1100}, {"b", 1100}, {"c", 1101}, {"b", 1300}},
	} {
		keys := map[string]*sessions{"a": {spec: s}, "b": {spec: s}, "c": {spec: s}}
		emitted := map[string][]window.Span{} // by what was processed then
		w := window.Unknown
		for _, r := range run {
			w = max(w, r.t)
			for _, name := range []string{"a", "b", "c"} {
				k := keys[name]
				k.advance(w)
				at := r.key + "@" + strconv.FormatInt(r.t, 10) + " " + name
				emitted[at] = append(emitted[at], k.closed...)
				k.closed = nil
				if len(emitted[at]) == 0 {
					delete(emitted, at)
				}
			}
			keys[r.key].add(s.At(r.t), w)
		}
		require.Equal(t, map[string][]window.Span{
			"c@1101 c": {{First: 1000, Last: 1000, Until: 1100}},
			"b@1300 a": {{First: 1000, Last: 1100, Until: 1200}},
			"b@1300 b": {{First: 1100, Last: 1100, Until: 1200}},
			"b@1300 c": {{First: 1101, Last: 1101, Until: 1201}},
		}, emitted)
		require.Equal(t, []window.Span{{First: 1300, Last: 1300, Until: 1400}}, keys["b"].open)
		for _, k := range keys {
			require.Empty(t, k.late)
		}
	}
}

// One record extends a session to either side, bridges two or begins a new one; a
// closed session is not touched, whatever lies beside it.
func TestMergeOfSessions(t *testing.T) {
	s := window.Gap(10 * ms).Grace(5 * ms)
	at := func(first, last int64) window.Span { return window.Span{First: first, Last: last, Until: last + 10} }
	open := []window.Span{at(0, 20), at(40, 40), at(60, 80)}
	for _, c := range []struct {
		what     string
		t, w     int64
		merged   window.Span
		from, to int
		late     bool
	}{
		{"within", 70, 80, at(60, 80), 2, 3, false},
		{"the same time again", 40, 55, at(40, 40), 1, 2, false},
		{"one gap behind", 90, 90, at(60, 90), 2, 3, false},
		{"one more behind", 91, 91, at(91, 91), 3, 3, false},
		{"one gap before", -10, 20, at(-10, 20), 0, 1, false},
		{"one more before", -11, -1, at(-11, -11), 0, 0, false},
		{"one gap from both", 50, 50, at(40, 80), 1, 3, false},
		{"bridges two", 30, 31, at(0, 40), 0, 2, false},
		{"the oldest is open for the last time", 30, 35, at(0, 40), 0, 2, false},
		{"the oldest is closed", 30, 36, at(30, 40), 1, 2, false},
		{"in a closed session", 10, 36, window.Span{}, 0, 0, true},
		{"too old for one of its own, joins an open one", 30, 55, at(30, 40), 1, 2, false},
		{"all beside it is closed", 30, 56, window.Span{}, 0, 0, true},
		{"bridges a closed one and an open one", 50, 60, at(50, 80), 2, 3, false},
		{"in time for one of its own, between closed ones", 45, 60, at(45, 45), 2, 2, false},
	} {
		merged, from, to, late := s.Merge(open, s.At(c.t), c.w)
		require.Equal(t, c.late, late, c.what)
		require.Equal(t, c.merged, merged, c.what)
		require.Equal(t, []int{c.from, c.to}, []int{from, to}, c.what)
	}
	require.False(t, s.Closed(at(0, 20), 35))
	require.True(t, s.Closed(at(0, 20), 36), "closed once the watermark is past last + gap + grace")
	require.EqualValues(t, 31, s.EndsAt(at(0, 20)))
	require.EqualValues(t, 36, s.ClosesAt(at(0, 20)))
	require.True(t, at(0, 20).Joins(at(30, 31)))
	require.True(t, at(30, 31).Joins(at(0, 20)))
	require.False(t, at(0, 20).Joins(at(31, 31)))
}

// components are the sessions of records, from the definition: sorted by time, one
// goes on as long as the next record is not after the gap of all before it.
func components(records []window.Span) (all []window.Span) {
	slices.SortFunc(records, func(a, b window.Span) int { return int(a.First - b.First) })
	for _, a := range records {
		if n := len(all); n > 0 && a.First <= all[n-1].Until {
			all[n-1] = all[n-1].Union(a)
		} else {
			all = append(all, a)
		}
	}
	return all
}

// In whatever order records come, sessions are the connected components of their
// sorted times, with one gap or with a gap of each.
func TestSessionsAreComponents(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		gap := r.Int64N(12)
		own := window.GapBy(func(gap int64) time.Duration { return time.Duration(gap) * ms })
		k := &sessions{spec: own.Session}
		var records []window.Span
		for range 1 + r.IntN(25) {
			if r.IntN(2) == 0 {
				gap = r.Int64N(12)
			}
			a := own.At(r.Int64N(150)-75, gap)
			records = append(records, a)
			k.add(a, window.Unknown)
			require.Equal(t, components(slices.Clone(records)), k.open, "%v", records)
		}
	}
}

// With late records, every session is what the records made that came while it was
// open, no two of a key are open within a gap, and none changes once closed.
func TestSessionsWithLateRecords(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		s := window.Gap(time.Duration(1+r.IntN(10)) * ms).Grace(time.Duration(r.IntN(10)) * ms)
		kept, removed := &sessions{spec: s}, &sessions{spec: s}
		w := window.Unknown
		taken := 0
		var open [][]window.Span // the records of each open session, from the definition
		var closed []window.Span
		for range 40 {
			a := s.At(r.Int64N(100))
			w = max(w, a.First)
			// From the definition: close, then find the open ones that a joins.
			var still, joined [][]window.Span
			for _, records := range open {
				if all := components(records)[0]; w > all.Until+s.GraceMs() {
					closed = append(closed, all)
				} else if all.Joins(a) {
					joined = append(joined, records)
				} else {
					still = append(still, records)
				}
			}
			open = still
			if len(joined) > 0 || w <= a.Until+s.GraceMs() {
				open = append(open, append(slices.Concat(joined...), a))
				taken++
			}

			removed.advance(w) // one takes closed sessions out at once, the other never
			removed.add(a, w)
			kept.add(a, w)

			want := []window.Span{}
			for _, records := range open {
				all := components(records)
				require.Len(t, all, 1)
				want = append(want, all[0])
			}
			require.ElementsMatch(t, want, removed.open)
			require.True(t, slices.Equal(removed.open, kept.open[len(kept.open)-len(removed.open):]))
		}
		require.ElementsMatch(t, closed, removed.closed)
		require.True(t, slices.Equal(removed.closed, kept.open[:len(closed)]))
		require.Len(t, removed.late, 40-taken)
	}
}

// Gaps of records saturate, count whole milliseconds, and none is below zero.
func TestSpanOfOneRecord(t *testing.T) {
	require.Equal(t, window.Span{First: 7, Last: 7, Until: 8}, window.SpanAt(7, 1999*time.Microsecond))
	require.Equal(t, window.Span{First: 7, Last: 7, Until: 7}, window.SpanAt(7, -time.Second))
	top := window.SpanAt(math.MaxInt64-1, time.Second)
	require.EqualValues(t, math.MaxInt64, top.Until)
	require.True(t, window.Gap(time.Second).Closed(top, window.EndOfTime))
}

// Every fault of a session is told.
func TestSessionFaults(t *testing.T) {
	s := window.Gap(30 * time.Minute).Grace(time.Minute)
	require.NoError(t, s.Err())
	require.Equal(t, "session gap 30m0s grace 1m0s", s.String())
	require.EqualValues(t, 60_000, s.GraceMs())
	require.EqualError(t, window.Gap(0).Err(), "window: invalid specification: session gap 0s: the gap is 0s and must be positive")
	require.EqualError(t, window.Gap(time.Second).Grace(-1*time.Second).Err(), "window: invalid specification: session gap 1s grace -1s: the grace is -1s and must not be negative")
	require.ErrorContains(t, window.Gap(time.Second).Grace(time.Second).ProcessingTime().Err(), "session gap 1s grace 1s in processing time: in processing time nothing is late")
	require.True(t, window.Gap(time.Second).ProcessingTime().IsProcessingTime())

	by := window.GapBy(func(v string) time.Duration { return time.Duration(len(v)) * time.Second }).Grace(time.Minute)
	require.NoError(t, by.Err())
	require.Equal(t, "session gap of each record grace 1m0s", by.String())
	require.Equal(t, window.Span{First: 5, Last: 5, Until: 3005}, by.At(5, "abc"))
	require.True(t, by.ProcessingTime().IsProcessingTime())
	require.EqualError(t, window.GapBy[string](nil).Err(), "window: invalid specification: session gap of each record: the function that tells the gap is nil")
}
