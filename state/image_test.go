package state

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Images of several stores are at the checkpoint asked for, however far the stores had come,
// and stay there.
func TestImagesAreAtOneCheckpoint(t *testing.T) {
	ctx := context.Background()
	rng := newRand(t)
	var changelogs []*changelog
	var stores []*Store
	for range 3 {
		c := newChangelog(t)
		changelogs = append(changelogs, c)
		stores = append(stores, c.store(memoryDatabase(t), manual))
	}
	for n := range 10 {
		marks := make([]Mark, len(stores))
		for i, c := range changelogs {
			marks[i] = c.commit(map[string]string{"n": fmt.Sprint(n), fmt.Sprint("k", rng.IntN(5)): fmt.Sprint(n)})
			if rng.IntN(2) == 0 {
				require.NoError(t, stores[i].Follow(ctx, marks[i]))
			}
		}
		images, err := Images(ctx, stores, func() []Mark { return marks })
		require.NoError(t, err)
		for i, im := range images {
			want := storeContent(t, stores[i])
			require.Equal(t, fmt.Sprint(n), want["n"])
			require.NoError(t, stores[i].Follow(ctx, changelogs[i].commit(map[string]string{"n": "later"})))
			got := map[string]string{}
			for e, err := range im.Range(nil, nil) {
				require.NoError(t, err)
				got[string(e.Key)] = string(e.Value)
			}
			require.Equal(t, want, got)
			require.NoError(t, im.Close())
			_, _, err := im.Get([]byte("n"))
			require.ErrorIs(t, err, ErrClosed)
		}
	}
}

// A walk reads the database in pieces, and ends where the image is closed under it.
func TestImageIsReadInPieces(t *testing.T) {
	c := newChangelog(t)
	s := c.store(memoryDatabase(t), manual)
	changes := map[string]string{}
	for i := range 2*imageEntries + 10 {
		changes[fmt.Sprintf("%05d", i)] = "v"
	}
	require.NoError(t, s.Follow(context.Background(), c.commit(changes)))
	images, err := Images(context.Background(), []*Store{s}, func() []Mark { return []Mark{s.Mark()} })
	require.NoError(t, err)
	im, n := images[0], 0
	for e, err := range im.Range([]byte("00001"), []byte("01030")) {
		require.NoError(t, err)
		n++
		require.Equal(t, fmt.Sprintf("%05d", n), string(e.Key))
	}
	require.Equal(t, 1029, n)
	n = 0
	for _, err := range im.Range(nil, nil) {
		if n++; n == 1 {
			require.NoError(t, im.Close())
		}
		if n > imageEntries {
			require.ErrorIs(t, err, ErrClosed)
			break
		}
		require.NoError(t, err)
	}
	require.Equal(t, imageEntries+1, n)
}
