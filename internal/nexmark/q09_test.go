package nexmark_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// sale is an auction with the bid that won it.
type sale struct {
	Auction nexmark.Auction
	Bid     nexmark.Bid
}

func sell(a nexmark.Auction, b nexmark.Bid) sale { return sale{a, b} }

// inTime tells whether the bid came before the auction closed.
func (s sale) inTime() bool { return s.Bid.DateTime <= s.Auction.Expires }

// better is the sale with the better bid.
func better(a, b sale) sale {
	if compareBids(a.Bid, b.Bid) <= 0 {
		return a
	}
	return b
}

// longestAuction is more than any auction is open at 400 events a second or more.
const longestAuction = 10 * time.Second

// winners is the table of the best bids, by auction. The names of its steps begin with
// that of the query.
func winners(events input, query string) stream.Table[int64, sale] {
	offers := events.Via(bids).KeyBy(auctionOf)
	return events.Via(auctions).
		KeyBy(auctionID).
		Join(offers, window.Between(0, longestAuction), sell).
		As(query + "-offers").
		Filter(sale.inTime).
		GroupByKey().
		Reduce(better).
		As(query + "-winners")
}

var winningBids = topic.New[int64, sale]("q9-winning-bids").Partitions(2).ValueCodec(codec.Struct[sale]())

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
	name:     "q9",
	pipeline: func(events input) { winners(events, "q9").To(winningBids) },
	rows: func(t testing.TB, n output) []sale {
		return slices.Collect(maps.Values(newest(t, n, winningBids)))
	},
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
