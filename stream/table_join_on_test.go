package stream_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// order refers to a customer, or to none.
type order struct {
	Customer string
	Amount   int
	NoFK     bool
}

// customerOf is nil where the order has no customer.
func customerOf(o order) []byte {
	if o.NoFK {
		return nil
	}
	return []byte(o.Customer)
}

func billed(o order, name string) string { return fmt.Sprint(o.Amount, ",", name) }

func billedOr(o order, name string, ok bool) string {
	if !ok {
		name = "nil"
	}
	return billed(o, name)
}

// Case C-10: each change of a row is one change of its result, also one to another foreign
// key, and one that is not there.
func TestC10ForeignKeyJoin(t *testing.T) {
	for _, each := range []bool{false, true} {
		for _, partitions := range []int{1, 3} {
			t.Run(fmt.Sprint(each, partitions), func(t *testing.T) { foreignKeyCase(t, each, partitions) })
		}
	}
}

func foreignKeyCase(t *testing.T, each bool, partitions int) {
	l, r := topic.New[string, order]("l").Partitions(partitions), topic.New[[]byte, string]("r").Partitions(2)
	inner, left := topic.New[string, string]("inner"), topic.New[string, string]("left")
	app := stream.New("c10")
	lt, rt := app.Table(l), app.Table(r)
	if each {
		lt, rt = lt.Emit(window.OnUpdate), rt.Emit(window.OnUpdate)
	}
	lt.JoinOn(rt, customerOf, billed).To(inner)
	lt.LeftJoinOn(rt, customerOf, billedOr).To(left)
	d := streamtest.New(t, app)
	ls, rs := newSteps(t, d, l), newSteps(t, d, r)
	put := func(key, customer string, amount int) func(int64) {
		return func(at int64) { ls.put(at, key, order{customer, amount, customer == ""}) }
	}
	remove := func(key string) func(int64) { return func(at int64) { ls.delete(at, key) } }
	name := func(customer, name string) func(int64) { return func(at int64) { rs.put(at, []byte(customer), name) } }
	for i, step := range []struct {
		do          func(at int64)
		inner, left []string
	}{
		{name("c1", "Ann"), nil, nil},
		{put("o1", "c1", 10), []string{"o1=10,Ann @2"}, []string{"o1=10,Ann @2"}},
		{put("o1", "c2", 10), []string{"o1=nil @3"}, []string{"o1=10,nil @3"}},
		{name("c2", "Bob"), []string{"o1=10,Bob @4"}, []string{"o1=10,Bob @4"}},
		{put("o1", "c1", 10), []string{"o1=10,Ann @5"}, []string{"o1=10,Ann @5"}},
		{remove("o1"), []string{"o1=nil @6"}, []string{"o1=nil @6"}},
		{remove("o1"), nil, nil},
		{put("o3", "", 7), nil, []string{"o3=7,nil @8"}},
		{put("o4", "c2", 1), []string{"o4=1,Bob @9"}, []string{"o4=1,Bob @9"}},
		{put("o5", "c2", 2), []string{"o5=2,Bob @10"}, []string{"o5=2,Bob @10"}},
		{func(at int64) { rs.delete(at, []byte("c2")) }, []string{"o4=nil @11", "o5=nil @11"}, []string{"o4=1,nil @9", "o5=2,nil @10"}},
	} {
		step.do(int64(i + 1))
		require.ElementsMatch(t, step.inner, ls.gained(inner), "inner join, step %d", i+1)
		require.ElementsMatch(t, step.left, ls.gained(left), "left join, step %d", i+1)
		if i%2 == 0 {
			d.Crash()
		}
	}
}

// Random changes of two tables, of partitions and with crashes as they come: joined on
// a foreign key they give what their rows give in the end, to streams, to a group and to
// another join.
func TestRandomForeignKeyJoins(t *testing.T) {
	for i := range rounds(3, 10) {
		seed := uint64(time.Now().UnixNano()) + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomForeignKeys(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func randomForeignKeys(t *testing.T, rng *rand.Rand) {
	l := topic.New[string, order]("l").Partitions(1 + rng.IntN(3))
	r := topic.New[[]byte, string]("r").Partitions(1 + rng.IntN(3))
	inner, left, sums, both := topic.New[string, string]("inner"), topic.New[string, string]("left"), topic.New[string, int]("sums"), topic.New[string, string]("both")
	app := stream.New("random")
	lt, rt := app.Table(l), app.Table(r)
	joined := lt.JoinOn(rt, customerOf, billed).As("inner")
	joined.To(inner)
	leftJoined := lt.LeftJoinOn(rt, customerOf, billedOr).As("left")
	leftJoined.To(left)
	leftJoined.GroupBy(func(string) string { return "all" }).Aggregate(
		func(a int, s string) int { return a + len(s) }, func(a int, s string) int { return a - len(s) }).As("sums").To(sums)
	joined.OuterJoin(leftJoined, outerOr).To(both)
	d := streamtest.New(t, app)
	orders, names := map[string]order{}, map[string]string{}
	customers := []string{"", "c1", "c2", "c3", "c4"} // the empty one is a customer too
	for i := range 150 {
		switch c, k := customers[rng.IntN(5)], fmt.Sprint("o", rng.IntN(8)); rng.IntN(6) {
		case 0:
			delete(names, c)
			d.Input(r).SendRecord(topic.Record[[]byte, string]{Key: []byte(c), Deleted: true, Time: at(int64(i))})
		case 1, 2:
			names[c] = fmt.Sprint("n", i)
			d.Input(r).SendAt(at(int64(i)), []byte(c), names[c])
		case 3:
			delete(orders, k)
			d.Input(l).SendRecord(topic.Record[string, order]{Key: k, Deleted: true, Time: at(int64(i))})
		default:
			orders[k] = order{c, i, rng.IntN(5) == 0}
			d.Input(l).SendAt(at(int64(i)), k, orders[k])
		}
		switch rng.IntN(15) {
		case 0:
			d.Checkpoint()
		case 1:
			d.Process()
		case 2:
			d.Process()
			d.Crash()
		}
	}
	wantInner, wantLeft, wantBoth, sum := map[string]string{}, map[string]string{}, map[string]string{}, 0
	for k, o := range orders {
		name, ok := names[o.Customer]
		if ok = ok && !o.NoFK; ok {
			wantInner[k] = billed(o, name)
		}
		wantLeft[k] = billedOr(o, name, ok)
		wantBoth[k] = outerOr(wantInner[k], ok, wantLeft[k], true)
		sum += len(wantLeft[k])
	}
	require.Equal(t, wantInner, tableIn(d.Output(inner).Records()))
	require.Equal(t, wantLeft, tableIn(d.Output(left).Records()))
	require.Equal(t, wantBoth, tableIn(d.Output(both).Records()))
	for k := range orders {
		got, ok := d.Get(leftJoined, k)
		require.True(t, ok)
		require.Equal(t, wantLeft[k], got)
	}
	if got, ok := d.Output(sums).Latest("all"); ok || sum > 0 {
		require.Equal(t, sum, got)
	}
}

// What is changed in place in a state, or what two rows share, does not reach other tasks: a result
// is as its rows were.
func TestForeignKeyJoinOfAggregates(t *testing.T) {
	in, tags := topic.New[string, int]("in").Partitions(2), topic.New[string, string]("tags").Partitions(3)
	out := topic.New[string, map[string]int]("out")
	app := stream.New("aggregates")
	counts := app.Stream(tags).GroupByKey().Aggregate(func(m map[string]int, v string) map[string]int {
		if m == nil {
			m = map[string]int{}
		}
		m[v]++
		return m
	})
	app.Table(in).Emit(window.OnUpdate).JoinOn(counts.Emit(window.OnUpdate), func(v int) string { return fmt.Sprint("t", v) },
		func(_ int, m map[string]int) map[string]int { return m }).To(out)
	d := streamtest.New(t, app)
	d.Input(in).SendAt(at(0), "a", 1)
	d.Input(in).SendAt(at(0), "b", 1)
	for i := range 3 {
		d.Input(tags).SendAt(at(int64(i+1)), "t1", "x")
		d.Input(tags).SendAt(at(int64(i+1)), "t2", "y")
	}
	var got []string
	for _, r := range changed(d.Output(out).Records()) {
		if r[0] == 'a' {
			got = append(got, r)
		}
	}
	require.Equal(t, []string{"a=map[x:1] @1", "a=map[x:2] @2", "a=map[x:3] @3"}, got)
}

// Names of the inner steps follow that of the join, and mistakes are found before anything runs.
func TestForeignKeyJoinIsDeclared(t *testing.T) {
	l, r := topic.New[string, order]("l"), topic.New[[]byte, string]("r")
	app := stream.New("names")
	lt, rt := app.Table(l), app.Table(r)
	lt.JoinOn(rt, customerOf, billed)
	lt.JoinOn(rt, customerOf, billed).As("billed")
	require.NoError(t, app.Validate())
	for _, name := range []string{`"l.r-join-on"`, `"l.r-join-on-subscriptions"`, `"billed"`, `"billed-subscriptions"`} {
		require.Contains(t, app.String(), name)
	}

	app = stream.New("itself")
	people := app.Table(topic.New[string, string]("people"))
	manager := func(v string) string { return v }
	people.JoinOn(people, manager, both)
	require.ErrorContains(t, app.Validate(), "join a copy of the table instead")

	app = stream.New("copy")
	people = app.Table(topic.New[string, string]("people"))
	copied := people.ToStream().KeyByKV(func(k, _ string) string { return k }).ToTable()
	out := topic.New[string, string]("out")
	people.JoinOn(copied, manager, both).To(out)
	d := streamtest.New(t, app)
	d.Input(topic.New[string, string]("people")).SendAt(at(1), "ann", "bob")
	d.Input(topic.New[string, string]("people")).SendAt(at(2), "bob", "eve")
	d.Checkpoint()
	require.Equal(t, map[string]string{"ann": "bobeve"}, tableIn(d.Output(out).Records()))

	app = stream.New("faults")
	lt, rt = app.Table(l), app.Table(r)
	lt.JoinOn[[]byte, string, string](rt, nil, nil).As("none")
	err := app.Validate()
	require.ErrorContains(t, err, "foreign key needs a function, not nil")
	require.ErrorContains(t, err, "join on needs a function, not nil")
}

// A join on a foreign key that is stopped at any file operation, with a power cut too, comes to what
// its tables give.
func TestForeignKeyJoinStoppedAtFileOperations(t *testing.T) {
	if testing.Short() {
		t.Skip("many runs")
	}
	stopEverywhere(t, foreignKeyJob)
}

// The same where tasks run at the same time, and are killed.
func TestForeignKeyJoinKilledAtRandomMoments(t *testing.T) { killAtRandom(t, foreignKeyJob) }

func foreignKeyJob(sync log.Sync) bounded {
	l, r := topic.New[string, order]("l").Partitions(2).Sync(sync), topic.New[[]byte, string]("r").Partitions(3).Sync(sync)
	left := topic.New[string, string]("left").Sync(sync)
	want := map[string]string{}
	return bounded{
		topology: func() *stream.Topology {
			app := stream.New("foreign").Checkpoint(checkpoint.Every(time.Second)).StopAt(topic.End())
			app.Table(l).LeftJoinOn(app.Table(r), customerOf, billedOr).To(left)
			return app
		},
		fill: func(t *testing.T, n testNode) {
			orders, names := map[string]order{}, map[string]string{}
			pl, err := topic.NewProducer(t.Context(), n, l, topic.ProducerOptions{})
			require.NoError(t, err)
			pr, err := topic.NewProducer(t.Context(), n, r, topic.ProducerOptions{})
			require.NoError(t, err)
			for i := range 200 {
				c, k := fmt.Sprint("c", i%7), fmt.Sprint("o", i*5%23)
				if i%3 == 0 {
					names[c] = fmt.Sprint("n", i)
					require.NoError(t, pr.Send(t.Context(), []byte(c), names[c]))
				} else if i%11 == 0 {
					delete(orders, k)
					require.NoError(t, pl.Delete(t.Context(), k))
				} else {
					orders[k] = order{c, i, i%13 == 0}
					require.NoError(t, pl.Send(t.Context(), k, orders[k]))
				}
			}
			require.NoError(t, pl.Close())
			require.NoError(t, pr.Close())
			for k, o := range orders {
				name, ok := names[o.Customer]
				want[k] = billedOr(o, name, ok && !o.NoFK)
			}
		},
		check: func(t *testing.T, n testNode) {
			var got []topic.Record[string, string]
			for rec, err := range topic.ReadToEnd(t.Context(), n, left, topic.Start()) {
				require.NoError(t, err)
				got = append(got, rec)
			}
			require.Equal(t, want, tableIn(got))
		},
	}
}
