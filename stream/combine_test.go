package stream_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// hotRecords sends n records in the order of their times but for some disorder, half of which are
// of one key and the others of any of a thousand.
func hotRecords(d *streamtest.Driver, in topic.Topic[int, int], n int) {
	rng := rand.New(rand.NewPCG(7, 1))
	send := d.Input(in)
	for i := range n {
		v := 0
		if rng.IntN(2) == 0 {
			v = 1 + rng.IntN(1000)
		}
		send.SendAt(at(1000+int64(i/20)-int64(rng.IntN(30))), i, v)
	}
	d.Watermark(at(1_000_000))
}

// combined are pipelines over groups whose aggregations can take several records as one.
var combined = map[string]func(g stream.Grouped[int, int], out topic.Topic[window.Key[int], int64]){
	"count": func(g stream.Grouped[int, int], out topic.Topic[window.Key[int], int64]) {
		g.Window(window.Tumbling(100 * ms)).Count().As("made").To(out)
	},
	"count in hopping windows": func(g stream.Grouped[int, int], out topic.Topic[window.Key[int], int64]) {
		g.Window(window.Hopping(100*ms, 30*ms).Grace(20 * ms)).Count().As("made").To(out)
	},
	"sum": func(g stream.Grouped[int, int], out topic.Topic[window.Key[int], int64]) {
		g.Combine(func(a, b int) int { return a + b }).Window(window.Tumbling(100 * ms)).
			Aggregate(func(a int64, v int) int64 { return a + int64(v) }).As("made").To(out)
	},
}

// A key with half of the records takes few of those that are sent to the task that owns it, and the
// results, with their times and order, and what is late are those of sending each.
func TestHotKeyIsSentRarely(t *testing.T) {
	const records = 20_000
	for name, build := range combined {
		t.Run(name, func(t *testing.T) {
			run := func(together bool) (results []string, received, late int64) {
				in, out := topic.New[int, int]("in"), topic.New[window.Key[int], int64]("out")
				app := stream.New("hot").Disorder(10 * ms).IdleAfter(-1)
				s := app.Stream(in)
				g := s.GroupBy(func(v int) int { return v })
				build(g, out)
				if !together { // another aggregation of the same groups needs each record
					g.Window(window.Tumbling(24 * time.Hour)).Count().As("other").To(topic.New[window.Key[int], int64]("others"))
				}
				d := streamtest.New(t, app)
				hotRecords(d, in, records)
				for _, r := range d.Output(out).Records() {
					results = append(results, fmt.Sprint(r.Key, r.Value, r.Time.UnixMilli()))
				}
				for _, task := range d.Status().Tasks {
					late += task.Late
					if task.Stage != "source-in" {
						received += task.Records
					}
				}
				return results, received, late
			}
			each, all, lateOfAll := run(false)
			got, received, late := run(true)
			require.Len(t, got, len(each))
			for i := range each {
				require.Equal(t, each[i], got[i])
			}
			require.EqualValues(t, records, all)
			require.Less(t, received, int64(records*6/10), "the cold half, and little of the hot one")
			require.Equal(t, lateOfAll, late)
			require.Equal(t, name != "count in hopping windows", late > 0, "in those a record belongs to a window that is open")
			t.Logf("%d of %d records sent, %d late", received, records, late)
		})
	}
}

// However a pipeline runs that puts records together, its results are the same.
func TestCombineIsTheSameHoweverItRuns(t *testing.T) {
	for name, build := range combined {
		t.Run(name, func(t *testing.T) {
			streamtest.Same(t, streamtest.Options{Runs: 4}, func(r *streamtest.Run) {
				in, out := topic.New[int, int]("in").Partitions(r.Partitions()), topic.New[window.Key[int], int64]("out")
				app := stream.New("hot").Disorder(40 * ms).IdleAfter(-1)
				build(app.Stream(in).GroupBy(func(v int) int { return v }), out)
				hotRecords(r.Driver(app), in, 400)
				r.Records(out)
			})
		})
	}
}

// What a sender that was idle sends may be late though its own watermark is behind: each record
// goes to the late side as it came, and counts as one where nobody reads that.
func TestLateBehindAnIdleSenderIsNotPutTogether(t *testing.T) {
	in := topic.New[string, int]("in").Partitions(2)
	key := func(partition int) string {
		for i := 0; ; i++ {
			if k := fmt.Sprint("k", i); topic.Partition([]byte(k), 2) == partition {
				return k
			}
		}
	}
	for _, reads := range []bool{true, false} {
		out, late := topic.New[window.Key[int], int64]("out"), topic.New[string, int]("late")
		app := stream.New("resumes").IdleAfter(time.Second)
		w := app.Stream(in).GroupBy(func(int) int { return 1 }).Window(window.Tumbling(100 * ms))
		w.Count().As("made").To(out)
		if reads {
			w.Late().KeyBy(func(v int) string { return fmt.Sprint(v) }).To(late)
		}
		d := streamtest.New(t, app)
		send := d.Input(in)
		send.SendAt(at(0), key(0), 1)
		send.SendAt(at(0), key(1), 2)
		d.Process()
		d.Advance(2 * time.Second)
		send.SendAt(at(10_000), key(1), 3)
		d.Process()
		for v := 4; v < 7; v++ {
			send.SendAt(at(1), key(0), v)
		}
		d.Process()
		d.Checkpoint()
		counted := int64(0)
		for _, task := range d.Status().Tasks {
			counted += task.Late
		}
		if !reads {
			require.EqualValues(t, 3, counted)
			continue
		}
		require.Zero(t, counted)
		var values []int
		for _, r := range d.Output(late).Records() {
			values = append(values, r.Value)
		}
		require.ElementsMatch(t, []int{4, 5, 6}, values)
	}
}
