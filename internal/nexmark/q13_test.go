package nexmark_test

import (
	"fmt"

	"github.com/thalweg/thalweg/internal/nexmark"
)

// enriched is a bid with what a table of 10,000 rows says for its auction.
type enriched struct {
	Bid   nexmark.Bid
	Value string
}

// sideRows is the size of the table. Its row of key k says sideValue(k).
const sideRows = 10_000

func sideValue(key int64) string { return fmt.Sprint("value of ", key) }

// Query 13 joins each bid with a row of a bounded table.
var q13 = query[enriched]{
	name: "q13",
	answer: func(events []nexmark.Event) (all []enriched) {
		var side []string
		for key := range int64(sideRows) {
			side = append(side, sideValue(key))
		}
		for b := range onlyBids(events) {
			all = append(all, enriched{b, side[b.Auction%sideRows]})
		}
		return all
	},
	million: []int64{920_000},
}
