//go:build !race

// The race detector allocates for what it watches, and pools forget at random with it.

package stream_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// A record that is read, goes through steps that are fused and through an exchange, and is counted
// in a window, allocates nothing: what a whole job allocates, its start included, is a small part
// of an allocation for each.
func TestPipelinesAllocateLessThanTheyRead(t *testing.T) {
	const records = 100_000
	in := topic.New[int, int]("in").Partitions(2).EventTime(func(v int) time.Time { return time.UnixMilli(int64(v / 10)) })
	n := openNode(t, vfs.NewMem())
	defer n.plane.Close()
	p, err := topic.NewProducer(t.Context(), n, in, topic.ProducerOptions{})
	require.NoError(t, err)
	for i := range records {
		require.NoError(t, p.Queue(t.Context(), i, i))
	}
	require.NoError(t, p.Close())

	runs := 0
	perRecord := func(build func(s stream.Stream[int, int], out topic.Topic[window.Key[int], int64])) float64 {
		return testing.AllocsPerRun(1, func() {
			runs++
			app := stream.New(fmt.Sprint("run-", runs)).Disorder(time.Hour).StopAt(topic.End())
			build(app.Stream(in), topic.New[window.Key[int], int64](fmt.Sprint("out-", runs)))
			require.NoError(t, n.start(t, app).Wait())
		}) / records
	}
	fused := func(s stream.Stream[int, int]) stream.Stream[int, int] {
		return s.Filter(func(v int) bool { return v >= 0 }).Map(func(v int) int { return v + 1 })
	}
	require.Less(t, perRecord(func(s stream.Stream[int, int], _ topic.Topic[window.Key[int], int64]) {
		fused(s).Filter(func(v int) bool { return v < 0 }).To(topic.New[int, int]("none"))
	}), 0.05, "fused")
	out := ""
	require.Less(t, perRecord(func(s stream.Stream[int, int], counts topic.Topic[window.Key[int], int64]) {
		out = counts.Name()
		fused(s).GroupBy(func(v int) int { return v % 100 }).Window(window.Tumbling(time.Second)).Count().To(counts)
	}), 0.05, "with a shuffle and a count")
	var counted int64
	for r, err := range topic.ReadToEnd(context.Background(), n, topic.New[window.Key[int], int64](out), topic.Start()) {
		require.NoError(t, err)
		counted += r.Value
	}
	require.EqualValues(t, records, counted)
}
