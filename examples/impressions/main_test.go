package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// Stopped half way and started again, the job gives every rate as a plain loop does.
func TestEveryRateIsRight(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), t.TempDir(), &out))
	require.Contains(t, out.String(), "20000 impressions, ")
	require.Contains(t, out.String(), " rates by campaign and hour are right")
}
