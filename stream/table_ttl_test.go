package stream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// A row goes when the watermark comes to its time and the TTL, also after a crash; one that
// is renewed stays, and one whose time went back goes earlier.
func TestTTLOfRows(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[string, int]("out")
	all := topic.New[string, int64]("all")
	app := stream.New("ttl")
	rows := app.Table(in).As("rows", stream.TTL(100*ms), stream.In(state.Memory())).Emit(window.OnUpdate)
	rows.To(out)
	rows.GroupBy(func(int) string { return "all" }).Emit(window.OnUpdate).Count().To(all)
	d := streamtest.New(t, app)
	s := newSteps(t, d, in)
	s.put(10, "a", 1)
	s.put(20, "b", 2)
	s.put(25, "c", 3)
	s.put(22, "c", 4)
	s.put(50, "b", 5)
	s.expect(out, "a=1 @10", "b=2 @20", "c=3 @25", "c=4 @22", "b=5 @50")
	s.expect(all, "all=1 @10", "all=2 @20", "all=3 @25", "all=3 @25", "all=3 @50")
	d.Crash()
	d.Watermark(at(109))
	s.expect(out)
	d.Watermark(at(110))
	s.expect(out, "a=nil @110")
	d.Crash()
	s.put(122, "d", 6)
	s.expect(out, "c=nil @122", "d=6 @122")
	s.delete(123, "d")
	s.put(124, "d", 7)
	d.Watermark(at(223))
	s.expect(out, "d=nil @123", "d=7 @124", "b=nil @150")
	d.Watermark(at(224))
	s.expect(out, "d=nil @224")
	require.Equal(t, map[string]int64{"all": 0}, tableIn(d.Output(all).Records()))
}

// The end of a bounded run lets no row go.
func TestTTLAndTheEndOfABoundedRun(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[string, int64]("out")
	app := stream.New("ttl-bounded").StopAt(topic.End())
	app.Stream(in).GroupByKey().Count().As("counts", stream.TTL(time.Second)).To(out)
	d := streamtest.New(t, app)
	for _, r := range []struct {
		time int64
		key  string
	}{{0, "a"}, {5, "b"}, {2000, "b"}, {2001, "c"}} {
		d.Input(in).SendAt(at(r.time), r.key, 1)
	}
	require.Equal(t, []string{"b=1 @2000", "c=1 @2001"}, changed(d.Output(out).Records()))
}

// Mistakes in how a table is kept are found before anything runs.
func TestMaterializeFaults(t *testing.T) {
	app := stream.New("faults")
	in := topic.New[string, int]("in")
	table := app.Table(in)
	table.As("rows", stream.TTL(time.Microsecond), stream.In(nil))
	table.Map(func(v int) int { return v }).As("mapped", stream.TTL(time.Second))
	table.SuppressBy(stream.HoldUntilClose().MaxRows(0)).As("held")
	table.Map(func(v int) int { return v }).Disorder(time.Second)
	err := app.Validate()
	for _, want := range []string{"TTL of 1µs", "In(nil)", `mapped`, "keeps no rows of its own", "has no windows", "MaxRows(0)", "right behind Table"} {
		require.ErrorContains(t, err, want)
	}
	require.Contains(t, fmt.Sprint(err), "table_ttl_test.go:")
}
