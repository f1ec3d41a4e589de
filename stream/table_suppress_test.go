package stream_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// Suppress passes on each row once, with its newest value, when the watermark has come to
// its first change and the time, across crashes. One that came and went is passed over.
func TestSuppressByTime(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[string, int]("out")
	sums := topic.New[string, int]("sums")
	app := stream.New("suppress")
	held := app.Table(in).Suppress(100 * ms).As("held")
	held.To(out)
	add, sub := func(a, b int) int { return a + b }, func(a, b int) int { return a - b }
	held.GroupBy(func(int) string { return "all" }).Emit(window.OnUpdate).Reduce(add, sub).As("sums").To(sums)
	d := streamtest.New(t, app)
	s := newSteps(t, d, in)
	s.put(10, "b", 1)
	s.put(10, "a", 2)
	s.put(40, "b", 3)
	s.put(50, "gone", 1)
	s.delete(60, "gone")
	d.Watermark(at(109))
	s.expect(out)
	d.Crash()
	s.put(110, "b", 4) // its watermark comes first
	s.expect(out, "a=2 @10", "b=3 @40")
	s.expect(sums, "all=2 @10", "all=5 @40")
	d.Crash()
	d.Watermark(at(160))
	s.delete(161, "a")
	d.Watermark(at(209))
	s.expect(out)
	d.Crash()
	d.Watermark(at(210))
	s.expect(out, "b=4 @110")
	s.put(90, "late", 9) // what is due already goes at once
	s.expect(out, "late=9 @90")
	d.Watermark(at(261))
	s.expect(out, "a=nil @161")
	s.expect(sums, "all=6 @110", "all=15 @110", "all=13 @161")
}

// Held back until their windows close, updates come to what is emitted on close.
func TestSuppressUntilTheWindowCloses(t *testing.T) {
	for i := range rounds(2, 8) {
		seed := uint64(time.Now().UnixNano()) + uint64(i)
		rng := rand.New(rand.NewPCG(seed, 1))
		in := topic.New[string, int]("in")
		closing, held := topic.New[window.Key[string], int64]("closing"), topic.New[window.Key[string], int64]("held")
		app := stream.New("until").Disorder(20 * ms)
		w := app.Stream(in).GroupByKey().Window(window.Hopping(30*ms, 10*ms).Grace(5 * ms))
		w.Count().As("closing").To(closing)
		w.Emit(window.OnUpdate).Count().As("updating").Filter(func(n int64) bool { return n > 0 }).
			SuppressBy(stream.HoldUntilClose()).As("held").To(held)
		d := streamtest.New(t, app)
		for i := range 150 {
			d.Input(in).SendAt(at(int64(i+rng.IntN(40))), fmt.Sprint("k", rng.IntN(4)), 1)
			switch rng.IntN(15) {
			case 0:
				d.Checkpoint()
			case 1:
				d.Process()
				d.Crash()
			}
		}
		want, got := counts(d.Output(closing).Records()), counts(d.Output(held).Records())
		require.Greater(t, len(want), 20)
		require.Equal(t, want, got, "seed %d", seed)
		d.Watermark(at(1000))
		require.Equal(t, counts(d.Output(closing).Records()), counts(d.Output(held).Records()))
	}
}

// A bound lets go early what is due first, or fails the job, and counts on after a crash.
func TestSuppressIsBounded(t *testing.T) {
	in, out := topic.New[string, string]("in"), topic.New[string, string]("out")
	for name, by := range map[string]stream.Suppression{
		"rows":  stream.HoldFor(time.Hour).MaxRows(2),
		"bytes": stream.HoldFor(time.Hour).MaxBytes(40),
	} {
		t.Run(name, func(t *testing.T) {
			app := stream.New("bounded")
			app.Table(in).SuppressBy(by).To(out)
			d := streamtest.New(t, app)
			s := newSteps(t, d, in)
			s.put(10, "a", "0123456789")
			s.put(10, "b", "0123456789")
			s.put(12, "b", "9876543210")
			s.expect(out)
			d.Crash()
			s.put(13, "c", "0123456789")
			s.expect(out, "a=0123456789 @10")
			s.put(14, "d", "0123456789")
			s.expect(out, "b=9876543210 @12")
			d.Watermark(at(14 + time.Hour.Milliseconds()))
			s.expect(out, "c=0123456789 @13", "d=0123456789 @14")

			app = stream.New("failing")
			app.Table(in).SuppressBy(by.OrFail()).To(out)
			d = streamtest.New(t, app)
			for _, k := range []string{"a", "b", "c"} {
				d.Input(in).SendAt(at(10), k, "0123456789")
			}
			var f *stream.Failure
			require.True(t, errors.As(d.Failure(), &f))
			require.Contains(t, f.Error(), "raise MaxRows or MaxBytes")
			require.Equal(t, "in-suppress", f.Step)
		})
	}
}

// Whatever the time and the rhythm of crashes, in the end the rows that were let go are
// those of the table.
func TestSuppressLosesNothing(t *testing.T) {
	for i := range rounds(2, 8) {
		seed := uint64(time.Now().UnixNano()) + uint64(i)
		rng := rand.New(rand.NewPCG(seed, 1))
		in, out := topic.New[string, int]("in").Partitions(2), topic.New[string, int]("out")
		counted := topic.New[string, int64]("counted")
		app := stream.New("loses").Disorder(30 * ms).IdleAfter(-1)
		by := stream.HoldFor(time.Duration(1+rng.IntN(40)) * ms)
		if rng.IntN(2) == 0 {
			by = by.MaxRows(int64(1 + rng.IntN(5)))
		}
		held := app.Table(in).SuppressBy(by)
		held.To(out)
		held.GroupBy(func(int) string { return "all" }).Count().As("counted").To(counted)
		d := streamtest.New(t, app)
		rows := map[string]int{}
		for i := range 200 {
			k := fmt.Sprint("k", rng.IntN(15))
			r := topic.Record[string, int]{Key: k, Value: i, Deleted: rng.IntN(3) == 0, Time: at(int64(i + rng.IntN(30)))}
			if rows[k] = i; r.Deleted {
				delete(rows, k)
			}
			d.Input(in).SendRecord(r)
			if rng.IntN(12) == 0 {
				d.Process()
				d.Crash()
			}
		}
		d.Watermark(at(10_000))
		require.Equal(t, rows, tableIn(d.Output(out).Records()), "seed %d", seed)
		last := d.Output(counted).Values()
		require.EqualValues(t, len(rows), last[len(last)-1], "seed %d", seed)
		require.False(t, slices.Contains(last, -1))
	}
}

// rounds is how many random runs there are in short mode, and otherwise.
func rounds(short, long int) int {
	if testing.Short() {
		return short
	}
	return long
}
