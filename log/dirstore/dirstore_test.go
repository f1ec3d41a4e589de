package dirstore_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/log/dirstore"
	"github.com/thalweg/thalweg/log/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) log.ObjectStore {
		s, err := dirstore.Open(t.TempDir())
		require.NoError(t, err)
		return s
	})
}

// TestCrash shows that an object is there as a whole or not at all, that it is there
// once Put has returned, and that nothing else is left behind.
func TestCrash(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	whole := vfs.NewMem()
	put := func(mem *vfs.Mem) (stored bool) {
		s, err := dirstore.OpenOn(mem, "store")
		if err == nil {
			err = s.Put(t.Context(), "a/b", bytes.NewReader(content), int64(len(content)))
		}
		if err != nil {
			require.ErrorIs(t, err, vfs.ErrStopped)
		}
		return err == nil
	}
	require.True(t, put(whole))
	for n := range whole.Ops() + 2 {
		mem := vfs.NewMem()
		mem.StopAt(n + 1)
		stored := put(mem)
		for seed := range uint64(4) {
			after := mem.Crash(seed)
			s, err := dirstore.OpenOn(after, "store")
			require.NoError(t, err)
			names, err := s.List(t.Context(), "")
			require.NoError(t, err)
			if stored {
				require.Equal(t, []string{"a/b"}, names)
			}
			if len(names) > 0 {
				got := make([]byte, len(content))
				_, err := s.ReadAt(t.Context(), "a/b", got, 0)
				require.NoError(t, errors.Join(err))
				require.Equal(t, content, got)
			}
			if dir, err := after.List("store/a"); err == nil {
				require.LessOrEqual(t, len(dir), 1)
			}
		}
	}
}
