package window_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/window"
)

// What every way of emitting says of a window [0, 10) with grace 5, event by event.
func TestEmit(t *testing.T) {
	const no, early, end, late, final = window.NoResult, window.EarlyResult, window.EndResult, window.LateResult, window.FinalResult
	for _, c := range []struct {
		emit window.Emit
		text string

		updated9, updated10     window.Mark // by a record, at watermark 9 and 10
		ticked9, ticked10       window.Mark // changed, the clock ticks
		ended                   window.Mark // the watermark goes to 10
		closed, closedUnchanged window.Mark // and from there to 15
		closedAtOnce            window.Mark // unchanged, from 9 to 15
		ticks, ends             bool
	}{
		{window.OnClose, "on close", no, no, no, no, no, final, final, final, false, false},
		{window.OnUpdate, "on update", early, late, no, no, no, no, no, no, false, false},
		{window.Every(time.Second), "every 1s", no, no, early, late, no, final, no, no, true, false},
		{window.Early(time.Second), "early every 1s", no, no, early, no, no, final, final, final, true, false},
		{window.OnClose.LateUpdates(), "on close with late updates", no, late, no, no, end, no, no, final, false, true},
		{window.Early(time.Second).LateUpdates(), "early every 1s with late updates", no, late, early, no, end, no, no, final, true, true},
	} {
		require.NoError(t, c.emit.Err())
		require.Equal(t, c.text, c.emit.String())
		require.Equal(t, c.updated9, c.emit.Updated(10, 9), c.text)
		require.Equal(t, c.updated10, c.emit.Updated(10, 10), c.text)
		require.Equal(t, c.ticked9, c.emit.Ticked(10, 9), c.text)
		require.Equal(t, c.ticked10, c.emit.Ticked(10, 10), c.text)
		require.Equal(t, c.ended, c.emit.Ended(), c.text)
		require.Equal(t, c.closed, c.emit.Closed(true, 10, 10), c.text)
		require.Equal(t, c.closedUnchanged, c.emit.Closed(false, 10, 10), c.text)
		require.Equal(t, c.closedAtOnce, c.emit.Closed(false, 10, 9), c.text)
		require.Equal(t, c.ticks, c.emit.Ticks(), c.text)
		require.Equal(t, c.ends, c.emit.Ends(), c.text)
	}
	require.Equal(t, window.OnClose, window.Emit{}, "the default")
	require.Equal(t, window.OnUpdate, window.OnUpdate.LateUpdates(), "has them anyway")
	require.Equal(t, window.Every(time.Second), window.Every(time.Second).LateUpdates())
}

// The clock ticks at multiples of the period, before 1970 as well, always ahead.
func TestEmitTicks(t *testing.T) {
	e := window.Every(10 * time.Second)
	for _, c := range []struct{ now, next int64 }{{0, 10_000}, {1, 10_000}, {9_999, 10_000}, {10_000, 20_000}, {-1, 0}, {-10_000, 0}, {-10_001, -10_000}} {
		require.Equal(t, time.UnixMilli(c.next), e.NextTick(time.UnixMilli(c.now)), "%+v", c)
	}
}

func TestEmitFaults(t *testing.T) {
	require.EqualError(t, window.Every(0).Err(), "window: invalid specification: every 0s: the period is 0s and must be positive")
	require.EqualError(t, window.Early(1).Err(), "window: invalid specification: early every 1ns: the period is 1ns; event time counts whole milliseconds")
}

func TestMarks(t *testing.T) {
	for m, want := range []string{"none", "early", "end", "late", "final", "mark 5"} {
		require.Equal(t, want, window.Mark(m).String())
	}
}
