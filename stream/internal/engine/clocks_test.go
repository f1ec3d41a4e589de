package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/window"
)

// A clock's watermark follows the newest time, and never goes back: not for an older
// record, and not when a run allows more disorder than the one before it.
func TestClockNeverGoesBack(t *testing.T) {
	c := NewClock(10)
	require.Equal(t, window.Unknown, c.Watermark())
	for _, step := range []struct {
		time, watermark int64
		moved           bool
	}{{100, 90, true}, {95, 90, false}, {100, 90, false}, {101, 91, true}} {
		w, moved := c.Observe(step.time)
		require.Equal(t, step.watermark, w)
		require.Equal(t, step.moved, moved)
	}
	later := NewClock(50)
	require.True(t, later.Advance(c.Watermark()))
	w, moved := later.Observe(120)
	require.EqualValues(t, 91, w)
	require.False(t, moved)
	w, moved = later.Observe(150)
	require.EqualValues(t, 100, w)
	require.True(t, moved)
	require.True(t, later.Advance(window.EndOfTime))
	w, moved = later.Observe(1 << 40)
	require.Equal(t, window.EndOfTime, w)
	require.False(t, moved)
}

// Clocks are found again by name, whatever else was added or removed.
func TestClocksAreRestoredByName(t *testing.T) {
	old := new(Task)
	a, b := NewClock(0), NewClock(0)
	a.Register(old, "a", nil)
	b.Register(old, "b", nil)
	a.Observe(7)
	b.Observe(9)
	saved := old.saveClocks(nil)

	next := new(Task)
	b2, c2 := NewClock(0), NewClock(0)
	resumed := map[string]int64{}
	c2.Register(next, "c", func(w int64) { resumed["c"] = w })
	b2.Register(next, "b", func(w int64) { resumed["b"] = w })
	require.NoError(t, next.restoreClocks(saved))
	require.EqualValues(t, 9, b2.Watermark())
	require.Equal(t, window.Unknown, c2.Watermark())
	require.Equal(t, map[string]int64{"b": 9}, resumed)

	require.NoError(t, new(Task).restoreClocks(nil), "a job that has no checkpoint")
	saved[0] = 2
	require.ErrorIs(t, next.restoreClocks(saved), errClocks)
}

func FuzzDecodeClocks(f *testing.F) {
	t := new(Task)
	NewClock(0).Register(t, "source", nil)
	f.Add(t.saveClocks(nil))
	f.Add([]byte{})
	f.Add([]byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		saved, err := decodeClocks(b)
		if err != nil {
			require.ErrorIs(t, err, errClocks)
			return
		}
		total := 0
		for name, state := range saved {
			total += len(name) + len(state)
		}
		require.LessOrEqual(t, total, len(b))
	})
}
