package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWindowTableAgainstMap is TestTableAgainstMap with windows that are closed
// and come back.
func TestWindowTableAgainstMap(t *testing.T) {
	rng := newRand(t)
	type model map[int64]map[string]int64
	clone := func(m model) model {
		c := model{}
		for start, keys := range m {
			c[start] = maps.Clone(keys)
		}
		return c
	}
	errStop := errors.New("stop")
	starts := []int64{math.MinInt64, -3600, -1, 0, 1, 60, 120, 7200, math.MaxInt64}
	for round := range 20 * *roundFlag {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			keys := modelKeys(1 + rng.IntN(60))
			lossy := newLossyCache(rng)
			var cache *Cache
			if rng.IntN(4) != 0 {
				cache = &Cache{values: lossy}
			}
			db, err := Memory().Open("")
			require.NoError(t, err)
			f := newFakeFollower(t, db, cache)
			budget := int64([]int{0, 1, 4 << 10, 16 << 10}[rng.IntN(4)])
			open := func() *WindowTable[*box] {
				table := NewWindowTable[*box](f.store, boxCodec{})
				table.SetBudget(budget)
				return table
			}
			table := open()
			deletes := rng.IntN(2) == 0 // after which a window may be empty that is not known to be
			now, committed := model{}, model{}
			n := int64(0)
			for range 3000 {
				start := starts[rng.IntN(len(starts))]
				key := keys[rng.IntN(len(keys))]
				want, has := now[start][string(key)]
				switch op := rng.IntN(100); {
				case op < 60:
					v, existed, err := table.Update(start, Hash(key), key)
					require.NoError(t, err)
					require.Equal(t, has, existed)
					if !existed {
						require.Nil(t, *v)
						*v = &box{}
					}
					require.Equal(t, want, (*v).n)
					(*v).n += 1 + int64(rng.IntN(3))
					if now[start] == nil {
						now[start] = map[string]int64{}
					}
					now[start][string(key)] = (*v).n
				case op < 64 && deletes:
					require.NoError(t, table.Delete(start, Hash(key), key))
					delete(now[start], string(key))
				case op < 70:
					v, ok, err := table.Get(start, Hash(key), key)
					require.NoError(t, err)
					require.Equal(t, has, ok)
					if ok {
						require.Equal(t, want, (*v).n)
					}
				case op < 73:
					got := map[string]int64{}
					var order []string
					fail := len(now[start]) > 0 && rng.IntN(3) == 0
					walk, scan := table.CloseWindow, rng.IntN(3) == 0
					if scan {
						walk = table.ScanWindow
					}
					err := walk(start, func(key []byte, v **box) error {
						got[string(key)] = (*v).n
						order = append(order, string(key))
						if fail && len(order) == len(now[start])/2+1 {
							return errStop
						}
						return nil
					})
					require.True(t, slices.IsSorted(order), "keys come in ascending order")
					if fail {
						require.Equal(t, errStop, err, "a failed close changes nothing")
						break
					}
					require.NoError(t, err)
					require.Len(t, got, len(order), "each key comes once")
					if now[start] == nil {
						now[start] = map[string]int64{}
					}
					require.Equal(t, now[start], got)
					if !scan {
						delete(now, start)
					}
				case op < 85:
					n++
					f.barrier(n, table)
					committed = clone(now)
				case op < 99:
					table.Passed(f.follow(rng.IntN(len(f.pending) + 1)))
				case op == 99 && rng.IntN(2) == 0:
					im, err := table.Image(nil)
					require.NoError(t, err)
					one, err := table.Image(AppendWindowKey(nil, start, key))
					require.NoError(t, err)
					if len(f.pending) > 0 && rng.IntN(2) == 0 {
						table.Passed(f.follow(1)) // which the images do not see
					}
					all := map[string]int64{}
					for start, keys := range now {
						for key, n := range keys {
							all[string(AppendWindowKey(nil, start, []byte(key)))] = n
						}
					}
					checkImage(t, im, all)
					v, ok, err := one.Get(AppendWindowKey(nil, start, key))
					require.NoError(t, err)
					require.Equal(t, has, ok)
					if ok {
						require.Equal(t, want, int64(binary.BigEndian.Uint64(v)))
					}
					require.NoError(t, one.Close())
				default:
					f.follow(len(f.pending))
					f.attempt++
					n = int64(rng.IntN(3))
					now = clone(committed)
					table = open()
				}
				for start, keys := range now {
					if len(keys) == 0 {
						delete(now, start)
					}
				}
				windows := slices.Sorted(maps.Keys(now))
				if deletes {
					require.Subset(t, table.Windows(), windows)
					continue
				}
				require.Equal(t, windows, table.Windows())
				oldest, ok := table.Oldest()
				require.Equal(t, len(windows) > 0, ok)
				if ok {
					require.Equal(t, windows[0], oldest)
				}
			}
			n++
			f.barrier(n, table)
			table.Passed(f.follow(len(f.pending)))
			require.Zero(t, table.Dirty(), "everything is in the store")
			flat := map[string]int64{}
			for start, keys := range now {
				for key, v := range keys {
					flat[string(AppendWindowKey(nil, start, []byte(key)))] = v
				}
			}
			checkStore(t, f.store, flat)
			for _, start := range table.Windows() { // one that deletes emptied may be among them
				require.NoError(t, table.CloseWindow(start, func([]byte, **box) error { return nil }))
			}
			n++
			f.barrier(n, table)
			table.Passed(f.follow(len(f.pending)))
			require.Empty(t, table.windows, "nothing is left of closed windows")
			require.Zero(t, table.Bytes())
			checkStore(t, f.store, map[string]int64{})
		})
	}
}
