package main

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/examples/flights/data"
)

// Flight is what is sent of a row.
type Flight struct {
	Carrier, Number        string
	Origin, Destination    string
	Scheduled, Left, There time.Time
}

// Key decides the partition: flights of one number stay in order.
func (f Flight) Key() string { return f.Carrier + f.Number }

// Late is how long after its time the flight left; negative when it was early.
func (f Flight) Late() time.Duration { return f.Left.Sub(f.Scheduled) }

// Claim is what the passengers of a late flight are owed.
type Claim struct {
	Flight Flight
	Cents  int64 // for each of them
}

// The rules are made up.
const (
	claimFrom  = 2 * time.Hour // what leaves later is a claim
	peopleFrom = 6 * time.Hour // what leaves later is for people
)

// claimOf returns the claim of a flight that was late enough.
func claimOf(f Flight) (c Claim, ok bool) {
	if f.Late() < claimFrom {
		return Claim{}, false
	}
	return Claim{Flight: f, Cents: int64(f.Late()/time.Minute) * 25}, true
}

// readFlights returns the rows of the file in its order.
func readFlights() ([]Flight, error) {
	text, err := gzip.NewReader(bytes.NewReader(data.Flights))
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(text).ReadAll()
	if err != nil {
		return nil, err
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	flights := make([]Flight, 0, len(rows)-1)
	for line, row := range rows[1:] {
		at := func(name string) time.Time {
			t, e := time.Parse("2006-01-02 15:04", row[column[name]])
			if e != nil {
				err = fmt.Errorf("line %d: %w", line+2, e)
			}
			return t
		}
		flights = append(flights, Flight{
			Carrier: row[column["carrier"]], Number: row[column["flight"]],
			Origin: row[column["origin"]], Destination: row[column["dest"]],
			Scheduled: at("sched_ts"), Left: at("out_ts"), There: at("in_ts"),
		})
	}
	return flights, err
}
