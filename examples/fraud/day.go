package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// happened is an event of a card.
type happened struct {
	card  string
	event Event
	at    time.Time
}

// makeDay makes the same day each time, in order of time: 500 cards with charges of all
// sizes. Of the large ones two in three are confirmed, some too late.
func makeDay() []happened {
	rng := rand.New(rand.NewPCG(2026, 11))
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var day []happened
	for range 40_000 {
		h := happened{
			card: fmt.Sprintf("card-%03d", rng.IntN(500)),
			at:   start.Add(time.Duration(rng.Int64N(int64(24*time.Hour/time.Millisecond))) * time.Millisecond),
		}
		switch rng.IntN(10) {
		case 0:
			h.event.Cents = 1 + rng.Int64N(probe-1)
		case 1:
			h.event.Cents = large + rng.Int64N(100_000)
			if rng.IntN(3) > 0 {
				after := 10*time.Second + time.Duration(rng.Int64N(int64(6*time.Minute/time.Millisecond)))*time.Millisecond
				day = append(day, happened{h.card, Event{Confirmed: true}, h.at.Add(after)})
			}
		default:
			h.event.Cents = probe + rng.Int64N(20_000)
		}
		day = append(day, h)
	}
	slices.SortFunc(day, func(a, b happened) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.card, b.card), cmp.Compare(a.event.Cents, b.event.Cents))
	})
	return day
}

// finding is an alert about a card.
type finding struct {
	card  string
	ms    int64
	alert Alert
}

type findings struct {
	alerts   map[finding]int
	declined int
}

// expected finds the alerts by going through the events of each card, at each looking back
// for a probe and ahead for a confirmation, instead of remembering and waiting.
func expected(day []happened) findings {
	found := findings{alerts: map[finding]int{}}
	cards := map[string][]happened{}
	for _, h := range day {
		cards[h.card] = append(cards[h.card], h)
	}
	for card, history := range cards {
		var blocks []time.Time // when alerts were raised
		blocked := func(at time.Time) bool {
			return slices.ContainsFunc(blocks, func(b time.Time) bool { return !at.Before(b) && at.Before(b.Add(blockedFor)) })
		}
		accepted := make([]bool, len(history))
		for i, h := range history {
			if h.event.Confirmed {
				continue
			}
			if blocked(h.at) {
				found.declined++
				continue
			}
			accepted[i] = true
			if h.event.Cents < large {
				continue
			}
			raise := Alert{"large and not confirmed", h.event.Cents}
			at := h.at.Add(confirmedIn)
			for j := range i {
				if b := history[j]; accepted[j] && b.event.Cents < probe && !h.at.After(b.at.Add(probedFor)) {
					raise.Rule, at = "large after a probe", h.at
				}
			}
			if at != h.at && slices.ContainsFunc(history[i:], func(c happened) bool { return c.event.Confirmed && c.at.Before(at) }) {
				continue
			}
			found.alerts[finding{card, at.UnixMilli(), raise}]++
			blocks = append(blocks, at)
		}
	}
	return found
}
