package nexmark_test

import (
	"strings"
	"time"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// timedBid is a bid with the part of the day in which it was made, and how many times
// its filler has the letter c.
type timedBid struct {
	Auction, Bidder int64
	Price           int64 // thousandths of a cent, converted
	PartOfDay       string
	DateTime        int64
	Extra           string
	Cs              int64
}

// time14 computes a row from a bid: the query's own function.
func time14(b nexmark.Bid) timedBid {
	return timedBid{
		b.Auction, b.Bidder, b.Price * eurosPerThousandDollars, partOfDay(time.UnixMilli(b.DateTime).UTC().Hour()),
		b.DateTime, b.Extra, int64(strings.Count(b.Extra, "c")),
	}
}

func partOfDay(hour int) string {
	switch {
	case hour >= 8 && hour <= 18:
		return "day"
	case hour <= 6 || hour >= 20:
		return "night"
	default:
		return "other"
	}
}

func fairPrice(b timedBid) bool { return b.Price > 1_000_000_000 && b.Price < 50_000_000_000 }

var timedBids = topic.New[int64, timedBid]("q14-timed-bids").Partitions(2).ValueCodec(codec.Struct[timedBid]())

// Query 14 converts prices, keeps those that are neither low nor high, and adds what a
// function of the user computes.
var q14 = query[timedBid]{
	name: "q14",
	pipeline: func(events input) {
		events.Via(bids).Map(time14).Filter(fairPrice).To(timedBids)
	},
	rows: values(timedBids),
	answer: func(events []nexmark.Event) (all []timedBid) {
		for b := range onlyBids(events) {
			milli := 908 * b.Price
			if milli <= 1_000_000*1000 || milli >= 50_000_000*1000 {
				continue
			}
			// The hours from 0 on: seven of night, one between, eleven of day, one between, four of night.
			part := strings.Split("NNNNNNNODDDDDDDDDDDONNNN", "")[b.DateTime/3_600_000%24]
			var cs int64
			for _, letter := range b.Extra {
				if letter == 'c' {
					cs++
				}
			}
			names := map[string]string{"N": "night", "D": "day", "O": "other"}
			all = append(all, timedBid{b.Auction, b.Bidder, milli, names[part], b.DateTime, b.Extra, cs})
		}
		return all
	},
	figures: func(rows []timedBid) []int64 {
		var cs int64
		for _, r := range rows {
			cs += r.Cs
		}
		return []int64{cs}
	},
	million: []int64{260_211, 681_886},
}
