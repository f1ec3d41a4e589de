package thalweg_test

import (
	"bufio"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
)

// holdDirectory makes the test binary open a directory, say so and wait.
const holdDirectory = "THALWEG_TEST_HOLD_DIRECTORY"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdDirectory); dir != "" {
		node, err := thalweg.Open(dir)
		if err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString("open\n")
		bufio.NewReader(os.Stdin).ReadString('\n') // until the parent closes it
		node.Close()
		return
	}
	os.Exit(m.Run())
}

// A directory that is open already is refused with its name and what to do, and
// can be opened once it was closed.
func TestOpenTwiceInOneProcess(t *testing.T) {
	dir := t.TempDir()
	node, err := thalweg.Open(dir)
	require.NoError(t, err)
	_, err = thalweg.Open(dir)
	require.ErrorIs(t, err, thalweg.ErrLocked)
	require.ErrorContains(t, err, filepath.ToSlash(dir))
	require.ErrorContains(t, err, "close the node there")

	require.NoError(t, node.Close())
	node, err = thalweg.Open(dir)
	require.NoError(t, err)
	require.NoError(t, node.Close())
}

// The same while another process has it open; a process that is killed lets go.
func TestOpenWhatAnotherProcessHolds(t *testing.T) {
	dir := t.TempDir()
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holdDirectory+"="+dir)
	_, err := holder.StdinPipe() // kept open until the holder ends
	require.NoError(t, err)
	said, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	line, err := bufio.NewReader(said).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "open\n", line)

	_, err = thalweg.Open(dir)
	require.ErrorIs(t, err, thalweg.ErrLocked)
	require.ErrorContains(t, err, filepath.ToSlash(dir))

	require.NoError(t, holder.Process.Kill())
	require.Error(t, holder.Wait(), "it was killed")
	node, err := thalweg.Open(dir)
	require.NoError(t, err)
	require.NoError(t, node.Close())
}

// A directory of a newer format, of a damaged one, or of somebody else is refused
// and stays as it was.
func TestOpenRefusesUnknownFormats(t *testing.T) {
	tests := map[string]struct{ file, content, want string }{
		"newer":             {"FORMAT", "thalweg 2\n", "use a newer version"},
		"damaged":           {"FORMAT", "\x00\x00\x00", "damaged"},
		"empty":             {"FORMAT", "", "damaged"},
		"of something else": {"FORMAT", "sqlite 3\n", "no node wrote it"},
		"somebody's files":  {"thesis.txt", "chapter one", "thesis.txt"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, test.file)
			require.NoError(t, os.WriteFile(file, []byte(test.content), 0o644))
			_, err := thalweg.Open(dir)
			require.ErrorIs(t, err, thalweg.ErrFormat)
			require.ErrorContains(t, err, filepath.ToSlash(dir))
			require.ErrorContains(t, err, test.want)
			kept, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, test.content, string(kept))
			_, err = os.Stat(filepath.Join(dir, "log"))
			require.ErrorIs(t, err, fs.ErrNotExist)

			require.NoError(t, os.Remove(file))
			node, err := thalweg.Open(dir)
			require.NoError(t, err, "the lock was let go")
			require.NoError(t, node.Close())
		})
	}
}

// A stop between writing the new FORMAT and renaming it leaves a directory that opens.
func TestOpenAfterHalfWrittenFormat(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "FORMAT.new"), []byte("thal"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "LOCK"), nil, 0o644))
	node, err := thalweg.Open(dir)
	require.NoError(t, err)
	require.NoError(t, node.Close())
	text, err := os.ReadFile(filepath.Join(dir, "FORMAT"))
	require.NoError(t, err)
	require.Equal(t, "thalweg 1\n", string(text))
}

// Without permission the error says so and names the directory.
func TestOpenWithoutPermission(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permission bits on directories")
	}
	parent := t.TempDir()
	require.NoError(t, os.Chmod(parent, 0o500))
	t.Cleanup(func() { os.Chmod(parent, 0o700) })
	dir := filepath.Join(parent, "node")
	if os.Mkdir(dir, 0o700) == nil {
		// The superuser may write anywhere, so the file system is made to refuse.
		options := thalweg.Options{Log: log.Options{FS: forbidden{vfs.NewMem()}}}
		_, err := options.Open("somewhere")
		require.ErrorIs(t, err, fs.ErrPermission)
		require.ErrorContains(t, err, "somewhere")
		return
	}
	_, err := thalweg.Open(dir)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, filepath.ToSlash(dir))
}

// forbidden is a file system in which nothing may be made.
type forbidden struct{ vfs.FS }

func (forbidden) MkdirAll(string) error { return fs.ErrPermission }

// A file where the directory should be is an error, not a panic.
func TestOpenOnAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := thalweg.Open(file)
	require.ErrorContains(t, err, filepath.ToSlash(file))
}

// Values without a meaning are refused by name.
func TestOpenRefusesOptions(t *testing.T) {
	_, err := thalweg.Options{CacheBytes: -1}.Open("")
	require.ErrorContains(t, err, "Options.CacheBytes")
}
