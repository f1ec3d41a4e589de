package stream_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// marked renders results of windows as "key first..last=value mark".
func marked(records []topic.Record[window.Key[string], int64]) string {
	var all []string
	for i, r := range records {
		text, _, _ := strings.Cut(sessionsText(records[i : i+1])[0], " @")
		for _, h := range r.Headers {
			if h.Key == stream.HeaderResult {
				text += " " + string(h.Value)
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// A step of a test of what is emitted when: the clock on the wall goes on by a second, or a
// record comes.
type emitted struct {
	key  string // empty moves the clock
	time int64
	want string
}

func checkEmitted(t *testing.T, declare func(g stream.Grouped[string, int]) stream.Table[window.Key[string], int64], steps []emitted) {
	t.Helper()
	in, out := topic.New[string, int]("in"), topic.New[window.Key[string], int64]("out")
	app := stream.New("emitted").IdleAfter(-1)
	declare(app.Stream(in).GroupByKey()).To(out)
	d := streamtest.New(t, app)
	seen := 0
	for i, s := range steps {
		if s.key == "" {
			d.Advance(time.Second)
		} else {
			d.Input(in).SendAt(at(s.time), s.key, 1)
		}
		require.Equal(t, s.want, marked(since(&seen, d.Output(out).Records())), "step %d", i+1)
		d.Crash()
	}
}

// Early results come with the clock, the result of the end with the watermark, and one again
// with each record within the grace; what has changed and was not emitted survives restarts.
func TestEarlyAndLateResults(t *testing.T) {
	checkEmitted(t, func(g stream.Grouped[string, int]) stream.Table[window.Key[string], int64] {
		return g.Window(window.Tumbling(10 * ms).Grace(5 * ms)).Emit(window.Early(time.Second).LateUpdates()).Count()
	}, []emitted{
		{"a", 1, ""},
		{"b", 2, ""},
		{"", 0, "a 0..10=1 early, b 0..10=1 early"},
		{"", 0, ""},
		{"a", 3, ""},
		{"a", 4, ""},
		{"", 0, "a 0..10=3 early"},
		{"a", 5, ""},
		{"c", 10, "a 0..10=4 end, b 0..10=1 end"},
		{"a", 6, "a 0..10=5 late"},
		{"n", 7, "n 0..10=1 late"},
		{"", 0, "c 10..20=1 early"},
		{"c", 15, ""},
		{"a", 6, ""}, // late
		{"c", 25, "c 10..20=2 final"},
	})
}

// With Every a window emits what has changed, at most once a period, and nothing when it
// closes unchanged.
func TestEmitEvery(t *testing.T) {
	checkEmitted(t, func(g stream.Grouped[string, int]) stream.Table[window.Key[string], int64] {
		return g.Window(window.Tumbling(10 * ms).Grace(5 * ms)).Emit(window.Every(time.Second)).Count()
	}, []emitted{
		{"a", 1, ""},
		{"b", 2, ""},
		{"a", 2, ""},
		{"", 0, "a 0..10=2 early, b 0..10=1 early"},
		{"c", 12, ""},
		{"b", 3, ""},
		{"", 0, "b 0..10=2 late, c 10..20=1 early"},
		{"b", 3, ""},
		{"c", 15, "b 0..10=3 final"},
		{"", 0, "c 10..20=2 early"},
		{"c", 25, ""},
	})
}

// A session emits under the window it has by then, and deletes the results of those it had.
func TestSessionsEmitEvery(t *testing.T) {
	checkEmitted(t, func(g stream.Grouped[string, int]) stream.Table[window.Key[string], int64] {
		return g.Session(window.Gap(10 * ms).Grace(100 * ms)).Emit(window.Every(time.Second)).Count()
	}, []emitted{
		{"a", 0, ""},
		{"a", 20, ""},
		{"b", 20, ""},
		{"", 0, "a 0..0=1 late, a 20..20=1 early, b 20..20=1 early"},
		{"a", 10, ""},
		{"", 0, "a 0..0=nil early, a 20..20=nil early, a 0..20=3 early"},
		{"a", 10, ""},
		{"a", 30, ""},
		{"x", 131, ""}, // b has not changed
		{"x", 141, "a 0..20=nil final, a 0..30=5 final"},
		{"", 0, "x 131..141=2 early"},
	})
}

// The end of a session gives a result, a record within the grace another one, and one that makes
// the session longer another end.
func TestSessionsLateUpdates(t *testing.T) {
	checkEmitted(t, func(g stream.Grouped[string, int]) stream.Table[window.Key[string], int64] {
		return g.Session(window.Gap(10 * ms).Grace(20 * ms)).Emit(window.OnClose.LateUpdates()).Count()
	}, []emitted{
		{"a", 0, ""},
		{"x", 10, ""},
		{"x", 11, "a 0..0=1 end"},
		{"a", 5, ""}, // it waits until 15 now
		{"x", 15, ""},
		{"x", 16, "a 0..0=nil end, a 0..5=2 end"},
		{"a", 2, "a 0..5=3 late"},
		{"a", -3, "a 0..5=nil late, a -3..5=4 late"},
		{"x", 36, "x 10..16=4 end"}, // a is closed
		{"a", 5, ""},
		{"x", 200, "x 36..36=1 final"},
	})
}

// A sliding window gives early results with the clock, one at its end, one again with each record
// within the grace, and none when it closes then.
func TestSlidingEarlyAndLateResults(t *testing.T) {
	checkEmitted(t, func(g stream.Grouped[string, int]) stream.Table[window.Key[string], int64] {
		return g.Window(window.Sliding(10 * ms).Grace(20 * ms)).Emit(window.Early(time.Second).LateUpdates()).Count()
	}, []emitted{
		{"a", 10, ""},
		{"", 0, "a 0..10=1 early"},
		{"a", 14, "a 0..10=1 end"},
		{"", 0, "a 4..14=2 early, a 11..21=1 early"},
		{"", 0, ""},
		{"a", 15, "a 4..14=2 end"},
		{"a", 12, "a 2..12=2 late, a 4..14=3 late"},
		{"", 0, "a 5..15=4 early, a 11..21=3 early, a 13..23=2 early, a 15..25=1 early"},
		{"b", 200, "a 5..15=4 final, a 11..21=3 final, a 13..23=2 final, a 15..25=1 final"},
	})
}

// Sliding windows that emit at most every so often give what has changed since.
func TestSlidingEvery(t *testing.T) {
	checkEmitted(t, func(g stream.Grouped[string, int]) stream.Table[window.Key[string], int64] {
		return g.Window(window.Sliding(10 * ms).Grace(20 * ms)).Emit(window.Every(time.Second)).Count()
	}, []emitted{
		{"a", 10, ""},
		{"a", 10, ""},
		{"", 0, "a 0..10=2 early"},
		{"a", 20, ""},
		{"", 0, "a 10..20=3 early, a 11..21=1 early"},
		{"a", 10, ""},
		{"b", 200, "a 0..10=3 final, a 10..20=4 final"},
	})
}

// Whatever is emitted before, the newest rows are in the end those of one result per window.
func TestEveryEmitEndsAlike(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	emits := []window.Emit{window.OnUpdate, window.Every(time.Second), window.Early(time.Second), window.Early(time.Second).LateUpdates(), window.OnClose.LateUpdates()}
	for i := range max(*differentials/4, 1) {
		rng := rand.New(rand.NewPCG(base+uint64(i), 1))
		in := topic.New[string, int]("in").Partitions(1 + rng.IntN(2))
		app := stream.New("alike").IdleAfter(-1).Disorder(time.Duration(rng.IntN(2)*20) * ms)
		g := app.Stream(in).GroupByKV(func(k string, _ int) string { return k })
		windows := func(e window.Emit, name string) {
			g.Window(window.Hopping(12*ms, 5*ms).Grace(9 * ms)).Emit(e).Count().As("w" + name).To(topic.New[window.Key[string], int64]("w" + name))
			g.Window(window.Sliding(7 * ms).Grace(9 * ms)).Emit(e).Count().As("l" + name).To(topic.New[window.Key[string], int64]("l" + name))
			g.Session(window.Gap(6 * ms).Grace(9 * ms)).Emit(e).Count().As("s" + name).To(topic.New[window.Key[string], int64]("s" + name))
		}
		windows(window.OnClose, "once")
		for j, e := range emits {
			windows(e, fmt.Sprint(j))
		}
		d := streamtest.New(t, app)
		clock := int64(0)
		for range 60 {
			clock += rng.Int64N(6)
			d.Input(in).SendAt(at(clock-rng.Int64N(2)*rng.Int64N(25)), fmt.Sprint("k", rng.IntN(3)), 1)
			switch rng.IntN(12) {
			case 0:
				d.Advance(time.Duration(rng.IntN(1500)) * ms)
			case 1:
				d.Checkpoint()
			case 2:
				d.Crash()
			}
		}
		d.Watermark(at(1000))
		rows := func(name string) map[string]int64 {
			found := map[string]int64{}
			for _, r := range d.Output(topic.New[window.Key[string], int64](name)).Records() {
				if found[r.Key.String()] = r.Value; r.Deleted {
					delete(found, r.Key.String())
				}
			}
			return found
		}
		for j, e := range emits {
			require.Equal(t, rows("wonce"), rows("w"+fmt.Sprint(j)), "seed %d: windows %v", base+uint64(i), e)
			require.Equal(t, rows("lonce"), rows("l"+fmt.Sprint(j)), "seed %d: sliding windows %v", base+uint64(i), e)
			require.Equal(t, rows("sonce"), rows("s"+fmt.Sprint(j)), "seed %d: sessions %v", base+uint64(i), e)
		}
	}
}

// A table that needs what rows were cannot have results that are not kept.
func TestMarkedResultsHaveNoOldValues(t *testing.T) {
	app := stream.New("old")
	app.Stream(topic.New[string, int]("in")).GroupByKey().Window(window.Tumbling(ms)).Emit(window.Every(time.Second)).Count().
		Filter(func(n int64) bool { return n > 1 }).To(topic.New[window.Key[string], int64]("out"))
	require.ErrorContains(t, app.Validate(), "emits every 1s, and a table behind it needs what its rows were")
}
