package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// request is a row of the web server's log.
type request struct {
	Host, Method, URL string
	Time              time.Time
	Status            int
	Bytes             int64
}

type traffic struct{ Requests, Bytes int64 }

func (t traffic) add(r request) traffic { return traffic{t.Requests + 1, t.Bytes + r.Bytes} }

func readRequests(t *testing.T) []request {
	var rows []request
	for _, name := range []string{"nasa_http_jul95.tsv.gz", "nasa_http_aug95.tsv.gz"} {
		for _, line := range lines(t, name)[1:] {
			f := strings.Split(line, "\t")
			require.Len(t, f, 6)
			status, err := strconv.Atoi(f[4])
			require.NoError(t, err)
			rows = append(rows, request{
				Host: f[0], Time: time.Unix(integer(t, f[1]), 0).UTC(),
				Method: f[2], URL: f[3], Status: status, Bytes: integer(t, f[5]),
			})
		}
	}
	require.Len(t, rows, 19_998)
	return rows
}

// requestsByMinute are the known answers.
func requestsByMinute(t *testing.T) map[window.Key[int]]traffic {
	want := map[window.Key[int]]traffic{}
	for _, row := range expected(t, "nasa_tumbling_1min_by_status.csv") {
		status := int(integer(t, row["status"]))
		want[windowKey(t, row, status)] = traffic{integer(t, row["count"]), integer(t, row["bytes"])}
	}
	require.Len(t, want, 1_400)
	return want
}

// countRequests counts by minute and status.
func countRequests(from topic.Topic[string, request], to topic.Topic[window.Key[int], traffic], interval time.Duration) *stream.Topology {
	app := stream.New("requests")
	app.Checkpoint(checkpoint.Every(interval)).StopAt(topic.End())
	app.Stream(from).
		Peek(func(topic.Record[string, request]) { pace() }).
		EventTime(func(r request) time.Time { return r.Time }).
		GroupBy(func(r request) int { return r.Status }).
		Window(window.Tumbling(time.Minute)).
		Aggregate(traffic.add).
		To(to)
	return app
}

// Requests and bytes of every minute and status are the known ones, whether each
// month is a partition of its own, so that the minimum of two watermarks far
// apart decides, or hosts are spread over five.
func TestRequestsByMinuteAndStatus(t *testing.T) {
	rows, want := readRequests(t), requestsByMinute(t)

	month := func(r request) string { return r.Time.Month().String() }
	sources := map[string]struct {
		topic topic.Topic[string, request]
		key   func(request) string
	}{
		"a partition for each month": {
			topic.New[string, request]("by-month").Partitions(2).PartitionBy(func(month string, _ int) int {
				if month == "July" {
					return 0
				}
				return 1
			}), month},
		"hosts over five partitions": {
			topic.New[string, request]("by-host").Partitions(5),
			func(r request) string { return r.Host },
		},
	}
	for name, source := range sources {
		for _, interval := range []time.Duration{5 * time.Millisecond, 200 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, checkpoints every %v", name, interval), func(t *testing.T) {
				node := openNode(t)
				send(t, node, source.topic, rows, source.key)
				perMinute := topic.New[window.Key[int], traffic]("per-minute").Partitions(3)

				run(t, node, countRequests(source.topic, perMinute, interval))

				require.Equal(t, want, results(t, node, perMinute))
			})
		}
	}
}
