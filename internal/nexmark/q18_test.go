package nexmark_test

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// bidding is what a bidder wants: an auction.
type bidding struct{ Bidder, Auction int64 }

func biddingOf(b nexmark.Bid) bidding { return bidding{b.Bidder, b.Auction} }

// later is the later of two bids, the better one of those in the same ms.
func later(a, b nexmark.Bid) nexmark.Bid {
	if cmp.Or(cmp.Compare(b.DateTime, a.DateTime), compareBids(a, b)) <= 0 {
		return a
	}
	return b
}

var lastBids = topic.New[bidding, nexmark.Bid]("q18-last-bids").
	Partitions(2).
	KeyCodec(codec.Struct[bidding]()).
	ValueCodec(codec.Struct[nexmark.Bid]())

// Query 18 keeps the last bid of each bidder for each auction.
var q18 = query[nexmark.Bid]{
	name: "q18",
	pipeline: func(events input) {
		events.Via(bids).GroupBy(biddingOf).Reduce(later).As("q18-last").To(lastBids)
	},
	rows: func(t testing.TB, n output) []nexmark.Bid {
		return slices.Collect(maps.Values(newest(t, n, lastBids)))
	},
	answer: func(events []nexmark.Event) (all []nexmark.Bid) {
		last := map[bidding]nexmark.Bid{}
		for b := range onlyBids(events) { // in the order of their times
			before, ok := last[biddingOf(b)]
			if !ok || b.DateTime > before.DateTime || compareBids(b, before) < 0 {
				last[biddingOf(b)] = b
			}
		}
		return slices.Collect(maps.Values(last))
	},
	million: []int64{293_548},
}
