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

// A generator's state is found at the byte positions that its comment gives, and goes on with a
// generator of the same type; one of another type begins anew at the watermark.
func TestStateOfGenerators(t *testing.T) {
	punctuated := NewClockBy(new(window.Punctuation))
	_, moved := punctuated.Observe(50)
	require.False(t, moved)
	w, moved := punctuated.Punctuate(7)
	require.EqualValues(t, 7, w)
	require.True(t, moved)
	state := punctuated.save(nil)
	require.Equal(t, "\x00\x00\x00\x00\x00\x00\x00\x07"+"\x13*window.Punctuation"+"\x00\x00\x00\x00\x00\x00\x00\x07", string(state))
	again := NewClockBy(new(window.Punctuation))
	require.NoError(t, again.restore(state))
	_, moved = again.Punctuate(6)
	require.False(t, moved)
	require.EqualValues(t, 7, again.Watermark())
	bounded := NewClock(0)
	require.NoError(t, bounded.restore(state))
	require.EqualValues(t, 7, bounded.Watermark())
	_, moved = bounded.Punctuate(9)
	require.False(t, moved, "it is not punctuated")
	w, moved = bounded.Observe(window.EndOfTime)
	require.Equal(t, window.EndOfTime-1, w, "no record can end time")
	require.True(t, moved)
	require.NoError(t, again.restore(NewClock(3).save(nil)))
	require.Equal(t, window.Unknown, again.Watermark())
	require.Error(t, again.restore(state[:4]))
	require.Error(t, again.restore(state[:10]))
	require.ErrorIs(t, again.restore(state[:len(state)-1]), window.ErrState)
}
