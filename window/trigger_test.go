package window_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/window"
)

// A count gives a result with every n-th record and begins anew.
func TestCountTrigger(t *testing.T) {
	c := window.Count(3)
	require.NoError(t, c.Err())
	var p window.Pane
	var fired []int64
	for at := int64(1); at <= 8; at++ {
		if c.Add(&p, at, 1000+at) {
			fired = append(fired, at)
			require.Equal(t, window.Pane{Count: 3, Lowest: at - 2, Since: 998 + at}, p)
			p = window.Pane{}
		}
	}
	require.Equal(t, []int64{3, 6}, fired)
	require.Equal(t, window.Pane{Count: 2, Lowest: 7, Since: 1007}, p)
	require.Equal(t, window.EndOfTime, c.DueAt(p), "the rest is a last result")
	require.EqualValues(t, math.MaxInt64, c.DueAtWall(p))
	require.False(t, c.Keeps())
	require.True(t, c.Keep().Keeps())
}

// Event time counts from the lowest of a pane, the clock from its first record.
func TestTriggerByTime(t *testing.T) {
	c := window.Count(100).Or(window.After(time.Second)).Or(window.AfterWall(time.Minute))
	require.NoError(t, c.Err())
	var p window.Pane
	require.False(t, c.Add(&p, 5000, 70))
	require.EqualValues(t, 6000, c.DueAt(p))
	require.False(t, c.Add(&p, -5000, 90))
	require.False(t, c.Add(&p, 7000, 95))
	require.EqualValues(t, -4000, c.DueAt(p))
	require.EqualValues(t, 60_070, c.DueAtWall(p))
	require.Equal(t, "count 100 or after 1s or after 1m0s by the clock", c.String())
	require.Equal(t, window.Count(5).Or(window.After(time.Second)), window.Count(5).Or(window.Count(7)).Or(window.After(2*time.Second)).Or(window.After(time.Second)), "the lesser decides")
}

// A value may end a window by itself.
func TestTriggerByValue(t *testing.T) {
	c := window.Until(func(v string) bool { return v == "end" }).Or(window.Count(3))
	require.NoError(t, c.Err())
	require.Equal(t, "until a value says so or count 3", c.String())
	var p window.Pane
	require.False(t, c.Add(&p, "a", 1, 1))
	require.True(t, c.Add(&p, "end", 2, 2))
	require.EqualValues(t, 2, p.Count)
	require.True(t, c.Add(&p, "b", 3, 3))
	require.Equal(t, "until a value says so, kept", window.Until(func(string) bool { return true }).Keep().String())
}

func TestTriggerFaults(t *testing.T) {
	require.EqualError(t, window.Trigger{}.Err(), "window: invalid specification: never: it never gives a result; say Count, After, AfterWall or Until")
	require.EqualError(t, window.Count(-1).Err(), "window: invalid specification: count -1: the count is -1 and must be positive")
	require.EqualError(t, window.After(-time.Second).Err(), "window: invalid specification: after -1s: the event time is -1s and must be positive")
	require.EqualError(t, window.AfterWall(1).Err(), "window: invalid specification: after 1ns by the clock: the time is 1ns; event time counts whole milliseconds")
	require.EqualError(t, window.Until[string](nil).Err(), "window: invalid specification: until a value says so: the function that decides is nil")
	require.NoError(t, window.Until(func(int) bool { return true }).Err())
}
