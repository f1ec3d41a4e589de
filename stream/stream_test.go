package stream_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

func values[K, V any](records []topic.Record[K, V]) []V {
	var all []V
	for _, r := range records {
		all = append(all, r.Value)
	}
	return all
}

// Stateless operators, in one chain, keep order, keys and times.
func TestStatelessOperators(t *testing.T) {
	in := topic.New[string, string]("lines")
	words, short, long := topic.New[string, string]("words"), topic.New[int, string]("short"), topic.New[int, string]("long")
	var peeked []string
	app := stream.New("stateless")
	all := app.Stream(in).
		Filter(func(s string) bool { return s != "" }).
		Map(strings.ToUpper).
		FlatMap(strings.FieldsSeq).
		Peek(func(r topic.Record[string, string]) { peeked = append(peeked, fmt.Sprint(r.Key, r.Value, r.Offset)) })
	all.To(words)
	yes, no := all.KeyBy(func(s string) int { return len(s) }).Split(func(s string) bool { return len(s) < 4 })
	yes.To(short)
	no.MapKV(func(n int, s string) string { return fmt.Sprintf("%s/%d", s, n) }).To(long)

	d := streamtest.New(t, app)
	d.Input(in).SendAt(at(7), "k", "the quick fox")
	d.Input(in).SendAt(at(8), "k", "")
	d.Input(in).SendAt(at(9), "k", "jumps")
	records := d.Output(words).Records()
	require.Equal(t, []string{"THE", "QUICK", "FOX", "JUMPS"}, values(records))
	require.Equal(t, at(7), records[2].Time)
	require.Equal(t, "k", records[2].Key)
	require.Equal(t, []string{"THE", "FOX"}, values(d.Output(short).Records()))
	require.Equal(t, []string{"QUICK/5", "JUMPS/5"}, values(d.Output(long).Records()))
	require.Equal(t, []string{"kTHE0", "kQUICK0", "kFOX0", "kJUMPS2"}, peeked)
}

// A shuffle brings the records of a key together whatever partition they come from.
func TestGroupByShufflesAcrossPartitions(t *testing.T) {
	in := topic.New[string, string]("in").Partitions(3)
	out := topic.New[string, int64]("out").Partitions(2)
	app := stream.New("shuffle")
	app.Stream(in).GroupBy(func(s string) string { return s[:1] }).Count().To(out)
	d := streamtest.New(t, app)
	want := map[string]int64{}
	send := d.Input(in)
	for i := range 500 {
		v := string(rune('a'+i%7)) + fmt.Sprint(i)
		send.Send(fmt.Sprint("key", i), v)
		want[v[:1]]++
	}
	for k, n := range want {
		got, ok := d.Output(out).Latest(k)
		require.True(t, ok)
		require.Equal(t, n, got, k)
	}
}

// Without a window a table emits each changed key once a checkpoint.
func TestTableEmitsChangesOncePerCheckpoint(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[string, int]("out")
	app := stream.New("coalesce")
	app.Stream(in).GroupByKey().Reduce(func(a, b int) int { return a + b }).To(out)
	d := streamtest.New(t, app)
	for i := range 4 {
		d.Input(in).Send("k", i+1)
	}
	require.Equal(t, []int{10}, values(d.Output(out).Records()))
	d.Input(in).Send("k", 5)
	require.Equal(t, []int{10, 15}, values(d.Output(out).Records()))
}

// Merge carries the records of all inputs, and time is that of the slowest.
func TestMergeTakesTheLowestWatermark(t *testing.T) {
	a, b := topic.New[string, int]("a"), topic.New[string, int]("b").Partitions(2)
	out := topic.New[window.Key[string], int64]("out")
	app := stream.New("merge").IdleAfter(-1)
	app.Stream(a).Merge(app.Stream(b)).GroupByKey().Window(window.Tumbling(10 * ms)).Count().To(out)
	d := streamtest.New(t, app)
	d.Input(a).SendAt(at(1), "k", 1)
	d.Input(a).SendAt(at(50), "k", 1)
	d.Input(b).SendAt(at(2), "k", 1)
	require.Empty(t, d.Output(out).Records(), "one partition of b has said nothing")
	d.Watermark(at(12))
	require.Equal(t, []string{"k [0,10)=2 @2"}, counts(d.Output(out).Records()))
}

// A silent partition holds results back for IdleAfter and no longer.
func TestIdlePartitionStopsHoldingBackTime(t *testing.T) {
	in := topic.New[string, int]("in").Partitions(2).PartitionBy(func(k string, n int) int { return int(k[0]-'0') % n })
	out := topic.New[window.Key[string], int64]("out")
	app := stream.New("idle").IdleAfter(time.Second)
	app.Stream(in).GroupBy(func(int) string { return "all" }).Window(window.Tumbling(10 * ms)).Count().To(out)
	d := streamtest.New(t, app)
	d.Input(in).SendAt(at(1), "0", 1)
	d.Input(in).SendAt(at(30), "0", 1)
	require.Empty(t, d.Output(out).Records())
	d.Advance(999 * ms)
	require.Empty(t, d.Output(out).Records())
	d.Advance(ms)
	require.Equal(t, []string{"all [0,10)=1 @1"}, counts(d.Output(out).Records()))
	// Awake again it counts at once: nothing closes before it has caught up.
	d.Input(in).SendAt(at(31), "1", 1)
	d.Input(in).SendAt(at(60), "0", 1)
	require.Equal(t, []string{"all [0,10)=1 @1"}, counts(d.Output(out).Records()))
	d.Input(in).SendAt(at(41), "1", 1)
	require.Equal(t, []string{"all [0,10)=1 @1", "all [30,40)=2 @31"}, counts(d.Output(out).Records()))
}

// EventTime behind a source makes its own time, also for a branch beside the first.
func TestEventTimeGivesABranchItsOwnTime(t *testing.T) {
	in := topic.New[string, int64]("in")
	byOwn, byValue := topic.New[window.Key[string], int64]("own"), topic.New[window.Key[string], int64]("value")
	app := stream.New("times")
	s := app.Stream(in)
	s.GroupByKey().Window(window.Tumbling(10 * ms)).Count().As("own").To(byOwn)
	s.EventTime(func(v int64) time.Time { return at(v) }).Disorder(5 * ms).
		GroupByKey().Window(window.Tumbling(10 * ms)).Count().As("value").To(byValue)
	d := streamtest.New(t, app)
	for i, v := range []int64{100, 108, 103, 114, 109, 115} {
		d.Input(in).SendAt(at(int64(i)), "k", v)
	}
	require.Empty(t, d.Output(byOwn).Records())
	require.Equal(t, []string{"k [100,110)=4 @109"}, counts(d.Output(byValue).Records()))
	d.Crash()
	d.Input(in).SendAt(at(10), "k", 104) // late in the one, on time in the other
	require.Equal(t, []string{"k [0,10)=6 @5"}, counts(d.Output(byOwn).Records()))
	require.Equal(t, []string{"k [100,110)=4 @109"}, counts(d.Output(byValue).Records()))
	var late int64
	for _, task := range d.Status().Tasks {
		late += task.Late
	}
	require.EqualValues(t, 1, late)
}

// Windows of windows: results of one aggregation are on time for the next.
func TestAggregatingWindowResultsAgain(t *testing.T) {
	in := topic.New[string, int]("in")
	out := topic.New[window.Key[string], int64]("out")
	late := topic.New[string, int64]("late")
	app := stream.New("nested")
	hours := app.Stream(in).GroupByKey().Window(window.Tumbling(10 * ms)).Count().ToStream().
		GroupByKV(func(k window.Key[string], _ int64) string { return k.Key }).
		Window(window.Tumbling(40 * ms))
	hours.Reduce(func(a, b int64) int64 { return a + b }).To(out)
	hours.Late().To(late)
	d := streamtest.New(t, app)
	for i := range int64(100) {
		d.Input(in).SendAt(at(i), "k", 1)
	}
	d.Watermark(at(200))
	require.Empty(t, d.Output(late).Records())
	require.Equal(t, []string{"k [0,40)=40 @39", "k [40,80)=40 @79", "k [80,120)=20 @99"}, counts(d.Output(out).Records()))
}

// A bounded run closes every window and ends.
func TestStopAtClosesEveryWindow(t *testing.T) {
	in, out := topic.New[string, int]("in").Partitions(2), topic.New[window.Key[string], int64]("out")
	app := stream.New("bounded").Disorder(time.Hour).StopAt(topic.End())
	app.Stream(in).GroupBy(func(v int) string { return "k" }).Window(window.Tumbling(10 * ms)).Count().To(out)
	d := streamtest.New(t, app)
	for i := range 20 {
		d.Input(in).SendAt(at(5), fmt.Sprint(i), i)
	}
	require.Equal(t, []string{"k [0,10)=20 @5"}, counts(d.Output(out).Records()))
	d.Crash()
	d.Input(in).SendAt(at(5), "after the end", 1)
	require.Equal(t, []string{"k [0,10)=20 @5"}, counts(d.Output(out).Records()))
}

// Records without a key or a value are counted where they are skipped.
func TestSkippedRecordsAreCounted(t *testing.T) {
	in, out, copied := topic.New[string, int]("in"), topic.New[string, int64]("out"), topic.New[string, int]("copied")
	app := stream.New("skips")
	s := app.Stream(in).Filter(func(int) bool { return true }).Map(func(v int) int { return v })
	s.GroupByKey().Emit(window.OnUpdate).Count().To(out)
	s.To(copied)
	d := streamtest.New(t, app)
	d.Input(in).Send("a", 1)
	d.Input(in).SendRecord(topic.Record[string, int]{Key: "a", Deleted: true})
	d.Input(in).SendRecord(topic.Record[string, int]{NoKey: true, Value: 7})
	d.Input(in).Send("a", 2)
	require.Equal(t, []int64{1, 2}, values(d.Output(out).Records()))
	task := d.Status().Tasks[0]
	require.EqualValues(t, 1, task.NoKey)
	require.EqualValues(t, 1, task.NoValue)
	all := d.Output(copied).Records()
	require.Len(t, all, 4)
	require.True(t, all[1].Deleted, "a tombstone is copied as one")
	require.True(t, all[2].NoKey)
}

// A panic, and an error, of a user's function end the job and say where and with which record.
func TestUserFailuresNameStepAndRecord(t *testing.T) {
	boom := errors.New("boom")
	for name, build := range map[string]func(s stream.Stream[string, int]) stream.Stream[string, int]{
		"panic": func(s stream.Stream[string, int]) stream.Stream[string, int] {
			return s.Map(func(v int) int { return 10 / (v - 3) }).As("divide")
		},
		"error": func(s stream.Stream[string, int]) stream.Stream[string, int] {
			return s.TryMap(func(v int) (int, error) {
				if v == 3 {
					return 0, boom
				}
				return v, nil
			}).As("divide")
		},
	} {
		t.Run(name, func(t *testing.T) {
			in, out := topic.New[string, int]("in"), topic.New[string, int]("out")
			app := stream.New("fails")
			build(app.Stream(in)).To(out)
			d := streamtest.New(t, app)
			d.Input(in).Send("k", 1)
			d.Checkpoint()
			d.Input(in).Send("k", 2)
			d.Input(in).Send("k", 3)
			var f *stream.Failure
			require.ErrorAs(t, d.Failure(), &f)
			require.Equal(t, "divide", f.Step)
			require.Contains(t, f.Line, "stream_test.go:")
			require.Equal(t, "in", f.Source.Topic)
			require.EqualValues(t, 2, f.Offset)
			if name == "error" {
				require.ErrorIs(t, f, boom)
			} else {
				var p *stream.PanicError
				require.ErrorAs(t, f, &p)
				require.Contains(t, f.Error(), "divide by zero")
			}
			require.Len(t, d.Output(out).Committed(), 1, "what was committed stays, nothing else is visible")
		})
	}
}

// Validate reports every mistake at once, with step and line.
func TestValidateReportsAllMistakes(t *testing.T) {
	in, bad := topic.New[string, int]("in"), topic.New[string, chan int]("bad name!")
	app := stream.New("broken job").Disorder(-time.Second)
	other := stream.New("other")
	s := app.Stream(in)
	s.Filter(nil).To(in)
	s.GroupByKey().Window(window.Tumbling(0)).Count()
	s.Merge(other.Stream(in)).As("x")
	s.Map(func(v int) int { return v }).As("x")
	s.Map(func(int) chan int { return nil }).To(bad)
	s.GroupByKey().Count()
	s.GroupByKey().Count()
	s.Map(func(v int) int { return v }).As("unread")
	err := app.Validate()
	require.Error(t, err)
	for _, want := range []string{
		"invalid name of a job", "disorder of -1s", "filter needs a function", "it would feed itself", "size",
		"two topologies", `the name "x" is taken`, "bad name!", "chan int", "ambiguous", "nothing reads what it gives",
	} {
		require.Contains(t, err.Error(), want)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	for _, e := range joined.Unwrap() {
		var f stream.Fault
		require.ErrorAs(t, e, &f)
		require.True(t, strings.HasPrefix(f.Line, "stream/stream_test.go:"), f.Line)
	}
}

// The printed topology names every step once, below what it reads.
func TestTopologyPrints(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[window.Key[string], int64]("out")
	app := stream.New("printed")
	app.Stream(in).Filter(func(int) bool { return true }).GroupBy(func(int) string { return "" }).
		Window(window.Tumbling(time.Minute)).Count().To(out)
	lines := strings.Split(strings.TrimSpace(app.String()), "\n")
	for i := range lines {
		lines[i], _, _ = strings.Cut(lines[i], "  stream/")
	}
	require.Equal(t, []string{
		"job printed", "  stream in", "    filter", "      group by [shuffle]", `        count "in-count" [state]`, "          to out",
	}, lines)
}

type totalV1 struct {
	Sum   int
	Count int
}

func (t totalV1) Add(v int) totalV1 { return totalV1{t.Sum + v, t.Count + 1} }

type totalV2 struct {
	Count int
	Max   int // new, before what was there
	Sum   int
}

func (t totalV2) Add(v int) totalV2 { return totalV2{t.Count + 1, max(t.Max, v), t.Sum + v} }

// A state type may gain and move fields: what is stored is read by name.
func TestStateSurvivesAChangedStruct(t *testing.T) {
	in := topic.New[string, int]("in")
	before := stream.New("evolving")
	before.Stream(in).GroupByKey().Aggregate(totalV1.Add).As("totals").To(topic.New[string, totalV1]("out"))
	d := streamtest.New(t, before)
	d.Input(in).Send("k", 5)
	d.Input(in).Send("k", 7)
	d.Checkpoint()

	out := topic.New[string, totalV2]("out")
	after := stream.New("evolving")
	after.Stream(in).GroupByKey().Aggregate(totalV2.Add).As("totals").To(out)
	d.Redeploy(after)
	d.Input(in).Send("k", 4)
	got, ok := d.Output(out).Latest("k")
	require.True(t, ok)
	require.Equal(t, totalV2{Count: 3, Max: 4, Sum: 16}, got)
}

// All windows of a key are in the partition that the key itself would be in, and in
// order there.
func TestWindowsOfAKeyShareItsPartition(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[window.Key[string], int64]("out").Partitions(5)
	app := stream.New("placed")
	app.Stream(in).GroupByKey().Window(window.Tumbling(10 * ms)).Count().To(out)
	d := streamtest.New(t, app)
	send := d.Input(in)
	for i := range int64(100) {
		send.SendAt(at(i), fmt.Sprint("k", i%7), 1)
	}
	d.Watermark(at(1000))
	newest := map[string]time.Time{}
	records := d.Output(out).Records()
	require.Len(t, records, 70)
	for _, r := range records {
		require.Equal(t, topic.Partition([]byte(r.Key.Key), 5), r.Partition)
		require.True(t, r.Key.Start.After(newest[r.Key.Key]))
		newest[r.Key.Key] = r.Key.Start
	}
}

// The driver's watermark also reaches what is behind an EventTime.
func TestWatermarkByHandPassesEventTime(t *testing.T) {
	in, out := topic.New[string, int64]("in").Partitions(2), topic.New[window.Key[string], int64]("out")
	app := stream.New("by-hand").Disorder(time.Minute)
	app.Stream(in).EventTime(func(v int64) time.Time { return at(v) }).
		GroupByKey().Window(window.Tumbling(10 * ms)).Count().To(out)
	d := streamtest.New(t, app)
	d.Input(in).Send("k", 5)
	d.Watermark(at(9))
	require.Empty(t, d.Output(out).Records())
	d.Watermark(at(10))
	require.Equal(t, []string{"k [0,10)=1 @5"}, counts(d.Output(out).Records()))
}

// A job does not read a topic whose records have times, and says why.
func TestValidateRefusesDelayedTopics(t *testing.T) {
	for _, in := range []topic.Topic[string, string]{
		topic.New[string, string]("in").Delayed(),
		topic.New[string, string]("in").TimeToLive(time.Minute),
	} {
		app := stream.New("app")
		app.Stream(in).To(topic.New[string, string]("out"))
		require.ErrorContains(t, app.Validate(), `topic "in" is declared Delayed or with a TimeToLive`)
	}
}
