package stream_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// saved is a pipeline with every kind of state that moves between tasks: counts with a time to
// live, windows, sessions with their timers, and a process with state and timers.
type saved struct {
	in               topic.Topic[string, int]
	counts, tells    topic.Topic[string, int64]
	windows, sessing topic.Topic[window.Key[string], int64]
}

func newSaved() saved {
	return saved{
		in:     topic.New[string, int]("in").Partitions(3),
		counts: topic.New[string, int64]("counts-out"), tells: topic.New[string, int64]("tells-out"),
		windows: topic.New[window.Key[string], int64]("windows-out"), sessing: topic.New[window.Key[string], int64]("sessions-out"),
	}
}

// teller sums up the values of a key by spans of 30 ms, and tells of each by a timer.
type teller struct{}

func (teller) Process(ctx *stream.Context[string, map[int64]int64, int64], v int) error {
	sums, span := ctx.State(), ctx.Time().UnixMilli()/30
	if *sums == nil {
		*sums = map[int64]int64{}
	}
	if (*sums)[span] == 0 {
		ctx.SetTimer(at(span*30 + 30))
	}
	(*sums)[span] += int64(v)
	return nil
}

func (teller) Timer(ctx *stream.Context[string, map[int64]int64, int64], timer stream.Timer) error {
	sums, span := *ctx.State(), timer.At.UnixMilli()/30-1
	ctx.Emit(sums[span])
	if delete(sums, span); len(sums) == 0 {
		ctx.Forget()
	}
	return nil
}

func (s saved) build(job string) (app *stream.Topology, counts stream.Table[string, int64]) {
	app = stream.New(job).Disorder(20 * ms)
	g := app.Stream(s.in).GroupByKV(func(k string, _ int) string { return k })
	counts = g.Emit(window.OnUpdate).Count().As("counts", stream.TTL(time.Hour))
	counts.To(s.counts)
	g.Window(window.Hopping(20*ms, 10*ms)).Count().As("windows").To(s.windows)
	g.Session(window.Gap(15 * ms)).Count().As("sessions").To(s.sessing)
	g.Process(teller{}).As("teller").To(s.tells)
	return app, counts
}

// feed sends records [from, to), out of order by less than the disorder.
func (s saved) feed(d *streamtest.Driver, from, to int) {
	for i := from; i < to; i++ {
		d.Input(s.in).SendAt(at(int64(i*3+i%5*3)), fmt.Sprint("k", i*i%23), i%7+1)
	}
}

// results are all results, without their order, which tasks do not have in common.
func (s saved) results(d *streamtest.Driver) map[string]int {
	all := map[string]int{}
	for _, out := range []topic.Topic[string, int64]{s.counts, s.tells} {
		for _, r := range d.Output(out).Records() {
			all[fmt.Sprint(out.Name(), " ", r.Key, " ", r.Value, " ", r.Time.UnixMilli())]++
		}
	}
	for _, out := range []topic.Topic[window.Key[string], int64]{s.windows, s.sessing} {
		for _, r := range d.Output(out).Records() {
			all[fmt.Sprint(out.Name(), " ", r.Key, " ", r.Value, " ", r.Time.UnixMilli())]++
		}
	}
	return all
}

// A job that begins from a savepoint goes on where that was taken, in another number of
// tasks each time, and the results are those of one run without any of it; crashes in
// between change nothing.
func TestRescaleFromSavepoints(t *testing.T) {
	const part, parts = 90, 4
	s := newSaved()
	plain, _ := s.build("plain")
	d := streamtest.New(t, plain.Tasks(2))
	s.feed(d, 0, part*parts)
	want := s.results(d)
	require.Greater(t, len(want), part*parts)

	app, _ := s.build("of-2")
	d = streamtest.New(t, app.Tasks(2))
	for i, tasks := range []int{2, 5, 3, 1} {
		if i > 0 {
			from := d.Savepoint()
			next, _ := s.build(fmt.Sprint("of-", tasks))
			d.Redeploy(next.Tasks(tasks).StartFrom(from))
			e := d.Evolution()
			require.Equal(t, []string{"counts", "counts-expiry", "sessions", "sessions-timers", "teller", "teller-timers", "windows"}, stateNames(e.Kept))
			require.Empty(t, e.New)
			require.Contains(t, e.String(), ", a savepoint\n")
		}
		s.feed(d, i*part, i*part+40)
		d.Checkpoint()
		s.feed(d, i*part+40, i*part+60)
		d.Process()
		d.Crash()
		s.feed(d, i*part+60, i*part+part)
		n := 0
		for _, task := range d.Status().Tasks {
			if task.Stage != "source-in" {
				n++
			}
		}
		require.Equal(t, tasks, n)
	}
	require.Equal(t, want, s.results(d))
}

// A job whose stages get another number of tasks takes its state along and gives the results
// of one run, with crashes in between, also right behind the move.
func TestRescaleInPlace(t *testing.T) {
	const part, parts = 90, 4
	s := newSaved()
	plain, _ := s.build("plain")
	d := streamtest.New(t, plain.Tasks(2))
	s.feed(d, 0, part*parts)
	want := s.results(d)

	build := func(tasks int) *stream.Topology {
		app, _ := s.build("moving")
		return app.Tasks(tasks)
	}
	d = streamtest.New(t, build(2))
	for i, tasks := range []int{2, 5, 3, 5} {
		s.feed(d, i*part, i*part+10)
		if i > 0 {
			d.Process() // what the crash takes back
			d.Redeploy(build(tasks))
			e := d.Evolution()
			require.Len(t, e.Kept, 7)
			require.Empty(t, e.New)
			require.Empty(t, e.Dropped)
			require.Equal(t, []int{0, 2, 5, 3}[i], e.Kept[0].Shards)
		}
		if i == 1 {
			d.Crash()
		}
		s.feed(d, i*part+10, i*part+40)
		d.Checkpoint()
		s.feed(d, i*part+40, i*part+60)
		d.Process()
		d.Crash()
		require.False(t, d.Evolution().Changed())
		s.feed(d, i*part+60, i*part+part)
		n := 0
		for _, task := range d.Status().Tasks {
			if task.Stage != "source-in" {
				n++
			}
		}
		require.Equal(t, tasks, n)
	}
	require.Equal(t, want, s.results(d))
}

// State of a step that is not there while the others move is found again, and moves then.
func TestStateOfAnAbsentStepMovesLater(t *testing.T) {
	in, out, sums := topic.New[string, int]("in").Partitions(2), topic.New[string, int64]("out"), topic.New[string, int]("sums")
	build := func(tasks int, both bool) *stream.Topology {
		app := stream.New("absent").Tasks(tasks)
		g := app.Stream(in).GroupByKV(func(k string, _ int) string { return k })
		g.Count().As("counts").To(out)
		if both {
			g.Aggregate(func(a, v int) int { return a + v }).As("sums").To(sums)
		}
		return app
	}
	d := streamtest.New(t, build(4, true))
	feed := func() {
		for i := range 20 {
			d.Input(in).Send(fmt.Sprint(i), i)
		}
		d.Checkpoint()
	}
	feed()
	d.Redeploy(build(3, false))
	feed()
	d.Redeploy(build(3, true))
	require.Equal(t, []string{"counts", "sums"}, stateNames(d.Evolution().Kept))
	feed()
	d.Crash()
	counts, totals := newest(d.Output(out).Records()), newest(d.Output(sums).Records())
	for i := range 20 {
		require.EqualValues(t, 3, counts[fmt.Sprint(i)])
		require.Equal(t, 2*i, totals[fmt.Sprint(i)])
	}
}

// A move that a crash cuts short, at whatever operation of the file system, is made good by
// the next start, to the same number of tasks or another one.
func TestMoveIsAllOrNothing(t *testing.T) {
	ctx := context.Background()
	in, out, kept := topic.New[string, int]("in").Partitions(2), topic.New[string, int64]("out"), topic.New[string, int64]("kept")
	seen := state.NewKV[string, int64]("seen").Keyed().TTL(time.Hour)
	build := func(tasks int) *stream.Topology {
		app := stream.New("moved").Checkpoint(checkpoint.Every(2 * time.Millisecond)).Tasks(tasks)
		g := app.Stream(in).GroupByKV(func(k string, _ int) string { return k })
		g.Count().As("counts").To(out)
		g.Process(stream.ProcessFunc[string, int, struct{}, int64](func(ctx *stream.Context[string, struct{}, int64], _ int) error {
			n, _ := seen.Get(ctx, ctx.Key())
			seen.Put(ctx, ctx.Key(), n+1)
			ctx.Emit(n + 1)
			return nil
		}), seen).As("keeper").To(kept)
		return app
	}
	fs := vfs.NewMem()
	n := openNode(t, fs)
	job := n.start(t, build(2))
	for range 3 {
		send(t, n, in, "a", "b", "c", "d")
	}
	require.NoError(t, job.CatchUp(ctx))
	require.NoError(t, job.Stop(ctx))
	require.NoError(t, n.plane.Close())
	image, step := fs.Kill(), int64(5)
	if testing.Short() {
		step = 41
	}
	cut := 0
	for stop := int64(1); ; stop += step {
		fs := image.Kill()
		n := openNode(t, fs)
		before := fs.Ops()
		fs.StopAt(before + stop)
		job, err := stream.Start(ctx, stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state"}, build(5))
		stopped := fs.Ops() >= before+stop
		after := fs.Crash(uint64(stop))
		if stop%2 == 0 {
			after = fs.Kill()
		}
		if err == nil {
			n.abandon(job)
		} else {
			cut++
			_ = n.plane.Close()
		}
		n = openNode(t, after)
		for _, tasks := range []int{5 - int(stop%3), 1, 4} {
			job = n.start(t, build(tasks))
			send(t, n, in, "a", "b", "e")
			require.NoError(t, job.CatchUp(ctx))
			require.NoError(t, job.Stop(ctx))
		}
		want := map[string]int64{"a": 6, "b": 6, "c": 3, "d": 3, "e": 3}
		require.Equal(t, want, committedCounts(t, n, out), "stopped at operation %d", stop)
		require.Equal(t, want, committedCounts(t, n, kept), "stopped at operation %d", stop)
		_, first := n.plane.Log().Spec("__moved-counts-changelog")
		require.False(t, first, "stopped at operation %d: what the state has moved out of is deleted", stop)
		require.NoError(t, n.plane.Close())
		if !stopped {
			break
		}
	}
	require.Positive(t, cut)
}

// What a savepoint holds can be read without a node, and it says what it does not hold.
func TestReadSavepoint(t *testing.T) {
	ctx := t.Context()
	s := newSaved()
	app, counts := s.build("read")
	d := streamtest.New(t, app)
	s.feed(d, 0, 100)
	d.Checkpoint()
	want := rowTexts(t, d.View(counts).All(ctx))
	sp := d.Savepoint()
	s.feed(d, 100, 150) // is not in it
	d.Checkpoint()
	require.Equal(t, "read", sp.Job())
	require.Len(t, sp.Stores(), 7)
	require.Equal(t, 3, sp.Stores()[0].Shards)
	var read int64
	for _, p := range sp.Positions() {
		require.Equal(t, "in", p.Topic)
		read += p.Offset
	}
	require.EqualValues(t, 100, read)

	reader := stream.New("reader")
	g := reader.Stream(s.in).GroupBy(strconv.Itoa)
	same, other := g.Count().As("counts"), g.Count().As("others")
	text := g.Aggregate(func(a string, _ int) string { return a }).As("teller")
	require.Equal(t, want, rowTexts(t, sp.View(same).All(ctx)))
	require.Equal(t, want[:1], rowTexts(t, sp.View(same).Prefix(ctx, "k0")))
	n, ok, err := sp.View(same).Latest().Get(ctx, "k1")
	require.NoError(t, err)
	require.True(t, ok)
	require.Positive(t, n)
	_, _, err = sp.View(other).Get(ctx, "k1")
	require.ErrorContains(t, err, `has no state of step "others"`)
	_, _, err = sp.View(text).Get(ctx, "k1")
	require.ErrorContains(t, err, "value map")
	_, err = sp.View(same).Subscribe(ctx)
	require.ErrorContains(t, err, "does not change")
}

// All state can be looked at as text.
func TestDumpOfState(t *testing.T) {
	in := topic.New[string, string]("in")
	app := stream.New("dumped").Tasks(1)
	g := app.Stream(in).GroupByKV(func(k, _ string) string { return k })
	g.Reduce(func(a, b string) string { return a + b }).As("joined")
	g.Count().As("counts")
	d := streamtest.New(t, app)
	d.Input(in).SendAt(at(1), "a", "x")
	d.Input(in).SendAt(at(2), "b", "y")
	d.Input(in).SendAt(at(3), "a", "z")
	text := d.Dump()
	for _, part := range []string{`job "dumped" at checkpoint 1/`, "read in/0 up to 3\n", "state counts, shard 0 of 1\n\t\"a\" = \"", "state joined, shard 0 of 1\n", "xz\"\n\t\"b\" = "} {
		require.Contains(t, text, part)
	}
	require.Equal(t, 4, strings.Count(text, " = "))
}

// State that cannot move stays where it is: another number of tasks is refused, with the way
// out, and so is a topic that does not hold what the savepoint has read.
func TestSavepointThatDoesNotFit(t *testing.T) {
	ctx := context.Background()
	in := topic.New[string, int]("in")
	build := func(job string, hold bool) *stream.Topology {
		app := stream.New(job)
		g := app.Stream(in).GroupByKV(func(k string, _ int) string { return k })
		g.Count().As("counts")
		if hold { // in a store whose keys are not those of the records
			mine := state.NewKV[string, int]("mine")
			g.Process(stream.ProcessFunc[string, int, struct{}, int](func(ctx *stream.Context[string, struct{}, int], v int) error {
				mine.Put(ctx, "all", v)
				return nil
			}), mine).As("held")
		}
		return app
	}
	n := openNode(t, vfs.NewMem())
	env := stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state"}
	job := n.start(t, build("first", true))
	send(t, n, in, "a", "b")
	require.NoError(t, job.CatchUp(ctx))
	name := filepath.Join(t.TempDir(), "savepoint")
	_, err := job.SaveTo(ctx, name)
	require.NoError(t, err)
	require.NoError(t, job.Stop(ctx))
	_, err = job.SaveTo(ctx, name)
	require.ErrorIs(t, err, stream.ErrStopped)
	files, err := os.ReadDir(filepath.Dir(name))
	require.NoError(t, err)
	require.Len(t, files, 1, "what could not be written leaves nothing behind")
	sp, err := stream.OpenSavepointFile(name)
	require.NoError(t, err)

	_, err = stream.Start(ctx, env, build("second", true).Tasks(2).StartFrom(sp))
	require.ErrorContains(t, err, `step "held-mine"`)
	require.ErrorContains(t, err, "nobody can say to which key of the step an entry belongs")
	require.NotContains(t, err.Error(), `step "counts"`)
	_, err = stream.Start(ctx, env, build("first", true).Tasks(2))
	require.ErrorContains(t, err, `step "held-mine"`)
	require.ErrorContains(t, err, "nobody can say to which key of the step an entry belongs")
	job = n.start(t, build("first", false).StartFrom(sp))
	require.Empty(t, job.Evolution().Savepoint, "a job that has run goes on from where it was")
	require.NoError(t, job.Stop(ctx))
	require.NoError(t, n.plane.Close())

	elsewhere := openNode(t, vfs.NewMem())
	env.Plane = elsewhere.plane
	_, err = stream.Start(ctx, env, build("third", true).StartFrom(sp))
	require.ErrorContains(t, err, "has read in-0 up to offset 2, and here it ends at 0")
	require.NoError(t, elsewhere.plane.Close())
	require.NoError(t, sp.Close())
}

// A start from a savepoint that a crash cut short, at whatever operation of the file system, is
// made good by the next; from then on the savepoint is not asked any more.
func TestStartFromSavepointIsAllOrNothing(t *testing.T) {
	ctx := context.Background()
	in, out := topic.New[string, int]("in").Partitions(2), topic.New[string, int64]("out")
	build := func(job string) *stream.Topology {
		app := stream.New(job).Checkpoint(checkpoint.Every(2 * time.Millisecond))
		app.Stream(in).GroupByKV(func(k string, _ int) string { return k }).Count().As("counts").To(out)
		return app
	}
	fs := vfs.NewMem()
	n := openNode(t, fs)
	job := n.start(t, build("first"))
	for range 3 {
		send(t, n, in, "a", "b", "c", "d")
	}
	require.NoError(t, job.CatchUp(ctx))
	name := filepath.Join(t.TempDir(), "savepoint")
	for range 2 { // a file that is there is replaced
		_, err := job.SaveTo(ctx, name)
		require.NoError(t, err)
	}
	require.NoError(t, job.Stop(ctx))
	require.NoError(t, n.plane.Close())
	sp, err := stream.OpenSavepointFile(name)
	require.NoError(t, err)
	defer sp.Close()

	image, step := fs.Kill(), int64(7)
	if testing.Short() {
		step = 29
	}
	second := func() *stream.Topology { return build("second").Tasks(3).StartFrom(sp) }
	cut := 0
	for stop := int64(1); ; stop += step {
		fs := image.Kill()
		n := openNode(t, fs)
		before := fs.Ops()
		fs.StopAt(before + stop)
		job, err := stream.Start(ctx, stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state"}, second())
		stopped := fs.Ops() >= before+stop
		after := fs.Crash(uint64(stop))
		if stop%2 == 0 {
			after = fs.Kill()
		}
		if err == nil {
			n.abandon(job)
		} else {
			cut++
			_ = n.plane.Close()
		}
		n = openNode(t, after)
		job = n.start(t, second())
		send(t, n, in, "a", "b", "e")
		require.NoError(t, job.CatchUp(ctx))
		require.NoError(t, job.Stop(ctx))
		require.Equal(t, map[string]int64{"a": 4, "b": 4, "c": 3, "d": 3, "e": 1}, committedCounts(t, n, out), "stopped at operation %d", stop)
		require.NoError(t, n.plane.Close())
		if !stopped {
			break
		}
	}
	require.Positive(t, cut)
}
