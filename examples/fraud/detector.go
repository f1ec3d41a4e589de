package main

import (
	"time"

	"github.com/thalweg/thalweg/stream"
)

// Event is something that happened to a card: a charge, or the holder's confirmation of
// those before it.
type Event struct {
	Cents     int64 // of a charge
	Confirmed bool
}

// Alert says what is wrong with a card.
type Alert struct {
	Rule  string
	Cents int64 // of the charge it is about
}

// The rules.
const (
	probe = 100    // a charge below it, in cents, tries whether a card works
	large = 50_000 // one of it or more is worth a theft

	probedFor   = 10 * time.Minute // after a probe a large charge is an alert
	confirmedIn = 5 * time.Minute  // a large charge not confirmed by then is an alert
	blockedFor  = time.Hour        // an alert blocks the card
)

// card is what is remembered of a card.
type card struct {
	Probed  time.Time // of the last charge that tries
	Waiting []waiting // large charges, oldest first
	Blocked time.Time // until then
}

// waiting is a large charge that is not confirmed.
type waiting struct {
	Until time.Time
	Cents int64
}

// detector watches cards. What it declines is in a stream of its own.
type detector struct{ declined stream.Side[string, Event] }

type call = stream.Context[string, card, Alert]

// Process is called with each event of a card.
func (d detector) Process(ctx *call, e Event) error {
	c, now := ctx.State(), ctx.Time()
	switch {
	case e.Confirmed:
		for _, w := range c.Waiting {
			ctx.CancelTimer(stream.Timer{At: w.Until})
		}
		c.Waiting = nil
	case now.Before(c.Blocked):
		d.declined.Emit(ctx, ctx.Key(), e)
	case e.Cents < probe:
		c.Probed = now
	case e.Cents >= large && !c.Probed.IsZero() && !now.After(c.Probed.Add(probedFor)):
		alert(ctx, Alert{"large after a probe", e.Cents}, now)
	case e.Cents >= large:
		until := now.Add(confirmedIn)
		c.Waiting = append(c.Waiting, waiting{until, e.Cents})
		ctx.SetTimer(until)
	}
	return nil
}

// Timer is called when event time has passed a large charge by confirmedIn.
func (d detector) Timer(ctx *call, t stream.Timer) error {
	c := ctx.State()
	for len(c.Waiting) > 0 && !c.Waiting[0].Until.After(t.At) {
		alert(ctx, Alert{"large and not confirmed", c.Waiting[0].Cents}, t.At)
		c.Waiting = c.Waiting[1:]
	}
	return nil
}

func alert(ctx *call, a Alert, at time.Time) {
	ctx.Emit(a)
	ctx.State().Blocked = at.Add(blockedFor)
}
