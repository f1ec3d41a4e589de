package nexmark_test

import (
	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

type selected struct{ Auction, Price int64 }

var selectedBids = topic.New[int64, selected]("q2-selected").ValueCodec(codec.Struct[selected]())

// Query 2 keeps the bids for some of the auctions.
var q2 = query[selected]{
	name: "q2",
	pipeline: func(events input) {
		events.Via(bids).
			Filter(func(b nexmark.Bid) bool { return b.Auction%123 == 0 }).
			Map(func(b nexmark.Bid) selected { return selected{b.Auction, b.Price} }).
			To(selectedBids)
	},
	rows: values(selectedBids),
	answer: func(events []nexmark.Event) (all []selected) {
		for b := range onlyBids(events) {
			if b.Auction/123*123 == b.Auction {
				all = append(all, selected{b.Auction, b.Price})
			}
		}
		return all
	},
	figures: func(rows []selected) []int64 {
		var prices int64
		for _, r := range rows {
			prices += r.Price
		}
		return []int64{prices}
	},
	million: []int64{6_808, 48_809_826_455},
}
