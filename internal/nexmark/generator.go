package nexmark

import (
	"iter"

	"github.com/thalweg/thalweg/internal/invariant"
)

// Options configure New. The zero value makes the benchmark's standard events.
type Options struct {
	// Seed decides everything that is random. Zero means 42.
	Seed uint64

	// EventsPerSecond is the rate in event time. Zero means 10,000.
	EventsPerSecond int64

	// OutOfOrder is the size of the groups within which events come in a fixed
	// disorder. Zero and one mean in order; it is no multiple of 953.
	OutOfOrder int64
}

// Of 50 events in a row the first is a person, then come three auctions, then bids.
const (
	round           = 50
	auctionsInRound = 3
)

const (
	// Start is the time of the first event: 2015-07-15T00:00:00Z.
	Start int64 = 1_436_918_400_000

	firstPerson   = 1000
	firstAuction  = 1000
	firstCategory = 10
	categories    = 5

	hotBatch         = 100  // the hot ids change after so many ids
	activePersons    = 1000 // cold sellers and bidders are among the last so many
	inFlightAuctions = 100  // cold bids are for the last so many
	idLead           = 10   // a cold id may be that far ahead of what exists

	stride = 953 // from one event of a group to the next; a prime, so that it meets all of them

	auctionHorizon = inFlightAuctions * round / auctionsInRound // events until that many more auctions opened
)

// Average sizes of the events in bytes, channel and address of a bid aside.
const (
	personBytes  = 200
	auctionBytes = 500
	bidBytes     = 100
)

// Generator makes events. It does not change, and may be used by many goroutines.
type Generator struct {
	seed       uint64
	rate       int64 // events per second
	outOfOrder int64 // at least 1
	tables     tables
}

// New returns a generator of endlessly many events.
func New(o Options) *Generator {
	if o.Seed == 0 {
		o.Seed = 42
	}
	if o.EventsPerSecond == 0 {
		o.EventsPerSecond = 10_000
	}
	o.OutOfOrder = max(o.OutOfOrder, 1)
	invariant.Check(o.EventsPerSecond > 0, "nexmark: %d events per second", o.EventsPerSecond)
	invariant.Check(o.OutOfOrder%stride != 0, "nexmark: events in groups of %d would come more than once", o.OutOfOrder)
	return &Generator{seed: o.Seed, rate: o.EventsPerSecond, outOfOrder: o.OutOfOrder, tables: newTables(o.Seed)}
}

// Events gives the events that arrive as number from, from+1, …, to-1, each with that
// number, which begins at 0.
func (g *Generator) Events(from, to int64) iter.Seq2[int64, Event] {
	return func(yield func(int64, Event) bool) {
		for n := from; n < to; n++ {
			if !yield(n, g.Event(n)) {
				return
			}
		}
	}
}

// Event returns the event that arrives as number n, from 0 on. It allocates the event
// and the strings that are its own.
func (g *Generator) Event(n int64) Event {
	id := g.ID(n)
	switch m := id % round; {
	case m == 0:
		p := g.Person(id)
		return Event{Person: &p}
	case m <= auctionsInRound:
		a := g.Auction(id)
		return Event{Auction: &a}
	default:
		b := g.Bid(id)
		return Event{Bid: &b}
	}
}

// ID is the event that arrives as number n: events happen in the order of their ids
// and arrive in the order of their numbers.
func (g *Generator) ID(n int64) int64 {
	return g.group(n) + n*stride%g.outOfOrder
}

// group is the first number of the group of n.
func (g *Generator) group(n int64) int64 { return n - n%g.outOfOrder }

// Watermark is a time, in ms since 1970, such that no event that arrives after number
// n happened before it.
func (g *Generator) Watermark(n int64) int64 { return g.time(g.group(n)) }

// time is when an event happens, in ms since 1970.
func (g *Generator) time(id int64) int64 { return Start + id*1_000_000/g.rate/1000 }

// random returns the source of all choices of an event.
func (g *Generator) random(id int64) random { return random(mix(g.seed ^ uint64(id)*golden)) }

// Person returns the event of that id, whose remainder by 50 is 0.
func (g *Generator) Person(id int64) Person {
	r := g.random(id)
	p := Person{ID: firstPerson + lastPerson(id), DateTime: g.time(id)}
	first := r.oneOf(firstNames)
	p.Name = first + " " + r.oneOf(lastNames)
	var text [32]byte
	email := append(r.appendWord(text[:0], 7, ' '), '@')
	email = append(r.appendWord(email, 5, ' '), ".com"...)
	p.EmailAddress = string(email)
	p.CreditCard = r.creditCard()
	p.City = r.oneOf(cities)
	p.State = r.oneOf(states)
	size := 8 + len(p.Name) + len(p.EmailAddress) + len(p.CreditCard) + len(p.City) + len(p.State)
	p.Extra = g.tables.extra(&r, size, personBytes)
	return p
}

func (r *random) creditCard() string {
	card := [...]byte{4: ' ', 9: ' ', 14: ' ', 18: 0}
	for i := range 4 {
		n := r.below(10_000)
		for digit := 3; digit >= 0; digit-- {
			card[5*i+digit] = '0' + byte(n%10)
			n /= 10
		}
	}
	return string(card[:])
}

// Auction returns the event of that id, whose remainder by 50 is 1 to 3.
func (g *Generator) Auction(id int64) Auction {
	r := g.random(id)
	a := Auction{ID: firstAuction + lastAuction(id), DateTime: g.time(id)}
	last := lastPerson(id)
	if r.below(4) > 0 {
		a.Seller = firstPerson + last/hotBatch*hotBatch
	} else {
		a.Seller = firstPerson + r.anyPerson(last)
	}
	a.Category = firstCategory + r.below(categories)
	a.InitialBid = r.price()
	horizon := g.time(id+auctionHorizon) - a.DateTime
	a.Expires = a.DateTime + 1 + r.below(max(2*horizon, 1))
	var text [128]byte
	a.ItemName = string(r.appendWord(text[:0], 20, ' '))
	a.Description = string(r.appendWord(text[:0], 100, ' '))
	a.Reserve = a.InitialBid + r.price()
	a.Extra = g.tables.extra(&r, 48+len(a.ItemName)+len(a.Description), auctionBytes)
	return a
}

// Bid returns the event of that id, whose remainder by 50 is 4 to 49. It allocates
// nothing.
func (g *Generator) Bid(id int64) Bid {
	r := g.random(id)
	b := Bid{DateTime: g.time(id)}
	if last := lastAuction(id); r.below(2) > 0 {
		b.Auction = firstAuction + last/hotBatch*hotBatch
	} else {
		oldest := max(last-inFlightAuctions, 0)
		b.Auction = firstAuction + oldest + r.below(last-oldest+1+idLead)
	}
	if last := lastPerson(id); r.below(4) > 0 {
		b.Bidder = firstPerson + last/hotBatch*hotBatch + 1
	} else {
		b.Bidder = firstPerson + r.anyPerson(last)
	}
	b.Price = r.price()
	from := &g.tables.hot
	if r.below(2) == 0 {
		from = &g.tables.cold
	}
	c := (*from)[r.below(int64(len(*from)))]
	b.Channel, b.URL = c.name, c.url
	b.Extra = g.tables.extra(&r, 32, bidBytes)
	return b
}

// lastPerson counts the persons before the newest one at an event.
func lastPerson(id int64) int64 { return id / round }

// lastAuction counts the auctions before the newest one at an event.
func lastAuction(id int64) int64 {
	rounds, within := id/round, id%round
	return rounds*auctionsInRound + min(within, auctionsInRound) - 1
}

// anyPerson is one of the active persons, or one who is to register soon.
func (r *random) anyPerson(last int64) int64 {
	active := min(last+1, activePersons)
	return last + 1 - active + r.below(active+idLead)
}
