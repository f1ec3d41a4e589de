package nexmark_test

import (
	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// passed is a bid without what only later queries look at.
type passed struct {
	Auction, Bidder, Price, DateTime int64
	Extra                            string
}

func pass(b nexmark.Bid) passed { return passed{b.Auction, b.Bidder, b.Price, b.DateTime, b.Extra} }

var passedBids = topic.New[int64, passed]("q0-bids").Partitions(2).ValueCodec(codec.Struct[passed]())

// Query 0 passes every bid through: what the log and the codecs cost.
var q0 = query[passed]{
	name: "q0",
	pipeline: func(events input) {
		events.Via(bids).Map(pass).To(passedBids)
	},
	rows: values(passedBids),
	answer: func(events []nexmark.Event) (all []passed) {
		for b := range onlyBids(events) {
			all = append(all, pass(b))
		}
		return all
	},
	million: []int64{920_000},
}
