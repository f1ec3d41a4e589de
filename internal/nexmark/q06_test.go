package nexmark_test

import (
	"cmp"
	"slices"

	"github.com/thalweg/thalweg/internal/nexmark"
)

// sellerPrice is the average of a seller's last ten sales, rounded down.
type sellerPrice struct{ Seller, Average int64 }

// Query 6 averages the winning bids of the last ten auctions of each seller, in the
// order of the winning bids' times, prices and auctions.
var q6 = query[sellerPrice]{
	name: "q6",
	answer: func(events []nexmark.Event) (all []sellerPrice) {
		bySeller := map[int64][]sale{}
		for _, s := range sales(events) {
			bySeller[s.Auction.Seller] = append(bySeller[s.Auction.Seller], s)
		}
		for seller, sales := range bySeller {
			slices.SortFunc(sales, func(a, b sale) int {
				return cmp.Or(cmp.Compare(a.Bid.DateTime, b.Bid.DateTime), cmp.Compare(a.Bid.Price, b.Bid.Price), cmp.Compare(a.Auction.ID, b.Auction.ID))
			})
			last := sales[max(len(sales)-10, 0):]
			var sum int64
			for _, s := range last {
				sum += s.Bid.Price
			}
			all = append(all, sellerPrice{seller, sum / int64(len(last))})
		}
		return all
	},
	figures: func(rows []sellerPrice) []int64 {
		var sum int64
		for _, r := range rows {
			sum += r.Average
		}
		return []int64{sum}
	},
	million: []int64{10_066, 290_330_131_847},
}
