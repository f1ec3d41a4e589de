package stream_test

import (
	"cmp"
	"flag"
	"fmt"
	"iter"
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

var differentials = flag.Int("differentials", 40, "how many random topologies are compared with their definition")

// event is a record as the evaluator sees it. Its value carries an event time of its
// own, for branches with EventTime.
type event struct {
	key     string
	value   int
	time    int64
	noKey   bool
	deleted bool
}

func (e event) String() string {
	s := fmt.Sprintf("%s=%d @%d", e.key, e.value, e.time)
	if e.deleted {
		s = fmt.Sprintf("%s=nil @%d", e.key, e.time)
	}
	if e.noKey {
		s = "-" + s
	}
	return s
}

// result is a change of an aggregate, of a window where it has one.
type result struct {
	key   string
	start int64
	value int
	time  int64
}

// ownTime is the event time that values carry.
func ownTime(v int) time.Time { return at(int64(v%50)*3 - 40) }

// side is one windowed aggregation: how it is declared, and what its definition gives.
type side struct {
	size, every, grace int64
	onUpdate           bool
	fold               int // 0 count, 1 reduce, 2 aggregate
	late               bool
}

func (s side) spec() window.Spec {
	if s.size == s.every {
		return window.Tumbling(time.Duration(s.size) * ms).Grace(time.Duration(s.grace) * ms)
	}
	return window.Hopping(time.Duration(s.size)*ms, time.Duration(s.every)*ms).Grace(time.Duration(s.grace) * ms)
}

// evaluate computes from the definition, one record after the other: it advances
// stream time, which closes windows, and then is judged. The events are in order of
// arrival; those with drop set move time and are not grouped.
func (s side) evaluate(events []event, drop func(event) bool, moves func(event) bool, disorder int64, end int64) (results []result, late []event) {
	type cell struct {
		value int
		time  int64
	}
	type slot struct {
		start int64
		key   string
	}
	open := map[slot]*cell{}
	watermark := int64(window.Unknown)
	closeTo := func(w int64) {
		watermark = max(watermark, w)
		var closed []slot
		for k := range open {
			if watermark >= k.start+s.size+s.grace {
				closed = append(closed, k)
			}
		}
		slices.SortFunc(closed, func(a, b slot) int {
			if a.start != b.start {
				return int(a.start - b.start)
			}
			return slices.Compare([]byte(a.key), []byte(b.key))
		})
		for _, k := range closed {
			if !s.onUpdate {
				results = append(results, result{k.key, k.start, open[k].value, open[k].time})
			}
			delete(open, k)
		}
	}
	for _, e := range events {
		if moves(e) {
			closeTo(e.time - disorder)
		}
		if drop(e) {
			continue
		}
		taken := false
		for start := e.time - 1000 - (e.time-1000)%s.every - 10*s.every; start <= e.time; start += s.every {
			if e.time < start || e.time >= start+s.size || watermark >= start+s.size+s.grace {
				continue
			}
			taken = true
			c := open[slot{start, e.key}]
			first := c == nil
			if first {
				c = &cell{time: e.time}
				open[slot{start, e.key}] = c
			}
			c.time = max(c.time, e.time)
			switch s.fold {
			case 0:
				c.value++
			case 1:
				if c.value = fold(c.value, e.value); first {
					c.value = e.value
				}
			default:
				c.value = fold(c.value, e.value)
			}
			if s.onUpdate {
				results = append(results, result{e.key, start, c.value, c.time})
			}
		}
		if !taken {
			late = append(late, e)
		}
	}
	closeTo(end)
	return results, late
}

// fold depends on the order of the values.
func fold(a, v int) int { return (a*31 + v) % 1_000_003 }

// declare adds the aggregation to a topology; what it gives is written as text.
func (s side) declare(g stream.Grouped[string, int], name string) {
	w := g.Window(s.spec())
	if s.onUpdate {
		w = w.Emit(window.OnUpdate)
	}
	out := topic.New[window.Key[string], int](name)
	switch s.fold {
	case 0:
		w.Count().As(name + "-state").ToStream().Map(func(n int64) int { return int(n) }).To(out)
	case 1:
		w.Reduce(fold).As(name + "-state").To(out)
	default:
		w.Aggregate(fold).As(name + "-state").To(out)
	}
	if s.late {
		w.Late().To(topic.New[string, int](name + "-late"))
	}
}

func (s side) results(d *streamtest.Driver, name string) (all []result, late []event) {
	for _, r := range d.Output(topic.New[window.Key[string], int](name)).Records() {
		all = append(all, result{r.Key.Key, r.Key.Start.UnixMilli(), r.Value, r.Time.UnixMilli()})
	}
	if s.late {
		for _, r := range d.Output(topic.New[string, int](name + "-late")).Records() {
			late = append(late, event{key: r.Key, value: r.Value, time: r.Time.UnixMilli()})
		}
	}
	return all, late
}

// A random topology over random records, stopped, crashed and continued at random, gives
// what the definition of its operators gives. With one partition that is exact to the
// order of results and the records that are late; with several nothing may be late, and
// it is exact to the results.
func TestRandomTopologiesGiveWhatTheyDefine(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	for i := range *differentials {
		seed := base + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { differential(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func differential(t *testing.T, rng *rand.Rand) {
	partitions := 1 + rng.IntN(3)*rng.IntN(2)
	disorder := int64(rng.IntN(4) * 5)
	spread := int64(40)
	if partitions > 1 {
		disorder = 10_000
	}
	branch := rng.IntN(3) == 0 // EventTime in the branch
	shape := rng.IntN(4)       // of what is before the grouping
	shuffle := rng.IntN(2) == 0 || shape == 3
	sides := make([]side, 1+rng.IntN(2))
	for i := range sides {
		s := side{size: int64(5 + rng.IntN(3)*5), grace: int64(rng.IntN(3) * 4), onUpdate: rng.IntN(2) == 0, fold: rng.IntN(3), late: rng.IntN(3) > 0}
		s.every = s.size
		if rng.IntN(3) == 0 {
			s.every = 1 + int64(rng.IntN(int(s.size)))
		}
		sides[i] = s
	}
	t.Logf("partitions %d, disorder %d, branch %v, shape %d, shuffle %v, sides %+v", partitions, disorder, branch, shape, shuffle, sides)

	in := topic.New[string, int]("in").Partitions(partitions)
	app := stream.New("differential").Disorder(time.Duration(disorder) * ms).IdleAfter(-1)
	s := app.Stream(in)
	if branch {
		s = s.EventTime(ownTime)
	}
	// before gives the events that come out of the steps before the grouping.
	before := func(e event) []event { return []event{e} }
	switch shape {
	case 1:
		s = s.Filter(func(v int) bool { return v%3 != 0 }).Map(func(v int) int { return v + 1 })
		before = func(e event) []event {
			if e.value%3 == 0 {
				return nil
			}
			e.value++
			return []event{e}
		}
	case 2:
		s = s.FlatMap(func(v int) iter.Seq[int] { return slices.Values([]int{v, v * 2}[:v%3]) })
		before = func(e event) []event {
			double := e
			double.value *= 2
			return []event{e, double}[:e.value%3]
		}
	case 3:
		even, odd := s.Split(func(v int) bool { return v%2 == 0 })
		s = even.Map(func(v int) int { return -v }).Merge(odd)
		before = func(e event) []event {
			if e.value%2 == 0 {
				e.value = -e.value
			}
			return []event{e}
		}
	}
	var g stream.Grouped[string, int]
	if shuffle {
		g = s.GroupBy(func(v int) string { return fmt.Sprint("g", v%3) })
	} else {
		g = s.GroupByKey()
	}
	for i, s := range sides {
		s.declare(g, fmt.Sprint("out", i))
	}
	nested := topic.New[string, int64]("nested")
	if shuffle { // groups of its own, so that counts in windows are made before the shuffle
		g = s.GroupBy(func(v int) string { return fmt.Sprint("g", v%3) })
	}
	g.Emit(window.OnUpdate).Count().As("inner").ToStream().
		GroupByKV(func(k string, _ int64) string { return k[len(k)-1:] }).Emit(window.OnUpdate).Count().As("outer").To(nested)

	d := streamtest.New(t, app)
	send := d.Input(in)
	var events []event
	clock := int64(-100)
	for range 60 + rng.IntN(60) {
		clock += int64(rng.IntN(4))
		e := event{key: fmt.Sprint("k", rng.IntN(5)), value: rng.IntN(100), time: clock - int64(rng.IntN(2))*int64(rng.IntN(int(spread)))}
		e.noKey, e.deleted = rng.IntN(12) == 0, rng.IntN(12) == 0
		e.deleted = e.deleted && !e.noKey // no producer sends that
		events = append(events, e)
		send.SendRecord(topic.Record[string, int]{Key: e.key, Value: e.value, NoKey: e.noKey, Deleted: e.deleted, Time: at(e.time)})
		switch rng.IntN(20) {
		case 0, 1:
			d.Process()
		case 2:
			d.Checkpoint()
		case 3:
			d.Crash()
		case 4:
			d.Advance(time.Second)
		}
	}

	// The definition.
	var arrived []event // in front of the grouping; a dropped one only moves time
	var grouped []event
	const dropped = "dropped"
	for _, e := range events {
		if branch && !e.deleted {
			e.time = ownTime(e.value).UnixMilli()
		}
		mark := event{time: e.time, key: dropped, deleted: branch && e.deleted}
		arrived = append(arrived, mark)
		if e.deleted || e.noKey && !shuffle {
			continue
		}
		for _, out := range before(e) {
			if shuffle {
				out.key = fmt.Sprint("g", out.value%3)
			}
			out.noKey = false
			arrived = append(arrived, out)
			grouped = append(grouped, out)
		}
	}
	const end = 5000
	d.Watermark(at(end))
	for i, s := range sides {
		name := fmt.Sprint("out", i)
		want, wantLate := s.evaluate(arrived, func(e event) bool { return e.key == dropped },
			func(e event) bool { return e.key == dropped && !e.deleted }, disorder, end)
		got, gotLate := s.results(d, name)
		if !s.late {
			wantLate = nil
		}
		if partitions > 1 {
			if shuffle { // the order between partitions is free
				for _, rs := range [][]result{want, got} {
					for i := range rs {
						if rs[i].time = 0; s.fold > 0 {
							rs[i].value = 0
						}
					}
				}
			}
			sortResults(want)
			sortResults(got)
		}
		require.Equal(t, want, got, "results of %s", name)
		require.Equal(t, wantLate, gotLate, "late of %s", name)
	}
	counts := map[string]int64{}
	for _, e := range grouped {
		counts[e.key[len(e.key)-1:]]++
	}
	require.Equal(t, counts, newest(d.Output(nested).Records()))
}

func sortResults(rs []result) {
	slices.SortFunc(rs, func(a, b result) int {
		switch {
		case a.start != b.start:
			return int(a.start - b.start)
		case a.key != b.key:
			return slices.Compare([]byte(a.key), []byte(b.key))
		}
		return cmp.Or(a.value-b.value, int(a.time-b.time))
	})
}
