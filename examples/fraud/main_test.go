package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// With the node closed and opened again in the middle, the alerts are those of a plain loop,
// and there are some of each kind.
func TestEveryAlertIsRight(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), t.TempDir(), &out), out.String())
	require.Contains(t, out.String(), "all alerts are right, and all ")
	require.NotContains(t, out.String(), ": 0\n")

	// A charge is in doubt and a card is blocked where the day is cut.
	day := makeDay()
	cut := day[len(day)/2].at
	doubtful, blocked := 0, 0
	for f := range expected(day).alerts {
		at := f.ms - cut.UnixMilli()
		if f.alert.Rule == "large and not confirmed" && at > 0 && at < confirmedIn.Milliseconds() {
			doubtful++
		}
		if at < 0 && at > -blockedFor.Milliseconds() {
			blocked++
		}
	}
	require.Positive(t, doubtful)
	require.Positive(t, blocked)
}
