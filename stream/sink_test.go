package stream_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
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
)

// outside is a plain sink that outlives the process: it keeps every delivery.
type outside struct {
	mu      sync.Mutex
	byID    map[string]int
	all     []stream.Output[string, int]
	fail    func(call int) error
	calls   int
	largest int
}

func (o *outside) Write(_ context.Context, batch []stream.Output[string, int]) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	o.largest = max(o.largest, len(batch))
	if o.fail != nil {
		if err := o.fail(o.calls); err != nil {
			return err
		}
	}
	if o.byID == nil {
		o.byID = map[string]int{}
	}
	for _, r := range batch {
		if v, ok := o.byID[r.ID]; ok && v != r.Value {
			return fmt.Errorf("%s named %d and now names %d", r.ID, v, r.Value)
		}
		o.byID[r.ID] = r.Value
		o.all = append(o.all, r)
	}
	return nil
}

func (o *outside) values() (all []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.all {
		all = append(all, r.Value)
	}
	return all
}

// A sink gets what is committed and nothing before, in order, with IDs made of job,
// step, sink partition and offset.
func TestSinkGetsCommittedRecords(t *testing.T) {
	in := topic.New[string, int]("in")
	out := &outside{}
	app := stream.New("job")
	app.Stream(in).Map(func(v int) int { return v * 10 }).Sink(out).As("mail").Batch(2)
	d := streamtest.New(t, app)
	for i := range 5 {
		d.Input(in).SendAt(at(int64(i)), "k", i)
	}
	d.Process()
	require.Empty(t, out.values(), "not committed yet")
	d.Checkpoint()
	require.Equal(t, []int{0, 10, 20, 30, 40}, out.values())
	require.Equal(t, 2, out.largest)
	require.Equal(t, "job/mail/0/0", out.all[0].ID)
	require.Equal(t, "job/mail/0/4", out.all[4].ID)
	require.Equal(t, at(4), out.all[4].Time)
	require.Equal(t, "k", out.all[4].Key)
	d.Checkpoint()
	d.Crash()
	d.Checkpoint()
	require.Len(t, out.values(), 5, "delivered, and a checkpoint says so")
	task := d.Status().Tasks[1]
	require.Equal(t, "sink-mail", task.Stage)
	require.Zero(t, task.Undelivered)
}

// What a crash finds delivered and not yet in a checkpoint comes again, with its ID.
func TestSinkRepeatsWithTheSameIDs(t *testing.T) {
	in := topic.New[string, int]("in").Partitions(3)
	out := &outside{}
	app := stream.New("job")
	app.Stream(in).Sink(out)
	d := streamtest.New(t, app)
	for round := range 5 {
		for i := range 10 {
			d.Input(in).Send(fmt.Sprint(i), round*10+i)
		}
		d.Checkpoint() // commits, and the sink gets them, but no checkpoint says so
		d.Crash()
	}
	d.Checkpoint()
	d.Checkpoint()
	require.Len(t, out.byID, 50)
	require.Greater(t, len(out.all), 50, "some came twice")
	met, last := map[string]bool{}, map[string]int{}
	for _, r := range out.all {
		if met[r.ID] {
			continue
		}
		met[r.ID] = true
		require.GreaterOrEqual(t, r.Value, last[r.Key], "of a key in order")
		last[r.Key] = r.Value
	}
}

// Records without a key or without a value, headers and times arrive as they are.
func TestSinkGetsWhatRecordsAre(t *testing.T) {
	in := topic.New[string, int]("in")
	out := &outside{}
	app := stream.New("job")
	app.Stream(in).Sink(out)
	d := streamtest.New(t, app)
	d.Input(in).SendRecord(topic.Record[string, int]{NoKey: true, Value: 1, Time: at(1), Headers: []topic.Header{{Key: "h", Value: []byte("v")}}})
	d.Input(in).SendRecord(topic.Record[string, int]{Key: "k", Deleted: true, Time: at(-2)})
	d.Checkpoint()
	require.Len(t, out.all, 2)
	require.True(t, out.all[0].NoKey)
	require.Equal(t, []topic.Header{{Key: "h", Value: []byte("v")}}, out.all[0].Headers)
	require.True(t, out.all[1].Deleted)
	require.Equal(t, at(-2), out.all[1].Time)
}

// Each goes on where its function returned an error, later and later.
func TestEachTriesAgain(t *testing.T) {
	in := topic.New[string, int]("in")
	var got []int
	away := true
	app := stream.New("job")
	app.Stream(in).Each(func(_ context.Context, r topic.Record[string, int]) error {
		if r.Value == 2 && away {
			return errors.New("away")
		}
		got = append(got, r.Value)
		return nil
	})
	d := streamtest.New(t, app)
	for i := range 4 {
		d.Input(in).Send("k", i)
	}
	d.Checkpoint()
	require.Equal(t, []int{0, 1}, got)
	d.Advance(100 * time.Millisecond)
	d.Advance(time.Second)
	task := d.Status().Tasks[1]
	require.EqualValues(t, 3, task.Retries, "after 100 and 200 ms")
	require.ErrorContains(t, task.SinkErr, "write: record at offset 2: away")
	require.EqualValues(t, 4+1, task.Undelivered, "the marker counts")
	away = false
	d.Advance(399 * time.Millisecond)
	require.Equal(t, []int{0, 1}, got)
	d.Advance(time.Minute)
	require.Equal(t, []int{0, 1, 2, 3}, got, "none twice")
	require.NoError(t, d.Status().Tasks[1].SinkErr)
}

// Tries bounds it, and a panic is the end at once.
func TestSinkEndsTheJob(t *testing.T) {
	in := topic.New[string, int]("in")
	for name, c := range map[string]struct {
		f     func() error
		tries int
		want  string
	}{
		"tries":  {func() error { return errors.New("away") }, 3, "3 tries in a row failed, the last one: write: record at offset 0: away"},
		"panic":  {func() error { panic("boom") }, 0, "panic: boom"},
		"goexit": {func() error { runtime.Goexit(); return nil }, 0, "Goexit"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				app := stream.New("job")
				app.Stream(in).Each(func(context.Context, topic.Record[string, int]) error { return c.f() }).As("e").Tries(c.tries)
				n := openNode(t, vfs.NewMem())
				job := n.start(t, app)
				send(t, n, in, "a", "b")
				var f *stream.Failure
				require.ErrorAs(t, job.Wait(), &f)
				require.ErrorContains(t, f, c.want)
				require.Equal(t, "e", f.Step)
				require.Contains(t, f.Line, "sink_test.go")
				require.NoError(t, n.plane.Close())
			})
		})
	}
}

// Two sinks that would share their records, a batch of nothing, and a sink that is
// none, are mistakes.
func TestSinkMistakes(t *testing.T) {
	in := topic.New[string, int]("in")
	app := stream.New("job")
	s := app.Stream(in)
	s.Sink(nil).As("nil").Batch(0).Backlog(0).Tries(-1)
	s.Each(func(context.Context, topic.Record[string, int]) error { return nil })
	s.Each(func(context.Context, topic.Record[string, int]) error { return nil })
	stream.Stream[string, int].Map[func()](s, func(int) func() { return nil }).Each(func(context.Context, topic.Record[string, func()]) error { return nil }).As("f")
	err := app.Validate()
	for _, want := range []string{"needs a Sink", "batch of 0", "backlog of 0", "-1 tries", `ambiguous: its derived name "in-each"`, "no codec for values of type func()"} {
		require.ErrorContains(t, err, want)
	}
}

// CatchUp waits for the sinks, a bounded run ends when they have all, and a sink that
// is away holds up neither other outputs nor Stop; the next run gives it the rest.
func TestSinkInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, lines := topic.New[string, int]("in").Partitions(2), topic.New[string, int]("lines")
		out := &outside{}
		build := func(stop bool) *stream.Topology {
			app := stream.New("job").Checkpoint(checkpoint.Every(10 * time.Millisecond))
			if stop {
				app.StopAt(topic.End())
			}
			s := app.Stream(in)
			s.Sink(out)
			s.To(lines)
			return app
		}
		n := openNode(t, vfs.NewMem())
		job := n.start(t, build(false))
		send(t, n, in, "a", "b", "c")
		require.NoError(t, job.CatchUp(t.Context()))
		require.Len(t, out.values(), 3)
		away := errors.New("away")
		out.fail = func(int) error { return away }
		send(t, n, in, "d", "e")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, job.CatchUp(ctx), context.DeadlineExceeded)
		var count int
		for range topic.ReadToEnd(t.Context(), n, lines, topic.Start()) {
			count++
		}
		require.Equal(t, 5, count)
		require.NoError(t, job.Stop(t.Context()))
		out.fail = nil
		job = n.start(t, build(true))
		require.NoError(t, job.Wait())
		require.Len(t, out.values(), 5)
		job = n.start(t, build(true))
		require.NoError(t, job.Wait())
		require.Len(t, out.values(), 5, "none again")
		require.NoError(t, n.plane.Close())
	})
}

// Stop lets a Write that is under way finish, and its records do not come again.
func TestStopWaitsForTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := topic.New[string, int]("in")
		out := &outside{fail: func(int) error { time.Sleep(time.Second); return nil }}
		app := stream.New("job").Checkpoint(checkpoint.Every(10 * time.Millisecond))
		app.Stream(in).Sink(out)
		n := openNode(t, vfs.NewMem())
		job := n.start(t, app)
		send(t, n, in, "a", "b", "c")
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, job.Stop(t.Context()))
		require.Len(t, out.values(), 3)
		job = n.start(t, app)
		require.NoError(t, job.CatchUp(t.Context()))
		require.NoError(t, job.Stop(t.Context()))
		require.Len(t, out.values(), 3)
		require.NoError(t, n.plane.Close())
	})
}

// Sources wait for a sink that is far behind, and go on with it.
func TestSlowSinkSlowsTheSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := topic.New[string, int]("in")
		var mu sync.Mutex
		away := true
		out := &outside{fail: func(int) error {
			mu.Lock()
			defer mu.Unlock()
			if away {
				return errAway
			}
			return nil
		}}
		app := stream.New("job").Checkpoint(checkpoint.Every(10 * time.Millisecond))
		app.Stream(in).FlatMap(func(v int) iter.Seq[int] { return slices.Values(make([]int, 100)) }).Sink(out).Backlog(1000)
		n := openNode(t, vfs.NewMem())
		job := n.start(t, app)
		for range 300 { // one batch of the log, and one step of the source, each
			send(t, n, in, "k")
			time.Sleep(11 * time.Millisecond)
		}
		behind := job.Status().Tasks[1].Undelivered
		require.Greater(t, behind, int64(1000))
		require.Less(t, behind, int64(2000), "of 30000")
		require.Greater(t, job.Lag(), int64(250))
		mu.Lock()
		away = false
		mu.Unlock()
		require.NoError(t, job.CatchUp(t.Context()))
		require.Len(t, out.values(), 30_000)
		require.NoError(t, job.Stop(t.Context()))
		require.NoError(t, n.plane.Close())
	})
}

// What was delivered, and is in a checkpoint, is deleted from the internal topic.
func TestDeliveredRecordsAreDeleted(t *testing.T) {
	in := topic.New[string, int]("in")
	out := &outside{}
	app := stream.New("job")
	app.Stream(in).FlatMap(func(v int) iter.Seq[int] { return slices.Values(make([]int, 1000)) }).Sink(out)
	n := openNode(t, vfs.NewMem())
	job := n.start(t, app)
	for range 10 {
		send(t, n, in, "a", "b", "c", "d", "e")
		require.NoError(t, job.CatchUp(t.Context()))
	}
	require.NoError(t, job.Stop(t.Context()))
	p, err := n.plane.Log().Partition(topic.TopicPartition{Topic: "__job-in-sink-sink"})
	require.NoError(t, err)
	require.Greater(t, p.Start(), log.Offset(30_000))
	require.Less(t, p.Start(), p.End().Offset)
	require.Len(t, out.values(), 50_000)
	job = n.start(t, app)
	require.NoError(t, job.CatchUp(t.Context()))
	require.NoError(t, job.Stop(t.Context()))
	require.Len(t, out.values(), 50_000)
	require.NoError(t, n.plane.Close())
}
