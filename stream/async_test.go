package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// sendValues sends values 0 to n-1 with times 10 ms apart, their keys in turn of some.
func sendValues(t *testing.T, node testNode, in topic.Topic[string, int], n, keys int) {
	t.Helper()
	p, err := topic.NewProducer(t.Context(), node, in, topic.ProducerOptions{})
	require.NoError(t, err)
	for i := range n {
		require.NoError(t, p.QueueRecord(t.Context(), topic.Record[string, int]{Key: fmt.Sprint("k", i%keys), Value: i, Time: at(int64(i) * 10)}, nil))
	}
	require.NoError(t, p.Close())
}

// committed are the values of a topic, by key, in order.
func committed[V any](t *testing.T, n testNode, out topic.Topic[string, V]) map[string][]V {
	t.Helper()
	got := map[string][]V{}
	for r, err := range topic.ReadToEnd(context.Background(), n, out, topic.Start()) {
		require.NoError(t, err)
		got[r.Key] = append(got[r.Key], r.Value)
	}
	return got
}

// Calls run at the same time, never more than the limit, and what they give comes in the
// order of the records of a key; unordered, in that of their ends.
func TestMapAsyncCalls(t *testing.T) {
	for _, unordered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			in, out := topic.New[string, int]("in"), topic.New[string, int]("out")
			var running, most atomic.Int64
			var mu sync.Mutex
			var ends []int
			app := stream.New("async").Checkpoint(checkpoint.Every(50 * time.Millisecond)).StopAt(topic.End())
			app.Stream(in).MapAsync(stream.Async{Limit: 5, Unordered: unordered}, func(_ context.Context, v int) (int, error) {
				now := running.Add(1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				time.Sleep(time.Duration(1+v*7%11) * 100 * time.Millisecond)
				running.Add(-1)
				mu.Lock()
				ends = append(ends, v)
				mu.Unlock()
				return v * 2, nil
			}).To(out)
			n := openNode(t, vfs.NewMem())
			sendValues(t, n, in, 40, 2)
			begun := time.Now()
			job := n.start(t, app)
			require.NoError(t, job.Wait())
			require.EqualValues(t, 5, most.Load())
			require.Less(t, time.Since(begun), 10*time.Second, "one after another they take 24 s")
			want := map[string][]int{}
			order := ends
			if !unordered {
				order = nil
				for i := range 40 {
					order = append(order, i)
				}
			}
			for _, v := range order {
				k := fmt.Sprint("k", v%2)
				want[k] = append(want[k], v*2)
			}
			require.Equal(t, want, committed(t, n, out))
			require.NoError(t, n.plane.Close())
		})
	}
}

// A watermark waits for the calls of the records before it: none of them is late, however
// long its call takes, also over a shuffle.
func TestMapAsyncHoldsTime(t *testing.T) {
	for _, shuffle := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			in, counts := topic.New[string, int]("in").Partitions(2), topic.New[window.Key[string], int64]("counts")
			app := stream.New("holds").Checkpoint(checkpoint.Every(20 * time.Millisecond)).StopAt(topic.End())
			s := app.Stream(in).MapAsync(stream.Async{Limit: 7, Unordered: true}, func(_ context.Context, v int) (int, error) {
				time.Sleep(time.Duration(v*13%17) * 100 * time.Millisecond)
				return v, nil
			})
			var g stream.Grouped[string, int]
			if shuffle {
				g = s.GroupByKV(func(k string, _ int) string { return k })
			} else {
				g = s.GroupByKey()
			}
			g.Window(window.Tumbling(100 * ms)).Count().As("windows").To(counts)
			n := openNode(t, vfs.NewMem())
			sendValues(t, n, in, 60, 3)
			job := n.start(t, app)
			require.NoError(t, job.Wait())
			total := int64(0)
			for r, err := range topic.ReadToEnd(t.Context(), n, counts, topic.Start()) {
				require.NoError(t, err)
				total += r.Value
			}
			require.EqualValues(t, 60, total)
			for _, task := range job.Status().Tasks {
				require.Zero(t, task.Late)
			}
			require.NoError(t, n.plane.Close())
		})
	}
}

// A call that fails is made again with growing waits, one that takes too long fails, and
// what fails in the end is for the error policy. Others go on meanwhile.
func TestMapAsyncRetriesAndTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := topic.New[string, int]("in"), topic.New[string, int]("out")
		begun := time.Now()
		var mu sync.Mutex
		calls := map[int][]time.Duration{}
		app := stream.New("retries").Checkpoint(checkpoint.Every(50 * time.Millisecond)).StopAt(topic.End())
		app.Stream(in).MapAsync(stream.Async{Timeout: 10 * time.Second, Retries: 2, Backoff: time.Second}, func(ctx context.Context, v int) (int, error) {
			mu.Lock()
			calls[v] = append(calls[v], time.Since(begun).Round(time.Second))
			n := len(calls[v])
			mu.Unlock()
			switch {
			case v == 0 && n < 3: // heals
				return 0, errThirteen
			case v == 1: // never
				panic(errThirteen)
			case v == 2:
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return v, nil
		}).As("call").OnError(stream.Retry(1, stream.DeadLetter(deadTopic)).Backoff(5*time.Second, 5*time.Second)).To(out)
		n := openNode(t, vfs.NewMem())
		sendValues(t, n, in, 5, 5)
		job := n.start(t, app)
		require.NoError(t, job.Wait())
		require.Equal(t, map[int][]time.Duration{
			0: {0, time.Second, 3 * time.Second},
			1: {0, time.Second, 3 * time.Second, 8 * time.Second},
			2: {0, 11 * time.Second, 23 * time.Second, 38 * time.Second},
			3: {0},
			4: {0},
		}, calls)
		require.Equal(t, map[string][]int{"k0": {0}, "k3": {3}, "k4": {4}}, committed(t, n, out))
		causes := map[string]string{}
		for r, err := range topic.ReadToEnd(t.Context(), n, deadTopic, topic.Start()) {
			require.NoError(t, err)
			h := headersOf(r)
			require.Equal(t, "call", h[stream.HeaderStep])
			require.Equal(t, string(r.Key)[1:], h[stream.HeaderOffset], "the offset it came from")
			causes[string(r.Key)] = h[stream.HeaderCause]
		}
		require.Equal(t, "panic: thirteen", causes["k1"])
		require.Contains(t, causes["k2"], "longer than Async.Timeout, 10s")
		require.Len(t, causes, 2)
		require.NoError(t, n.plane.Close())
	})
}

// A job that stops does not wait for calls that heed their context; they are made again by
// the next run. CatchUp waits for them, also where one step's results are another's records.
func TestMapAsyncStopAndCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := topic.New[string, int]("in"), topic.New[string, int]("out")
		var stuck atomic.Bool
		var calls atomic.Int64
		call := func(ctx context.Context, v int) (int, error) {
			calls.Add(1)
			if stuck.Load() {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			time.Sleep(3 * time.Second)
			return v + 1, nil
		}
		build := func() *stream.Topology {
			app := stream.New("stops").OnError(stream.Skip()) // not for calls that the stop ends
			app.Stream(in).MapAsync(stream.Async{}, call).As("first").KeyBy(func(v int) string { return fmt.Sprint("k", v%2) }).
				GroupByKey().Process(stream.ProcessFunc[string, int, struct{}, int](func(ctx *stream.Context[string, struct{}, int], v int) error {
				ctx.Emit(v)
				return nil
			})).As("between").MapAsync(stream.Async{}, call).As("second").To(out)
			return app
		}
		n := openNode(t, vfs.NewMem())
		sendValues(t, n, in, 4, 4)
		stuck.Store(true)
		job := n.start(t, build())
		synctest.Wait()
		require.EqualValues(t, 4, calls.Load())
		begun := time.Now()
		require.NoError(t, job.Stop(t.Context()))
		require.Less(t, time.Since(begun), time.Second)
		require.Zero(t, job.Lag(), "the records are part of the checkpoint")
		require.Empty(t, committed(t, n, out))

		stuck.Store(false)
		calls.Store(0)
		job = n.start(t, build())
		require.NoError(t, job.CatchUp(t.Context()))
		require.EqualValues(t, 8, calls.Load())
		got := committed(t, n, out)
		require.ElementsMatch(t, []int{2, 4}, got["k1"], "whichever call is over first")
		require.ElementsMatch(t, []int{3, 5}, got["k0"])
		require.NoError(t, job.Stop(t.Context()))
		require.NoError(t, n.plane.Close())
	})
}

// The same step, driven by hand: records without key or value keep their place, and time that has
// gone on before a crash is not taken back by it.
func TestMapAsyncRecordsWithoutCalls(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[string, int]("out")
	app := stream.New("plain")
	app.Stream(in).MapAsync(stream.Async{}, func(_ context.Context, v int) (int, error) { return v + 1, nil }).To(out)
	d := streamtest.New(t, app)
	d.Input(in).SendAt(at(1), "k", 1)
	d.Input(in).SendRecord(topic.Record[string, int]{Key: "k", Deleted: true, Time: at(2), Headers: []topic.Header{{Key: "h", Value: []byte("x")}}})
	d.Input(in).SendRecord(topic.Record[string, int]{Value: 7, NoKey: true, Time: at(3)})
	var got []string
	for _, r := range d.Output(out).Records() {
		got = append(got, fmt.Sprint(r.Key, r.Value, r.NoKey, r.Deleted, r.Time.UnixMilli(), len(r.Headers)))
	}
	require.Equal(t, []string{"k2 false false 1 0", "k0 false true 2 1", "8 true false 3 0"}, got)
}

// asyncJob is a pipeline whose calls are made in any order: between two shuffles, with
// windows behind that would drop what comes late.
type asyncJob struct {
	in      topic.Topic[string, int]
	out     topic.Topic[string, int]
	windows topic.Topic[window.Key[string], int64]
	records int
}

func newAsyncJob(sync log.Sync, records int) asyncJob {
	return asyncJob{
		in:      topic.New[string, int]("in").Partitions(2).Sync(sync),
		out:     topic.New[string, int]("out").Sync(sync),
		windows: topic.New[window.Key[string], int64]("windows").Sync(sync),
		records: records,
	}
}

func (a asyncJob) topology(interval time.Duration, call func(ctx context.Context, v int) (int, error)) *stream.Topology {
	app := stream.New("calls").Checkpoint(checkpoint.Every(interval)).StopAt(topic.End())
	s := app.Stream(a.in).MapAsync(stream.Async{Limit: 6}, call).As("first")
	s.To(a.out)
	s.GroupByKV(func(k string, _ int) string { return "g" + k }).Window(window.Tumbling(100*ms)).Count().As("counts").ToStream().
		MapAsync(stream.Async{Limit: 3}, func(ctx context.Context, n int64) (int64, error) {
			v, err := call(ctx, int(n))
			return int64(v), err
		}).As("second").To(a.windows)
	return app
}

// check wants each record and each window once, the records of a key in order.
func (a asyncJob) check(t *testing.T, n testNode) {
	t.Helper()
	want, wantWindows := map[string][]int{}, map[string]int64{}
	for i := range a.records {
		k := fmt.Sprint("k", i%4)
		want[k] = append(want[k], i*10)
		wantWindows[fmt.Sprintf("g%s@%d", k, i*10/100*100)] += 10
	}
	require.Equal(t, want, committed(t, n, a.out))
	gotWindows := map[string]int64{}
	for r, err := range topic.ReadToEnd(context.Background(), n, a.windows, topic.Start()) {
		require.NoError(t, err)
		id := fmt.Sprintf("%s@%d", r.Key.Key, r.Key.Start.UnixMilli())
		require.NotContains(t, gotWindows, id, "a window came twice")
		gotWindows[id] = r.Value
	}
	require.Equal(t, wantWindows, gotWindows)
}

func times10(_ context.Context, v int) (int, error) { return v * 10, nil }

// A job that is stopped at any one file operation, with calls pending at checkpoints that
// return in any order, goes on to the results of one that ran through, each once.
func TestMapAsyncStoppedAtEveryFileOperation(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("calls return by seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	stopEverywhere(t, func(sync log.Sync) bounded {
		a := newAsyncJob(sync, 60)
		fill := func(t *testing.T, n testNode) {
			sendValues(t, n, a.in, a.records, 4)
			for _, p := range partitions(t, n, a.in.Name(), 2) {
				require.NoError(t, p.Sync(t.Context()))
			}
		}
		return bounded{fill: fill, check: a.check, pick: rng.IntN,
			topology: func() *stream.Topology { return a.topology(time.Second, times10) }}
	})
}

// The same with production's goroutines, killed at random moments while calls are out.
func TestMapAsyncKilledAtRandomMoments(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	a := newAsyncJob(log.SyncByOS, 400)
	call := func(ctx context.Context, v int) (int, error) {
		select { // some take long, against checkpoints every ms
		case <-time.After(time.Duration(v*7919%13) * 100 * time.Microsecond):
		case <-ctx.Done():
			return 0, errors.New("the run is over")
		}
		return v * 10, nil
	}
	fs := vfs.NewMem()
	n := openNode(t, fs)
	sendValues(t, n, a.in, a.records, 4)
	for range *kills {
		job := n.start(t, a.topology(time.Millisecond, call))
		select {
		case <-time.After(time.Duration(rng.IntN(int(20 * time.Millisecond)))):
		case <-job.Done():
			require.NoError(t, job.Wait())
		}
		image := fs.Kill()
		n.abandon(job)
		fs = image
		n = openNode(t, fs)
	}
	job := n.start(t, a.topology(time.Millisecond, call))
	require.NoError(t, job.Wait())
	a.check(t, n)
	require.NoError(t, n.plane.Close())
}

// What cannot work is told when the topology is validated.
func TestMapAsyncFaults(t *testing.T) {
	in := topic.New[string, int]("in")
	for want, how := range map[string]stream.Async{
		"Async.Limit of -1":   {Limit: -1},
		"Async.Retries of -2": {Retries: -2},
		"MaxBackoff of 1s":    {Backoff: time.Minute, MaxBackoff: time.Second},
	} {
		app := stream.New("faults")
		app.Stream(in).MapAsync(how, times10)
		require.ErrorContains(t, app.Validate(), want)
	}
	app := stream.New("faults")
	app.Stream(in).MapAsync[int](stream.Async{}, nil)
	require.ErrorContains(t, app.Validate(), "map async needs a function")
}
