package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// Both answers are the known ones, and another run has nothing left to do and finds the same.
func TestEveryHourIsExact(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), dir, &out), out.String())
		require.Contains(t, out.String(), "all 4835 hours and networks are exactly the known ones")
		require.Contains(t, out.String(), "7974 counted in ")
		require.Contains(t, out.String(), ", 2160 late and kept apart")
	}
}
