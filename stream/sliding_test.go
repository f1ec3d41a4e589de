package stream_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// Case C-02: sliding windows near time zero, which is a time like any other. The order in
// which the records come makes no difference, and neither do crashes.
func TestC02SlidingWindowsNearTimeZero(t *testing.T) {
	type record struct {
		value string
		time  int64
	}
	for _, run := range [][]record{
		{{"A", 3}, {"B", 8}, {"C", 10}, {"D", 12}},
		{{"D", 12}, {"B", 8}, {"A", 3}, {"C", 10}},
	} {
		for _, emit := range []window.Emit{window.OnClose, window.OnUpdate} {
			in, out := topic.New[string, string]("in"), topic.New[window.Key[string], string]("out")
			app := stream.New("c02")
			app.Stream(in).GroupByKey().Window(window.Sliding(10 * ms).Grace(1000 * ms)).Emit(emit).
				Aggregate(func(a, v string) string { return a + v }).To(out)
			d := streamtest.New(t, app)
			for _, r := range run {
				d.Input(in).SendAt(at(r.time), "k", r.value)
				d.Checkpoint()
				d.Crash()
			}
			d.Watermark(at(10000))
			results := d.Output(out).Records()
			if emit == window.OnUpdate { // the newest row of each window
				newest := map[int64]topic.Record[window.Key[string], string]{}
				for _, r := range results {
					newest[r.Key.Start.UnixMilli()] = r
				}
				results = nil
				for _, r := range newest {
					results = append(results, r)
				}
				slices.SortFunc(results, func(a, b topic.Record[window.Key[string], string]) int { return a.Key.Start.Compare(b.Key.Start) })
			}
			require.Equal(t, []string{
				"k -7..3=A @3", "k -2..8=AB @8", "k 0..10=ABC @10", "k 2..12=ABCD @12", "k 4..14=BCD @12", "k 9..19=CD @12", "k 11..21=D @12",
			}, sessionsText(results))
		}
	}
}

// slid is what sliding windows are by their definition.
type slid struct {
	size, grace int64
	w           int64
	records     []definedEvent
	late        []string
	results     []string
}

type definedEvent struct {
	key, value string
	time       int64
}

// advance emits the windows that end with a record or begin after one, in the order of their
// ends.
func (d *slid) advance(w int64) {
	type found struct {
		key   string
		start int64
	}
	var closed []found
	for _, r := range d.records {
		for _, start := range []int64{r.time - d.size, r.time + 1} {
			if end := start + d.size; end+d.grace >= d.w && end+d.grace < w {
				closed = append(closed, found{r.key, start})
			}
		}
	}
	slices.SortFunc(closed, func(a, b found) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.key, b.key)) })
	for _, c := range slices.Compact(closed) {
		var in []definedEvent
		for _, r := range d.records {
			if r.key == c.key && r.time >= c.start && r.time <= c.start+d.size {
				in = append(in, r)
			}
		}
		if len(in) == 0 {
			continue
		}
		slices.SortStableFunc(in, func(a, b definedEvent) int { return cmp.Compare(a.time, b.time) })
		text := ""
		for _, r := range in {
			text += r.value
		}
		d.results = append(d.results, fmt.Sprintf("%s %d..%d=%s @%d", c.key, c.start, c.start+d.size, text, in[len(in)-1].time))
	}
	d.w = max(d.w, w)
}

// Random records give what sliding windows are by their definition, over crashes at random:
// one result of each window, late records, and with OnUpdate rows that end as the same.
func TestSlidingWindowsAreWhatTheyAreDefinedAs(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	for i := range *differentials {
		seed := base + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { slidingByDefinition(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func slidingByDefinition(t *testing.T, rng *rand.Rand) {
	m := &slid{size: 1 + rng.Int64N(12), grace: rng.Int64N(3) * rng.Int64N(10), w: -10_000}
	disorder := rng.Int64N(2) * rng.Int64N(20)
	t.Logf("size %d, grace %d, disorder %d", m.size, m.grace, disorder)
	in, lates := topic.New[string, string]("in"), topic.New[string, string]("late")
	out, updates := topic.New[window.Key[string], string]("out"), topic.New[window.Key[string], string]("updates")
	summed := topic.New[string, int64]("summed")
	app := stream.New("slid").Disorder(time.Duration(disorder) * ms).IdleAfter(-1)
	windows := app.Stream(in).GroupByKey().Window(window.Sliding(time.Duration(m.size) * ms).Grace(time.Duration(m.grace) * ms))
	add := func(a, v string) string { return a + v }
	windows.Aggregate(add).As("closing").To(out)
	updating := windows.Emit(window.OnUpdate).Aggregate(add).As("updating")
	updating.To(updates)
	// What is subtracted is what was added, or the sum of lengths is another one.
	updating.Map(func(s string) int64 { return int64(len(s)) }).GroupByKV(func(k window.Key[string], _ int64) string { return k.Key }).
		Reduce(func(a, v int64) int64 { return a + v }, func(a, v int64) int64 { return a - v }).As("summing").To(summed)
	windows.Late().To(lates)
	d := streamtest.New(t, app)
	clock := int64(-60)
	for i := range 40 + rng.IntN(40) {
		clock += rng.Int64N(5) * rng.Int64N(4)
		e := definedEvent{fmt.Sprint("k", rng.IntN(3)), string(rune('a' + i%26)), clock - rng.Int64N(2)*rng.Int64N(30)}
		d.Input(in).SendAt(at(e.time), e.key, e.value)
		m.advance(e.time - disorder)
		if e.time+m.size+m.grace < m.w {
			m.late = append(m.late, fmt.Sprintf("%s=%s @%d", e.key, e.value, e.time))
		} else {
			m.records = append(m.records, e)
		}
		switch rng.IntN(16) {
		case 0:
			d.Process()
		case 1:
			d.Checkpoint()
		case 2:
			d.Crash()
		}
	}
	d.Watermark(at(1000))
	m.advance(1000)
	results := d.Output(out).Records()
	require.Equal(t, m.results, sessionsText(results))
	var gone []string
	for _, r := range d.Output(lates).Records() {
		gone = append(gone, fmt.Sprintf("%s=%s @%d", r.Key, r.Value, r.Time.UnixMilli()))
	}
	require.Equal(t, m.late, gone)
	newest, lengths := map[string]string{}, map[string]int64{}
	for _, r := range d.Output(updates).Records() {
		newest[r.Key.String()] = r.Value
	}
	final := map[string]string{}
	for _, r := range results {
		final[r.Key.String()] = r.Value
		lengths[r.Key.Key] += int64(len(r.Value))
	}
	require.Equal(t, final, newest)
	got := map[string]int64{}
	for _, r := range d.Output(summed).Records() {
		got[r.Key] = r.Value
	}
	require.Equal(t, lengths, got)
}
