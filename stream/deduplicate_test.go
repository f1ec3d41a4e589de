package stream_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// duplicates sums the counter of all tasks.
func duplicates(s stream.Status) (duplicates, late int64) {
	for _, task := range s.Tasks {
		duplicates += task.Duplicates
		late += task.Late
	}
	return duplicates, late
}

// A record repeats one that is at most as far from it, on both sides and to the
// millisecond; what is older than that behind the watermark is late.
func TestDeduplicateEdges(t *testing.T) {
	in, out, late := topic.New[string, string]("in"), topic.New[string, string]("out"), topic.New[string, string]("late")
	app := stream.New("edges").Disorder(time.Hour)
	g := app.Stream(in).GroupByKey()
	unique := g.Deduplicate(10 * ms)
	unique.To(out)
	g.LateFor(unique).To(late)
	d := streamtest.New(t, app)
	var seen, seenLate int
	for i, row := range []struct {
		line, out, late string
		time            int64 // the watermark from then on
	}{
		{line: "a=1 100", out: "a: 1 100"},
		{line: "a=2 100"},
		{line: "a=3 110"},
		{line: "a=4 90"},
		{line: "b=5 100", out: "b: 5 100"},
		{line: "a=6 111", out: "a: 6 111"}, // one from the first, and one from what is before it
		{line: "a=7 89", out: "a: 7 89"},
		{line: "a=8 121"},
		{line: "a=9 122", out: "a: 9 122", time: 110},
		{line: "a=10 100"},
		{line: "c=11 100", out: "c: 11 100"},
		{line: "c=12 99", late: "c: 12 99"},
		{line: "b=13 110", time: 120},
		{line: "b=14 110"}, // of 100, although that is older than what is late
		{line: "b=15 109", late: "b: 15 109"},
		{line: "d=16 -1000", late: "d: 16 -1000"},
	} {
		sendLine(d.Input(in), row.line)
		d.Process()
		got := lines(since(&seen, d.Output(out).Records()))
		gotLate := lines(since(&seenLate, d.Output(late).Records()))
		want, wantLate := []string{}, []string{}
		if row.out != "" {
			want = []string{row.out}
		}
		if row.late != "" {
			wantLate = []string{row.late}
		}
		require.Equal(t, want, got, "row %d: %s", i+1, row.line)
		require.Equal(t, wantLate, gotLate, "row %d: %s", i+1, row.line)
		if row.time != 0 {
			d.Watermark(at(row.time))
		}
		if i%4 == 2 {
			d.Crash()
		}
	}
	_, lates := duplicates(d.Status())
	require.Zero(t, lates, "what LateFor reads is not counted")
}

// Duplicates and late records are counted, negative times are times, and with zero only
// the same time repeats.
func TestDeduplicateCounts(t *testing.T) {
	in, out := topic.New[string, string]("in"), topic.New[string, string]("out")
	app := stream.New("counts")
	app.Stream(in).GroupByKey().Deduplicate(0).To(out)
	d := streamtest.New(t, app)
	for _, line := range []string{"a=1 -5", "a=2 -5", "a=3 -4", "a=4 -5", "a=5 -4", "b=6 -4"} {
		sendLine(d.Input(in), line)
	}
	require.Equal(t, []string{"a: 1 -5", "a: 3 -4", "b: 6 -4"}, lines(d.Output(out).Records()))
	twice, late := duplicates(d.Status())
	require.EqualValues(t, 2, twice)
	require.EqualValues(t, 1, late)
}

func TestDeduplicateFaults(t *testing.T) {
	in := topic.New[string, string]("in")
	app := stream.New("faults")
	g := app.Stream(in).GroupByKey()
	g.Deduplicate(-time.Second)
	g.Deduplicate(time.Microsecond)
	app.Stream(in).GroupByKey().LateFor(g.Deduplicate(time.Second).As("fine"))
	err := app.Validate()
	require.ErrorContains(t, err, "duplicates within -1s; take whole milliseconds")
	require.ErrorContains(t, err, "duplicates within 1µs")
	require.ErrorContains(t, err, "LateFor needs the result of a Deduplicate of this very group")
}

// What is remembered goes once nothing can repeat it.
func TestDeduplicateForgets(t *testing.T) {
	in := topic.New[int, string]("in")
	app := stream.New("forgets")
	app.Stream(in).GroupByKey().Deduplicate(time.Second).To(topic.New[int, string]("out"))
	d := streamtest.New(t, app)
	size := func() int64 {
		d.Checkpoint()
		d.Checkpoint()
		var n int64
		for _, task := range d.Status().Tasks {
			n += task.StateSize
		}
		return n
	}
	empty := size()
	for i := range 2000 {
		d.Input(in).SendAt(at(int64(i)), i, "v")
	}
	full := size()
	require.Greater(t, full, empty+2000*16)
	d.Input(in).SendAt(at(8000), -1, "v")
	require.Less(t, size(), full/4)
}

// Whatever the keys, times, partitions, checkpoints and crashes, it answers as the list of
// all firsts does.
func TestRandomDeduplication(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	for range rounds {
		in, out, late := topic.New[string, string]("in"), topic.New[string, string]("out"), topic.New[string, string]("late")
		disorder, within := int64(rng.IntN(40)), int64(rng.IntN(20))
		app := stream.New("random").Disorder(time.Duration(disorder) * ms)
		group := stream.Stream[string, string].GroupByKey
		if rng.IntN(2) == 0 { // in another task
			group = func(s stream.Stream[string, string]) stream.Grouped[string, string] {
				return s.GroupByKV(func(k, _ string) string { return k })
			}
		}
		g := group(app.Stream(in))
		unique := g.Deduplicate(time.Duration(within) * ms)
		unique.To(out)
		g.LateFor(unique).To(late)
		d := streamtest.New(t, app)
		firsts := map[string][]int64{}
		want, wantLate := []string{}, []string{}
		clock, newest := int64(-100), window.Unknown
		for i := range 150 {
			clock += int64(rng.IntN(4))
			key, time := fmt.Sprint("k", rng.IntN(3)), clock-int64(rng.IntN(60))
			sendLine(d.Input(in), fmt.Sprintf("%s=%d %d", key, i, time))
			line := fmt.Sprintf("%s: %d %d", key, i, time)
			newest = max(newest, time)
			switch {
			case newest-disorder > time+within:
				wantLate = append(wantLate, line)
			case !slices.ContainsFunc(firsts[key], func(f int64) bool { return max(f-time, time-f) <= within }):
				firsts[key] = append(firsts[key], time)
				want = append(want, line)
			}
			switch rng.IntN(25) {
			case 0:
				d.Checkpoint()
			case 1:
				d.Process()
				d.Crash()
			}
		}
		require.Equal(t, want, lines(d.Output(out).Records()))
		require.Equal(t, wantLate, lines(d.Output(late).Records()))
	}
}

// A job killed at any moment and run again passes on each key once.
func TestDeduplicateKilled(t *testing.T) {
	in, out := topic.New[string, int]("in").Partitions(2), topic.New[string, int]("out")
	app := stream.New("killed").Disorder(time.Hour)
	app.Stream(in).GroupBy(func(v int) string { return fmt.Sprint(v % 50) }).Deduplicate(time.Hour).To(out)
	fs := vfs.NewMem()
	for round := range 12 {
		n := openNode(t, fs)
		job := n.start(t, app)
		p, err := topic.NewProducer(t.Context(), n, in, topic.ProducerOptions{})
		require.NoError(t, err)
		for i := range 40 {
			require.NoError(t, p.Send(t.Context(), fmt.Sprint(i), i+round*4))
		}
		require.NoError(t, p.Close())
		fs = fs.Kill()
		n.abandon(job)
	}
	n := openNode(t, fs)
	job := n.start(t, app)
	require.NoError(t, job.CatchUp(t.Context()))
	got := map[string]int{}
	for r, err := range topic.ReadToEnd(t.Context(), n, out, topic.Start()) {
		require.NoError(t, err)
		got[r.Key]++
	}
	require.Len(t, got, 50)
	for key, times := range got {
		require.Equal(t, 1, times, key)
	}
	require.NoError(t, job.Stop(t.Context()))
	require.NoError(t, n.plane.Close())
}
