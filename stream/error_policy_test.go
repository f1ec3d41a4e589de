package stream_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

var (
	errThirteen = errors.New("thirteen")
	deadTopic   = topic.New[[]byte, []byte]("dead")
)

// guardedSteps are pipelines each of whose first named step "step" panics or fails for 13.
func guardedSteps(in topic.Topic[string, int], out topic.Topic[string, int]) map[string]func(app *stream.Topology, p stream.ErrorPolicy) {
	boom := func(v int) int {
		if v == 13 {
			panic(errThirteen)
		}
		return v
	}
	sum := func(a, v int) int { return a + boom(v) }
	return map[string]func(app *stream.Topology, p stream.ErrorPolicy){
		"filter": func(app *stream.Topology, p stream.ErrorPolicy) {
			app.Stream(in).Filter(func(v int) bool { return boom(v) > 0 }).As("step").OnError(p).To(out)
		},
		"map": func(app *stream.Topology, p stream.ErrorPolicy) {
			app.Stream(in).Map(boom).As("step").OnError(p).To(out)
		},
		"try map": func(app *stream.Topology, p stream.ErrorPolicy) {
			app.Stream(in).TryMap(func(v int) (int, error) {
				if v == 13 {
					return 0, errThirteen
				}
				return v, nil
			}).As("step").OnError(p).To(out)
		},
		"map async": func(app *stream.Topology, p stream.ErrorPolicy) {
			app.Stream(in).MapAsync(stream.Async{}, func(_ context.Context, v int) (int, error) { return boom(v), nil }).As("step").OnError(p).To(out)
		},
		"flat map": func(app *stream.Topology, p stream.ErrorPolicy) {
			app.Stream(in).FlatMap(func(v int) iter.Seq[int] {
				return func(yield func(int) bool) { _ = v == 13 && yield(-1) && yield(boom(v)) || yield(v) }
			}).As("step").OnError(p).To(out)
		},
		"key by": func(app *stream.Topology, p stream.ErrorPolicy) {
			app.Stream(in).KeyBy(func(v int) string { return strconv.Itoa(boom(v)) }).As("step").OnError(p).To(out)
		},
		"group by": func(app *stream.Topology, p stream.ErrorPolicy) {
			app.Stream(in).GroupBy(func(v int) string { return strconv.Itoa(boom(v)) }).OnError(p).
				Reduce(func(a, b int) int { return a + b }).To(out)
		},
		"aggregate": func(app *stream.Topology, p stream.ErrorPolicy) {
			app.Stream(in).GroupByKey().Aggregate(sum).As("step").OnError(p).To(out)
		},
		"window": func(app *stream.Topology, p stream.ErrorPolicy) {
			app.Stream(in).GroupByKey().Window(window.Tumbling(time.Hour)).Aggregate(sum).As("step").OnError(p).ToStream().
				KeyByKV(func(k window.Key[string], _ int) string { return k.Key }).To(out)
		},
		"join table": func(app *stream.Topology, p stream.ErrorPolicy) {
			app.Stream(in).LeftJoinTable(app.Table(topic.New[string, int]("rows")), func(v, _ int, _ bool) int { return boom(v) }).As("step").OnError(p).To(out)
		},
		"join global": func(app *stream.Topology, p stream.ErrorPolicy) {
			app.Stream(in).LeftJoinGlobal(app.GlobalTable(topic.New[int, int]("all")), boom, func(v, _ int, _ bool) int { return v }).As("step").OnError(p).To(out)
		},
		"split": func(app *stream.Topology, p stream.ErrorPolicy) {
			yes, no := app.OnError(p).Stream(in).Split(func(v int) bool { return boom(v) > 2 })
			yes.Merge(no).To(out)
		},
		"source": func(app *stream.Topology, p stream.ErrorPolicy) {
			app.Stream(in.ValueCodec(codec.Func(codec.Int.Append, func(b []byte) (int, error) {
				v, err := codec.Int.Decode(b)
				if v == 13 {
					err = errThirteen
				}
				return v, err
			}))).As("step").OnError(p).To(out)
		},
	}
}

// sum adds up the values.
func sum(records []topic.Record[string, int]) (n int) {
	newest := map[string]int{}
	for _, r := range records {
		newest[r.Key] = r.Value
	}
	for v := range maps.Values(newest) {
		n += v
	}
	return n
}

// A record for which a function fails is passed over: whatever the operator, nothing of it
// counts, and all others do.
func TestSkip(t *testing.T) {
	in, out := topic.New[string, int]("in").ValueCodec(codec.Int), topic.New[string, int]("out").ValueCodec(codec.Int)
	for name, build := range guardedSteps(in, out) {
		t.Run(name, func(t *testing.T) {
			app := stream.New("skips")
			build(app, stream.Skip())
			d := streamtest.New(t, app)
			for i, v := range []int{13, 1, 13, 20, 300} {
				d.Input(in).SendAt(at(int64(i)), fmt.Sprint(i), v)
			}
			d.Watermark(at(time.Hour.Milliseconds()))
			require.Equal(t, 321, sum(d.Output(out).Records()))
			var skipped int64
			for _, task := range d.Status().Tasks {
				skipped += task.Skipped
				require.Zero(t, task.DeadLetters)
			}
			require.EqualValues(t, 2, skipped)
		})
	}
}

// headersOf are headers as a map.
func headersOf[K, V any](r topic.Record[K, V]) map[string]string {
	m := map[string]string{}
	for _, h := range r.Headers {
		m[h.Key] = string(h.Value)
	}
	return m
}

// A dead letter has the record as the step got it and tells what happened and where; it is
// written once, whatever crashes.
func TestDeadLetter(t *testing.T) {
	in, out := topic.New[string, int]("in").ValueCodec(codec.Int), topic.New[string, int]("out").ValueCodec(codec.Int)
	for name, build := range guardedSteps(in, out) {
		t.Run(name, func(t *testing.T) {
			app := stream.New("letters")
			build(app, stream.DeadLetter(deadTopic))
			d := streamtest.New(t, app)
			d.Input(in).SendAt(at(5), "a", 1)
			d.Input(in).SendRecord(topic.Record[string, int]{Key: "b", Value: 13, Time: at(7), Headers: []topic.Header{{Key: "trace", Value: []byte("x")}}})
			d.Input(in).SendAt(at(8), "c", 20)
			d.Process()
			d.Crash()
			letters := d.Output(deadTopic).Records()
			require.Len(t, letters, 1)
			d.Crash()
			require.Len(t, d.Output(deadTopic).Records(), 1)
			d.Watermark(at(time.Hour.Milliseconds()))
			require.Equal(t, 21, sum(d.Output(out).Records()))
			require.Equal(t, "b", string(letters[0].Key))
			v, err := codec.Int.Decode(letters[0].Value)
			require.NoError(t, err)
			require.Equal(t, 13, v)
			h := headersOf(letters[0])
			require.Contains(t, h[stream.HeaderCause], "thirteen")
			delete(h, stream.HeaderCause)
			step := h[stream.HeaderStep]
			require.NotEmpty(t, step)
			require.Equal(t, map[string]string{"trace": "x", stream.HeaderJob: "letters", stream.HeaderStep: step, stream.HeaderTime: "7",
				stream.HeaderTopic: "in", stream.HeaderPartition: "0", stream.HeaderOffset: "1"}, h)
		})
	}
}

// Retry calls again, with waits that double; what a failed call of a fold has done to a map
// is not there at the next.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := topic.New[string, int]("in"), topic.New[string, map[string]int]("out")
		begun := time.Now()
		var calls []time.Duration
		app := stream.New("retries").Checkpoint(checkpoint.Every(time.Millisecond))
		app.OnError(stream.Retry(3, stream.Fail()).Backoff(time.Second, 3*time.Second))
		app.Stream(in).GroupByKey().Aggregate(func(a map[string]int, v int) map[string]int {
			calls = append(calls, time.Since(begun).Truncate(time.Second))
			if a == nil {
				a = map[string]int{}
			}
			a[fmt.Sprint("call ", len(calls))]++
			if len(calls) > 1 && len(calls) < 5 {
				panic("not yet")
			}
			return a
		}).To(out)
		n := openNode(t, vfs.NewMem())
		job := n.start(t, app)
		send(t, n, in, "k", "k")
		require.NoError(t, job.CatchUp(t.Context()))
		require.Equal(t, []time.Duration{0, 0, time.Second, 3 * time.Second, 6 * time.Second}, calls)
		var last map[string]int
		for r, err := range topic.ReadToEnd(t.Context(), n, out, topic.Start()) {
			require.NoError(t, err)
			last = r.Value
		}
		require.Equal(t, map[string]int{"call 1": 1, "call 5": 1}, last)
		require.NoError(t, job.Stop(t.Context()))
		require.NoError(t, n.plane.Close())
	})
}

// A job that stops while a record waits to be tried again does not wait for it.
func TestStopDuringRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := topic.New[string, int]("in"), topic.New[string, int]("out")
		app := stream.New("stops")
		app.OnError(stream.Retry(1000, stream.Skip()).Backoff(time.Hour, time.Hour))
		app.Stream(in).TryMap(func(int) (int, error) { return 0, errThirteen }).To(out)
		n := openNode(t, vfs.NewMem())
		job := n.start(t, app)
		send(t, n, in, "k")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, job.Stop(ctx))
		require.EqualValues(t, 1, job.Lag(), "the record is met again")
		require.NoError(t, n.plane.Close())
	})
}

// After a fix dead letters go through the same step again, with the headers, the time and
// the place they had; each once, and one that fails again is a new letter.
func TestReplay(t *testing.T) {
	in, out := topic.New[string, int]("in").ValueCodec(codec.Int), topic.New[string, int]("out").ValueCodec(codec.Int)
	bad := map[int]bool{13: true, 14: true}
	build := func() *stream.Topology {
		app := stream.New("replays").OnError(stream.DeadLetter(deadTopic))
		source := app.Stream(in.ValueCodec(codec.Func(codec.Int.Append, func(b []byte) (int, error) {
			v, err := codec.Int.Decode(b)
			if v == 99 && bad[99] {
				err = errThirteen
			}
			return v, err
		}))).As("incoming")
		s := source.Merge(app.Replay[string, int](deadTopic, "incoming"), app.Replay[string, int](deadTopic, "step"))
		s.TryMap(func(v int) (int, error) {
			if bad[v] {
				return 0, errThirteen
			}
			return v * 10, nil
		}).As("step").To(out)
		return app
	}
	bad[99] = true
	d := streamtest.New(t, build())
	for i, v := range []int{1, 13, 14, 99, 2} {
		d.Input(in).SendRecord(topic.Record[string, int]{Key: fmt.Sprint(i), Value: v, Time: at(int64(i)), Headers: []topic.Header{{Key: "i", Value: fmt.Append(nil, i)}}})
	}
	require.Len(t, d.Output(out).Records(), 2)
	require.Len(t, d.Output(deadTopic).Records(), 3)
	d.Crash()
	require.Len(t, d.Output(out).Records(), 2, "nothing is mended")
	require.Len(t, d.Output(deadTopic).Records(), 6)
	delete(bad, 13)
	delete(bad, 99)
	d.Redeploy(build())
	records := d.Output(out).Records()
	require.ElementsMatch(t, []int{10, 20, 130, 990}, values(records))
	require.Len(t, d.Output(deadTopic).Records(), 7)
	for _, r := range records {
		require.Equal(t, at(map[string]int64{"0": 0, "1": 1, "3": 3, "4": 4}[r.Key]), r.Time)
		require.Equal(t, map[string]string{"i": r.Key}, headersOf(r))
	}
	again := headersOf(d.Output(deadTopic).Records()[6])
	require.Equal(t, []string{"step", "in", "2", "2"}, []string{again[stream.HeaderStep], again[stream.HeaderTopic], again[stream.HeaderOffset], again["i"]})
	delete(bad, 14)
	for range 2 {
		d.Crash()
		require.ElementsMatch(t, []int{10, 20, 130, 990, 140}, values(d.Output(out).Records()))
		require.Len(t, d.Output(deadTopic).Records(), 7)
	}
}

// Policies that make no sense are told where they are declared.
func TestPolicyFaults(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[string, int]("out")
	app := stream.New("faults")
	app.Stream(in).Map(func(v int) int { return v }).OnError(stream.Retry(0, stream.Fail())).
		Map(func(v int) int { return v }).OnError(stream.Skip().Backoff(1, 2)).
		Map(func(v int) int { return v }).OnError(stream.Retry(1, stream.Retry(1, stream.Skip()))).
		Map(func(v int) int { return v }).OnError(stream.DeadLetter(topic.New[[]byte, []byte]("bad/name"))).
		Map(func(v int) func() { return nil }).
		Map(func(func()) int { return 0 }).OnError(stream.DeadLetter(deadTopic)).
		Merge(app.Stream(in)).OnError(stream.Skip()).To(out)
	err := app.Validate()
	for _, want := range []string{"Retry(0)", "Backoff sets the waits", "Retry of a Retry", "bad/name", "no codec for dead letters", "does not apply to merge"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "feed itself")
}

// A record of which EventTime cannot tell the time is one for the policy, and moves no watermark.
func TestEventTimesThatFail(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[window.Key[string], int64]("out")
	app := stream.New("times").IdleAfter(-1)
	app.Stream(in).EventTime(func(v int) time.Time { return at(int64(boom(v))) }).As("timed").OnError(stream.DeadLetter(deadTopic)).
		GroupByKey().Window(window.Tumbling(10 * ms)).Count().To(out)
	d := streamtest.New(t, app)
	for i, v := range []int{1, 13, 2, 9} {
		d.Input(in).SendAt(at(int64(1000+i)), "k", v)
	}
	require.Empty(t, d.Output(out).Records())
	d.Crash()
	d.Input(in).SendAt(at(2000), "k", 20)
	require.Equal(t, []int64{3}, values(d.Output(out).Records()))
	require.Equal(t, []string{"timed k 13 <nil>"}, lettersOf(d))
	require.Equal(t, "1001", headersOf(d.Output(deadTopic).Records()[0])[stream.HeaderTime])
}
