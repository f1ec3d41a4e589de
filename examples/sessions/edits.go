package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/thalweg/thalweg/examples/pages/data"
	"github.com/thalweg/thalweg/window"
)

// Edit is one line of the file, as far as it is used.
type Edit struct {
	Time           time.Time
	User, Page     string
	Robot          bool
	Added, Deleted int64
}

// When is the time of the edit.
func (e Edit) When() time.Time { return e.Time }

// Editor is who made it.
func (e Edit) Editor() string { return e.User }

// ByHand tells whether no robot made it.
func (e Edit) ByHand() bool { return !e.Robot }

// readEdits returns the edits of the file in its order, which is that of their times.
func readEdits() (edits []Edit, err error) {
	text, err := gzip.NewReader(bytes.NewReader(data.Edits))
	if err != nil {
		return nil, err
	}
	for lines := json.NewDecoder(text); ; {
		var e Edit
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			return edits, nil
		} else if err != nil {
			return nil, err
		}
		edits = append(edits, e)
	}
}

// disorder is how much later than a newer edit an edit may come.
const disorder = time.Hour

// feed is what comes over the wire, the same each time: one edit in three up to an hour late.
func feed(edits []Edit) (sent []Edit) {
	rng := rand.New(rand.NewPCG(2015, 9))
	type arrival struct {
		Edit
		at time.Time
	}
	var arrivals []arrival
	for _, e := range edits {
		a := arrival{e, e.Time}
		if rng.IntN(3) == 0 {
			a.at = a.at.Add(time.Duration(rng.Int64N(int64(disorder))))
		}
		arrivals = append(arrivals, a)
	}
	slices.SortStableFunc(arrivals, func(a, b arrival) int { return a.at.Compare(b.at) })
	for _, a := range arrivals {
		sent = append(sent, a.Edit)
	}
	return sent
}

// expected sorts the edits by user and time, and cuts where the pause is too long.
func expected(edits []Edit) map[window.Key[string]]Work {
	sorted := slices.DeleteFunc(slices.Clone(edits), func(e Edit) bool { return e.Robot })
	slices.SortFunc(sorted, func(a, b Edit) int { return cmp.Or(cmp.Compare(a.User, b.User), a.Time.Compare(b.Time)) })
	sessions := map[window.Key[string]]Work{}
	for begin := 0; begin < len(sorted); {
		end := begin + 1
		for end < len(sorted) && sorted[end].User == sorted[begin].User && sorted[end].Time.Sub(sorted[end-1].Time) <= pause {
			end++
		}
		work := Work{}
		for _, e := range sorted[begin:end] {
			work = work.Add(e)
		}
		key := window.Key[string]{Key: sorted[begin].User, Start: sorted[begin].Time.UTC(), End: sorted[end-1].Time.UTC()}
		sessions[key] = work
		begin = end
	}
	return sessions
}
