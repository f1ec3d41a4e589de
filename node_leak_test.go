package thalweg_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// Runs that end, fail and are refused let go of their files and goroutines, and Close does
// while jobs run.
func TestJobsLetGoOfWhatTheyHold(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc/self/fd")
		}
		return len(entries)
	}
	dir := t.TempDir()
	node, err := thalweg.Open(dir)
	require.NoError(t, err)
	build := func(fails bool, refused bool) *stream.Topology {
		app := stream.New("holds").Checkpoint(checkpoint.Every(time.Millisecond))
		s := app.Stream(words).Map(func(v int64) int64 {
			if fails {
				panic("boom")
			}
			return v
		})
		g := s.GroupByKV(func(k string, _ int64) string { return k })
		g.Count().As("a").To(topic.New[string, int64]("a"))
		if refused {
			g.Aggregate(func(a float64, v int64) float64 { return a + float64(v) }).As("b").To(topic.New[string, float64]("bf"))
		} else {
			g.Reduce(func(a, b int64) int64 { return a + b }).As("b").To(topic.New[string, int64]("b"))
		}
		return app
	}
	round := func() {
		sendWords(t, node, map[string]int64{"a": 1, "b": 2})
		job, err := node.Start(t.Context(), build(true, false))
		require.NoError(t, err)
		require.Error(t, job.Wait())
		job, err = node.Start(t.Context(), build(false, false))
		require.NoError(t, err)
		require.NoError(t, job.CatchUp(t.Context()))
		require.NoError(t, job.Stop(t.Context()))
		_, err = node.Start(t.Context(), build(false, true))
		require.ErrorContains(t, err, `step "b"`)
	}
	round()
	files, goroutines := open(), runtime.NumGoroutine()
	for range 4 {
		round()
	}
	for range 2000 {
		if open() <= files && runtime.NumGoroutine() <= goroutines {
			break
		}
		time.Sleep(time.Millisecond)
	}
	require.LessOrEqual(t, open(), files+2)
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+1)
	_, err = node.Start(t.Context(), build(false, false))
	require.NoError(t, err)
	require.NoError(t, node.Close())
}
