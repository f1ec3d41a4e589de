package stream_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// rowTexts are rows as text, in their order.
func rowTexts[K, V any](t *testing.T, rows iter.Seq2[stream.Row[K, V], error]) (all []string) {
	t.Helper()
	for r, err := range rows {
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%v=%v @%d", r.Key, r.Value, r.Time.UnixMilli()))
	}
	return all
}

// A view reads what is committed, and what is not only if it is asked to; a crash takes back
// none of the first.
func TestViewOfAggregate(t *testing.T) {
	ctx := t.Context()
	in := topic.New[string, int]("in").Partitions(3)
	app := stream.New("viewed")
	counts := app.Stream(in).GroupBy(func(v int) string { return fmt.Sprint("k", v%5) }).Count()
	d := streamtest.New(t, app)
	for i := range 10 {
		d.Input(in).SendAt(at(int64(i)), fmt.Sprint(i), i)
	}
	require.Empty(t, rowTexts(t, d.View(counts).All(ctx)))
	n, ok := d.Get(counts, "k3")
	require.True(t, ok)
	require.EqualValues(t, 2, n)
	d.Checkpoint()
	d.Input(in).SendAt(at(20), "x", 3)
	d.Input(in).SendAt(at(21), "x", 8)
	d.Process()

	view := d.View(counts)
	require.Equal(t, []string{"k0=2 @5", "k1=2 @6", "k2=2 @7", "k3=2 @8", "k4=2 @9"}, rowTexts(t, view.All(ctx)))
	require.Equal(t, []string{"k0=2 @5", "k1=2 @6", "k2=2 @7", "k3=4 @21", "k4=2 @9"}, rowTexts(t, view.Latest().All(ctx)))
	require.Equal(t, []string{"k1=2 @6", "k2=2 @7"}, rowTexts(t, view.Range(ctx, "k1", "k3")))
	require.Equal(t, []string{"k3=4 @21"}, rowTexts(t, view.Latest().Prefix(ctx, "k3")))
	require.Len(t, rowTexts(t, view.Prefix(ctx, "k")), 5)
	require.Empty(t, rowTexts(t, view.Prefix(ctx, "j")))
	n, ok, err := view.Get(ctx, "k3")
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 2, n)
	_, ok, err = view.Get(ctx, "none")
	require.NoError(t, err)
	require.False(t, ok)

	d.Crash()
	n, ok = d.Get(counts, "k3")
	require.True(t, ok)
	require.EqualValues(t, 4, n)
}

// A table of a topic follows its deletions, in both kinds of view, and so does what Filter,
// Map and joins make of it.
func TestViewOfDerivedTables(t *testing.T) {
	ctx := t.Context()
	left, right := topic.New[string, int]("left").Partitions(2), topic.New[string, int]("right").Partitions(2)
	app := stream.New("derived")
	l, r := app.Table(left), app.Table(right)
	even := l.Filter(func(v int) bool { return v%2 == 0 })
	tens := even.MapKV(func(k string, v int) string { return fmt.Sprint(k, v*10) })
	inner := l.Join(r, func(a, b int) string { return fmt.Sprint(a, "+", b) })
	outer := even.OuterJoin(r, func(a int, okA bool, b int, okB bool) string { return fmt.Sprint(a, okA, b, okB) })
	inner.ToStream().To(topic.New[string, string]("inner"))
	outer.ToStream().To(topic.New[string, string]("outer"))
	d := streamtest.New(t, app)
	for i, k := range []string{"a", "b", "c", "d"} {
		d.Input(left).SendAt(at(int64(i)), k, i)
	}
	for i, k := range []string{"c", "d", "e"} {
		d.Input(right).SendAt(at(int64(10+i)), k, i)
	}
	d.Checkpoint()
	require.Equal(t, []string{"a=0 @0", "c=2 @2"}, rowTexts(t, d.View(even).All(ctx)))
	require.Equal(t, []string{"a=a0 @0", "c=c20 @2"}, rowTexts(t, d.View(tens).All(ctx)))
	require.Equal(t, []string{"c=2+0 @10", "d=3+1 @11"}, rowTexts(t, d.View(inner).All(ctx)))
	require.Equal(t, []string{"a=0 true 0 false @0", "c=2 true 0 true @10", "d=0 false 1 true @11", "e=0 false 2 true @12"}, rowTexts(t, d.View(outer).All(ctx)))
	d.Input(left).SendRecord(topic.Record[string, int]{Key: "c", Deleted: true, Time: at(20)})
	d.Input(left).SendAt(at(21), "d", 4)
	d.Process()
	for range 2 { // not committed, and then committed
		require.Equal(t, []string{"a=a0 @0", "d=d40 @21"}, rowTexts(t, d.View(tens).Latest().All(ctx)))
		require.Equal(t, []string{"d=4+1 @21"}, rowTexts(t, d.View(inner).Latest().All(ctx)))
		v, ok := d.Get(inner, "d")
		require.True(t, ok)
		require.Equal(t, "4+1", v)
		_, ok = d.Get(inner, "c")
		require.False(t, ok)
		_, ok = d.Get(tens, "c")
		require.False(t, ok)
		d.Checkpoint()
	}
	require.Equal(t, []string{"a=a0 @0", "d=d40 @21"}, rowTexts(t, d.View(tens).All(ctx)))
	require.Equal(t, []string{"a=0 true 0 false @0", "c=0 false 0 true @10", "d=4 true 1 true @21", "e=0 false 2 true @12"}, rowTexts(t, d.View(outer).All(ctx)))
}

// A join on a foreign key keeps its rows, under the keys of the left table.
func TestViewOfForeignKeyJoin(t *testing.T) {
	left, right := topic.New[string, int]("left").Partitions(2), topic.New[string, int]("right").Partitions(3)
	app := stream.New("foreign")
	joined := app.Table(left).JoinOn(app.Table(right), func(v int) string { return fmt.Sprint("r", v) }, func(a, b int) string { return fmt.Sprint(a, ">", b) })
	d := streamtest.New(t, app)
	for i := range 4 {
		d.Input(left).SendAt(at(int64(i)), fmt.Sprint("l", i), i)
		d.Input(right).SendAt(at(int64(10+i)), fmt.Sprint("r", i+2), i)
	}
	v, ok := d.Get(joined, "l3")
	require.True(t, ok)
	require.Equal(t, "3>1", v)
	_, ok = d.Get(joined, "l1")
	require.False(t, ok)
	d.Checkpoint()
	require.Equal(t, []string{"l2=2>0 @10", "l3=3>1 @11"}, rowTexts(t, d.View(joined).All(t.Context())))
}

// Windows are there until they close, in the order of their starts.
func TestViewOfWindows(t *testing.T) {
	ctx := t.Context()
	in := topic.New[string, int]("in").Partitions(2)
	app := stream.New("windows").Disorder(time.Second)
	s := app.Stream(in)
	hopping := s.GroupByKV(func(k string, _ int) string { return k }).Window(window.Hopping(20*ms, 10*ms)).Count().As("hopping")
	sessions := s.GroupByKV(func(k string, _ int) string { return k }).Session(window.Gap(5 * ms)).Count().As("sessions")
	d := streamtest.New(t, app)
	for _, time := range []int64{-5, 1, 2, 3, 12, 30} {
		d.Input(in).SendAt(at(time), "a", 1)
		d.Input(in).SendAt(at(time+1), "b", 1)
	}
	d.Input(in).SendAt(at(33), "b", 1)
	d.Process()
	text := func(rows iter.Seq2[stream.Row[window.Key[string], int64], error]) (all []string) {
		for r, err := range rows {
			require.NoError(t, err)
			all = append(all, fmt.Sprintf("%s[%d,%d)=%d", r.Key.Key, r.Key.Start.UnixMilli(), r.Key.End.UnixMilli(), r.Value))
		}
		return all
	}
	for _, latest := range []bool{true, false} {
		hops, sess := d.View(hopping), d.View(sessions)
		if latest {
			hops, sess = hops.Latest(), sess.Latest()
		}
		require.Equal(t, []string{
			"a[-20,0)=1", "b[-20,0)=1", "a[-10,10)=4", "b[-10,10)=4", "a[0,20)=4", "b[0,20)=4", "a[10,30)=1", "b[10,30)=1",
			"a[20,40)=1", "b[20,40)=2", "a[30,50)=1", "b[30,50)=2",
		}, text(hops.All(ctx)))
		require.Equal(t, []string{"b[-10,10)=4", "b[0,20)=4", "b[10,30)=1"}, text(stream.Windows(ctx, hops, "b", at(-10), at(20))))
		lo, hi := window.Range("", at(0), at(11))
		require.Equal(t, []string{"a[0,20)=4", "b[0,20)=4", "a[10,30)=1", "b[10,30)=1"}, text(hops.Range(ctx, lo, hi)))
		n, ok, err := hops.Get(ctx, window.Key[string]{Key: "a", Start: at(0), End: at(20)})
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, 4, n)
		_, ok, err = hops.Get(ctx, window.Key[string]{Key: "a", Start: at(0), End: at(21)})
		require.NoError(t, err)
		require.False(t, ok)
		require.ElementsMatch(t, []string{"a[-5,-5)=1", "a[1,3)=3", "a[12,12)=1", "a[30,30)=1", "b[-4,-4)=1", "b[2,4)=3", "b[13,13)=1", "b[31,33)=2"}, text(sess.All(ctx)))
		require.Equal(t, []string{"b[2,4)=3", "b[13,13)=1"}, text(stream.Windows(ctx, sess, "b", at(0), at(20))))
		_, ok, err = sess.Get(ctx, window.Key[string]{Key: "b", Start: at(31), End: at(33)})
		require.NoError(t, err)
		require.True(t, ok)
		d.Checkpoint()
	}
	d.Watermark(at(20))
	require.Equal(t, "a[10,30)=1", text(d.View(hopping).Latest().All(ctx))[0])
	require.Equal(t, []string{"a[30,30)=1", "b[31,33)=2"}, text(d.View(sessions).Latest().All(ctx)))
	require.Equal(t, "a[-20,0)=1", text(d.View(hopping).All(ctx))[0], "not committed yet")
	d.Checkpoint()
	require.Equal(t, "a[10,30)=1", text(d.View(hopping).All(ctx))[0])
}

// What cannot be read says why, and what to do instead.
func TestViewSaysWhyNot(t *testing.T) {
	ctx := context.Background()
	in := topic.New[string, int]("in")
	build := func() (*stream.Topology, stream.Table[string, int64], stream.Table[window.Key[string], int64]) {
		app := stream.New("why").Checkpoint(checkpoint.Every(time.Hour))
		grouped := app.Stream(in).GroupByKey()
		return app, grouped.Count(), grouped.Window(window.Tumbling(time.Second)).Count().As("windows").SuppressBy(stream.HoldUntilClose())
	}
	app, counts, final := build()
	_, others, _ := build()
	n := openNode(t, vfs.NewMem())
	job := n.start(t, app)
	_, _, err := job.View(others).Get(ctx, "a")
	require.ErrorContains(t, err, "another topology")
	_, _, err = job.View(final).Get(ctx, window.Key[string]{Key: "a"})
	require.ErrorContains(t, err, "ToStream().ToTable()")
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, _, err = job.View(counts).Latest().Get(gone, "a")
	if err != nil { // the task may be faster
		require.ErrorIs(t, err, context.Canceled)
	}

	send(t, n, in, "a", "b")
	require.NoError(t, job.CatchUp(ctx))
	next, stop := iter.Pull2(job.View(counts).All(ctx))
	defer stop()
	r, err, ok := next()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "a", r.Key)
	sub, err := job.View(counts).Subscribe(ctx)
	require.NoError(t, err)
	require.NoError(t, job.Stop(ctx), "a walk that is under way does not hold up the end")
	for ok && err == nil {
		_, err, ok = next() // it goes on with what it has read already
	}
	if err != nil {
		require.ErrorIs(t, err, stream.ErrStopped)
	}
	for _, view := range []*stream.View[string, int64]{job.View(counts), job.View(counts).Latest()} {
		_, _, err = view.Get(ctx, "a")
		require.ErrorIs(t, err, stream.ErrStopped)
		require.ErrorContains(t, err, `job "why" is over`)
		for _, err := range view.All(ctx) {
			require.ErrorIs(t, err, stream.ErrStopped)
		}
		_, err = view.Subscribe(ctx)
		require.ErrorIs(t, err, stream.ErrStopped)
	}
	for _, err := range sub.Changes(ctx) {
		require.ErrorIs(t, err, stream.ErrStopped)
	}
	for _, err := range sub.Rows(ctx) {
		require.ErrorContains(t, err, "before its changes")
	}
	require.NoError(t, sub.Close())
	require.NoError(t, n.plane.Close())
}

// transfers is a pipeline in which each record takes from one account what it gives to
// another: at every instant that is one, all accounts sum up to nothing.
type transfers struct {
	in      topic.Topic[string, int]
	sums    stream.Table[string, int]
	moves   stream.Table[string, int64]
	twins   stream.Table[string, int64] // moves joined with its like: never negative
	app     *stream.Topology
	records int
}

func newTransfers() *transfers {
	tr := &transfers{in: topic.New[string, int]("transfers").Partitions(3)}
	tr.app = stream.New("transfers").Checkpoint(checkpoint.Every(2 * time.Millisecond))
	both := tr.app.Stream(tr.in).FlatMap(func(v int) iter.Seq[int] {
		return func(yield func(int) bool) { _ = yield(v) && yield(-v) }
	}).GroupBy(func(v int) string { return account(v) })
	tr.sums = both.Aggregate(func(a, v int) int {
		if v > 0 {
			return a + v%97
		}
		return a - -v%97
	}).As("sums")
	tr.moves = both.Count().As("moves")
	tr.twins = tr.moves.Join(both.Count().As("like"), func(a, b int64) int64 {
		if a != b {
			return -1 // of two checkpoints
		}
		return a
	})
	return tr
}

// account is where v goes: what is taken comes from another one.
func account(v int) string {
	if v < 0 {
		return fmt.Sprint("account ", (-v/7)%50)
	}
	return fmt.Sprint("account ", v%50)
}

// load sends records until ctx ends.
func (tr *transfers) load(ctx context.Context, t *testing.T, n testNode) {
	p, err := topic.NewProducer(context.Background(), n, tr.in, topic.ProducerOptions{})
	require.NoError(t, err)
	for ctx.Err() == nil {
		for range 20 {
			tr.records++
			require.NoError(t, p.Queue(context.Background(), fmt.Sprint(tr.records), 1+rand.IntN(1e6)))
		}
		require.NoError(t, p.Flush(context.Background()))
	}
	require.NoError(t, p.Close())
}

// All rows of a view are of one instant, however many shards and whatever the load; a
// subscription misses nothing and doubles nothing, also when the job has run before.
func TestViewsAndSubscriptionsUnderLoad(t *testing.T) {
	ctx := t.Context()
	tr := newTransfers()
	fs := vfs.NewMem()
	n := openNode(t, fs)
	for run := range 3 {
		job, err := stream.Start(ctx, stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state", StateMemory: 64 << 10}, tr.app)
		require.NoError(t, err)
		loading, cancel := context.WithCancel(ctx)
		var load, subs sync.WaitGroup
		load.Go(func() { tr.load(loading, t, n) })
		folds := make([]map[string]int64, 4)
		for i := range folds {
			table := tr.moves
			if i%2 == 1 {
				table = tr.twins
			}
			sub, err := job.View(table).Subscribe(ctx)
			require.NoError(t, err)
			folds[i] = foldUntilOver(t, sub, &subs)
			sum, rows := 0, 0
			for r, err := range job.View(tr.sums).All(ctx) {
				require.NoError(t, err)
				sum += r.Value
				rows++
			}
			require.Zero(t, sum, "run %d, %d rows", run, rows)
			total := int64(0)
			for r, err := range job.View(tr.moves).All(ctx) {
				require.NoError(t, err)
				total += r.Value
			}
			require.Zero(t, total%2)
			_, err = job.Checkpoint(ctx)
			require.NoError(t, err)
			_, _, err = job.View(tr.moves).Latest().Get(ctx, "account 1")
			require.NoError(t, err)
		}
		cancel()
		load.Wait()
		require.NoError(t, job.CatchUp(ctx))
		all := map[string]int64{}
		for r, err := range job.View(tr.moves).All(ctx) {
			require.NoError(t, err)
			all[r.Key] = r.Value
		}
		latest := map[string]int64{}
		for r, err := range job.View(tr.moves).Latest().All(ctx) {
			require.NoError(t, err)
			latest[r.Key] = r.Value
		}
		require.Equal(t, all, latest)
		total := int64(0)
		for _, n := range all {
			total += n
		}
		require.EqualValues(t, 2*tr.records, total)
		if run == 1 {
			image := fs.Kill()
			gone, cancel := context.WithCancel(ctx)
			cancel()
			_ = job.Stop(gone)
			subs.Wait()
			_ = n.plane.Close()
			fs, n = image, openNode(t, image)
		} else {
			require.NoError(t, job.Stop(ctx))
			subs.Wait()
		}
		for _, fold := range folds {
			require.Equal(t, all, fold, "run %d", run)
		}
	}
	require.NoError(t, n.plane.Close())
}

// foldUntilOver folds a subscription until its job is over, which the map is filled by then.
// Counts only grow, so one that comes twice, or out of its order, is noticed.
func foldUntilOver(t *testing.T, sub *stream.Subscription[string, int64], done *sync.WaitGroup) map[string]int64 {
	fold := map[string]int64{}
	for r, err := range sub.Rows(context.Background()) {
		require.NoError(t, err)
		fold[r.Key] = r.Value
	}
	done.Go(func() {
		defer sub.Close()
		for first := true; ; first = false {
			breaks := first // once, to go on with another loop
			for u, err := range sub.Changes(context.Background()) {
				if err != nil {
					if !isOver(err) {
						t.Error(err)
					}
					return
				}
				if u.Deleted || u.Value <= fold[u.Key] {
					t.Errorf("%v after %d", u, fold[u.Key])
				}
				fold[u.Key] = u.Value
				if breaks && len(fold) > 40 {
					break
				}
			}
		}
	})
	return fold
}

// A subscription to a table that lets rows go tells of it, of windows that close too.
func TestSubscriptionTellsOfDeletions(t *testing.T) {
	ctx := context.Background()
	in := topic.New[string, int]("in")
	app := stream.New("deletes").Checkpoint(checkpoint.Every(2 * time.Millisecond))
	table := app.Table(in)
	even := table.Filter(func(v int) bool { return v%2 == 0 })
	n := openNode(t, vfs.NewMem())
	job := n.start(t, app)
	p, err := topic.NewProducer(ctx, n, in, topic.ProducerOptions{})
	require.NoError(t, err)
	put := func(k string, v int) {
		if v < 0 {
			require.NoError(t, p.Delete(ctx, k))
		} else {
			require.NoError(t, p.Send(ctx, k, v))
		}
		require.NoError(t, job.CatchUp(ctx))
	}
	put("a", 2)
	put("b", 3)
	sub, err := job.View(even).Subscribe(ctx)
	require.NoError(t, err)
	require.Equal(t, job.Status().Checkpoint, sub.Checkpoint())
	fold := map[string]int{}
	for r, err := range sub.Rows(ctx) {
		require.NoError(t, err)
		fold[r.Key] = r.Value
	}
	require.Equal(t, map[string]int{"a": 2}, fold)
	put("b", 4)
	put("a", 5)
	put("c", 6)
	put("c", -1)
	require.NoError(t, job.Stop(ctx))
	var told []string
	for u, err := range sub.Changes(ctx) {
		if err != nil {
			require.True(t, isOver(err), err)
			break
		}
		told = append(told, fmt.Sprint(u.Key, u.Value, u.Deleted))
		if u.Deleted {
			delete(fold, u.Key)
		} else {
			fold[u.Key] = u.Value
		}
	}
	require.Equal(t, []string{"b4 false", "a0 true", "c6 false", "c0 true"}, told)
	require.Equal(t, map[string]int{"b": 4}, maps.Clone(fold))
	require.NoError(t, sub.Close())
	require.NoError(t, p.Close())
	require.NoError(t, n.plane.Close())
}

func isOver(err error) bool { return errors.Is(err, stream.ErrStopped) }
