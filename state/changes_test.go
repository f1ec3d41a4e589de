package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChangesAgainstMap compares what a step gives with a map, for few changes and for many, of
// keys that differ early, late, or in nothing but their length, and of windows that close.
func TestChangesAgainstMap(t *testing.T) {
	rng := newRand(t)
	c := changesPool.New().(*changes)
	for round := range 60 * *roundFlag {
		model := make(map[string]string) // "" is deleted
		closed := make(map[int64]bool)
		windows := rng.IntN(2) == 0
		stored := func() (start int64, key string) {
			if !windows {
				return 0, string(StoredKey([]byte(strings.Repeat("x", rng.IntN(30)) + fmt.Sprint(rng.IntN(50)))))
			}
			start = []int64{-60_000, 0, 60_000, 1 << 40}[rng.IntN(4)]
			return start, string(StoredKey(AppendWindowKey(nil, start, fmt.Appendf(nil, "%0*d", 1+rng.IntN(12), rng.IntN(200)))))
		}
		for i := range rng.IntN(4 * radixFrom) {
			start, key := stored()
			switch op := rng.IntN(200); {
			case op == 0 && windows:
				c.close(encodedStart(start))
				closed[start] = true
				for _, k := range slices.Sorted(maps.Keys(model)) {
					if windowOf([]byte(k)) == encodedStart(start) {
						if model[k] != "" {
							c.put([]byte(k), nil)
						}
						delete(model, k)
					}
				}
			case op < 50:
				c.put([]byte(key), nil)
				model[key] = ""
				if c.closing && windowOf([]byte(key)) == c.window {
					delete(model, key)
				}
			default:
				model[key] = fmt.Sprint(i)
				c.put([]byte(key), []byte(model[key]))
			}
		}
		require.Equal(t, len(model), c.sort(), "round %d", round)
		var last string
		got := make(map[string]string)
		require.NoError(t, c.all(func(key, value []byte) error {
			require.Greater(t, string(key), last, "ascending")
			last = string(key)
			require.Equal(t, len(model[last]) == 0, value == nil)
			got[last] = string(value)
			return nil
		}))
		require.Equal(t, model, got, "round %d", round)
		ranges := c.ranges()
		require.Len(t, ranges, len(closed))
		require.NoError(t, Batch{Ranges: ranges}.check())
		c.reset()
		require.Zero(t, c.size())
	}
}

// BenchmarkChanges collects and sorts the changes of a step, most of them of keys of their own.
func BenchmarkChanges(b *testing.B) {
	const n = 500_000
	rng := newRand(b)
	var keys [][]byte
	for i := range n {
		keys = append(keys, StoredKey(AppendWindowKey(nil, int64(i/300_000)*60_000, fmt.Appendf(nil, "%016d", rng.IntN(2*n)))))
	}
	c := changesPool.New().(*changes)
	for b.Loop() {
		for _, key := range keys {
			c.put(key, key[:4])
		}
		if c.sort() < n/2 {
			b.Fatal("changes are missing")
		}
		c.reset()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/change")
}
