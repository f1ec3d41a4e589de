package nexmark_test

import (
	"slices"

	"github.com/thalweg/thalweg/internal/nexmark"
)

// localItem is an auction of a seller from one of three states.
type localItem struct {
	Name, City, State string
	Auction           int64
}

// Query 3 joins the auctions of category 10 with their sellers from Oregon, Idaho and
// California, whichever of the two comes first.
var q3 = query[localItem]{
	name: "q3",
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
