package stream_test

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// Days of a time zone hold what their clock says, also where they have 23 and 25
// hours, over a restart, and a month behind them takes their results: it closes
// when no day that is still open lies in it.
func TestCalendarWindows(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	in := topic.New[string, int64]("in")
	days, months := topic.New[window.Key[string], int64]("days"), topic.New[window.Key[string], int64]("months")
	app := stream.New("calendar")
	perDay := app.Stream(in).GroupByKey().Window(window.Days(1, berlin).Grace(time.Hour)).Count()
	perDay.To(days)
	perDay.ToStream().GroupByKV(func(k window.Key[string], _ int64) string { return k.Key }).
		Window(window.Months(1, berlin)).Reduce(func(a, b int64) int64 { return a + b }).To(months)
	d := streamtest.New(t, app)
	send := d.Input(in)
	local := func(month time.Month, day, hour int) time.Time {
		return time.Date(2026, month, day, hour, 0, 0, 0, berlin)
	}
	hourly := func(from, to time.Time) {
		for at := from; at.Before(to); at = at.Add(time.Hour) {
			send.SendAt(at, "k", 1)
		}
	}
	hourly(local(3, 28, 0), local(3, 29, 12))
	d.Crash()
	hourly(local(3, 29, 12), local(4, 1, 0))
	hourly(local(10, 25, 0), local(10, 26, 0))
	d.Watermark(local(12, 1, 0))

	var got []string
	for _, r := range d.Output(days).Records() {
		got = append(got, r.Key.Start.In(berlin).Format("01-02 15:04 ")+r.Key.End.In(berlin).Format("01-02 15:04 ")+time.Duration(r.Value).String())
	}
	require.Equal(t, []string{
		"03-28 00:00 03-29 00:00 24ns", "03-29 00:00 03-30 00:00 23ns", "03-30 00:00 03-31 00:00 24ns",
		"03-31 00:00 04-01 00:00 24ns", "10-25 00:00 10-26 00:00 25ns",
	}, got)
	got = nil
	for _, r := range d.Output(months).Records() {
		got = append(got, r.Key.Start.In(berlin).Format("01-02 15:04 ")+r.Key.End.In(berlin).Format("01-02 15:04 ")+time.Duration(r.Value).String())
	}
	require.Equal(t, []string{"03-01 00:00 04-01 00:00 95ns", "10-01 00:00 11-01 00:00 25ns"}, got)
}

// What an aggregation passes on is the start of the oldest window that can still give
// a result: a window behind it closes as soon as that has left it, not before.
func TestWindowBehindAWindow(t *testing.T) {
	in, out := topic.New[string, int64]("in"), topic.New[window.Key[string], int64]("out")
	app := stream.New("behind")
	app.Stream(in).GroupByKey().Window(window.Tumbling(10 * ms)).Count().ToStream().
		GroupByKV(func(k window.Key[string], _ int64) string { return k.Key }).
		Window(window.Tumbling(20 * ms)).Reduce(func(a, b int64) int64 { return a + b }).To(out)
	d := streamtest.New(t, app)
	send := d.Input(in)
	var seen int
	for _, row := range []struct {
		time int64
		out  []string
	}{
		{9, nil},
		{19, nil},
		{20, []string{"k [0,20)=2 @19"}},
		{39, nil},
		{40, []string{"k [20,40)=2 @39"}},
	} {
		send.SendAt(at(row.time), "k", 1)
		d.Checkpoint()
		require.Equal(t, row.out, counts(since(&seen, d.Output(out).Records())), "at %d", row.time)
	}
}

// What windows cannot be is a fault with its place.
func TestWindowFaults(t *testing.T) {
	for _, c := range []struct {
		spec window.Spec
		emit window.Emit
		want string
	}{
		{window.Sliding(time.Minute).ProcessingTime(), window.OnClose, "sliding windows go by event time, not sliding 1m0s in processing time"},
		{window.Days(1, time.Local), window.OnClose, "time.Local is another zone on another machine"},
		{window.Tumbling(time.Minute), window.Early(0), "the period is 0s and must be positive"},
	} {
		app := stream.New("faults")
		app.Stream(topic.New[string, string]("in")).GroupByKey().Window(c.spec).Emit(c.emit).Count()
		require.ErrorContains(t, app.Validate(), c.want)
		require.ErrorContains(t, app.Validate(), "calendar_test.go:")
	}
}
