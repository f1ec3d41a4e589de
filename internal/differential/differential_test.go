package differential

import (
	"context"
	"flag"
	"fmt"
	"iter"
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

var (
	rounds = flag.Int("rounds", 150, "how many random topologies are compared with their definition")
	seed   = flag.Uint64("seed", 0, "of the first round; 0 takes one by the clock")
)

// Random topologies over random records, out of order, with ties, tombstones, missing keys and
// times before the epoch, give what the definitions of their operators give, from several
// partitions, with checkpoints and crashes where a seed has them.
func TestRandomTopologiesGiveWhatTheyDefine(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	n := *rounds
	if testing.Short() {
		n = min(n, 40)
	}
	for i := range uint64(n) {
		p := newPlan(rand.New(rand.NewPCG(first+i, 1)))
		ok := t.Run("", func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("to repeat it: -rounds 1 -seed %d\n%s", first+i, p)
				}
			})
			p.run(t, first+i)
		})
		if !ok {
			break
		}
	}
}

// plan is a random topology, its input, and what it is to give.
type plan struct {
	rng        *rand.Rand
	app        *stream.Topology
	partitions int
	unit       int64 // ms of a step of time
	begin      int64
	disorder   int64 // steps by which a record may come late in its partition
	zone       *time.Location

	sources []source
	nodes   []node
	outputs []output
	told    []string // what was declared
}

type source struct {
	topic topic.Topic[string, int]
	rows  []row // in order of arrival
	early bool  // sent before anything is read
}

// node is a stream of the topology, and the records that are to be in it.
type node struct {
	number int
	stream stream.Stream[string, int]
	rows   []row
	large  bool // to have no steps behind it
}

// output is a topic that is written; all rows are to be in it, or the newest of each key.
type output struct {
	topic  topic.Topic[string, int]
	rows   []row
	newest map[string]int
}

// manyRows is how many records are enough in a stream.
const manyRows = 500

func newPlan(rng *rand.Rand) *plan {
	p := &plan{rng: rng, partitions: 1 + rng.IntN(3), disorder: int64(rng.IntN(12)), unit: 1, zone: time.UTC}
	p.begin = int64(rng.IntN(200)) - 150
	if rng.IntN(4) == 0 { // around the night in which the clocks go forward
		p.unit = time.Hour.Milliseconds()
		p.zone = berlin
		p.begin = time.Date(2021, time.March, 26, rng.IntN(24), 0, 0, 0, p.zone).UnixMilli() / p.unit
	}
	p.app = stream.New("random").Disorder(p.ms(p.disorder)).IdleAfter(-1)
	p.source(p.disorder, false)
	if rng.IntN(2) == 0 {
		p.source(p.disorder, false)
	}
	for range 1 + rng.IntN(5) {
		p.grow()
	}
	p.end()
	return p
}

// berlin is a time zone whose days are not all of one length.
var berlin = func() *time.Location {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		return time.UTC // a system without time zones
	}
	return zone
}()

func (p *plan) ms(steps int64) time.Duration {
	return time.Duration(steps*p.unit) * time.Millisecond
}

func (p *plan) tell(format string, args ...any) string {
	p.told = append(p.told, fmt.Sprintf("%d: ", len(p.nodes))+fmt.Sprintf(format, args...))
	return fmt.Sprint("n", len(p.nodes))
}

func (p *plan) String() string {
	return fmt.Sprintf("%d partitions, disorder %v, times from %d\n%s", p.partitions, p.ms(p.disorder), p.begin*p.unit, strings.Join(p.told, "\n"))
}

func (p *plan) add(s stream.Stream[string, int], rows []row) {
	p.nodes = append(p.nodes, node{number: len(p.nodes), stream: s, rows: rows, large: len(rows) > manyRows})
}

// source adds a topic whose records come at most disorder too late.
func (p *plan) source(disorder int64, early bool) {
	s := source{topic: topic.New[string, int](fmt.Sprint("in", len(p.sources))).Partitions(p.partitions), early: early}
	newest := p.begin
	for range 15 + p.rng.IntN(35) {
		newest += int64(p.rng.IntN(4) * p.rng.IntN(2))
		r := row{key: fmt.Sprint("k", p.rng.IntN(5)), value: p.rng.IntN(1000), time: newest}
		if disorder > 0 {
			r.time -= int64(p.rng.IntN(int(disorder) + 1))
		}
		switch p.rng.IntN(10) {
		case 0:
			r.noKey, r.key = true, ""
		case 1:
			r.deleted, r.value = true, 0
		}
		r.time *= p.unit
		s.rows = append(s.rows, r)
	}
	p.tell("source %s of %d records", s.topic.Name(), len(s.rows))
	p.sources = append(p.sources, s)
	p.add(p.app.Stream(s.topic), s.rows)
}

// pick takes one of the streams.
func (p *plan) pick() node {
	for {
		if n := p.nodes[p.rng.IntN(len(p.nodes))]; !n.large {
			return n
		}
	}
}

// grow adds a step.
func (p *plan) grow() {
	in := p.pick()
	i := in.number
	switch p.rng.IntN(13) {
	case 0:
		p.tell("map of %d", i)
		p.add(in.stream.Map(change), mapped(in.rows))
	case 1:
		p.tell("filter of %d", i)
		p.add(in.stream.Filter(keeps), filtered(in.rows))
	case 2:
		p.tell("flat map of %d", i)
		p.add(in.stream.FlatMap(func(v int) iter.Seq[int] { return slices.Values(several(v)) }), flattened(in.rows))
	case 3:
		p.tell("key by of %d", i)
		p.add(in.stream.KeyBy(keyOf), rekeyed(in.rows))
	case 4:
		p.tell("split and merge of %d", i)
		yes, no := in.stream.Split(even)
		p.add(yes.Map(change).Merge(no), split(in.rows))
	case 5:
		how := stream.Async{Limit: 1 + p.rng.IntN(5), Unordered: p.rng.IntN(2) == 0}
		name := p.tell("map async of %d: %+v", i, how)
		p.add(in.stream.MapAsync(how, func(_ context.Context, v int) (int, error) { return change(v), nil }).As(name), mapped(in.rows))
	case 6, 7, 8:
		p.window(in)
	case 9, 10, 11:
		p.join(in)
	default:
		p.lookup()
	}
}

// group groups a node by the key it has, or by another; rows are then those of the group.
func (p *plan) group(in node) (g stream.Grouped[string, int], rows []row) {
	if p.rng.IntN(2) == 0 {
		p.tell("group by of %d", in.number)
		return in.stream.GroupBy(keyOf), rekeyed(in.rows)
	}
	p.tell("group by key of %d", in.number)
	return in.stream.GroupByKey(), in.rows
}

// window adds an aggregation in windows.
func (p *plan) window(in node) {
	g, rows := p.group(in)
	grace := p.ms(int64(p.rng.IntN(2) * p.rng.IntN(8)))
	size := int64(1 + p.rng.IntN(20))
	var out stream.Table[window.Key[string], int]
	switch kind := p.rng.IntN(5); {
	case kind == 0:
		name := p.tell("sessions of gap %d, grace %v", size, grace)
		out = g.Session(window.Gap(p.ms(size)).Grace(grace)).Aggregate(add, merge).As(name)
		rows = sessions(rows, size*p.unit)
	case kind == 1:
		name := p.tell("sliding windows of %d, grace %v", size, grace)
		out = g.Window(window.Sliding(p.ms(size)).Grace(grace)).Aggregate(add).As(name)
		rows = slid(rows, size*p.unit)
	case kind == 2 && p.unit > 1:
		name := p.tell("days, grace %v", grace)
		out = g.Window(window.Days(1, p.zone).Grace(grace)).Aggregate(add).As(name)
		rows = daily(rows, p.zone)
	default:
		every, offset := size, int64(0)
		spec := window.Tumbling(p.ms(size))
		if kind == 3 {
			every = int64(1 + p.rng.IntN(int(size)))
			spec = window.Hopping(p.ms(size), p.ms(every))
		}
		if p.rng.IntN(3) == 0 {
			offset = int64(p.rng.IntN(int(every)))
			spec = spec.Offset(p.ms(offset))
		}
		if p.rng.IntN(2) == 0 { // with a shuffle, counted before it
			name := p.tell("count in %v, grace %v", spec, grace)
			n := g.Window(spec.Grace(grace)).Count().As(name)
			out, rows = n.Map(addedOnes), ones(rows)
		} else {
			name := p.tell("%v, grace %v", spec, grace)
			out = g.Window(spec.Grace(grace)).Aggregate(add).As(name)
		}
		rows = hopping(rows, size, every, offset, p.unit)
	}
	s := out.ToStream().MapKV(func(k window.Key[string], v int) int { return marked(v, k.Start.UnixMilli()) }).
		KeyByKV(func(k window.Key[string], _ int) string { return k.Key })
	p.add(s, rows)
}

// join adds a join of two streams.
func (p *plan) join(left node) {
	right := p.pick()
	from, to := -int64(p.rng.IntN(8)), int64(p.rng.IntN(8))
	w := window.Between(p.ms(from), p.ms(to)).Grace(p.ms(int64(p.rng.IntN(2) * p.rng.IntN(8))))
	kind := p.rng.IntN(3)
	name := p.tell("%s of %d and %d, %v", [...]string{"join", "left join", "outer join"}[kind], left.number, right.number, w)
	var s stream.Stream[string, int]
	switch kind {
	case 0:
		s = left.stream.Join(right.stream, w, match)
	case 1:
		s = left.stream.LeftJoin(right.stream, w, func(v, v2 int, ok bool) int { return match(v, or(v2, ok)) })
	default:
		s = left.stream.OuterJoin(right.stream, w, func(v int, ok bool, v2 int, ok2 bool) int { return match(or(v, ok), or(v2, ok2)) })
	}
	p.add(s.As(name), joined(left.rows, right.rows, from*p.unit, to*p.unit, kind > 0, kind > 1))
}

func or(v int, ok bool) int {
	if !ok {
		return absent
	}
	return v
}

// lookup adds a join of a stream with a table, over topics of its own that are in order of time and
// there before anything is read: only then is it defined what a record finds.
func (p *plan) lookup() {
	p.source(0, true)
	in := p.nodes[len(p.nodes)-1]
	p.source(0, true)
	rows := p.nodes[len(p.nodes)-1]
	left := p.rng.IntN(2) == 0
	name := p.tell("stream %d with the table of %d, left %v", in.number, rows.number, left)
	table := rows.stream.ToTable().As(name + "-rows")
	var s stream.Stream[string, int]
	if left {
		s = in.stream.LeftJoinTable(table, func(v, v2 int, ok bool) int { return match(v, or(v2, ok)) })
	} else {
		s = in.stream.JoinTable(table, match)
	}
	p.add(s.As(name), looked(in.rows, rows.rows, left))
}

// end writes what is in each stream, and of some the newest of an aggregation.
func (p *plan) end() {
	for _, n := range p.nodes {
		t := topic.New[string, int](fmt.Sprint("out", n.number)).Partitions(1 + p.rng.IntN(2))
		n.stream.To(t)
		p.outputs = append(p.outputs, output{topic: t, rows: n.rows})
		if p.rng.IntN(6) == 0 {
			g, rows := p.group(n)
			t := topic.New[string, int](fmt.Sprint("newest", n.number))
			g.Aggregate(add).As(fmt.Sprint("all", n.number)).To(t)
			p.outputs = append(p.outputs, output{topic: t, newest: newest(rows)})
		}
	}
}

// run compares what the engine gives with the definition.
func (p *plan) run(t *testing.T, seed uint64) {
	d := streamtest.New(t, p.app)
	for _, s := range p.sources {
		if s.early {
			send(d, s, s.rows)
		}
	}
	d.Disturb(seed)
	for more := true; more; {
		more = false
		for i := range p.sources {
			s := &p.sources[i]
			if s.early || len(s.rows) == 0 {
				continue
			}
			n := 1 + p.rng.IntN(min(10, len(s.rows)))
			send(d, *s, s.rows[:n])
			s.rows, more = s.rows[n:], true
		}
	}
	d.Watermark(time.UnixMilli((p.begin + 100_000) * p.unit))
	for _, task := range d.Status().Tasks {
		require.Zero(t, task.Late, "nothing is later than the disorder allows")
	}
	for _, o := range p.outputs {
		got, last := []row{}, map[string]int{}
		for _, r := range d.Output(o.topic).Records() {
			got = append(got, row{key: r.Key, noKey: r.NoKey, value: r.Value, deleted: r.Deleted, time: r.Time.UnixMilli()})
			last[r.Key] = r.Value
		}
		if o.newest != nil {
			require.Equal(t, o.newest, last, o.topic.Name())
		} else {
			require.Equal(t, sorted(o.rows), sorted(got), o.topic.Name())
		}
	}
}

func send(d *streamtest.Driver, s source, rows []row) {
	in := d.Input(s.topic)
	for _, r := range rows {
		in.SendRecord(topic.Record[string, int]{Key: r.key, NoKey: r.noKey, Value: r.value, Deleted: r.deleted, Time: time.UnixMilli(r.time)})
	}
}
