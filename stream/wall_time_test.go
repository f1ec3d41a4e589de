package stream_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// Windows and sessions of processing time go by the clock, whatever the event times, close with
// it, and survive crashes.
func TestProcessingTime(t *testing.T) {
	in := topic.New[string, int]("in")
	windows, sessions := topic.New[window.Key[string], int64]("windows"), topic.New[window.Key[string], int64]("sessions")
	app := stream.New("processing").IdleAfter(-1)
	g := app.Stream(in).GroupByKey()
	g.Window(window.Tumbling(10 * time.Second).ProcessingTime()).Count().As("windows").To(windows)
	g.Session(window.Gap(3 * time.Second).ProcessingTime()).Count().As("sessions").To(sessions)
	d := streamtest.New(t, app)
	type result struct {
		Key              string
		Start, End, Time int64 // in seconds since the test began
		Count            int64
	}
	results := func(out topic.Topic[window.Key[string], int64]) (all []result) {
		since := func(at time.Time) int64 { return int64(at.Sub(streamtest.Epoch) / time.Second) }
		for _, r := range d.Output(out).Records() {
			all = append(all, result{r.Key.Key, since(r.Key.Start), since(r.Key.End), since(r.Time), r.Value})
		}
		return all
	}
	send := func(key string, at int64) {
		d.Input(in).SendAt(time.UnixMilli(at), key, 1)
		d.Checkpoint()
		d.Crash()
	}
	send("a", 1_000_000)
	d.Advance(2 * time.Second)
	send("a", -5)
	send("b", 0)
	d.Advance(2 * time.Second)
	require.Empty(t, results(sessions))
	send("a", 0)
	d.Advance(2 * time.Second)
	d.Crash()
	require.Equal(t, []result{{"b", 2, 2, 2, 1}}, results(sessions))
	d.Advance(3 * time.Second)
	require.Empty(t, results(windows))
	d.Advance(1 * time.Second)
	d.Crash()
	require.Equal(t, []result{{"b", 2, 2, 2, 1}, {"a", 0, 4, 4, 3}}, results(sessions))
	require.Equal(t, []result{{"a", 0, 10, 4, 3}, {"b", 0, 10, 2, 1}}, results(windows))
	send("a", 0)
	d.Watermark(time.UnixMilli(window.EndOfTime)) // the input ends
	require.Equal(t, []result{{"a", 0, 10, 4, 3}, {"b", 0, 10, 2, 1}, {"a", 10, 20, 10, 1}}, results(windows))
}

// What has no meaning by the clock is told.
func TestProcessingTimeFaults(t *testing.T) {
	in := topic.New[string, int]("in")
	for want, declare := range map[string]func(g stream.Grouped[string, int]){
		"sliding windows": func(g stream.Grouped[string, int]) { g.Window(window.Sliding(time.Second).ProcessingTime()).Count() },
		"none is late by the clock": func(g stream.Grouped[string, int]) {
			g.Window(window.Tumbling(time.Second).ProcessingTime()).Late().To(in)
		},
		"none is late by the clock,": func(g stream.Grouped[string, int]) {
			s := g.Session(window.Gap(time.Second).ProcessingTime())
			s.Count()
			s.Late().To(in)
		},
	} {
		app := stream.New("faults")
		declare(app.Stream(in).GroupByKey())
		require.ErrorContains(t, app.Validate(), want)
	}
}
