package e2e

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// visit is a session of anything: how many rows, and three numbers of theirs.
type visit struct{ Rows, A, B, C int64 }

func (v visit) merge(w visit) visit {
	if v.Rows == 0 {
		return w // C of nothing is not 0
	}
	return visit{v.Rows + w.Rows, v.A + w.A, v.B + w.B, max(v.C, w.C)}
}

// visited is a row as windows see it.
type visited struct {
	Who, Name string
	Time      time.Time
	Visit     visit // of this row alone
}

func (r visited) at() time.Time { return r.Time }

func (v visit) add(r visited) visit { return v.merge(r.Visit) }

// flight is a row of the flights, read as if Houston's clock were UTC.
type flight struct {
	Columns          []string
	Out, On, Planned time.Time
}

func readFlights(t *testing.T) (rows []flight) {
	at := func(s string) time.Time {
		when, err := time.Parse("2006-01-02 15:04", s)
		require.NoError(t, err)
		return when
	}
	for _, line := range lines(t, "../../../examples/flights/data/flights.csv.gz")[1:] {
		f := strings.Split(line, ",")
		rows = append(rows, flight{f, at(f[1]), at(f[3]), at(f[4])})
	}
	require.Len(t, rows, 56_456)
	return rows
}

// noMagnitude is the highest of none.
const noMagnitude = math.MinInt64

func readQuakes(t *testing.T) (rows []visited) {
	for _, line := range lines(t, "../../../examples/quakes/data/quakes.csv.gz")[1:] {
		f := strings.SplitN(line, ",", 8)
		when, err := time.Parse(time.RFC3339, f[1])
		require.NoError(t, err)
		row := visited{Who: f[3], Time: when, Visit: visit{Rows: 1, C: noMagnitude}}
		if f[6] != "" {
			magnitude, err := strconv.ParseFloat(f[6], 64)
			require.NoError(t, err)
			centi := int64(math.Round(magnitude * 100))
			row.Visit.A, row.Visit.B, row.Visit.C = centi, 1, centi
		}
		rows = append(rows, row)
	}
	require.Len(t, rows, 10_134)
	return rows
}

// columnsOf are the numbers of a row of the known answers: its count, and the columns given.
func columnsOf(t *testing.T, row map[string]string, columns ...string) visit {
	numbers := [3]int64{}
	for i, column := range columns {
		if numbers[i] = noMagnitude; row[column] != "" {
			numbers[i] = integer(t, row[column])
		}
	}
	return visit{integer(t, row["count"]), numbers[0], numbers[1], numbers[2]}
}

// runKilled runs a topology over rows in a process that is killed again and again, until it
// gets to its end, and returns its results. also may look at more of them.
func runKilled[K comparable, V any](t *testing.T, rows []visited, from topic.Topic[string, visited], to topic.Topic[window.Key[K], V],
	app func() *stream.Topology, also ...func(*thalweg.Node)) map[window.Key[K]]V {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	fs := vfs.NewMem()
	open := func() *thalweg.Node {
		node, err := thalweg.Options{SyncInterval: -1, Log: log.Options{FS: fs, SegmentBytes: 1 << 20}}.Open("node")
		require.NoError(t, err)
		return node
	}
	node := open()
	n := 0
	send(t, node, from, rows, func(visited) string { n++; return strconv.Itoa(n % 17) })
	for range 5 {
		job, err := node.Start(t.Context(), app())
		require.NoError(t, err)
		time.Sleep(time.Duration(rng.IntN(int(150 * time.Millisecond)))) // when the process dies
		image := fs.Kill()
		_ = job.Stop(t.Context()) // its files are those of the dead process
		require.NoError(t, node.Close())
		fs = image
		node = open()
	}
	run(t, node, app())
	for _, f := range also {
		f(node)
	}
	found := results(t, node, to)
	require.NoError(t, node.Close())
	return found
}

// Sessions of half an hour of four sources are the known ones: without disorder, with
// hours, and with 28 days of it; spread over partitions by anything but the key; and
// with the process killed again and again.
func TestSessions(t *testing.T) {
	for _, c := range []struct {
		file, who string
		disorder  time.Duration
		rows      func(t *testing.T) []visited
		columns   []string
	}{
		{"nasa_sessions_30min_by_host", "host", 0, func(t *testing.T) (rows []visited) {
			for _, r := range readRequests(t) {
				rows = append(rows, visited{Who: r.Host, Time: r.Time, Visit: visit{Rows: 1, A: r.Bytes}})
			}
			return rows
		}, []string{"bytes"}},
		{"wiki_sessions_30min_by_user", "user", 0, func(t *testing.T) (rows []visited) {
			for _, e := range readEdits(t) {
				rows = append(rows, visited{Who: e.User, Time: e.Time, Visit: visit{Rows: 1, A: e.Added, B: e.Deleted}})
			}
			return rows
		}, []string{"added", "deleted"}},
		{"flights_out_sessions_30min_by_dest", "dest", 9 * time.Hour, func(t *testing.T) (rows []visited) {
			for _, f := range readFlights(t) {
				rows = append(rows, visited{Who: f.Columns[9], Time: f.Out, Visit: visit{Rows: 1, A: int64(f.Out.Sub(f.Planned) / time.Minute)}})
			}
			return rows
		}, []string{"dep_delay_min_sum"}},
		{"quakes_sessions_30min_by_net", "net", 29 * 24 * time.Hour, readQuakes, []string{"mag_centi_sum", "mag_count", "mag_centi_max"}},
	} {
		t.Run(c.file, func(t *testing.T) {
			if testing.Short() && c.who != "net" {
				t.Skip("one source is enough")
			}
			want := map[window.Key[string]]visit{}
			for _, row := range expected(t, c.file+".csv.gz") {
				want[window.Key[string]{
					Key:   row[c.who],
					Start: time.UnixMilli(integer(t, row["first_ms"])).UTC(),
					End:   time.UnixMilli(integer(t, row["last_ms"])).UTC(),
				}] = columnsOf(t, row, c.columns...)
			}
			from := topic.New[string, visited]("rows").Partitions(4)
			to := topic.New[window.Key[string], visit]("sessions").Partitions(3)
			require.Equal(t, want, runKilled(t, c.rows(t), from, to, func() *stream.Topology {
				app := stream.New("sessions")
				app.Checkpoint(checkpoint.Every(5 * time.Millisecond)).StopAt(topic.End()).IdleAfter(-1).Disorder(c.disorder)
				app.Stream(from.EventTime(visited.at)).
					GroupBy(func(r visited) string { return r.Who }).
					Session(window.Gap(30*time.Minute)).
					Aggregate(visit.add, visit.merge).
					To(to)
				return app
			}))
		})
	}
}
