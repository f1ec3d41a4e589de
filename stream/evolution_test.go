package stream_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

func stateNames(states []stream.StepState) (names []string) {
	for _, s := range states {
		names = append(names, s.Name)
	}
	return names
}

// A topology that takes the place of another is told what becomes of the state, before it is
// started and when it is; one that does not fit is refused with every reason, and the one
// before still runs.
func TestEvolution(t *testing.T) {
	ctx := context.Background()
	in := topic.New[string, int]("in").Partitions(2)
	sum := func(a, v int) int { return a + v }
	build := func(steps ...string) *stream.Topology {
		app := stream.New("evolving-job")
		g := app.Stream(in).GroupByKey()
		for _, step := range steps {
			switch step {
			case "counts", "more-counts":
				g.Count().As(step).To(topic.New[string, int64]("out-" + step))
			case "sums":
				g.Aggregate(sum).As(step)
			case "text-counts", "text-sums":
				g.Aggregate(func(a string, _ int) string { return a + "." }).As(step[len("text-"):])
			case "each":
				g.Count().As("told").ToStream().Each(func(context.Context, topic.Record[string, int64]) error { return nil }).As("told-each")
			}
		}
		return app
	}
	var text lockedBuffer
	n := openNode(t, vfs.NewMem())
	env := stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state", Logger: slog.New(slog.NewTextHandler(&text, nil))}
	run := func(app *stream.Topology) stream.Evolution {
		t.Helper()
		before, err := stream.Compare(env, app)
		require.NoError(t, err)
		job, err := stream.Start(ctx, env, app)
		require.NoError(t, err)
		require.Equal(t, before, job.Evolution())
		send(t, n, in, "a", "b", "c", "d")
		require.NoError(t, job.CatchUp(ctx))
		require.NoError(t, job.Stop(ctx))
		return job.Evolution()
	}
	e := run(build("counts", "sums"))
	require.False(t, e.Changed())
	require.Equal(t, checkpoint.ID{}, e.From)
	require.Equal(t, []string{"counts", "sums"}, stateNames(e.New))
	require.Contains(t, e.String(), "job evolving-job runs for the first time\n  new          counts (stream/evolution_test.go:")
	e = run(build("counts", "sums"))
	require.False(t, e.Changed())
	require.Equal(t, []string{"counts", "sums"}, stateNames(e.Kept))
	require.NotContains(t, text.String(), "topology has changed")

	e = run(build("more-counts", "counts", "each"))
	require.True(t, e.Changed())
	require.Equal(t, []string{"counts"}, stateNames(e.Kept))
	require.Equal(t, []string{"more-counts", "told"}, stateNames(e.New))
	require.Equal(t, []string{"sums"}, stateNames(e.Dropped))
	require.Equal(t, 2, e.Dropped[0].Shards)
	require.Contains(t, text.String(), `msg="stream: the topology has changed" job=evolving-job checkpoint=2/`)
	require.Contains(t, text.String(), "kept=[counts] new=\"[more-counts told]\" dropped=[sums]")
	e = run(build("counts"))
	require.Equal(t, []string{"more-counts", "sums", "told", "told-each"}, stateNames(e.Dropped))

	_, err := stream.Start(ctx, env, build("text-counts", "text-sums"))
	var refused *stream.IncompatibleError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, []string{"counts", "sums"}, stateNames(refused.Evolution.Incompatible))
	require.Empty(t, refused.Evolution.Kept)
	require.ErrorContains(t, err, `step "counts"`)
	require.ErrorContains(t, err, `step "sums"`)
	require.ErrorContains(t, err, "value int64")
	require.Contains(t, refused.Evolution.String(), "another name with As to begin anew")
	e = run(build("counts", "sums"))
	require.Equal(t, []string{"counts", "sums"}, stateNames(e.Kept), "dropped state is found again")
	require.NoError(t, n.plane.Close())
}

// A value that becomes another type is read by the function that the program gives for it, and
// a program that does not know the version is told so.
func TestStateOfAnOlderVersion(t *testing.T) {
	type marks string
	in, out := topic.New[string, int]("in"), topic.New[string, marks]("out")
	plain, err := codec.Of[marks]()
	require.NoError(t, err)
	first := func() *stream.Topology {
		app := stream.New("versions").Use[int64](codec.Versioned(1, codec.Int64))
		app.Stream(in).GroupByKey().Count().As("counts")
		return app
	}
	second := func() *stream.Topology {
		app := stream.New("versions").Use[marks](codec.Versioned(2, plain).From(1, codec.Int64, func(n int64) (marks, error) {
			return marks(strings.Repeat("i", int(n))), nil
		}))
		app.Stream(in).GroupByKey().Aggregate(func(a marks, _ int) marks { return a + "x" }).As("counts").To(out)
		return app
	}
	d := streamtest.New(t, first())
	for _, k := range []string{"a", "a", "b"} {
		d.Input(in).Send(k, 1)
	}
	d.Checkpoint()
	d.Redeploy(second())
	d.Input(in).Send("a", 1)
	require.Equal(t, map[string]marks{"a": "iix"}, newest(d.Output(out).Records()))
	d.Crash()
	d.Input(in).Send("a", 1)
	d.Input(in).Send("b", 1)
	require.Equal(t, map[string]marks{"a": "iixx", "b": "ix"}, newest(d.Output(out).Records()))
	d.Redeploy(first())
	d.Input(in).Send("a", 1)
	require.ErrorIs(t, d.Failure(), codec.ErrValueVersion)
}
