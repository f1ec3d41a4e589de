package nexmark_test

import (
	"cmp"
	"iter"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/stream"
)

// What more than one query or definition uses.

// bids are the events that are bids.
func bids(events eventStream) stream.Stream[int64, nexmark.Bid] {
	return events.
		Filter(func(e nexmark.Event) bool { return e.Bid != nil }).
		Map(func(e nexmark.Event) nexmark.Bid { return *e.Bid })
}

// auctions are the events that are auctions.
func auctions(events eventStream) stream.Stream[int64, nexmark.Auction] {
	return events.
		Filter(func(e nexmark.Event) bool { return e.Auction != nil }).
		Map(func(e nexmark.Event) nexmark.Auction { return *e.Auction })
}

// persons are the events that are persons.
func persons(events eventStream) stream.Stream[int64, nexmark.Person] {
	return events.
		Filter(func(e nexmark.Event) bool { return e.Person != nil }).
		Map(func(e nexmark.Event) nexmark.Person { return *e.Person })
}

func personID(p nexmark.Person) int64   { return p.ID }
func auctionID(a nexmark.Auction) int64 { return a.ID }
func sellerOf(a nexmark.Auction) int64  { return a.Seller }
func auctionOf(b nexmark.Bid) int64     { return b.Auction }
func bidderOf(b nexmark.Bid) int64      { return b.Bidder }

// onlyBids, onlyAuctions and onlyPersons walk over events of one kind.
func onlyBids(events []nexmark.Event) iter.Seq[nexmark.Bid] {
	return func(yield func(nexmark.Bid) bool) {
		for _, e := range events {
			if e.Bid != nil && !yield(*e.Bid) {
				return
			}
		}
	}
}

func onlyAuctions(events []nexmark.Event) iter.Seq[nexmark.Auction] {
	return func(yield func(nexmark.Auction) bool) {
		for _, e := range events {
			if e.Auction != nil && !yield(*e.Auction) {
				return
			}
		}
	}
}

func onlyPersons(events []nexmark.Event) iter.Seq[nexmark.Person] {
	return func(yield func(nexmark.Person) bool) {
		for _, e := range events {
			if e.Person != nil && !yield(*e.Person) {
				return
			}
		}
	}
}

func auctionsByID(events []nexmark.Event) map[int64]nexmark.Auction {
	all := map[int64]nexmark.Auction{}
	for a := range onlyAuctions(events) {
		all[a.ID] = a
	}
	return all
}

// compareBids orders bids from the best down: the highest price, then the earliest.
// Many bids are made in the same ms, and partitions arrive in no fixed order; for the
// answer to be one, the other fields decide then.
func compareBids(a, b nexmark.Bid) int {
	return cmp.Or(
		cmp.Compare(b.Price, a.Price),
		cmp.Compare(a.DateTime, b.DateTime),
		cmp.Compare(a.Auction, b.Auction),
		cmp.Compare(a.Bidder, b.Bidder),
		cmp.Compare(a.Channel, b.Channel),
		cmp.Compare(a.URL, b.URL),
		cmp.Compare(a.Extra, b.Extra),
	)
}

// Prices have three ranks: below 10,000 cents, below 1,000,000, and the rest.
const ranks = 3

func rankOf(price int64) int {
	switch {
	case price < 10_000:
		return 0
	case price < 1_000_000:
		return 1
	default:
		return 2
	}
}

// windowStart is the start, in ms, of the window of a size that holds a time.
func windowStart(at, size int64) int64 { return at - at%size }

const (
	tenSeconds int64 = 10_000
	oneDay     int64 = 24 * 60 * 60 * 1000
)
