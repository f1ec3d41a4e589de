package stream_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
)

// scripted is a Processor made of two functions.
type scripted[S, R any] struct {
	process func(*stream.Context[string, S, R], string) error
	timer   func(*stream.Context[string, S, R], stream.Timer) error
}

func (p scripted[S, R]) Process(c *stream.Context[string, S, R], v string) error {
	return p.process(c, v)
}

func (p scripted[S, R]) Timer(c *stream.Context[string, S, R], t stream.Timer) error {
	return p.timer(c, t)
}

var texts = topic.New[string, string]("texts")

func told(records []topic.Record[string, string]) []string {
	all := []string{}
	for _, r := range records {
		all = append(all, fmt.Sprintf("%s=%s @%d", r.Key, r.Value, r.Time.UnixMilli()))
	}
	return all
}

// alarms sets the timers a value names ("5 wall7 -5": at 5, by the clock at 7, no longer at 5) and
// tells of each that fires.
func alarms(c *stream.Context[string, []string, string], v string) error {
	for f := range strings.FieldsSeq(v) {
		name, cancel := strings.CutPrefix(f, "-")
		name, wall := strings.CutPrefix(name, "wall")
		var n int64
		if _, err := fmt.Sscan(name, &n); err != nil {
			return err
		}
		t := stream.Timer{At: at(n), Wall: wall}
		if wall {
			t.At = streamtest.Epoch.Add(time.Duration(n) * ms)
		}
		switch {
		case cancel:
			c.CancelTimer(t)
		case wall:
			c.SetWallTimer(t.At)
		default:
			c.SetTimer(t.At)
		}
	}
	return nil
}

func rings(c *stream.Context[string, []string, string], t stream.Timer) error {
	s := c.State()
	*s = append(*s, fmt.Sprint(len(*s)))
	c.Emit(fmt.Sprint("ring ", len(*s), map[bool]string{true: " wall"}[t.Wall]))
	if c.Key() == "chain" && len(*s) < 3 {
		c.SetTimer(t.At.Add(ms))
	}
	return nil
}

// Event timers fire once, in order of time and then key, before the watermark goes on; one that is
// set in the past fires after the call; a cancelled one does not. A crash changes none of it.
func TestEventTimers(t *testing.T) {
	for _, crashes := range []bool{false, true} {
		out := topic.New[string, string]("out")
		app := stream.New("timers")
		app.Stream(texts).GroupByKey().Process(scripted[[]string, string]{alarms, rings}).As("alarm").To(out)
		d := streamtest.New(t, app)
		crash := func() {
			if crashes {
				d.Crash()
			}
		}
		d.Input(texts).SendAt(at(1), "b", "20 20 30 10")
		d.Input(texts).SendAt(at(1), "a", "20 25")
		d.Input(texts).SendAt(at(2), "b", "-30 -31")
		d.Input(texts).SendAt(at(3), "chain", "22")
		require.Empty(t, d.Output(out).Records())
		crash()
		d.Watermark(at(19))
		require.Equal(t, []string{"b=ring 1 @10"}, told(d.Output(out).Records()))
		crash()
		d.Input(texts).SendAt(at(20), "c", "20 15 99")
		d.Process() // not committed
		crash()
		require.Equal(t, []string{"b=ring 1 @10", "a=ring 1 @20", "b=ring 2 @20", "c=ring 1 @15", "c=ring 2 @20"}, told(d.Output(out).Records()))
		d.Watermark(at(26))
		crash()
		d.Watermark(at(26))
		require.Equal(t, []string{"chain=ring 1 @22", "chain=ring 2 @23", "chain=ring 3 @24", "a=ring 2 @25"}, told(d.Output(out).Records()[5:]))
		d.Watermark(at(98))
		crash()
		require.Len(t, d.Output(out).Records(), 9)
		d.Watermark(at(99))
		require.Equal(t, []string{"c=ring 3 @99"}, told(d.Output(out).Records()[9:]))
	}
}

// Wall timers fire when the clock has come to their time, once, also when it came there while the
// job was not running.
func TestWallTimers(t *testing.T) {
	out := topic.New[string, string]("out")
	app := stream.New("wall")
	app.Stream(texts).GroupByKey().Process(scripted[[]string, string]{alarms, rings}).As("alarm").To(out)
	d := streamtest.New(t, app)
	d.Input(texts).SendAt(at(1), "a", "wall10 wall20")
	d.Input(texts).SendAt(at(7), "b", "wall10 -wall10 wall15")
	d.Advance(9 * ms)
	require.Empty(t, d.Output(out).Records())
	d.Advance(ms)
	require.Equal(t, []string{"a=ring 1 wall @7"}, told(d.Output(out).Records()))
	d.Crash()
	d.Advance(30 * ms)
	require.Equal(t, []string{"a=ring 1 wall @7", "b=ring 1 wall @7", "a=ring 2 wall @7"}, told(d.Output(out).Records()))
	d.Crash()
	d.Advance(time.Hour)
	require.Len(t, d.Output(out).Records(), 3)
}

// A running job sleeps until a wall timer is due.
func TestWallTimersOfARunningJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := topic.New[string, int]("in"), topic.New[string, string]("out")
		app := stream.New("wall").Checkpoint(checkpoint.Every(time.Second))
		var fired []time.Duration
		begun := time.Now()
		p := &wallOnly{set: begun.Add(3 * time.Minute), fired: func() { fired = append(fired, time.Since(begun)) }}
		app.Stream(in).GroupByKey().Process(p).To(out)
		n := openNode(t, vfs.NewMem())
		job := n.start(t, app)
		send(t, n, in, "a")
		require.NoError(t, job.CatchUp(t.Context()))
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{3 * time.Minute}, fired)
		require.NoError(t, job.Stop(t.Context()))
		require.NoError(t, n.plane.Close())
	})
}

type wallOnly struct {
	set   time.Time
	fired func()
}

func (p *wallOnly) Process(c *stream.Context[string, struct{}, string], _ int) error {
	c.SetWallTimer(p.set)
	return nil
}

func (p *wallOnly) Timer(*stream.Context[string, struct{}, string], stream.Timer) error {
	p.fired()
	return nil
}

var (
	notes = state.NewKV[string, map[string]int]("notes")
	audit = topic.New[string, string]("audit")
)

// What a failed call has done does not count, whatever it has done: state, stores, timers, results,
// what it sent and gave to sides. Under Retry the next call begins where the first did.
func TestFailedCallLeavesNothing(t *testing.T) {
	for name, policy := range map[string]stream.ErrorPolicy{
		"skip": stream.Skip(), "retry": stream.Retry(2, stream.Skip()), "dead letter": stream.DeadLetter(deadTopic),
	} {
		t.Run(name, func(t *testing.T) {
			out, aside := topic.New[string, string]("out"), topic.New[int, string]("aside")
			app := stream.New("fails")
			side := app.Side[int, string]("side")
			type S = map[string]int
			work := func(c *stream.Context[string, S, string], v string) error {
				s := c.State()
				if *s == nil {
					*s = S{}
				}
				(*s)[v]++
				notes.Update(c, "n", func(m map[string]int, ok bool) map[string]int {
					if !ok {
						m = map[string]int{}
					}
					m[v]++
					return m
				})
				m, _ := notes.Get(c, "n")
				m["live"]++
				notes.Put(c, v, map[string]int{"was here": 1})
				notes.Delete(c, "gone by "+strings.TrimSuffix(v, "!"))
				c.Emit(fmt.Sprint(len(*s), len(m)))
				c.Send(audit, "to", v)
				side.Emit(c, len(v), v)
				c.SetTimer(c.Time().Add(100 * ms))
				switch v {
				case "panic!":
					c.Forget()
					panic("boom")
				case "fail!":
					return errors.New("boom")
				}
				return nil
			}
			p := scripted[S, string]{work, func(c *stream.Context[string, S, string], at stream.Timer) error {
				if s := c.State(); *s == nil {
					*s = S{}
				}
				(*c.State())["timer"]++
				c.Emit("timer")
				if c.Key() == "bad" {
					return errors.New("bad timer")
				}
				c.Forget()
				return nil
			}}
			app.Stream(texts).GroupByKey().Process(p, notes, audit, side).As("work").OnError(policy).To(out)
			app.Stream(topic.New[string, string]("ask")).GroupByKey().Process(stream.ProcessFunc[string, string, struct{}, string](
				func(*stream.Context[string, struct{}, string], string) error { return nil }))
			side.Stream().To(aside)
			d := streamtest.New(t, app)
			in := d.Input(texts)
			in.SendAt(at(1), "k", "gone by panic")
			in.SendAt(at(2), "k", "panic!")
			in.SendAt(at(3), "k", "fail!")
			in.SendAt(at(4), "k", "b")
			in.SendAt(at(5), "new", "fail!")
			in.SendAt(at(6), "bad", "c")
			d.Process()
			d.Crash()
			require.Equal(t, []string{"k=1 2 @1", "k=2 3 @4", "bad=1 4 @6"}, told(d.Output(out).Records()))
			require.Equal(t, []string{"to=gone by panic @1", "to=b @4", "to=c @6"}, told(d.Output(audit).Records()))
			require.Equal(t, []string{"gone by panic", "b", "c"}, values(d.Output(aside).Records()))
			d.Watermark(at(1000))
			require.Equal(t, []string{"k=timer @101", "k=timer @104"}, told(d.Output(out).Records()[3:]))
			var skipped, letters int64
			for _, task := range d.Status().Tasks {
				skipped += task.Skipped
				letters += task.DeadLetters
			}
			if name == "dead letter" {
				all := d.Output(deadTopic).Records()
				require.Len(t, all, 4)
				h := headersOf(all[3])
				require.Equal(t, []string{"event", "106", "bad"}, []string{h[stream.HeaderTimer], h[stream.HeaderTime], string(all[3].Key)})
				require.True(t, all[3].Deleted)
				require.NotContains(t, h, stream.HeaderTopic)
				require.EqualValues(t, 4, letters)
				require.Zero(t, skipped)
			} else {
				require.EqualValues(t, 4, skipped)
			}
		})
	}
}

// Context tells about the record; what is emitted, sent and given to sides has its time and headers.
func TestContext(t *testing.T) {
	in := topic.New[string, string]("in").Partitions(3)
	out, aside := topic.New[string, string]("out"), topic.New[string, string]("aside")
	app := stream.New("context")
	side := app.Side[string, string]("side")
	app.Stream(in).GroupBy(func(string) string { return "all" }).Process(stream.ProcessFunc[string, string, int, string](
		func(c *stream.Context[string, int, string], v string) error {
			w := "none"
			if !c.Watermark().IsZero() {
				w = fmt.Sprint(c.Watermark().UnixMilli())
			}
			if c.Context().Err() != nil || !c.Now().Equal(streamtest.Epoch) {
				return errors.New("wrong clock")
			}
			c.Emit(fmt.Sprint(c.Key(), " ", v, " ", c.Time().UnixMilli(), " ", w, " ", len(c.Headers())))
			c.Send(audit, "k", v)
			side.Emit(c, v, v)
			return nil
		}), audit, side).To(out)
	side.Stream().Filter(func(v string) bool { return v == "two" }).To(aside)
	d := streamtest.New(t, app)
	d.Input(in).SendRecord(topic.Record[string, string]{Key: "x", Value: "one", Time: at(5)})
	d.Watermark(at(3))
	d.Input(in).SendRecord(topic.Record[string, string]{Key: "x", Value: "two", Time: at(6), Headers: []topic.Header{{Key: "h", Value: []byte("v")}}})
	require.Equal(t, []string{"all one 5 none 0", "all two 6 3 1"}, values(d.Output(out).Records()))
	for _, r := range [][]topic.Record[string, string]{d.Output(out).Records()[1:], d.Output(audit).Records()[1:], d.Output(aside).Records()} {
		require.Len(t, r, 1)
		require.Equal(t, at(6), r[0].Time)
		require.Equal(t, []topic.Header{{Key: "h", Value: []byte("v")}}, r[0].Headers)
	}
}

// A state that nobody has changed is not kept, nor one that is forgotten.
func TestStateIsKeptUntilForget(t *testing.T) {
	out := topic.New[string, int]("out")
	app := stream.New("state")
	app.Stream(texts).GroupByKey().Process(stream.ProcessFunc[string, string, int, int](func(c *stream.Context[string, int, int], v string) error {
		switch v {
		case "add":
			*c.State()++
		case "forget":
			c.Forget()
		}
		c.Emit(*c.State())
		return nil
	})).To(out)
	d := streamtest.New(t, app)
	for _, v := range []string{"look", "add", "add", "look", "forget", "look", "add"} {
		d.Input(texts).Send("k", v)
	}
	require.Equal(t, []int{0, 1, 2, 2, 0, 0, 1}, values(d.Output(out).Records()))
}

// Mistakes are told with the way out: when the topology is built, or by the failure of the call.
func TestProcessFaults(t *testing.T) {
	type f = stream.ProcessFunc[string, string, int, string]
	nop := f(func(*stream.Context[string, int, string], string) error { return nil })
	other := stream.New("other")
	app := stream.New("faults")
	side, unused := app.Side[string, string]("side"), app.Side[string, string]("unused")
	unused.Stream().To(texts)
	g := app.Stream(topic.New[string, string]("in")).GroupByKey()
	g.Process(f(nil)).As("a")
	g.Process(nop, nil, topic.New[string, string]("bad/topic"), state.NewKV[string, int]("bad name"), state.NewKV[string, int]("timers"),
		state.NewKV[string, int]("twice"), state.NewKV[string, string]("twice"), state.NewKV[string, int]("short").TTL(time.Microsecond), side,
		other.Side[string, string]("foreign"), named{}).As("b")
	g.Process(nop, side).As("c")
	loop := app.Side[string, string]("loop")
	app.Stream(texts).Merge(loop.Stream()).GroupByKey().Process(nop, loop).As("d")
	err := app.Validate()
	for _, want := range []string{"not nil", "uses nil", "bad/topic", `"bad name"`, `"timers"`, `two stores named "twice"`, "TTL of 1µs", "one step that emits into it",
		`side "foreign" of another topology`, "uses a stream_test.named", "no step emits into the side", "feed itself"} {
		require.ErrorContains(t, err, want)
	}

	for want, call := range map[string]func(c *stream.Context[string, int, string]){
		"make it a Processor":       func(c *stream.Context[string, int, string]) { c.SetTimer(at(5)) },
		`"notes": give it`:          func(c *stream.Context[string, int, string]) { notes.Put(c, "a", nil) },
		`topic "audit", which`:      func(c *stream.Context[string, int, string]) { c.Send(audit, "a", "b") },
		`side "side", which`:        func(c *stream.Context[string, int, string]) { side.Emit(c, "a", "b") },
		"other types than those of": func(c *stream.Context[string, int, string]) { state.NewKV[int, int]("known").Get(c, 1) },
		"other types than before": func(c *stream.Context[string, int, string]) {
			c.Send(texts2, "a", "b")
			c.Send(topic.New[int, int]("texts2"), 1, 2)
		},
	} {
		app := stream.New("fails")
		app.Stream(texts).GroupByKey().Process(f(func(c *stream.Context[string, int, string], _ string) error {
			call(c)
			call(c)
			return nil
		}), state.NewKV[string, int]("known"), texts2)
		d := streamtest.New(t, app)
		d.Input(texts).Send("k", "v")
		require.ErrorContains(t, d.Failure(), want)
	}
}

var texts2 = topic.New[string, string]("texts2")

type named struct{}

func (named) Name() string { return "named" }

// processed is a pipeline of everything that Process has, whose output depends on event time only.
type processed struct{ partitions int }

var (
	seenValues = state.NewKV[string, int]("seen").TTL(50 * ms)
	sums       = state.NewKV[string, int]("sums")
	numbers    = topic.New[string, int]("numbers")
	results    = topic.New[string, string]("results")
)

type session struct {
	Count, Sum int
	End        time.Time
	Values     []int
}

type sessionizer struct{ side stream.Side[string, int] }

func (s sessionizer) Process(c *stream.Context[string, session, string], v int) error {
	if v%10 == 9 {
		return errors.New("a nine")
	}
	key := fmt.Sprint(c.Key(), v)
	if _, dup := seenValues.Get(c, key); dup {
		return nil
	}
	seenValues.Put(c, key, v)
	sums.Update(c, c.Key(), func(sum int, _ bool) int { return sum + v })
	st := c.State()
	if !st.End.IsZero() {
		c.CancelTimer(stream.Timer{At: st.End})
	}
	st.Count++
	st.Sum += v
	st.Values = append(st.Values, v)
	if end := c.Time().Add(20 * ms); end.After(st.End) {
		st.End = end
	}
	c.SetTimer(st.End)
	if v%7 == 0 {
		s.side.Emit(c, c.Key(), v)
	}
	return nil
}

func (s sessionizer) Timer(c *stream.Context[string, session, string], t stream.Timer) error {
	st := c.State()
	sum, _ := sums.Get(c, c.Key())
	c.Emit(fmt.Sprint(st.Count, " ", st.Sum, " ", st.Values, " until ", t.At.UnixMilli(), " in all ", sum))
	c.Forget()
	return nil
}

func (p processed) topology() *stream.Topology {
	app := stream.New("processed").StopAt(topic.End()).OnError(stream.DeadLetter(deadTopic))
	side := app.Side[string, int]("sevens")
	app.Stream(numbers.Partitions(p.partitions)).GroupByKey().Process(sessionizer{side}, seenValues, sums, side).As("sessions").To(results)
	side.Stream().GroupByKV(func(string, int) string { return "all" }).Count().As("count").ToStream().Filter(func(int64) bool { return false }).
		To(topic.New[string, int64]("none"))
	return app
}

// fill sends records whose keys have a session now and then, and duplicates.
func (p processed) fill(t *testing.T, n testNode, seed uint64, records int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	producer, err := topic.NewProducer(t.Context(), n, numbers.Partitions(p.partitions), topic.ProducerOptions{})
	require.NoError(t, err)
	now := make([]int64, 8)
	for range records {
		k := rng.IntN(len(now))
		now[k] += int64(rng.IntN(16))
		_, _, err := producer.SendRecord(t.Context(), topic.Record[string, int]{Key: fmt.Sprint("key", k), Value: rng.IntN(200), Time: at(now[k])})
		require.NoError(t, err)
	}
	require.NoError(t, producer.Close())
}

// output is what the pipeline has committed, by key.
func (p processed) output(t *testing.T, n testNode) map[string][]string {
	t.Helper()
	got := map[string][]string{}
	for r, err := range topic.ReadToEnd(context.Background(), n, results, topic.Start()) {
		require.NoError(t, err)
		got[r.Key] = append(got[r.Key], r.Value)
	}
	for r, err := range topic.ReadToEnd(context.Background(), n, deadTopic, topic.Start()) {
		require.NoError(t, err)
		got["dead"] = append(got["dead"], fmt.Sprint(string(r.Key), " ", headersOf(r)[stream.HeaderOffset]))
	}
	sort.Strings(got["dead"])
	return got
}

// run runs the pipeline in one goroutine, and tells whether it came to its end.
func (p processed) run(fs *vfs.Mem, every int) bool {
	o := checkpoint.PlaneOptions{FS: fs, SyncInterval: -1}
	o.Log.SegmentBytes, o.Log.MaxBatchBytes = 32<<10, 256<<10
	plane, err := checkpoint.Open("node", o)
	if err != nil {
		return false
	}
	defer plane.Close()
	job, err := stream.StartManual(context.Background(), stream.Env{Plane: plane, Backend: state.Memory(), StateDir: "state", StateMemory: 64 << 10}, p.topology())
	if err != nil {
		return false
	}
	defer job.Kill()
	for i := 1; !job.Ended(); i++ {
		if _, err := job.Step(); err != nil {
			return false
		}
		if i%every == 0 {
			job.Trigger()
		}
	}
	return true
}

// Whatever file operation a process dies at, its next run comes to the same results as one that
// ran through: state, timers, stores, sides and dead letters together.
func TestProcessStoppedAtEveryFileOperation(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	p := processed{partitions: 1}
	base := vfs.NewMem()
	n := openNode(t, base)
	p.fill(t, n, seed, 2000)
	require.NoError(t, n.plane.Close())
	whole := base.Kill()
	require.True(t, p.run(whole, 10))
	total := whole.Ops()
	n = openNode(t, whole)
	want := p.output(t, n)
	require.NoError(t, n.plane.Close())
	require.Greater(t, len(want["key0"]), 2)
	require.Greater(t, len(want["dead"]), 5)
	t.Logf("%d operations", total)
	step := 5 * int64(*everyOp)
	if testing.Short() {
		step *= 5
	}
	for stop := 1 + rng.Int64N(step); stop <= total; stop += step {
		fs := base.Kill()
		fs.StopAt(stop)
		p.run(fs, 10)
		fs = fs.Kill()
		require.True(t, p.run(fs, 15), "after a stop at operation %d", stop)
		n := openNode(t, fs.Kill())
		require.Equal(t, want, p.output(t, n), "after a stop at operation %d", stop)
		require.NoError(t, n.plane.Close())
	}
}

// The number of partitions and the times of checkpoints do not show in the results of a key.
func TestProcessDependsOnEventTimeOnly(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var want map[string][]string
	for _, every := range []int{2, 5, 1000} {
		p := processed{partitions: 1}
		fs := vfs.NewMem()
		n := openNode(t, fs)
		p.fill(t, n, seed, 1000)
		require.NoError(t, n.plane.Close())
		fs = fs.Kill()
		require.True(t, p.run(fs, every))
		n = openNode(t, fs.Kill())
		got := p.output(t, n)
		require.NoError(t, n.plane.Close())
		if want == nil {
			want = got
		}
		require.Equal(t, want, got)
		require.NotEmpty(t, slices.Collect(maps.Keys(got)))
	}
}
