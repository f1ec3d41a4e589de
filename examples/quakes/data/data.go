// Package data is the earthquakes that the example reads; README.md says where they are
// from.
package data

import _ "embed" // the data travels in the program

// Quakes is quakes.csv.gz: what the world's networks reported in a month, in the order of
// its last revision.
//
//go:embed quakes.csv.gz
var Quakes []byte

// ByHour is expected_by_hour.csv.gz: the answer when every row is waited for.
//
//go:embed expected_by_hour.csv.gz
var ByHour []byte

// Late is expected_late.csv.gz: what is late with less patience.
//
//go:embed expected_late.csv.gz
var Late []byte
