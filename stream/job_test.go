package stream_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

func committedCounts(t *testing.T, n testNode, out topic.Topic[string, int64]) map[string]int64 {
	t.Helper()
	got := map[string]int64{}
	for r, err := range topic.ReadToEnd(context.Background(), n, out, topic.Start()) {
		require.NoError(t, err)
		got[r.Key] = r.Value
	}
	return got
}

func send(t *testing.T, n testNode, in topic.Topic[string, int], keys ...string) {
	t.Helper()
	ctx := context.Background()
	p, err := topic.NewProducer(ctx, n, in, topic.ProducerOptions{})
	require.NoError(t, err)
	for _, k := range keys {
		require.NoError(t, p.Send(ctx, k, 1))
	}
	require.NoError(t, p.Close())
}

// CatchUp returns when what was sent before it is committed; Stop commits the rest,
// and the next run goes on from there.
func TestCatchUpStopAndGoOn(t *testing.T) {
	ctx := context.Background()
	in, out := topic.New[string, int]("in").Partitions(2), topic.New[string, int64]("out")
	app := stream.New("goes-on").Checkpoint(checkpoint.Every(5 * time.Millisecond))
	app.Stream(in).GroupByKey().Count().To(out)
	n := openNode(t, vfs.NewMem())
	job := n.start(t, app)
	send(t, n, in, "a", "b", "a")
	require.NoError(t, job.CatchUp(ctx))
	require.Equal(t, map[string]int64{"a": 2, "b": 1}, committedCounts(t, n, out))
	require.Zero(t, job.Lag())
	s := job.Status()
	require.EqualValues(t, 1, s.Attempt)
	require.Positive(t, s.Checkpoint.N)
	require.Len(t, s.Tasks, 2)
	require.EqualValues(t, 3, s.Tasks[0].Records+s.Tasks[1].Records)

	require.NoError(t, job.CatchUp(ctx), "again, with nothing new")
	require.NoError(t, job.Stop(ctx))
	require.NoError(t, job.Wait())
	require.NoError(t, job.Stop(ctx), "twice is no mistake")
	require.ErrorIs(t, job.CatchUp(ctx), nil)

	send(t, n, in, "a")
	job = n.start(t, app)
	require.NoError(t, job.CatchUp(ctx))
	require.Equal(t, map[string]int64{"a": 3, "b": 1}, committedCounts(t, n, out))
	require.EqualValues(t, 2, job.Status().Attempt)
	_, err := stream.Start(ctx, stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state"}, app)
	require.ErrorIs(t, err, checkpoint.ErrJobRunning)
	require.NoError(t, job.Stop(ctx))
	require.NoError(t, n.plane.Close())
}

// A job that fails ends with its failure, and whoever waits for it is told.
func TestFailureReachesEveryWaiter(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[string, int]("out")
	boom := errors.New("boom")
	app := stream.New("fails").Checkpoint(checkpoint.Every(5 * time.Millisecond))
	app.Stream(in).TryMap(func(v int) (int, error) { return 0, boom }).To(out)
	n := openNode(t, vfs.NewMem())
	job := n.start(t, app)
	waiting := make(chan error, 1)
	send(t, n, in, "a")
	go func() { waiting <- job.CatchUp(context.Background()) }()
	require.ErrorIs(t, job.Wait(), boom)
	require.ErrorIs(t, <-waiting, boom)
	require.ErrorIs(t, job.Stop(context.Background()), boom)
	require.NoError(t, n.plane.Close())
}

// Keyed state stays in the shards of its first run: a source that is split otherwise
// is refused, with the way out.
func TestStateDoesNotMoveBetweenShards(t *testing.T) {
	build := func(in topic.Topic[string, int]) *stream.Topology {
		app := stream.New("shards")
		app.Stream(in).GroupByKey().Count().As("counts")
		return app
	}
	n := openNode(t, vfs.NewMem())
	job := n.start(t, build(topic.New[string, int]("two").Partitions(2)))
	require.NoError(t, job.Stop(context.Background()))
	_, err := stream.Start(context.Background(), stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state"},
		build(topic.New[string, int]("three").Partitions(3)))
	require.ErrorContains(t, err, `step "counts"`)
	require.ErrorContains(t, err, "2 shards")
	require.ErrorContains(t, err, "another name")
	require.NoError(t, n.plane.Close())
}

// The log tells that a job started, what it passed over, and how it ended.
func TestLogTellsHowAJobWent(t *testing.T) {
	ctx := context.Background()
	in, out := topic.New[string, int]("in"), topic.New[window.Key[string], int64]("out")
	boom := errors.New("boom")
	n := openNode(t, vfs.NewMem())
	run := func(app *stream.Topology) string {
		var text lockedBuffer
		job, err := stream.Start(ctx, stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state",
			Logger: slog.New(slog.NewTextHandler(&text, nil))}, app)
		require.NoError(t, err)
		_ = job.Wait()
		return text.String()
	}
	p, err := topic.NewProducer(ctx, n, in, topic.ProducerOptions{})
	require.NoError(t, err)
	for _, time := range []int64{5, 50, 6, 7} { // two of them late
		_, _, err := p.SendRecord(ctx, topic.Record[string, int]{Key: "k", Value: 1, Time: at(time)})
		require.NoError(t, err)
	}
	require.NoError(t, p.Close())

	counting := stream.New("counting").StopAt(topic.End())
	counting.Stream(in).GroupByKey().Window(window.Tumbling(10 * ms)).Count().To(out)
	text := run(counting)
	require.Contains(t, text, `msg="stream: job started" job=counting attempt=1`)
	require.Equal(t, 1, strings.Count(text, "a record came late"), text)
	require.Contains(t, text, `msg="stream: records were passed over" job=counting`)
	require.Contains(t, text, "late=2")
	require.Contains(t, text, "job came to its end")

	failing := stream.New("failing").StopAt(topic.End())
	failing.Stream(in).TryMap(func(int) (int, error) { return 0, boom }).Peek(func(topic.Record[string, int]) {})
	text = run(failing)
	require.Contains(t, text, `level=ERROR msg="stream: job failed" job=failing`)
	require.Contains(t, text, "boom")
	require.NotContains(t, text, "came to its end")
	require.NoError(t, n.plane.Close())
}

// lockedBuffer is a buffer that several goroutines may write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
