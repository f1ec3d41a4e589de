package nexmark_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

type activity struct{ Bidder, Start, Bids int64 }

var activities = topic.New[window.Key[int64], int64]("q12-activities").Partitions(2)

// Query 12 counts the bids of each bidder in ten seconds. The benchmark takes the
// seconds of the clock on the wall, as TestQ12ByTheClock does; the answer here is that of its
// twin in event time.
var q12 = query[activity]{
	name: "q12",
	pipeline: func(events input) {
		activitiesIn(events, window.Tumbling(10*time.Second)).To(activities)
	},
	rows: func(t testing.TB, n output) (all []activity) {
		for w, bids := range records(t, n, activities) {
			all = append(all, activity{w.Key, w.Start.UnixMilli(), bids})
		}
		return all
	},
	answer: func(events []nexmark.Event) (all []activity) {
		counts := map[activity]int64{}
		for b := range onlyBids(events) {
			counts[activity{Bidder: b.Bidder, Start: windowStart(b.DateTime, tenSeconds)}]++
		}
		return counted(counts)
	},
	million: []int64{27_463},
}

func activitiesIn(events input, spec window.Spec) stream.Table[window.Key[int64], int64] {
	return events.Via(bids).GroupBy(bidderOf).Window(spec).Count().As("q12-activities")
}

// counted are activities with the number of their bids.
func counted(counts map[activity]int64) (all []activity) {
	for a, n := range counts {
		a.Bids = n
		all = append(all, a)
	}
	return all
}

// By the clock a bid counts in the seconds in which it is processed: the clock here runs at twice
// the pace of the events, and stands still while some of them are, so that it is known which seconds
// those are. Windows that are open go on after a crash.
func TestQ12ByTheClock(t *testing.T) {
	const n, together = 6000, 50
	all := collect(nexmark.Options{EventsPerSecond: 400}, n)
	app := stream.New("q12").IdleAfter(-1)
	activitiesIn(input{eventStream: app.Stream(events), app: app}, window.Tumbling(10*time.Second).ProcessingTime()).To(activities)
	d := streamtest.New(t, app)
	want := map[activity]int64{}
	for i := 0; i < n; i += together {
		some := all[i : i+together]
		for j, e := range some {
			d.Input(events).SendAt(e.Time(), int64(i+j), e)
		}
		d.Process()
		for b := range onlyBids(some) {
			want[activity{Bidder: b.Bidder, Start: windowStart(d.Now().UnixMilli(), tenSeconds)}]++
		}
		if i%(n/4) == 0 {
			d.Checkpoint() // what is done again would be done at another time
			d.Crash()
		}
		d.Advance(2 * some[together-1].Time().Sub(some[0].Time()))
	}
	d.Advance(10 * time.Second)
	d.Checkpoint()
	var got []activity
	starts := map[int64]bool{}
	for _, r := range d.Output(activities).Records() {
		got = append(got, activity{r.Key.Key, r.Key.Start.UnixMilli(), r.Value})
		starts[r.Key.Start.UnixMilli()] = true
	}
	require.ElementsMatch(t, counted(want), got)
	require.Greater(t, len(starts), 2)
}
