package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is printed are the counts of the text, recounted here.
func TestCounts(t *testing.T) {
	var want strings.Builder
	counts, total := map[string]int{}, 0
	for i, line := range text {
		for _, word := range strings.Fields(line) {
			counts[word]++
			total++
		}
		if i == 1 || i == 3 {
			fmt.Fprintf(&want, "after %d lines: %d words, %d of them different, \"the\" %d times\n", i+1, total, len(counts), counts["the"])
		}
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), t.TempDir(), &out))
	require.Equal(t, want.String(), out.String())
}
