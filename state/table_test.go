package state

import (
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "seed of random tests; zero takes one from the clock")
	roundFlag = flag.Int("rounds", 1, "multiplies the length of random tests")
)

// newRand returns a random source and prints its seed.
func newRand(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// box is a value behind a pointer, so that two tables that hold one live object
// see each other's changes.
type box struct{ n int64 }

type boxCodec struct{}

func (boxCodec) Append(dst []byte, v *box) ([]byte, error) {
	var n int64
	if v != nil {
		n = v.n
	}
	return binary.BigEndian.AppendUint64(dst, uint64(n)), nil
}

func (boxCodec) Decode(src []byte) (*box, error) {
	if len(src) != 8 {
		return nil, fmt.Errorf("box of %d bytes", len(src))
	}
	return &box{int64(binary.BigEndian.Uint64(src))}, nil
}

type intCodec struct{}

func (intCodec) Append(dst []byte, v int64) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, uint64(v)), nil
}

func (intCodec) Decode(src []byte) (int64, error) {
	if len(src) != 8 {
		return 0, fmt.Errorf("integer of %d bytes", len(src))
	}
	return int64(binary.BigEndian.Uint64(src)), nil
}

// fakeFollower plays the part of changelog and follower: it keeps what barriers
// wrote and applies it to the database whenever the test says.
type fakeFollower struct {
	t       testing.TB
	store   *Store
	pending []pendingBarrier
	attempt int64
}

type pendingBarrier struct {
	n       int64
	entries map[string][]byte
	order   []string // of their keys
}

func newFakeFollower(t testing.TB, db DB, cache *Cache) *fakeFollower {
	return &fakeFollower{
		t:       t,
		attempt: 1,
		store:   &Store{o: StoreOptions{DB: db, Cache: cache, Name: "fake"}, moved: make(chan struct{}), wake: make(chan struct{}, 1)},
	}
}

// barrier collects what a table writes for checkpoint n.
func (f *fakeFollower) barrier(n int64, table interface {
	Barrier(int64, func(key, value []byte) error) error
}) map[string][]byte {
	entries := make(map[string][]byte)
	var order []string
	err := table.Barrier(n, func(key, value []byte) error {
		_, twice := entries[string(key)]
		require.False(f.t, twice, "key %x was written twice", key)
		order = append(order, string(key))
		if value != nil {
			value = append([]byte{}, value...)
		} else if key[0] != kindClosed {
			require.True(f.t, f.knows(key), "tombstone of key %x, which neither the store nor what it has yet to apply knows", key)
		}
		entries[string(key)] = value
		return nil
	})
	require.NoError(f.t, err)
	f.pending = append(f.pending, pendingBarrier{n, entries, order})
	return entries
}

// knows tells whether key is in the database or in a barrier that is not.
func (f *fakeFollower) knows(key []byte) bool {
	for _, p := range f.pending {
		if _, ok := p.entries[string(key)]; ok {
			return true
		}
	}
	_, ok, err := f.store.o.DB.Get(key)
	require.NoError(f.t, err)
	return ok
}

// follow applies the first n pending barriers, coalesced, and returns the mark.
func (f *fakeFollower) follow(n int) Mark {
	all := changesPool.New().(*changes)
	for _, p := range f.pending[:n] {
		for _, key := range p.order {
			if key[0] != kindClosed {
				all.put([]byte(key), p.entries[key])
				continue
			}
			start, err := parseClosedKey([]byte(key))
			require.NoError(f.t, err)
			all.close(start)
		}
		f.store.mark = Mark{Attempt: f.attempt, N: p.n, End: log.Position{Offset: log.Offset(p.n)}}
	}
	f.pending = f.pending[n:]
	all.sort()
	b := Batch{Ranges: all.ranges()}
	require.NoError(f.t, all.all(func(key, value []byte) error {
		b.Entries = append(b.Entries, Entry{Key: key, Value: value})
		return nil
	}))
	require.NoError(f.t, f.store.o.DB.Apply(b))
	return f.store.mark
}

// lossyCache drops, delays and reorders what is put into it, and takes its time
// to delete.
type lossyCache struct {
	rng     *rand.Rand
	values  map[uint64]*cached
	delayed []func()
	hits    int
}

func newLossyCache(rng *rand.Rand) *lossyCache {
	return &lossyCache{rng: rng, values: make(map[uint64]*cached)}
}

func (c *lossyCache) do(f func()) {
	switch c.rng.IntN(4) {
	case 0: // lost
	case 1:
		f()
	default:
		c.delayed = append(c.delayed, f)
	}
	for len(c.delayed) > 0 && c.rng.IntN(3) != 0 {
		i := c.rng.IntN(len(c.delayed))
		f := c.delayed[i]
		c.delayed = slices.Delete(c.delayed, i, i+1)
		f()
	}
}

func (c *lossyCache) get(slot uint64) (*cached, bool) {
	v, ok := c.values[slot]
	if ok {
		c.hits++
	}
	return v, ok
}

func (c *lossyCache) set(slot uint64, v *cached, _ int64) { c.do(func() { c.values[slot] = v }) }
func (c *lossyCache) del(slot uint64)                     { c.do(func() { delete(c.values, slot) }) }
func (c *lossyCache) close()                              {}

// modelKeys returns keys of all sorts of lengths, inline and not.
func modelKeys(n int) [][]byte {
	keys := [][]byte{{}}
	for i := 1; i < n; i++ {
		key := fmt.Appendf(nil, "%d-", i)
		for len(key) < i%60 {
			key = append(key, byte(i))
		}
		keys = append(keys, key)
	}
	return keys
}

// TestTableAgainstMap runs random operations on a table over a store that lags,
// with budgets so small that values leave all the time and a cache that cannot be
// trusted, and on a map. A rollback drops the table and goes back to the last
// barrier.
func TestTableAgainstMap(t *testing.T) {
	rng := newRand(t)
	for round := range 20 * *roundFlag {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			keys := modelKeys(1 + rng.IntN(300))
			lossy := newLossyCache(rng)
			var cache *Cache
			if rng.IntN(4) != 0 {
				cache = &Cache{values: lossy}
			}
			db, err := Memory().Open("")
			require.NoError(t, err)
			f := newFakeFollower(t, db, cache)
			budget := int64([]int{0, 1, 4 << 10, 16 << 10}[rng.IntN(4)])
			open := func() *Table[*box] {
				table := NewTable[*box](f.store, boxCodec{})
				table.SetBudget(budget)
				return table
			}
			table := open()
			model, committed := map[string]int64{}, map[string]int64{}
			n := int64(0)
			for range 3000 {
				key := keys[rng.IntN(len(keys))]
				want, has := model[string(key)]
				switch op := rng.IntN(100); {
				case op < 45:
					v, existed, err := table.Update(Hash(key), key)
					require.NoError(t, err)
					require.Equal(t, has, existed)
					if !existed {
						require.Nil(t, *v)
						*v = &box{}
					}
					require.Equal(t, want, (*v).n, "key %q", key)
					(*v).n += 1 + int64(rng.IntN(3))
					model[string(key)] = (*v).n
				case op < 60:
					v, ok, err := table.Get(Hash(key), key)
					require.NoError(t, err)
					require.Equal(t, has, ok, "key %q", key)
					if ok {
						require.Equal(t, want, (*v).n)
					}
				case op < 75:
					require.NoError(t, table.Delete(Hash(key), key))
					delete(model, string(key))
				case op < 85:
					n++
					f.barrier(n, table)
					committed = maps.Clone(model)
				case op < 99:
					table.Passed(f.follow(rng.IntN(len(f.pending) + 1)))
				case op == 99 && rng.IntN(2) == 0:
					im, err := table.Image(nil)
					require.NoError(t, err)
					one, err := table.Image(key)
					require.NoError(t, err)
					if len(f.pending) > 0 && rng.IntN(2) == 0 {
						table.Passed(f.follow(1)) // which the images do not see
					}
					require.NoError(t, table.Delete(Hash(key), key))
					delete(model, string(key))
					before := maps.Clone(model)
					if has {
						before[string(key)] = want
					}
					checkImage(t, im, before)
					v, ok, err := one.Get(key)
					require.NoError(t, err)
					require.Equal(t, has, ok)
					if ok {
						require.Equal(t, want, int64(binary.BigEndian.Uint64(v)))
					}
					require.NoError(t, one.Close())
				default:
					f.follow(len(f.pending))
					f.attempt++
					n = int64(rng.IntN(3)) // numbers of an attempt say nothing about another's
					model = maps.Clone(committed)
					table = open()
				}
				require.GreaterOrEqual(t, table.Dirty(), int64(0))
			}
			n++
			f.barrier(n, table)
			table.Passed(f.follow(len(f.pending)))
			require.Zero(t, table.Dirty(), "everything is in the store")
			checkStore(t, f.store, model)
			for _, key := range keys {
				v, ok, err := table.Get(Hash(key), key)
				require.NoError(t, err)
				want, has := model[string(key)]
				require.Equal(t, has, ok)
				if has {
					require.Equal(t, want, (*v).n)
				}
			}
			if budget == 1 && cache != nil {
				t.Logf("%d cache hits", lossy.hits)
			}
		})
	}
}

// checkImage compares an image of boxes with a map, as a whole and key by key, and closes it.
func checkImage(t *testing.T, im *Image, model map[string]int64) {
	t.Helper()
	got := make(map[string]int64)
	last := ""
	for e, err := range im.Range(nil, nil) {
		require.NoError(t, err)
		require.True(t, len(got) == 0 || last < string(e.Key), "keys ascend")
		last = string(e.Key)
		got[last] = int64(binary.BigEndian.Uint64(e.Value))
	}
	require.Equal(t, model, got)
	for k, want := range model {
		v, ok, err := im.Get([]byte(k))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, int64(binary.BigEndian.Uint64(v)))
	}
	require.NoError(t, im.Close())
	require.NoError(t, im.Close())
	for _, err := range im.Range(nil, nil) {
		if err != nil {
			require.ErrorIs(t, err, ErrClosed)
		}
	}
}

// checkStore compares a store of boxes with a map.
func checkStore(t *testing.T, s *Store, model map[string]int64) {
	t.Helper()
	got := make(map[string]int64)
	for e, err := range s.Range(nil, nil) {
		require.NoError(t, err)
		v, err := boxCodec{}.Decode(e.Value)
		require.NoError(t, err)
		got[string(e.Key)] = v.n
	}
	require.Equal(t, model, got)
}

// Entries come in order of their keys whatever the keys have in common, also when one
// is the beginning of all others.
func TestSortedWithSharedPrefixes(t *testing.T) {
	for name, keys := range map[string][]string{
		"none":       {"b", "a", "", "ab", "zz"},
		"some":       {"window-1/b", "window-1/a", "window-1/", "window-1/abcdefghijk", "window-1/abcdefghij"},
		"all of one": {"window", "window-b", "window-a", "window-aa"},
		"one key":    {"alone"},
		"no key":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			o := newOverlay(valuesOf[int](nil), new(ledger))
			for _, k := range keys {
				o.insert(Hash([]byte(k)), []byte(k))
			}
			var got []string
			by := new(sorter)
			o.sort(by)
			for _, s := range by.list {
				got = append(got, string(o.key(o.at(s.id))))
			}
			want := slices.Clone(keys)
			slices.Sort(want)
			require.Equal(t, want, got)
		})
	}
}
