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

// tally counts values in a map that it changes in place.
func tally(m map[string]int, v string) map[string]int {
	if m == nil {
		m = make(map[string]int)
	}
	m[v]++
	return m
}

// A row that goes into a group is what it was then, also when its aggregation goes on
// to change the map in it, without a shuffle and with one, and in the rows of a join.
func TestRowsInGroupsDoNotChange(t *testing.T) {
	in, marks := topic.New[string, string]("in"), topic.New[string, string]("marks")
	same, other, joined := topic.New[string, []int]("same"), topic.New[string, []int]("other"), topic.New[string, int]("joined")
	app := stream.New("rows")
	tallies := app.Stream(in).GroupByKey().Emit(window.OnUpdate).Aggregate(tally).As("tallies").ToStream()
	keep := func(all []map[string]int, m map[string]int) []map[string]int { return append(all, m) }
	sizes := func(all []map[string]int) (n []int) {
		for _, m := range all {
			n = append(n, len(m))
		}
		return n
	}
	tallies.GroupByKey().Aggregate(keep).As("kept").ToStream().Map(sizes).To(same)
	tallies.GroupByKV(func(k string, _ map[string]int) string { return "by " + k }).Aggregate(keep).As("shuffled").ToStream().Map(sizes).To(other)
	tallies.Join(app.Stream(marks), window.Within(0), func(m map[string]int, _ string) int { return len(m) }).As("joined").To(joined)
	d := streamtest.New(t, app)
	for i, v := range []string{"a", "b", "c"} {
		d.Input(in).SendAt(at(int64(i)), "k", v)
	}
	got, _ := d.Output(same).Latest("k")
	require.Equal(t, []int{1, 2, 3}, got)
	got, _ = d.Output(other).Latest("by k")
	require.Equal(t, []int{1, 2, 3}, got)
	d.Process()
	d.Input(marks).SendAt(at(2), "k", "")
	require.Equal(t, []int{3}, d.Output(joined).Values())
	d.Input(in).SendAt(at(2), "k", "d")
	d.Input(marks).SendAt(at(2), "k", "")
	require.Equal(t, []int{3, 4, 3, 4}, d.Output(joined).Values())
}

// The same holds for windows and sessions that give results before they close.
func TestResultsInGroupsDoNotChange(t *testing.T) {
	in := topic.New[string, string]("in")
	windows, sessions := topic.New[string, []int]("windows"), topic.New[string, []int]("sessions")
	keep := func(all []map[string]int, m map[string]int) []map[string]int { return append(all, m) }
	sizes := func(all []map[string]int) (n []int) {
		for _, m := range all {
			n = append(n, len(m))
		}
		return n
	}
	merge := func(a, b map[string]int) map[string]int { panic("nothing to merge") }
	key := func(k window.Key[string], _ map[string]int) string { return k.Key }
	for _, emit := range []window.Emit{window.OnUpdate, window.Every(time.Second), window.Early(time.Second), window.OnClose.LateUpdates()} {
		app := stream.New("results").IdleAfter(-1)
		g := app.Stream(in).GroupByKey()
		g.Window(window.Tumbling(10 * ms).Grace(100 * ms)).Emit(emit).Aggregate(tally).As("w").ToStream().
			GroupByKV(key).Aggregate(keep).As("ws").ToStream().Map(sizes).To(windows)
		g.Session(window.Gap(10*ms).Grace(100*ms)).Emit(emit).Aggregate(tally, merge).As("s").ToStream().
			GroupByKV(key).Aggregate(keep).As("ss").ToStream().Map(sizes).To(sessions)
		d := streamtest.New(t, app)
		d.Input(in).SendAt(at(0), "k", "a")
		d.Process()
		if emit == window.OnClose.LateUpdates() {
			d.Input(in).SendAt(at(50), "other", "x")
		}
		d.Advance(time.Second)
		d.Input(in).SendAt(at(0), "k", "b")
		d.Advance(time.Second)
		for _, out := range []topic.Topic[string, []int]{windows, sessions} {
			got, _ := d.Output(out).Latest("k")
			require.Equal(t, []int{1, 2}, got, "%v: %s", emit, out.Name())
		}
	}
}
