package stream_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// Case C-11 (a): grouping a table takes the old value out and puts the new one in, as one step.
func TestC11GroupedTable(t *testing.T) {
	type row struct {
		Group string
		N     int
	}
	in := topic.New[string, row]("in").Partitions(2)
	sums, sets := topic.New[string, int]("sums"), topic.New[string, map[int]bool]("sets")
	app := stream.New("c11a")
	grouped := app.Table(in).GroupBy(func(r row) string { return r.Group })
	grouped.Emit(window.OnUpdate).Aggregate(func(a int, r row) int { return a + r.N }, func(a int, r row) int { return a - r.N }).As("sum").To(sums)
	grouped.Emit(window.OnUpdate).Aggregate(
		func(a map[int]bool, r row) map[int]bool {
			if a == nil {
				a = map[int]bool{}
			}
			a[r.N] = true
			return a
		},
		func(a map[int]bool, r row) map[int]bool {
			if delete(a, r.N); len(a) == 0 {
				return nil
			}
			return a
		}).As("set").To(sets)
	d := streamtest.New(t, app)
	s := newSteps(t, d, in)
	for i, step := range []struct {
		user     string
		row      *row
		sum, set []string
	}{
		{"u1", &row{"g1", 10}, []string{"g1=10 @0"}, []string{"g1=map[10:true] @0"}},
		{"u2", &row{"g1", 5}, []string{"g1=15 @1"}, []string{"g1=map[5:true 10:true] @1"}},
		{"u1", &row{"g1", 7}, []string{"g1=12 @2"}, []string{"g1=map[5:true 7:true] @2"}},
		{"u1", &row{"g1", 7}, []string{"g1=12 @3"}, []string{"g1=map[5:true 7:true] @3"}},
		{"u1", &row{"g2", 7}, []string{"g1=5 @4", "g2=7 @4"}, []string{"g1=map[5:true] @4", "g2=map[7:true] @4"}},
		{"u2", nil, []string{"g1=0 @5"}, []string{"g1=nil @5"}},
		{"u3", &row{"g1", 4}, []string{"g1=4 @6"}, []string{"g1=map[4:true] @6"}},
	} {
		if step.row == nil {
			s.delete(int64(i), step.user)
		} else {
			s.put(int64(i), step.user, *step.row)
		}
		s.expect(sums, step.sum...)
		s.expect(sets, step.set...)
		d.Crash()
	}
}

// Case C-11 (b): what a record without a value means to a stream, and to a table.
func TestC11DeletesInStreamsAndTables(t *testing.T) {
	in := topic.New[string, int]("in")
	sums, counts, rows, counted := topic.New[string, int]("sums"), topic.New[string, int64]("counts"), topic.New[string, int]("rows"), topic.New[string, int64]("counted")
	app := stream.New("c11b")
	records := app.Stream(in)
	records.GroupByKey().Emit(window.OnUpdate).Reduce(func(a, b int) int { return a + b }).To(sums)
	records.GroupByKey().Emit(window.OnUpdate).Count().To(counts)
	table := records.ToTable().Emit(window.OnUpdate)
	table.To(rows)
	table.GroupBy(func(int) string { return "all" }).Emit(window.OnUpdate).Count().As("counted").To(counted)
	d := streamtest.New(t, app)
	s := newSteps(t, d, in)
	s.put(1, "k", 1)
	s.delete(2, "k")
	s.put(3, "k", 2)
	s.expect(sums, "k=1 @1", "k=3 @3")
	s.expect(counts, "k=1 @1", "k=2 @3")
	s.expect(rows, "k=1 @1", "k=nil @2", "k=2 @3")
	s.expect(counted, "all=1 @1", "all=0 @2", "all=1 @3")
}

// Grouping an aggregation of a stream subtracts what each row was, also where its
// aggregate is changed in place, and streams of both see each key once a checkpoint.
func TestGroupedAggregation(t *testing.T) {
	in := topic.New[string, string]("in")
	per, sizes := topic.New[string, []string]("per"), topic.New[int, string]("sizes")
	app := stream.New("regrouped")
	words := app.Stream(in).GroupByKey().Aggregate(func(a []string, v string) []string {
		if len(a) == cap(a) {
			a = append(make([]string, 0, 8), a...) // so that it is changed in place
		}
		a = append(a, v)
		slices.Sort(a)
		return a
	}).As("words")
	words.To(per)
	words.Map(func(a []string) string { return strings.Join(a, "") }).
		GroupBy(func(s string) int { return len(s) }).
		Reduce(func(a, b string) string { return strings.Trim(a+","+b, ",") }, func(a, b string) string {
			return strings.Trim(strings.Replace(","+a+",", ","+b+",", ",", 1), ",")
		}).As("sizes").To(sizes)
	d := streamtest.New(t, app)
	s := newSteps(t, d, in)
	s.put(1, "a", "y")
	s.put(2, "b", "z")
	s.put(3, "a", "x")
	s.expect(per, "a=[x y] @3", "b=[z] @2")
	s.expect(sizes, "1=z @3", "2=xy @3")
	d.Crash()
	s.put(4, "a", "w")
	s.put(5, "b", "y")
	s.expect(per, "a=[w x y] @4", "b=[y z] @5")
	s.expect(sizes, "2=yz @5", "3=wxy @4", "1= @5")
}

// Random changes of rows, with crashes, over any number of partitions and any rhythm of
// checkpoints: the groups are those of the table as it is in the end.
func TestRandomGroupedTables(t *testing.T) {
	for i := range rounds(3, 10) {
		seed := uint64(time.Now().UnixNano()) + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			in := topic.New[string, int]("in").Partitions(1 + rng.IntN(3))
			out, both := topic.New[int, int]("out"), topic.New[int, int64]("both")
			app := stream.New("random")
			table := app.Table(in)
			table.Filter(func(v int) bool { return v%5 != 0 }).GroupBy(func(v int) int { return v % 3 }).
				Reduce(func(a, b int) int { return a + b }, func(a, b int) int { return a - b }).To(out)
			// A table of a table of a table: how many keys have a group of what size.
			table.GroupBy(func(v int) int { return v % 7 }).Count().As("sevens").
				GroupBy(func(n int64) int { return int(n) }).Count().As("of").To(both)
			d := streamtest.New(t, app)
			rows := map[string]int{}
			for range 200 {
				k, v := fmt.Sprint("k", rng.IntN(12)), rng.IntN(50)
				if rng.IntN(4) == 0 {
					delete(rows, k)
					d.Input(in).SendRecord(topic.Record[string, int]{Key: k, Deleted: true, Time: at(1)})
				} else {
					rows[k] = v
					d.Input(in).SendAt(at(1), k, v)
				}
				switch rng.IntN(20) {
				case 0:
					d.Checkpoint()
				case 1:
					d.Process()
				case 2:
					d.Process()
					d.Crash()
				}
			}
			sums, sevens := map[int]int{}, map[int]int64{}
			for _, v := range rows {
				if v%5 != 0 {
					sums[v%3] += v
				}
				sevens[v%7]++
			}
			for g := range tableIn(d.Output(out).Records()) {
				sums[g] += 0 // a sum that is zero again is a row
			}
			require.Equal(t, sums, tableIn(d.Output(out).Records()))
			of := map[int]int64{}
			for _, n := range sevens {
				of[int(n)]++
			}
			got := tableIn(d.Output(both).Records())
			delete(got, 0)
			maps.DeleteFunc(got, func(_ int, n int64) bool { return n == 0 })
			require.Equal(t, of, got)
		})
	}
}
