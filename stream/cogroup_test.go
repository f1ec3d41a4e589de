package stream_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// profile is what is known of a customer, from two streams.
type profile struct {
	Cents  int64
	Visits int
	Last   string
}

func (p profile) ordered(cents int64) profile {
	p.Cents += cents
	p.Last = fmt.Sprint("order of ", cents)
	return p
}

func (p profile) visited(page string) profile {
	p.Visits++
	p.Last = "visit of " + page
	return p
}

// Records of several streams change one aggregate, in the order of event time whichever
// stream they come from and however much of each is there, with a shuffle or without, and
// through a crash.
func TestCogroupTakesStreamsByEventTime(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			orders, visits := topic.New[string, int64]("orders"), topic.New[string, string]("visits").Partitions(partitions)
			out, windows := topic.New[string, profile]("out"), topic.New[window.Key[string], profile]("windows")
			sessions := topic.New[window.Key[string], profile]("sessions")
			app := stream.New("profiles").IdleAfter(-1)
			both := app.Stream(orders).KeyBy(func(int64) string { return "c" }).GroupByKey().
				Cogroup(profile.ordered).
				With(app.Stream(visits).GroupByKey(), profile.visited)
			both.Emit(window.OnUpdate).Aggregate().As("all").To(out)
			both.AggregateWindow(window.Tumbling(10 * ms)).As("windowed").To(windows)
			both.AggregateSession(window.Gap(2*ms), func(a, b profile) profile { return profile{a.Cents + b.Cents, a.Visits + b.Visits, b.Last} }).
				As("sessions").To(sessions)
			d := streamtest.New(t, app)
			for _, e := range []int64{1, 12, 25} {
				d.Input(orders).SendAt(at(e), "x", e*100)
			}
			for _, e := range []int64{3, 11, 13, 14} {
				d.Input(visits).SendAt(at(e), "c", fmt.Sprint("p", e))
			}
			d.Checkpoint()
			d.Crash()
			d.Input(visits).SendAt(at(31), "c", "p31")
			d.Input(orders).SendAt(at(30), "x", 3000)
			d.Watermark(at(100))
			want := []profile{
				{100, 0, "order of 100"}, {100, 1, "visit of p3"}, {100, 2, "visit of p11"}, {1300, 2, "order of 1200"},
				{1300, 3, "visit of p13"}, {1300, 4, "visit of p14"}, {3800, 4, "order of 2500"},
				{6800, 4, "order of 3000"}, {6800, 5, "visit of p31"},
			}
			require.Equal(t, want, d.Output(out).Values())
			require.Equal(t, []profile{{100, 1, "visit of p3"}, {1200, 3, "visit of p14"}, {2500, 0, "order of 2500"}, {3000, 1, "visit of p31"}},
				d.Output(windows).Values())
			require.Equal(t, d.Output(windows).Values(), d.Output(sessions).Values())
		})
	}
}

// A record that one of the streams' functions cannot take is dealt with as the step's policy
// has it: in a dead letter it is the value that came.
func TestCogroupDeadLetter(t *testing.T) {
	orders, visits := topic.New[string, int64]("orders"), topic.New[string, string]("visits")
	out, letters := topic.New[string, profile]("out"), topic.New[[]byte, []byte]("letters")
	app := stream.New("letters").OnError(stream.DeadLetter(letters))
	app.Stream(orders).GroupByKey().Cogroup(profile.ordered).
		With(app.Stream(visits).GroupByKey(), func(p profile, page string) profile {
			if page == "" {
				panic("no page")
			}
			return p.visited(page)
		}).Aggregate().To(out)
	d := streamtest.New(t, app)
	d.Input(visits).SendAt(at(1), "c", "home")
	d.Input(visits).SendAt(at(2), "c", "")
	d.Input(orders).SendAt(at(3), "c", 70)
	p, _ := d.Output(out).Latest("c")
	require.Equal(t, profile{70, 1, "order of 70"}, p)
	got := d.Output(letters).Records()
	require.Len(t, got, 1)
	require.Equal(t, "c", string(got[0].Key))
	require.Empty(t, got[0].Value)
	require.True(t, slices.ContainsFunc(got[0].Headers, func(h topic.Header) bool { return h.Key == stream.HeaderCause && string(h.Value) == "panic: no page" }))
}

func ExampleCogrouped() {
	orders, visits := topic.New[string, int64]("orders"), topic.New[string, string]("visits")
	app := stream.New("profiles")
	app.Stream(orders).GroupByKey().
		Cogroup(profile.ordered).
		With(app.Stream(visits).GroupByKey(), profile.visited).
		Aggregate().To(topic.New[string, profile]("profiles"))
	fmt.Println(app.Validate())
	// Output: <nil>
}
