package stream_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// A row goes when nothing has renewed it for a time by the node's clock, whatever its event
// time, also over a restart; what reads the table sees it deleted.
func TestTableWallTTL(t *testing.T) {
	in, out, sizes := topic.New[string, int]("in"), topic.New[string, int]("out"), topic.New[string, int64]("sizes")
	app := stream.New("wall")
	table := app.Table(in).As("rows", stream.WallTTL(10*time.Second)).Emit(window.OnUpdate)
	table.To(out)
	table.GroupBy(func(int) string { return "all" }).Count().As("size").To(sizes)
	d := streamtest.New(t, app)
	s := newSteps(t, d, in)
	s.put(1_000, "a", 1)
	s.put(2_000, "b", 2)
	s.expect(out, "a=1 @1000", "b=2 @2000")
	d.Advance(6 * time.Second)
	s.put(500, "a", 3) // renewed by the clock, older by event time
	s.delete(600, "c")
	s.expect(out, "a=3 @500")
	d.Advance(3999 * ms)
	s.expect(out)
	d.Advance(1 * ms)
	s.expect(out, "b=nil @2000")
	n, _ := d.Output(sizes).Latest("all")
	require.EqualValues(t, 1, n)
	d.Crash()
	d.Advance(5999 * ms)
	s.expect(out)
	d.Advance(1 * ms)
	s.expect(out, "a=nil @2000")
	n, _ = d.Output(sizes).Latest("all")
	require.Zero(t, n)

	// One that was deleted and comes again has all its time.
	s.put(3_000, "a", 4)
	d.Process()
	d.Advance(5 * time.Second)
	s.delete(3_001, "a")
	s.put(3_002, "a", 5)
	s.expect(out, "a=4 @3000", "a=nil @3001", "a=5 @3002")
	d.Advance(9999 * ms)
	s.expect(out)
	d.Advance(1 * ms)
	s.expect(out, "a=nil @3002")
}
