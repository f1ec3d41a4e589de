package stream

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Piles follow each other without a gap, also below zero and at the ends of time.
func TestPilesIn(t *testing.T) {
	const size, lowest, highest = 10, math.MinInt64, math.MaxInt64
	for _, c := range []struct {
		from, to int64
		want     []int64
	}{
		{0, 9, []int64{0}},
		{9, 10, []int64{0, 10}},
		{-1, 0, []int64{-10, 0}},
		{-20, -11, []int64{-20}},
		{5, 4, []int64{0}},
		{5, -1, nil},
		{lowest, lowest + 8, []int64{lowest, lowest + 8}}, // the lowest multiple is 8 above
		{highest - 8, highest, []int64{highest - 17, highest - 7}},
	} {
		require.Equal(t, c.want, slices.Collect(pilesIn(c.from, c.to, size)), "[%d, %d]", c.from, c.to)
	}
	for _, at := range []int64{lowest, lowest + 7, lowest + 8, -11, -10, -1, 0, 9, highest} {
		start := pileOf(at, size)
		require.True(t, start <= at && uint64(at-start) < size, "%d is in the pile of %d", at, start)
	}
}
