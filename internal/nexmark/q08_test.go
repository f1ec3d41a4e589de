package nexmark_test

import "github.com/thalweg/thalweg/internal/nexmark"

// newSeller is a person who sold within the ten seconds of the registration.
type newSeller struct {
	ID    int64
	Name  string
	Start int64
}

// Query 8 finds the persons who registered and opened an auction in the same ten
// seconds.
var q8 = query[newSeller]{
	name: "q8",
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
