package e2e

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
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

// visited is a row as sessions see it.
type visited struct {
	Who   string
	Time  time.Time
	Visit visit // of this row alone
}

func (v visit) add(r visited) visit { return v.merge(r.Visit) }

func readDepartures(t *testing.T) (rows []visited) {
	at := func(s string) time.Time {
		when, err := time.Parse("2006-01-02 15:04", s)
		require.NoError(t, err)
		return when
	}
	for _, line := range lines(t, "../../../examples/flights/data/flights.csv.gz")[1:] {
		f := strings.Split(line, ",")
		left, planned := at(f[1]), at(f[4])
		rows = append(rows, visited{f[9], left, visit{Rows: 1, A: int64(left.Sub(planned) / time.Minute)}})
	}
	require.Len(t, rows, 56_456)
	return rows
}

// noMagnitude is the highest of none.
const noMagnitude = math.MinInt64

func readQuakes(t *testing.T) (rows []visited) {
	for _, line := range lines(t, "quakes_usgs_20220206_20220308.csv.gz")[1:] {
		f := strings.SplitN(line, ",", 8)
		when, err := time.Parse(time.RFC3339, f[1])
		require.NoError(t, err)
		row := visited{f[3], when, visit{Rows: 1, C: noMagnitude}}
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

// wantSessions are the known answers; columns are those of the numbers.
func wantSessions(t *testing.T, name, who string, columns ...string) map[window.Key[string]]visit {
	want := map[window.Key[string]]visit{}
	for _, row := range expected(t, name) {
		numbers := [3]int64{}
		for i, column := range columns {
			if column != "" && row[column] != "" {
				numbers[i] = integer(t, row[column])
			} else if column != "" {
				numbers[i] = noMagnitude
			}
		}
		want[window.Key[string]{
			Key:   row[who],
			Start: time.UnixMilli(integer(t, row["first_ms"])).UTC(),
			End:   time.UnixMilli(integer(t, row["last_ms"])).UTC(),
		}] = visit{integer(t, row["count"]), numbers[0], numbers[1], numbers[2]}
	}
	return want
}

// Sessions of half an hour of four sources are the known ones: without disorder, with
// hours, and with 28 days of it; spread over partitions by anything but the key; and
// with the process killed again and again.
func TestSessions(t *testing.T) {
	for _, source := range []struct {
		name     string
		disorder time.Duration
		rows     func(t *testing.T) []visited
		want     func(t *testing.T) map[window.Key[string]]visit
	}{
		{"requests", 0, func(t *testing.T) (rows []visited) {
			for _, r := range readRequests(t) {
				rows = append(rows, visited{r.Host, r.Time, visit{Rows: 1, A: r.Bytes}})
			}
			return rows
		}, func(t *testing.T) map[window.Key[string]]visit {
			return wantSessions(t, "nasa_sessions_30min_by_host.csv.gz", "host", "bytes")
		}},
		{"edits", 0, func(t *testing.T) (rows []visited) {
			for _, e := range readEdits(t) {
				rows = append(rows, visited{e.User, e.Time, visit{Rows: 1, A: e.Added, B: e.Deleted}})
			}
			return rows
		}, func(t *testing.T) map[window.Key[string]]visit {
			return wantSessions(t, "wiki_sessions_30min_by_user.csv.gz", "user", "added", "deleted")
		}},
		{"departures", 9 * time.Hour, readDepartures, func(t *testing.T) map[window.Key[string]]visit {
			return wantSessions(t, "flights_out_sessions_30min_by_dest.csv.gz", "dest", "dep_delay_min_sum")
		}},
		{"quakes", 29 * 24 * time.Hour, readQuakes, func(t *testing.T) map[window.Key[string]]visit {
			return wantSessions(t, "quakes_sessions_30min_by_net.csv.gz", "net", "mag_centi_sum", "mag_count", "mag_centi_max")
		}},
	} {
		t.Run(source.name, func(t *testing.T) {
			if testing.Short() && source.name != "quakes" {
				t.Skip("one of them is enough")
			}
			rows, want := source.rows(t), source.want(t)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d, %d sessions", seed, len(want))
			rng := rand.New(rand.NewPCG(seed, 0))
			from := topic.New[string, visited]("rows").Partitions(4)
			to := topic.New[window.Key[string], visit]("sessions").Partitions(3)
			app := func() *stream.Topology {
				app := stream.New("sessions")
				app.Checkpoint(checkpoint.Every(5 * time.Millisecond)).StopAt(topic.End()).IdleAfter(-1).Disorder(source.disorder)
				app.Stream(from.EventTime(func(r visited) time.Time { return r.Time })).
					GroupBy(func(r visited) string { return r.Who }).
					Session(window.Gap(30*time.Minute)).
					Aggregate(visit.add, visit.merge).
					To(to)
				return app
			}
			fs := vfs.NewMem()
			node, err := inMemory(fs)
			require.NoError(t, err)
			n := 0
			send(t, node, from, rows, func(visited) string { n++; return strconv.Itoa(n % 17) })
			for range 5 {
				job, err := node.Start(t.Context(), app())
				require.NoError(t, err)
				time.Sleep(time.Duration(rng.IntN(int(150 * time.Millisecond)))) // when the process dies
				image := fs.Kill()
				_ = job.Stop(t.Context())
				require.NoError(t, node.Close())
				fs = image
				node, err = inMemory(fs)
				require.NoError(t, err)
			}
			run(t, node, app())
			require.Equal(t, want, results(t, node, to))
			require.NoError(t, node.Close())
		})
	}
}
