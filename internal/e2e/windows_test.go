package e2e

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// tallied is a visit with what is different in it, as where one is counted by whom.
type tallied struct {
	Visit visit
	Names map[string]bool
}

func (a tallied) add(r visited) tallied {
	a.Visit = a.Visit.add(r)
	if r.Name == "" {
		return a
	}
	if a.Names == nil {
		a.Names = map[string]bool{}
	}
	a.Names[r.Name] = true
	return a
}

// Windows of a minute and of an hour of four sources are the known ones, whatever their
// disorder, over partitions by anything but the key and with the process killed again and
// again.
func TestWindows(t *testing.T) {
	requests := func(t *testing.T) (rows []visited) {
		for _, r := range readRequests(t) {
			rows = append(rows, visited{Who: strconv.Itoa(r.Status), Name: r.Host, Time: r.Time, Visit: visit{Rows: 1, A: r.Bytes}})
		}
		return rows
	}
	edits := func(t *testing.T) (rows []visited) {
		for _, e := range readEdits(t) {
			rows = append(rows, visited{Who: e.Channel, Time: e.Time, Visit: visit{Rows: 1, A: e.Added, B: e.Deleted}})
		}
		return rows
	}
	flights := func(column int) func(t *testing.T) []visited {
		return func(t *testing.T) (rows []visited) {
			for _, f := range readFlights(t) {
				rows = append(rows, visited{Who: f.Columns[column], Time: f.Out, Visit: visit{Rows: 1, A: int64(f.Out.Sub(f.Planned) / time.Minute), B: integer(t, f.Columns[10])}})
			}
			return rows
		}
	}
	for _, c := range []struct {
		file, who string
		size      time.Duration
		disorder  time.Duration
		rows      func(t *testing.T) []visited
		columns   []string // of A, B and C; others are not compared
		names     string   // column of what is different
	}{
		{"nasa_tumbling_1h_by_status", "status", time.Hour, 0, requests, []string{"bytes"}, "distinct_hosts"},
		{"wiki_tumbling_1min_by_channel", "channel", time.Minute, 0, edits, []string{"added", "deleted"}, ""},
		{"flights_out_tumbling_1min_by_origin", "origin", time.Minute, 9 * time.Hour, flights(8), nil, ""},
		{"flights_out_tumbling_1h_by_carrier", "carrier", time.Hour, 9 * time.Hour, flights(5), []string{"dep_delay_min_sum", "distance_mi_sum"}, ""},
		{"quakes_tumbling_1min_by_net", "net", time.Minute, 29 * 24 * time.Hour, readQuakes, nil, ""},
		{"quakes_tumbling_1h_by_net", "net", time.Hour, 29 * 24 * time.Hour, readQuakes, []string{"mag_centi_sum", "mag_count", "mag_centi_max"}, ""},
	} {
		t.Run(c.file, func(t *testing.T) {
			if testing.Short() && c.who != "net" {
				t.Skip("one source is enough")
			}
			type numbers struct {
				visit
				names int64
			}
			known := func(v visit) visit { // what is compared
				for i, n := range []*int64{&v.A, &v.B, &v.C} {
					if i >= len(c.columns) {
						*n = 0
					}
				}
				return v
			}
			want := map[window.Key[string]]numbers{}
			for _, row := range expected(t, c.file+".csv.gz") {
				n := numbers{visit: columnsOf(t, row, c.columns...)}
				if c.names != "" {
					n.names = integer(t, row[c.names])
				}
				want[windowKey(t, row, row[c.who])] = n
			}
			from := topic.New[string, visited]("rows").Partitions(4)
			to := topic.New[window.Key[string], tallied]("windows").Partitions(3)
			found := runKilled(t, c.rows(t), from, to, func() *stream.Topology {
				app := stream.New("windows")
				app.Checkpoint(checkpoint.Every(5 * time.Millisecond)).StopAt(topic.End()).IdleAfter(-1).Disorder(c.disorder)
				app.Stream(from.EventTime(visited.at)).
					GroupBy(func(r visited) string { return r.Who }).
					Window(window.Tumbling(c.size)).
					Aggregate(tallied.add).
					To(to)
				return app
			})
			got := map[window.Key[string]]numbers{}
			for key, a := range found {
				got[key] = numbers{known(a.Visit), int64(len(a.Names))}
			}
			require.Equal(t, want, got)
		})
	}
}

// Of rows in the order in which they came, those in time and those late are the known ones in
// every window, for three pairs of disorder and grace.
func TestLateRows(t *testing.T) {
	flights := func(time func(flight) time.Time) func(t *testing.T) []visited {
		return func(t *testing.T) (rows []visited) {
			for _, f := range readFlights(t) {
				rows = append(rows, visited{Time: time(f), Visit: visit{Rows: 1}})
			}
			return rows
		}
	}
	for _, c := range []struct {
		file   string
		size   time.Duration
		rows   func(t *testing.T) []visited
		bounds [3][2]int // disorder and grace, in seconds
	}{
		{"flights_out_late_tumbling_1h", time.Hour, flights(func(f flight) time.Time { return f.Out }), [3][2]int{{3600, 0}, {10800, 0}, {10800, 3600}}},
		{"flights_on_late_tumbling_10min", 10 * time.Minute, flights(func(f flight) time.Time { return f.On }), [3][2]int{{0, 0}, {300, 0}, {600, 600}}},
		{"quakes_late_tumbling_1h", time.Hour, readQuakes, [3][2]int{{3600, 0}, {86400, 0}, {86400, 172800}}},
	} {
		for _, bound := range c.bounds {
			t.Run(fmt.Sprintf("%s, disorder %d s, grace %d s", c.file, bound[0], bound[1]), func(t *testing.T) {
				if testing.Short() && c.size > 10*time.Minute {
					t.Skip("one source is enough")
				}
				type rows struct{ kept, late int64 }
				want := map[int64]rows{}
				for _, row := range expected(t, c.file+".csv.gz") {
					of := fmt.Sprintf("_b%ds_l%ds", bound[0], bound[1])
					want[integer(t, row["window_start_ms"])] = rows{integer(t, row["kept"+of]), integer(t, row["dropped"+of])}
				}
				from := topic.New[string, visited]("rows")
				to, lates := topic.New[window.Key[string], int64]("windows"), topic.New[string, int64]("late")
				var late map[int64]int64
				kept := runKilled(t, c.rows(t), from, to, func() *stream.Topology {
					app := stream.New("late")
					app.Checkpoint(checkpoint.Every(5 * time.Millisecond)).StopAt(topic.End()).IdleAfter(-1).Disorder(time.Duration(bound[0]) * time.Second)
					windows := app.Stream(from.EventTime(visited.at)).
						GroupBy(func(visited) string { return "" }).
						Window(window.Tumbling(c.size).Grace(time.Duration(bound[1]) * time.Second))
					windows.Count().To(to)
					windows.Late().Map(func(r visited) int64 { return r.Time.UnixMilli() }).To(lates)
					return app
				}, func(node *thalweg.Node) { late = lateByWindow(t, node, lates, c.size) })
				got := map[int64]rows{}
				for key, n := range kept {
					got[key.Start.UnixMilli()] = rows{kept: n}
				}
				for start, n := range late {
					got[start] = rows{got[start].kept, n}
				}
				require.Equal(t, want, got)
			})
		}
	}
}

// lateByWindow counts late rows by the start of their window, in ms.
func lateByWindow(t *testing.T, node *thalweg.Node, from topic.Topic[string, int64], size time.Duration) map[int64]int64 {
	late := map[int64]int64{}
	for r, err := range node.ReadToEnd(t.Context(), from, topic.Start()) {
		require.NoError(t, err)
		late[r.Value-r.Value%size.Milliseconds()]++
	}
	return late
}
