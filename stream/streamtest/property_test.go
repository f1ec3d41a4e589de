package streamtest_test

import (
	"context"
	"fmt"
	"iter"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

var (
	lines  = topic.New[string, string]("lines")
	counts = topic.New[string, int64]("counts")
	words  = topic.New[window.Key[string], int64]("words")
	long   = topic.New[string, string]("long")
)

func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// sendLines sends lines of words out of order by up to 30 ms.
func sendLines(d *streamtest.Driver, in topic.Topic[string, string]) {
	text := strings.Fields("a b a c d a b e a f g a b c d e f h i a j k a b")
	for i := range 60 {
		ms := int64(i)*5 - int64(i%3)*15
		d.Input(in).SendAt(at(ms), fmt.Sprint("page", i%7), strings.Join(text[i%20:i%20+3], " "))
	}
	d.Watermark(at(10_000))
}

// A pipeline with calls, a table, windows and joins gives the same however it runs.
func TestSame(t *testing.T) {
	streamtest.Same(t, streamtest.Options{Runs: 8}, func(r *streamtest.Run) {
		in := lines.Partitions(r.Partitions())
		app := stream.New("words").Disorder(30 * time.Millisecond).IdleAfter(-1)
		each := app.Stream(in).
			MapAsync(stream.Async{Limit: 3}, func(_ context.Context, line string) (string, error) { return strings.ToUpper(line), nil }).
			FlatMap(func(line string) iter.Seq[string] { return strings.FieldsSeq(line) })
		by := each.GroupBy(func(w string) string { return w })
		by.Count().As("counted").To(counts)
		by.Window(window.Tumbling(50 * time.Millisecond)).Count().As("windows").To(words)
		d := r.Driver(app)
		sendLines(d, in)
		r.Latest(counts)
		r.Records(words)
	})
}

// run runs Same against a pipeline and returns how it failed the test; empty when it did not.
func run(t *testing.T, o streamtest.Options, f func(r *streamtest.Run)) string {
	t.Helper()
	failed := &fakeTest{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		streamtest.Same(failed, o, f)
	}()
	<-done
	return failed.message
}

// fakeTest takes down the failure of a test, which ends its goroutine.
type fakeTest struct {
	testing.TB
	message string
}

func (f *fakeTest) Helper()      {}
func (f *fakeTest) Failed() bool { return f.message != "" }
func (f *fakeTest) Logf(format string, args ...any) {
	if f.Failed() {
		f.message += "\n" + fmt.Sprintf(format, args...)
	}
}
func (f *fakeTest) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Bugs that depend on order, on crashes, on partitions and on checkpoints are found, and the
// seed that is printed shows them again.
func TestSameFindsBugs(t *testing.T) {
	seen := 0
	for name, build := range map[string]func(in topic.Topic[string, string], app *stream.Topology, partitions int) func(r *streamtest.Run){
		"a fold that depends on the order between keys": func(in topic.Topic[string, string], app *stream.Topology, _ int) func(*streamtest.Run) {
			app.Stream(in).GroupBy(func(string) string { return "all" }).Reduce(func(_, b string) string { return b }).To(long)
			return func(r *streamtest.Run) { r.Latest(long) }
		},
		"a function that remembers what a crash takes back": func(in topic.Topic[string, string], app *stream.Topology, _ int) func(*streamtest.Run) {
			app.Stream(in).Map(func(line string) string {
				seen++
				return fmt.Sprint(line, seen)
			}).To(long)
			seen = 0
			return func(r *streamtest.Run) { r.Unordered(long) }
		},
		"a result that tells the partitions": func(in topic.Topic[string, string], app *stream.Topology, partitions int) func(*streamtest.Run) {
			app.Stream(in).Map(func(line string) string { return fmt.Sprint(line, partitions) }).To(long)
			return func(r *streamtest.Run) { r.Records(long) }
		},
		"changes of a table, which come once a checkpoint": func(in topic.Topic[string, string], app *stream.Topology, _ int) func(*streamtest.Run) {
			app.Stream(in).GroupByKey().Count().To(counts)
			return func(r *streamtest.Run) { r.Records(counts) }
		},
		"records that are late for want of disorder": func(in topic.Topic[string, string], app *stream.Topology, _ int) func(*streamtest.Run) {
			app.Disorder(0)
			app.Stream(in).GroupByKV(func(k, _ string) string { return k }).Window(window.Tumbling(20 * time.Millisecond)).Count().To(words)
			return func(r *streamtest.Run) { r.Records(words) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			pipeline := func(r *streamtest.Run) {
				in := lines.Partitions(r.Partitions())
				app := stream.New("bugs").Disorder(30 * time.Millisecond).IdleAfter(-1)
				compare := build(in, app, r.Partitions())
				sendLines(r.Driver(app), in)
				compare(r)
			}
			message := run(t, streamtest.Options{}, pipeline)
			require.Contains(t, message, "something else than in the plain run")
			seed := regexp.MustCompile(streamtest.SeedVariable + `=(\d+)`).FindStringSubmatch(message)
			require.Len(t, seed, 2, message)
			t.Setenv(streamtest.SeedVariable, seed[1])
			require.Equal(t, message, run(t, streamtest.Options{}, pipeline), "the same run again")
		})
	}
}

// A failure of the test itself in a run names the run too.
func TestSameNamesTheRunThatFails(t *testing.T) {
	runs := 0
	message := run(t, streamtest.Options{Runs: 3, Seed: 77}, func(r *streamtest.Run) {
		app := stream.New("fails")
		app.Stream(lines).To(long)
		d := r.Driver(app)
		d.Input(lines).Send("k", "v")
		r.Records(long)
		if runs++; runs == 3 {
			r.Driver(app)
		}
	})
	require.Contains(t, message, "a run has one driver")
	require.Contains(t, message, "STREAMTEST_SEED=78")
	require.Contains(t, run(t, streamtest.Options{}, func(*streamtest.Run) {}), "nothing is compared")
}

// Latest takes a deleted key for one that never was.
func TestSameLatestOfDeleted(t *testing.T) {
	rows := topic.New[string, string]("rows")
	plain := true
	require.Empty(t, run(t, streamtest.Options{Runs: 1}, func(r *streamtest.Run) {
		app := stream.New("deletes")
		app.Stream(rows).To(long)
		d := r.Driver(app)
		if !plain {
			d.Input(rows).Send("gone", "x")
			d.Input(rows).SendRecord(topic.Record[string, string]{Key: "gone", Deleted: true, Time: at(1)})
		}
		plain = false
		d.Input(rows).Send("k", "v")
		r.Latest(long)
	}))
}
