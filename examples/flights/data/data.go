// Package data is the flights out of Houston that the examples read; README.md says
// where they are from.
package data

import _ "embed" // the data travels in the programs

// Flights is flights.csv.gz: every completed flight of April to June 2011.
//
//go:embed flights.csv.gz
var Flights []byte
