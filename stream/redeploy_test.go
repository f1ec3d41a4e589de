package stream_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

func newest[K comparable, V any](records []topic.Record[K, V]) map[K]V {
	m := map[K]V{}
	for _, r := range records {
		m[r.Key] = r.Value
	}
	return m
}

// A grouping finds the state of its steps again when others join or leave it.
func TestAggregationAddedBesideAnother(t *testing.T) {
	in, out, sums := topic.New[string, int]("in").Partitions(2), topic.New[string, int64]("out"), topic.New[string, int]("sums")
	build := func(both bool) *stream.Topology {
		app := stream.New("beside")
		g := app.Stream(in).GroupByKV(func(k string, _ int) string { return k })
		g.Count().To(out)
		if both {
			g.Aggregate(func(a, v int) int { return a + v }).To(sums)
		}
		return app
	}
	d := streamtest.New(t, build(false))
	d.Input(in).Send("a", 1)
	d.Input(in).Send("b", 1)
	d.Checkpoint()
	d.Redeploy(build(true))
	d.Input(in).Send("a", 1)
	d.Input(in).Send("b", 1)
	require.Equal(t, map[string]int64{"a": 2, "b": 2}, newest(d.Output(out).Records()))
	d.Redeploy(build(false))
	d.Input(in).Send("a", 1)
	require.Equal(t, map[string]int64{"a": 3, "b": 2}, newest(d.Output(out).Records()))
}

// A step that is taken out and comes back goes on from the state it had when it left,
// however many checkpoints were made without it.
func TestStepRemovedAndAddedAgain(t *testing.T) {
	for _, checkpoints := range []int{0, 1, 5} {
		for _, shuffled := range []bool{false, true} {
			in, out, sums := topic.New[string, int]("in"), topic.New[string, int64]("out"), topic.New[string, int]("sums")
			build := func(both bool) *stream.Topology {
				app := stream.New("again")
				s := app.Stream(in)
				group := stream.Stream[string, int].GroupByKey
				if shuffled {
					group = func(s stream.Stream[string, int]) stream.Grouped[string, int] {
						return s.GroupByKV(func(k string, _ int) string { return k })
					}
				}
				g := group(s)
				g.Count().To(out)
				if both {
					g.Aggregate(func(a, v int) int { return a + v }).To(sums)
				}
				return app
			}
			d := streamtest.New(t, build(true))
			d.Input(in).Send("a", 1)
			d.Input(in).Send("b", 1)
			d.Checkpoint()
			d.Redeploy(build(false))
			for range checkpoints {
				d.Input(in).Send("a", 1)
				d.Checkpoint()
			}
			d.Redeploy(build(true))
			d.Input(in).Send("a", 1)
			require.Equal(t, map[string]int{"a": 2, "b": 1}, newest(d.Output(sums).Records()))
			d.Crash()
			d.Input(in).Send("a", 1)
			d.Input(in).Send("b", 1)
			require.Equal(t, map[string]int{"a": 3, "b": 2}, newest(d.Output(sums).Records()))
			require.Equal(t, int64(3+checkpoints), newest(d.Output(out).Records())["a"])
		}
	}
}

// The watermark of a grouping stays where it was when an input of a Merge goes or comes,
// at whichever place.
func TestSourceRemovedFromMerge(t *testing.T) {
	a, b := topic.New[string, int]("a"), topic.New[string, int]("b")
	out := topic.New[window.Key[string], int64]("out")
	build := func(both bool) *stream.Topology {
		app := stream.New("merged")
		s := app.Stream(a)
		if both {
			s = s.Merge(app.Stream(b))
		} else {
			s = s.Merge()
		}
		s.GroupByKV(func(k string, _ int) string { return k }).Window(window.Tumbling(10 * ms)).Count().As("c").To(out)
		return app
	}
	d := streamtest.New(t, build(true))
	d.Input(a).SendAt(at(1), "k", 1)
	d.Input(b).SendAt(at(2), "k", 1)
	d.Input(a).SendAt(at(15), "k", 1)
	d.Input(b).SendAt(at(15), "k", 1)
	d.Checkpoint()
	d.Redeploy(build(false))
	d.Input(a).SendAt(at(3), "k", 1) // late
	d.Input(a).SendAt(at(25), "k", 1)
	require.Equal(t, []string{"k [0,10)=2 @2", "k [10,20)=2 @15"}, counts(d.Output(out).Records()))
	d.Redeploy(build(true))
	d.Input(a).SendAt(at(36), "k", 1)
	d.Input(b).SendAt(at(36), "k", 1)
	require.Equal(t, []string{"k [0,10)=2 @2", "k [10,20)=2 @15", "k [20,30)=1 @25"}, counts(d.Output(out).Records()))
}

// A record without a value has no time to extract: its own, which may be of another age,
// does not move the watermark.
func TestTombstoneWithExtractedTime(t *testing.T) {
	in := topic.New[string, int64]("in").EventTime(func(v int64) time.Time { return at(v) })
	out := topic.New[window.Key[string], int64]("out")
	app := stream.New("tomb")
	app.Stream(in).GroupByKey().Window(window.Tumbling(10 * ms)).Count().As("c").To(out)
	d := streamtest.New(t, app)
	d.Input(in).Send("k", 1)
	d.Input(in).SendRecord(topic.Record[string, int64]{Key: "k", Deleted: true, Time: streamtest.Epoch})
	d.Input(in).Send("k", 2)
	d.Input(in).Send("k", 11)
	require.Equal(t, []string{"k [0,10)=2 @2"}, counts(d.Output(out).Records()))
}

// State is not read as something else: windows of another size, another type.
func TestStateOfAnotherLayoutIsRefused(t *testing.T) {
	in := topic.New[string, int]("in")
	windowed := func(w window.Spec) *stream.Topology {
		app := stream.New("layout")
		app.Stream(in).GroupByKey().Window(w).Count().As("c")
		return app
	}
	summed := func() *stream.Topology {
		app := stream.New("layout")
		app.Stream(in).GroupByKey().Aggregate(func(a float64, v int) float64 { return a + float64(v) }).As("c")
		return app
	}
	n := openNode(t, vfs.NewMem())
	job := n.start(t, windowed(window.Tumbling(10*ms)))
	send(t, n, in, "k")
	require.NoError(t, job.CatchUp(context.Background()))
	require.NoError(t, job.Stop(context.Background()))
	for _, other := range []*stream.Topology{windowed(window.Tumbling(20 * ms)), windowed(window.Tumbling(10 * ms).Offset(ms)), summed()} {
		_, err := stream.Start(context.Background(), stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state"}, other)
		require.ErrorContains(t, err, `step "c"`)
		require.ErrorContains(t, err, "tumbling 10ms, key string, value int64")
		require.ErrorContains(t, err, "another name")
	}
	job = n.start(t, windowed(window.Tumbling(10*ms).Grace(ms)))
	require.NoError(t, job.Stop(context.Background()))
	require.NoError(t, n.plane.Close())
}
