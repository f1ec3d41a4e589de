package stream_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
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

// Rows whose time is over by the node's clock go exactly once, and what reads the table takes each
// out once, whatever file operation the job is stopped at on the way.
func TestTableWallTTLStoppedAtFileOperations(t *testing.T) {
	const rows = 40
	stopEverywhere(t, func(sync log.Sync) bounded {
		in, out := topic.New[string, int]("in").Partitions(2).Sync(sync), topic.New[string, int]("out").Sync(sync)
		sizes := topic.New[string, int64]("sizes").Sync(sync)
		begun := time.UnixMilli(1_000_000)
		var now time.Time
		return bounded{
			begin: func() { now = begun },
			now:   func() time.Time { return now },
			fill: func(t *testing.T, n testNode) {
				for i := range rows {
					send(t, n, in, fmt.Sprint("k", i))
				}
			},
			topology: func() *stream.Topology {
				app := stream.New("wall")
				table := app.Table(in).As("rows", stream.WallTTL(10*time.Second)).Emit(window.OnUpdate)
				table.To(out)
				table.GroupBy(func(int) string { return "all" }).Count().As("size").To(sizes)
				return app
			},
			drive: func(job *stream.Manual) error {
				for {
					if err := job.Settle(); err != nil {
						return err
					}
					job.Trigger()
					if err := job.Settle(); err != nil || !now.Before(begun.Add(20*time.Second)) {
						return err
					}
					now = now.Add(5 * time.Second)
				}
			},
			check: func(t *testing.T, n testNode) {
				ctx := context.Background()
				put, gone := map[string]int{}, map[string]int{}
				for r, err := range topic.ReadToEnd(ctx, n, out, topic.Start()) {
					require.NoError(t, err)
					if r.Deleted {
						gone[r.Key]++
						require.Equal(t, 1, put[r.Key])
					} else {
						put[r.Key]++
					}
				}
				require.Len(t, gone, rows)
				for k, n := range gone {
					require.Equal(t, 1, n, k)
				}
				left, seen := int64(0), false
				for r, err := range topic.ReadToEnd(ctx, n, sizes, topic.Start()) {
					require.NoError(t, err)
					seen, left = true, r.Value
				}
				require.True(t, seen)
				require.Zero(t, left)
			},
		}
	})
}
