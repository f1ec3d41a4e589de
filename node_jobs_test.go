package thalweg_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

var sums = topic.New[string, int64]("sums")

// sumWords adds up the numbers of each word, for as long as it runs.
func sumWords() *stream.Topology {
	app := stream.New("sum-words")
	app.Stream(words).GroupByKey().Reduce(func(a, b int64) int64 { return a + b }).To(sums)
	return app
}

func sendWords(t *testing.T, node *thalweg.Node, numbers map[string]int64) {
	t.Helper()
	producer, err := node.Producer(words)
	require.NoError(t, err)
	for word, n := range numbers {
		require.NoError(t, producer.Send(t.Context(), word, n))
	}
	require.NoError(t, producer.Close())
}

// lastSums reads the last committed sum of each word.
func lastSums(t *testing.T, node *thalweg.Node) map[string]int64 {
	t.Helper()
	last := map[string]int64{}
	for r, err := range node.ReadToEnd(t.Context(), sums, topic.Start()) {
		require.NoError(t, err)
		last[r.Key] = r.Value
	}
	return last
}

// A job that is running when its node closes commits what it has read, and goes on
// from there over the same directory.
func TestCloseStopsJobsAfterACheckpoint(t *testing.T) {
	dir := t.TempDir()
	node, err := thalweg.Open(dir)
	require.NoError(t, err)
	job, err := node.Start(t.Context(), sumWords())
	require.NoError(t, err)
	sendWords(t, node, map[string]int64{"a": 1, "b": 10})
	require.NoError(t, job.CatchUp(t.Context()))
	require.NoError(t, node.Close())
	require.NoError(t, job.Wait())

	node, err = thalweg.Open(dir)
	require.NoError(t, err)
	defer node.Close()
	require.Equal(t, map[string]int64{"a": 1, "b": 10}, lastSums(t, node))
	job, err = node.Start(t.Context(), sumWords())
	require.NoError(t, err)
	sendWords(t, node, map[string]int64{"a": 2})
	require.NoError(t, job.CatchUp(t.Context()))
	require.Equal(t, map[string]int64{"a": 3, "b": 10}, lastSums(t, node))
}

// Run returns nil when its context ends, with what was read committed.
func TestRunUntilContextEnds(t *testing.T) {
	node, err := thalweg.Open("")
	require.NoError(t, err)
	defer node.Close()
	sendWords(t, node, map[string]int64{"a": 1})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx, sumWords()) }()
	for r, err := range node.Read(t.Context(), sums, topic.Start()) {
		require.NoError(t, err)
		require.EqualValues(t, 1, r.Value)
		break
	}
	cancel()
	require.NoError(t, <-ended)
}

// What cannot be run is refused with the reason.
func TestStartRefuses(t *testing.T) {
	node, err := thalweg.Open("")
	require.NoError(t, err)
	require.ErrorContains(t, node.Run(t.Context(), nil), "stream.New")
	err = node.Run(t.Context(), stream.New("no sources"))
	require.ErrorContains(t, err, "invalid name of a job")
	require.ErrorContains(t, err, "no source", "all mistakes at once")

	job, err := node.Start(t.Context(), sumWords())
	require.NoError(t, err)
	_, err = node.Start(t.Context(), sumWords())
	require.ErrorContains(t, err, "sum-words", "the same job twice at the same time")
	require.NoError(t, job.Stop(t.Context()))

	require.NoError(t, node.Close())
	require.ErrorIs(t, node.Run(t.Context(), sumWords()), thalweg.ErrClosed)
}

// A job that panics fails with the step and the record; the node goes on.
func TestJobThatPanics(t *testing.T) {
	node, err := thalweg.Open("")
	require.NoError(t, err)
	defer node.Close()
	sendWords(t, node, map[string]int64{"a": 1})
	app := stream.New("panics")
	app.Stream(words).Map(func(int64) int64 { panic("no such luck") }).To(sums)
	err = node.Run(t.Context(), app)
	require.ErrorContains(t, err, "no such luck")
	require.ErrorContains(t, err, "words")
	require.ErrorContains(t, err, "node_jobs_test.go")
	require.Empty(t, lastSums(t, node))
	require.Equal(t, map[string]int64{"a": 1}, readWords(t, node))
}

// A job that failed before the node closes has told those who waited for it; Close
// does not say it again.
func TestCloseAfterAFailedJob(t *testing.T) {
	rounds := 20 // Close and the end of the job meet at different moments
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		node, err := thalweg.Open("")
		require.NoError(t, err)
		sendWords(t, node, map[string]int64{"a": 1})
		app := stream.New("panics")
		app.Stream(words).Map(func(int64) int64 { panic("no such luck") }).To(sums)
		require.ErrorContains(t, node.Run(t.Context(), app), "no such luck")
		require.NoError(t, node.Close())
	}
}

// A topic that a running job reads or writes is not deleted under it.
func TestDeleteTopicInUse(t *testing.T) {
	ctx := t.Context()
	n, err := thalweg.Open("")
	require.NoError(t, err)
	defer n.Close()
	in, out := topic.New[string, int]("in"), topic.New[string, int64]("out")
	app := stream.New("user")
	app.Stream(in).GroupByKey().Count().To(out)
	job, err := n.Start(ctx, app)
	require.NoError(t, err)
	require.ErrorContains(t, n.Delete(ctx, in), `job "user" reads or writes it`)
	require.ErrorContains(t, n.Delete(ctx, out), `job "user" reads or writes it`)
	require.NoError(t, job.Stop(ctx))
	require.NoError(t, n.Delete(ctx, in, out))
	require.ErrorIs(t, n.Delete(ctx, out), log.ErrUnknownTopic)
}

// Run with a context that has ended is a run that was stopped before it began.
func TestRunWithAnEndedContext(t *testing.T) {
	n, err := thalweg.Open("")
	require.NoError(t, err)
	defer n.Close()
	app := stream.New("late-start")
	app.Stream(topic.New[string, int]("in")).GroupByKey().Count()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, n.Run(ended, app))
}
