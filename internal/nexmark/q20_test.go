package nexmark_test

import "github.com/thalweg/thalweg/internal/nexmark"

// Query 20 joins every bid with its auction, where that is of category 10, whichever of
// the two comes first.
var q20 = query[sale]{
	name: "q20",
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
