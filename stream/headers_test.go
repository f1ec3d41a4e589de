package stream_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// Headers, and where a record came from, are known behind a shuffle: of those records that have some,
// whatever the others of the batch have. An aggregate has none.
func TestHeadersBehindAShuffle(t *testing.T) {
	in := topic.New[string, int]("in").Partitions(2)
	late, counts := topic.New[string, int]("late"), topic.New[window.Key[string], int64]("counts")
	app := stream.New("headers")
	w := app.Stream(in).GroupByKV(func(string, int) string { return "all" }).Window(window.Tumbling(10 * ms))
	from := map[int]string{}
	w.Late().Peek(func(r topic.Record[string, int]) { from[r.Value] = fmt.Sprint(r.Partition, "@", r.Offset) }).To(late)
	w.Count().To(counts)
	d := streamtest.New(t, app)
	keys := []string{"a"} // one of each partition
	for k := 'b'; len(keys) < 2; k++ {
		if topic.Partition([]byte(string(k)), 2) != topic.Partition([]byte("a"), 2) {
			keys = append(keys, string(k))
		}
	}
	for _, k := range keys {
		d.Input(in).SendAt(at(1000), k, 0)
	}
	d.Watermark(at(2000))
	want := map[int][]topic.Header{}
	next, places := map[string]int{keys[0]: 1, keys[1]: 1}, map[int]string{}
	for i := 1; i <= 600; i++ {
		var headers []topic.Header
		if i%3 == 1 || i > 300 && i%7 == 0 {
			headers = []topic.Header{{Key: "n", Value: fmt.Append(nil, i)}, {Key: "none"}}
		}
		want[i] = headers
		key := keys[i%2]
		d.Input(in).SendRecord(topic.Record[string, int]{Key: key, Value: i, Time: at(int64(i)), Headers: headers})
		places[i] = fmt.Sprint(topic.Partition([]byte(key), 2), "@", next[key])
		next[key]++
	}
	got := map[int][]topic.Header{}
	for _, r := range d.Output(late).Records() {
		got[r.Value] = r.Headers
	}
	require.Equal(t, want, got)
	require.Equal(t, places, from)
	d.Watermark(at(10_000))
	for _, r := range d.Output(counts).Records() {
		require.Empty(t, r.Headers)
	}
}
