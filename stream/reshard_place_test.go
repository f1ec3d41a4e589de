package stream

import (
	"iter"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// shuffledStep is a step behind a shuffle.
func shuffledStep(app *Topology) *step {
	return app.Stream(topic.New[string, int]("in")).GroupBy(func(v int) string { return "" }).g.behind("test", true)
}

// moveAll moves the state keys of shards to so many tasks.
func moveAll(t *testing.T, d *storeDecl, to int, shards ...[]string) [][]string {
	t.Helper()
	moved := make([][]string, to)
	of := func(shard int) iter.Seq2[state.Entry, error] {
		return func(yield func(state.Entry, error) bool) {
			for _, k := range shards[shard] {
				if !yield(state.Entry{Key: state.StoredKey([]byte(k))}, nil) {
					return
				}
			}
		}
	}
	for e, err := range resharded(&stage{tasks: to}, d, len(shards), of) {
		require.NoError(t, err)
		moved[e.Shard] = append(moved[e.Shard], string(e.Key[1:]))
	}
	return moved
}

// spreadKeys are keys by the shard that their hash says.
func spreadKeys(n int) [][]string {
	all := make([][]string, n)
	for c := 'a'; c <= 'p'; c++ {
		shard := topic.Partition([]byte(string(c)), n)
		all[shard] = append(all[shard], string(c))
	}
	return all
}

// Where each task has set its timers to a time of its own, all are set to the first.
func TestTimersThatMoveTogether(t *testing.T) {
	d := shuffledStep(New("together")).keep("changed").keysBehind(timerBytes)
	d.together = true
	times := []int64{200, 100, 300}
	keys := spreadKeys(3)
	var shards [][]string
	for i, of := range keys {
		var all []string
		for _, k := range of {
			all = append(all, "\x00"+string(state.AppendWindowKey(nil, times[i], []byte(k))))
		}
		shards = append(shards, all)
	}
	var got []string
	for shard, of := range moveAll(t, d, 2, shards...) {
		for _, k := range of {
			require.Equal(t, "\x00"+string(state.AppendWindowKey(nil, 100, nil)), k[:timerBytes])
			require.Equal(t, shard, topic.Partition([]byte(k[timerBytes:]), 2))
			got = append(got, k[timerBytes:])
		}
	}
	require.ElementsMatch(t, slices.Concat(keys...), got)
}

// Numbers that several tasks have given stay in their order, and different, also those of records without a key.
func TestNumbersThatMove(t *testing.T) {
	d := shuffledStep(New("numbers")).keep("").keysBehind(windowBytes)
	d.numbered = true
	number := func(n int64, k string) string { return string(state.AppendWindowKey(nil, n, []byte(k))) }
	moved := moveAll(t, d, 1, []string{number(4, ""), number(7, "a")}, []string{number(4, ""), number(5, "b")})
	require.ElementsMatch(t, []string{number(8, ""), number(14, "a"), number(9, ""), number(11, "b")}, moved[0])
}

// What every task has, every new one gets, once.
func TestWhatEveryTaskHasMoves(t *testing.T) {
	d := shuffledStep(New("everywhere")).keep("rules")
	d.everywhere = true
	require.Empty(t, d.staysWhy())
	require.Equal(t, [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}}, moveAll(t, d, 3, []string{"a", "b"}, []string{"a", "b"}))
}

// Records of several tasks that are taken up together: time behind them waits for the one of the task
// that was furthest behind.
func TestAsyncOrderOfSeveralTasks(t *testing.T) {
	o := asyncOrder[string]{}
	var began []*pendingCall[string]
	o.restoreAll([]restoredCall[string]{{2, 30, "a", "a"}, {3, 10, "b", "b"}, {4, 30, "a", "c"}, {5, 40, "a", "d"}},
		func(c *pendingCall[string]) { began = append(began, c) })
	require.Len(t, began, 4)
	time := func() int64 {
		w, _, ok := o.time()
		if !ok {
			return window.Unknown
		}
		return w
	}
	require.EqualValues(t, 10, time(), "b may still be as old as that")
	var got []string
	finish := func(i int) { o.finish(began[i], func(s string) { got = append(got, s) }) }
	finish(0)
	require.EqualValues(t, window.Unknown, time())
	finish(1)
	require.EqualValues(t, 30, time())
	finish(3)
	require.EqualValues(t, window.Unknown, time())
	finish(2)
	require.EqualValues(t, 40, time())
	require.Equal(t, []string{"a", "b", "c", "d"}, got)
}
