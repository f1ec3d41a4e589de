package state

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// firing is a timer as a test writes it down.
type firing struct {
	at  int64
	key string
	tag uint8
}

func compareFirings(a, b firing) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.key, b.key), cmp.Compare(a.tag, b.tag))
}

// timerModel is the timers of a queue, in order.
type timerModel []firing

func (m *timerModel) add(f firing) {
	if i, found := slices.BinarySearchFunc(*m, f, compareFirings); !found {
		*m = slices.Insert(*m, i, f)
	}
}

func (m *timerModel) cancel(f firing) {
	if i, found := slices.BinarySearchFunc(*m, f, compareFirings); found {
		*m = slices.Delete(*m, i, i+1)
	}
}

// TestTimersAgainstSortedSlice runs random operations on timers over a store that
// lags, with budgets so small that they leave memory all the time, and on sorted
// slices. A rollback goes back to the last barrier.
func TestTimersAgainstSortedSlice(t *testing.T) {
	rng := newRand(t)
	rounds := 12 * *roundFlag
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			keys := modelKeys(1 + rng.IntN(60))
			times := int64(1) << (2 + rng.IntN(40)) // from crowded to sparse
			lossy := newLossyCache(rng)
			var cache *Cache
			if rng.IntN(3) != 0 {
				cache = &Cache{values: lossy}
			}
			db, err := Memory().Open("")
			require.NoError(t, err)
			f := newFakeFollower(t, db, cache)
			budget := int64([]int{0, 1, 4 << 10, 64 << 10}[rng.IntN(4)])
			open := func() *Timers {
				timers := NewTimers(f.store)
				require.NoError(t, timers.Err())
				timers.SetBudget(budget)
				return timers
			}
			timers := open()
			var now, committed [2]timerModel
			n, w := int64(0), int64(0)
			random := func() firing {
				at := w + rng.Int64N(times)
				switch rng.IntN(200) {
				case 0:
					at = math.MinInt64
				case 1:
					at = math.MaxInt64
				case 2:
					at = -rng.Int64N(times)
				}
				return firing{at, string(keys[rng.IntN(len(keys))]), uint8(rng.IntN(3) * rng.IntN(MaxTimerTag+1) / 2)}
			}
			pop := func(id int, upTo int64) {
				var got []firing
				stop := rng.IntN(10) == 0
				errStop := errors.New("stop")
				err := timers.Queue(id).Pop(upTo, func(at int64, key []byte, tag uint8) error {
					fired := firing{at, string(key), tag}
					require.NotEmpty(t, now[id])
					require.Equal(t, now[id][0], fired, "in order, also of what is set and cancelled meanwhile")
					now[id] = now[id][1:]
					got = append(got, fired)
					switch rng.IntN(12) {
					case 0:
						f := firing{at + 1 + rng.Int64N(times), fired.key, tag}
						if f.at > at {
							require.NoError(t, timers.Queue(id).Add(f.at, []byte(f.key), f.tag))
							now[id].add(f)
						}
					case 1:
						if len(now[id]) > 0 {
							f := now[id][rng.IntN(len(now[id]))]
							require.NoError(t, timers.Queue(id).Cancel(f.at, []byte(f.key), f.tag))
							now[id].cancel(f)
						}
					}
					if stop && len(got) == 5 {
						return errStop
					}
					return nil
				})
				if stop && len(got) == 5 {
					require.Equal(t, errStop, err)
					return
				}
				require.NoError(t, err)
				require.True(t, len(now[id]) == 0 || now[id][0].at > upTo)
			}
			many := 1
			if rng.IntN(3) == 0 {
				many = 40 // so that front does not hold all
			}
			for range 1500 {
				id := rng.IntN(2)
				switch op := rng.IntN(100); {
				case op < 55:
					for range many {
						x := random()
						require.NoError(t, timers.Queue(id).Add(x.at, []byte(x.key), x.tag))
						now[id].add(x)
					}
				case op < 65:
					x := random()
					if len(now[id]) > 0 && rng.IntN(4) > 0 {
						x = now[id][rng.IntN(len(now[id]))]
					}
					_, want := slices.BinarySearchFunc(now[id], x, compareFirings)
					has, err := timers.Queue(id).Has(x.at, []byte(x.key), x.tag)
					require.NoError(t, err)
					require.Equal(t, want, has)
					require.NoError(t, timers.Queue(id).Cancel(x.at, []byte(x.key), x.tag))
					now[id].cancel(x)
				case op < 75:
					w += rng.Int64N(times)
					pop(id, w)
				case op < 76:
					pop(id, math.MaxInt64)
				case op < 86:
					n++
					f.barrier(n, timers)
					committed = [2]timerModel{slices.Clone(now[0]), slices.Clone(now[1])}
				case op < 98:
					timers.Passed(f.follow(rng.IntN(len(f.pending) + 1)))
				default:
					f.follow(len(f.pending))
					f.attempt++
					n = int64(rng.IntN(3))
					now = [2]timerModel{slices.Clone(committed[0]), slices.Clone(committed[1])}
					timers = open()
				}
				at, ok, err := timers.Queue(id).Next()
				require.NoError(t, err)
				require.Equal(t, len(now[id]) > 0, ok)
				if ok {
					require.Equal(t, now[id][0].at, at)
				}
			}
			pop(0, math.MaxInt64)
			pop(1, math.MaxInt64)
			pop(0, math.MaxInt64) // after one that stopped
			pop(1, math.MaxInt64)
			n++
			f.barrier(n, timers)
			timers.Passed(f.follow(len(f.pending)))
			require.Zero(t, timers.Dirty())
			if len(now[0])+len(now[1]) == 0 {
				for e, err := range f.store.Range(nil, nil) {
					require.NoError(t, err)
					t.Fatalf("left in the store: %x", e.Key)
				}
			}
		})
	}
}

// Of many timers only the earliest are in memory in order, also where each moves all
// the time, and none is lost for it.
func TestTimersKeepFewInOrder(t *testing.T) {
	db, err := Memory().Open("")
	require.NoError(t, err)
	f := newFakeFollower(t, db, nil)
	timers := NewTimers(f.store)
	q := timers.Queue(0)
	const keys, moves = 20_000, 100_000
	at := make([]int64, keys)
	for i := range moves {
		k := i * 7919 % keys
		key := fmt.Appendf(nil, "key %d", k)
		if at[k] != 0 {
			require.NoError(t, q.Cancel(at[k], key, 0))
		}
		at[k] = int64(moves - i)
		require.NoError(t, q.Add(at[k], key, 0))
	}
	require.LessOrEqual(t, len(q.front), moves/8)
	slices.Sort(at)
	var fired []int64
	require.NoError(t, q.Pop(math.MaxInt64, func(at int64, _ []byte, _ uint8) error {
		fired = append(fired, at)
		return nil
	}))
	require.Equal(t, at, fired)
	f.barrier(1, timers)
	require.Empty(t, f.pending[0].entries, "what came and went leaves nothing")
}

// A timer is found at the byte positions the table in format.go gives.
func TestFormatOfTimers(t *testing.T) {
	db, err := Memory().Open("")
	require.NoError(t, err)
	f := newFakeFollower(t, db, nil)
	timers := NewTimers(f.store)
	require.NoError(t, timers.Queue(1).Add(-2, []byte("k"), 0))
	require.NoError(t, timers.Queue(1).Add(-2, []byte("k"), 7))
	entries := f.barrier(1, timers)
	require.Equal(t, map[string][]byte{"\x01\x01\x7f\xff\xff\xff\xff\xff\xff\xfek": {1, 0x81, 1}}, entries)

	for _, bad := range [][]byte{{}, {0}, {0x80}, {1, 1}} {
		_, err := tagsCodec{}.Decode(bad)
		require.Error(t, err, "%x", bad)
	}
	f.follow(1)
	require.NoError(t, f.store.o.DB.Apply(Batch{Entries: []Entry{{Key: []byte{1, 0, 5}, Value: []byte{1, 1}}}}))
	_, _, err = NewTimers(f.store).Queue(0).Next()
	require.ErrorContains(t, err, "too short", "a damaged key is an error")
}
