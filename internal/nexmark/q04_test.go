package nexmark_test

import "github.com/thalweg/thalweg/internal/nexmark"

// categoryPrice is the average over the auctions of a category, rounded down.
type categoryPrice struct{ Category, Auctions, Average int64 }

// Query 4 averages the winning bids by category.
var q4 = query[categoryPrice]{
	name: "q4",
	answer: func(events []nexmark.Event) (all []categoryPrice) {
		auctions, sums := map[int64]int64{}, map[int64]int64{}
		for _, s := range sales(events) {
			auctions[s.Auction.Category]++
			sums[s.Auction.Category] += s.Bid.Price
		}
		for category, sum := range sums {
			all = append(all, categoryPrice{category, auctions[category], sum / auctions[category]})
		}
		return all
	},
	figures: func(rows []categoryPrice) []int64 {
		known := make([]int64, 4) // the figures of the first and the last category are known
		for _, r := range rows {
			switch r.Category {
			case 10:
				known[0], known[1] = r.Auctions, r.Average
			case 14:
				known[2], known[3] = r.Auctions, r.Average
			}
		}
		return known
	},
	million: []int64{5, 11_231, 29_092_573, 11_248, 29_296_690},
}
