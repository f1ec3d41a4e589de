package nexmark_test

import (
	"testing"
	"time"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

type activity struct{ Bidder, Start, Bids int64 }

var activities = topic.New[window.Key[int64], int64]("q12-activities").Partitions(2)

// Query 12 counts the bids of each bidder in ten seconds. The benchmark takes the
// seconds of the clock on the wall; the answer is that of its twin in event time.
var q12 = query[activity]{
	name: "q12",
	pipeline: func(events input) {
		events.Via(bids).
			GroupBy(bidderOf).
			Window(window.Tumbling(10 * time.Second)).
			Count().
			As("q12-activities").
			To(activities)
	},
	rows: func(t *testing.T, n output) (all []activity) {
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
		for a, n := range counts {
			a.Bids = n
			all = append(all, a)
		}
		return all
	},
	million: []int64{27_463},
}
