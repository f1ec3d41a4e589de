package nexmark_test

import (
	"testing"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// categoryPrice is the average over the auctions of a category, rounded down.
type categoryPrice struct{ Category, Auctions, Average int64 }

// revenue is what the auctions of a category brought so far.
type revenue struct{ Auctions, Sum int64 }

func (r revenue) add(s sale) revenue { return revenue{r.Auctions + 1, r.Sum + s.Bid.Price} }
func (r revenue) sub(s sale) revenue { return revenue{r.Auctions - 1, r.Sum - s.Bid.Price} }

var revenues = topic.New[int64, revenue]("q4-revenues").ValueCodec(codec.Struct[revenue]())

// Query 4 averages the winning bids by category. When an auction gets a better bid, the
// one before is taken out of its category first.
var q4 = query[categoryPrice]{
	name: "q4",
	pipeline: func(events input) {
		winners(events, "q4").
			GroupBy(func(s sale) int64 { return s.Auction.Category }).
			Aggregate(revenue.add, revenue.sub).
			As("q4-revenues").
			To(revenues)
	},
	rows: func(t testing.TB, n output) (all []categoryPrice) {
		for category, r := range newest(t, n, revenues) {
			all = append(all, categoryPrice{category, r.Auctions, r.Sum / r.Auctions})
		}
		return all
	},
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
