package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
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

// asProgram makes the test binary behave as the program, so that a test can kill it.
const asProgram = "THALWEG_FLIGHTS_AS_PROGRAM"

// fromEnvironment returns the number in a variable, or what it is without one.
func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	s, set := os.LookupEnv(name)
	if !set {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	require.NoError(t, err, name)
	return n
}

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The results are the known ones for every window, whatever the number of
// partitions of the results and the time between two checkpoints, and a second
// run finds nothing left to do.
func TestEveryWindowIsExact(t *testing.T) {
	for _, partitions := range []int{1, 7} {
		for _, interval := range []time.Duration{5 * time.Millisecond, 200 * time.Millisecond} {
			if testing.Short() && (partitions == 1) != (interval > 100*time.Millisecond) {
				continue // two of the four
			}
			t.Run(fmt.Sprintf("%d partitions, checkpoints every %v", partitions, interval), func(t *testing.T) {
				c := config{dir: t.TempDir(), interval: interval, partitions: partitions}
				var out bytes.Buffer
				require.NoError(t, run(t.Context(), c, &out))
				require.Contains(t, out.String(), "all 11,319 results are exactly the known ones")
				require.NotContains(t, out.String(), "nothing to do")

				out.Reset()
				require.NoError(t, run(t.Context(), c, &out))
				require.Contains(t, out.String(), "nothing to do: all 56,456 rows are already sent")
				require.Contains(t, out.String(), "nothing to do: all 56,456 rows are already counted")
				require.Contains(t, out.String(), "all 11,319 results are exactly the known ones")
			})
		}
	}
}

// Killed at random moments THALWEG_KILLS times in one job (50 without it), the
// program ends with every result there exactly once for those who read committed
// ones. Others may see more, never less.
func TestKilledAtRandom(t *testing.T) {
	want := int(fromEnvironment(t, "THALWEG_KILLS", 50))
	if testing.Short() {
		want = min(want, 5)
	}
	seed := fromEnvironment(t, "THALWEG_SEED", uint64(time.Now().UnixNano()))
	t.Setenv(asProgram, "1")
	for _, c := range []config{
		{interval: 5 * time.Millisecond, partitions: 7},
		{interval: 200 * time.Millisecond, partitions: 1},
	} {
		t.Run(fmt.Sprintf("%d partitions, checkpoints every %v", c.partitions, c.interval), func(t *testing.T) {
			c.dir, c.seed, c.kills = t.TempDir(), seed, want
			// Sending, counting and counting again last 0.32 s for each kill at
			// this rate, longer than the runs that are killed, 0.26 s; the run after
			// them goes as fast as it can.
			c.rate = 56_456 * 100 / (14 * max(want, 1))
			t.Logf("seed %d: repeat with THALWEG_SEED", c.seed)

			var out bytes.Buffer
			killed, err := runKilled(t.Context(), c, &out)
			t.Log(out.String())
			require.NoError(t, err)
			require.Equal(t, want, killed, "the job was done too early")
			if !testing.Short() {
				require.Regexp(t, "counted .* an earlier run had done the rest|already counted", out.String(), "no kill fell on counting")
			}
			require.Contains(t, out.String(), "all 11,319 results are exactly the known ones")

			node, err := thalweg.Open(c.dir)
			require.NoError(t, err)
			defer node.Close()
			committed, err := readDepartures(t.Context(), node, c.partitions)
			require.NoError(t, err)
			require.NoError(t, checkDepartures(committed))
			seen := 0
			for r, err := range node.ReadToEnd(t.Context(), departures.Partitions(c.partitions).Uncommitted(), topic.Start()) {
				require.NoError(t, err)
				_, known := committed[inUTC(r.Key)]
				require.True(t, known, "even an aborted result is of a window that exists: %v", r.Key)
				seen++
			}
			require.GreaterOrEqual(t, seen, len(committed))
			t.Logf("%d kills, %d results committed, %d seen by one who reads uncommitted ones", killed, len(committed), seen)
		})
	}
}

// With one partition the rows are one stream in file order, and exactly the
// known rows are late.
func TestLateRowsAreTheKnownOnes(t *testing.T) {
	tests := []struct {
		bound, grace  time.Duration
		kept, dropped string
	}{
		{0, 0, "kept_b0s_l0s", "dropped_b0s_l0s"},
		{5 * time.Minute, 0, "kept_b300s_l0s", "dropped_b300s_l0s"},
		{10 * time.Minute, 10 * time.Minute, "kept_b600s_l600s", "dropped_b600s_l600s"},
	}
	if testing.Short() {
		tests = tests[1:2]
	}
	rows, err := readFlights()
	require.NoError(t, err)
	for _, test := range tests {
		t.Run(test.kept, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			node, err := thalweg.Open(t.TempDir())
			require.NoError(t, err)
			defer node.Close()
			inOrder := topic.New[string, Flight]("in-order")
			producer, err := node.Producer(inOrder)
			require.NoError(t, err)
			for _, f := range rows {
				require.NoError(t, producer.Queue(ctx, f.Key(), f))
			}
			require.NoError(t, producer.Close())

			app := stream.New("in-order")
			app.Checkpoint(checkpoint.Every(10 * time.Millisecond)).StopAt(topic.End())
			windows := app.Stream(inOrder).
				EventTime(Flight.Landed).
				Disorder(test.bound).
				GroupBy(Flight.Airline).
				Window(window.Tumbling(10 * time.Minute).Grace(test.grace))
			windows.Count().To(landings)
			windows.Late().To(lateLandings)
			require.NoError(t, node.Run(ctx, app))
			require.NoError(t, ctx.Err())

			kept, late, err := readLandings(ctx, node)
			require.NoError(t, err)
			wantKept, wantLate := byWindow{}, byWindow{}
			require.NoError(t, readCSV(expectedLandings, func(row map[string]string) error {
				n, err := integers(row, "window_start_ms", test.kept, test.dropped)
				if n[1] > 0 {
					wantKept[n[0]] = n[1]
				}
				if n[2] > 0 {
					wantLate[n[0]] = n[2]
				}
				return err
			}))
			require.Equal(t, wantKept, kept)
			require.Equal(t, wantLate, late)
		})
	}
}

// The file reads as its description says.
func TestRowsOfTheFile(t *testing.T) {
	rows, err := readFlights()
	require.NoError(t, err)
	require.Len(t, rows, 56_456)
	first := rows[0]
	require.Equal(t, "MQ3265", first.Key())
	require.Equal(t, time.Date(2011, 4, 1, 5, 59, 0, 0, time.UTC), first.LeftGate())
	require.EqualValues(t, -1, first.DelayMinutes())
	require.EqualValues(t, 247, first.Miles)
}
