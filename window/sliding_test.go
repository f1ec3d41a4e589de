package window_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/window"
)

// slide is a key's sliding windows, kept by what the package says of each record.
type slide struct {
	spec    window.Spec
	w       int64
	times   []int64
	records map[int64]string // values by event time
	windows map[int64]bool   // starts of those open
	final   map[int64]string // contents by start, when they closed
	late    map[int64]string // values by event time
}

func newSlide(spec window.Spec) *slide {
	return &slide{spec, window.Unknown, nil, map[int64]string{}, map[int64]bool{}, map[int64]string{}, map[int64]string{}}
}

func (k *slide) add(t int64, v string) {
	k.advance(t)
	if k.spec.Late(t, k.w) {
		k.late[t] += v
		return
	}
	i, known := slices.BinarySearch(k.times, t)
	if !known {
		k.times = slices.Insert(k.times, i, t)
		if start, made := k.spec.SlidesAfter(k.times, t); made && !k.spec.Closed(start, k.w) {
			k.windows[start] = true
		}
	}
	k.records[t] += v
	for start := range k.spec.Slides(k.times, t) {
		if !k.spec.Closed(start, k.w) {
			k.windows[start] = true
		}
	}
}

func (k *slide) advance(w int64) {
	k.w = max(k.w, w)
	for start := range k.windows {
		if k.spec.Closed(start, k.w) {
			k.final[start] = k.holds(start)
			delete(k.windows, start)
		}
	}
	for len(k.times) > 0 && k.spec.Forgotten(k.times[0], k.w) {
		delete(k.records, k.times[0])
		k.times = k.times[1:]
	}
}

func (k *slide) holds(start int64) (text string) {
	for _, t := range k.times {
		if start <= t && t <= k.spec.End(start) {
			text += k.records[t]
		}
	}
	return text
}

// Case C-02: windows near time zero, where negative times are as good as others.
func TestSlidingNearTimeZero(t *testing.T) {
	want := map[int64]string{-7: "A", -2: "AB", 0: "ABC", 2: "ABCD", 4: "BCD", 9: "CD", 11: "D"}
	order := []struct {
		t int64
		v string
	}{{3, "A"}, {8, "B"}, {10, "C"}, {12, "D"}}
	spec := window.Sliding(10 * ms).Grace(1000 * ms)
	require.NoError(t, spec.Err())
	require.Equal(t, "sliding 10ms grace 1s", spec.String())
	for _, shuffle := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}} {
		k := newSlide(spec)
		for _, i := range shuffle {
			k.add(order[i].t, order[i].v)
		}
		k.advance(window.EndOfTime)
		require.Equal(t, want, k.final)
		require.Empty(t, k.late)
		require.Empty(t, k.times, "all is forgotten in the end")
	}
	require.EqualValues(t, 3, spec.End(-7), "the end is included")
	require.False(t, spec.Closed(-7, 1003))
	require.True(t, spec.Closed(-7, 1004), "closed once the watermark is past end + grace")
}

// definition is the sliding windows of records by their event times, from the
// definition: those that end with a record, and those that begin right after one
// and hold another.
func definition(size int64, times []int64) map[int64][]int64 {
	windows := map[int64][]int64{}
	within := func(start int64) (in []int64) {
		for _, t := range times {
			if start <= t && t <= start+size {
				in = append(in, t)
			}
		}
		return in
	}
	for _, t := range times {
		windows[t-size] = within(t - size)
		if in := within(t + 1); len(in) > 0 {
			windows[t+1] = in
		}
	}
	return windows
}

// In whatever order records come, the windows are those of the definition, each
// with what it holds; no two hold the same.
func TestSlidingEqualsItsDefinition(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		size := 1 + r.Int64N(20)
		spec := window.Sliding(time.Duration(size) * ms).Grace(time.Second)
		k := newSlide(spec)
		var times []int64
		for range 1 + r.IntN(15) {
			at := r.Int64N(60) - 30
			times = append(times, at)
			k.add(at, fmt.Sprint(at, " "))

			// What a record is in are exactly the windows whose interval holds it.
			slices.Sort(times)
			distinct := slices.Compact(slices.Clone(times))
			var want []int64
			for start, in := range definition(size, distinct) {
				if slices.Contains(in, at) {
					want = append(want, start)
				}
			}
			slices.Sort(want)
			require.Equal(t, want, slices.Collect(spec.Slides(k.times, at)), "size %d, %v at %d", size, times, at)
		}
		k.advance(window.EndOfTime)
		want := map[int64]string{}
		contents := map[string]bool{}
		for start, in := range definition(size, slices.Compact(slices.Clone(times))) {
			text := ""
			for _, at := range times {
				if slices.Contains(in, at) {
					text += fmt.Sprint(at, " ")
				}
			}
			want[start] = text
			require.False(t, contents[text], "size %d, %v: two windows hold %s", size, times, text)
			contents[text] = true
		}
		require.Equal(t, want, k.final, "size %d, %v", size, times)
	}
}

// With late records a window holds what came before it closed, and forgetting
// records as soon as it may be done changes nothing.
func TestSlidingForgetsNothingItNeeds(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		size, grace := 1+r.Int64N(15), r.Int64N(15)
		spec := window.Sliding(time.Duration(size) * ms).Grace(time.Duration(grace) * ms)
		k := newSlide(spec)
		var times []int64 // all but the late ones
		final := map[int64]bool{}
		w := window.Unknown
		for range 30 {
			at := r.Int64N(80)
			w = max(w, at)
			if at+size+grace >= w {
				times = append(times, at)
			}
			k.add(at, fmt.Sprint(at, " "))
			slices.Sort(times)
			for start := range definition(size, slices.Compact(slices.Clone(times))) {
				if start+size+grace >= w {
					final[start] = true
					require.True(t, k.windows[start], "size %d grace %d: %v at %d, start %d", size, grace, times, at, start)
				}
			}
		}
		k.advance(window.EndOfTime)
		require.ElementsMatch(t, slices.Collect(maps.Keys(final)), slices.Collect(maps.Keys(k.final)))
	}
}

// Times at the ends of int64 neither wrap nor panic.
func TestSlidingSaturates(t *testing.T) {
	s := window.Sliding(time.Hour)
	for _, at := range []int64{math.MinInt64, math.MaxInt64} {
		for start := range s.Slides([]int64{at}, at) {
			require.LessOrEqual(t, start, at)
			require.GreaterOrEqual(t, s.End(start), at)
		}
		_, made := s.SlidesAfter([]int64{at}, at)
		require.False(t, made)
		require.True(t, s.Closed(s.Last(at), window.EndOfTime))
		require.True(t, s.Forgotten(at, window.EndOfTime))
	}
}

// What cannot be a sliding window is told.
func TestSlidingFaults(t *testing.T) {
	require.EqualError(t, window.Sliding(0).Err(), "window: invalid specification: sliding 0s: the size is 0s and must be positive")
	require.EqualError(t, window.Sliding(time.Second).Offset(ms).Err(), "window: invalid specification: sliding 1s offset 1ms: "+
		"sliding windows are where the records are: there is no offset to move them by")
	require.True(t, window.Sliding(ms).IsSliding())
	require.False(t, window.Tumbling(ms).IsSliding())
}
