package nexmark_test

import (
	"iter"
	"slices"
	"time"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// highest are the bids with the highest price of those added.
type highest []nexmark.Bid

func (h highest) add(b nexmark.Bid) highest {
	switch {
	case len(h) == 0 || b.Price > h[0].Price:
		return highest{b}
	case b.Price == h[0].Price:
		return append(slices.Clone(h), b)
	}
	return h
}

func (h highest) all() iter.Seq[nexmark.Bid] { return slices.Values(h) }

var highestBids = topic.New[window.Key[struct{}], nexmark.Bid]("q7-highest-bids").ValueCodec(codec.Struct[nexmark.Bid]())

// Query 7 finds the highest bid of every ten seconds. Those that are equal are all in
// the answer.
var q7 = query[nexmark.Bid]{
	name: "q7",
	pipeline: func(events input) {
		events.Via(bids).
			GroupBy(func(nexmark.Bid) struct{} { return struct{}{} }).
			Window(window.Tumbling(10 * time.Second)).
			Aggregate(highest.add).
			As("q7-highest").
			ToStream().
			FlatMap(highest.all).
			To(highestBids)
	},
	rows: values(highestBids),
	answer: func(events []nexmark.Event) (all []nexmark.Bid) {
		prices := map[int64]int64{} // by start
		for b := range onlyBids(events) {
			start := windowStart(b.DateTime, tenSeconds)
			prices[start] = max(prices[start], b.Price)
		}
		for b := range onlyBids(events) {
			if b.Price == prices[windowStart(b.DateTime, tenSeconds)] {
				all = append(all, b)
			}
		}
		return all
	},
	figures: func(rows []nexmark.Bid) []int64 {
		var sum int64
		for _, r := range rows {
			sum += r.Price
		}
		return []int64{sum}
	},
	million: []int64{10, 999_905_906},
}
