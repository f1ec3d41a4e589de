package stream_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// Case C-09 with a table that keeps its history: each record finds the row of its own time.
func TestC09WithHistory(t *testing.T) {
	s, tb := topic.New[string, string]("s"), topic.New[string, string]("t")
	left, loud := topic.New[string, string]("left"), topic.New[string, string]("loud")
	app := stream.New("c09")
	records, table := app.Stream(s), app.Table(tb).As("places", stream.History(time.Minute))
	records.LeftJoinTable(table, leftOr).To(left)
	records.JoinTable(table.Filter(func(v string) bool { return v != "MY" }).Map(func(v string) string { return v + "!" }), both).To(loud)
	d := streamtest.New(t, app)
	d.Input(tb).SendAt(at(150), "u1", "SG")
	d.Input(tb).SendAt(at(250), "u1", "MY")
	d.Input(tb).SendAt(at(300), "u2", "TH")
	d.Process()
	d.Checkpoint()
	d.Crash()
	for _, r := range []topic.Record[string, string]{
		{Key: "u1", Value: "c1", Time: at(100)}, {Key: "u1", Value: "c2", Time: at(200)}, {NoKey: true, Value: "c3", Time: at(210)},
		{Key: "u2", Value: "c4", Time: at(300)}, {Key: "u1", Value: "c5", Time: at(160)}, {Key: "u1", Value: "c6", Time: at(250)},
	} {
		d.Input(s).SendRecord(r)
	}
	require.Equal(t, []string{"u1=c1- @100", "u1=c2SG @200", "=c3- @210", "u2=c4TH @300", "u1=c5SG @160", "u1=c6MY @250"}, changed(d.Output(left).Records()))
	require.Equal(t, []string{"u1=c2SG! @200", "u2=c4TH! @300", "u1=c5SG! @160"}, changed(d.Output(loud).Records()))
}

// A record of the table that is older than its row is what the row was, in its place, also a
// deletion; the row stays. What is older than the history is late, on both sides.
func TestHistoryTakesWhatIsOlder(t *testing.T) {
	s, tb := topic.New[string, string]("s"), topic.New[string, string]("t")
	out, rows, late := topic.New[string, string]("out"), topic.New[string, string]("rows"), topic.New[string, string]("late")
	app := stream.New("older")
	records := app.Stream(s)
	table := app.Table(tb).As("rows", stream.History(100*ms)).Emit(window.OnUpdate)
	table.To(rows)
	joined := records.LeftJoinTable(table, leftOr)
	joined.To(out)
	records.LateFor(joined).To(late)
	d := streamtest.New(t, app)
	ts, ss := newSteps(t, d, tb), newSteps(t, d, s)
	ts.put(200, "k", "b")
	ts.put(150, "k", "a")
	ts.delete(180, "k")
	ts.put(190, "k", "A")
	ts.put(190, "k", "B")
	ts.delete(300, "k") // the history begins at 200 now
	ts.put(250, "k", "c")
	ts.put(199, "k", "late")
	ts.expect(rows, "k=b @200", "k=nil @300")
	for _, at := range []int64{500, 310, 300, 299, 250, 249, 200} {
		ss.put(at, "k", "s")
	}
	ss.expect(out, "k=s- @500", "k=s- @310", "k=s- @300", "k=sc @299", "k=sc @250", "k=sb @249", "k=sb @200")
	ss.put(199, "k", "s")
	ss.put(199, "x", "s")
	ss.put(200, "x", "s")
	ss.expect(out, "x=s- @200")
	ss.expect(late, "k=s @199", "x=s @199")
	counts := d.Status().Tasks
	require.Len(t, counts, 1)
	require.EqualValues(t, 1, counts[0].Late, "the record of the table")
	ts.put(310, "y", "y")
	ss.put(305, "k", "s")
	ss.put(1, "y", "s")
	ss.expect(out, "k=s- @305")
	ss.expect(late, "y=s @1")
	ts.put(600, "y", "z") // all that was is forgotten but what is
	ss.put(550, "y", "s")
	ss.put(10, "y", "s")
	ss.expect(out, "y=sy @550")
	ss.expect(late, "y=s @10")
}

// Random changes of a table, out of order, and records of any time: within the history each finds
// the row of its time, before it that or none at all; a bounded run to its end forgets nothing.
func TestRandomHistories(t *testing.T) {
	seeds := []uint64{1796048444803482890} // a deletion that is forgotten when it comes
	for i := range rounds(3, 10) {
		seeds = append(seeds, uint64(time.Now().UnixNano())+uint64(i))
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomHistory(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

// was is a change of a row as the definition sees it.
type was struct {
	time  int64
	value string
	has   bool
}

func randomHistory(t *testing.T, rng *rand.Rand) {
	s, tb := topic.New[string, string]("s"), topic.New[string, string]("t")
	out, late := topic.New[string, string]("out"), topic.New[string, string]("late")
	reach := int64(20 + rng.IntN(60))
	app := stream.New("histories")
	records, table := app.Stream(s), app.Table(tb).As("rows", stream.History(time.Duration(reach)*ms))
	joined := records.LeftJoinTable(table, leftOr)
	joined.To(out)
	records.LateFor(joined).To(late)
	d := streamtest.New(t, app)
	rows, back, now := map[string][]was{}, int64(window.Unknown), int64(0)
	want := map[string]string{} // by record
	maybe := map[string]bool{}
	for i := range 250 {
		now += int64(rng.IntN(4))
		k, when := fmt.Sprint("k", rng.IntN(3)), now-int64(rng.IntN(2)*rng.IntN(100))
		if rng.IntN(2) == 0 {
			w := was{when, fmt.Sprint("v", i), rng.IntN(4) > 0}
			if !w.has {
				d.Input(tb).SendRecord(topic.Record[string, string]{Key: k, Deleted: true, Time: at(when)})
			} else {
				d.Input(tb).SendAt(at(when), k, w.value)
			}
			back = max(back, when-reach)
			newest := was{time: window.Unknown}
			for _, x := range rows[k] {
				if x.time >= newest.time {
					newest = x
				}
			}
			switch {
			case when >= newest.time || when >= back:
				rows[k] = append(rows[k], w)
			case !newest.has && newest.time <= back: // nobody knows of it any more
				rows[k] = []was{w}
			}
		} else {
			record := fmt.Sprint("s", i, ".")
			d.Input(s).SendAt(at(when), k, record)
			is := was{time: window.Unknown}
			for _, x := range rows[k] { // the newest one that is not after it; of two, the later
				if x.time <= when && x.time >= is.time {
					is = x
				}
			}
			want[record] = leftOr(record, is.value, is.has)
			maybe[record] = when < back
		}
		d.Process()
		if rng.IntN(20) == 0 {
			d.Checkpoint()
			d.Crash()
		}
	}
	got := map[string]bool{}
	for _, r := range d.Output(out).Records() {
		record, _, _ := strings.Cut(r.Value, ".")
		record += "."
		require.Equal(t, want[record], r.Value, "at %d", r.Time.UnixMilli())
		require.False(t, got[record])
		got[record] = true
	}
	for _, r := range d.Output(late).Records() {
		require.True(t, maybe[r.Value], "%s at %d", r.Value, r.Time.UnixMilli())
		require.False(t, got[r.Value])
		got[r.Value] = true
	}
	require.Len(t, got, len(want))
}

// An aggregation has a history too; the state of what was is not that of what is.
func TestHistoryOfAnAggregation(t *testing.T) {
	in, s, out := topic.New[string, string]("in"), topic.New[string, string]("s"), topic.New[string, string]("out")
	app := stream.New("aggregation")
	sets := app.Stream(in).GroupByKey().Aggregate(func(m map[string]int, v string) map[string]int {
		if m == nil {
			m = map[string]int{}
		}
		m[v]++
		return m
	}).As("sets", stream.History(time.Second), stream.TTL(time.Second))
	app.Stream(s).LeftJoinTable(sets, func(v string, m map[string]int, ok bool) string { return fmt.Sprintf("%s%d%d", v, len(m), m["a"]) }).To(out)
	d := streamtest.New(t, app)
	for i := range int64(5) {
		d.Input(in).SendAt(at(10*i), "k", "a")
	}
	d.Process()
	d.Checkpoint()
	d.Crash()
	for _, when := range []int64{15, 40, 25, 5, 39, -1} {
		d.Input(s).SendAt(at(when), "k", "s")
	}
	require.Equal(t, []string{"k=s12 @15", "k=s15 @40", "k=s13 @25", "k=s11 @5", "k=s14 @39", "k=s00 @-1"}, changed(d.Output(out).Records()))
	// Let go at 1040 it is not there from then on, and was before.
	d.Input(in).SendAt(at(1100), "other", "b")
	d.Process()
	d.Input(s).SendAt(at(1039), "k", "s")
	d.Input(s).SendAt(at(1040), "k", "s")
	require.Equal(t, []string{"k=s15 @1039", "k=s00 @1040"}, changed(d.Output(out).Records())[6:])
}

// What cannot have a history, or be late, is found before anything runs.
func TestHistoryFaults(t *testing.T) {
	in := topic.New[string, string]("in")
	app := stream.New("faults")
	table := app.Table(in).As("rows", stream.History(time.Microsecond), stream.WallTTL(0))
	err := app.Validate()
	require.ErrorContains(t, err, "History of 1µs: use whole milliseconds, at least one")
	require.ErrorContains(t, err, "WallTTL of 0s: use whole milliseconds, at least one")
	table.Map(func(v string) string { return v }).As("mapped", stream.History(time.Second))
	require.ErrorContains(t, app.Validate(), "keeps no rows of its own")

	app = stream.New("late")
	records := app.Stream(topic.New[string, string]("s"))
	joined := records.JoinTable(app.Table(in), both)
	joined.To(topic.New[string, string]("out"))
	records.LateFor(joined).To(topic.New[string, string]("late"))
	require.ErrorContains(t, app.Validate(), "has no History")
}
