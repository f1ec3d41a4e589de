package stream_test

import (
	"bytes"
	"context"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// A profile tells which job, stage and shard a sample belongs to, and which store a follower
// works for.
func TestProfilesTellTasksApart(t *testing.T) {
	in, out := topic.New[string, int]("in").Partitions(2), topic.New[string, int64]("out")
	app := stream.New("labelled").Checkpoint(checkpoint.Every(5 * time.Millisecond))
	app.Stream(in).GroupBy(func(v int) string { return "all" }).Count().As("counted").To(out)
	n := openNode(t, vfs.NewMem())
	job := n.start(t, app)
	send(t, n, in, "a", "b")
	require.NoError(t, job.CatchUp(context.Background()))
	var all bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&all, 1))
	require.NoError(t, job.Stop(context.Background()))
	for _, task := range job.Status().Tasks {
		for _, shard := range []string{"0", "1"} {
			require.Contains(t, all.String(), `{"job":"labelled", "shard":"`+shard+`", "stage":"`+task.Stage+`"}`)
		}
	}
	require.Contains(t, all.String(), `{"store":"`)
}
