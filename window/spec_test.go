package window_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/window"
)

const ms = time.Millisecond

// Case C-01: a window size that is no multiple of the advance. Every record is
// in exactly the windows whose half-open span holds it.
func TestHoppingSizeNoMultipleOfAdvance(t *testing.T) {
	s := window.Hopping(12*ms, 5*ms).Grace(1000 * ms)
	require.NoError(t, s.Err())
	type span struct{ start, end int64 }
	got := map[span][]int64{}
	for _, at := range []int64{100, 101, 102, 106, 107, 112} {
		for start := range s.Starts(at) {
			w := span{start, s.End(start)}
			got[w] = append(got[w], at)
		}
	}
	require.Equal(t, map[span][]int64{
		{90, 102}:  {100, 101},
		{95, 107}:  {100, 101, 102, 106},
		{100, 112}: {100, 101, 102, 106, 107},
		{105, 117}: {106, 107, 112},
		{110, 122}: {112},
	}, got)
}

// Case C-04: a window of 10 with grace 5 is open at 14 and closed at 15.
func TestClosedExactlyAtEndPlusGrace(t *testing.T) {
	s := window.Tumbling(10 * ms).Grace(5 * ms)
	require.NoError(t, s.Err())
	for _, c := range []struct {
		start, watermark int64
		closed           bool
	}{
		{0, 14, false}, {0, 15, true}, {10, 24, false}, {10, 25, true}, {20, 25, false},
		{-10, 4, false}, {-10, 5, true}, {0, window.Unknown, false}, {0, window.EndOfTime, true},
	} {
		require.Equal(t, c.closed, s.Closed(c.start, c.watermark), "%+v", c)
	}
	require.EqualValues(t, 0, s.Last(9))
	require.EqualValues(t, 10, s.Last(10))
	require.EqualValues(t, -10, s.Last(-1))
	require.EqualValues(t, -10, s.Last(-10))
	require.EqualValues(t, -20, s.Last(-11))
}

// The windows of t are exactly those starts offset + k*every with
// start <= t < start+size, as found by trying them all.
func TestAssignmentEqualsBruteForce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		size := 1 + r.Int64N(40)
		every := 1 + r.Int64N(size)
		offset := r.Int64N(200) - 100
		s := window.Hopping(time.Duration(size)*ms, time.Duration(every)*ms).Offset(time.Duration(offset) * ms)
		require.NoError(t, s.Err())
		at := r.Int64N(400) - 200
		var want []int64
		for k := int64(-500); k <= 500; k++ {
			if start := offset + k*every; start <= at && at < start+size {
				want = append(want, start)
			}
		}
		require.Equal(t, want, slices.Collect(s.Starts(at)), "%v at %d", s, at)
		require.Equal(t, want[0], s.First(at), "%v at %d", s, at)
		require.Equal(t, want[len(want)-1], s.Last(at), "%v at %d", s, at)
	}
}

// Times at the ends of int64 neither wrap nor panic, and walking from Last to
// First ends.
func TestAssignmentSaturates(t *testing.T) {
	for _, s := range []window.Spec{
		window.Tumbling(time.Hour).Grace(time.Hour),
		window.Hopping(time.Hour, 7*time.Minute).Offset(-3 * time.Minute).Grace(ms),
		window.Hopping(12*ms, 5*ms),
		window.Tumbling(math.MaxInt64 / ms * ms),
		window.Tumbling(ms),
	} {
		require.NoError(t, s.Err())
		for _, d := range []int64{0, 1, 2, 11, 12, 3_600_000, 7_200_001} {
			high := math.MaxInt64 - d
			require.LessOrEqual(t, s.Last(high), high, "%v", s)
			require.Greater(t, s.Last(high), high-s.EveryMs(), "%v", s)
			require.GreaterOrEqual(t, s.End(s.Last(high)), high, "%v", s)
			require.True(t, s.Closed(s.Last(high), window.EndOfTime))
			require.False(t, s.Closed(s.Last(high), 0))

			low := math.MinInt64 + d
			require.LessOrEqual(t, s.First(low), s.Last(low), "%v", s)
			require.Less(t, s.First(low)-s.EveryMs(), s.First(low), "%v wraps", s)
			require.Greater(t, s.End(s.First(low)), low, "%v", s)
			for _, at := range []int64{low, high} {
				n := 0
				for start := s.Last(at); start >= s.First(at); start -= s.EveryMs() {
					n++
				}
				require.Len(t, slices.Collect(s.Starts(at)), n)
				require.LessOrEqual(t, int64(n), s.SizeMs()/s.EveryMs()+1)
			}
		}
	}
}

// Assignment is the same on both sides of the bound where it changes to
// arithmetic that saturates.
func TestAssignmentFarFromNow(t *testing.T) {
	s := window.Hopping(12*ms, 5*ms).Offset(3 * ms)
	for _, edge := range []int64{1 << 62, -1 << 62} {
		for at := edge - 20; at <= edge+20; at++ {
			var want []int64
			for start := at - 11; start <= at; start++ {
				if (start-3)%5 == 0 {
					want = append(want, start)
				}
			}
			require.Equal(t, want, slices.Collect(s.Starts(at)), "at %d", at)
		}
	}
}

// Every fault is told, each with what is wrong.
func TestSpecFaults(t *testing.T) {
	for _, c := range []struct {
		spec window.Spec
		want string
	}{
		{window.Spec{}, "window: invalid specification: tumbling 0s: the size is 0s and must be positive"},
		{window.Tumbling(-time.Second), "window: invalid specification: tumbling -1s: the size is -1s and must be positive"},
		{window.Hopping(time.Second, 0), "window: invalid specification: hopping 1s every 0s: windows start every 0s, which must be positive"},
		{window.Hopping(time.Second, 2*time.Second), "window: invalid specification: hopping 1s every 2s: windows start every 2s but are only 1s long, so events between them would be in none"},
		{window.Tumbling(1500 * time.Microsecond), "window: invalid specification: tumbling 1.5ms: the size is 1.5ms; event time counts whole milliseconds"},
		{window.Hopping(time.Second, 1500*time.Microsecond), "window: invalid specification: hopping 1s every 1.5ms: the start interval is 1.5ms; event time counts whole milliseconds"},
		{window.Tumbling(time.Second).Offset(1), "window: invalid specification: tumbling 1s offset 1ns: the offset is 1ns; event time counts whole milliseconds"},
		{window.Tumbling(time.Second).Grace(-time.Second), "window: invalid specification: tumbling 1s grace -1s: the grace is -1s and must not be negative"},
		{
			window.Tumbling(0).Grace(-1),
			"window: invalid specification: tumbling 0s grace -1ns: the size is 0s and must be positive\n" +
				"window: invalid specification: tumbling 0s grace -1ns: the grace is -1ns and must not be negative\n" +
				"window: invalid specification: tumbling 0s grace -1ns: the grace is -1ns; event time counts whole milliseconds",
		},
	} {
		require.EqualError(t, c.spec.Err(), c.want)
		require.ErrorIs(t, c.spec.Err(), window.ErrSpec)
	}
	s := window.Hopping(time.Minute, 10*time.Second).Offset(-time.Second).Grace(5 * time.Second)
	require.NoError(t, s.Err())
	require.Equal(t, "hopping 1m0s every 10s offset -1s grace 5s", s.String())
	require.Equal(t, []int64{60000, 10000, 5000}, []int64{s.SizeMs(), s.EveryMs(), s.GraceMs()})
}

// How many windows hold a time, without listing them, and listing them without
// allocating.
func TestWindowsOfATime(t *testing.T) {
	for _, c := range []struct {
		spec   window.Spec
		at     int64
		starts []int64
	}{
		{window.Tumbling(10 * ms), -1, []int64{-10}},
		{window.Hopping(12*ms, 5*ms), -1, []int64{-10, -5}},
		{window.Hopping(12*ms, 5*ms), 0, []int64{-10, -5, 0}},
		{window.Hopping(12*ms, 5*ms).Offset(-2 * ms), -2, []int64{-12, -7, -2}},
		{window.Sliding(10 * ms), 5, nil},
	} {
		require.EqualValues(t, len(c.starts), c.spec.Windows(c.at), "%v", c.spec)
		require.Equal(t, c.starts, slices.Collect(c.spec.Starts(c.at)), "%v", c.spec)
		require.Equal(t, len(c.starts) == 1, c.spec.IsSingle(), "%v", c.spec)
	}
	hopping, days := window.Hopping(time.Hour, time.Minute), window.Days(1, zone(t, "Europe/Berlin"))
	var sum int64
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for start := range hopping.Starts(1_700_000_000_000) {
			sum += start
		}
		for start := range days.Starts(1_700_000_000_000) {
			sum += days.End(start)
		}
	}))
	require.NotZero(t, sum)
}

// A record is late when its last window is closed, and OldestOpen is the start of
// the oldest window that a watermark has not closed, as found by trying them all.
func TestLateAndOldestOpen(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		size := 1 + r.Int64N(40)
		s := window.Hopping(time.Duration(size)*ms, time.Duration(1+r.Int64N(size))*ms).Offset(time.Duration(r.IntN(20)) * ms)
		if r.IntN(4) == 0 {
			s = window.Sliding(time.Duration(size) * ms)
		}
		s = s.Grace(time.Duration(r.IntN(30)) * ms)
		require.NoError(t, s.Err())
		w := r.Int64N(200) - 100
		oldest := int64(math.MaxInt64)
		for at := w - 200; at < w+200; at++ {
			late := true
			starts := slices.Collect(s.Starts(at))
			if s.IsSliding() { // any start from which it is within the size
				for start := at - size; start <= at; start++ {
					starts = append(starts, start)
				}
			}
			for _, start := range starts {
				if !s.Closed(start, w) {
					late, oldest = false, min(oldest, start)
				}
			}
			require.Equal(t, late, s.Late(at, w), "%v at %d, watermark %d", s, at, w)
		}
		require.Equal(t, oldest, s.OldestOpen(w), "%v, watermark %d", s, w)
	}
	for _, s := range []window.Spec{window.Tumbling(ms), window.Sliding(ms), window.Days(1, nil)} {
		require.Equal(t, window.Unknown, s.OldestOpen(window.Unknown))
		require.Equal(t, window.EndOfTime, s.OldestOpen(window.EndOfTime))
		require.False(t, s.Late(0, window.Unknown))
		require.True(t, s.Late(0, window.EndOfTime))
	}
}

// Windows of the clock on the wall are said to be so, and have no grace.
func TestProcessingTimeWindows(t *testing.T) {
	s := window.Tumbling(time.Minute).ProcessingTime()
	require.NoError(t, s.Err())
	require.True(t, s.IsProcessingTime())
	require.False(t, window.Tumbling(time.Minute).IsProcessingTime())
	require.Equal(t, "tumbling 1m0s in processing time", s.String())
	require.EqualError(t, s.Grace(time.Second).Err(), "window: invalid specification: tumbling 1m0s grace 1s in processing time: "+
		"in processing time nothing is late, so a grace only delays results; leave it out")
}

func BenchmarkLast(b *testing.B) {
	s := window.Tumbling(time.Minute)
	at := int64(1_700_000_000_000)
	var sum int64
	for b.Loop() {
		at += 17
		sum += s.Last(at)
	}
	_ = sum
}
