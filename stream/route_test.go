package stream_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
)

// Each record goes to the topic that is found for it, once, crashes or not; a record for which no
// good topic is found is a failure of the step.
func TestRoute(t *testing.T) {
	in := topic.New[string, int]("in").Partitions(2)
	routed := func(v int) topic.Topic[string, int] {
		return topic.New[string, int](fmt.Sprint("out-", v%3)).Partitions(1 + v%3)
	}
	app := stream.New("routes")
	app.Stream(in).RouteKV(func(k string, v int) topic.Topic[string, int] {
		if k == "bad" {
			return topic.New[string, int]("no such/name")
		}
		return routed(v)
	})
	app.OnError(stream.Skip())
	d := streamtest.New(t, app)
	want := map[int][]int{}
	for i := range 30 {
		key := fmt.Sprint("k", i%4)
		if i%10 == 9 {
			key = "bad"
		} else {
			want[i%3] = append(want[i%3], i)
		}
		d.Input(in).Send(key, i)
		switch i % 5 {
		case 1:
			d.Process()
			d.Crash()
		case 3:
			d.Checkpoint()
		}
	}
	d.Input(in).SendRecord(topic.Record[string, int]{Key: "k", Deleted: true})
	for v := range 3 {
		got := d.Output(routed(v)).Values()
		slices.Sort(got)
		require.Equal(t, want[v], got)
	}
	var noValue, skipped int64
	for _, task := range d.Status().Tasks {
		noValue, skipped = noValue+task.NoValue, skipped+task.Skipped
	}
	require.EqualValues(t, 1, noValue)
	require.EqualValues(t, 1, skipped, "since the last crash")
}

// What must not be chosen ends the job, and says why.
func TestRouteRefuses(t *testing.T) {
	in := topic.New[string, int]("in")
	for want, to := range map[string]topic.Topic[string, int]{
		"it would feed itself":     in,
		"syncs more strictly than": topic.New[string, int]("strict").Sync(log.SyncAlways),
	} {
		app := stream.New("refused")
		s := app.Stream(in)
		s.Route(func(int) topic.Topic[string, int] { return to })
		s.GroupByKey().Count().To(topic.New[string, int64]("counts"))
		d := streamtest.New(t, app)
		d.Input(in).Send("k", 1)
		require.ErrorContains(t, d.Failure(), want)
	}
	app := stream.New("nil")
	app.Stream(in).Route(nil)
	require.ErrorContains(t, app.Validate(), "route needs a function")
}

// A stream is spread over as many tasks as said, by key, with tombstones, records without a key, and
// headers; its state stays there, and it meets what is spread alike.
func TestRepartition(t *testing.T) {
	in, side := topic.New[string, int]("in").Partitions(2), topic.New[string, int]("side").Partitions(3)
	copied, counts := topic.New[string, int]("copied"), topic.New[string, int64]("counts")
	through := topic.New[string, int]("through").Partitions(4)
	sums := topic.New[string, int]("sums")
	app := stream.New("repartition")
	five := app.Stream(in).Repartition(5).As("five")
	five.To(copied)
	five.GroupByKey().Count().As("counts").To(counts)
	five.JoinTable(app.Stream(side).Repartition(5).As("side-of-five").ToTable().As("table"), func(a, b int) int { return a + b }).To(sums)
	app.Stream(in).Through(through).As("four").GroupByKey().Count().As("four-counts").To(topic.New[string, int64]("four-counts"))
	d := streamtest.New(t, app)
	for i := range 20 {
		d.Input(side).SendAt(at(0), fmt.Sprint("k", i), 100*i)
	}
	d.Process()
	for i := range 40 {
		d.Input(in).SendAt(at(int64(i)), fmt.Sprint("k", i%20), i)
	}
	d.Input(in).SendRecord(topic.Record[string, int]{Key: "gone", Deleted: true, Time: at(50)})
	d.Input(in).SendRecord(topic.Record[string, int]{Value: 77, NoKey: true, Time: at(51), Headers: []topic.Header{{Key: "h", Value: []byte("x")}}})
	tasks := map[string]int{}
	records := map[string]int64{}
	d.Crash()
	d.Checkpoint()
	for _, task := range d.Status().Tasks {
		tasks[task.Stage]++
		records[task.Stage] += task.Records
	}
	require.Equal(t, 5, tasks["join-five.table-join-table"])
	require.Equal(t, 4, tasks["four-by"])
	require.EqualValues(t, 42, records["four-by"])
	var deleted, noKey, sum int
	for _, r := range d.Output(copied).Records() {
		switch {
		case r.Deleted:
			require.Equal(t, "gone", r.Key)
			deleted++
		case r.NoKey:
			require.Equal(t, []topic.Header{{Key: "h", Value: []byte("x")}}, r.Headers)
			noKey++
		default:
			sum += r.Value
		}
	}
	require.Equal(t, []int{1, 1, 40 * 39 / 2}, []int{deleted, noKey, sum})
	require.Len(t, d.Output(through).Records(), 42)
	for i := range 20 {
		k := fmt.Sprint("k", i)
		n, _ := d.Output(counts).Latest(k)
		require.EqualValues(t, 2, n)
		n, _ = d.Output(topic.New[string, int64]("four-counts")).Latest(k)
		require.EqualValues(t, 2, n)
		joined, _ := d.Output(sums).Latest(k)
		require.Equal(t, 20+i+100*i, joined)
	}
}

// Numbers that do not fit are told.
func TestRepartitionFaults(t *testing.T) {
	in := topic.New[string, int]("in")
	app := stream.New("none")
	app.Stream(in).Repartition(0).To(topic.New[string, int]("out"))
	require.ErrorContains(t, app.Validate(), "use 1 or more")
	n := openNode(t, vfs.NewMem())
	for want, table := range map[string]func(app *stream.Topology) stream.Table[string, int]{
		"by key with what is in 3": func(app *stream.Topology) stream.Table[string, int] {
			return app.Stream(topic.New[string, int]("other")).Repartition(3).As("three").ToTable().As("table")
		},
		"by key with what is in 1": func(app *stream.Topology) stream.Table[string, int] {
			return app.Table(topic.New[string, int]("other")).As("table")
		},
	} {
		app := stream.New("unlike")
		app.Stream(in).Repartition(2).As("two").JoinTable(table(app), func(a, b int) int { return a + b }).To(topic.New[string, int]("out"))
		require.NoError(t, app.Validate())
		_, err := stream.Start(t.Context(), stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state"}, app)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, n.plane.Close())
}
