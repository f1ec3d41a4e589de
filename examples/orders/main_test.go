package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each order finds its customer as of its time: before she moved and after, before he left and
// after. Orders of different customers come out in any order.
func TestOrdersFindTheirCustomers(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), t.TempDir(), &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(lines)
	require.Equal(t, []string{
		"big       order-2  1500.00  Omar, Cairo",
		"big       order-3  1200.00  Ines, Porto",
		"enriched  order-1    25.00  Ines, Lisbon",
		"enriched  order-4     9.90  nobody we know",
		"enriched  order-5    42.00  nobody we know",
	}, lines)
}
