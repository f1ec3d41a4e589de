package nexmark_test

import (
	"slices"
	"testing"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// topTen are the best bids of those added, the best first.
type topTen []nexmark.Bid

func (t topTen) add(b nexmark.Bid) topTen {
	at, _ := slices.BinarySearchFunc(t, b, compareBids)
	if at == 10 {
		return t
	}
	all := slices.Concat(t[:at], topTen{b}, t[at:])
	return all[:min(len(all), 10)]
}

// placed is a bid and its place among those for its auction, from 1 on.
type placed struct {
	Place int
	Bid   nexmark.Bid
}

var topBids = topic.New[int64, topTen]("q19-top-ten").Partitions(2).ValueCodec(codec.Struct[topTen]())

// Query 19 keeps the ten highest bids for each auction.
var q19 = query[placed]{
	name: "q19",
	pipeline: func(events input) {
		events.Via(bids).GroupBy(auctionOf).Aggregate(topTen.add).As("q19-top-ten").To(topBids)
	},
	rows: func(t testing.TB, n output) (all []placed) {
		for _, best := range newest(t, n, topBids) {
			for i, b := range best {
				all = append(all, placed{i + 1, b})
			}
		}
		return all
	},
	answer: func(events []nexmark.Event) (all []placed) {
		byAuction := map[int64][]nexmark.Bid{}
		for b := range onlyBids(events) {
			byAuction[b.Auction] = append(byAuction[b.Auction], b)
		}
		for _, bids := range byAuction {
			slices.SortFunc(bids, compareBids)
			for i, b := range bids[:min(len(bids), 10)] {
				all = append(all, placed{i + 1, b})
			}
		}
		return all
	},
	figures: func(rows []placed) []int64 {
		var sum int64
		for _, r := range rows {
			sum += r.Bid.Price
		}
		return []int64{sum}
	},
	million: []int64{441_327, 3_849_086_802_167},
}
