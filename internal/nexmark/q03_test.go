package nexmark_test

import (
	"slices"
	"time"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// localItem is an auction of a seller from one of three states.
type localItem struct {
	Name, City, State string
	Auction           int64
}

func isLocal(p nexmark.Person) bool { return p.State == "OR" || p.State == "ID" || p.State == "CA" }

func sells(p nexmark.Person, a nexmark.Auction) localItem {
	return localItem{p.Name, p.City, p.State, a.ID}
}

var localItems = topic.New[int64, localItem]("q3-local-items").ValueCodec(codec.Struct[localItem]())

// Query 3 joins the auctions of category 10 with their sellers from Oregon, Idaho and
// California, whichever of the two comes first. A person is remembered for ten
// minutes, which is longer than the events last.
var q3 = query[localItem]{
	name: "q3",
	pipeline: func(events input) {
		sold := events.Via(auctions).
			Filter(func(a nexmark.Auction) bool { return a.Category == 10 }).
			KeyBy(sellerOf)
		events.Via(persons).
			Filter(isLocal).
			KeyBy(personID).
			Join(sold, window.Within(10*time.Minute), sells).
			As("q3-join").
			To(localItems)
	},
	rows: values(localItems),
	answer: func(events []nexmark.Event) (all []localItem) {
		persons := map[int64]nexmark.Person{}
		for p := range onlyPersons(events) {
			persons[p.ID] = p
		}
		for a := range onlyAuctions(events) {
			p, registered := persons[a.Seller]
			if registered && a.Category == 10 && slices.Contains([]string{"OR", "ID", "CA"}, p.State) {
				all = append(all, localItem{p.Name, p.City, p.State, a.ID})
			}
		}
		return all
	},
	million: []int64{5_666},
}
