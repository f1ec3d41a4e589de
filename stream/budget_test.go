package stream_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// State that outgrows its budget makes checkpoints come early instead of growing:
// nothing else would trigger one here. Values that leave memory are found again in
// the store, and the results are those of a job that had room.
func TestStateBeyondTheBudgetForcesCheckpoints(t *testing.T) {
	const keys, rounds = 3_000, 20
	ctx := context.Background()
	in, out := topic.New[string, int]("in").Partitions(2), topic.New[string, int64]("out")
	app := stream.New("budget").Checkpoint(checkpoint.Every(time.Hour)).StopAt(topic.End())
	app.Stream(in).GroupByKey().Count().To(out)
	n := openNode(t, vfs.NewMem())
	p, err := topic.NewProducer(ctx, n, in, topic.ProducerOptions{})
	require.NoError(t, err)
	for range rounds {
		for i := range keys {
			require.NoError(t, p.Queue(ctx, fmt.Sprint("key-", i), 1))
		}
	}
	require.NoError(t, p.Close())

	cache, err := state.NewCache(16 << 10)
	require.NoError(t, err)
	defer cache.Close()
	const budget = 64 << 10
	job, err := stream.Start(ctx, stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state",
		Cache: cache, StateMemory: budget}, app)
	require.NoError(t, err)
	require.NoError(t, job.Wait())
	s := job.Status()
	require.Greater(t, s.Checkpoint.N, int64(20), "the checkpoint at the end would be the only one")
	for _, task := range s.Tasks {
		require.Less(t, task.StateSize, int64(budget), "all keys would take more")
	}
	got := committedCounts(t, n, out)
	require.Len(t, got, keys)
	for k, count := range got {
		require.EqualValues(t, rounds, count, k)
	}
	require.NoError(t, n.plane.Close())
}

// What a job writes, results and changes of state, goes into batches that the log takes,
// however small those are.
func TestSmallBatchesOfTheLog(t *testing.T) {
	o := checkpoint.PlaneOptions{FS: vfs.NewMem()}
	o.Log.MaxBatchBytes = 1 << 10
	plane, err := checkpoint.Open("node", o)
	require.NoError(t, err)
	n := testNode{plane}
	in, out := topic.New[string, string]("in"), topic.New[string, string]("out")
	app := stream.New("small").Checkpoint(checkpoint.Every(time.Hour)) // all of it goes into one checkpoint
	app.Stream(in).GroupByKey().Reduce(func(a, b string) string { return a + b }).As("all").To(out)
	p, err := topic.NewProducer(t.Context(), n, in, topic.ProducerOptions{BatchBytes: 1 << 10})
	require.NoError(t, err)
	want := map[string]string{}
	for i := range 300 {
		key, value := fmt.Sprint("k", i%100), strings.Repeat("x", 10+i%250)
		want[key] += value
		require.NoError(t, p.Queue(t.Context(), key, value))
	}
	require.NoError(t, p.Close())
	job := n.start(t, app)
	require.NoError(t, job.CatchUp(t.Context()))
	got := map[string]string{}
	for r, err := range topic.ReadToEnd(t.Context(), n, out, topic.Start()) {
		require.NoError(t, err)
		got[r.Key] = r.Value
	}
	require.Equal(t, want, got)
	require.NoError(t, job.Stop(t.Context()))
	require.NoError(t, plane.Close())
}
