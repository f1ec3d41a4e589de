package nexmark_test

import (
	"time"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

var bidsWithAuction = topic.New[int64, sale]("q20-bids-with-auction").Partitions(2).ValueCodec(codec.Struct[sale]())

// Query 20 joins every bid with its auction, where that is of category 10, whichever of
// the two comes first. An auction is remembered for ten minutes, which is longer than
// the events last.
var q20 = query[sale]{
	name: "q20",
	pipeline: func(events input) {
		offers := events.Via(bids).KeyBy(auctionOf)
		events.Via(auctions).
			Filter(func(a nexmark.Auction) bool { return a.Category == 10 }).
			KeyBy(auctionID).
			Join(offers, window.Within(10*time.Minute), sell).
			As("q20-join").
			To(bidsWithAuction)
	},
	rows: values(bidsWithAuction),
	answer: func(events []nexmark.Event) (all []sale) {
		auctions := auctionsByID(events)
		for b := range onlyBids(events) {
			if a, opened := auctions[b.Auction]; opened && a.Category == 10 {
				all = append(all, sale{a, b})
			}
		}
		return all
	},
	figures: func(rows []sale) []int64 {
		var sum int64
		for _, r := range rows {
			sum += r.Bid.Price
		}
		return []int64{sum}
	},
	million: []int64{179_230, 1_298_712_160_202},
}
