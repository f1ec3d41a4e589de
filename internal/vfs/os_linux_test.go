package vfs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestPageFaultIsAnError shows that a mapping whose file lost its pages does not
// end the process, neither by writing nor by reading under Guard.
func TestPageFaultIsAnError(t *testing.T) {
	f := create(t, OS(), filepath.Join(t.TempDir(), "f"))
	require.NoError(t, f.Allocate(1<<20))
	m, err := f.Map(1 << 20)
	require.NoError(t, err)
	defer m.Unmap()
	require.NoError(t, m.Write(1<<19, []byte("there")))
	require.NoError(t, f.Truncate(0))
	for range 3 {
		require.ErrorIs(t, m.Write(1<<19, make([]byte, 10_000)), ErrFault)
		sum := 0
		require.ErrorIs(t, Guard(func() error {
			for _, c := range m.Bytes() {
				sum += int(c)
			}
			return nil
		}), ErrFault)
	}
	require.NoError(t, f.Allocate(1<<20))
	require.NoError(t, m.Write(1<<19, []byte("again")), "the mapping stays usable")
	want := errors.New("own")
	require.Equal(t, want, Guard(func() error { return want }))
	require.PanicsWithValue(t, "other", func() { _ = Guard(func() error { panic("other") }) })
	var missing *int
	require.Panics(t, func() { _ = Guard(func() error { *missing = 1; return nil }) }, "a bug is no page fault")
}

func TestAllocateTakesSpace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	f := create(t, OS(), name)
	require.NoError(t, f.Allocate(1<<20))
	info, err := os.Stat(name)
	require.NoError(t, err)
	if blocks := info.Sys().(*syscall.Stat_t).Blocks; blocks*512 < 1<<20 {
		t.Skipf("this file system reserved %d bytes only", blocks*512)
	}
}

func TestWriteZeros(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	f := create(t, OS(), name)
	write(t, f, 0, "abc")
	require.NoError(t, writeZeros(f.(*osFile).File, 3<<20))
	require.Equal(t, "abc"+string(make([]byte, 3<<20-3)), content(t, OS(), name))
	require.NoError(t, writeZeros(f.(*osFile).File, 10))
}

// TestFullRealDisk fills a small file system, where one can be mounted.
func TestFullRealDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	f, err := OS().Create(filepath.Join(dir, "f"))
	require.NoError(t, err)
	defer f.Close()
	require.ErrorIs(t, f.Allocate(2<<20), syscall.ENOSPC)

	// A hole that cannot be filled faults.
	require.NoError(t, f.Truncate(4<<20))
	m, err := f.Map(4 << 20)
	require.NoError(t, err)
	defer m.Unmap()
	m.Populate(0, 4<<20)
	require.ErrorIs(t, m.Write(0, make([]byte, 4<<20)), ErrFault)
}

// TestLockExcludesOtherProcesses runs this test a second time as the other process.
func TestLockExcludesOtherProcesses(t *testing.T) {
	const variable = "VFS_TEST_LOCK"
	if name := os.Getenv(variable); name != "" {
		_, err := OS().Lock(name)
		require.ErrorIs(t, err, ErrLocked)
		return
	}
	name := filepath.Join(t.TempDir(), "LOCK")
	lock, err := OS().Lock(name)
	require.NoError(t, err)
	defer lock.Close()
	other := exec.Command(os.Args[0], "-test.run=^TestLockExcludesOtherProcesses$")
	other.Env = append(os.Environ(), variable+"="+name)
	output, err := other.CombinedOutput()
	require.NoError(t, err, "%s", output)
}
