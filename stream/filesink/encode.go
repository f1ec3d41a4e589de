package filesink

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"

	"github.com/thalweg/thalweg/stream"
)

// ByTime puts records into folders by their event time in UTC, written in a layout of package
// time: "2006-01-02" is a folder for each day.
func ByTime[K, V any](layout string) func(stream.Output[K, V]) string {
	return func(r stream.Output[K, V]) string { return r.Time.UTC().Format(layout) }
}

// Text encodes a record as the line that f makes of its value. A record without a value is
// in no file.
func Text[K, V any](f func(V) string) func([]byte, stream.Output[K, V]) ([]byte, error) {
	return func(dst []byte, r stream.Output[K, V]) ([]byte, error) {
		if r.Deleted {
			return dst, nil
		}
		return append(append(dst, f(r.Value)...), '\n'), nil
	}
}

// JSON encodes a record as its value in JSON on a line (NDJSON). A record without a value
// is in no file.
func JSON[K, V any]() func([]byte, stream.Output[K, V]) ([]byte, error) {
	return func(dst []byte, r stream.Output[K, V]) ([]byte, error) {
		if r.Deleted {
			return dst, nil
		}
		line, err := json.Marshal(r.Value)
		if err != nil {
			return dst, fmt.Errorf("filesink: record %s: %w", r.ID, err)
		}
		return append(append(dst, line...), '\n'), nil
	}
}

// CSV encodes a record as the row that f makes of it, with commas and quotes as RFC 4180
// has them and a line feed behind. A nil row is in no file. See Row for a header.
func CSV[K, V any](f func(stream.Output[K, V]) []string) func([]byte, stream.Output[K, V]) ([]byte, error) {
	return func(dst []byte, r stream.Output[K, V]) ([]byte, error) {
		row := f(r)
		if row == nil {
			return dst, nil
		}
		return append(dst, Row(row...)...), nil
	}
}

// Row is a row of CSV, for Options.Header.
func Row(fields ...string) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write(fields) // a buffer takes everything
	w.Flush()
	return b.Bytes()
}
