package stream_test

import (
	"context"
	"fmt"
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

// A bounded job goes on over what was added, each record once; its windows have closed, so
// that what is added is late.
func TestBoundedJobRunsAgain(t *testing.T) {
	in, out := topic.New[string, int]("in").Partitions(2), topic.New[string, int64]("out")
	late, windows := topic.New[string, int]("late"), topic.New[window.Key[string], int64]("windows")
	n := openNode(t, vfs.NewMem())
	run := func() {
		app := stream.New("bounded").StopAt(topic.End())
		s := app.Stream(in)
		s.GroupByKey().Emit(window.OnUpdate).Count().As("all").To(out)
		w := s.GroupByKV(func(k string, _ int) string { return k }).Window(window.Tumbling(time.Second))
		w.Count().As("windowed").To(windows)
		w.Late().To(late)
		job := n.start(t, app)
		require.NoError(t, job.Wait())
		require.Zero(t, job.Lag())
	}
	run()
	send(t, n, in, "a", "b")
	run()
	run()
	send(t, n, in, "a", "b", "c")
	run()
	require.Equal(t, map[string]int64{"a": 2, "b": 2, "c": 1}, committedCounts(t, n, out))
	total, lates := int64(0), int64(0)
	for r := range topic.ReadToEnd(t.Context(), n, windows, topic.Start()) {
		total += r.Value
	}
	for range topic.ReadToEnd(t.Context(), n, late, topic.Start()) {
		lates++
	}
	t.Log(total, lates)
	require.EqualValues(t, 5, total+lates, "late, but not lost")
	require.NoError(t, n.plane.Close())
}

// Where a job starts is committed when it starts: what is added before the first
// record is read does not move it.
func TestStartAtIsResolvedOnce(t *testing.T) {
	for _, where := range []topic.Position{topic.End(), topic.At(at(5000))} {
		in, out := topic.New[string, int]("in"), topic.New[string, int64]("out")
		fs := vfs.NewMem()
		n := openNode(t, fs)
		sendAt := func(times ...int64) {
			p, err := topic.NewProducer(t.Context(), n, in, topic.ProducerOptions{})
			require.NoError(t, err)
			for _, ms := range times {
				_, _, err := p.SendRecord(t.Context(), topic.Record[string, int]{Key: fmt.Sprint(ms), Value: 1, Time: at(ms)})
				require.NoError(t, err)
			}
			require.NoError(t, p.Close())
		}
		sendAt(1000, 2000)
		app := stream.New("starts").StartAt(where).Checkpoint(checkpoint.Every(time.Hour))
		app.Stream(in).GroupByKey().Count().To(out)
		job := n.start(t, app)
		image := fs.Kill()
		n.abandon(job)
		n = openNode(t, image)
		sendAt(6000, 7000)
		job = n.start(t, app)
		require.NoError(t, job.CatchUp(t.Context()))
		require.Equal(t, map[string]int64{"6000": 1, "7000": 1}, committedCounts(t, n, out))
		require.NoError(t, job.Stop(t.Context()))
		require.NoError(t, n.plane.Close())
	}
}

// Two jobs may write one topic: each commits its own.
func TestTwoJobsWriteOneTopic(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[string, int64]("out")
	fs := vfs.NewMem()
	n := openNode(t, fs)
	build := func(name string) *stream.Topology {
		app := stream.New(name).Checkpoint(checkpoint.Every(time.Millisecond))
		app.Stream(in).KeyBy(func(int) string { return name }).GroupByKey().Emit(window.OnUpdate).Count().To(out)
		return app
	}
	const sent = 300
	for i := range sent {
		if i%100 == 0 {
			a, b := n.start(t, build("a")), n.start(t, build("b"))
			send(t, n, in, "x")
			time.Sleep(3 * time.Millisecond) // when the process dies
			image := fs.Kill()
			n.abandon(a)
			n.abandon(b)
			fs = image
			n = openNode(t, fs)
		} else {
			send(t, n, in, "x")
		}
	}
	a, b := n.start(t, build("a")), n.start(t, build("b"))
	require.NoError(t, a.CatchUp(t.Context()))
	require.NoError(t, b.CatchUp(t.Context()))
	require.Equal(t, map[string]int64{"a": sent, "b": sent}, committedCounts(t, n, out))
	lines := 0
	for range topic.ReadToEnd(t.Context(), n, out, topic.Start()) {
		lines++
	}
	require.Equal(t, 2*sent, lines)
	require.NoError(t, a.Stop(t.Context()))
	require.NoError(t, b.Stop(t.Context()))
	require.NoError(t, n.plane.Close())
}

// A Stop while the job starts, and with a context that has ended, leaves a job that can be run again.
func TestStopWithAnEndedContext(t *testing.T) {
	in, out := topic.New[string, int]("in").Partitions(4), topic.New[string, int64]("out")
	n := openNode(t, vfs.NewMem())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	app := stream.New("ended").Checkpoint(checkpoint.Every(time.Millisecond))
	app.Stream(in).GroupByKV(func(k string, _ int) string { return k }).Emit(window.OnUpdate).Count().To(out)
	for range 30 {
		send(t, n, in, "a", "b", "c")
		job := n.start(t, app)
		require.NoError(t, job.Stop(gone))
	}
	_, err := stream.Start(gone, stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state"}, app)
	require.ErrorIs(t, err, context.Canceled)
	job := n.start(t, app)
	require.NoError(t, job.CatchUp(t.Context()))
	require.Equal(t, map[string]int64{"a": 30, "b": 30, "c": 30}, committedCounts(t, n, out))
	require.NoError(t, job.Stop(t.Context()))
	require.NoError(t, n.plane.Close())
}
