package vfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A read-only view reads and maps, also what nobody may write, and refuses whatever
// would change something, which then has not changed.
func TestReadOnly(t *testing.T) {
	dir := filepath.ToSlash(t.TempDir())
	for name, files := range map[string]FS{"memory": NewMem(), "system": OS()} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, files.MkdirAll(dir))
			f, err := files.Create(dir + "/file")
			require.NoError(t, err)
			_, err = f.WriteAt([]byte("content"), 0)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			if name == "system" {
				require.NoError(t, os.Chmod(dir+"/file", 0o444))
			}

			r := ReadOnly(files)
			names, err := r.List(dir)
			require.NoError(t, err)
			require.Equal(t, []string{"file"}, names)
			size, err := r.Size(dir + "/file")
			require.NoError(t, err)
			require.EqualValues(t, 7, size)
			f, err = r.Open(dir + "/file")
			require.NoError(t, err)
			b := make([]byte, 7)
			_, err = f.ReadAt(b, 0)
			require.NoError(t, err)
			require.Equal(t, "content", string(b))
			m, err := f.Map(7)
			require.NoError(t, err)
			require.Equal(t, "content", string(m.Bytes()))

			_, err = f.WriteAt([]byte("x"), 0)
			require.ErrorIs(t, err, ErrReadOnly)
			require.ErrorIs(t, f.Truncate(0), ErrReadOnly)
			require.ErrorIs(t, f.Allocate(100), ErrReadOnly)
			require.ErrorIs(t, f.Sync(), ErrReadOnly)
			require.ErrorIs(t, m.Write(0, []byte("x")), ErrReadOnly)
			require.ErrorIs(t, m.WriteCall(0, []byte("x")), ErrReadOnly)
			m.Populate(0, 7)
			if name == "system" {
				err = Guard(func() error { m.Bytes()[0] = 'x'; return nil })
				require.ErrorIs(t, err, ErrFault, "the memory itself is without write access")
			}
			require.NoError(t, f.Close())
			require.Equal(t, "content", string(m.Bytes()))
			require.NoError(t, m.Unmap())

			_, err = r.Create(dir + "/other")
			require.ErrorIs(t, err, ErrReadOnly)
			_, err = r.Lock(dir + "/lock")
			require.ErrorIs(t, err, ErrReadOnly)
			require.ErrorIs(t, r.Remove(dir+"/file"), ErrReadOnly)
			require.ErrorIs(t, r.RemoveAll(dir), ErrReadOnly)
			require.ErrorIs(t, r.Rename(dir+"/file", dir+"/other"), ErrReadOnly)
			require.ErrorIs(t, r.MkdirAll(dir+"/sub"), ErrReadOnly)
			require.ErrorIs(t, r.SyncDir(dir), ErrReadOnly)
			names, err = files.List(dir)
			require.NoError(t, err)
			require.Equal(t, []string{"file"}, names)
		})
	}
}
