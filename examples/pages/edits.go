package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/thalweg/thalweg/examples/pages/data"
)

// Edit is one line of the file, as far as it is used.
type Edit struct {
	Seq     int64
	Time    time.Time
	Channel string
	Page    string
}

// ID is the number of the edit, the same each time it is sent.
func (e Edit) ID() int64 { return e.Seq }

// When is the time of the edit.
func (e Edit) When() time.Time { return e.Time }

// Title names the page. A tab is lower than all that is in a channel's name, so that
// titles sort by channel, then page.
func (e Edit) Title() string { return e.Channel + "\t" + e.Page }

// readEdits returns the edits of the file in its order.
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

// behind is after how many others an edit is repeated.
const behind = 100

// repeated tells which edits the feed sends twice.
func repeated(e Edit) bool { return e.Seq%3 == 0 }

// feed is what comes over the wire: the edits, every third one twice.
func feed(edits []Edit) (sent []Edit) {
	for i := range len(edits) + behind {
		if i < len(edits) {
			sent = append(sent, edits[i])
		}
		if i >= behind && repeated(edits[i-behind]) {
			sent = append(sent, edits[i-behind])
		}
	}
	return sent
}
