package stream_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// boom panics for 13.
func boom(v int) int {
	if v == 13 {
		panic(errThirteen)
	}
	return v
}

// lettersOf are the dead letters as "step key value".
func lettersOf(d *streamtest.Driver) (all []string) {
	for _, r := range d.Output(deadTopic).Records() {
		step := ""
		for _, h := range r.Headers {
			if h.Key == stream.HeaderStep {
				step = string(h.Value)
			}
		}
		v, err := codec.Int.Decode(r.Value)
		all = append(all, fmt.Sprint(step, " ", string(r.Key), " ", v, " ", err))
	}
	return all
}

// A row for which a Filter or Map fails is none: one that was there goes, it is not counted in the group it is not
// in, and when it changes again nothing is left of it. What is looked up, and what a view reads, agree.
func TestRowsThatFailAreNone(t *testing.T) {
	for name, makes := range map[string]func(stream.Table[string, int], stream.ErrorPolicy) stream.Table[string, int]{
		"map": func(t stream.Table[string, int], p stream.ErrorPolicy) stream.Table[string, int] {
			return t.Map(boom).As("step").OnError(p)
		},
		"filter": func(t stream.Table[string, int], p stream.ErrorPolicy) stream.Table[string, int] {
			return t.Filter(func(v int) bool { return boom(v) > 0 }).As("step").OnError(p)
		},
		"join": func(t stream.Table[string, int], p stream.ErrorPolicy) stream.Table[string, int] {
			return t.Join(t.Map(func(v int) int { return v }), func(a, _ int) int { return boom(a) }).As("step").OnError(p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			in, out, sums := topic.New[string, int]("in"), topic.New[string, int]("out"), topic.New[string, int]("sums")
			app := stream.New("rows")
			made := makes(app.Table(in).Emit(window.OnUpdate), stream.Retry(2, stream.Skip()).Backoff(0, 0))
			made.To(out)
			made.GroupBy(func(int) string { return "all" }).Emit(window.OnUpdate).
				Reduce(func(a, b int) int { return a + b }, func(a, b int) int { return a - b }).As("sums").To(sums)
			app.Stream(in).LeftJoinTable(made, func(v, row int, ok bool) string { return fmt.Sprint(v, row, ok) }).
				To(topic.New[string, string]("looked"))
			d := streamtest.New(t, app)
			for i, v := range []int{1, 13, 2, 13, 13, 4} {
				d.Input(in).SendAt(at(int64(i)), "a", v)
				d.Process()
			}
			d.Input(in).SendAt(at(10), "b", 13)
			d.Crash()
			got := recordTexts(d, out)
			if name == "join" { // of two changes of one row, one after the other
				require.Equal(t, "out a=4 @5", got[len(got)-1])
			} else {
				require.Equal(t, []string{"out a=1 @0", "out a gone @1", "out a=2 @2", "out a gone @3", "out a=4 @5"}, got)
			}
			require.Equal(t, 4, newest(d.Output(sums).Records())["all"])
			_, ok := d.Get(made, "b")
			require.False(t, ok)
			v, _ := d.Get(made, "a")
			require.Equal(t, 4, v)
		})
	}
}

// The letter of a row is the row, once for each change that makes it fail.
func TestRowsAsDeadLetters(t *testing.T) {
	in, counts := topic.New[string, int]("in"), topic.New[int, int64]("counts")
	app := stream.New("letters").OnError(stream.DeadLetter(deadTopic))
	table := app.Table(in)
	table.Map(boom).As("mapped").To(topic.New[string, int]("out"))
	table.GroupBy(boom).Emit(window.OnUpdate).Count().As("counts").To(counts)
	d := streamtest.New(t, app)
	for i, v := range []int{1, 13, 2} {
		d.Input(in).SendAt(at(int64(i)), "a", v)
		d.Process()
	}
	require.ElementsMatch(t, []string{"mapped a 13 <nil>", "counts-by a 13 <nil>"}, lettersOf(d))
	require.Equal(t, map[int]int64{1: 0, 2: 1}, newest(d.Output(counts).Records()))
	total := int64(0)
	for _, task := range d.Status().Tasks {
		total += task.DeadLetters
	}
	require.EqualValues(t, 2, total)
}

// A pair for which a join of streams fails is passed over and counted; the records are there for others, and one that
// failed with its only match is not without one.
func TestPairsThatFail(t *testing.T) {
	left, right, out := topic.New[string, int]("left"), topic.New[string, int]("right"), topic.New[string, int]("out")
	app := stream.New("pairs").IdleAfter(-1)
	app.Stream(left).LeftJoin(app.Stream(right), window.Within(10*ms), func(a, b int, ok bool) int {
		return boom(a + b)
	}).As("step").OnError(stream.Skip()).To(out)
	d := streamtest.New(t, app)
	d.Input(left).SendAt(at(1), "k", 10)
	d.Input(right).SendAt(at(2), "k", 3) // 13
	d.Input(right).SendAt(at(3), "k", 4)
	d.Input(left).SendAt(at(4), "k", 20)
	d.Input(left).SendAt(at(5), "other", 13) // without a match
	d.Process()
	d.Crash()
	d.Watermark(at(100))
	require.Equal(t, []string{"out k=14 @3", "out k=23 @4", "out k=24 @4"}, recordTexts(d, out))
	require.EqualValues(t, 2, skipped(d))
}

func skipped(d *streamtest.Driver) (n int64) {
	for _, task := range d.Status().Tasks {
		n += task.Skipped
	}
	return n
}

// A record for which a join with a table, or with a global one, fails is one for the policy.
func TestRecordsThatFailAtTables(t *testing.T) {
	in, rows, out := topic.New[string, int]("in"), topic.New[string, int]("rows"), topic.New[string, int]("out")
	app := stream.New("records").IdleAfter(-1)
	s := app.Stream(in)
	s.LeftJoinTable(app.Table(rows), func(v, _ int, _ bool) int { return boom(v) }).As("joined").OnError(stream.DeadLetter(deadTopic)).To(out)
	s.LeftJoinGlobal(app.GlobalTable(topic.New[string, int]("all")), func(v int) string { return fmt.Sprint(boom(v)) }, func(v, _ int, _ bool) int { return v }).
		As("global").OnError(stream.DeadLetter(deadTopic)).To(topic.New[string, int]("out2"))
	d := streamtest.New(t, app)
	d.Input(in).SendAt(at(1), "k", 13)
	d.Input(in).SendRecord(topic.Record[string, int]{NoKey: true, Value: 13, Time: at(2)})
	d.Input(in).SendAt(at(3), "k", 1)
	require.Equal(t, []string{"out k=1 @3"}, recordTexts(d, out))
	require.ElementsMatch(t, []string{"joined k 13 <nil>", "joined  13 <nil>", "global k 13 <nil>", "global  13 <nil>"}, lettersOf(d))
}

// Rows that fail in a join on a foreign key: those whose foreign key cannot be told, and pairs.
func TestForeignKeysThatFail(t *testing.T) {
	l, r, out := topic.New[string, int]("l"), topic.New[string, int]("r"), topic.New[string, int]("out")
	app := stream.New("foreign").IdleAfter(-1)
	app.Table(l).Emit(window.OnUpdate).LeftJoinOn(app.Table(r).Emit(window.OnUpdate), func(v int) string { return fmt.Sprint("f", boom(v)%2) }, func(v, v2 int, _ bool) int {
		return boom(v + v2)
	}).As("step").OnError(stream.Skip()).Emit(window.OnUpdate).To(out)
	d := streamtest.New(t, app)
	put := func(in topic.Topic[string, int], time int64, k string, v int) {
		d.Input(in).SendAt(at(time), k, v)
		d.Process()
	}
	put(l, 1, "a", 3)
	put(r, 2, "f1", 10) // 13
	d.Crash()
	put(r, 3, "f1", 20)
	put(l, 4, "a", 13) // no foreign key can be told
	put(r, 5, "f1", 30)
	put(l, 6, "a", 5)
	require.Equal(t, []string{"out a=3 @1", "out a gone @2", "out a=23 @3", "out a gone @4", "out a=35 @6"}, recordTexts(d, out))
	require.EqualValues(t, 2, skipped(d), "a pair, which was met again, and a row")
}

// A record for which the fold of a sliding window fails is left out of each window, whatever the function did before it
// failed; one that has no other gives no result.
func TestSlidingFoldsThatFail(t *testing.T) {
	for _, each := range []bool{false, true} {
		in, out := topic.New[string, int]("in"), topic.New[window.Key[string], []int]("out")
		app := stream.New("sliding").IdleAfter(-1)
		emit := window.OnClose
		if each {
			emit = window.OnUpdate
		}
		windows := app.Stream(in).GroupByKey().Window(window.Sliding(10 * ms)).Emit(emit).Aggregate(func(all []int, v int) []int {
			if v == 13 {
				for i := range all { // in place
					all[i] = -1
				}
			}
			return append(all, boom(v))
		}).As("step").OnError(stream.Skip())
		windows.To(out)
		d := streamtest.New(t, app)
		d.Input(in).SendAt(at(100), "a", 1)
		d.Input(in).SendAt(at(103), "a", 2)
		d.Input(in).SendAt(at(105), "a", 13)
		d.Input(in).SendAt(at(107), "a", 4)
		open, ok := d.Get(windows, window.Key[string]{Key: "a", Start: at(97), End: at(107)})
		require.True(t, ok)
		require.Equal(t, []int{1, 2, 4}, open, "what a view reads")
		d.Input(in).SendAt(at(200), "alone", 13)
		_, ok = d.Get(windows, window.Key[string]{Key: "alone", Start: at(190), End: at(200)})
		require.False(t, ok)
		d.Crash()
		d.Watermark(at(1000))
		newest := map[string]string{}
		for _, r := range d.Output(out).Records() {
			newest[fmt.Sprint(r.Key.Key, r.Key.Start.UnixMilli())] = fmt.Sprint(r.Value)
		}
		require.Equal(t, map[string]string{"a90": "[1]", "a93": "[1 2]", "a95": "[1 2]", "a97": "[1 2 4]",
			"a101": "[2 4]", "a104": "[4]", "a106": "[4]"}, newest, "each %v", each)
	}
}

// Policies that a step cannot have are told when the topology is validated; that of the topology then is
// as if it were Fail.
func TestPoliciesThatCannotBe(t *testing.T) {
	in := topic.New[string, int]("in")
	app := stream.New("cannot")
	table := app.Table(in)
	add := func(a, b int) int { return a + b }
	table.GroupBy(func(v int) int { return v }).Reduce(add, add).As("groups").OnError(stream.Skip())
	err := app.Validate()
	require.ErrorContains(t, err, "would be taken out of it later all the same")

	app = stream.New("fails").OnError(stream.Skip())
	app.Table(in).GroupBy(func(int) string { return "all" }).Reduce(func(a, b int) int { return boom(a + b) }, add).As("groups").To(topic.New[string, int]("out"))
	d := streamtest.New(t, app)
	d.Input(in).Send("a", 10)
	d.Input(in).Send("b", 3)
	require.ErrorContains(t, d.Failure(), "thirteen")
}
