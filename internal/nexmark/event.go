package nexmark

import (
	"strconv"
	"time"
)

// Ids and money are plain integers, money in cents; times are in ms since 1970, UTC.
// Extra is filler that brings an event to the average size of its kind.

// Person is somebody who registered, to sell or to bid.
type Person struct {
	ID           int64
	Name         string
	EmailAddress string
	CreditCard   string // "dddd dddd dddd dddd"
	City         string
	State        string
	DateTime     int64
	Extra        string
}

// Auction is an item put up for sale.
type Auction struct {
	ID          int64
	ItemName    string
	Description string
	InitialBid  int64
	Reserve     int64
	DateTime    int64
	Expires     int64
	Seller      int64 // a person, who may register a little later
	Category    int64
	Extra       string
}

// Bid is an offer for an item.
type Bid struct {
	Auction  int64 // an auction, which may open a little later
	Bidder   int64 // a person, who may register a little later
	Price    int64
	Channel  string
	URL      string
	DateTime int64
	Extra    string
}

// Event is one of the three: one field is set.
type Event struct {
	Person  *Person
	Auction *Auction
	Bid     *Bid
}

// Time is when the event happened.
func (e Event) Time() time.Time {
	switch {
	case e.Person != nil:
		return time.UnixMilli(e.Person.DateTime).UTC()
	case e.Auction != nil:
		return time.UnixMilli(e.Auction.DateTime).UTC()
	case e.Bid != nil:
		return time.UnixMilli(e.Bid.DateTime).UTC()
	}
	return time.Time{}
}

// AppendLine appends the event as a line of text: a letter for its kind, then the
// fields in their order, with tabs between and a newline at the end.
func (e Event) AppendLine(dst []byte) []byte {
	switch {
	case e.Person != nil:
		p := e.Person
		dst = appendInts(append(dst, 'P'), p.ID)
		dst = appendStrings(dst, p.Name, p.EmailAddress, p.CreditCard, p.City, p.State)
		dst = appendStrings(appendInts(dst, p.DateTime), p.Extra)
	case e.Auction != nil:
		a := e.Auction
		dst = appendInts(append(dst, 'A'), a.ID)
		dst = appendStrings(dst, a.ItemName, a.Description)
		dst = appendInts(dst, a.InitialBid, a.Reserve, a.DateTime, a.Expires, a.Seller, a.Category)
		dst = appendStrings(dst, a.Extra)
	case e.Bid != nil:
		b := e.Bid
		dst = appendInts(append(dst, 'B'), b.Auction, b.Bidder, b.Price)
		dst = appendStrings(dst, b.Channel, b.URL)
		dst = appendStrings(appendInts(dst, b.DateTime), b.Extra)
	}
	return append(dst, '\n')
}

func appendInts(dst []byte, fields ...int64) []byte {
	for _, f := range fields {
		dst = strconv.AppendInt(append(dst, '\t'), f, 10)
	}
	return dst
}

func appendStrings(dst []byte, fields ...string) []byte {
	for _, f := range fields {
		dst = append(append(dst, '\t'), f...)
	}
	return dst
}
