package stream_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
)

// listing emits all rules, the one asked for, and how many records the key has had.
type listing struct {
	rules stream.Broadcast[string, []string]
}

func (l listing) Process(ctx *stream.Context[string, int, string], v string) error {
	var all []string
	for k, rule := range l.rules.All(ctx) {
		all = append(all, k+strings.Join(rule, ""))
	}
	one, ok := l.rules.Get(ctx, v)
	*ctx.State()++
	ctx.Emit(fmt.Sprint(*ctx.State(), strings.Join(all, ","), " ", one, ok))
	ctx.SetTimer(ctx.Time().Add(time.Second))
	return nil
}

func (l listing) Timer(ctx *stream.Context[string, int, string], t stream.Timer) error {
	_, ok := l.rules.Get(ctx, "r1")
	ctx.Emit(fmt.Sprint("timer ", ok))
	return nil
}

// A broadcast is in every task, before what is newer in event time or as new; it holds no time back.
func TestBroadcastGoesToAllTasks(t *testing.T) {
	for _, shuffled := range []bool{false, true} {
		in, changes := topic.New[string, string]("in").Partitions(3), topic.New[string, []string]("rules").Partitions(2)
		out := topic.New[string, string]("out")
		app := stream.New("broadcast").IdleAfter(-1)
		rules := app.Stream(changes).Broadcast("rules")
		s := app.Stream(in)
		if shuffled {
			s = s.KeyByKV(func(k, _ string) string { return k })
		}
		s.GroupByKey().Process(listing{rules}, rules).As("lists").To(out)
		require.Contains(t, app.String(), "broadcast")
		d := streamtest.New(t, app)
		for i := range 6 { // sent before the rules, and yet after them
			d.Input(in).SendAt(at(int64(20+i)), fmt.Sprint("k", i), "r2")
		}
		d.Input(changes).SendAt(at(10), "r1", []string{"a"})
		d.Input(changes).SendAt(at(20), "r2", []string{"b", "c"})
		got := d.Output(out).Records()
		require.Len(t, got, 6)
		for _, r := range got {
			require.Equal(t, "1r1a,r2bc [b c] true", r.Value)
		}
		d.Crash()
		d.Input(changes).SendRecord(topic.Record[string, []string]{Key: "r1", Deleted: true, Time: at(30)})
		d.Input(changes).SendRecord(topic.Record[string, []string]{NoKey: true, Value: []string{"x"}, Time: at(30)})
		d.Process()
		d.Crash()
		for i := range 6 {
			d.Input(in).SendAt(at(int64(40+i)), fmt.Sprint("k", i), "r1")
		}
		for _, r := range d.Output(out).Records()[6:] {
			require.Equal(t, "2r2bc [] false", r.Value)
		}
		d.Watermark(at(1030))
		timers := 0
		for _, r := range d.Output(out).Records() {
			if r.Value == "timer false" {
				timers++
			}
		}
		require.Equal(t, 6, timers, "the rules' partitions say nothing of time")
	}
}

// Random rules and records, checkpoints and crashes: each record sees the rules that were
// there when it came, and is handled once.
func TestRandomBroadcasts(t *testing.T) {
	for i := range rounds(2, 5) {
		seed := uint64(time.Now().UnixNano()) + uint64(i)
		rng := rand.New(rand.NewPCG(seed, 1))
		in, changes := topic.New[string, int]("in").Partitions(1+rng.IntN(3)), topic.New[string, int]("rules").Partitions(1+rng.IntN(3))
		out := topic.New[string, string]("out")
		app := stream.New("random")
		rules := app.Stream(changes).Map(func(v int) int { return 2 * v }).Broadcast("rules")
		seen := state.NewKV[string, int]("seen")
		app.Stream(in).GroupByKey().Process(stream.ProcessFunc[string, int, struct{}, string](func(ctx *stream.Context[string, struct{}, string], v int) error {
			n, _ := seen.Get(ctx, ctx.Key())
			seen.Put(ctx, ctx.Key(), n+1)
			all := map[string]int{}
			maps.Insert(all, rules.All(ctx))
			ctx.Emit(fmt.Sprint(v, n, all))
			return nil
		}), rules, seen).To(out)
		d := streamtest.New(t, app)
		have, handled := map[string]int{}, map[string]int{}
		var want []string
		for i := range 120 {
			switch k := fmt.Sprint("k", rng.IntN(6)); rng.IntN(4) {
			case 0:
				have[k] = 2 * i
				d.Input(changes).SendAt(at(int64(i)), k, i)
				d.Process()
			case 1:
				delete(have, k)
				d.Input(changes).SendRecord(topic.Record[string, int]{Key: k, Deleted: true, Time: at(int64(i))})
				d.Process()
			default:
				want = append(want, fmt.Sprintf("%s=%s @%d", k, fmt.Sprint(i, handled[k], have), i))
				handled[k]++
				d.Input(in).SendAt(at(int64(i)), k, i)
			}
			switch rng.IntN(8) { // times only grow: what is read again comes in the same order
			case 0:
				d.Checkpoint()
			case 1:
				d.Process()
			case 2:
				d.Process()
				d.Crash()
			}
		}
		got := changed(d.Output(out).Records())
		slices.Sort(got)
		slices.Sort(want)
		require.Equal(t, want, got, "seed %d", seed)
	}
}

// A broadcast that cannot be is found before anything runs, one that was not given when it is read.
func TestBroadcastFaults(t *testing.T) {
	in := topic.New[string, string]("in")
	app := stream.New("faults")
	elsewhere := stream.New("other").Stream(topic.New[string, []string]("rules")).Broadcast("rules")
	app.Stream(in).GroupByKey().Process(listing{elsewhere}, elsewhere)
	require.ErrorContains(t, app.Validate(), `uses the broadcast "rules" of another topology`)

	app = stream.New("names")
	rules := app.Stream(topic.New[string, []string]("rules")).Broadcast("rules")
	seen := state.NewKV[string, int]("rules")
	app.Stream(in).GroupByKey().Process(listing{rules}, rules, seen)
	require.ErrorContains(t, app.Validate(), `uses two stores named "rules"`)

	app = stream.New("missing")
	rules = app.Stream(topic.New[string, []string]("rules")).Broadcast("rules")
	app.Stream(in).GroupByKey().Process(listing{rules}).To(topic.New[string, string]("out"))
	other := stream.ProcessFunc[string, string, struct{}, string](func(*stream.Context[string, struct{}, string], string) error { return nil })
	app.Stream(in).GroupByKey().Process(other, rules).As("other")
	d := streamtest.New(t, app)
	d.Input(in).SendAt(at(1), "k", "r1")
	require.ErrorContains(t, d.Failure(), "add it to the call of Process")
}

// rulesOf is a pipeline of records that meet rules by numbers, which come from records with other
// keys, so that several partitions have some of one rule.
func rulesOf(in, changes topic.Topic[string, int], out topic.Topic[string, string]) *stream.Topology {
	app := stream.New("agree").IdleAfter(-1)
	rules := app.Stream(changes).KeyBy(func(v int) int { return v % 3 }).Broadcast("rules")
	app.Stream(in).GroupByKey().Process(stream.ProcessFunc[string, int, struct{}, string](func(ctx *stream.Context[string, struct{}, string], _ int) error {
		all := map[int]int{}
		maps.Insert(all, rules.All(ctx))
		ctx.Emit(fmt.Sprint(all))
		return nil
	}), rules).As("ruled").To(out)
	return app
}

// Whatever task works when, and in whatever order partitions are read, all tasks go on from a
// checkpoint with the same rules, also where several partitions have records of one rule.
func TestAllTasksHaveTheSameRules(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(rounds(4, 20)) {
		rng := rand.New(rand.NewPCG(seed+i, 1))
		in, changes := topic.New[string, int]("in").Partitions(3), topic.New[string, int]("changes").Partitions(3)
		out := topic.New[string, string]("out")
		n := openNode(t, vfs.NewMem())
		job, err := stream.StartManual(t.Context(), stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state", Pick: rng.IntN}, rulesOf(in, changes, out))
		require.NoError(t, err)
		p, err := topic.NewProducer(t.Context(), n, changes, topic.ProducerOptions{})
		require.NoError(t, err)
		for c := range 30 {
			r := topic.Record[string, int]{Key: fmt.Sprint("c", rng.IntN(9)), Value: c, Time: at(int64(rng.IntN(20)))}
			_, _, err := p.SendRecord(t.Context(), r)
			require.NoError(t, err)
			for range rng.IntN(8) {
				_, err := job.Step()
				require.NoError(t, err)
			}
		}
		require.NoError(t, p.Close())
		require.NoError(t, job.Settle())
		p, err = topic.NewProducer(t.Context(), n, in, topic.ProducerOptions{})
		require.NoError(t, err)
		for k := range 9 {
			_, _, err := p.SendRecord(t.Context(), topic.Record[string, int]{Key: fmt.Sprint("k", k), Time: at(100)})
			require.NoError(t, err)
		}
		require.NoError(t, p.Close())
		require.NoError(t, job.Settle())
		job.Trigger()
		require.NoError(t, job.Settle())
		got := map[string]bool{}
		for r, err := range topic.ReadToEnd(t.Context(), n, out, topic.Start()) {
			require.NoError(t, err)
			got[r.Value] = true
		}
		require.Len(t, got, 1, "seed %d", seed+i)
		job.Kill()
		require.NoError(t, n.plane.Close())
	}
}

// Where records and rules are in order, what a record finds does not depend on where barriers are,
// nor on crashes behind them: it is what was there at its time.
func TestBroadcastsAcrossBarriers(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(rounds(2, 8)) {
		rng := rand.New(rand.NewPCG(seed+i, 1))
		in, changes := topic.New[string, int]("in").Partitions(1+rng.IntN(3)), topic.New[string, int]("changes").Partitions(1+rng.IntN(3))
		out := topic.New[string, string]("out")
		fs := vfs.NewMem()
		n := openNode(t, fs)
		have, want := map[int]int{}, []string{}
		inputs, err := topic.NewProducer(t.Context(), n, in, topic.ProducerOptions{})
		require.NoError(t, err)
		rules, err := topic.NewProducer(t.Context(), n, changes, topic.ProducerOptions{})
		require.NoError(t, err)
		for c := range 400 {
			r := topic.Record[string, int]{Key: fmt.Sprint("k", rng.IntN(9)), Value: c, Time: at(int64(c))}
			if rng.IntN(2) == 0 {
				_, _, err = rules.SendRecord(t.Context(), r)
				have[c%3] = c
			} else {
				_, _, err = inputs.SendRecord(t.Context(), r)
				want = append(want, fmt.Sprint(c, " ", have))
			}
			require.NoError(t, err)
		}
		require.NoError(t, inputs.Close())
		require.NoError(t, rules.Close())
		var job *stream.Manual
		start := func() {
			job, err = stream.StartManual(t.Context(), stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state", Pick: rng.IntN}, rulesOf(in, changes, out))
			require.NoError(t, err)
		}
		start()
		for range 16 {
			for range rng.IntN(30) {
				_, err := job.Step()
				require.NoError(t, err)
			}
			switch rng.IntN(4) {
			case 0:
				image := fs.Kill()
				job.Kill()
				_ = n.plane.Close()
				fs = image
				n = openNode(t, fs)
				start()
			default:
				job.Trigger()
			}
		}
		require.NoError(t, job.Settle())
		job.Trigger()
		require.NoError(t, job.Settle())
		var got []string
		for r, err := range topic.ReadToEnd(t.Context(), n, out, topic.Start()) {
			require.NoError(t, err)
			got = append(got, fmt.Sprint(r.Time.UnixMilli(), " ", r.Value))
		}
		require.ElementsMatch(t, want, got, "seed %d", seed+i)
		job.Kill()
		require.NoError(t, n.plane.Close())
	}
}
