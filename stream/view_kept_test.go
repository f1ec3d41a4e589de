package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

func spanText[V any](r stream.Row[window.Key[string], V]) string {
	return fmt.Sprintf("%s[%d,%d]=%v @%d", r.Key.Key, r.Key.Start.UnixMilli(), r.Key.End.UnixMilli(), r.Value, r.Time.UnixMilli())
}

// folded is a subscription that a test folds checkpoint by checkpoint.
type folded[K, V any] struct {
	sub  *stream.Subscription[K, V]
	text func(stream.Row[K, V]) string
	rows map[string]string // by the text of the key
}

func subscribe[K, V any](t *testing.T, v *stream.View[K, V], text func(stream.Row[K, V]) string) *folded[K, V] {
	t.Helper()
	sub, err := v.Subscribe(t.Context())
	require.NoError(t, err)
	f := &folded[K, V]{sub, text, map[string]string{}}
	for r, err := range sub.Rows(t.Context()) {
		require.NoError(t, err)
		f.rows[fmt.Sprint(r.Key)] = text(r)
	}
	return f
}

// take takes the changes that are committed by now, each of which must be one.
func (f *folded[K, V]) take(t *testing.T) (told []string) {
	t.Helper()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for u, err := range f.sub.Changes(ended) {
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
			break
		}
		key, was := fmt.Sprint(u.Key), f.rows[fmt.Sprint(u.Key)]
		if u.Deleted {
			require.NotEmpty(t, was, "%v was not there", u.Key)
			delete(f.rows, key)
			told = append(told, "-"+was)
			continue
		}
		require.NotEqual(t, was, f.text(u.Row), "%v is as it was", u.Key)
		f.rows[key] = f.text(u.Row)
		told = append(told, f.rows[key])
	}
	return told
}

// same checks that the fold is what the view has now.
func (f *folded[K, V]) same(t *testing.T, v *stream.View[K, V]) {
	t.Helper()
	f.take(t)
	rows := map[string]string{}
	for r, err := range v.All(t.Context()) {
		require.NoError(t, err)
		rows[fmt.Sprint(r.Key)] = f.text(r)
	}
	require.Equal(t, rows, f.rows)
}

// slidingRows are the open windows of records by the definition, in the order of their keys.
func slidingRows(records map[string][]int64, size, w int64) (rows []string) {
	type row struct {
		start int64
		key   string
		text  string
	}
	var all []row
	for k, times := range records {
		slices.Sort(times)
		starts := map[int64]bool{}
		for _, t := range times {
			starts[t-size], starts[t+1] = true, true
		}
		for start := range starts {
			var in []string
			last := int64(0)
			for _, t := range times {
				if t >= start && t <= start+size {
					in, last = append(in, fmt.Sprint(t)), t
				}
			}
			if len(in) > 0 && w <= start+size {
				all = append(all, row{start, k, fmt.Sprintf("%s[%d,%d]=%s @%d", k, start, start+size, strings.Join(in, " "), last)})
			}
		}
	}
	slices.SortFunc(all, func(a, b row) int {
		if a.start != b.start {
			return int(a.start - b.start)
		}
		return strings.Compare(a.key, b.key)
	})
	for _, r := range all {
		rows = append(rows, r.text)
	}
	return rows
}

// The rows of sliding windows are those that the definition makes of the records, as long as they
// are open: committed or not, after a crash, in a savepoint, and folded from a subscription.
func TestViewOfSlidingWindows(t *testing.T) {
	for _, emit := range []window.Emit{window.OnClose, window.OnUpdate} {
		t.Run(emit.String(), func(t *testing.T) {
			const size = 10
			random := rand.New(rand.NewPCG(1, 2))
			in := topic.New[string, int64]("in").Partitions(2)
			app := stream.New("sliding").Disorder(time.Hour)
			times := app.Stream(in).GroupByKey().Window(window.Sliding(size * ms)).Emit(emit).Aggregate(func(a string, v int64) string {
				return strings.TrimSpace(fmt.Sprint(a, " ", v))
			})
			d := streamtest.New(t, app)
			text := func(v *stream.View[window.Key[string], string]) (rows []string) {
				for r, err := range v.All(t.Context()) {
					require.NoError(t, err)
					rows = append(rows, spanText(r))
				}
				return rows
			}
			records, before, w := map[string][]int64{}, []string(nil), int64(-100)
			var sub *folded[window.Key[string], string]
			for round := range 12 {
				for range 5 {
					k, at0 := string(rune('a'+random.IntN(3))), w+random.Int64N(30)
					d.Input(in).SendAt(at(at0), k, at0)
					records[k] = append(records[k], at0)
				}
				d.Process()
				if round%3 == 2 {
					w += random.Int64N(25)
					d.Watermark(at(w))
				}
				view, is := d.View(times), slidingRows(records, size, w)
				require.Equal(t, is, text(view.Latest()), "round %d", round)
				require.Equal(t, before, text(view), "round %d", round)
				d.Checkpoint()
				require.Equal(t, is, text(view))
				if sub == nil {
					sub = subscribe(t, view, spanText)
				}
				sub.same(t, view)
				if round%4 == 3 {
					d.Crash()
					require.Equal(t, is, text(d.View(times)))
					sub = subscribe(t, d.View(times), spanText)
				}
				before = is
			}
			require.NotEmpty(t, before)
			require.Equal(t, before, text(d.Savepoint().View(times)))

			var of []string
			for r, err := range stream.Windows(t.Context(), d.View(times).Latest(), "b", at(w-5), at(w+15)) {
				require.NoError(t, err)
				require.True(t, r.Key.Key == "b" && !r.Key.Start.Before(at(w-5)) && r.Key.Start.Before(at(w+15)))
				got, ok, err := d.View(times).Get(t.Context(), r.Key)
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, r.Value, got)
				of = append(of, spanText(r))
			}
			require.NotEmpty(t, of)
			_, ok, err := d.View(times).Get(t.Context(), window.Key[string]{Key: "b", Start: at(w + 100), End: at(w + 100 + size)})
			require.NoError(t, err)
			require.False(t, ok)
		})
	}
}

// A subscription to sessions tells which are gone because they have grown, become one or closed.
func TestSubscriptionToSessions(t *testing.T) {
	in := topic.New[string, int]("in").Partitions(2)
	app := stream.New("sessions").Disorder(time.Hour)
	sessions := app.Stream(in).GroupByKey().Session(window.Gap(5 * ms)).Count()
	d := streamtest.New(t, app)
	d.Input(in).SendAt(at(10), "a", 1)
	d.Input(in).SendAt(at(20), "a", 1)
	d.Checkpoint()
	sub := subscribe(t, d.View(sessions), spanText)
	require.Len(t, sub.rows, 2)
	d.Input(in).SendAt(at(40), "b", 1)
	d.Input(in).SendAt(at(20), "a", 1)
	d.Checkpoint()
	require.ElementsMatch(t, []string{"a[20,20]=2 @20", "b[40,40]=1 @40"}, sub.take(t))
	d.Input(in).SendAt(at(15), "a", 1)
	d.Checkpoint()
	require.Equal(t, []string{"-a[10,10]=1 @10", "a[10,20]=4 @20", "-a[20,20]=2 @20"}, sub.take(t))
	require.Empty(t, sub.take(t))
	d.Watermark(at(30))
	require.Empty(t, sub.take(t), "not committed yet")
	d.Checkpoint()
	require.Equal(t, []string{"-a[10,20]=4 @20"}, sub.take(t))
	sub.same(t, d.View(sessions))
	require.NoError(t, sub.sub.Close())
}

// A subscription to a join of tables on equal keys tells of changes of either side, and what
// Filter makes of them.
func TestSubscriptionToJoin(t *testing.T) {
	left, right := topic.New[string, int]("left").Partitions(2), topic.New[string, int]("right").Partitions(2)
	app := stream.New("joined")
	l := app.Table(left)
	joined := l.LeftJoin(app.Table(right), func(a, b int, ok bool) string { return fmt.Sprint(a, b, ok) })
	short := joined.Filter(func(s string) bool { return !strings.HasPrefix(s, "9") })
	self := l.Join(joined, func(a int, s string) string { return fmt.Sprint(a, "|", s) })
	d := streamtest.New(t, app)
	text := func(r stream.Row[string, string]) string {
		return fmt.Sprintf("%s=%s @%d", r.Key, r.Value, r.Time.UnixMilli())
	}
	d.Input(left).SendAt(at(1), "a", 1)
	d.Input(left).SendAt(at(2), "b", 9)
	d.Checkpoint()
	sub, all := subscribe(t, d.View(short), text), subscribe(t, d.View(self).Latest(), text)
	d.Input(right).SendAt(at(3), "a", 7)
	d.Input(right).SendAt(at(4), "b", 7)
	d.Input(right).SendAt(at(5), "c", 7)
	d.Checkpoint()
	require.Equal(t, []string{"a=1 7 true @3"}, sub.take(t))
	require.ElementsMatch(t, []string{"a=1|1 7 true @3", "b=9|9 7 true @4"}, all.take(t))
	d.Input(left).SendAt(at(6), "c", 3)
	d.Input(left).SendAt(at(7), "a", 9)
	d.Input(left).SendAt(at(8), "b", 2)
	d.Process()
	require.Empty(t, sub.take(t), "not committed yet")
	d.Input(right).SendRecord(topic.Record[string, int]{Key: "c", Deleted: true, Time: at(9)})
	d.Checkpoint()
	require.ElementsMatch(t, []string{"-a=1 7 true @3", "b=2 7 true @8", "c=3 0 false @6"}, sub.take(t))
	require.Len(t, all.take(t), 3)
	sub.same(t, d.View(short))
	all.same(t, d.View(self))
}

// Behind Suppress a view sees rows as they were passed on, and a subscription only what changes of
// those.
func TestViewOfSuppressedTable(t *testing.T) {
	ctx := t.Context()
	in := topic.New[string, int]("in").Partitions(2)
	app := stream.New("suppressed").Disorder(time.Hour)
	table := app.Table(in)
	held := table.Suppress(10 * ms).As("held")
	sessions := app.Stream(in).GroupByKey().Session(window.Gap(2 * ms)).Emit(window.OnUpdate).Count().As("sessions").Suppress(5 * ms).As("held-sessions")
	d := streamtest.New(t, app)
	text := func(r stream.Row[string, int]) string {
		return fmt.Sprintf("%s=%v @%d", r.Key, r.Value, r.Time.UnixMilli())
	}
	d.Input(in).SendAt(at(1), "a", 1)
	d.Input(in).SendAt(at(2), "b", 2)
	d.Checkpoint()
	require.Empty(t, rowTexts(t, d.View(held).All(ctx)))
	sub := subscribe(t, d.View(held), text)
	d.Watermark(at(11))
	require.Equal(t, []string{"a=1 @1"}, rowTexts(t, d.View(held).Latest().All(ctx)))
	require.Empty(t, rowTexts(t, d.View(held).All(ctx)))
	d.Checkpoint()
	require.Equal(t, []string{"a=1 @1"}, sub.take(t))
	d.Watermark(at(12))
	d.Input(in).SendAt(at(14), "a", 3)
	d.Input(in).SendRecord(topic.Record[string, int]{Key: "b", Deleted: true, Time: at(15)})
	d.Input(in).SendAt(at(16), "c", 4)
	d.Checkpoint()
	require.Equal(t, []string{"b=2 @2"}, sub.take(t), "the changes after it are held back")
	for range 2 {
		require.Equal(t, []string{"a=1 @1", "b=2 @2"}, rowTexts(t, d.View(held).All(ctx)))
		v, ok := d.Get(held, "b")
		require.True(t, ok)
		require.Equal(t, 2, v)
		_, ok = d.Get(held, "c")
		require.False(t, ok)
		d.Crash()
	}
	require.ElementsMatch(t, []string{"a=3 @14", "c=4 @16"}, rowTexts(t, d.View(table).All(ctx)))
	sub = subscribe(t, d.View(held), text)
	d.Watermark(at(25))
	d.Checkpoint()
	require.ElementsMatch(t, []string{"a=3 @14", "-b=2 @2"}, sub.take(t))
	d.Watermark(at(26))
	d.Checkpoint()
	require.Equal(t, []string{"c=4 @16"}, sub.take(t))
	require.Equal(t, []string{"a=3 @14", "c=4 @16"}, rowTexts(t, d.View(held).All(ctx)))

	d.Input(in).SendAt(at(30), "a", 5)
	d.Watermark(at(31))
	d.Checkpoint()
	k := window.Key[string]{Key: "a", Start: at(30), End: at(30)}
	_, ok := d.Get(sessions, k)
	require.False(t, ok, "held back")
	open := subscribe(t, d.View(sessions), spanText)
	require.Empty(t, open.rows)
}

// What the windows of a trigger hold so far can be read, until they give their result.
func TestViewOfTriggers(t *testing.T) {
	ctx := t.Context()
	in := topic.New[string, int]("in").Partitions(2)
	app := stream.New("triggers").Disorder(time.Hour)
	grouped := app.Stream(in).GroupByKey()
	sums := grouped.Trigger(window.Count(3)).Reduce(func(a, b int) int { return a + b }).As("sums")
	running := grouped.Trigger(window.Count(2).Keep()).Count().As("running")
	d := streamtest.New(t, app)
	for i, k := range []string{"a", "b", "a", "b", "b"} {
		d.Input(in).SendAt(at(int64(i)), k, 1+i)
	}
	d.Process()
	require.Equal(t, []string{"a=4 @2"}, rowTexts(t, d.View(sums.State[int]()).Latest().All(ctx)))
	require.Empty(t, rowTexts(t, d.View(sums.State[int]()).All(ctx)))
	d.Checkpoint()
	require.Equal(t, []string{"a=4 @2"}, rowTexts(t, d.View(sums.State[int]()).All(ctx)))
	require.Equal(t, []string{"a=2 @2", "b=3 @4"}, rowTexts(t, d.View(running.State[int64]()).All(ctx)))
	d.Input(in).SendAt(at(9), "a", 1)
	d.Input(in).SendAt(at(8), "c", 1)
	d.Process()
	d.Crash()
	v, ok := d.Get(sums.State[int](), "c")
	require.True(t, ok)
	require.Equal(t, 1, v)
	_, ok = d.Get(sums.State[int](), "a")
	require.False(t, ok)
	require.Equal(t, []string{"c=1 @8"}, rowTexts(t, d.Savepoint().View(sums.State[int]()).All(ctx)))
	_, _, err := d.View(sums.State[int64]()).Get(ctx, "a")
	require.ErrorContains(t, err, `step "sums"`)
	require.ErrorContains(t, err, "keeps no state of type int64")
}

type visitTally struct{ N, Sum int }

// What a Process keeps can be read by its handles: the state of each key and its stores.
func TestViewOfProcess(t *testing.T) {
	ctx := t.Context()
	in := topic.New[string, int]("in").Partitions(2)
	byValue := state.NewKV[int, string]("by-value").TTL(100 * ms)
	visits := state.NewWindow[string, int]("visits")
	spans := state.NewSession[string, int]("spans").TTL(100 * ms)
	prices := state.NewVersioned[string, visitTally]("prices")
	lost := state.NewKV[string, int]("lost").NoChangelog()
	app := stream.New("process").Disorder(time.Hour)
	all := app.Stream(in).GroupByKey().Process(stream.ProcessFunc[string, int, visitTally, int](func(c *stream.Context[string, visitTally, int], v int) error {
		s := c.State()
		s.N++
		s.Sum += v
		byValue.Put(c, v, c.Key())
		visits.Put(c, c.Key(), c.Time(), v)
		spans.Put(c, c.Key(), state.Span{Start: c.Time(), End: c.Time().Add(5 * ms)}, v)
		if v == 0 {
			prices.Delete(c, c.Key(), c.Time())
			c.Forget()
		} else {
			prices.Put(c, c.Key(), c.Time(), visitTally{N: v})
		}
		lost.Put(c, c.Key(), v)
		c.Emit(s.Sum)
		return nil
	}), byValue, visits, spans, prices, lost).As("all")
	d := streamtest.New(t, app)
	d.Input(in).SendAt(at(10), "a", 3)
	d.Input(in).SendAt(at(20), "b", 4)
	d.Input(in).SendAt(at(30), "a", 5)
	d.Process()
	text := func(v *stream.View[window.Key[string], int]) (rows []string) {
		for r, err := range v.All(ctx) {
			require.NoError(t, err)
			rows = append(rows, spanText(r))
		}
		slices.Sort(rows)
		return rows
	}
	states, kv := all.State[visitTally](), all.Store(byValue)
	require.Empty(t, rowTexts(t, d.View(states).All(ctx)))
	require.Equal(t, []string{"a={2 8} @30", "b={1 4} @20"}, rowTexts(t, d.View(states).Latest().All(ctx)))
	d.Checkpoint()
	stateSub := subscribe(t, d.View(states), func(r stream.Row[string, visitTally]) string { return fmt.Sprintf("%s=%v", r.Key, r.Value) })
	require.Equal(t, map[string]string{"a": "a={2 8}", "b": "b={1 4}"}, stateSub.rows)
	spanSub := subscribe(t, d.View(all.StoreInTime(spans)), spanText)
	versionSub := subscribe(t, d.View(all.StoreInTime(prices)), spanText)
	for range 2 {
		require.Equal(t, []string{"a={2 8} @30", "b={1 4} @20"}, rowTexts(t, d.View(states).All(ctx)))
		require.Equal(t, []string{"3=a @10", "4=b @20", "5=a @30"}, rowTexts(t, d.View(kv).All(ctx)))
		require.Equal(t, []string{"4=b @20", "5=a @30"}, rowTexts(t, d.View(kv).Range(ctx, 4, 6)))
		v, ok := d.Get(kv, 4)
		require.True(t, ok)
		require.Equal(t, "b", v)
		require.Equal(t, []string{"a[10,10]=3 @10", "a[30,30]=5 @30", "b[20,20]=4 @20"}, text(d.View(all.StoreInTime(visits))))
		require.Equal(t, []string{"a[10,15]=3 @15", "a[30,35]=5 @35", "b[20,25]=4 @25"}, text(d.View(all.StoreInTime(spans))))
		var of []string
		for r, err := range stream.Windows(ctx, d.View(all.StoreInTime(visits)), "a", at(0), at(30)) {
			require.NoError(t, err)
			of = append(of, spanText(r))
		}
		require.Equal(t, []string{"a[10,10]=3 @10"}, of)
		d.Checkpoint()
	}
	d.Input(in).SendAt(at(40), "a", 0)
	d.Checkpoint()
	require.Equal(t, []string{"a[40,45]=0 @45"}, spanSub.take(t))
	require.Empty(t, versionSub.take(t), "a deletion is no row")
	d.Watermark(at(115))
	d.Checkpoint()
	require.Equal(t, []string{"-a[10,15]=3 @15"}, spanSub.take(t))
	spanSub.same(t, d.View(all.StoreInTime(spans)))
	d.Crash()
	require.Equal(t, []string{"b={1 4} @20"}, rowTexts(t, d.View(states).All(ctx)))
	require.Equal(t, []string{"0=a @40", "4=b @20", "5=a @30"}, rowTexts(t, d.View(kv).All(ctx)), "3 has had its time")
	saved := d.Savepoint()
	require.Equal(t, []string{"b={1 4} @20"}, rowTexts(t, saved.View(states).All(ctx)))
	var versions []string
	for r, err := range saved.View(all.StoreInTime(prices)).All(ctx) {
		require.NoError(t, err)
		versions = append(versions, spanText(r))
	}
	require.ElementsMatch(t, []string{"a[10,10]={3 0} @10", "a[30,30]={5 0} @30", "b[20,20]={4 0} @20"}, versions)

	for why, err := range map[string]error{
		"NoChangelog":             second(d.View(all.Store(lost)).Row(ctx, "a")),
		"was not given it":        second(d.View(all.Store(state.NewKV[string, int]("other"))).Row(ctx, "a")),
		"has one of other types":  second(d.View(all.Store(state.NewKV[string, int]("by-value"))).Row(ctx, "a")),
		"keeps no state of type ": second(d.View(all.State[int]()).Row(ctx, "a")),
	} {
		require.ErrorContains(t, err, why)
	}
}

func second[A any](_ A, _ bool, err error) error { return errors.Join(err) }
