package state

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Look-ups see each write that was done before them, removals of ranges too, and whether what was
// written is still in memory or not; several at the same time do as well.
func TestLookUpsSeeWhatWasApplied(t *testing.T) {
	db, err := Disk(0).Open(t.TempDir())
	require.NoError(t, err)
	key := func(i int) []byte { return binary.BigEndian.AppendUint32([]byte{kindValue}, uint32(i)) }
	get := func(i int) string {
		v, ok, err := db.Get(key(i))
		require.NoError(t, err)
		require.Equal(t, ok, v != nil)
		return string(v)
	}
	const keys = 200
	for round := range 5 {
		for i := range keys {
			before := ""
			if round > 0 && i >= keys/2 {
				before = fmt.Sprint(round - 1)
			}
			require.Equal(t, before, get(i))
			require.NoError(t, db.Apply(Batch{Entries: []Entry{{Key: key(i), Value: fmt.Append(nil, round)}}}))
			require.Equal(t, fmt.Sprint(round), get(i))
			_, ok, err := db.Get(append(key(i), 0)) // begins as a key that is there
			require.NoError(t, err)
			require.False(t, ok)
			_, ok, err = db.Get(key(i)[:4]) // a key that is there begins with it
			require.NoError(t, err)
			require.False(t, ok)
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for i := range keys {
					v, ok, err := db.Get(key(i))
					if err != nil || !ok || string(v) != fmt.Sprint(round) {
						t.Errorf("key %d is %q, %v, %v in round %d", i, v, ok, err, round)
					}
				}
			})
		}
		all.Wait()
		done, err := db.(*diskDB).Flush()
		require.NoError(t, err)
		<-done
		require.Equal(t, fmt.Sprint(round), get(0))
		require.NoError(t, db.Apply(Batch{Ranges: []Range{{Lo: key(0), Hi: key(keys / 2)}}}))
		require.Empty(t, get(0))
		require.Empty(t, get(keys/2-1))
		require.Equal(t, fmt.Sprint(round), get(keys/2))
	}
	require.NoError(t, db.Close())
	_, _, err = db.Get(key(0))
	require.ErrorIs(t, err, ErrClosed)
}
