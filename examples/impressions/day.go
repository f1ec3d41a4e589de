package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// disorder is how much later than a newer event an event may come.
const disorder = 30 * time.Second

// event is an impression, or a click on one, in the order in which they come.
type event struct {
	id       string
	campaign string // of an impression
	user     string // of a click
	click    bool
	at       time.Time
	arrives  time.Time
}

// makeDay makes the same day each time: three in ten impressions are clicked on, some of
// them too late, and what happens comes up to half a minute later.
func makeDay() []event {
	rng := rand.New(rand.NewPCG(2026, 1))
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var all []event
	add := func(e event) {
		e.arrives = e.at.Add(time.Duration(rng.Int64N(int64(disorder))))
		all = append(all, e)
	}
	for i := range 20_000 {
		at := start.Add(time.Duration(rng.Int64N(int64(24 * time.Hour)))).Truncate(time.Millisecond)
		id := fmt.Sprintf("impression-%05d", i)
		add(event{id: id, campaign: fmt.Sprint("campaign-", rng.IntN(8)), at: at})
		if rng.IntN(10) < 3 {
			after := time.Duration(rng.ExpFloat64() * float64(4*time.Minute)).Truncate(time.Millisecond)
			add(event{id: id, user: fmt.Sprint("user-", rng.IntN(1000)), click: true, at: at.Add(after)})
		}
	}
	slices.SortFunc(all, func(a, b event) int { return cmp.Or(a.arrives.Compare(b.arrives), cmp.Compare(a.id, b.id)) })
	return all
}

// send writes events to the two topics.
func send(ctx context.Context, node *thalweg.Node, events []event) error {
	shown, err := node.Producer(impressions)
	if err != nil {
		return err
	}
	clicked, err := node.Producer(clicks)
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.click {
			err = clicked.QueueRecord(ctx, topic.Record[string, Click]{Key: e.id, Value: Click{e.user}, Time: e.at}, nil)
		} else {
			err = shown.QueueRecord(ctx, topic.Record[string, Impression]{Key: e.id, Value: Impression{e.campaign}, Time: e.at}, nil)
		}
		if err != nil {
			return err
		}
	}
	if err := shown.Close(); err != nil {
		return err
	}
	return clicked.Close()
}

// expected computes the rates by a plain loop. The time of an outcome is that of the click
// where there is one.
func expected(events []event) map[window.Key[string]]Rate {
	clickedAt := make(map[string]time.Time)
	for _, e := range events {
		if e.click {
			clickedAt[e.id] = e.at
		}
	}
	rates := make(map[window.Key[string]]Rate)
	for _, e := range events {
		if e.click {
			continue
		}
		at, ok := clickedAt[e.id]
		ok = ok && !at.After(e.at.Add(patience))
		if !ok {
			at = e.at
		}
		hour := at.Truncate(time.Hour)
		key := window.Key[string]{Key: e.campaign, Start: hour, End: hour.Add(time.Hour)}
		rates[key] = rates[key].Add(Outcome{e.campaign, ok})
	}
	return rates
}
