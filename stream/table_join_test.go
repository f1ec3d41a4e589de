package stream_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

func both(a, b string) string { return a + b }

func leftOr(a, b string, ok bool) string {
	if !ok {
		return a + "-"
	}
	return a + b
}

func outerOr(a string, okA bool, b string, okB bool) string {
	if !okA {
		a = "-"
	}
	if !okB {
		b = "-"
	}
	return a + b
}

// Joins of tables follow each change of either side, and delete a row once.
func TestTableJoins(t *testing.T) {
	l, r := topic.New[string, string]("l"), topic.New[string, string]("r")
	inner, left, outer := topic.New[string, string]("inner"), topic.New[string, string]("left"), topic.New[string, string]("outer")
	app := stream.New("joins")
	lt, rt := app.Table(l).Emit(window.OnUpdate), app.Table(r).Emit(window.OnUpdate)
	lt.Join(rt, both).To(inner)
	lt.LeftJoin(rt, leftOr).To(left)
	lt.OuterJoin(rt, outerOr).To(outer)
	d := streamtest.New(t, app)
	ls, rs := newSteps(t, d, l), newSteps(t, d, r)
	for i, step := range []struct {
		side               *steps[string, string]
		value              string // empty is a delete
		inner, left, outer []string
	}{
		{ls, "a", nil, []string{"k=a- @1"}, []string{"k=a- @1"}},
		{rs, "x", []string{"k=ax @2"}, []string{"k=ax @2"}, []string{"k=ax @2"}},
		{ls, "b", []string{"k=bx @3"}, []string{"k=bx @3"}, []string{"k=bx @3"}},
		{rs, "", []string{"k=nil @4"}, []string{"k=b- @3"}, []string{"k=b- @3"}},
		{rs, "", nil, nil, nil},
		{rs, "y", []string{"k=by @6"}, []string{"k=by @6"}, []string{"k=by @6"}},
		{ls, "", []string{"k=nil @7"}, []string{"k=nil @7"}, []string{"k=-y @6"}},
		{rs, "z", nil, nil, []string{"k=-z @8"}},
		{rs, "", nil, nil, []string{"k=nil @9"}},
		{ls, "", nil, nil, nil},
	} {
		if step.value == "" {
			step.side.delete(int64(i+1), "k")
		} else {
			step.side.put(int64(i+1), "k", step.value)
		}
		ls.expect(inner, step.inner...)
		ls.expect(left, step.left...)
		ls.expect(outer, step.outer...)
		d.Crash()
	}
}

// A table joined with what is made of it: what is taken out of a group downstream is what
// was put in, though a change comes to the join in two ways.
func TestTableJoinedWithItself(t *testing.T) {
	in, sums, pairs := topic.New[string, int]("in"), topic.New[string, int]("sums"), topic.New[string, stream.Change[int]]("pairs")
	app := stream.New("diamond")
	table := app.Table(in)
	joined := table.Map(func(v int) int { return 100 * v }).As("hundreds").
		LeftJoin(table.Filter(func(v int) bool { return v%2 == 0 }), func(a, b int, _ bool) int { return a + b })
	joined.Changes().To(pairs)
	joined.GroupBy(func(int) string { return "all" }).Aggregate(func(a, v int) int { return a + v }, func(a, v int) int { return a - v }).As("sums").To(sums)
	d := streamtest.New(t, app)
	s := newSteps(t, d, in)
	want := map[string]int{}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for i := range 60 {
		k := fmt.Sprint("k", i%5)
		if v := rng.IntN(6); v == 0 {
			delete(want, k)
			s.delete(int64(i), k)
		} else {
			want[k] = 100*v + v*(1-v%2)
			s.put(int64(i), k, v)
		}
		total := 0
		for _, v := range want {
			total += v
		}
		if got := d.Output(sums).Values(); len(got) > 0 {
			require.Equal(t, total, got[len(got)-1])
		}
	}
	last := map[string]stream.Change[int]{}
	for _, r := range d.Output(pairs).Records() {
		before, ok := last[r.Key]
		require.Equal(t, !ok || before.Deleted, r.Value.Inserted)
		require.Equal(t, before.New, r.Value.Old, "each change begins where the one before ended")
		last[r.Key] = r.Value
	}
}

// Random changes of three tables, of other partitions, crashes and checkpoints: a join of
// joins is that of the tables as they are in the end.
func TestRandomTableJoins(t *testing.T) {
	for i := range rounds(2, 8) {
		seed := uint64(time.Now().UnixNano()) + uint64(i)
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rng.IntN(3)
		a, b, c := topic.New[string, string]("a").Partitions(n), topic.New[string, string]("b").Partitions(n), topic.New[int, string]("c").Partitions(1+rng.IntN(3))
		out, size := topic.New[string, string]("out"), topic.New[string, int64]("size")
		app := stream.New("random")
		// c has another key, and so is shuffled into the tasks of the others.
		named := app.Stream(c).KeyBy(func(v string) string { return v[:1] }).ToTable()
		joined := app.Table(a).OuterJoin(app.Table(b), outerOr).LeftJoin(named, leftOr)
		joined.To(out)
		joined.GroupBy(func(string) string { return "all" }).Count().As("size").To(size)
		d := streamtest.New(t, app)
		tables := []map[string]string{{}, {}, {}}
		for range 120 {
			k, which := string(rune('k'+rng.IntN(6))), rng.IntN(3)
			v := k + fmt.Sprint(rng.IntN(10))
			switch in := []topic.Topic[string, string]{a, b}; {
			case which == 2:
				d.Input(c).SendAt(at(1), int(k[0]), v) // the same key, so that order is kept
				tables[2][k] = v
			case rng.IntN(3) == 0:
				d.Input(in[which]).SendRecord(topic.Record[string, string]{Key: k, Deleted: true, Time: at(1)})
				delete(tables[which], k)
			default:
				d.Input(in[which]).SendAt(at(1), k, v)
				tables[which][k] = v
			}
			switch rng.IntN(12) {
			case 0:
				d.Checkpoint()
			case 1:
				d.Process()
				d.Crash()
			}
		}
		want := map[string]string{}
		for i := range 6 {
			k := string(rune('k' + i))
			l, okL := tables[0][k]
			r, okR := tables[1][k]
			x, okX := tables[2][k]
			if okL || okR {
				want[k] = leftOr(outerOr(l, okL, r, okR), x, okX)
			}
		}
		require.Equal(t, want, tableIn(d.Output(out).Records()), "seed %d", seed)
		all, _ := d.Output(size).Latest("all")
		require.EqualValues(t, len(want), all, "seed %d", seed)
	}
}

// Case C-09: a stream joined with a table by event time, not by arrival.
func TestC09StreamTableJoin(t *testing.T) {
	s, tb := topic.New[string, string]("s"), topic.New[string, string]("t")
	left, inner := topic.New[string, string]("left"), topic.New[string, string]("inner")
	app := stream.New("c09")
	records, table := app.Stream(s), app.Table(tb)
	show := func(v, v2 string, ok bool) string {
		if !ok {
			v2 = "nil"
		}
		return v + "," + v2
	}
	records.LeftJoinTable(table, show).To(left)
	records.JoinTable(table, func(v, v2 string) string { return show(v, v2, true) }).To(inner)
	d := streamtest.New(t, app)
	for _, r := range []topic.Record[string, string]{
		{Key: "u1", Value: "c1", Time: at(100)}, {Key: "u1", Value: "c2", Time: at(200)}, {NoKey: true, Value: "c3", Time: at(210)},
		{Key: "u2", Value: "c4", Time: at(300)}, {Key: "u1", Value: "c5", Time: at(160)},
	} {
		d.Input(s).SendRecord(r)
	}
	d.Input(tb).SendAt(at(150), "u1", "SG")
	d.Input(tb).SendAt(at(250), "u1", "MY")
	d.Input(tb).SendAt(at(300), "u2", "TH")
	require.Equal(t, []string{"u1=c1,nil @100", "u1=c2,SG @200", "=c3,nil @210", "u2=c4,TH @300", "u1=c5,MY @160"}, changed(d.Output(left).Records()))
	require.Equal(t, []string{"u1=c2,SG @200", "u2=c4,TH @300", "u1=c5,MY @160"}, changed(d.Output(inner).Records()))
	require.EqualValues(t, 1, d.Status().Tasks[0].NoKey, "the inner join's")
	d.Crash()
	d.Input(s).SendAt(at(310), "u2", "c6") // the table has nothing more, and is not waited for
	require.Equal(t, []string{"u2=c6,TH @310"}, changed(d.Output(inner).Records())[3:])
}

// Case C-12: other partition counts are refused, and a repartitioned stream finds all.
func TestC12PartitionCounts(t *testing.T) {
	byNumber := func(k string, n int) int { return int(k[1]-'0') % n }
	s := topic.New[string, string]("s").Partitions(2)
	tb := topic.New[string, string]("t").Partitions(3)
	out := topic.New[string, string]("out")
	app := stream.New("c12")
	app.Stream(s).JoinTable(app.Table(tb), both).To(out)
	n := openNode(t, vfs.NewMem())
	_, err := stream.Start(t.Context(), stream.Env{Plane: n.plane}, app)
	for _, want := range []string{`"s"`, `"t"`, "2", "3"} {
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, n.plane.Close())

	// Spread by a function of its own, a topic is never taken for one that is spread by the hash of the key.
	s, tb = s.PartitionBy(byNumber), tb.PartitionBy(byNumber)
	app = stream.New("c12")
	app.Stream(s).JoinTable(app.Table(tb), func(a, b string) string { return a + "," + b }).To(out)
	d := streamtest.New(t, app)
	for i := range 6 {
		d.Input(tb).SendAt(at(1), fmt.Sprint("k", i), fmt.Sprint("t", i))
	}
	for i := range 6 {
		d.Input(s).SendAt(at(10), fmt.Sprint("k", i), fmt.Sprint("s", i))
	}
	d.Input(s).SendAt(at(11), "k2", "s2b")
	require.ElementsMatch(t, []string{"k0=s0,t0 @10", "k1=s1,t1 @10", "k2=s2,t2 @10", "k2=s2b,t2 @11", "k3=s3,t3 @10", "k4=s4,t4 @10", "k5=s5,t5 @10"},
		changed(d.Output(out).Records()))
}

// What cannot be joined is refused before anything runs.
func TestTableJoinFaults(t *testing.T) {
	app := stream.New("faults")
	in := topic.New[string, int]("in")
	add := func(a int, b int64) int64 { return int64(a) + b }
	windows := app.Stream(in).GroupByKey().Window(window.Tumbling(time.Second)).Count()
	windows.Join(windows, func(a, b int64) int64 { return a + b })
	require.ErrorContains(t, app.Validate(), "rows are gone when their window has closed")

	app = stream.New("itself")
	table := app.Table(in)
	counts := table.GroupByKV(func(k string, _ int) string { return k }).Count()
	table.Join(counts, add)
	require.ErrorContains(t, app.Validate(), "with what a shuffle makes of the same table")
	app = stream.New("copied")
	table = app.Table(in)
	counts = table.GroupByKV(func(k string, _ int) string { return k }).Count()
	out := topic.New[string, int64]("out")
	table.ToStream().KeyByKV(func(k string, _ int) string { return k }).ToTable().Join(counts, add).To(out)
	d := streamtest.New(t, app)
	d.Input(in).SendAt(at(1), "a", 5)
	got, ok := d.Output(out).Latest("a")
	require.True(t, ok)
	require.EqualValues(t, 6, got)
}
