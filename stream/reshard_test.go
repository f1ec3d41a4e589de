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
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// resharding is a pipeline whose stages run in numbers of tasks that change.
type resharding struct {
	in      topic.Topic[string, int]
	name    string
	build   func(app *stream.Topology, s stream.Stream[string, int])
	results func(d *streamtest.Driver) []string
	steps   int
	step    func(d *streamtest.Driver, i int)
}

// shuffled groups by the key, in stages of their own.
func shuffled(s stream.Stream[string, int]) stream.Grouped[string, int] {
	return s.GroupByKV(func(k string, _ int) string { return k })
}

// recordTexts are the records of a topic, each as text.
func recordTexts[K, V any](d *streamtest.Driver, out topic.Topic[K, V]) (all []string) {
	for _, r := range d.Output(out).Records() {
		text := fmt.Sprint(out.Name(), " ", r.Key, "=", r.Value, " @", r.Time.UnixMilli())
		if r.Deleted {
			text = fmt.Sprint(out.Name(), " ", r.Key, " gone @", r.Time.UnixMilli())
		}
		for _, h := range r.Headers {
			text += " " + string(h.Value)
		}
		all = append(all, text)
	}
	return all
}

// check runs the pipeline in two tasks, and then in other numbers from time to time, and wants
// the same results. Each step is processed, so that those of several tasks come in one order.
func (r resharding) check(t *testing.T) {
	t.Helper()
	topology := func(tasks int) *stream.Topology {
		app := stream.New(r.name).IdleAfter(-1).Tasks(tasks)
		r.build(app, app.Stream(r.in))
		return app
	}
	run := func(numbers ...int) []string {
		d := streamtest.New(t, topology(numbers[0]))
		each := (r.steps + len(numbers) - 1) / len(numbers)
		for i := range r.steps {
			if i > 0 && i%each == 0 {
				d.Checkpoint()
				d.Redeploy(topology(numbers[i/each]))
				require.Empty(t, d.Evolution().New)
				if i/each == 2 {
					d.Crash() // right behind the move
				}
			}
			r.step(d, i)
			d.Process()
		}
		return r.results(d)
	}
	want := run(2)
	require.NotEmpty(t, want)
	require.ElementsMatch(t, want, run(2, 5, 3, 1, 4))
}

// put is a step that sends the record i, in order of time.
func (r resharding) put(d *streamtest.Driver, i int) {
	d.Input(r.in).SendAt(at(int64(i*5)), fmt.Sprint("k", i*i%11), i%7+1)
}

func newResharding(name string, steps int) resharding {
	r := resharding{in: topic.New[string, int]("in"), name: name, steps: steps}
	r.step = r.put
	return r
}

var (
	seenByKey   = state.NewKV[string, int]("seen").Keyed()
	byKeyAndDay = state.NewKV[visit, int]("days").KeyedBy(func(v visit) string { return v.Key }).TTL(100 * ms)
	keyWindows  = state.NewWindow[string, int]("windows").Keyed()
)

type visit struct {
	Key string
	Day int64
}

// keeper has named stores, timers of both clocks, and a side.
type keeper struct{ odd stream.Side[string, string] }

func (p keeper) Process(ctx *stream.Context[string, int, string], v int) error {
	k := ctx.Key()
	n, _ := seenByKey.Get(ctx, k)
	seenByKey.Put(ctx, k, n+1)
	day := visit{k, ctx.Time().UnixMilli() / 50}
	of, _ := byKeyAndDay.Get(ctx, day)
	byKeyAndDay.Put(ctx, day, of+v)
	before := 0
	for _, m := range keyWindows.Range(ctx, k, at(0), ctx.Time()) {
		before += m
	}
	keyWindows.Put(ctx, k, ctx.Time(), v)
	*ctx.State() += v
	ctx.Emit(fmt.Sprint(n, " ", of, " ", before, " ", *ctx.State()))
	ctx.SetTimer(ctx.Time().Add(70 * ms))
	ctx.SetWallTimer(ctx.Now().Add(time.Minute))
	if v%2 == 1 {
		p.odd.Emit(ctx, k, fmt.Sprint(v))
	}
	return nil
}

func (p keeper) Timer(ctx *stream.Context[string, int, string], timer stream.Timer) error {
	ctx.Emit(fmt.Sprint("timer ", timer.Wall, " ", *ctx.State()))
	return nil
}

// Named stores, timers of both clocks and sides of a Process go with their key.
func TestProcessInOtherNumbersOfTasks(t *testing.T) {
	r := newResharding("keeps", 60)
	out, odd := topic.New[string, string]("out"), topic.New[string, string]("odd")
	r.build = func(app *stream.Topology, s stream.Stream[string, int]) {
		g := shuffled(s)
		side := app.Side[string, string]("odd")
		g.Process(keeper{side}, seenByKey, byKeyAndDay, keyWindows, side).As("keeper").To(out)
		side.Stream().To(odd)
	}
	r.step = func(d *streamtest.Driver, i int) {
		r.put(d, i)
		if i%20 == 19 {
			d.Advance(time.Minute)
		}
	}
	r.results = func(d *streamtest.Driver) []string {
		d.Advance(time.Minute)
		d.Watermark(at(1000))
		all := append(recordTexts(d, out), recordTexts(d, odd)...)
		for _, of := range []string{"timer false", "timer true", "odd k"} {
			require.Contains(t, strings.Join(all, "\n"), of)
		}
		return all
	}
	r.check(t)
}

// What is suppressed goes with its key, which for windows is that in them, and bounds hold.
func TestSuppressInOtherNumbersOfTasks(t *testing.T) {
	r := newResharding("suppress", 60)
	out, windows, joined := topic.New[string, int64]("out"), topic.New[window.Key[string], int64]("windows"), topic.New[string, string]("joined")
	r.build = func(app *stream.Topology, s stream.Stream[string, int]) {
		g := shuffled(s)
		counts := g.Emit(window.OnUpdate).Count().As("counts")
		counts.Suppress(60 * ms).As("held").To(out)
		g.Window(window.Tumbling(40 * ms)).Emit(window.OnUpdate).Count().As("windows").
			SuppressBy(stream.HoldUntilClose().MaxRows(100).OrFail()).As("held-windows").To(windows)
		counts.Join(g.Emit(window.OnUpdate).Reduce(func(a, b int) int { return a + b }).As("sums"), func(n int64, sum int) string { return fmt.Sprint(n, "/", sum) }).
			As("both").Suppress(30 * ms).As("held-both").To(joined)
	}
	r.results = func(d *streamtest.Driver) []string {
		d.Watermark(at(1000))
		return append(append(recordTexts(d, out), recordTexts(d, windows)...), recordTexts(d, joined)...)
	}
	r.check(t)
}

// The bound of what a task holds back counts what has come from others.
func TestSuppressCountsWhatHasMoved(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[string, int64]("out")
	build := func(tasks int) *stream.Topology {
		app := stream.New("bound").IdleAfter(-1).Tasks(tasks)
		shuffled(app.Stream(in)).Emit(window.OnUpdate).Count().As("counts").
			SuppressBy(stream.HoldFor(time.Minute).MaxRows(8).MaxBytes(1 << 20)).As("held").To(out)
		return app
	}
	d := streamtest.New(t, build(4))
	for i := range 8 {
		d.Input(in).SendAt(at(int64(i)), fmt.Sprint("k", i), 1)
	}
	require.Empty(t, d.Output(out).Records())
	d.Redeploy(build(1))
	d.Input(in).SendAt(at(7), "k7", 1)
	require.Empty(t, d.Output(out).Records())
	d.Input(in).SendAt(at(8), "k8", 1)
	require.Equal(t, []string{"out k0=1 @0"}, recordTexts(d, out))
	d.Redeploy(build(3))
	d.Watermark(at(100000))
	require.Len(t, d.Output(out).Records(), 9)
}

// Results that come with the clock are those of one run, also where tasks were to give
// theirs at other times.
func TestTicksInOtherNumbersOfTasks(t *testing.T) {
	r := newResharding("ticks", 60)
	type key = window.Key[string]
	every, early, sliding, sessions := topic.New[key, int64]("every"), topic.New[key, int64]("early"), topic.New[key, int64]("sliding"), topic.New[key, int64]("sessions")
	r.build = func(app *stream.Topology, s stream.Stream[string, int]) {
		g := shuffled(s)
		spec := window.Tumbling(100 * ms).Grace(50 * ms)
		g.Window(spec).Emit(window.Every(time.Second)).Count().As("every").To(every)
		g.Window(spec).Emit(window.Early(time.Second).LateUpdates()).Count().As("early").To(early)
		g.Window(window.Sliding(100 * ms)).Emit(window.Every(time.Second)).Count().As("sliding").To(sliding)
		g.Session(window.Gap(60 * ms)).Emit(window.Every(time.Second)).Count().As("sessions").To(sessions)
	}
	r.step = func(d *streamtest.Driver, i int) {
		r.put(d, i)
		if i%10 == 9 {
			d.Advance(time.Second)
		}
	}
	r.results = func(d *streamtest.Driver) []string {
		d.Advance(time.Second)
		d.Watermark(at(1000))
		all := append(append(append(recordTexts(d, every), recordTexts(d, early)...), recordTexts(d, sliding)...), recordTexts(d, sessions)...)
		require.Contains(t, strings.Join(all, "\n"), " early")
		require.Contains(t, strings.Join(all, "\n"), " end")
		return all
	}
	r.check(t)
}

// A join on a foreign key: left rows are where their foreign key is.
func TestJoinOnInOtherNumbersOfTasks(t *testing.T) {
	r := newResharding("foreign", 90)
	customers := topic.New[string, string]("customers")
	out := topic.New[string, string]("out")
	r.build = func(app *stream.Topology, s stream.Stream[string, int]) {
		g := shuffled(s)
		last := func(_, b int) int { return b }
		orders := g.Emit(window.OnUpdate).Reduce(last).As("orders")
		names := app.Stream(customers).GroupByKV(func(k, _ string) string { return k }).Emit(window.OnUpdate).
			Reduce(func(_, b string) string { return b }).As("names")
		orders.LeftJoinOn(names, func(v int) string { return fmt.Sprint("c", v) }, func(v int, name string, ok bool) string {
			return fmt.Sprint(v, name, ok)
		}).As("named").To(out)
	}
	r.step = func(d *streamtest.Driver, i int) {
		if i%3 == 0 {
			d.Input(customers).SendAt(at(int64(i*5)), fmt.Sprint("c", i%8), fmt.Sprint("n", i))
		} else {
			r.put(d, i)
		}
	}
	r.results = func(d *streamtest.Driver) []string { return recordTexts(d, out) }
	r.check(t)
}

// Tables with a history, and with rows that go by the node's clock, and joins of them.
func TestTablesInOtherNumbersOfTasks(t *testing.T) {
	r := newResharding("tables", 60)
	out, rows := topic.New[string, string]("out"), topic.New[string, int]("rows")
	r.build = func(_ *stream.Topology, s stream.Stream[string, int]) {
		moved := s.Filter(func(v int) bool { return v%2 == 1 }).KeyByKV(func(k string, _ int) string { return k })
		past := moved.ToTable().As("past", stream.History(300*ms))
		moved.ToTable().Emit(window.OnUpdate).As("wall", stream.WallTTL(time.Minute), stream.TTL(200*ms)).To(rows)
		s.Filter(func(v int) bool { return v%2 == 0 }).KeyByKV(func(k string, _ int) string { return k }).
			LeftJoinTable(past, func(v, was int, ok bool) string { return fmt.Sprint(v, was, ok) }).To(out)
	}
	r.step = func(d *streamtest.Driver, i int) {
		at := at(int64(i*5 - i*7%11*10)) // out of order
		d.Input(r.in).SendAt(at, fmt.Sprint("k", i*i%5), i%7+1)
		if i%25 == 24 {
			d.Advance(time.Minute)
		}
	}
	r.results = func(d *streamtest.Driver) []string {
		d.Advance(time.Minute)
		all := append(recordTexts(d, out), recordTexts(d, rows)...)
		require.Contains(t, strings.Join(all, "\n"), "gone")
		return all
	}
	r.check(t)
}

// Windows of a key are where the key is, and what is kept of them by their own key is too.
func TestResultsOfWindowsInOtherNumbersOfTasks(t *testing.T) {
	r := newResharding("results", 60)
	out := topic.New[window.Key[string], int64]("out")
	r.build = func(_ *stream.Topology, s stream.Stream[string, int]) {
		shuffled(s).Window(window.Tumbling(40 * ms)).Emit(window.OnUpdate).Count().As("windows").
			ToStream().GroupByKey().Emit(window.OnUpdate).Count().As("results").To(out)
	}
	r.results = func(d *streamtest.Driver) []string { return recordTexts(d, out) }
	r.check(t)
}

// Every new task has what is broadcast.
func TestBroadcastInOtherNumbersOfTasks(t *testing.T) {
	r := newResharding("rules", 90)
	changes := topic.New[string, int]("changes").Partitions(2)
	out := topic.New[string, string]("out")
	r.build = func(app *stream.Topology, s stream.Stream[string, int]) {
		g := shuffled(s)
		rules := app.Stream(changes).Broadcast("rules")
		g.Process(stream.ProcessFunc[string, int, int, string](func(ctx *stream.Context[string, int, string], v int) error {
			*ctx.State() += v
			all := map[string]int{}
			for k, v := range rules.All(ctx) {
				all[k] = v
			}
			ctx.Emit(fmt.Sprint(*ctx.State(), all))
			return nil
		}), rules).As("ruled").To(out)
	}
	r.step = func(d *streamtest.Driver, i int) {
		switch {
		case i%9 == 0:
			d.Input(changes).SendAt(at(int64(i*5)), fmt.Sprint("r", i%4), i)
		case i%25 == 24:
			d.Input(changes).SendRecord(topic.Record[string, int]{Key: fmt.Sprint("r", i%4), Deleted: true, Time: at(int64(i * 5))})
		default:
			r.put(d, i)
		}
	}
	r.results = func(d *streamtest.Driver) []string { return recordTexts(d, out) }
	r.check(t)
}

// Calls that are out go with their key, and are made again; their results count once and keep
// the order of the key. Records without a key, of several tasks, do not take each other's place.
func TestCallsInOtherNumbersOfTasks(t *testing.T) {
	ctx := t.Context()
	in, out := topic.New[string, int]("in").Partitions(2), topic.New[string, int]("out")
	windows := topic.New[window.Key[string], int64]("windows")
	var gate chan struct{}
	build := func(tasks int) *stream.Topology {
		app := stream.New("calls").Checkpoint(checkpoint.Every(2 * time.Millisecond)).IdleAfter(-1).Tasks(tasks)
		called := app.Stream(in).Repartition(tasks).MapAsync(stream.Async{Limit: 100}, func(ctx context.Context, v int) (int, error) {
			select {
			case <-gate:
				return v, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}).As("calls")
		called.To(out)
		called.GroupByKey().Window(window.Tumbling(50 * ms)).Count().As("windows").To(windows)
		return app
	}
	n := openNode(t, vfs.NewMem())
	want, sent := map[string][]int{}, 0
	run := func(tasks int, open bool) {
		if gate = make(chan struct{}); open {
			close(gate)
		}
		job := n.start(t, build(tasks))
		p, err := topic.NewProducer(ctx, n, in, topic.ProducerOptions{})
		require.NoError(t, err)
		for range 30 {
			k := fmt.Sprint("k", sent%7)
			r := topic.Record[string, int]{Key: k, Value: sent, Time: at(int64(sent) * 10)}
			if r.NoKey = sent%5 == 4; r.NoKey {
				r.Key, k = "", ""
			}
			_, _, err := p.SendRecord(ctx, r)
			require.NoError(t, err)
			want[k] = append(want[k], sent)
			sent++
		}
		require.NoError(t, p.Close())
		if open {
			require.NoError(t, job.CatchUp(ctx))
		} else {
			require.Eventually(t, func() bool { return job.Lag() == 0 }, 10*time.Second, time.Millisecond)
		}
		require.NoError(t, job.Stop(ctx))
	}
	for _, tasks := range []int{3, 5, 2} {
		run(tasks, false)
	}
	require.Empty(t, committed(t, n, out))
	run(4, true)
	got := committed(t, n, out)
	require.ElementsMatch(t, want[""], got[""])
	delete(want, "")
	delete(got, "")
	require.Equal(t, want, got)
	total := int64(0)
	for r, err := range topic.ReadToEnd(ctx, n, windows, topic.Start()) {
		require.NoError(t, err)
		total += r.Value
	}
	require.Positive(t, total, "none was late")
	require.NoError(t, n.plane.Close())
}

// What cannot move is refused, with the reason and the way out, and the topology that ran before
// still runs; an empty number of calls in flight does not change that.
func TestWhatDoesNotMove(t *testing.T) {
	in := topic.New[string, int]("in")
	for name, c := range map[string]struct {
		build  func(g stream.Grouped[string, int])
		reason string
	}{
		"stores": {func(g stream.Grouped[string, int]) {
			mine := state.NewKV[string, int]("mine")
			g.Process(stream.ProcessFunc[string, int, struct{}, int](func(ctx *stream.Context[string, struct{}, int], v int) error {
				mine.Put(ctx, "all", v)
				return nil
			}), mine).As("step")
		}, `step "step-mine"`},
	} {
		t.Run(name, func(t *testing.T) {
			build := func(tasks int) *stream.Topology {
				app := stream.New("stays").Tasks(tasks)
				c.build(shuffled(app.Stream(in)))
				return app
			}
			n := openNode(t, vfs.NewMem())
			job := n.start(t, build(2))
			require.NoError(t, job.Stop(t.Context()))
			_, err := stream.Start(t.Context(), stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state"}, build(3))
			require.ErrorContains(t, err, c.reason)
			require.ErrorContains(t, err, "keep the number of tasks")
			job = n.start(t, build(2))
			require.NoError(t, job.Stop(t.Context()))
			require.NoError(t, n.plane.Close())
		})
	}
}

// Calls that keep the order of keys which were changed in the task do not move while they are under way; once the
// job has caught up none is, and the number of tasks is free.
func TestCallsOfChangedKeysMoveOnceTheyAreOver(t *testing.T) {
	ctx := t.Context()
	in, out := topic.New[string, int]("in"), topic.New[int, int]("out")
	var gate chan struct{}
	build := func(tasks int) *stream.Topology {
		app := stream.New("changed").Checkpoint(checkpoint.Every(2 * time.Millisecond)).Tasks(tasks)
		app.Stream(in).Repartition(tasks).KeyBy(func(v int) int { return v % 2 }).MapAsync(stream.Async{}, func(ctx context.Context, v int) (int, error) {
			select {
			case <-gate:
				return v, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}).As("step").To(out)
		return app
	}
	n := openNode(t, vfs.NewMem())
	gate = make(chan struct{})
	job := n.start(t, build(2))
	send(t, n, in, "a", "b", "c", "d")
	require.Eventually(t, func() bool { return job.Lag() == 0 }, 10*time.Second, time.Millisecond)
	require.NoError(t, job.Stop(ctx))
	_, err := stream.Start(ctx, stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state"}, build(3))
	require.ErrorContains(t, err, "keep the order of keys which were changed in the same task")
	require.ErrorContains(t, err, "let the job CatchUp")
	close(gate)
	for _, tasks := range []int{2, 3, 1} {
		job = n.start(t, build(tasks))
		send(t, n, in, "a", "e")
		require.NoError(t, job.CatchUp(ctx))
		require.NoError(t, job.Stop(ctx))
	}
	total := 0
	for r, err := range topic.ReadToEnd(ctx, n, out, topic.Start()) {
		require.NoError(t, err)
		total += r.Value
	}
	require.Equal(t, 10, total, "each call once")
	require.NoError(t, n.plane.Close())
}

// State of a store that was not where its keys say, because it was not Keyed when it was written,
// does not move: nothing is lost, and the number of tasks can stay.
func TestKeyedTooLate(t *testing.T) {
	in := topic.New[string, int]("in")
	build := func(tasks int, keyed bool) *stream.Topology {
		app := stream.New("late").Checkpoint(checkpoint.Every(2 * time.Millisecond)).Tasks(tasks)
		mine := state.NewKV[string, int]("mine")
		if keyed {
			mine = mine.Keyed()
		}
		shuffled(app.Stream(in)).
			Process(stream.ProcessFunc[string, int, struct{}, int](func(ctx *stream.Context[string, struct{}, int], v int) error {
				if !keyed {
					mine.Put(ctx, "all", v)
				}
				return nil
			}), mine).As("step")
		return app
	}
	n := openNode(t, vfs.NewMem())
	job := n.start(t, build(2, false))
	send(t, n, in, "a", "b", "c", "d")
	require.NoError(t, job.CatchUp(t.Context()))
	require.NoError(t, job.Stop(t.Context()))
	_, err := stream.Start(t.Context(), stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state"}, build(3, true))
	require.ErrorContains(t, err, "state moves only from where it belongs")
	job = n.start(t, build(2, true))
	require.NoError(t, job.Stop(t.Context()))
	require.NoError(t, n.plane.Close())
}

// A call that touches what belongs to another key fails.
func TestKeyedStoresAreOfTheKey(t *testing.T) {
	in := topic.New[string, int]("in")
	app := stream.New("keyed")
	app.Stream(in).GroupByKey().Process(stream.ProcessFunc[string, int, struct{}, int](func(ctx *stream.Context[string, struct{}, int], v int) error {
		byKeyAndDay.Put(ctx, visit{"b", 1}, v)
		return nil
	}), byKeyAndDay).As("step")
	d := streamtest.New(t, app)
	d.Input(in).Send("b", 1)
	require.NoError(t, d.Failure())
	d.Input(in).Send("a", 1)
	require.ErrorContains(t, d.Failure(), "the entry belongs to key 62, while the call is for 61")

	app = stream.New("wrong")
	app.Stream(in).GroupByKey().Process(stream.ProcessFunc[string, int, struct{}, int](func(*stream.Context[string, struct{}, int], int) error { return nil }),
		state.NewKV[int, int]("other").Keyed(), state.NewWindow[int, int]("none").KeyedBy[string](nil)).As("step")
	err := app.Validate()
	require.ErrorContains(t, err, `store "other" is keyed by int, and the step by string`)
	require.ErrorContains(t, err, "KeyedBy needs a function")
}
