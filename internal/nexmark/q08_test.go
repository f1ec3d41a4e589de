package nexmark_test

import (
	"testing"
	"time"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// newSeller is a person who sold within the ten seconds of the registration.
type newSeller struct {
	ID    int64
	Name  string
	Start int64
}

var newSellers = topic.New[window.Key[int64], string]("q8-new-sellers")

// Query 8 finds the persons who registered and opened an auction in the same ten
// seconds. What is joined are windows, one for each person and one for each seller, so
// the window is part of the key.
var q8 = query[newSeller]{
	name: "q8",
	pipeline: func(events input) {
		const size = 10 * time.Second
		registered := events.Via(persons).
			GroupBy(personID).
			Window(window.Tumbling(size)).
			Reduce(func(_, p nexmark.Person) nexmark.Person { return p }).
			As("q8-persons").
			ToStream()
		sellers := events.Via(auctions).
			GroupBy(sellerOf).
			Window(window.Tumbling(size)).
			Count().
			As("q8-sellers").
			ToStream()
		registered.
			Join(sellers, window.Within(size), func(p nexmark.Person, _ int64) string { return p.Name }).
			As("q8-join").
			To(newSellers)
	},
	rows: func(t testing.TB, n output) (all []newSeller) {
		for w, name := range records(t, n, newSellers) {
			all = append(all, newSeller{w.Key, name, w.Start.UnixMilli()})
		}
		return all
	},
	answer: func(events []nexmark.Event) (all []newSeller) {
		type selling struct{ seller, start int64 }
		sold := map[selling]bool{}
		for a := range onlyAuctions(events) {
			sold[selling{a.Seller, windowStart(a.DateTime, tenSeconds)}] = true
		}
		for p := range onlyPersons(events) {
			if start := windowStart(p.DateTime, tenSeconds); sold[selling{p.ID, start}] {
				all = append(all, newSeller{p.ID, p.Name, start})
			}
		}
		return all
	},
	million: []int64{8_504},
}
