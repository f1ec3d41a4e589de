package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// eachFS runs test on every implementation, each time in an empty directory.
func eachFS(t *testing.T, test func(t *testing.T, fsys FS, dir string)) {
	t.Run("os", func(t *testing.T) { test(t, OS(), filepath.ToSlash(t.TempDir())) })
	t.Run("mem", func(t *testing.T) {
		m := NewMem()
		require.NoError(t, m.MkdirAll("some/dir"))
		test(t, m, "some/dir")
	})
}

func create(t testing.TB, fsys FS, name string) File {
	t.Helper()
	f, err := fsys.Create(name)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func content(t testing.TB, fsys FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name)
	require.NoError(t, err)
	defer f.Close()
	size, err := f.Size()
	require.NoError(t, err)
	b := make([]byte, size)
	if size > 0 {
		_, err = f.ReadAt(b, 0)
		require.NoError(t, err)
	}
	return string(b)
}

func write(t testing.TB, f File, off int64, s string) {
	t.Helper()
	n, err := f.WriteAt([]byte(s), off)
	require.NoError(t, err)
	require.Equal(t, len(s), n)
}

func TestReadAndWriteAt(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		name := path.Join(dir, "f")
		f := create(t, fsys, name)
		write(t, f, 3, "abc")
		require.Equal(t, "\x00\x00\x00abc", content(t, fsys, name), "a hole reads as zeros")

		b := make([]byte, 4)
		n, err := f.ReadAt(b, 4)
		require.Equal(t, io.EOF, err)
		require.Equal(t, "bc", string(b[:n]))
		_, err = f.ReadAt(b, 100)
		require.Equal(t, io.EOF, err)
		_, err = f.ReadAt(b, -1)
		require.Error(t, err)
		_, err = f.WriteAt(b, -1)
		require.Error(t, err)

		size, err := fsys.Size(name)
		require.NoError(t, err)
		require.EqualValues(t, 6, size)
	})
}

func TestCreateEmptiesAFile(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		name := path.Join(dir, "f")
		write(t, create(t, fsys, name), 0, "old")
		create(t, fsys, name)
		require.Empty(t, content(t, fsys, name))
	})
}

func TestMissingAndMisplacedNames(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		missing := path.Join(dir, "missing")
		file := path.Join(dir, "file")
		create(t, fsys, file)
		_, err := fsys.Open(missing)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = fsys.Create(path.Join(missing, "f"))
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = fsys.List(missing)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = fsys.Size(missing)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorIs(t, fsys.Remove(missing), fs.ErrNotExist)
		require.ErrorIs(t, fsys.Rename(missing, file), fs.ErrNotExist)
		require.ErrorIs(t, fsys.SyncDir(missing), fs.ErrNotExist)
		require.NoError(t, fsys.RemoveAll(missing))

		_, err = fsys.Create(dir)
		require.Error(t, err)
		_, err = fsys.Open(dir)
		require.Error(t, err)
		_, err = fsys.Size(dir)
		require.Error(t, err)
		_, err = fsys.List(file)
		require.Error(t, err)
		require.Error(t, fsys.MkdirAll(file))
		require.Error(t, fsys.MkdirAll(path.Join(file, "below")))
		_, err = fsys.Open(path.Join(file, "below"))
		require.Error(t, err)
	})
}

func TestDirectories(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		deep := path.Join(dir, "a", "b")
		require.NoError(t, fsys.MkdirAll(deep))
		require.NoError(t, fsys.MkdirAll(deep), "an existing directory is no error")
		create(t, fsys, path.Join(deep, "z"))
		create(t, fsys, path.Join(deep, "y"))
		names, err := fsys.List(deep)
		require.NoError(t, err)
		require.Equal(t, []string{"y", "z"}, names)
		require.NoError(t, fsys.SyncDir(deep))
		require.Error(t, fsys.Remove(deep), "not empty")
		require.NoError(t, fsys.Remove(path.Join(deep, "z")))
		require.NoError(t, fsys.RemoveAll(path.Join(dir, "a")))
		names, err = fsys.List(dir)
		require.NoError(t, err)
		require.Empty(t, names)
	})
}

func TestRenameReplaces(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		from, to := path.Join(dir, "from"), path.Join(dir, "to")
		f, old := create(t, fsys, from), create(t, fsys, to)
		write(t, f, 0, "new")
		write(t, old, 0, "old")
		if runtime.GOOS == "windows" {
			require.NoError(t, f.Close())
			require.NoError(t, old.Close())
		}
		require.NoError(t, fsys.Rename(from, to))
		require.Equal(t, "new", content(t, fsys, to))
		names, err := fsys.List(dir)
		require.NoError(t, err)
		require.Equal(t, []string{"to"}, names)

		require.NoError(t, fsys.MkdirAll(path.Join(dir, "d", "e")))
		require.NoError(t, fsys.Rename(path.Join(dir, "d"), path.Join(dir, "g")))
		names, err = fsys.List(path.Join(dir, "g"))
		require.NoError(t, err)
		require.Equal(t, []string{"e"}, names)
		require.Error(t, fsys.Rename(path.Join(dir, "g"), path.Join(dir, "g", "e", "below")))
		require.Error(t, fsys.Rename(to, path.Join(dir, "g")), "a file over a directory")
	})
}

func TestTruncateAndAllocate(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		name := path.Join(dir, "f")
		f := create(t, fsys, name)
		write(t, f, 0, "abcdef")
		require.NoError(t, f.Truncate(2))
		require.NoError(t, f.Truncate(5))
		require.Equal(t, "ab\x00\x00\x00", content(t, fsys, name), "what was cut off does not return")
		require.NoError(t, f.Allocate(3), "allocating less keeps the length")
		require.Equal(t, "ab\x00\x00\x00", content(t, fsys, name))
		require.NoError(t, f.Allocate(10_000))
		size, err := f.Size()
		require.NoError(t, err)
		require.EqualValues(t, 10_000, size)
		require.Equal(t, "ab"+string(make([]byte, 9_998)), content(t, fsys, name))
		require.NoError(t, f.Sync())
		require.Error(t, f.Truncate(-1))
	})
}

func TestMappingAndFileShowTheSameBytes(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		if runtime.GOOS == "windows" {
			t.Skip("mapping extends the file")
		}
		name := path.Join(dir, "f")
		f := create(t, fsys, name)
		write(t, f, 0, "one")
		const mapped = 1 << 20
		m, err := f.Map(mapped)
		require.NoError(t, err)
		before := m.Bytes()
		require.Len(t, before, mapped)
		size, err := f.Size()
		require.NoError(t, err)
		require.EqualValues(t, 3, size, "mapping does not extend")

		require.NoError(t, f.Allocate(20_000))
		m.Populate(0, 20_000)
		m.Populate(-5, mapped*2)
		require.NoError(t, m.Write(3, []byte("two")))
		require.NoError(t, m.Write(12_345, []byte("far")))
		write(t, f, 6, "three")
		b := make([]byte, 11)
		_, err = f.ReadAt(b, 0)
		require.NoError(t, err)
		require.Equal(t, "onetwothree", string(b))
		require.Equal(t, "onetwothree", string(before[:11]), "the memory stays where it was")
		require.Equal(t, "far", string(before[12_345:12_348]))

		second, err := f.Map(2 * mapped)
		require.NoError(t, err)
		require.Equal(t, "onetwothree", string(second.Bytes()[:11]))
		require.NoError(t, second.Write(0, []byte("ONE")))
		require.NoError(t, m.Write(3, []byte("TWO")))
		require.Equal(t, "ONETWOthree", string(before[:11]))
		require.Equal(t, "ONETWOthree", string(second.Bytes()[:11]))
		require.NoError(t, f.Truncate(11))
		require.NoError(t, f.Allocate(20_000))
		require.Zero(t, second.Bytes()[12_345])
		require.NoError(t, second.Unmap())
		require.Zero(t, before[12_345], "what was cut off is gone from mappings")

		require.NoError(t, f.Sync())
		require.NoError(t, f.Close())
		require.NoError(t, m.Write(0, []byte("XYZ")), "a mapping outlives its file")
		require.Equal(t, "XYZTWOthree", content(t, fsys, name)[:11])
		require.NoError(t, m.Unmap())
		require.NoError(t, m.Unmap(), "unmapping again does nothing")
		require.Nil(t, m.Bytes())
	})
}

func TestMappedWriteOutsideIsAnError(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, path.Join(dir, "f"))
		require.NoError(t, f.Allocate(4096))
		m, err := f.Map(1 << 20)
		require.NoError(t, err)
		defer m.Unmap()
		require.Error(t, m.Write(-1, []byte("x")))
		require.Error(t, m.Write(1<<20, []byte("x")))
		require.Error(t, m.Write(1<<20-1, []byte("xy")))
		require.NoError(t, m.Write(1<<20, nil))
		if runtime.GOOS != "windows" {
			require.ErrorIs(t, m.Write(512<<10, []byte("x")), ErrFault, "past the end of the file")
		}
		require.NoError(t, m.Write(4000, []byte("still usable")))
		_, err = f.Map(0)
		require.Error(t, err)
		_, err = f.Map(-1)
		require.Error(t, err)
	})
}

func TestClosedFileIsAnError(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, path.Join(dir, "f"))
		require.NoError(t, f.Close())
		_, err := f.ReadAt(make([]byte, 1), 0)
		require.ErrorIs(t, err, fs.ErrClosed)
		_, err = f.WriteAt([]byte("x"), 0)
		require.ErrorIs(t, err, fs.ErrClosed)
		require.ErrorIs(t, f.Sync(), fs.ErrClosed)
		require.ErrorIs(t, f.Allocate(1), fs.ErrClosed)
		require.ErrorIs(t, f.Truncate(1), fs.ErrClosed)
		_, err = f.Map(1)
		require.ErrorIs(t, err, fs.ErrClosed)
		_, err = f.Size()
		require.ErrorIs(t, err, fs.ErrClosed)
		require.ErrorIs(t, f.Close(), fs.ErrClosed)
	})
}

func TestRemovedFileStaysUsable(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		if runtime.GOOS == "windows" {
			t.Skip("an open file cannot be removed")
		}
		name := path.Join(dir, "f")
		f := create(t, fsys, name)
		write(t, f, 0, "abc")
		require.NoError(t, fsys.Remove(name))
		b := make([]byte, 3)
		_, err := f.ReadAt(b, 0)
		require.NoError(t, err)
		require.Equal(t, "abc", string(b))
		_, err = fsys.Open(name)
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}

func TestLockExcludesWithinTheProcess(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		name := path.Join(dir, "LOCK")
		held, err := fsys.Lock(name)
		require.NoError(t, err)
		_, err = fsys.Lock(name)
		require.ErrorIs(t, err, ErrLocked)
		require.ErrorContains(t, err, "LOCK", "the error names the file")
		require.NoError(t, held.Close())
		again, err := fsys.Lock(name)
		require.NoError(t, err)
		require.NoError(t, again.Close())
		_, err = fsys.Lock(path.Join(dir, "missing", "LOCK"))
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}

func TestConcurrentUse(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, path.Join(dir, "f"))
		require.NoError(t, f.Allocate(1<<20))
		m, err := f.Map(1 << 20)
		require.NoError(t, err)
		defer m.Unmap()
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				name := path.Join(dir, fmt.Sprint(worker))
				for i := range 50 {
					if err := m.Write(int64(worker)<<18+int64(i)*100, []byte("some bytes")); err != nil {
						t.Error(err)
					}
					if _, err := f.WriteAt([]byte("others"), int64(worker)<<18+int64(i)*100+50); err != nil {
						t.Error(err)
					}
					g, err := fsys.Create(name)
					if err != nil {
						t.Error(err)
						return
					}
					g.Close()
					if _, err := fsys.List(dir); err != nil {
						t.Error(err)
					}
					if err := fsys.Remove(name); err != nil {
						t.Error(err)
					}
				}
			})
		}
		if mem, ok := fsys.(*Mem); ok {
			for seed := range uint64(10) {
				mem.Crash(seed)
				mem.Kill()
				mem.WriteBack(seed)
			}
		}
		wg.Wait()
		require.Equal(t, "some bytes", string(m.Bytes()[3<<18:3<<18+10]))
	})
}
