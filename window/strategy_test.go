package window_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/window"
)

// A strategy makes generators, idleness, guard and alignment as it says, a new
// generator for every partition.
func TestStrategies(t *testing.T) {
	s := window.Disorder(5 * ms).IdleAfter(time.Minute).Align(time.Hour).
		Guard(window.Guard{Ahead: 24 * time.Hour, Policy: window.FutureClamp})
	require.NoError(t, s.Err())
	require.Equal(t, "disorder 5ms idle after 1m0s at most 24h0m0s ahead of the clock, else clamp aligned within 1h0m0s", s.String())
	one, other := s.Generator(), s.Generator()
	w, moved := one.Observe(20)
	require.EqualValues(t, 15, w)
	require.True(t, moved)
	require.Equal(t, window.Unknown, other.Watermark())
	require.Equal(t, window.Idleness{After: time.Minute}, s.Idleness())
	require.Equal(t, window.Guard{Ahead: 24 * time.Hour, Policy: window.FutureClamp}, s.FutureGuard())
	require.Equal(t, window.Alignment{Drift: time.Hour}, s.Alignment())

	for _, ascending := range []window.Strategy{window.Ascending(), {}} {
		require.Equal(t, "ascending", ascending.String())
		g := ascending.Generator()
		w, _ = g.Observe(20)
		require.EqualValues(t, 20, w)
		w, moved = g.Observe(19)
		require.EqualValues(t, 20, w)
		require.False(t, moved)
	}
	made := 0
	custom := window.Custom(func() window.Generator { made++; return &window.Punctuation{} })
	require.NoError(t, custom.Err())
	require.Equal(t, "custom", custom.String())
	custom.Generator()
	custom.Generator()
	require.Equal(t, 2, made)
}

func TestStrategyFaults(t *testing.T) {
	require.EqualError(t, window.Disorder(-time.Second).Err(), "window: invalid specification: disorder -1s: the disorder is -1s and must not be negative")
	require.EqualError(t, window.Disorder(1).Err(), "window: invalid specification: disorder 1ns: the disorder is 1ns; event time counts whole milliseconds")
	require.EqualError(t, window.Custom(nil).Err(), "window: invalid specification: custom: the function that makes generators is nil")
	require.EqualError(t, window.Ascending().IdleAfter(-ms).Err(), "window: invalid specification: ascending idle after -1ms: the time to be idle after is -1ms and must not be negative")
	require.EqualError(t, window.Ascending().Guard(window.Guard{Policy: 3}).Err(), "window: invalid specification: ascending: there is no policy 3 for event times in the future")
	require.EqualError(t, window.Punctuated[string](nil).With(window.Ascending().Align(-ms)).Err(),
		"window: invalid specification: punctuated aligned within -1ms: the function that tells the watermark is nil\n"+
			"window: invalid specification: ascending aligned within -1ms: the drift is -1ms and must not be negative")
}

// A value that says a watermark moves it, event times do not, and no value can move
// it back or end time.
func TestPunctuation(t *testing.T) {
	type tick struct{ w int64 }
	s := window.Punctuated(func(v tick) (time.Time, bool) { return time.UnixMilli(v.w), v.w != 0 }).
		With(window.Disorder(time.Hour).IdleAfter(time.Minute))
	require.NoError(t, s.Err())
	require.Equal(t, "punctuated idle after 1m0s", s.String())
	require.Equal(t, window.Idleness{After: time.Minute}, s.Strategy().Idleness())
	_, ok := s.Says(tick{})
	require.False(t, ok)
	said, ok := s.Says(tick{-7})
	require.True(t, ok)
	require.EqualValues(t, -7, said)

	var g window.Punctuation
	var _ window.Generator = &g
	w, moved := g.Observe(1000)
	require.Equal(t, window.Unknown, w)
	require.False(t, moved)
	for _, c := range []struct {
		said, w int64
		moved   bool
	}{
		{math.MinInt64, window.Unknown, false}, {-7, -7, true}, {-8, -7, false}, {-7, -7, false}, {5, 5, true},
		{math.MaxInt64, math.MaxInt64 - 1, true}, {math.MaxInt64, math.MaxInt64 - 1, false},
	} {
		w, moved := g.Punctuate(c.said)
		require.Equal(t, c.w, w, "%+v", c)
		require.Equal(t, c.moved, moved, "%+v", c)
		var again window.Punctuation
		rest, err := again.LoadState(append(g.AppendState(nil), 'x'))
		require.NoError(t, err)
		require.Equal(t, "x", string(rest))
		require.Equal(t, g, again)
	}
}

// A time is too far ahead when it is more than the bound ahead of the clock.
func TestGuard(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	g := window.Guard{Ahead: time.Second}
	require.EqualValues(t, 1_001_000, g.Limit(now))
	require.False(t, g.TooFar(1_001_000, now))
	require.True(t, g.TooFar(1_001_001, now))
	require.False(t, g.TooFar(math.MinInt64, now))
	require.True(t, g.TooFar(math.MaxInt64, now))
	var none window.Guard
	require.False(t, none.TooFar(math.MaxInt64, now))
	require.Equal(t, window.FutureLate, none.Policy)
	err := g.Error(1_001_001, now)
	require.ErrorIs(t, err, window.ErrFarFuture)
	require.EqualError(t, err, "window: event time too far in the future: 1970-01-01T00:16:41.001Z is more than 1s ahead of the clock, 1970-01-01T00:16:40Z")
	require.Equal(t, "late clamp fail policy 3", window.FutureLate.String()+" "+window.FutureClamp.String()+" "+
		window.FutureFail.String()+" "+window.FuturePolicy(3).String())
}

// An input more than the drift ahead of the slowest one waits; one that is idle, has
// ended or has no watermark holds nobody back.
func TestAlignment(t *testing.T) {
	a := window.Alignment{Drift: 10 * ms}
	m := window.NewMerge(3)
	waiting := func() (who []int) {
		for i := range 3 {
			if m.Waits(i, a) {
				who = append(who, i)
			}
		}
		return who
	}
	require.Equal(t, window.Unknown, m.Slowest())
	require.Empty(t, waiting())
	m.Observe(0, 1000)
	require.EqualValues(t, 1000, m.Slowest())
	require.Empty(t, waiting(), "the others have no watermark")
	m.Observe(1, 990)
	require.Empty(t, waiting(), "exactly the drift")
	m.Observe(0, 1001)
	require.Equal(t, []int{0}, waiting())
	m.Observe(2, 1200)
	require.Equal(t, []int{0, 2}, waiting())
	m.Idle(1)
	require.EqualValues(t, 1001, m.Slowest())
	require.Equal(t, []int{2}, waiting())
	m.Observe(0, window.EndOfTime)
	require.EqualValues(t, 1200, m.Slowest())
	require.Empty(t, waiting())
	m.Active(1)
	require.Equal(t, []int{2}, waiting())
	m.Idle(2)
	require.Empty(t, waiting(), "an idle one has nothing to read")
	require.False(t, window.Alignment{}.Waits(math.MaxInt64-1, math.MinInt64+1), "no bound")
	require.False(t, window.Alignment{Drift: time.Hour}.Waits(math.MaxInt64-1, math.MaxInt64-2))
}

// Whatever inputs do, one of those that have something to read need not wait, and
// none that waits is ahead of it by less than the drift.
func TestAlignmentNeverStops(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		n := 1 + r.IntN(5)
		m, a := window.NewMerge(n), window.Alignment{Drift: time.Duration(1+r.IntN(50)) * ms}
		w, active := make([]int64, n), make([]bool, n)
		for i := range n {
			w[i], active[i] = window.Unknown, true
		}
		for range 60 {
			i := r.IntN(n)
			switch r.IntN(8) {
			case 0:
				m.Idle(i)
				active[i] = false
			default:
				w[i], active[i] = max(w[i], r.Int64N(300)), true
				m.Observe(i, w[i])
			}
			reading, free := 0, 0
			for i := range n {
				if !active[i] {
					continue
				}
				reading++
				ahead := false
				for j := range n {
					ahead = ahead || active[j] && w[j] != window.Unknown && w[i] != window.Unknown && w[i]-w[j] > a.Drift.Milliseconds()
				}
				require.Equal(t, ahead, m.Waits(i, a))
				if !ahead {
					free++
				}
			}
			require.True(t, reading == 0 || free > 0)
		}
	}
}

func FuzzPunctuationLoadState(f *testing.F) {
	f.Add([]byte{128, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 7, 9})
	f.Add([]byte{127, 255, 255, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p window.Punctuation
		rest, err := p.LoadState(b)
		if err != nil {
			require.Equal(t, window.Punctuation{}, p)
			return
		}
		require.Equal(t, b[:len(b)-len(rest)], p.AppendState(nil))
		w, _ := p.Punctuate(3)
		require.Less(t, w, window.EndOfTime)
	})
}
