package stream_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

type numbersPair = stream.Pair[int, int]

func pairCodec(t testing.TB) codec.Codec[numbersPair] {
	c, err := codec.Of[numbersPair]()
	require.NoError(t, err)
	return c
}

// pairLetters are the dead letters of joins: step, key, pair, where the record was that came last, and the time.
func pairLetters(t *testing.T, d *streamtest.Driver) (all []string) {
	pairs := pairCodec(t)
	for _, r := range d.Output(deadTopic).Records() {
		p, err := pairs.Decode(r.Value)
		require.NoError(t, err)
		h := headersOf(r)
		require.Contains(t, h[stream.HeaderCause], "thirteen")
		from := ""
		if h[stream.HeaderTopic] != "" {
			from = fmt.Sprint(" ", h[stream.HeaderTopic], "/", h[stream.HeaderPartition], "/", h[stream.HeaderOffset])
		}
		all = append(all, fmt.Sprint(h[stream.HeaderStep], " ", string(r.Key), " ", p, from, " @", h[stream.HeaderTime], " ", h["h"]))
	}
	return all
}

// What a join of streams fails for is a dead letter, each pair by itself; after a fix it is tried again, once,
// and what the records have made with others does not come again.
func TestReplayOfPairs(t *testing.T) {
	left, right, out := topic.New[string, int]("left"), topic.New[string, int]("right"), topic.New[string, int]("out")
	bad := map[int]bool{13: true, 14: true}
	build := func() *stream.Topology {
		app := stream.New("pairs").IdleAfter(-1)
		joined := app.Stream(left).LeftJoin(app.Stream(right), window.Within(10*ms), func(a, b int, _ bool) int {
			if bad[a+b] {
				panic(errThirteen)
			}
			return a + b
		}).As("step").OnError(stream.DeadLetter(deadTopic))
		joined.Merge(joined.Replay(deadTopic)).To(out)
		return app
	}
	d := streamtest.New(t, build())
	send := func(to topic.Topic[string, int], time int64, k string, v int) {
		d.Input(to).SendRecord(topic.Record[string, int]{Key: k, Value: v, Time: at(time), Headers: []topic.Header{{Key: "h", Value: fmt.Append(nil, "h", v)}}})
		d.Process()
	}
	send(left, 1, "k", 10)
	send(right, 2, "k", 4) // 14
	send(right, 5, "k", 5)
	send(left, 4, "k", 8) // 12 and 13
	send(left, 6, "other", 13)
	d.Watermark(at(100))
	require.Equal(t, []string{"out k=15 @5", "out k=12 @4"}, recordTexts(d, out))
	letters := []string{"step k {10 4 true true} right/0/0 @2 h4", "step k {8 5 true true} left/0/1 @5 h8", "step other {13 0 true false} @6 "}
	require.Equal(t, letters, pairLetters(t, d))
	delete(bad, 13)
	d.Redeploy(build())
	mended := []string{"out k=15 @5", "out k=12 @4", "out k=13 @5", "out other=13 @6"}
	require.Equal(t, mended, recordTexts(d, out))
	letters = append(letters, "step k {10 4 true true} right/0/0 @2 h4")
	require.Equal(t, letters, pairLetters(t, d), "what fails again is a new letter")
	delete(bad, 14)
	for range 2 {
		d.Redeploy(build())
		require.Equal(t, append(mended, "out k=14 @2"), recordTexts(d, out))
		require.Equal(t, letters, pairLetters(t, d))
	}
}

// Records without a key, and both sides of an outer join.
func TestPairsOfOneSide(t *testing.T) {
	left, right, out := topic.New[string, int]("left"), topic.New[string, int]("right"), topic.New[string, int]("out")
	app := stream.New("sides").IdleAfter(-1).OnError(stream.Retry(1, stream.DeadLetter(deadTopic)).Backoff(0, 0))
	app.Stream(left).OuterJoin(app.Stream(right), window.Within(10*ms), func(a int, _ bool, b int, _ bool) int { return boom(a + b) }).As("step").To(out)
	d := streamtest.New(t, app)
	d.Input(left).SendRecord(topic.Record[string, int]{NoKey: true, Value: 13, Time: at(1)})
	d.Input(right).SendAt(at(2), "k", 13)
	d.Watermark(at(100))
	require.Empty(t, d.Output(out).Records())
	require.Equal(t, []string{"step  {13 0 true false} left/0/0 @1 ", "step k {0 13 false true} @2 "}, pairLetters(t, d))
	require.True(t, d.Output(deadTopic).Records()[0].NoKey)
}

// The dead letters of joins of tables are pairs of rows; a row that comes again makes the result.
func TestPairsOfRows(t *testing.T) {
	type join = func(a, b stream.Table[string, int], f func(int, int) int) stream.Table[string, int]
	for name, makes := range map[string]join{
		"join": func(a, b stream.Table[string, int], f func(int, int) int) stream.Table[string, int] {
			return a.Join(b, f)
		},
		"outer join": func(a, b stream.Table[string, int], f func(int, int) int) stream.Table[string, int] {
			return a.OuterJoin(b, func(a int, _ bool, b int, _ bool) int { return f(a, b) })
		},
		"join on": func(a, b stream.Table[string, int], f func(int, int) int) stream.Table[string, int] {
			return a.JoinOnKV(b, func(k string, _ int) string { return k }, func(_ string, a, b int) int { return f(a, b) }).Emit(window.OnUpdate)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, r, out := topic.New[string, int]("l"), topic.New[string, int]("r"), topic.New[string, int]("out")
			mended := false
			build := func() (*stream.Topology, stream.Table[string, int]) {
				app := stream.New("rows").IdleAfter(-1)
				again := app.Replay[string, numbersPair](deadTopic, "step").Map(func(p numbersPair) int { return p.Left })
				a := app.Stream(l).Merge(again).ToTable().As("a").Emit(window.OnUpdate)
				made := makes(a, app.Table(r).Emit(window.OnUpdate), func(a, b int) int {
					if mended {
						return a + b
					}
					return boom(a + b)
				}).As("step").OnError(stream.DeadLetter(deadTopic))
				made.To(out)
				return app, made
			}
			app, made := build()
			d := streamtest.New(t, app)
			put := func(in topic.Topic[string, int], time int64, k string, v int) {
				d.Input(in).SendAt(at(time), k, v)
				d.Process()
			}
			put(l, 1, "a", 3)
			put(r, 2, "a", 9)
			put(l, 3, "a", 4) // 13
			put(r, 4, "b", 1)
			put(l, 5, "b", 2)
			put(r, 6, "b", 11) // 13
			for _, k := range []string{"a", "b"} {
				_, ok := d.Get(made, k)
				require.False(t, ok)
			}
			require.ElementsMatch(t, []string{"step a {4 9 true true} l/0/1 @3 ", "step b {2 11 true true} r/0/2 @6 "}, pairLetters(t, d))
			mended = true
			app, _ = build()
			d.Redeploy(app)
			require.Equal(t, map[string]int{"a": 13, "b": 13}, newest(d.Output(out).Records()))
			require.Len(t, d.Output(deadTopic).Records(), 2)
		})
	}
}

// A row of which no foreign key can be told is a letter of its own, and comes again as a row.
func TestRowsWithoutForeignKey(t *testing.T) {
	l, r, out := topic.New[string, int]("l"), topic.New[string, int]("r"), topic.New[string, int]("out")
	mended := false
	build := func() *stream.Topology {
		app := stream.New("rows").IdleAfter(-1)
		app.Stream(l).Merge(app.Replay[string, int](deadTopic, "step-by")).ToTable().As("rows").
			LeftJoinOn(app.Table(r), func(v int) string {
				if mended {
					return fmt.Sprint(v)
				}
				return fmt.Sprint(boom(v))
			}, func(v, _ int, ok bool) int { return v }).As("step").OnError(stream.DeadLetter(deadTopic)).To(out)
		return app
	}
	d := streamtest.New(t, build())
	d.Input(l).SendAt(at(1), "a", 13)
	require.Empty(t, d.Output(out).Records())
	require.Equal(t, []string{"step-by a 13 <nil>"}, lettersOf(d))
	mended = true
	d.Redeploy(build())
	require.Equal(t, []string{"out a=13 @1"}, recordTexts(d, out))
}

// What Replay of a stream cannot do is told when the topology is validated.
func TestReplayOfPairsFaults(t *testing.T) {
	in := topic.New[string, int]("in")
	app := stream.New("faults")
	s := app.Stream(in)
	s.Map(func(v int) int { return v }).Replay(deadTopic).To(topic.New[string, int]("out"))
	s.Join(app.Stream(topic.New[string, func()]("other")), window.Within(ms), func(a int, _ func()) int { return a }).OnError(stream.DeadLetter(deadTopic))
	err := app.Validate()
	require.ErrorContains(t, err, "needs the result of a Join")
	require.ErrorContains(t, err, "no codec for dead letters")
}
