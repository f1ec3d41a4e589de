package window_test

import (
	"encoding/hex"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/window"
)

type step struct {
	what     string // observe, idle, active
	input    int
	w        int64
	combined int64
}

func play(t *testing.T, m *window.Merge, steps []step) {
	t.Helper()
	for i, s := range steps {
		before := m.Watermark()
		var got int64
		var moved bool
		switch s.what {
		case "observe":
			got, moved = m.Observe(s.input, s.w)
		case "idle":
			got, moved = m.Idle(s.input)
		case "active":
			got, moved = m.Active(s.input)
		}
		require.Equal(t, s.combined, got, "row %d: %+v", i+1, s)
		require.Equal(t, got, m.Watermark())
		require.Equal(t, got != before, moved, "row %d: %+v", i+1, s)

		// A checkpoint at any row changes nothing.
		rest, err := m.LoadState(append(m.AppendState(nil), 'x'))
		require.NoError(t, err)
		require.Equal(t, "x", string(rest))
	}
}

// Case C-05, both runs: who drives the combined watermark when inputs are idle,
// and in which order they became so.
func TestIdleInputs(t *testing.T) {
	none := window.NewMerge(0)
	require.Equal(t, window.Unknown, none.Watermark(), "row 0: no input is not the end of time")
	require.False(t, none.IsIdle())

	first := []step{
		{"observe", 0, 7, window.Unknown}, // 1
		{"observe", 1, 3, 3},              // 2
		{"idle", 1, 0, 7},                 // 3
		{"observe", 1, 5, 7},              // 4
		{"observe", 0, 20, 7},             // 5
		{"observe", 1, 9, 9},              // 6
	}
	last := []step{
		{"observe", 1, 12, 20}, // 9
		{"observe", 1, 25, 25}, // 10
		{"observe", 0, 21, 25}, // 11
		{"observe", 1, 30, 25}, // 12
		{"observe", 0, 28, 28}, // 13
	}
	one := window.NewMerge(2)
	play(t, one, first)
	play(t, one, []step{{"idle", 0, 0, 9}, {"idle", 1, 0, 20}})
	require.True(t, one.IsIdle())
	play(t, one, last)

	two := window.NewMerge(2)
	play(t, two, first)
	play(t, two, []step{{"idle", 1, 0, 20}, {"idle", 0, 0, 20}})
	play(t, two, last)
}

// An input that has ended holds nobody back and drags nobody along: as long as
// another one has not ended, time does not end.
func TestEndedInputs(t *testing.T) {
	m := window.NewMerge(2)
	play(t, m, []step{
		{"observe", 0, 20, window.Unknown},
		{"observe", 1, 5, 5},
		{"observe", 0, window.EndOfTime, 5},
		{"idle", 1, 0, 20},
		{"observe", 0, 30, 20}, // after its end: nothing
		{"observe", 1, 21, 21},
		{"idle", 0, 0, 21},
		{"observe", 1, window.EndOfTime, window.EndOfTime},
		{"idle", 1, 0, window.EndOfTime},
		{"active", 1, 0, window.EndOfTime},
	})
	require.False(t, m.IsIdle())
}

// An input made active without a record counts at the watermark it had.
func TestActiveAgainAtTheOldWatermark(t *testing.T) {
	m := window.NewMerge(2)
	play(t, m, []step{
		{"observe", 0, 10, window.Unknown},
		{"observe", 1, 4, 4},
		{"idle", 1, 0, 10},
		{"active", 1, 0, 10},
		{"observe", 0, 50, 10},
		{"observe", 1, 3, 10}, // lower than it was: counts as 4
		{"observe", 1, 11, 11},
	})
}

// simpleMerge is Merge with everything recomputed from the start each time.
type simpleMerge struct {
	w        []int64
	idle     []bool
	highest  int64
	combined int64
}

func (m *simpleMerge) observe(i int, w int64) {
	m.w[i], m.idle[i] = max(m.w[i], w), false
	if w != window.EndOfTime && m.w[i] != window.EndOfTime {
		m.highest = max(m.highest, w)
	}
	m.update()
}

func (m *simpleMerge) update() {
	low, open := window.EndOfTime, false
	for i, w := range m.w {
		if w != window.EndOfTime {
			open = true
			if !m.idle[i] {
				low = min(low, w)
			}
		}
	}
	if low == window.EndOfTime && open {
		low = m.highest
	}
	if len(m.w) > 0 {
		m.combined = max(m.combined, low)
	}
}

// Random histories agree with the simple one, and restarts in between change
// nothing.
func TestMergeEqualsSimpleModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		n := r.IntN(5)
		m := window.NewMerge(n)
		model := &simpleMerge{w: make([]int64, n), idle: make([]bool, n), highest: window.Unknown, combined: window.Unknown}
		for i := range model.w {
			model.w[i] = window.Unknown
		}
		for range 60 {
			if n == 0 {
				break
			}
			i := r.IntN(n)
			switch r.IntN(10) {
			case 0, 1:
				m.Idle(i)
				model.idle[i] = true
				model.update()
			case 2:
				m.Active(i)
				model.idle[i] = false
				model.update()
			case 3:
				fresh := window.NewMerge(n)
				_, err := fresh.LoadState(m.AppendState(nil))
				require.NoError(t, err)
				m = fresh
			default:
				w := r.Int64N(100) - 50
				if r.IntN(60) == 0 {
					w = window.EndOfTime
				}
				m.Observe(i, w)
				model.observe(i, w)
			}
			require.Equal(t, model.combined, m.Watermark())
		}
	}
}

// A state fits a merge with more inputs, where partitions were added, and not
// one with fewer.
func TestMergeStateWithOtherInputs(t *testing.T) {
	m := window.NewMerge(2)
	m.Observe(0, 5)
	m.Observe(1, 3)
	state := m.AppendState(nil)

	more := window.NewMerge(3)
	_, err := more.LoadState(state)
	require.NoError(t, err)
	require.EqualValues(t, 3, more.Watermark())
	play(t, more, []step{{"observe", 1, 9, 3}, {"observe", 2, 8, 5}})

	_, err = window.NewMerge(1).LoadState(state)
	require.ErrorIs(t, err, window.ErrState)
	require.EqualError(t, err, "window: cannot take watermark state: it has 2 inputs, here are 1")
}

// The bytes of a state, so that checkpoints of this version stay readable.
func TestMergeStateBytes(t *testing.T) {
	m := window.NewMerge(2)
	m.Observe(0, 5)
	m.Observe(1, 3)
	m.Idle(1)
	require.Equal(t, "01"+"00000002"+
		"00"+"0000000000000005"+
		"01"+"0000000000000003"+
		"0000000000000005"+"0000000000000005", hex.EncodeToString(m.AppendState(nil)))
	g := window.BoundedDisorder{}
	require.Equal(t, "000000000000000000", hex.EncodeToString(g.AppendState(nil)))
	g.Observe(-1)
	require.Equal(t, "01ffffffffffffffff", hex.EncodeToString(g.AppendState(nil)))
}

// The watermark stays the bound behind the highest event time, moves only
// forward, and says when it moved.
func TestBoundedDisorder(t *testing.T) {
	g := window.BoundedDisorder{Bound: 5}
	require.Equal(t, window.Unknown, g.Watermark())
	for _, c := range []struct {
		at, w int64
		moved bool
	}{
		{10, 5, true}, {8, 5, false}, {10, 5, false}, {11, 6, true}, {-100, 6, false}, {math.MinInt64, 6, false},
		{math.MaxInt64, math.MaxInt64 - 6, true}, {math.MaxInt64, math.MaxInt64 - 6, false},
	} {
		w, moved := g.Observe(c.at)
		require.Equal(t, c.w, w, "%+v", c)
		require.Equal(t, c.moved, moved, "%+v", c)
		require.Equal(t, c.w, g.Watermark())
		again := window.BoundedDisorder{Bound: 5}
		rest, err := again.LoadState(append(g.AppendState(nil), 'x'))
		require.NoError(t, err)
		require.Equal(t, "x", string(rest))
		require.Equal(t, g, again)
	}
}

// The lowest event times saturate at Unknown; without a bound the watermark is
// the highest event time, and no record reaches EndOfTime.
func TestBoundedDisorderSaturates(t *testing.T) {
	g := window.BoundedDisorder{Bound: 5}
	w, moved := g.Observe(math.MinInt64)
	require.Equal(t, window.Unknown, w)
	require.False(t, moved)
	w, moved = g.Observe(math.MinInt64 + 4)
	require.Equal(t, window.Unknown, w)
	require.False(t, moved)
	w, moved = g.Observe(math.MinInt64 + 6)
	require.EqualValues(t, math.MinInt64+1, w)
	require.True(t, moved)

	for _, bound := range []int64{0, -7} {
		g = window.BoundedDisorder{Bound: bound}
		w, moved = g.Observe(-3)
		require.EqualValues(t, -3, w)
		require.True(t, moved)
		w, _ = g.Observe(math.MaxInt64)
		require.Less(t, w, window.EndOfTime)
	}
	g = window.BoundedDisorder{Bound: math.MaxInt64}
	w, _ = g.Observe(-1)
	require.Equal(t, window.Unknown, w)
}

// An input is idle after the silence given, also one that never sent; a record
// wakes it, and a clock set back starts anew.
func TestIdleness(t *testing.T) {
	now := time.Unix(1000, 0)
	i := window.Idleness{After: time.Second}
	require.False(t, i.Check(now))
	require.False(t, i.Check(now.Add(time.Second-1)))
	require.True(t, i.Check(now.Add(time.Second)))
	i.Seen(now.Add(2 * time.Second))
	require.False(t, i.Check(now.Add(2*time.Second)))
	require.True(t, i.Check(now.Add(3*time.Second)))
	require.False(t, i.Check(now.Add(-time.Hour)))
	require.True(t, i.Check(now.Add(-time.Hour+time.Second)))

	var never window.Idleness
	require.False(t, never.Check(now))
	require.False(t, never.Check(now.Add(1000*time.Hour)))
}

func FuzzMergeLoadState(f *testing.F) {
	m := window.NewMerge(2)
	m.Observe(0, 5)
	m.Idle(1)
	f.Add(uint8(2), m.AppendState(nil))
	f.Add(uint8(0), window.NewMerge(0).AppendState(nil))
	f.Add(uint8(3), []byte{1, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, inputs uint8, b []byte) {
		m := window.NewMerge(int(inputs))
		before := m.AppendState(nil)
		rest, err := m.LoadState(b)
		if err != nil {
			require.Equal(t, before, m.AppendState(nil))
			return
		}
		for i := range int(inputs) {
			w := m.Watermark()
			c, moved := m.Observe(i, 7)
			require.GreaterOrEqual(t, c, w)
			require.Equal(t, c > w, moved)
		}
		m = window.NewMerge(int(inputs))
		m.LoadState(b)
		if state := m.AppendState(nil); b[4] == inputs {
			require.Equal(t, b[:len(b)-len(rest)], state)
		}
	})
}

func FuzzBoundedDisorderLoadState(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 255, 0, 0, 0, 0, 0, 0, 3, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		var g window.BoundedDisorder
		rest, err := g.LoadState(b)
		if err != nil {
			require.Equal(t, window.BoundedDisorder{}, g)
			return
		}
		require.Equal(t, b[:len(b)-len(rest)], g.AppendState(nil))
	})
}

func BenchmarkMergeObserve(b *testing.B) {
	m := window.NewMerge(16)
	var w int64
	for b.Loop() {
		w++
		m.Observe(int(w)&15, w)
	}
}
