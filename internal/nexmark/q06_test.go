package nexmark_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
)

// sellerPrice is the average of a seller's last ten sales, rounded down.
type sellerPrice struct{ Seller, Average int64 }

// sold is an auction and what it brought.
type sold struct{ Time, Price, Auction, Seller int64 }

func soldItem(s sale) sold { return sold{s.Bid.DateTime, s.Bid.Price, s.Auction.ID, s.Auction.Seller} }

func (s sold) compare(o sold) int {
	return cmp.Or(cmp.Compare(s.Time, o.Time), cmp.Compare(s.Price, o.Price), cmp.Compare(s.Auction, o.Auction))
}

// history is what a seller sold, the oldest first. It is all of it: any item may still
// be taken out for a better bid, and then the eleventh last is among the last ten.
type history []sold

func (h history) add(s sold) history {
	at, _ := slices.BinarySearchFunc(h, s, sold.compare)
	return slices.Concat(h[:at], history{s}, h[at:])
}

func (h history) sub(s sold) history {
	at, _ := slices.BinarySearchFunc(h, s, sold.compare)
	return slices.Concat(h[:at], h[at+1:])
}

// average is that of the last ten prices.
func (h history) average() int64 {
	last := h[max(len(h)-10, 0):]
	var sum int64
	for _, s := range last {
		sum += s.Price
	}
	return sum / int64(len(last))
}

var sellerPrices = topic.New[int64, int64]("q6-seller-prices").Partitions(2)

// Query 6 averages the winning bids of the last ten auctions of each seller, in the
// order of the winning bids' times, prices and auctions.
var q6 = query[sellerPrice]{
	name: "q6",
	pipeline: func(events input) {
		winners(events, "q6").
			Map(soldItem).
			GroupBy(func(s sold) int64 { return s.Seller }).
			Aggregate(history.add, history.sub).
			As("q6-history").
			Map(history.average).
			To(sellerPrices)
	},
	rows: func(t testing.TB, n output) (all []sellerPrice) {
		for seller, average := range newest(t, n, sellerPrices) {
			all = append(all, sellerPrice{seller, average})
		}
		return all
	},
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
