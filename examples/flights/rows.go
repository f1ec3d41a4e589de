package main

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/thalweg/thalweg/examples/flights/data"
)

// Flight is one row of the file. All its times are Houston's, read as UTC.
type Flight struct {
	Carrier, Number, Tail  string
	Origin, Destination    string
	Scheduled, Out, On, In time.Time
	Miles                  int64
}

// Airline is the carrier's code.
func (f Flight) Airline() string { return f.Carrier }

// LeftGate is when the flight began.
func (f Flight) LeftGate() time.Time { return f.Out }

// Landed is when it touched down.
func (f Flight) Landed() time.Time { return f.On }

// DelayMinutes is how late the flight left; negative when it was early.
func (f Flight) DelayMinutes() int64 { return int64(f.Out.Sub(f.Scheduled) / time.Minute) }

// Key decides the partition a flight is sent to.
func (f Flight) Key() string { return f.Carrier + f.Number }

const clock = "2006-01-02 15:04"

// readFlights returns the rows of the file in its order.
func readFlights() ([]Flight, error) {
	var flights []Flight
	err := readCSV(data.Flights, func(row map[string]string) error {
		f := Flight{
			Carrier: row["carrier"], Number: row["flight"], Tail: row["tail"],
			Origin: row["origin"], Destination: row["dest"],
		}
		for column, field := range map[string]*time.Time{
			"sched_ts": &f.Scheduled, "out_ts": &f.Out, "on_ts": &f.On, "in_ts": &f.In,
		} {
			t, err := time.Parse(clock, row[column])
			if err != nil {
				return err
			}
			*field = t
		}
		miles, err := strconv.ParseInt(row["distance_mi"], 10, 64)
		f.Miles = miles
		flights = append(flights, f)
		return err
	})
	return flights, err
}

// readCSV calls f with every row of a compressed file, by the names in its first.
func readCSV(file []byte, f func(row map[string]string) error) error {
	text, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return err
	}
	rows := csv.NewReader(text)
	rows.ReuseRecord = true
	first, err := rows.Read()
	if err != nil {
		return err
	}
	names := append([]string(nil), first...)
	row := make(map[string]string, len(names))
	for {
		values, err := rows.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		for i, name := range names {
			row[name] = values[i]
		}
		if err := f(row); err != nil {
			line, _ := rows.FieldPos(0)
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}
