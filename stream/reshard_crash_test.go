package stream_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// moving is a pipeline with all kinds of state that moves with the number of tasks, in one goroutine.
// Records come one after the other and all of them in order, so that results are the same
// whatever the tasks.
type moving struct {
	in, rules      topic.Topic[string, int]
	called         topic.Topic[string, int]
	kept, joined   topic.Topic[string, string]
	held, foreign  topic.Topic[string, int64]
	windows, spans topic.Topic[window.Key[string], int64]

	now  time.Time // the clock of the job that runs
	pick func(n int) int
}

func newMoving(sync log.Sync) *moving {
	texts := func(name string) topic.Topic[string, string] { return topic.New[string, string](name).Sync(sync) }
	counts := func(name string) topic.Topic[string, int64] { return topic.New[string, int64](name).Sync(sync) }
	of := func(name string) topic.Topic[window.Key[string], int64] {
		return topic.New[window.Key[string], int64](name).Sync(sync)
	}
	return &moving{
		in: topic.New[string, int]("in").Sync(sync), rules: topic.New[string, int]("rules").Sync(sync),
		called: topic.New[string, int]("called").Sync(sync), kept: texts("kept"), joined: texts("joined"),
		held: counts("held"), foreign: counts("foreign"), windows: of("windows"), spans: of("spans"),
		now: streamtest.Epoch,
	}
}

// ruled has state of its own and in stores, timers of both clocks, and looks at what is broadcast.
type ruled struct{ rules stream.Broadcast[string, int] }

func (p ruled) Process(ctx *stream.Context[string, int, string], v int) error {
	k := ctx.Key()
	n, _ := seenByKey.Get(ctx, k)
	seenByKey.Put(ctx, k, n+1)
	before := 0
	for _, m := range keyWindows.Range(ctx, k, at(0), ctx.Time()) {
		before += m
	}
	keyWindows.Put(ctx, k, ctx.Time(), v)
	*ctx.State() += v
	rules := maps.Collect(p.rules.All(ctx))
	ctx.Emit(fmt.Sprint(n, " ", before, " ", *ctx.State(), " ", rules))
	ctx.SetTimer(ctx.Time().Add(70 * ms))
	ctx.SetWallTimer(streamtest.Epoch.Add(time.Minute + time.Duration(ctx.Time().UnixMilli())*ms))
	return nil
}

func (p ruled) Timer(ctx *stream.Context[string, int, string], timer stream.Timer) error {
	ctx.Emit(fmt.Sprint("timer ", timer.At.UnixMilli(), " ", timer.Wall, " ", *ctx.State()))
	return nil
}

func (m *moving) topology(tasks int) *stream.Topology {
	app := stream.New("moving").Tasks(tasks).IdleAfter(-1)
	s := app.Stream(m.in)
	g := shuffled(s)
	rules := app.Stream(m.rules).Broadcast("rules")
	g.Process(ruled{rules}, rules, seenByKey, keyWindows).As("kept").To(m.kept)
	g.Window(window.Tumbling(40 * ms).Grace(20 * ms)).Count().As("windows").To(m.windows)
	g.Session(window.Gap(60 * ms)).Count().As("spans").To(m.spans)
	counts := g.Emit(window.OnUpdate).Count().As("counts")
	counts.Suppress(60 * ms).As("held").To(m.held)
	newest := app.Stream(m.rules).GroupByKV(func(k string, _ int) string { return k }).Emit(window.OnUpdate).Reduce(func(_, v int) int { return v }).As("newest")
	counts.LeftJoinOn(newest, func(n int64) string { return fmt.Sprint("r", n%5) },
		func(n int64, v int, _ bool) int64 { return n*100 + int64(v) }).As("foreign").To(m.foreign)
	odd := func(v int) bool { return v%2 == 1 }
	side := func(yes bool) stream.Stream[string, int] {
		return s.Filter(func(v int) bool { return odd(v) == yes }).KeyByKV(func(k string, _ int) string { return k })
	}
	side(true).LeftJoin(side(false), window.Within(30*ms), func(a, b int, ok bool) string { return fmt.Sprint(a, " ", b, " ", ok) }).As("joined").To(m.joined)
	s.Repartition(tasks).MapAsync(stream.Async{Limit: 100}, times10).As("called").To(m.called)
	return app
}

// openPlane opens the node without goroutines.
func openPlane(fs *vfs.Mem) (testNode, error) {
	o := checkpoint.PlaneOptions{FS: fs, SyncInterval: -1}
	o.Log.SegmentBytes, o.Log.MaxBatchBytes = 32<<10, 256<<10
	plane, err := checkpoint.Open("node", o)
	return testNode{plane}, err
}

func (m *moving) start(n testNode, tasks int) (*stream.Manual, error) {
	return stream.StartManual(context.Background(), stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state",
		Pick: m.pick, Now: func() time.Time { return m.now }}, m.topology(tasks))
}

// send sends records from to to, and a change of the rules now and then.
func (m *moving) send(t *testing.T, n testNode, from, to int) {
	t.Helper()
	in, err := topic.NewProducer(t.Context(), n, m.in, topic.ProducerOptions{})
	require.NoError(t, err)
	rules, err := topic.NewProducer(t.Context(), n, m.rules, topic.ProducerOptions{})
	require.NoError(t, err)
	for i := from; i < to; i++ {
		p, r := in, topic.Record[string, int]{Key: fmt.Sprint("k", i*i%11), Value: i%7 + 1, Time: at(int64(i * 5))}
		if i%9 == 4 {
			p, r.Key, r.Value = rules, fmt.Sprint("r", i%4), i
		}
		_, _, err := p.SendRecord(t.Context(), r)
		require.NoError(t, err)
	}
	require.NoError(t, in.Close())
	require.NoError(t, rules.Close())
}

// begin has the job run in two tasks and ends it with calls under way and everything
// else that is to move, and further records to read.
func (m *moving) begin(t *testing.T) *vfs.Mem {
	t.Helper()
	fs := vfs.NewMem()
	n, err := openPlane(fs)
	require.NoError(t, err)
	m.pick = func(int) int { return 0 } // the task that makes calls works where no other can
	job, err := m.start(n, 2)
	m.pick = nil
	require.NoError(t, err)
	m.send(t, n, 0, 60)
	stepUntil := func(done func(s stream.Status) bool) {
		for !done(job.Status()) {
			_, err := job.Step()
			require.NoError(t, err)
		}
	}
	stepUntil(func(s stream.Status) bool { // the tasks that make the calls begin
		return slices.ContainsFunc(s.Tasks, func(of stream.TaskStatus) bool { return of.Stage == "in-by" && of.Records > 0 })
	})
	job.Trigger()
	stepUntil(func(s stream.Status) bool { return s.Checkpoint.N > 0 })
	require.Zero(t, job.Lag(), "the checkpoint has all records")
	job.Kill()
	made := 0
	for _, of := range committed(t, n, m.called) {
		made += len(of)
	}
	require.Less(t, made, 30, "calls are under way")
	require.Less(t, len(committed(t, n, m.held)), 11)
	m.send(t, n, 60, 75)
	require.NoError(t, n.plane.Close())
	return fs.Kill()
}

// goOn has the job read what there is, in so many tasks, and commits it. before, where it is not nil, is
// called before the job starts.
func (m *moving) goOn(fs *vfs.Mem, tasks int, before func(n testNode)) error {
	n, err := openPlane(fs)
	if err != nil {
		return err
	}
	defer n.plane.Close()
	if before != nil {
		before(n)
	}
	job, err := m.start(n, tasks)
	if err != nil {
		return err
	}
	defer job.Kill()
	return settled(job)
}

func settled(job *stream.Manual) error {
	if err := job.Settle(); err != nil {
		return err
	}
	job.Trigger()
	return job.Settle()
}

// end reads the rest, in numbers of tasks that change, comes to the end of time and of the clock, and
// gives all results.
func (m *moving) end(t *testing.T, fs *vfs.Mem, numbers ...int) []string {
	t.Helper()
	for i, tasks := range numbers {
		require.NoError(t, m.goOn(fs, tasks, func(n testNode) {
			if i > 0 {
				m.send(t, n, 60+i*15, 75+i*15)
			}
		}))
		fs = fs.Kill()
	}
	n, err := openPlane(fs)
	require.NoError(t, err)
	job, err := m.start(n, numbers[0])
	require.NoError(t, err)
	require.NoError(t, settled(job))
	m.now = m.now.Add(time.Hour)
	require.NoError(t, settled(job))
	job.Advance(at(10_000).UnixMilli())
	require.NoError(t, settled(job))
	job.Kill()
	m.now = streamtest.Epoch
	results := slices.Concat(writtenTexts(t, n, m.kept), writtenTexts(t, n, m.joined), writtenTexts(t, n, m.held), writtenTexts(t, n, m.called),
		writtenTexts(t, n, m.windows), writtenTexts(t, n, m.spans))
	for k, all := range committed(t, n, m.foreign) { // those in between depend on checkpoints
		results = append(results, fmt.Sprint(k, " ", all[len(all)-1]))
	}
	require.NoError(t, n.plane.Close())
	return results
}

// writtenTexts are the committed records of a topic.
func writtenTexts[K, V any](t *testing.T, n testNode, of topic.Topic[K, V]) (all []string) {
	t.Helper()
	for r, err := range topic.ReadToEnd(context.Background(), n, of, topic.Start()) {
		require.NoError(t, err)
		all = append(all, fmt.Sprint(of.Name(), " ", r.Key, "=", r.Value, " @", r.Time.UnixMilli()))
	}
	return all
}

// Wherever a start in another number of tasks is cut short, or what the job does right behind it, the next, in
// whatever number, comes to the results of a job whose tasks stayed: calls that were under way are in the
// results once, timers of both clocks fire once, and what is held back, open or broadcast is all there.
func TestMoveOfAllStateStoppedAtFileOperations(t *testing.T) {
	for name, c := range map[string]struct {
		sync  log.Sync
		crash func(*vfs.Mem, uint64) *vfs.Mem
	}{
		"kill":      {log.SyncByOS, func(fs *vfs.Mem, _ uint64) *vfs.Mem { return fs.Kill() }},
		"power cut": {log.SyncAlways, func(fs *vfs.Mem, seed uint64) *vfs.Mem { return fs.Crash(seed) }},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMoving(c.sync)
			image := m.begin(t)
			want := m.end(t, image.Kill(), 2, 2, 2)
			for _, of := range []string{"kept k1=timer", "true", "joined", "held", "called", "windows", "spans"} {
				require.Contains(t, fmt.Sprint(want), of)
			}
			whole := image.Kill()
			require.NoError(t, m.goOn(whole, 5, nil))
			total := whole.Ops()
			t.Logf("%d operations", total)
			step := 20 * int64(*everyOp)
			if testing.Short() {
				step *= 4
			}
			for stop := 1 + time.Now().UnixNano()%step; stop <= total; stop += step {
				fs := image.Kill()
				fs.StopAt(stop)
				_ = m.goOn(fs, 5, nil)
				numbers := []int{5 - int(stop%3), 1, 4}
				require.ElementsMatch(t, want, m.end(t, c.crash(fs, uint64(stop)), numbers...), "stopped at operation %d", stop)
			}
		})
	}
}
