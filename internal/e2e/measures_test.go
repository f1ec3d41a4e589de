package e2e

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// allTime is a window that holds every row of a source.
var allTime = window.Tumbling(50 * 365 * 24 * time.Hour)

// facts are what a row adds to the measures of its source, as "name=number" or, where what is different
// counts, "name:value".
func facts(all ...string) string { return strings.Join(all, "\t") }

// fact is one of them.
type fact struct {
	Of    string
	N     int64
	Value string // different ones count
}

func factsOf(r visited) iter.Seq[fact] {
	return func(yield func(fact) bool) {
		for f := range strings.SplitSeq(r.Name, "\t") {
			made := fact{}
			if of, n, ok := strings.Cut(f, "="); ok {
				made.Of = of
				made.N, _ = strconv.ParseInt(n, 10, 64)
			} else {
				made.Of, made.Value, _ = strings.Cut(f, ":")
			}
			if made.Of != "" && !yield(made) {
				return
			}
		}
	}
}

// measured is a source with its facts, and with the times of its rows in their order.
type measured struct {
	rows  []visited
	times map[string][]int64 // by what they are the times of, in ms
}

func measuredRequests(t *testing.T) measured {
	m := measured{times: map[string][]int64{}}
	for i, r := range readRequests(t) {
		f := facts("rows=1", fmt.Sprint("bytes=", r.Bytes), "distinct_hosts:"+r.Host, "distinct_urls:"+r.URL)
		if r.Method == "GET" && r.Status == 200 {
			switch {
			case strings.HasSuffix(r.URL, "/"), strings.HasSuffix(r.URL, ".html"), strings.HasSuffix(r.URL, ".htm"):
				f = facts(f, "pages=1")
			case strings.HasSuffix(r.URL, ".gif"):
				f = facts(f, "gifs=1")
			}
		}
		m.rows = append(m.rows, visited{Name: f, Time: r.Time})
		of := "nasa_http_jul95 by time"
		if i >= 9_999 {
			of = "nasa_http_aug95 by time"
		}
		m.times[of] = append(m.times[of], r.Time.UnixMilli())
	}
	return m
}

func measuredEdits(t *testing.T) measured {
	m := measured{times: map[string][]int64{}}
	for _, e := range readEdits(t) {
		f := facts("rows=1", fmt.Sprint("added=", e.Added), fmt.Sprint("deleted=", e.Deleted), "distinct_users:"+e.User, "distinct_channel_pages:"+e.Channel+" "+e.Page)
		switch {
		case e.Robot:
			f = facts(f, "robot_edits=1")
		case e.Anon:
			f = facts(f, "anon_edits=1")
		default:
			f = facts(f, "registered_edits=1")
		}
		m.rows = append(m.rows, visited{Name: f, Time: e.Time})
		m.times["wiki_edits by time"] = append(m.times["wiki_edits by time"], e.Time.UnixMilli())
	}
	return m
}

func measuredFlights(t *testing.T) measured {
	m := measured{times: map[string][]int64{}}
	for _, f := range readFlights(t) {
		m.rows = append(m.rows, visited{Time: f.Out, Name: facts("rows=1", fmt.Sprint("dep_delay_min_sum=", int64(f.Out.Sub(f.Planned)/time.Minute)),
			strings.ToLower(f.Columns[8])+"=1", "distinct_tails:"+f.Columns[7], "distinct_dests:"+f.Columns[9])})
		for i, of := range []string{"in_ts", "out_ts", "off_ts", "on_ts", "sched_ts"} {
			at, err := time.Parse("2006-01-02 15:04", f.Columns[i])
			require.NoError(t, err)
			m.times["flights by "+of] = append(m.times["flights by "+of], at.UnixMilli())
		}
	}
	return m
}

func measuredQuakes(t *testing.T) measured {
	m := measured{rows: readQuakes(t), times: map[string][]int64{}}
	for i, line := range lines(t, "../../../examples/quakes/data/quakes.csv.gz")[1:] {
		columns := strings.SplitN(line, ",", 8)
		f := facts("rows=1", fmt.Sprint("mag_centi_sum=", m.rows[i].Visit.A), fmt.Sprint("mag_count=", m.rows[i].Visit.B))
		switch columns[4] {
		case "earthquake":
			f = facts(f, "earthquakes=1")
		case "quarry blast", "explosion":
			f = facts(f, "blasts=1")
		}
		m.rows[i].Name = f
		updated, err := time.Parse(time.RFC3339, columns[0])
		require.NoError(t, err)
		m.times["quakes by updated"] = append(m.times["quakes by updated"], updated.UnixMilli())
		m.times["quakes by time"] = append(m.times["quakes by time"], m.rows[i].Time.UnixMilli())
	}
	return m
}

// sources are all of them. Only the shortest is in short tests.
var sources = map[string]func(t *testing.T) measured{
	"nasa": measuredRequests, "wiki": measuredEdits, "flights": measuredFlights, "quakes": measuredQuakes,
}

// The numbers of rows, sums and numbers of different things in each source are the known ones, over four
// partitions and with the process killed again and again.
func TestTotals(t *testing.T) {
	for source, read := range sources {
		t.Run(source, func(t *testing.T) {
			if testing.Short() && source != "quakes" {
				t.Skip("one source is enough")
			}
			want := map[string]int64{}
			for _, row := range expected(t, "totals.csv") {
				if row["stream"] == source {
					want[row["metric"]] = integer(t, row["value"])
				}
			}
			from, to := topic.New[string, visited]("rows").Partitions(4), topic.New[window.Key[string], int64]("totals").Partitions(2)
			found := runKilled(t, read(t).rows, from, to, func() *stream.Topology {
				app := stream.New("totals").Checkpoint(checkpoint.Every(5 * time.Millisecond)).StopAt(topic.End()).IdleAfter(-1)
				numbers, names := app.Stream(from.EventTime(visited.at)).FlatMap(factsOf).Split(func(f fact) bool { return f.Value == "" })
				numbers.GroupBy(func(f fact) string { return f.Of }).Window(allTime).Aggregate(func(sum int64, f fact) int64 { return sum + f.N }).As("sums").To(to)
				names.GroupBy(func(f fact) string { return f.Of + ":" + f.Value }).Window(allTime).Count().As("different").ToStream().
					GroupByKV(func(k window.Key[string], _ int64) string { return k.Key[:strings.IndexByte(k.Key, ':')] }).Window(allTime).Count().As("counts").To(to)
				return app
			})
			got := map[string]int64{}
			for k, n := range found {
				got[k.Key] = n
			}
			require.Equal(t, want, got)
		})
	}
}

// lateness tells what is late in a stream of times.
type lateness struct{ Newest int64 }

var seenTimes = state.NewKV[seenTime, bool]("seen").KeyedBy(func(s seenTime) string { return s.Of })

type seenTime struct {
	Of string
	At int64
}

// How much rows are out of order, by each of their times, is what is known of it.
func TestDisorder(t *testing.T) {
	for source, read := range sources {
		t.Run(source, func(t *testing.T) {
			if testing.Short() && source != "quakes" {
				t.Skip("one source is enough")
			}
			m := read(t)
			rows := make([]visited, 0, len(m.rows))
			of := slices.Sorted(maps.Keys(m.times))
			for i := range len(m.times[of[0]]) {
				all := make([]string, 0, len(of))
				for _, name := range of {
					all = append(all, fmt.Sprint(name, "=", m.times[name][i]))
				}
				rows = append(rows, visited{Name: facts(all...), Time: time.UnixMilli(m.times[of[0]][i])})
			}
			from, to := topic.New[string, visited]("rows"), topic.New[window.Key[string], int64]("measures").Partitions(2)
			found := runKilled(t, rows, from, to, func() *stream.Topology {
				app := stream.New("disorder").Checkpoint(checkpoint.Every(5 * time.Millisecond)).StopAt(topic.End()).IdleAfter(-1).Tasks(3)
				app.Stream(from.EventTime(visited.at)).FlatMap(factsOf).GroupBy(func(f fact) string { return f.Of }).
					Process(stream.ProcessFunc[string, fact, lateness, string](func(ctx *stream.Context[string, lateness, string], f fact) error {
						s := ctx.State()
						ctx.Emit("rows")
						if f.N < s.Newest {
							ctx.Emit(fmt.Sprint("late ", s.Newest-f.N))
						}
						s.Newest = max(s.Newest, f.N)
						if _, tie := seenTimes.Get(ctx, seenTime{f.Of, f.N}); tie {
							ctx.Emit("ties")
						}
						seenTimes.Put(ctx, seenTime{f.Of, f.N}, true)
						return nil
					}), seenTimes).As("order").
					GroupByKV(func(of, what string) string { return of + "\t" + what }).Window(allTime).Count().As("counts").To(to)
				return app
			})
			late := map[string][]rowsLate{}
			counts := map[string]int64{}
			for k, n := range found {
				of, what, _ := strings.Cut(k.Key, "\t")
				if by, ok := strings.CutPrefix(what, "late "); ok {
					late[of] = append(late[of], rowsLate{integer(t, by), n})
				} else {
					counts[k.Key] = n
				}
			}
			known := 0
			for _, row := range expected(t, "disorder.csv") {
				of := row["stream"]
				if _, ok := m.times[of]; !ok {
					continue
				}
				known++
				slices.SortFunc(late[of], func(a, b rowsLate) int { return cmp.Compare(a.by, b.by) })
				total := int64(0)
				for _, l := range late[of] {
					total += l.rows
				}
				require.Equal(t, row["rows"], fmt.Sprint(counts[of+"\trows"]))
				require.Equal(t, row["late_rows"], fmt.Sprint(total))
				require.Equal(t, row["late_fraction"], fmt.Sprintf("%.6f", float64(total)/float64(counts[of+"\trows"])))
				require.Equal(t, row["rows_sharing_a_ts"], fmt.Sprint(counts[of+"\tties"]))
				require.Equal(t, row["max_lateness_ms"], fmt.Sprint(quantile(late[of], total, 1)))
				for name, q := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99} {
					require.Equal(t, row[name+"_of_late_ms"], fmt.Sprint(quantile(late[of], total, q)), "%s %s", of, name)
				}
				require.Equal(t, row["min_ts_ms"], fmt.Sprint(slices.Min(m.times[of])))
				require.Equal(t, row["max_ts_ms"], fmt.Sprint(slices.Max(m.times[of])))
			}
			require.Equal(t, len(of), known)
		})
	}
}

// rowsLate are rows that are late by so many ms.
type rowsLate struct{ by, rows int64 }

// quantile is the lateness that the given part of all late rows does not exceed.
func quantile(late []rowsLate, total int64, part float64) int64 {
	seen := int64(0)
	for _, l := range late {
		if seen += l.rows; float64(seen) >= part*float64(total) {
			return l.by
		}
	}
	return 0
}
