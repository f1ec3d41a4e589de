package nexmark_test

import (
	"time"

	"github.com/thalweg/thalweg/internal/nexmark"
)

// filed is a bid in a file of its day and minute.
type filed struct {
	Day, Minute string
	Bid         nexmark.Bid
}

// Query 10 writes the bids to files by day and minute.
var q10 = query[filed]{
	name: "q10",
	answer: func(events []nexmark.Event) (all []filed) {
		for b := range onlyBids(events) {
			at := time.UnixMilli(b.DateTime).UTC()
			all = append(all, filed{at.Format(time.DateOnly), at.Format("15:04"), b})
		}
		return all
	},
	figures: func(rows []filed) []int64 {
		minutes := map[[2]string]bool{}
		for _, r := range rows {
			minutes[[2]string{r.Day, r.Minute}] = true
		}
		return []int64{int64(len(minutes))}
	},
	million: []int64{920_000, 2},
}
