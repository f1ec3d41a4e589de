package nexmark_test

import (
	"time"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// tally counts in total and by rank of price.
type tally struct {
	Total int64
	Rank  [ranks]int64
}

func (t tally) plus(o tally) tally {
	t.Total += o.Total
	for r := range t.Rank {
		t.Rank[r] += o.Rank[r]
	}
	return t
}

// addBid counts a bid.
func (t tally) addBid(b nexmark.Bid) tally {
	t.Total++
	t.Rank[rankOf(b.Price)]++
	return t
}

// once is t with one in place of every higher number: who is behind the bids counts
// once for each rank, however many the bids.
func (t tally) once() tally {
	t.Total = min(t.Total, 1)
	for r := range t.Rank {
		t.Rank[r] = min(t.Rank[r], 1)
	}
	return t
}

// traffic is what happened in a day: bids, distinct bidders, distinct auctions.
type traffic struct {
	Day                     int64 // its start, in ms
	Bids, Bidders, Auctions tally
}

func (t traffic) plus(o traffic) traffic {
	return traffic{o.Day, t.Bids.plus(o.Bids), t.Bidders.plus(o.Bidders), t.Auctions.plus(o.Auctions)}
}

var dailyTraffic = topic.New[window.Key[int64], traffic]("q15-traffic").ValueCodec(codec.Struct[traffic]())

// Query 15 counts, by day, the bids, the distinct bidders and the distinct auctions, in
// total and by rank of price. The distinct ones are counted in two steps: what each did,
// then how many did it.
var q15 = query[traffic]{
	name: "q15",
	pipeline: func(events input) {
		day := window.Tumbling(24 * time.Hour)
		byBidder := events.Via(bids).GroupBy(bidderOf).Window(day).Aggregate(tally.addBid).As("q15-bidders").ToStream().
			MapKV(func(w window.Key[int64], bids tally) traffic {
				return traffic{Day: w.Start.UnixMilli(), Bids: bids, Bidders: bids.once()}
			})
		byAuction := events.Via(bids).GroupBy(auctionOf).Window(day).Aggregate(tally.addBid).As("q15-auctions").ToStream().
			MapKV(func(w window.Key[int64], bids tally) traffic {
				return traffic{Day: w.Start.UnixMilli(), Auctions: bids.once()}
			})
		byBidder.Merge(byAuction).
			GroupBy(func(t traffic) int64 { return t.Day }).
			Window(day).
			Reduce(traffic.plus).
			As("q15-traffic").
			To(dailyTraffic)
	},
	rows: values(dailyTraffic),
	answer: func(events []nexmark.Event) (all []traffic) {
		for _, t := range trafficBy(events, func(b nexmark.Bid) int64 { return windowStart(b.DateTime, oneDay) }) {
			all = append(all, t)
		}
		return all
	},
	figures: func(rows []traffic) []int64 {
		day := rows[0]
		return []int64{
			day.Bids.Total, day.Bids.Rank[0], day.Bids.Rank[1], day.Bids.Rank[2],
			day.Bidders.Total, day.Bidders.Rank[0], day.Bidders.Rank[1], day.Bidders.Rank[2],
			day.Auctions.Total, day.Auctions.Rank[0], day.Auctions.Rank[1], day.Auctions.Rank[2],
		}
	},
	million: []int64{
		1,
		920_000, 306_712, 306_831, 306_457,
		19_932, 19_336, 19_395, 19_363,
		59_978, 55_359, 55_287, 55_424,
	},
}

// trafficBy defines traffic, by the day and whatever else is in the key.
func trafficBy[K comparable](events []nexmark.Event, key func(nexmark.Bid) K) map[K]traffic {
	type seen struct {
		key   K
		id    int64
		total bool // of any rank
		rank  int
	}
	bidders, auctions := map[seen]bool{}, map[seen]bool{}
	count := func(t *tally, of map[seen]bool, k K, id int64, rank int) {
		if total := (seen{key: k, id: id, total: true}); !of[total] {
			of[total] = true
			t.Total++
		}
		if ranked := (seen{key: k, id: id, rank: rank}); !of[ranked] {
			of[ranked] = true
			t.Rank[rank]++
		}
	}
	all := map[K]traffic{}
	for b := range onlyBids(events) {
		k, rank := key(b), rankOf(b.Price)
		t := all[k]
		t.Day = windowStart(b.DateTime, oneDay)
		t.Bids.Total++
		t.Bids.Rank[rank]++
		count(&t.Bidders, bidders, k, b.Bidder, rank)
		count(&t.Auctions, auctions, k, b.Auction, rank)
		all[k] = t
	}
	return all
}
