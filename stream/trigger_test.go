package stream_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

func appended(all []int, v int) []int {
	if v == 13 {
		panic("an unlucky number")
	}
	return append(all, v)
}

// The window of a key gives a result when its trigger says so, with all records since the last one,
// or with Keep all records; and what it has not given yet survives crashes.
func TestTriggers(t *testing.T) {
	type step struct {
		key  string // empty moves the clock by a second
		time int64
		v    int
		want string
	}
	tick := func(want string) step { return step{want: want} }
	big := window.Until(func(v int) bool { return v >= 100 })
	for _, c := range []struct {
		name  string
		put   func(g stream.Grouped[string, int]) stream.Triggered[string, int]
		steps []step
		last  string // when the input ends
	}{
		{"count", func(g stream.Grouped[string, int]) stream.Triggered[string, int] { return g.Trigger(window.Count(3)) },
			[]step{{"a", 5, 1, ""}, {"b", 6, 2, ""}, {"a", 1, 3, ""}, {"a", 4, 4, "a [1 3 4] @6"}, {"a", 7, 5, ""}},
			"a [5] @7, b [2] @7"},
		{"count, kept", func(g stream.Grouped[string, int]) stream.Triggered[string, int] {
			return g.Trigger(window.Count(2).Keep())
		}, []step{{"a", 1, 1, ""}, {"a", 2, 2, "a [1 2] @2"}, {"a", 3, 3, ""}, {"a", 4, 4, "a [1 2 3 4] @4"}}, ""},
		{"after", func(g stream.Grouped[string, int]) stream.Triggered[string, int] {
			return g.Trigger(window.After(10 * ms))
		},
			[]step{{"a", 5, 1, ""}, {"a", 2, 2, ""}, {"b", 11, 3, ""}, {"b", 12, 4, "a [1 2] @12"}, {"a", 1, 5, "a [5] @12"}, {"b", 21, 6, "b [3 4] @21"}},
			"b [6] @31"},
		{"after wall", func(g stream.Grouped[string, int]) stream.Triggered[string, int] {
			return g.Trigger(window.AfterWall(2 * time.Second))
		}, []step{{"a", 5, 1, ""}, tick(""), {"b", 7, 2, ""}, {"a", 6, 3, ""}, tick("a [1 3] @7"), tick("b [2] @7"), {"a", 1, 4, ""}}, "a [4] @7"},
		{"until, or count or after", func(g stream.Grouped[string, int]) stream.Triggered[string, int] {
			return g.TriggerBy(big.Or(window.Count(3)).Or(window.After(100 * ms)))
		}, []step{{"a", 1, 1, ""}, {"a", 2, 100, "a [1 100] @2"}, {"a", 3, 2, ""}, {"b", 4, 2, ""}, {"a", 5, 3, ""}, {"a", 6, 4, "a [2 3 4] @6"}, {"a", 104, 5, "b [2] @104"}},
			"a [5] @204"},
		{"a failure", func(g stream.Grouped[string, int]) stream.Triggered[string, int] { return g.Trigger(window.Count(2)) },
			[]step{{"a", 1, 13, ""}, {"a", 2, 1, ""}, {"a", 3, 13, ""}, {"a", 4, 2, "a [1 2] @4"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, out := topic.New[string, int]("in"), topic.New[string, []int]("out")
			app := stream.New("triggers").IdleAfter(-1).OnError(stream.Skip())
			c.put(app.Stream(in).GroupByKey()).Aggregate(appended).To(out)
			d := streamtest.New(t, app)
			seen := 0
			results := func() (text string) {
				records := d.Output(out).Records()
				for i, r := range records[seen:] {
					if i > 0 {
						text += ", "
					}
					text += fmt.Sprint(r.Key, " ", r.Value, " @", r.Time.UnixMilli())
				}
				seen = len(records)
				return text
			}
			for i, s := range c.steps {
				if s.key == "" {
					d.Advance(time.Second)
				} else {
					d.Input(in).SendAt(at(s.time), s.key, s.v)
				}
				require.Equal(t, s.want, results(), "step %d", i+1)
				d.Crash()
			}
			d.Watermark(time.UnixMilli(window.EndOfTime))
			require.Equal(t, c.last, results())
		})
	}
}

// Results of a trigger are not late for windows behind it, and do not change there.
func TestTriggersBeforeWindows(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[window.Key[string], []int]("out")
	app := stream.New("before").IdleAfter(-1)
	app.Stream(in).GroupByKey().Trigger(window.Count(2).Keep()).Aggregate(appended).As("kept").
		GroupByKey().Window(window.Tumbling(10 * ms)).Aggregate(func(sizes []int, all []int) []int { return append(sizes, len(all)) }).To(out)
	d := streamtest.New(t, app)
	for i, r := range []struct {
		key  string
		time int64
	}{{"a", 1}, {"b", 12}, {"a", 2}, {"b", 13}, {"a", 3}, {"a", 4}, {"a", 30}, {"a", 40}} {
		d.Input(in).SendAt(at(r.time), r.key, i)
	}
	got := map[string][]int{}
	for _, r := range d.Output(out).Records() {
		got[fmt.Sprint(r.Key.Key, r.Key.Start.UnixMilli())] = r.Value
	}
	require.Equal(t, map[string][]int{"a10": {2, 4}, "b10": {2}}, got)
	for _, task := range d.Status().Tasks {
		require.Zero(t, task.Late)
	}
}

func TestTriggerFaults(t *testing.T) {
	app := stream.New("faults")
	g := app.Stream(topic.New[string, int]("in")).GroupByKey()
	g.Trigger(window.Trigger{}).Count().As("a").To(topic.New[string, int64]("a"))
	g.TriggerBy(window.Until[int](nil)).Count().As("b").To(topic.New[string, int64]("b"))
	err := app.Validate()
	require.ErrorContains(t, err, "it never gives a result")
	require.ErrorContains(t, err, "the function that decides is nil")
	require.True(t, errors.As(err, new(stream.Fault)))
}

// Windows of triggers, and windows with results to come, go with their keys to another number of
// tasks.
func TestTriggersMoveToOtherTasks(t *testing.T) {
	in := topic.New[string, int]("in")
	fired, ticked := topic.New[string, int64]("fired"), topic.New[window.Key[string], int64]("ticked")
	app := func(tasks int) *stream.Topology {
		app := stream.New("moves").IdleAfter(-1).Tasks(tasks)
		g := app.Stream(in).GroupByKV(func(k string, _ int) string { return k })
		g.Trigger(window.Count(2).Or(window.After(time.Second))).Count().As("pairs").To(fired)
		g.Window(window.Tumbling(10 * time.Second)).Emit(window.Every(time.Minute)).Count().As("windows").To(ticked)
		return app
	}
	d := streamtest.New(t, app(2))
	for i := range 20 {
		d.Input(in).SendAt(at(0), fmt.Sprint("k", i), 1)
	}
	d.Checkpoint()
	d.Redeploy(app(3))
	for i := range 10 {
		d.Input(in).SendAt(at(0), fmt.Sprint("k", i), 1)
	}
	require.Len(t, d.Output(fired).Records(), 10)
	d.Advance(time.Minute)
	require.Len(t, d.Output(ticked).Records(), 20)
	d.Watermark(at(1000))
	records := d.Output(fired).Records()
	require.Len(t, records, 20)
	total := int64(0)
	for _, r := range records {
		total += r.Value
	}
	require.EqualValues(t, 30, total)
}
