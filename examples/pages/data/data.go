// Package data is the edits of Wikipedia that the examples read; README.md says where
// they are from.
package data

import _ "embed" // the data travels in the programs

// Edits is edits.ndjson.gz: a sample of what was edited on 12 September 2015.
//
//go:embed edits.ndjson.gz
var Edits []byte
