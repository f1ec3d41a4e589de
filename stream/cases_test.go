package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

const ms = time.Millisecond

// counts renders windowed counts as "[start,end)=n @time".
func counts(records []topic.Record[window.Key[string], int64]) []string {
	var all []string
	for _, r := range records {
		all = append(all, fmt.Sprintf("%s [%d,%d)=%d @%d", r.Key.Key, r.Key.Start.UnixMilli(), r.Key.End.UnixMilli(), r.Value, r.Time.UnixMilli()))
	}
	return all
}

// since returns what records has gained since the call before.
func since[T any](seen *int, records []T) []T {
	gained := records[*seen:]
	*seen = len(records)
	return gained
}

// Case C-01: hopping windows whose size is not a multiple of the advance.
func TestC01HoppingWindowAssignment(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[window.Key[string], int64]("out")
	app := stream.New("c01")
	app.Stream(in).GroupByKey().Window(window.Hopping(12*ms, 5*ms).Grace(1000 * ms)).Count().To(out)
	d := streamtest.New(t, app)
	send := d.Input(in)
	for _, time := range []int64{100, 101, 102, 106, 107, 112} {
		send.SendAt(at(time), "a", 1)
	}
	d.Watermark(at(10000))
	require.Equal(t, []string{
		"a [90,102)=2 @101", "a [95,107)=4 @106", "a [100,112)=5 @107", "a [105,117)=3 @112", "a [110,122)=1 @112",
	}, counts(d.Output(out).Records()))
}

// Case C-04: a window closes exactly at its end plus grace.
func TestC04GraceEndsAtWindowEndPlusGrace(t *testing.T) {
	in := topic.New[string, string]("in")
	updates, finals := topic.New[window.Key[string], int64]("updates"), topic.New[window.Key[string], int64]("finals")
	late := topic.New[string, string]("late")
	app := stream.New("c04")
	windows := app.Stream(in).GroupByKey().Window(window.Tumbling(10 * ms).Grace(5 * ms))
	windows.Emit(window.OnUpdate).Count().As("updating").To(updates)
	windows.Count().As("closing").To(finals)
	windows.Late().To(late)
	d := streamtest.New(t, app)

	var seenUpdates, seenFinals, seenLate int
	for i, row := range []struct {
		time                int64
		update, final, late string
	}{
		{1, "k [0,10)=1 @1", "", ""},
		{14, "k [10,20)=1 @14", "", ""},
		{9, "k [0,10)=2 @9", "", ""},
		{15, "k [10,20)=2 @15", "k [0,10)=2 @9", ""},
		{9, "", "", "r5 @9"},
		{0, "", "", "r6 @0"},
		{10, "k [10,20)=3 @15", "", ""},
		{24, "k [20,30)=1 @24", "", ""},
		{19, "k [10,20)=4 @19", "", ""},
		{25, "k [20,30)=2 @25", "k [10,20)=4 @19", ""},
		{19, "", "", "r11 @19"},
		{20, "k [20,30)=3 @25", "", ""},
	} {
		d.Input(in).SendAt(at(row.time), "k", fmt.Sprintf("r%d", i+1))
		require.Equal(t, row.update, strings.Join(counts(since(&seenUpdates, d.Output(updates).Records())), " "), "row %d", i+1)
		require.Equal(t, row.final, strings.Join(counts(since(&seenFinals, d.Output(finals).Records())), " "), "row %d", i+1)
		var gone []string
		for _, r := range since(&seenLate, d.Output(late).Records()) {
			gone = append(gone, fmt.Sprintf("%s @%d", r.Value, r.Time.UnixMilli()))
		}
		require.Equal(t, row.late, strings.Join(gone, " "), "row %d", i+1)
	}
}

// Case C-06: results held back until the window closes, across restarts.
func TestC06HeldBackResultsSurviveRestarts(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[window.Key[string], int64]("out")
	app := stream.New("c06")
	app.Stream(in).GroupByKey().Window(window.Tumbling(100 * ms)).Count().To(out)
	d := streamtest.New(t, app)
	seen := 0
	send := func(time int64, key string) { d.Input(in).SendAt(at(time), key, 1) }
	expect := func(step string, want ...string) {
		t.Helper()
		require.Equal(t, want, counts(since(&seen, d.Output(out).Records())), step)
	}
	send(10, "a")
	send(20, "b")
	send(60, "a")
	expect("1")
	d.Crash()
	expect("2")
	send(90, "c")
	expect("3")
	send(100, "d")
	expect("4", "a [0,100)=2 @60", "b [0,100)=1 @20", "c [0,100)=1 @90")
	d.Crash()
	expect("5")
	send(150, "e")
	expect("6")
	d.Crash()
	d.Checkpoint()
	d.Crash()
	expect("7")
	send(200, "f")
	expect("8", "d [100,200)=1 @100", "e [100,200)=1 @150")
	d.Crash()
	d.Watermark(at(300))
	expect("after", "f [200,300)=1 @200")
}

// Case C-18: a crash in the middle of a transaction, and records that arrive during
// recovery.
func TestC18CrashBetweenCommits(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[string, int64]("out")
	app := stream.New("c18")
	app.Stream(in).GroupByKey().Emit(window.OnUpdate).Count().To(out)
	d := streamtest.New(t, app)
	for _, k := range []string{"a", "a", "b"} {
		d.Input(in).Send(k, 1)
	}
	d.Checkpoint()
	d.Input(in).Send("a", 1)
	d.Input(in).Send("b", 1)
	d.Process() // counted, not committed
	require.Len(t, d.Output(out).Committed(), 3)
	d.Crash()
	require.Len(t, d.Output(out).Committed(), 3)
	d.Input(in).Send("a", 1)
	d.Input(in).Send("c", 1)
	var got []string
	for _, r := range d.Output(out).Records() {
		got = append(got, fmt.Sprintf("%s=%d", r.Key, r.Value))
	}
	require.Equal(t, []string{"a=1", "a=2", "b=1", "a=3", "b=2", "a=4", "c=1"}, got)
}
