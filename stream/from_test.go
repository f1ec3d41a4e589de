package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// numbered is a source of the numbers below n, each with its own position. asked are the positions
// that it was asked to go on behind.
type numbered struct {
	n     int
	asked []string
}

func (s *numbered) Read(ctx context.Context, after []byte) iter.Seq2[stream.Event[string, int], error] {
	s.asked = append(s.asked, string(after))
	return func(yield func(stream.Event[string, int], error) bool) {
		first := 0
		if after != nil {
			last, err := strconv.Atoi(string(after))
			if err != nil {
				yield(stream.Event[string, int]{}, err)
				return
			}
			first = last + 1
		}
		for i := first; i < s.n && ctx.Err() == nil; i++ {
			e := stream.Event[string, int]{Key: strconv.Itoa(i % 3), Value: i, Time: at(int64(i)), Position: []byte(strconv.Itoa(i))}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// A source is read to its end, once: a run after a crash goes on behind what the log has.
func TestFromGoesOnWhereItWas(t *testing.T) {
	src, out := &numbered{n: 10}, topic.New[string, int64]("out")
	app := stream.New("from")
	app.From("numbers", src).GroupByKey().Count().As("count").To(out)
	d := streamtest.New(t, app)
	latest := func() string {
		var text string
		for _, k := range []string{"0", "1", "2"} {
			n, _ := d.Output(out).Latest(k)
			text += fmt.Sprint(n, " ")
		}
		return text
	}
	require.Equal(t, "4 3 3 ", latest())
	d.Crash()
	require.Equal(t, "4 3 3 ", latest())
	src.n = 2500 // more than a batch
	d.Crash()
	d.Process() // it is in the log, and not committed
	d.Crash()
	require.Equal(t, "834 833 833 ", latest())
	require.Equal(t, []string{"", "9", "9", "2499"}, src.asked)
}

// What is sent on a channel is in the log when Durable is called, and is read once; event time
// and headers, and deletions, are those of the event.
func TestFromChannel(t *testing.T) {
	events := make(chan stream.Event[string, int], 10)
	out := topic.New[string, int]("out")
	app := stream.New("channel").StopAt(topic.End())
	app.From("events", stream.Channel(events)).To(out)
	d := streamtest.New(t, app)
	durable := 0
	send := func(v int) {
		events <- stream.Event[string, int]{Key: "k", Value: v, Time: at(int64(v)), Durable: func() { durable++ },
			Headers: []topic.Header{{Key: "h", Value: []byte{byte(v)}}}}
	}
	send(1)
	send(2)
	d.Process()
	require.Equal(t, 2, durable)
	d.Crash()
	send(3)
	events <- stream.Event[string, int]{Key: "k", Deleted: true, Time: at(4)}
	events <- stream.Event[string, int]{Value: 5, NoKey: true}
	close(events)
	records := d.Output(out).Records()
	require.Len(t, records, 5)
	for i, r := range records[:3] {
		require.Equal(t, i+1, r.Value)
		require.Equal(t, at(int64(i+1)), r.Time)
		require.Equal(t, []topic.Header{{Key: "h", Value: []byte{byte(i + 1)}}}, r.Headers)
	}
	require.True(t, records[3].Deleted)
	require.True(t, records[4].NoKey)
	require.Equal(t, d.Now(), records[4].Time)
	require.True(t, d.Status().Tasks[0].Ended)
}

// A process that is killed again and again while it reads a source counts each event once, also
// when what is committed is deleted on the way and events are large.
func TestFromKilled(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	records := 60_000
	if testing.Short() {
		records = 20_000
	}
	fs := vfs.NewMem()
	out := topic.New[window.Key[string], int64]("out")
	large := bytes.Repeat([]byte("x"), 900<<10)
	app := func() *stream.Topology {
		app := stream.New("killed").StopAt(topic.End()).IdleAfter(-1)
		app.Checkpoint(checkpoint.Every(2 * time.Millisecond))
		numbers := &numbered{n: records}
		app.From("numbers", stream.SourceFunc[string, []byte](func(ctx context.Context, after []byte) iter.Seq2[stream.Event[string, []byte], error] {
			return func(yield func(stream.Event[string, []byte], error) bool) {
				for e, err := range numbers.Read(ctx, after) {
					value := []byte("x")
					if e.Value%5000 < 2 {
						value = large
					}
					if !yield(stream.Event[string, []byte]{Key: e.Key, Value: value, Time: e.Time, Position: e.Position}, err) {
						return
					}
				}
			}
		})).GroupByKey().Window(window.Tumbling(time.Second)).Count().To(out)
		return app
	}
	n := openNode(t, fs)
	for range 6 {
		job := n.start(t, app())
		time.Sleep(time.Duration(rng.IntN(int(40 * time.Millisecond)))) // when the process dies
		image := fs.Kill()
		n.abandon(job)
		fs = image
		n = openNode(t, fs)
	}
	require.NoError(t, n.start(t, app()).Wait())
	total := int64(0)
	seen := map[window.Key[string]]bool{}
	for r, err := range topic.ReadToEnd(t.Context(), n, out, topic.Start()) {
		require.NoError(t, err)
		require.False(t, seen[r.Key], r.Key)
		seen[r.Key] = true
		total += r.Value
	}
	require.EqualValues(t, records, total)
	require.NoError(t, n.start(t, app()).Wait(), "a run that finds nothing more")
	require.NoError(t, n.plane.Close())
}

// A source whose job is stopped at any file operation, after a power cut too, goes on where the log
// has come to: no event is lost, and none counts twice.
func TestFromStoppedAtFileOperations(t *testing.T) {
	const events = 300
	stopEverywhere(t, func(sync log.Sync) bounded {
		each, sums := topic.New[string, int]("each").Partitions(2).Sync(sync), topic.New[string, int]("sums").Sync(sync)
		return bounded{
			fill: func(*testing.T, testNode) {},
			topology: func() *stream.Topology {
				app := stream.New("numbers").StopAt(topic.End()).IdleAfter(-1)
				s := app.From("numbers", &numbered{n: events})
				s.To(each)
				s.GroupByKey().Emit(window.OnUpdate).Reduce(func(a, b int) int { return a + b }).As("sum").To(sums)
				return app
			},
			check: func(t *testing.T, n testNode) {
				ctx := context.Background()
				seen := make([]int, events)
				for r, err := range topic.ReadToEnd(ctx, n, each, topic.Start()) {
					require.NoError(t, err)
					seen[r.Value]++
				}
				require.Equal(t, slices.Repeat([]int{1}, events), seen)
				want, got := map[string][]int{}, map[string][]int{}
				sum := map[string]int{}
				for i := range events {
					k := strconv.Itoa(i % 3)
					sum[k] += i
					want[k] = append(want[k], sum[k])
				}
				for r, err := range topic.ReadToEnd(ctx, n, sums, topic.Start()) {
					require.NoError(t, err)
					got[r.Key] = append(got[r.Key], r.Value)
				}
				require.Equal(t, want, got)
			},
		}
	})
}

// An error or a panic of a source ends the job, with its name.
func TestFromFails(t *testing.T) {
	failing := func(fail func()) stream.Source[string, int] {
		return stream.SourceFunc[string, int](func(context.Context, []byte) iter.Seq2[stream.Event[string, int], error] {
			return func(yield func(stream.Event[string, int], error) bool) {
				if yield(stream.Event[string, int]{Key: "k", Value: 1}, nil) {
					fail()
					yield(stream.Event[string, int]{}, errors.New("away"))
				}
			}
		})
	}
	nothing := make(chan stream.Event[string, int], 1)
	nothing <- stream.Event[string, int]{NoKey: true, Deleted: true}
	for want, src := range map[string]stream.Source[string, int]{
		"away":                  failing(func() {}),
		"an accident":           failing(func() { panic("an accident") }),
		"without key and value": stream.Channel(nothing),
	} {
		app := stream.New("fails")
		app.From("numbers", src).To(topic.New[string, int]("out"))
		d := streamtest.New(t, app)
		err := d.Failure()
		require.ErrorContains(t, err, want)
		var f *stream.Failure
		require.ErrorAs(t, err, &f)
		require.Equal(t, "numbers", f.Step)

		n := openNode(t, vfs.NewMem())
		if want == "without key and value" {
			nothing <- stream.Event[string, int]{NoKey: true, Deleted: true}
		}
		require.ErrorContains(t, n.start(t, app).Wait(), want)
		require.NoError(t, n.plane.Close())
	}
	app := stream.New("nil")
	app.From[string, int]("numbers", nil).To(topic.New[string, int]("out"))
	require.ErrorContains(t, app.Validate(), "from needs a Source")
}
