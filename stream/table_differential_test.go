package stream_test

import (
	"fmt"
	"hash/fnv"
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

type table = stream.Table[string, string]

// tables are what a random topology is made of: each as it is declared and as it is defined.
type tables struct {
	rng   *rand.Rand
	n     int // tables made, for their names
	all   []table
	rows  []func() map[string]string
	shape []string
}

// numberOf depends on all of s.
func numberOf(s string) int {
	h := fnv.New32a()
	h.Write([]byte(s))
	return int(h.Sum32() % 1000)
}

// foreign makes a key of any value.
func foreign(v string) string { return fmt.Sprint("k", numberOf(v)%7) }

func (ts *tables) add(shape string, t table, rows func() map[string]string) {
	ts.all, ts.rows, ts.shape = append(ts.all, t), append(ts.rows, rows), append(ts.shape, shape)
}

// pick is one of the tables, the newer ones more often.
func (ts *tables) pick() int {
	return len(ts.all) - 1 - min(ts.rng.IntN(len(ts.all)), ts.rng.IntN(len(ts.all)))
}

// grow adds a table made of others.
func (ts *tables) grow() {
	ts.n++
	a, b, as := ts.pick(), ts.pick(), fmt.Sprint("t", ts.n)
	t, rows, other, others := ts.all[a], ts.rows[a], ts.all[b], ts.rows[b]
	shape := func(kind string) string { return fmt.Sprintf("%s=%s(%d,%d)", as, kind, a, b) }
	eachRow := func(f func(made map[string]string, k, v string)) func() map[string]string {
		return func() map[string]string {
			made := map[string]string{}
			for k, v := range rows() {
				f(made, k, v)
			}
			return made
		}
	}
	switch kind := ts.rng.IntN(8); kind {
	case 0:
		keep := func(v string) bool { return numberOf(v)%3 > 0 }
		ts.add(shape("filter"), t.Filter(keep), eachRow(func(made map[string]string, k, v string) {
			if keep(v) {
				made[k] = v
			}
		}))
	case 1:
		f := func(k, v string) string { return fmt.Sprint(numberOf(k+v), v[:1]) }
		ts.add(shape("map"), t.MapKV(f).As(as), eachRow(func(made map[string]string, k, v string) { made[k] = f(k, v) }))
	case 2:
		sum := t.GroupBy(foreign).Aggregate(
			func(a int, v string) int { return a + numberOf(v) }, func(a int, v string) int { return a - numberOf(v) }).As(as)
		ts.add(shape("group"), sum.Filter(func(n int) bool { return n != 0 }).Map(func(n int) string { return fmt.Sprint("s", n) }), func() map[string]string {
			sums, made := map[string]int{}, map[string]string{}
			for _, v := range rows() {
				sums[foreign(v)] += numberOf(v)
			}
			for k, n := range sums {
				if n != 0 {
					made[k] = fmt.Sprint("s", n)
				}
			}
			return made
		})
	case 3, 4, 5:
		left, right := kind < 5, kind == 4
		joined := func() map[string]string {
			made := map[string]string{}
			l, r := rows(), others()
			for k, v := range l {
				if v2, ok := r[k]; ok || left {
					made[k] = leftOr(v, v2, ok)
				}
			}
			for k, v2 := range r {
				if _, ok := l[k]; !ok && right {
					made[k] = "-" + v2
				}
			}
			return made
		}
		switch kind {
		case 3:
			ts.add(shape("left join"), t.LeftJoin(other, leftOr).As(as), joined)
		case 4:
			ts.add(shape("outer join"), t.OuterJoin(other, outerOr).As(as), joined)
		default:
			ts.add(shape("join"), t.Join(other, both).As(as), joined)
		}
	default:
		left := kind == 6
		joined := func() map[string]string {
			made, r := map[string]string{}, others()
			for k, v := range rows() {
				if v2, ok := r[foreign(v)]; ok || left {
					made[k] = leftOr(v, v2, ok)
				}
			}
			return made
		}
		if left {
			ts.add(shape("left join on"), t.LeftJoinOn(other, foreign, leftOr).As(as), joined)
		} else {
			ts.add(shape("join on"), t.JoinOn(other, foreign, both).As(as), joined)
		}
	}
}

// Random topologies of tables over random changes, checkpointed and crashed at random, come to what
// the definition of their operators makes of the rows that there are in the end.
func TestRandomTablesGiveWhatTheyDefine(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	for i := range rounds(4, 20) {
		seed := base + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { tableDifferential(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func tableDifferential(t *testing.T, rng *rand.Rand) {
	partitions := 1 + rng.IntN(3)
	var topics []topic.Topic[string, string]
	for i := range 3 {
		topics = append(topics, topic.New[string, string](fmt.Sprint("in", i)).Partitions(partitions))
	}
	truth := []map[string]string{{}, {}, {}}
	var app *stream.Topology
	var ts *tables
	for { // a topology that would wait for itself is refused; another one then
		app, ts = stream.New("tables"), &tables{rng: rng}
		for i, in := range topics {
			read := app.Table(in).As(fmt.Sprint("base", i))
			if rng.IntN(2) == 0 {
				read = read.Emit(window.OnUpdate)
			}
			ts.add(in.Name(), read, func() map[string]string { return truth[i] })
		}
		for range 2 + rng.IntN(4) {
			ts.grow()
		}
		for i, made := range ts.all {
			made.To(topic.New[string, string](fmt.Sprint("out", i)))
		}
		err := app.Validate()
		if err == nil {
			break
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			require.Contains(t, line, "a task would wait for itself")
		}
	}
	t.Logf("%d partitions, %v", partitions, ts.shape)
	d := streamtest.New(t, app)
	for i := range 80 {
		in, k := rng.IntN(3), fmt.Sprint("k", rng.IntN(9))
		when := at(int64(i) - int64(rng.IntN(20)))
		if rng.IntN(4) == 0 {
			delete(truth[in], k)
			d.Input(topics[in]).SendRecord(topic.Record[string, string]{Key: k, Deleted: true, Time: when})
		} else {
			truth[in][k] = fmt.Sprint(string(rune('a'+in)), rng.IntN(20))
			d.Input(topics[in]).SendAt(when, k, truth[in][k])
		}
		switch rng.IntN(16) {
		case 0:
			d.Checkpoint()
		case 1:
			d.Process()
		case 2:
			d.Process()
			d.Crash()
		}
	}
	for i, rows := range ts.rows {
		want, got := rows(), tableIn(d.Output(topic.New[string, string](fmt.Sprint("out", i))).Records())
		require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), "keys of %d", i)
		require.Equal(t, want, got, "table %d", i)
	}
}
