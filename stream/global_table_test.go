package stream_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
)

// Every task finds every row, all that there were when the job began and what came later,
// whatever partition and event time; after a restart it has them again.
func TestGlobalTable(t *testing.T) {
	in, names := topic.New[string, int]("in").Partitions(3), topic.New[string, string]("names").Partitions(2)
	inner, left := topic.New[string, string]("inner"), topic.New[string, string]("left")
	app := stream.New("global")
	table := app.GlobalTable(names)
	on := func(v int) string { return fmt.Sprint("n", v) }
	show := func(v int, name string) string { return fmt.Sprint(v, name) }
	app.Stream(in).JoinGlobal(table, on, show).To(inner)
	// Behind a shuffle it is another task that joins.
	app.Stream(in).KeyBy(on).GroupByKey().Count().ToStream().
		Map(func(n int64) int { return int(n) }).LeftJoinGlobal(table, on, func(v int, name string, ok bool) string { return fmt.Sprint(v, name, ok) }).To(left)
	require.Contains(t, app.String(), "global table names")
	require.Contains(t, app.Picture().String(), "join global names")
	d := streamtest.New(t, app)
	for i := range 2000 { // more than a task takes at once
		d.Input(names).SendAt(at(1_000_000), fmt.Sprint("n", i), fmt.Sprint("-", i))
	}
	for i := range 20 {
		d.Input(in).SendAt(at(int64(i)), fmt.Sprint("k", i), 1980+i)
	}
	d.Input(in).SendAt(at(20), "none", 2000)
	d.Input(in).SendRecord(topic.Record[string, int]{Key: "deleted", Deleted: true, Time: at(21)})
	want := map[string]string{}
	for i := range 20 {
		want[fmt.Sprint("k", i)] = fmt.Sprint(1980+i, "-", 1980+i)
	}
	require.Equal(t, want, tableIn(d.Output(inner).Records()))
	for _, r := range d.Output(left).Records() {
		require.Equal(t, "1-1true", r.Value)
	}

	d.Input(names).SendAt(at(5), "n2000", "+")
	d.Input(names).SendRecord(topic.Record[string, string]{Key: "n1980", Deleted: true, Time: at(6)})
	d.Process()
	again := func(k string) {
		d.Input(in).SendAt(at(30), k, 1980)
		d.Input(in).SendAt(at(30), k, 2000)
		last, _ := d.Output(inner).Latest(k)
		require.Equal(t, "2000+", last)
		require.Equal(t, []string{"2000+"}, valuesOf(d.Output(inner).Records(), k))
	}
	again("live")
	d.Crash()
	again("restarted")
}

func valuesOf[V any](records []topic.Record[string, V], k string) (all []V) {
	for _, r := range records {
		if r.Key == k {
			all = append(all, r.Value)
		}
	}
	return all
}

// Whatever crashes when, a record is joined once, with the row as it was when the record
// came or as it was later, and what is committed of a key never goes back to an older row.
func TestGlobalTableAcrossCrashes(t *testing.T) {
	for i := range rounds(2, 5) {
		seed := uint64(time.Now().UnixNano()) + uint64(i)
		rng := rand.New(rand.NewPCG(seed, 1))
		in := topic.New[string, int]("in").Partitions(1 + rng.IntN(3))
		rows := topic.New[string, int]("rows").Partitions(1 + rng.IntN(2))
		if rng.IntN(2) == 0 {
			rows = rows.Compact()
		}
		out := topic.New[string, []int]("out")
		app := stream.New("crashes")
		app.Stream(in).LeftJoinGlobal(app.GlobalTable(rows), func(int) string { return "row" },
			func(n, row int, ok bool) []int { return []int{n, row} }).To(out)
		d := streamtest.New(t, app)
		version, sent := 0, []int{} // versions of the row when each record came
		for range 150 {
			switch rng.IntN(8) {
			case 0, 1, 2:
				version++
				d.Input(rows).SendAt(at(0), "row", version)
				d.Process()
			case 3:
				d.Checkpoint()
			case 4:
				d.Crash()
			default:
				d.Input(in).SendAt(at(0), fmt.Sprint("k", len(sent)%5), len(sent))
				d.Process()
				sent = append(sent, version)
			}
		}
		got, last := map[int]int{}, map[string]int{}
		for _, r := range d.Output(out).Records() {
			n, row := r.Value[0], r.Value[1]
			require.NotContains(t, got, n, "seed %d", seed)
			got[n] = row
			require.GreaterOrEqual(t, row, sent[n], "seed %d: an older row", seed)
			require.GreaterOrEqual(t, row, last[r.Key], "seed %d: back to an older row", seed)
			last[r.Key] = row
		}
		require.Len(t, got, len(sent), "seed %d", seed)
	}
}

// A row that nobody has changed is there after a restart, though compaction has removed what the
// checkpoint had seen of others.
func TestGlobalTableOfACompactedTopic(t *testing.T) {
	ctx := context.Background()
	in, out := topic.New[string, int]("in"), topic.New[string, string]("out")
	rows := topic.New[string, string]("rows").Compact()
	app := func() *stream.Topology {
		app := stream.New("compacted")
		app.Stream(in).LeftJoinGlobal(app.GlobalTable(rows), func(v int) string { return fmt.Sprint("r", v%3) },
			func(v int, row string, _ bool) string { return fmt.Sprint(v, row) }).To(out)
		return app
	}
	n := openNode(t, vfs.NewMem())
	p, err := topic.NewProducer(ctx, n, rows, topic.ProducerOptions{})
	require.NoError(t, err)
	for i := range 3 {
		require.NoError(t, p.Send(ctx, fmt.Sprint("r", i), "old"))
	}
	job := n.start(t, app())
	send(t, n, in, "a")
	require.NoError(t, job.CatchUp(ctx))
	require.NoError(t, job.Stop(ctx))
	big := string(make([]byte, 40<<10))
	for range 12 { // fills segments
		require.NoError(t, p.Send(ctx, "r1", "new"+big))
	}
	require.NoError(t, p.Close())
	part, err := n.plane.Log().Partition(log.TopicPartition{Topic: "rows"})
	require.NoError(t, err)
	_, err = part.Compact(ctx)
	require.NoError(t, err)
	require.Positive(t, part.Compacted().Removed)
	job = n.start(t, app())
	send(t, n, in, "b")
	require.NoError(t, job.CatchUp(ctx))
	require.NoError(t, job.Stop(ctx))
	got := map[string]string{}
	for r, err := range topic.ReadToEnd(ctx, n, out, topic.Start()) {
		require.NoError(t, err)
		got[r.Key] = r.Value
	}
	require.Equal(t, map[string]string{"a": "1old", "b": "1new" + big}, got)
	require.NoError(t, n.plane.Close())
}

// What a global table cannot take ends the job, or is passed over where the topology says so.
func TestGlobalTableFaults(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[string, int]("out")
	raw, rows := topic.New[string, []byte]("rows"), topic.New[string, int64]("rows")
	topology := func(policy stream.ErrorPolicy) *stream.Topology {
		app := stream.New("faults").OnError(policy)
		app.Stream(in).LeftJoinGlobal(app.GlobalTable(rows), func(v int) string { return fmt.Sprint("r", v) },
			func(v int, row int64, _ bool) int { return v + int(row) }).To(out)
		app.Stream(topic.New[string, int]("feed")).Map(func(v int) []byte { return []byte{byte(v)} }).To(raw.Partitions(1))
		return app
	}
	require.ErrorContains(t, topology(stream.Fail()).Validate(), "feed itself")

	app := stream.New("unused")
	app.GlobalTable(rows)
	err := app.Validate()
	require.ErrorContains(t, err, "nothing reads what it gives")
	require.ErrorContains(t, err, "no source")
	app = stream.New("other")
	app.Stream(in).JoinGlobal(stream.New("x").GlobalTable(rows), func(v int) string { return "" }, func(v int, _ int64) int { return v }).To(out)
	require.ErrorContains(t, app.Validate(), "of another topology")

	for _, skip := range []bool{false, true} {
		policy := stream.Fail()
		if skip {
			policy = stream.Skip()
		}
		app := stream.New("undecodable").OnError(policy)
		app.Stream(in).LeftJoinGlobal(app.GlobalTable(rows), func(v int) string { return fmt.Sprint("r", v) },
			func(v int, row int64, _ bool) int { return v + int(row) }).To(out)
		d := streamtest.New(t, app)
		d.Process()
		// The same topic, written as something else.
		d.Input(topic.New[string, []byte]("rows")).SendAt(at(1), "r1", []byte("not a number"))
		d.Input(rows).SendAt(at(1), "r2", 40)
		d.Input(in).SendAt(at(1), "k", 2)
		if !skip {
			require.ErrorContains(t, d.Failure(), "decode value")
			continue
		}
		got, _ := d.Output(out).Latest("k")
		require.Equal(t, 42, got)
		require.EqualValues(t, 1, d.Status().Tasks[0].Skipped)
	}
}

// The functions of the KV variants of joins by another key get the key.
func TestJoinsByAnotherKeyGetTheKey(t *testing.T) {
	in, rows := topic.New[string, int]("in").Partitions(2), topic.New[string, string]("rows").Partitions(2)
	inner, left := topic.New[string, string]("inner"), topic.New[string, string]("left")
	app := stream.New("kv")
	on := func(k string, v int) string { return fmt.Sprint(k, v) }
	both := func(k string, v int, row string) string { return fmt.Sprint(k, "/", v, "/", row) }
	any := func(k string, v int, row string, ok bool) string { return fmt.Sprint(k, "/", v, "/", row, ok) }
	table, right := app.Table(in), app.Table(rows)
	s, global := app.Stream(in), app.GlobalTable(rows)
	s.JoinGlobalKV(global, on, both).To(inner)
	s.LeftJoinGlobalKV(global, on, any).To(left)
	byKey, leftByKey := table.JoinOnKV(right, on, both).As("by-key"), table.LeftJoinOnKV(right, on, any).As("left-by-key")
	d := streamtest.New(t, app)
	d.Input(rows).Send("a1", "A")
	d.Checkpoint()
	d.Input(in).SendAt(at(1), "a", 1)
	d.Input(in).SendAt(at(2), "b", 1)
	d.Checkpoint()
	require.Equal(t, []string{"a/1/A"}, values(d.Output(inner).Records()))
	require.ElementsMatch(t, []string{"a/1/Atrue", "b/1/false"}, values(d.Output(left).Records()))
	texts := func(table stream.Table[string, string]) (all []string) {
		for r, err := range d.View(table).All(t.Context()) {
			require.NoError(t, err)
			all = append(all, r.Key+"="+r.Value)
		}
		return all
	}
	require.Equal(t, []string{"a=a/1/A"}, texts(byKey))
	require.Equal(t, []string{"a=a/1/Atrue", "b=b/1/false"}, texts(leftByKey))
	d.Input(rows).Send("b1", "B")
	d.Input(in).SendAt(at(3), "a", 2)
	d.Checkpoint()
	require.Equal(t, []string{"b=b/1/B"}, texts(byKey))
	require.Equal(t, []string{"a=a/2/false", "b=b/1/Btrue"}, texts(leftByKey))
}
