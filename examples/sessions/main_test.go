package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The sessions of a feed out of order, with a restart in its middle, are those of the sorted
// file; some of them are open where the feed is cut.
func TestEverySessionIsRight(t *testing.T) {
	all, err := readEdits()
	require.NoError(t, err)
	require.Len(t, all, 39_244)
	want := expected(all)
	cut := feed(all)[len(all)/2].Time
	open := 0
	for key := range want {
		if key.Start.Before(cut) && key.End.After(cut) {
			open++
		}
	}
	require.Greater(t, open, 10)

	var out bytes.Buffer
	require.NoError(t, run(t.Context(), t.TempDir(), &out), out.String())
	require.Contains(t, out.String(), fmt.Sprintf("all %d sessions are right", len(want)))
}
