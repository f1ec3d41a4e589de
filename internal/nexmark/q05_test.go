package nexmark_test

import (
	"iter"
	"slices"
	"time"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// hotItem is an auction and how many bids it had in ten seconds.
type hotItem struct{ Start, Auction, Bids int64 }

// hottest are the auctions with the most bids of those added.
type hottest []hotItem

func (h hottest) add(i hotItem) hottest {
	switch {
	case len(h) == 0 || i.Bids > h[0].Bids:
		return hottest{i}
	case i.Bids == h[0].Bids:
		return append(slices.Clone(h), i)
	}
	return h
}

func (h hottest) all() iter.Seq[hotItem] { return slices.Values(h) }

var hotItems = topic.New[window.Key[int64], hotItem]("q5-hot-items").ValueCodec(codec.Struct[hotItem]())

// Query 5 finds the auctions with the most bids in the last ten seconds, every two
// seconds. Those that are equal are all in the answer.
var q5 = query[hotItem]{
	name: "q5",
	pipeline: func(events input) {
		const size, every = 10 * time.Second, 2 * time.Second
		events.Via(bids).
			GroupBy(auctionOf).
			Window(window.Hopping(size, every)).
			Count().
			As("q5-counts").
			ToStream().
			MapKV(func(w window.Key[int64], bids int64) hotItem { return hotItem{w.Start.UnixMilli(), w.Key, bids} }).
			// The counts of one window belong to its last moment, and one window ends every two seconds.
			EventTime(func(i hotItem) time.Time { return time.UnixMilli(i.Start).Add(size - time.Millisecond) }).
			GroupBy(func(i hotItem) int64 { return i.Start }).
			Window(window.Tumbling(every)).
			Aggregate(hottest.add).
			As("q5-hottest").
			ToStream().
			FlatMap(hottest.all).
			To(hotItems)
	},
	rows: values(hotItems),
	answer: func(events []nexmark.Event) (all []hotItem) {
		counts := map[int64]map[int64]int64{} // by start, by auction
		for b := range onlyBids(events) {
			for start := windowStart(b.DateTime, 2000); start > b.DateTime-tenSeconds; start -= 2000 {
				if counts[start] == nil {
					counts[start] = map[int64]int64{}
				}
				counts[start][b.Auction]++
			}
		}
		for start, byAuction := range counts {
			var most int64
			for _, n := range byAuction {
				most = max(most, n)
			}
			for auction, n := range byAuction {
				if n == most {
					all = append(all, hotItem{start, auction, n})
				}
			}
		}
		return all
	},
	figures: func(rows []hotItem) []int64 {
		windows := map[int64]bool{}
		var bids int64
		for _, r := range rows {
			windows[r.Start] = true
			bids += r.Bids
		}
		return []int64{int64(len(windows)), bids}
	},
	million: []int64{60, 54, 49_472},
}
