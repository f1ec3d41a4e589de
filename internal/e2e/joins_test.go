package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/aggregate"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// The sides of a join, as Names of rows; others have none.
const (
	left  = "left"
	right = "right"
)

func requestSides(t *testing.T) (rows []visited) {
	for _, r := range readRequests(t) {
		row := visited{Who: r.Host, Time: r.Time}
		if page := strings.HasSuffix(r.URL, "/") || strings.HasSuffix(r.URL, ".html") || strings.HasSuffix(r.URL, ".htm"); r.Method == "GET" && r.Status == 200 && page {
			row.Name = left
		} else if r.Method == "GET" && r.Status == 200 && strings.HasSuffix(r.URL, ".gif") {
			row.Name = right
		}
		rows = append(rows, row)
	}
	return rows
}

func editSides(t *testing.T) (rows []visited) {
	for _, e := range readEdits(t) {
		row := visited{Who: e.Channel + "\n" + e.Page, Time: e.Time}
		if e.Anon {
			row.Name = left
		} else if !e.Robot {
			row.Name = right
		}
		rows = append(rows, row)
	}
	return rows
}

func flightSides(t *testing.T) (rows []visited) {
	for _, f := range readFlights(t) {
		rows = append(rows, visited{Who: f.Columns[9], Time: f.Out, Name: map[string]string{"IAH": left, "HOU": right}[f.Columns[8]]})
	}
	return rows
}

func quakeSides(t *testing.T) (rows []visited) {
	for _, line := range lines(t, "../../../examples/quakes/data/quakes.csv.gz")[1:] {
		f := strings.SplitN(line, ",", 6)
		when, err := time.Parse(time.RFC3339, f[1])
		require.NoError(t, err)
		rows = append(rows, visited{Who: f[3], Time: when, Name: map[string]string{"earthquake": left, "quarry blast": right, "explosion": right}[f[4]]})
	}
	return rows
}

// sides is how many rows there are of each side.
type sides struct{ Left, Right int64 }

func (s sides) add(r visited) sides {
	if r.Name == left {
		s.Left++
	} else {
		s.Right++
	}
	return s
}

// Pairs of rows of one key in one window, made by a join of two streams and counted, are the
// known ones of four sources, as are the rows of each side, with the process killed again and again.
func TestWindowJoins(t *testing.T) {
	for _, c := range []struct {
		file           string
		who            []string
		left, right    string
		size, disorder time.Duration
		rows           func(t *testing.T) []visited
	}{
		{"nasa_join_tumbling_1min_page_gif_by_host", []string{"host"}, "pages", "gifs", time.Minute, 0, requestSides},
		{"wiki_join_tumbling_1h_anon_registered_by_page", []string{"channel", "page"}, "anon_edits", "registered_edits", time.Hour, 0, editSides},
		{"flights_out_join_tumbling_1h_iah_hou_by_dest", []string{"dest"}, "iah", "hou", time.Hour, 9 * time.Hour, flightSides},
		{"quakes_join_tumbling_6h_quake_blast_by_net", []string{"net"}, "earthquakes", "blasts", 6 * time.Hour, 29 * 24 * time.Hour, quakeSides},
	} {
		t.Run(c.file, func(t *testing.T) {
			if testing.Short() && c.size < 6*time.Hour {
				t.Skip("one source is enough")
			}
			wantPairs, wantSides := map[window.Key[string]]int64{}, map[window.Key[string]]sides{}
			for _, row := range expected(t, c.file+".csv.gz") {
				who := make([]string, len(c.who))
				for i, column := range c.who {
					who[i] = row[column]
				}
				key := windowKey(t, row, strings.Join(who, "\n"))
				wantPairs[key] = integer(t, row["pairs"])
				wantSides[key] = sides{integer(t, row[c.left]), integer(t, row[c.right])}
			}
			from := topic.New[string, visited]("rows").Partitions(4)
			to, each := topic.New[window.Key[string], int64]("pairs").Partitions(3), topic.New[window.Key[string], sides]("sides")
			gotSides := map[window.Key[string]]sides{}
			gotPairs := runKilled(t, c.rows(t), from, to, func() *stream.Topology {
				app := stream.New("joins")
				app.Checkpoint(checkpoint.Every(50 * time.Millisecond)).StopAt(topic.End()).IdleAfter(-1).Disorder(c.disorder)
				rows := app.Stream(from.EventTime(visited.at)).Filter(func(r visited) bool { return r.Name != "" })
				rows.GroupBy(func(r visited) string { return r.Who }).Window(window.Tumbling(c.size)).Aggregate(sides.add).As("sides").To(each)
				of := func(side string) stream.Stream[string, visited] {
					return rows.Filter(func(r visited) bool { return r.Name == side }).
						KeyBy(func(r visited) string { return strconv.FormatInt(r.Time.Truncate(c.size).Unix(), 10) + " " + r.Who })
				}
				of(left).Join(of(right), window.Within(c.size), func(l, _ visited) string { return l.Who }).As("pairs").
					GroupBy(func(who string) string { return who }).
					Window(window.Tumbling(c.size)).Count().As("counted").
					To(to)
				return app
			}, func(node *thalweg.Node) {
				for key, s := range results(t, node, each) {
					if s.Left > 0 && s.Right > 0 {
						gotSides[key] = s
					}
				}
			})
			require.Equal(t, wantPairs, gotPairs)
			require.Equal(t, wantSides, gotSides)
		})
	}
}

// place is a place in a ranking.
type place struct {
	Key   string
	Count int64
}

type ranking struct{ All []place }

// What was counted most of each hour or day, ranked by one window behind another, is the known
// ranking of three sources, with the process killed again and again.
func TestRankings(t *testing.T) {
	for _, c := range []struct {
		file, who      string
		n              int
		size, disorder time.Duration
		rows           func(t *testing.T) []visited
	}{
		{"nasa_top10_hosts_per_1h", "host", 10, time.Hour, 0, requestSides},
		{"flights_out_top3_dest_per_1d", "dest", 3, 24 * time.Hour, 9 * time.Hour, flightSides},
		{"quakes_top5_nets_per_1d", "net", 5, 24 * time.Hour, 29 * 24 * time.Hour, quakeSides},
	} {
		t.Run(c.file, func(t *testing.T) {
			if testing.Short() && c.who != "net" {
				t.Skip("one source is enough")
			}
			want := map[window.Key[string]]ranking{}
			for _, row := range expected(t, c.file+".csv.gz") {
				key := windowKey(t, row, "")
				require.Equal(t, fmt.Sprint(len(want[key].All)+1), row["rank"])
				want[key] = ranking{append(want[key].All, place{row[c.who], integer(t, row["count"])})}
			}
			from := topic.New[string, visited]("rows").Partitions(4)
			to := topic.New[window.Key[string], ranking]("rankings")
			got := runKilled(t, c.rows(t), from, to, func() *stream.Topology {
				app := stream.New("rankings")
				app.Checkpoint(checkpoint.Every(5 * time.Millisecond)).StopAt(topic.End()).IdleAfter(-1).Disorder(c.disorder)
				app.Stream(from.EventTime(visited.at)).
					GroupBy(func(r visited) string { return r.Who }).
					Window(window.Tumbling(c.size)).Count().As("counts").
					ToStream().
					MapKV(func(k window.Key[string], n int64) place { return place{k.Key, n} }).
					GroupBy(func(place) string { return "" }).
					Window(window.Tumbling(c.size)).
					Aggregate(aggregate.Top(c.n, func(p place) string { return p.Key }, func(p place) int64 { return p.Count })).As("top").
					ToStream().
					Map(func(r aggregate.Ranking[string, int64]) (top ranking) {
						for _, p := range r.All() {
							top.All = append(top.All, place{p.Key, p.Score})
						}
						return top
					}).
					To(to)
				return app
			})
			require.Equal(t, want, got)
		})
	}
}
