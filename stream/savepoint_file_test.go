package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// A savepoint that is stopped at any operation of the file system is whole under its name, or
// the one that was there before is; what it leaves behind the next one replaces.
func TestSavepointStoppedAtFileOperations(t *testing.T) {
	ctx := context.Background()
	in := topic.New[string, int]("in")
	app := stream.New("saved")
	counts := app.Stream(in).GroupByKV(func(k string, _ int) string { return k }).Count().As("counts")
	n, files := openNode(t, vfs.NewMem()), &movable{vfs.NewMem()}
	job, err := stream.Start(ctx, stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state", Files: files}, app)
	require.NoError(t, err)
	// saved is the sum of all rows in the savepoint of a file system, or -1 where there is none.
	saved := func(files *vfs.Mem) (sum int64) {
		f, err := files.Open("saved/point")
		if errors.Is(err, fs.ErrNotExist) {
			return -1
		}
		require.NoError(t, err)
		defer f.Close()
		size, err := f.Size()
		require.NoError(t, err)
		sp, err := stream.OpenSavepoint(f, size)
		require.NoError(t, err)
		for r, err := range sp.View(counts).All(ctx) {
			require.NoError(t, err)
			sum += r.Value
		}
		return sum
	}
	image := vfs.NewMem()
	require.NoError(t, vfs.MkdirAllDurable(image, "saved"))
	before, records := int64(-1), int64(0)
	for range 2 { // the second replaces the first
		for i := range 50 {
			send(t, n, in, fmt.Sprint("key ", i))
		}
		records += 50
		require.NoError(t, job.CatchUp(ctx))
		cut, kept := 0, 0
		for stop := int64(1); ; stop++ {
			mem := image.Kill()
			files.FS = mem
			first := mem.Ops()
			mem.StopAt(first + stop)
			_, err := job.SaveTo(ctx, "saved/point")
			for seed := range uint64(8) {
				after := mem.Crash(seed)
				if seed == 0 {
					after = mem.Kill()
				}
				switch sum := saved(after); {
				case err == nil:
					require.Equal(t, records, sum, "stopped at operation %d", stop)
				case sum == before:
					kept++
				default:
					require.Equal(t, records, sum, "stopped at operation %d", stop)
				}
				files.FS = after
				_, err := job.SaveTo(ctx, "saved/point")
				require.NoError(t, err)
				require.Equal(t, records, saved(after.Crash(seed)))
				names, err := after.List("saved")
				require.NoError(t, err)
				require.Equal(t, []string{"point"}, names)
			}
			if err == nil {
				image = mem.Crash(1)
				break
			}
			cut++
		}
		require.GreaterOrEqual(t, cut, 5, "create, write, sync, rename, sync directory")
		require.Positive(t, kept)
		before = records
	}
	require.NoError(t, job.Stop(ctx))
	require.NoError(t, n.plane.Close())
}

// movable is a file system that a test changes for another.
type movable struct{ vfs.FS }
