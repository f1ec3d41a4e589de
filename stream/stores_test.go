package stream_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// Jobs whose names and steps read alike when they are put together have state of their own: a
// start, which cuts what lost checkpoints wrote, does not touch that of the other.
func TestJobsWithLikeNamesKeepTheirState(t *testing.T) {
	ctx := context.Background()
	in := topic.New[string, int]("in")
	out := map[string]topic.Topic[string, int64]{}
	n := openNode(t, vfs.NewMem())
	build := func(job, step string) *stream.Topology {
		app := stream.New(job)
		out[job] = topic.New[string, int64]("out-" + job)
		app.Stream(in).GroupByKey().Count().As(step).To(out[job])
		return app
	}
	for range 3 {
		send(t, n, in, "k")
		for _, app := range []*stream.Topology{build("a", "b-c"), build("a-b", "c"), build("a-", "b-c")} {
			job := n.start(t, app)
			require.NoError(t, job.CatchUp(ctx))
			require.NoError(t, job.Stop(ctx))
		}
	}
	for job, out := range out {
		require.Equal(t, map[string]int64{"k": 3}, committedCounts(t, n, out), job)
	}
	require.NoError(t, n.plane.Close())
}
