package state

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoAllocationForExistingKeys shows that a look-up, a change and the barrier
// after it allocate nothing for a key that is there.
func TestNoAllocationForExistingKeys(t *testing.T) {
	const n = 1000
	s := newFakeFollower(t, memoryDatabase(t), nil).store
	table := NewTable[int64](s, intCodec{})
	windows := NewWindowTable[int64](s, intCodec{})
	var keys [][]byte
	var hashes []uint64
	for i := range n {
		keys = append(keys, fmt.Appendf(nil, "%0*d", 1+i%40, i))
		hashes = append(hashes, Hash(keys[i]))
	}
	checkpoint := int64(0)
	sum := 0
	put := func(key, value []byte) error {
		sum += len(key) + len(value)
		return nil
	}
	round := func() {
		for i, key := range keys {
			v, _, err := table.Update(hashes[i], key)
			if err != nil {
				t.Fatal(err)
			}
			*v++
			if _, ok, _ := table.Get(hashes[i], key); !ok {
				t.Fatal("no value")
			}
			if v, _, err = windows.Update(int64(i%7), hashes[i], key); err != nil {
				t.Fatal(err)
			}
			*v++
		}
		checkpoint++
		require.NoError(t, table.Barrier(checkpoint, put))
		require.NoError(t, windows.Barrier(checkpoint, put))
		m := Mark{Attempt: 1, N: checkpoint}
		table.Passed(m)
		windows.Passed(m)
	}
	round()
	round()
	// A few for each barrier and window, none for each key.
	require.LessOrEqual(t, testing.AllocsPerRun(20, round), 20.0)
	require.Positive(t, sum)
}

// TestTableMemory shows that Bytes follows what is allocated, and that Dirty
// returns to zero.
func TestTableMemory(t *testing.T) {
	s := newFakeFollower(t, memoryDatabase(t), nil).store
	table := NewTable[int64](s, intCodec{})
	require.Zero(t, table.Bytes())
	const n = 100_000
	for i := range n {
		key := fmt.Appendf(nil, "%016d", i)
		_, _, err := table.Update(Hash(key), key)
		require.NoError(t, err)
	}
	perKey := float64(table.Bytes()) / n
	require.Greater(t, perKey, 40.0)
	require.Less(t, perKey, 70.0)
	require.GreaterOrEqual(t, table.Dirty(), int64(40*n))
	require.NoError(t, table.Barrier(1, func(_, _ []byte) error { return nil }))
	require.GreaterOrEqual(t, table.Dirty(), int64(40*n))
	table.SetBudget(1 << 20)
	table.Passed(Mark{Attempt: 1, N: 1})
	require.Zero(t, table.Dirty())
	require.LessOrEqual(t, table.Bytes(), int64(1<<20))
}
