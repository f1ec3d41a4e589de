package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// All answers are the known ones, with repetitions in the feed and a restart in the
// middle; every repetition is dropped, and a second run finds nothing left to do.
func TestEveryHourIsExact(t *testing.T) {
	all, err := readEdits()
	require.NoError(t, err)
	require.Len(t, all, 39_244)
	sent := feed(all)
	require.Len(t, sent, 39_244+13_081)
	seen, repeats := map[int64]bool{}, [2]int{}
	for i, e := range sent {
		if seen[e.Seq] {
			repeats[min(i/(len(sent)/2), 1)]++
		}
		seen[e.Seq] = true
	}

	dir := t.TempDir()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), dir, &out), out.String())
	require.Contains(t, out.String(), fmt.Sprintf("half of the day: %d edits read, %d of them duplicates, 0 late", len(sent)/2, repeats[0]))
	require.Contains(t, out.String(), fmt.Sprintf("the rest: %d edits read, %d of them duplicates, 0 late", len(sent)-len(sent)/2, repeats[1]))
	require.Contains(t, out.String(), "all 120 places of 24 hours are exactly the known ones")

	out.Reset()
	require.NoError(t, run(t.Context(), dir, &out))
	require.Contains(t, out.String(), "the rest: 0 edits read")
	require.Contains(t, out.String(), "all 120 places of 24 hours are exactly the known ones")
}
