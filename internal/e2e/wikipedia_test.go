package e2e

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// edit is a row of the recent-changes feed; its fields are the file's.
type edit struct {
	Time                time.Time
	Channel, User, Page string
	Robot, Anon         bool
	Added, Deleted      int64
}

// activity is what is counted of a channel. Its map is changed in place, which a
// fold may do: the state is the task's own.
type activity struct {
	Edits, Added, Deleted, Robots int64
	Users                         map[string]bool
}

func (a activity) add(e edit) activity {
	a.Edits++
	a.Added += e.Added
	a.Deleted += e.Deleted
	if e.Robot {
		a.Robots++
	}
	if a.Users == nil {
		a.Users = map[string]bool{}
	}
	a.Users[e.User] = true
	return a
}

// page is a key of two parts; its titles are in every script.
type page struct{ Channel, Title string }

func readEdits(t *testing.T) []edit {
	var edits []edit
	for _, line := range lines(t, "../../../examples/pages/data/edits.ndjson.gz") {
		var e edit
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		edits = append(edits, e)
	}
	require.Len(t, edits, 39_244)
	return edits
}

// numbers are an activity with its users counted.
type numbers struct{ Edits, Added, Deleted, Robots, Users int64 }

func inNumbers(activities map[window.Key[string]]activity) map[window.Key[string]]numbers {
	counted := map[window.Key[string]]numbers{}
	for key, a := range activities {
		counted[key] = numbers{a.Edits, a.Added, a.Deleted, a.Robots, int64(len(a.Users))}
	}
	return counted
}

// activityByHour are the known answers.
func activityByHour(t *testing.T) map[window.Key[string]]numbers {
	want := map[window.Key[string]]numbers{}
	for _, row := range expected(t, "wiki_tumbling_1h_by_channel.csv") {
		want[windowKey(t, row, row["channel"])] = numbers{
			Edits: integer(t, row["count"]), Added: integer(t, row["added"]), Deleted: integer(t, row["deleted"]),
			Robots: integer(t, row["robot_edits"]), Users: integer(t, row["distinct_users"]),
		}
	}
	require.Len(t, want, 909)
	return want
}

// countEdits counts by hour and channel, and by hour and page.
func countEdits(from topic.Topic[string, edit], channels topic.Topic[window.Key[string], activity], pages topic.Topic[window.Key[page], int64], interval time.Duration) *stream.Topology {
	app := stream.New("edits")
	app.Checkpoint(checkpoint.Every(interval)).StopAt(topic.End())
	arrivals := app.Stream(from).
		Peek(func(topic.Record[string, edit]) { pace() }).
		EventTime(func(e edit) time.Time { return e.Time })
	arrivals.
		GroupBy(func(e edit) string { return e.Channel }).
		Window(window.Tumbling(time.Hour)).
		Aggregate(activity.add).As("channels").
		To(channels)
	arrivals.
		GroupBy(func(e edit) page { return page{e.Channel, e.Page} }).
		Window(window.Tumbling(time.Hour)).
		Count().As("pages").
		To(pages)
	return app
}

// Edits, bytes added and deleted, robots and distinct users of every hour and
// channel are the known ones, and so are the five pages edited most: two
// aggregates of one stream, over sources and results of several partitions.
func TestEditsByHour(t *testing.T) {
	wantActivity := activityByHour(t)
	edits := topic.New[string, edit]("edits").Partitions(3)
	byChannel := topic.New[window.Key[string], activity]("by-channel").Partitions(2)
	byPage := topic.New[window.Key[page], int64]("by-page").Partitions(5)

	rows := readEdits(t)
	for _, interval := range []time.Duration{5 * time.Millisecond, 200 * time.Millisecond} {
		t.Run("checkpoints every "+interval.String(), func(t *testing.T) {
			node := openNode(t)
			send(t, node, edits, rows, func(e edit) string { return e.User })

			run(t, node, countEdits(edits, byChannel, byPage, interval))

			require.Equal(t, wantActivity, inNumbers(results(t, node, byChannel)))
			require.Equal(t, wantTopPages(t), topPages(results(t, node, byPage)))
		})
	}
}

// ranked is a page of an hour with its number of edits.
type ranked struct {
	Page  page
	Edits int64
}

// topPages returns the five pages edited most of each hour, by its start in Unix ms.
func topPages(counts map[window.Key[page]]int64) map[int64][]ranked {
	top := map[int64][]ranked{}
	for key, n := range counts {
		hour := key.Start.UnixMilli()
		top[hour] = append(top[hour], ranked{key.Key, n})
	}
	for hour, pages := range top {
		slices.SortFunc(pages, func(a, b ranked) int {
			return cmp.Or(
				cmp.Compare(b.Edits, a.Edits),
				cmp.Compare(a.Page.Channel, b.Page.Channel),
				cmp.Compare(a.Page.Title, b.Page.Title),
			)
		})
		top[hour] = slices.Clone(pages[:min(5, len(pages))])
	}
	return top
}

func wantTopPages(t *testing.T) map[int64][]ranked {
	top := map[int64][]ranked{}
	for _, row := range expected(t, "wiki_top5_pages_per_1h.csv") {
		hour := integer(t, row["window_start_ms"])
		top[hour] = append(top[hour], ranked{page{row["channel"], row["page"]}, integer(t, row["count"])})
	}
	return top
}
