package nexmark_test

import (
	"testing"
	"time"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// prices are the bids for an auction.
type prices struct {
	Bids          tally
	Min, Max, Sum int64
}

func (p prices) add(b nexmark.Bid) prices {
	if p.Bids.Total == 0 {
		p.Min = b.Price
	}
	return prices{p.Bids.addBid(b), min(p.Min, b.Price), max(p.Max, b.Price), p.Sum + b.Price}
}

// priceReport are the prices of an auction in a day, with their average, rounded down.
type priceReport struct {
	Auction, Day int64
	Prices       prices
	Average      int64
}

var dailyPrices = topic.New[window.Key[int64], prices]("q17-prices").Partitions(2).ValueCodec(codec.Struct[prices]())

// Query 17 keeps the statistics of each auction by day.
var q17 = query[priceReport]{
	name: "q17",
	pipeline: func(events input) {
		events.Via(bids).
			GroupBy(auctionOf).
			Window(window.Tumbling(24 * time.Hour)).
			Aggregate(prices.add).
			As("q17-prices").
			To(dailyPrices)
	},
	rows: func(t testing.TB, n output) (all []priceReport) {
		for w, p := range records(t, n, dailyPrices) {
			all = append(all, priceReport{w.Key, w.Start.UnixMilli(), p, p.Sum / p.Bids.Total})
		}
		return all
	},
	answer: func(events []nexmark.Event) (all []priceReport) {
		type auctionDay struct{ auction, day int64 }
		bids := map[auctionDay][]int64{}
		for b := range onlyBids(events) {
			k := auctionDay{b.Auction, windowStart(b.DateTime, oneDay)}
			bids[k] = append(bids[k], b.Price)
		}
		for k, all17 := range bids {
			r := priceReport{Auction: k.auction, Day: k.day, Prices: prices{Min: all17[0]}}
			for _, price := range all17 {
				r.Prices.Bids.Total++
				r.Prices.Bids.Rank[rankOf(price)]++
				r.Prices.Min = min(r.Prices.Min, price)
				r.Prices.Max = max(r.Prices.Max, price)
				r.Prices.Sum += price
			}
			r.Average = r.Prices.Sum / int64(len(all17))
			all = append(all, r)
		}
		return all
	},
	million: []int64{59_978},
}
