package stream_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
)

// A Processor finds what its window, session and versioned stores hold, after crashes too, without
// what failed calls have put there.
func TestStoresInTime(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[string, string]("out")
	windows := state.NewWindow[string, []int]("windows").TTL(time.Second)
	sessions := state.NewSession[string, int]("sessions").TTL(time.Second)
	versions := state.NewVersioned[string, int]("versions").History(100 * ms)
	app := stream.New("stores").IdleAfter(-1).OnError(stream.Skip())
	app.Stream(in).GroupByKey().Process(stream.ProcessFunc[string, int, struct{}, string](func(c *stream.Context[string, struct{}, string], v int) error {
		k, now := c.Key(), c.Time()
		windows.Update(c, k, now.Truncate(10*ms), func(all []int, _ bool) []int { return append(all, v) })
		span := state.Span{Start: now, End: now}
		sum := v
		for s, n := range sessions.Overlapping(c, k, now.Add(-5*ms), now.Add(5*ms)) {
			sum += n
			if s.Start.Before(span.Start) {
				span.Start = s.Start
			}
			if s.End.After(span.End) {
				span.End = s.End
			}
			sessions.Delete(c, k, s)
		}
		sessions.Put(c, k, span, sum)
		was, _ := versions.GetAt(c, k, now)
		versions.Put(c, k, now, was+v)
		if v < 0 {
			return errors.New("negative")
		}
		var text string
		for start, all := range windows.Range(c, k, now.Add(-100*ms), now.Add(ms)) {
			text += fmt.Sprint(start.UnixMilli(), all, " ")
		}
		newest, _ := versions.Get(c, k)
		c.Emit(fmt.Sprint(text, "sum ", sum, " in ", span.End.Sub(span.Start), " version ", was, " newest ", newest))
		return nil
	}), windows, sessions, versions).As("stores").To(out)
	d := streamtest.New(t, app)
	for _, r := range []struct {
		at   int64
		v    int
		want string
	}{
		{1, 1, "0 [1] sum 1 in 0s version 0 newest 1"},
		{4, 2, "0 [1 2] sum 3 in 3ms version 1 newest 3"},
		{5, -7, ""},
		{20, 4, "0 [1 2] 20 [4] sum 4 in 0s version 3 newest 7"},
		{2, 8, "0 [1 2 8] sum 11 in 3ms version 1 newest 7"},
		{12, -1, ""},
		{120, 16, "20 [4] 120 [16] sum 16 in 0s version 7 newest 23"},
		{19, 32, "0 [1 2 8] 10 [32] sum 36 in 1ms version 0 newest 23"}, // what was at 4 is forgotten, and 19 is further back than the history
	} {
		d.Input(in).SendAt(at(r.at), "k", r.v)
		values := d.Output(out).Values()
		if r.want != "" {
			require.Equal(t, r.want, values[len(values)-1], "at %d", r.at)
		}
		d.Crash()
	}
	require.Len(t, d.Output(out).Values(), 6)
}
