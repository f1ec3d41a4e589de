package nexmark_test

import (
	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// euroBid is a bid in another currency.
type euroBid struct {
	Auction, Bidder int64
	Price           int64 // thousandths of a cent
	DateTime        int64
	Extra           string
}

// eurosPerThousandDollars is the rate at which prices are converted.
const eurosPerThousandDollars = 908

func inEuros(b nexmark.Bid) euroBid {
	return euroBid{b.Auction, b.Bidder, b.Price * eurosPerThousandDollars, b.DateTime, b.Extra}
}

var euroBids = topic.New[int64, euroBid]("q1-euros").Partitions(2).ValueCodec(codec.Struct[euroBid]())

// Query 1 converts the price of every bid.
var q1 = query[euroBid]{
	name: "q1",
	pipeline: func(events input) {
		events.Via(bids).Map(inEuros).To(euroBids)
	},
	rows: values(euroBids),
	answer: func(events []nexmark.Event) (all []euroBid) {
		for b := range onlyBids(events) {
			all = append(all, euroBid{b.Auction, b.Bidder, 908 * b.Price, b.DateTime, b.Extra})
		}
		return all
	},
	million: []int64{920_000},
}
