package thalweg_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/stream"
)

// A job on a disk is asked for its rows, moves to other numbers of tasks with its node opened
// anew each time, and leaves a savepoint that can be read without a node.
func TestStateOnDisk(t *testing.T) {
	ctx := t.Context()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "savepoint")
	build := func(tasks int) (*stream.Topology, stream.Table[string, int64]) {
		app := stream.New("kept-words").Tasks(tasks)
		kept := app.Stream(words).GroupByKV(func(k string, _ int64) string { return k }).Reduce(func(a, b int64) int64 { return a + b }).As("kept")
		return app, kept
	}
	for i, tasks := range []int{2, 5, 3} {
		node, err := thalweg.Open(dir)
		require.NoError(t, err)
		app, kept := build(tasks)
		before, err := node.Compare(app)
		require.NoError(t, err)
		job, err := node.Start(ctx, app)
		require.NoError(t, err)
		require.Equal(t, before, job.Evolution())
		require.Equal(t, i > 0, len(before.Kept) == 1, before.String())
		sendWords(t, node, map[string]int64{"a": 1, "b": 10, "c": 100, "d": 1000})
		require.NoError(t, job.CatchUp(ctx))
		n, ok, err := job.View(kept).Get(ctx, "b")
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, 10*(i+1), n)
		all := map[string]int64{}
		for r, err := range job.View(kept).Latest().All(ctx) {
			require.NoError(t, err)
			all[r.Key] = r.Value
		}
		require.Equal(t, map[string]int64{"a": int64(i + 1), "b": int64(10 * (i + 1)), "c": int64(100 * (i + 1)), "d": int64(1000 * (i + 1))}, all)
		_, err = job.SaveTo(ctx, file)
		require.NoError(t, err)
		rows := job.View(kept).All(ctx)
		for _, err := range rows {
			require.NoError(t, err)
			break // with an image that the end of the job has to close
		}
		sub, err := job.View(kept).Subscribe(ctx)
		require.NoError(t, err)
		require.NoError(t, node.Close())
		require.NoError(t, sub.Close())
	}
	sp, err := stream.OpenSavepointFile(file)
	require.NoError(t, err)
	_, kept := build(1)
	n, ok, err := sp.View(kept).Get(ctx, "d")
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 3000, n)
	require.NoError(t, sp.Close())
}
