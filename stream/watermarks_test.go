package stream_test

import (
	"encoding/binary"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// counted runs records through windows of 10 ms whose watermarks come about as declared, and
// crashes after each. It gives what has been counted in each window, by the start, and what was
// late.
func counted(t *testing.T, declare func(stream.Stream[string, int64]) stream.Stream[string, int64], values ...int64) (closed map[int64]int64, late []int64) {
	t.Helper()
	in := topic.New[string, int64]("in").EventTime(func(v int64) time.Time { return at(v) })
	out, lates := topic.New[window.Key[string], int64]("out"), topic.New[string, int64]("late")
	app := stream.New("counted").IdleAfter(-1)
	w := declare(app.Stream(in)).GroupByKey().Window(window.Tumbling(10 * ms))
	w.Count().To(out)
	w.Late().To(lates)
	d := streamtest.New(t, app)
	for _, v := range values {
		d.Input(in).Send("k", v)
		d.Checkpoint()
		d.Crash()
	}
	closed = map[int64]int64{}
	for _, r := range d.Output(out).Records() {
		closed[r.Key.Start.UnixMilli()] = r.Value
	}
	return closed, d.Output(lates).Values()
}

// thirds is a generator that believes every third record. Its state is how many it has seen.
type thirds struct {
	seen      uint64
	watermark int64
}

func (g *thirds) Observe(t int64) (int64, bool) {
	if g.seen++; g.seen%3 == 0 && t > g.watermark {
		g.watermark = t
		return t, true
	}
	return g.watermark, false
}
func (g *thirds) Watermark() int64            { return g.watermark }
func (g *thirds) AppendState(b []byte) []byte { return binary.BigEndian.AppendUint64(b, g.seen) }
func (g *thirds) LoadState(b []byte) ([]byte, error) {
	if len(b) < 8 {
		return nil, errors.New("too short")
	}
	g.seen = binary.BigEndian.Uint64(b)
	return b[8:], nil
}

// A source's watermarks come about as its strategy says, and survive crashes.
func TestWatermarksByStrategy(t *testing.T) {
	type counts = map[int64]int64
	by := func(s window.Strategy) func(stream.Stream[string, int64]) stream.Stream[string, int64] {
		return func(in stream.Stream[string, int64]) stream.Stream[string, int64] { return in.Watermarks(s) }
	}
	custom := window.Custom(func() window.Generator { return &thirds{watermark: window.Unknown} })
	punctuated := window.Punctuated(func(v int64) (time.Time, bool) { return at(v + 1), v%10 == 9 })
	for _, c := range []struct {
		name    string
		declare func(stream.Stream[string, int64]) stream.Stream[string, int64]
		values  []int64
		closed  counts
		late    []int64
	}{
		{"disorder", by(window.Disorder(5 * ms)), []int64{1, 14, 9, 15, 8, 24, 25}, counts{0: 2, 10: 2}, []int64{8}},
		{"ascending", by(window.Ascending()), []int64{1, 9, 10, 9, 20}, counts{0: 2, 10: 1}, []int64{9}},
		{"custom", by(custom), []int64{1, 50, 10, 9, 40, 20, 19}, counts{0: 1, 10: 1}, []int64{9, 19}},
		{"punctuated", func(in stream.Stream[string, int64]) stream.Stream[string, int64] { return in.WatermarksBy(punctuated) },
			[]int64{1, 25, 9, 8, 12, 19, 18}, counts{0: 2, 10: 2}, []int64{8, 18}},
		{"punctuated event time", func(in stream.Stream[string, int64]) stream.Stream[string, int64] {
			return in.EventTime(func(v int64) time.Time { return at(v) }).WatermarksBy(punctuated)
		}, []int64{1, 25, 9, 8, 12, 19, 18}, counts{0: 2, 10: 2}, []int64{8, 18}},
	} {
		t.Run(c.name, func(t *testing.T) {
			closed, late := counted(t, c.declare, c.values...)
			require.Equal(t, c.closed, closed)
			require.Equal(t, c.late, late)
		})
	}
}

// An event time far ahead of the clock does what the guard says, and nothing else to the others.
func TestFarFuture(t *testing.T) {
	far := streamtest.Epoch.Add(time.Hour)
	near := streamtest.Epoch.Add(time.Minute)
	for _, retimed := range []bool{false, true} {
		for _, policy := range []window.FuturePolicy{window.FutureLate, window.FutureClamp, window.FutureFail} {
			in := topic.New[string, int]("in")
			out, lates := topic.New[window.Key[string], int64]("out"), topic.New[string, int]("late")
			app := stream.New("future").IdleAfter(-1)
			s := app.Stream(in)
			times := map[int]time.Time{1: near.Add(-time.Second), 2: far, 3: near.Add(-time.Second), 4: near.Add(time.Second)}
			if retimed {
				s = s.EventTime(func(v int) time.Time { return times[v] })
			}
			s = s.Watermarks(window.Ascending().Guard(window.Guard{Ahead: time.Minute, Policy: policy}))
			if !retimed {
				s.OnError(stream.Skip())
			}
			w := s.GroupByKV(func(k string, _ int) string { return k }).Window(window.Tumbling(time.Second))
			w.Count().To(out)
			w.Late().To(lates)
			d := streamtest.New(t, app)
			for v := 1; v <= 3; v++ {
				d.Input(in).SendAt(times[v], "k", v)
			}
			if retimed && policy == window.FutureFail {
				require.ErrorIs(t, d.Failure(), window.ErrFarFuture)
				continue
			}
			d.Advance(2 * time.Second)
			d.Input(in).SendAt(times[4], "k", 4)
			counts := map[string]int64{}
			for _, r := range d.Output(out).Records() {
				counts[r.Key.Start.Format("04:05")] = r.Value
			}
			var farFuture, skipped int64
			for _, task := range d.Status().Tasks {
				farFuture, skipped = farFuture+task.FarFuture, skipped+task.Skipped
			}
			switch policy {
			case window.FutureLate:
				require.Equal(t, map[string]int64{"00:59": 2}, counts)
				require.Equal(t, []int{2}, d.Output(lates).Values())
				require.EqualValues(t, 1, farFuture)
			case window.FutureClamp: // to the very minute, so that 3 is late
				require.Equal(t, map[string]int64{"00:59": 1, "01:00": 1}, counts)
				require.Equal(t, []int{3}, d.Output(lates).Values())
				require.EqualValues(t, 1, farFuture)
			case window.FutureFail:
				require.Equal(t, map[string]int64{"00:59": 2}, counts)
				require.Empty(t, d.Output(lates).Values())
				require.EqualValues(t, 1, skipped)
			}
		}
	}
}

// A record far in the future is late for sessions, sliding windows, joins and deduplication, and
// does not hold back what comes behind it where inputs are read by event time.
func TestFarFutureIsLateEverywhere(t *testing.T) {
	left, right := topic.New[string, int]("left"), topic.New[string, int]("right")
	pairs, lates := topic.New[string, int]("pairs"), topic.New[string, int]("late")
	app := stream.New("everywhere").IdleAfter(-1)
	guarded := app.Stream(left).Watermarks(window.Ascending().Guard(window.Guard{Ahead: time.Minute}))
	joined := guarded.Join(app.Stream(right), window.Within(2*ms), func(a, b int) int { return a*100 + b }).As("joined")
	joined.To(pairs)
	late := guarded.LateFor(joined)
	g := guarded.GroupByKey()
	s := g.Session(window.Gap(time.Second))
	s.Count().As("sessions").To(topic.New[window.Key[string], int64]("sessions"))
	unique := g.Deduplicate(time.Second).As("unique")
	unique.To(topic.New[string, int]("unique"))
	late.Merge(s.Late(), g.LateFor(unique)).To(lates)
	g.Window(window.Sliding(time.Second)).Count().As("sliding").To(topic.New[window.Key[string], int64]("sliding"))
	d := streamtest.New(t, app)
	base := streamtest.Epoch
	for i := range 3 {
		when := base.Add(time.Duration(i) * 10 * ms)
		d.Input(left).SendAt(when, "k", i)
		d.Input(left).SendAt(base.Add(time.Hour), "k", 90+i)
		d.Input(right).SendAt(when.Add(ms), "k", i)
	}
	require.Equal(t, []int{0, 101, 202}, d.Output(pairs).Values())
	require.ElementsMatch(t, []int{90, 91, 92, 90, 91, 92, 90, 91, 92}, d.Output(lates).Values())
	require.Equal(t, []int{0}, d.Output(topic.New[string, int]("unique")).Values())
	var dropped int64
	for _, task := range d.Status().Tasks {
		dropped += task.Late
	}
	require.EqualValues(t, 3, dropped, "those of sliding windows, whose late records nobody reads")
}

// A fast partition waits for a slow one that it is aligned with, until that comes nearer or
// falls silent; how far each has come can be seen.
func TestAlignedSourcesWait(t *testing.T) {
	for _, joined := range []bool{false, true} {
		fast, slow := topic.New[string, int]("fast"), topic.New[string, int]("slow")
		app := stream.New("aligned").IdleAfter(time.Second)
		aligned := window.Ascending().Align(100 * ms)
		f, s := app.Stream(fast).Watermarks(aligned), app.Stream(slow).Watermarks(aligned)
		if joined {
			f.Join(s, window.Within(ms), func(a, _ int) int { return a }).As("joined").To(topic.New[string, int]("out"))
		} else {
			f.Merge(s).To(topic.New[string, int]("out"))
		}
		d := streamtest.New(t, app)
		d.Input(slow).SendAt(at(0), "k", 0)
		d.Process()
		for i := range 2000 {
			d.Input(fast).SendAt(at(int64(i)), "k", i)
		}
		inputs := func() (fast, slow stream.InputStatus) {
			for _, task := range d.Status().Tasks {
				for _, in := range task.Inputs {
					if in.Topic == "fast" {
						fast = in
					} else {
						slow = in
					}
				}
			}
			return fast, slow
		}
		check := func(fastAt, slowAt int64, waiting, idle bool) {
			t.Helper()
			f, s := inputs()
			require.Equal(t, stream.InputStatus{Topic: "fast", Watermark: at(fastAt), Waiting: waiting, Idle: idle && !waiting}, f)
			require.Equal(t, stream.InputStatus{Topic: "slow", Watermark: at(slowAt), Idle: idle}, s)
		}
		check(101, 0, true, false)
		d.Input(slow).SendAt(at(500), "k", 1)
		check(601, 500, true, false)
		d.Checkpoint()
		d.Crash()
		check(601, 500, true, false)
		d.Input(slow).SendAt(at(1000), "k", 1)
		check(1101, 1000, true, false)
		d.Advance(time.Second)
		d.Advance(time.Second)
		d.Advance(time.Second)
		check(1999, 1000, false, true)
	}
}

// With goroutines of their own, partitions of two topics wait for each other all the time, and all
// of them come to the end.
func TestAlignedSourcesComeToTheEnd(t *testing.T) {
	n := openNode(t, vfs.NewMem())
	const records = 4000
	app := stream.New("ends").StopAt(topic.End()).IdleAfter(-1)
	app.Checkpoint(checkpoint.Every(5 * time.Millisecond))
	aligned := window.Ascending().Align(3 * ms)
	var all []stream.Stream[string, int]
	for i, name := range []string{"one", "two"} {
		in := topic.New[string, int](name).Partitions(2)
		p, err := topic.NewProducer(t.Context(), n, in, topic.ProducerOptions{})
		require.NoError(t, err)
		for j := range records {
			require.NoError(t, p.QueueRecord(t.Context(), topic.Record[string, int]{Key: strconv.Itoa(j % 7), Time: at(int64(j * (1 + 9*i)))}, nil))
		}
		require.NoError(t, p.Close())
		all = append(all, app.Stream(in).Watermarks(aligned))
	}
	out := topic.New[string, int64]("out")
	all[0].Merge(all[1]).GroupByKV(func(string, int) string { return "all" }).Count().To(out)
	job := n.start(t, app)
	require.NoError(t, job.Wait())
	total := int64(0)
	for r, err := range topic.ReadToEnd(t.Context(), n, out, topic.Start()) {
		require.NoError(t, err)
		total = r.Value
	}
	require.EqualValues(t, 2*records, total)
	require.NoError(t, n.plane.Close())
}

// What cannot be is told, with the way out.
func TestWatermarkFaults(t *testing.T) {
	in := topic.New[string, int]("in")
	now := func(int) time.Time { return at(0) }
	for want, declare := range map[string]func(app *stream.Topology) stream.Stream[string, int]{
		"call it right behind one": func(app *stream.Topology) stream.Stream[string, int] {
			return app.Stream(in).Filter(func(int) bool { return true }).Watermarks(window.Ascending())
		},
		"must not be negative": func(app *stream.Topology) stream.Stream[string, int] {
			return app.Stream(in).Watermarks(window.Disorder(-1 * ms))
		},
		"call one of them": func(app *stream.Topology) stream.Stream[string, int] {
			return app.Stream(in).Disorder(ms).Watermarks(window.Ascending())
		},
		"Disorder and Watermarks both": func(app *stream.Topology) stream.Stream[string, int] {
			return app.Stream(in).Watermarks(window.Ascending()).Disorder(ms)
		},
		"declare the event time with the topic": func(app *stream.Topology) stream.Stream[string, int] {
			return app.Stream(in).EventTime(now).Watermarks(window.Ascending().Align(ms))
		},
		"the function that tells the watermark": func(app *stream.Topology) stream.Stream[string, int] {
			return app.Stream(in).WatermarksBy(window.Punctuated[int](nil))
		},
	} {
		app := stream.New("faults")
		declare(app).To(topic.New[string, int]("out"))
		require.ErrorContains(t, app.Validate(), want)
	}
}
