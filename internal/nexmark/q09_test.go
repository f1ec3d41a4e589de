package nexmark_test

import "github.com/thalweg/thalweg/internal/nexmark"

// sale is an auction with the bid that won it.
type sale struct {
	Auction nexmark.Auction
	Bid     nexmark.Bid
}

// sales are the auctions that had a bid while they were open, both ends included, each
// with the highest bid, and among those with the earliest.
func sales(events []nexmark.Event) (all []sale) {
	auctions := auctionsByID(events)
	won := map[int64]nexmark.Bid{}
	for b := range onlyBids(events) {
		a, known := auctions[b.Auction]
		if !known || b.DateTime < a.DateTime || b.DateTime > a.Expires {
			continue
		}
		if best, ok := won[b.Auction]; !ok || compareBids(b, best) < 0 {
			won[b.Auction] = b
		}
	}
	for id, b := range won {
		all = append(all, sale{auctions[id], b})
	}
	return all
}

// Query 9 finds the winning bid of each auction.
var q9 = query[sale]{
	name:   "q9",
	answer: sales,
	figures: func(rows []sale) []int64 {
		var sum int64
		for _, r := range rows {
			sum += r.Bid.Price
		}
		return []int64{sum}
	},
	million: []int64{55_855, 1_619_372_117_098},
}
