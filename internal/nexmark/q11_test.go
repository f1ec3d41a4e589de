package nexmark_test

import (
	"slices"
	"testing"
	"time"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// visit is a session of a bidder: how many bids, and from when to when, with ten
// seconds after the last.
type visit struct{ Bidder, Bids, Start, End int64 }

var visits = topic.New[window.Key[int64], int64]("q11-visits").Partitions(2)

// Query 11 counts the bids in each session of a bidder, which ends with a silence of
// more than ten seconds.
var q11 = query[visit]{
	name: "q11",
	pipeline: func(events input) {
		events.Via(bids).
			GroupBy(bidderOf).
			Session(window.Gap(10 * time.Second)).
			Count().
			As("q11-visits").
			To(visits)
	},
	rows: func(t testing.TB, n output) (all []visit) {
		for w, bids := range records(t, n, visits) {
			all = append(all, visit{w.Key, bids, w.Start.UnixMilli(), w.End.UnixMilli() + tenSeconds})
		}
		return all
	},
	answer: func(events []nexmark.Event) (all []visit) {
		times := map[int64][]int64{}
		for b := range onlyBids(events) {
			times[b.Bidder] = append(times[b.Bidder], b.DateTime)
		}
		for bidder, at := range times {
			slices.Sort(at)
			first := 0
			for i := range at {
				if i+1 == len(at) || at[i+1]-at[i] > tenSeconds {
					all = append(all, visit{bidder, int64(i + 1 - first), at[first], at[i] + tenSeconds})
					first = i + 1
				}
			}
		}
		return all
	},
	figures: func(rows []visit) []int64 {
		var longest int64
		for _, r := range rows {
			longest = max(longest, r.Bids)
		}
		return []int64{longest}
	},
	million: []int64{19_932, 3_529},
}
