package main

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/thalweg/thalweg/examples/quakes/data"
)

// Quake is one row of the file, as far as it is used.
type Quake struct {
	Network   string
	At        time.Time
	Magnitude *int64 // in hundredths; nil where none was measured
}

// When is the time of the event, not that of its last revision.
func (q Quake) When() time.Time { return q.At }

// Reporter is the network that reports it.
func (q Quake) Reporter() string { return q.Network }

// Shaking is what is known of an hour and a network; magnitudes are in hundredths.
type Shaking struct {
	Quakes, Measured, Sum, Highest int64
}

// Add counts one more. A magnitude may be below zero, so the first one is the highest
// whatever it is.
func (s Shaking) Add(q Quake) Shaking {
	s.Quakes++
	if q.Magnitude == nil {
		return s
	}
	if s.Measured == 0 || *q.Magnitude > s.Highest {
		s.Highest = *q.Magnitude
	}
	s.Measured++
	s.Sum += *q.Magnitude
	return s
}

// readQuakes returns the rows of the file in its order.
func readQuakes() (quakes []Quake, err error) {
	err = readCSV(data.Quakes, func(row map[string]string) error {
		at, err := time.Parse(time.RFC3339, row["time"])
		if err != nil {
			return err
		}
		q := Quake{Network: row["net"], At: at}
		if row["mag"] != "" {
			magnitude, err := strconv.ParseFloat(row["mag"], 64)
			if err != nil {
				return err
			}
			hundredths := int64(math.Round(magnitude * 100))
			q.Magnitude = &hundredths
		}
		quakes = append(quakes, q)
		return nil
	})
	return quakes, err
}

// readCSV calls f with every row of a compressed file, by the names in its first.
func readCSV(file []byte, f func(row map[string]string) error) error {
	text, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return err
	}
	rows := csv.NewReader(text)
	names, err := rows.Read()
	if err != nil {
		return err
	}
	for {
		values, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		row := make(map[string]string, len(names))
		for i, name := range names {
			row[name] = values[i]
		}
		if err := f(row); err != nil {
			line, _ := rows.FieldPos(0)
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}
