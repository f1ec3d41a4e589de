package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
)

// mount mounts a file system of 24 MiB in memory, where that is allowed.
func mount(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("cannot mount a file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// The same as with a simulated disk: a real one that is full refuses records, keeps
// what it has, and takes more once there is room, all in one process.
func TestFullRealDisk(t *testing.T) {
	dir := mount(t)
	ballast := filepath.Join(dir, "ballast")
	options := thalweg.Options{Log: log.Options{SegmentBytes: 64 << 10, MaxBatchBytes: 64 << 10}}
	node, err := options.Open(filepath.Join(dir, "node"))
	require.NoError(t, err)
	require.NoError(t, node.Create(t.Context(), votes, tally))
	// All room but a little is taken away.
	var free unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &free))
	file, err := os.Create(ballast)
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, unix.Fallocate(int(file.Fd()), 0, 0, int64(free.Bavail)*free.Bsize-200<<10))
	acknowledged := fillDisk(t, node)
	require.NotEmpty(t, acknowledged)
	require.Equal(t, acknowledged, valuesOf(t, node))

	require.NoError(t, file.Truncate(0))
	requireAlive(t, node, acknowledged...)
	require.NoError(t, node.Close())
	node, err = options.Open(filepath.Join(dir, "node"))
	require.NoError(t, err)
	require.Equal(t, append(acknowledged, -1), valuesOf(t, node))
	require.NoError(t, node.Close())
}

// A directory on a file system that is mounted read-only, which stops the superuser
// too, is refused by name and opens again once it may be written.
func TestReadOnlyDisk(t *testing.T) {
	dir := mount(t)
	options := thalweg.Options{Log: log.Options{SegmentBytes: 64 << 10, MaxBatchBytes: 64 << 10}}
	node, err := options.Open(filepath.Join(dir, "node"))
	require.NoError(t, err)
	requireAlive(t, node)
	require.NoError(t, node.Close())
	require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	for _, name := range []string{"node", "another"} {
		_, err = options.Open(filepath.Join(dir, name))
		require.ErrorIs(t, err, unix.EROFS)
		require.ErrorContains(t, err, filepath.Join(dir, name))
	}
	require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT, ""))
	node, err = options.Open(filepath.Join(dir, "node"))
	require.NoError(t, err)
	requireAlive(t, node, -1)
	require.NoError(t, node.Close())
}

// The stores on disk are copies: damage in them is told by the job that needs them,
// or does no harm, and without them they are made anew from their changelogs. The
// records are never touched.
func TestDamagedStore(t *testing.T) {
	dir := t.TempDir()
	node, err := thalweg.Open(dir)
	require.NoError(t, err)
	for round := range int64(2) {
		require.NoError(t, elect(t.Context(), node, round+1))
	}
	require.NoError(t, node.Close())

	want := sums(2)
	stores := filepath.Join(dir, "state")
	var files []string
	require.NoError(t, filepath.WalkDir(stores, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, name)
		}
		return err
	}))
	require.NotEmpty(t, files)
	for i, name := range files {
		if testing.Short() && i%3 != 0 {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil || len(b) == 0 {
			continue // a store drops old files as it is opened
		}
		for i := range b {
			b[i] ^= 0xff
		}
		require.NoError(t, os.WriteFile(name, b, 0o644))
		node, err := thalweg.Open(dir)
		require.NoError(t, err, "a damaged store does not keep the node from opening")
		before, err := readBoth(t.Context(), node)
		require.NoError(t, err)
		require.Equal(t, want, before.lastSums())
		err = elect(t.Context(), node, int64(i))
		if err != nil {
			t.Logf("%s: %.200s", filepath.Base(name), err.Error())
			require.ErrorContains(t, err, "state", "it says what is damaged")
			_, err := readBoth(t.Context(), node)
			require.NoError(t, err)
			require.NoError(t, node.Close())
			require.NoError(t, os.RemoveAll(stores))
			node, err = thalweg.Open(dir)
			require.NoError(t, err)
			require.NoError(t, elect(t.Context(), node, int64(i)), "made anew")
		}
		after, err := readBoth(t.Context(), node)
		require.NoError(t, err)
		want = map[string]int64{}
		for _, r := range after.votes { // a run that failed may have sent its own
			want[r.Key] += r.Value
		}
		require.Equal(t, want, after.lastSums(), filepath.Base(name))
		require.Len(t, after.tally, len(after.votes), "every change once")
		require.NoError(t, node.Close())
	}
}
