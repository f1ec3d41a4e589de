package stream_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// explosive is a codec that panics on a value.
type explosive struct{}

func (explosive) Append(dst []byte, v int) ([]byte, error) {
	if v == 13 {
		panic("boom")
	}
	return append(dst, byte(v)), nil
}
func (explosive) Decode(src []byte) (int, error) { return int(src[0]), nil }

// A panic, or the end of the goroutine, wherever the program's code is called ends the
// job with a Failure, and the node goes on.
func TestEveryUserFunctionMayFail(t *testing.T) {
	in := topic.New[string, int]("in")
	boom := func(v int) int {
		if v == 13 {
			panic("boom")
		}
		return v
	}
	text := func(v int) string { return fmt.Sprint(boom(v)) }
	out := topic.New[string, int]("out")
	for name, build := range map[string]func(app *stream.Topology){
		"peek": func(app *stream.Topology) {
			app.Stream(in).Peek(func(r topic.Record[string, int]) { boom(r.Value) }).To(out)
		},
		"goexit": func(app *stream.Topology) {
			app.Stream(in).Map(func(v int) int {
				if v == 13 {
					runtime.Goexit()
				}
				return v
			}).To(out)
		},
		"map async": func(app *stream.Topology) {
			app.Stream(in).MapAsync(stream.Async{}, func(_ context.Context, v int) (int, error) { return boom(v), nil }).To(out)
		},
		"goexit of a call": func(app *stream.Topology) {
			app.Stream(in).MapAsync(stream.Async{}, func(_ context.Context, v int) (int, error) {
				if v == 13 {
					runtime.Goexit()
				}
				return v, nil
			}).To(out)
		},
		"aggregate": func(app *stream.Topology) {
			app.Stream(in).GroupBy(func(int) string { return "all" }).Aggregate(func(a, v int) int { return a + boom(v) }).To(out)
		},
		"window": func(app *stream.Topology) {
			app.Stream(in).GroupByKey().Window(window.Tumbling(ms)).Aggregate(func(a, v int) int { return a + boom(v) })
		},
		"group by": func(app *stream.Topology) { app.Stream(in).GroupBy(text).Count() },
		"codec":    func(app *stream.Topology) { app.Stream(in).To(topic.New[string, int]("coded").ValueCodec(explosive{})) },
		"state codec": func(app *stream.Topology) {
			app.Use(explosive{}).Stream(in).GroupByKey().Reduce(func(a, b int) int { return max(a, b) })
		},
		"partitioner": func(app *stream.Topology) {
			app.Stream(in).KeyBy(func(v int) int { return v }).To(topic.New[int, int]("parted").PartitionBy(func(k, n int) int { return boom(k) % n }))
		},
		"event time of a topic": func(app *stream.Topology) {
			app.Stream(in.EventTime(func(v int) time.Time { return at(int64(boom(v))) })).To(out)
		},
		"event time": func(app *stream.Topology) {
			app.Stream(in).EventTime(func(v int) time.Time { return at(int64(boom(v))) }).To(out)
		},
		"flat map": func(app *stream.Topology) {
			app.Stream(in).FlatMap(func(v int) iter.Seq[int] {
				return func(yield func(int) bool) { _ = yield(1) && yield(boom(v)) }
			}).To(out)
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			n := openNode(t, vfs.NewMem())
			app := stream.New("fails").Checkpoint(checkpoint.Every(2 * time.Millisecond))
			build(app)
			job := n.start(t, app)
			healthy := stream.New("healthy").Checkpoint(checkpoint.Every(2 * time.Millisecond))
			healthy.Stream(in).GroupByKey().Count().To(topic.New[string, int64]("counted"))
			other := n.start(t, healthy)
			p, err := topic.NewProducer(t.Context(), n, in, topic.ProducerOptions{})
			require.NoError(t, err)
			for _, v := range []int{1, 13, 2} {
				require.NoError(t, p.Send(t.Context(), "k", v))
			}
			require.NoError(t, p.Close())
			var f *stream.Failure
			require.ErrorAs(t, job.Wait(), &f)
			require.NotEmpty(t, f.Line, f.Error())
			require.NoError(t, other.CatchUp(t.Context()))
			require.NoError(t, other.Stop(t.Context()))
			require.NoError(t, n.plane.Close())
			for range 1000 {
				if runtime.NumGoroutine() <= before {
					break
				}
				runtime.Gosched()
				time.Sleep(time.Millisecond)
			}
			if now := runtime.NumGoroutine(); now > before {
				buf := make([]byte, 1<<16)
				t.Fatalf("%d goroutines before, %d after\n%s", before, now, buf[:runtime.Stack(buf, true)])
			}
		})
	}
}

// Stop comes back although a function does not, and says where.
func TestStopWhileAFunctionBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := topic.New[string, int]("in")
		blocked, release := make(chan struct{}), make(chan struct{})
		app := stream.New("blocks")
		app.Stream(in).Map(func(v int) int { close(blocked); <-release; return v }).To(topic.New[string, int]("out"))
		n := openNode(t, vfs.NewMem())
		job := n.start(t, app)
		send(t, n, in, "k")
		<-blocked
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorContains(t, job.Stop(ctx), "source-in/0")
		require.ErrorContains(t, job.Stop(ctx), "has not returned", "with an ended context")
		close(release)
		require.NoError(t, job.Wait())
		require.NoError(t, n.plane.Close())
	})
}

// CatchUp does not wait for the interval of the checkpoints.
func TestCatchUpWithRareCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := topic.New[string, int]("in"), topic.New[string, int64]("out")
		app := stream.New("rare").Checkpoint(checkpoint.Every(time.Hour))
		app.Stream(in).Map(func(v int) int { time.Sleep(time.Second); return v }).GroupByKey().Count().To(out)
		n := openNode(t, vfs.NewMem())
		job := n.start(t, app)
		send(t, n, in, "a", "b", "c", "d")
		begun := time.Now()
		require.NoError(t, job.CatchUp(t.Context()))
		require.Less(t, time.Since(begun), time.Minute)
		require.Len(t, committedCounts(t, n, out), 4)
		require.NoError(t, job.Stop(t.Context()))
		require.NoError(t, n.plane.Close())
	})
}

// Credits, budgets and barriers do not wait for each other: many tasks, many records of
// one, hardly any memory, a checkpoint each millisecond.
func TestNoDeadlockUnderPressure(t *testing.T) {
	const partitions, perRecord, records = 16, 3000, 40
	in := topic.New[string, int]("in").Partitions(partitions)
	out, totals := topic.New[window.Key[int], int64]("out").Partitions(partitions), topic.New[int, int64]("totals")
	app := stream.New("pressed").Checkpoint(checkpoint.Every(time.Millisecond)).Disorder(time.Hour).StopAt(topic.End())
	s := app.Stream(in).FlatMap(func(v int) iter.Seq[int] {
		return func(yield func(int) bool) {
			for i := range perRecord {
				if !yield(i) {
					return
				}
			}
		}
	})
	s.GroupBy(func(v int) int { return v % 997 }).Window(window.Tumbling(time.Second)).Count().To(out)
	s.GroupBy(func(v int) int { return v % 7 }).Count().As("sevens").ToStream().
		GroupByKV(func(k int, _ int64) int { return k % 2 }).Count().As("halves").ToStream().Filter(func(int64) bool { return false }).To(totals)
	n := openNode(t, vfs.NewMem())
	p, err := topic.NewProducer(t.Context(), n, in, topic.ProducerOptions{})
	require.NoError(t, err)
	for i := range records {
		_, _, err := p.SendRecord(t.Context(), topic.Record[string, int]{Key: fmt.Sprint(i), Value: i, Time: at(int64(i))})
		require.NoError(t, err)
	}
	require.NoError(t, p.Close())
	job, err := stream.Start(t.Context(), stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state", StateMemory: 1 << 20}, app)
	require.NoError(t, err)
	select {
	case <-job.Done():
	case <-time.After(time.Minute):
		buf := make([]byte, 1<<20)
		t.Fatalf("the job stands still: %+v\n%s", job.Status(), buf[:runtime.Stack(buf, true)])
	}
	require.NoError(t, job.Wait())
	var sum int64
	for r, err := range topic.ReadToEnd(t.Context(), n, out, topic.Start()) {
		require.NoError(t, err)
		sum += r.Value
	}
	require.EqualValues(t, perRecord*records, sum)
	require.NoError(t, n.plane.Close())
}

// A disk that refuses what a job writes ends the job with its error; the node and its
// other jobs live, and when the log is opened with the disk well again the next run goes on exactly.
func TestSinkFailsInTheMiddle(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, syscall.EIO} {
		for _, where := range []string{"node/out-0", "changelog-0"} {
			t.Run(fmt.Sprint(fault, " ", where), func(t *testing.T) {
				in := topic.New[string, int]("in").Partitions(2)
				out, fine := topic.New[string, int64]("out"), topic.New[string, int]("fine")
				app := stream.New("sinks").Checkpoint(checkpoint.Every(time.Millisecond))
				app.Stream(in).GroupByKV(func(k string, _ int) string { return k }).Emit(window.OnUpdate).Count().To(out)
				copying := stream.New("copies").Checkpoint(checkpoint.Every(time.Millisecond))
				copying.Stream(in).To(fine)
				fs := vfs.NewMem()
				n := openNode(t, fs)
				job, other := n.start(t, app), n.start(t, copying)
				send(t, n, in, "a", "b", "c")
				require.NoError(t, job.CatchUp(t.Context()))
				var hits atomic.Int64
				fs.SetHook(func(op vfs.Op) error {
					if (op.Kind == vfs.OpWrite || op.Kind == vfs.OpMappedWrite || op.Kind == vfs.OpAllocate) && strings.Contains(op.Name, where) {
						hits.Add(1)
						return fault
					}
					return nil
				})
				send(t, n, in, "a", "b", "c")
				err := job.Wait()
				require.Error(t, err)
				require.Positive(t, hits.Load())
				require.ErrorIs(t, err, fault)
				require.NoError(t, other.CatchUp(t.Context()))
				fs.SetHook(nil)
				require.NoError(t, other.Stop(t.Context()))
				require.ErrorContains(t, n.plane.Close(), "offline", "what is on the disk is not known before the log is opened anew")
				n = openNode(t, fs)
				job = n.start(t, app)
				send(t, n, in, "a")
				require.NoError(t, job.CatchUp(t.Context()))
				require.Equal(t, map[string]int64{"a": 3, "b": 2, "c": 2}, committedCounts(t, n, out))
				all := 0
				for range topic.ReadToEnd(t.Context(), n, out, topic.Start()) {
					all++
				}
				require.Equal(t, 7, all, "each update once")
				require.NoError(t, job.Stop(t.Context()))
				require.NoError(t, n.plane.Close())
			})
		}
	}
}

// A job that reads what another one commits, both killed at random, counts everything once.
func TestChainedJobsKilledAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	in := topic.New[string, int]("in").Partitions(2)
	middle := topic.New[string, int]("middle").Partitions(3)
	out := topic.New[string, int64]("out")
	const keys, records = 17, 5000
	first := func() *stream.Topology {
		app := stream.New("first").Checkpoint(checkpoint.Every(time.Millisecond))
		app.Stream(in).KeyBy(func(v int) string { return fmt.Sprint("m", v%keys) }).To(middle)
		return app
	}
	second := func() *stream.Topology {
		app := stream.New("second").Checkpoint(checkpoint.Every(2 * time.Millisecond))
		app.Stream(middle).GroupByKey().Count().To(out)
		return app
	}
	fs := vfs.NewMem()
	n := openNode(t, fs)
	p, err := topic.NewProducer(t.Context(), n, in, topic.ProducerOptions{})
	require.NoError(t, err)
	for i := range records {
		require.NoError(t, p.Queue(t.Context(), fmt.Sprint(i), i))
	}
	require.NoError(t, p.Close())
	for range *kills {
		a, b := n.start(t, first()), n.start(t, second())
		time.Sleep(time.Duration(rng.IntN(int(15 * time.Millisecond)))) // when the process dies
		image := fs.Kill()
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		_, _ = a.Stop(gone), b.Stop(gone)
		_ = n.plane.Close()
		fs = image
		n = openNode(t, fs)
	}
	a, b := n.start(t, first()), n.start(t, second())
	require.NoError(t, a.CatchUp(t.Context()))
	require.NoError(t, b.CatchUp(t.Context()))
	want := map[string]int64{}
	for i := range records {
		want[fmt.Sprint("m", i%keys)]++
	}
	require.Equal(t, want, committedCounts(t, n, out))
	require.NoError(t, errors.Join(a.Stop(t.Context()), b.Stop(t.Context()), n.plane.Close()))
}
