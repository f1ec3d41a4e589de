package main

import (
	"context"
	_ "embed" // the known answers travel in the program
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

var (
	//go:embed data/expected_departures.csv.gz
	expectedDepartures []byte
	//go:embed data/expected_landings.csv.gz
	expectedLandings []byte
)

// readDepartures reads the results as anyone would: committed ones, each window
// and carrier exactly once.
func readDepartures(ctx context.Context, node *thalweg.Node, partitions int) (hourly, error) {
	hours := hourly{}
	for r, err := range node.ReadToEnd(ctx, departures.Partitions(partitions), topic.Start()) {
		if err != nil {
			return nil, err
		}
		key := inUTC(r.Key)
		if _, twice := hours[key]; twice {
			return nil, fmt.Errorf("the hour of %v and carrier %s have two results", key.Start, key.Key)
		}
		hours[key] = r.Value
	}
	return hours, nil
}

// check compares every window of both pipelines with the known answer.
func check(ctx context.Context, node *thalweg.Node, hours hourly, out io.Writer) error {
	if err := checkDepartures(hours); err != nil {
		return fmt.Errorf("departures: %w", err)
	}
	fmt.Fprintf(out, "departures: all %s results are exactly the known ones\n", thousands(int64(len(hours))))

	kept, late, err := readLandings(ctx, node)
	if err != nil {
		return err
	}
	if err := checkLandings(kept, late); err != nil {
		return fmt.Errorf("landings: %w", err)
	}
	fmt.Fprintf(out, "landings: %s counted in time, %s late and kept apart, none lost in any of %s windows\n",
		thousands(sum(kept)), thousands(sum(late)), thousands(int64(len(kept))))
	return nil
}

func checkDepartures(hours hourly) error {
	expected := hourly{}
	err := readCSV(expectedDepartures, func(row map[string]string) error {
		n, err := integers(row, "window_start_ms", "window_end_ms", "count", "dep_delay_min_sum", "distance_mi_sum")
		key := window.Key[string]{Key: row["carrier"], Start: time.UnixMilli(n[0]).UTC(), End: time.UnixMilli(n[1]).UTC()}
		expected[key] = Tally{Departures: n[2], DelayMinutes: n[3], Miles: n[4]}
		return err
	})
	if err != nil {
		return err
	}
	for key, want := range expected {
		if got, ok := hours[key]; !ok || got != want {
			return fmt.Errorf("%s in the hour of %v: got %+v, the known answer is %+v", key.Key, key.Start, got, want)
		}
	}
	if len(hours) != len(expected) {
		return fmt.Errorf("got %d results, %d are known", len(hours), len(expected))
	}
	return nil
}

// byWindow holds a number of rows for each window, by its start in Unix ms.
type byWindow map[int64]int64

func sum(rows byWindow) (total int64) {
	for _, n := range rows {
		total += n
	}
	return total
}

// readLandings returns the rows counted in time and the late ones, by window.
func readLandings(ctx context.Context, node *thalweg.Node) (kept, late byWindow, err error) {
	kept, late = byWindow{}, byWindow{}
	seen := map[window.Key[string]]bool{}
	for r, err := range node.ReadToEnd(ctx, landings, topic.Start()) {
		if err != nil {
			return nil, nil, err
		}
		key := inUTC(r.Key)
		if seen[key] {
			return nil, nil, fmt.Errorf("landings: the window of %v and carrier %s have two results", key.Start, key.Key)
		}
		seen[key] = true
		kept[key.Start.UnixMilli()] += r.Value
	}
	for r, err := range node.ReadToEnd(ctx, lateLandings, topic.Start()) {
		if err != nil {
			return nil, nil, err
		}
		late[r.Value.On.Truncate(10*time.Minute).UnixMilli()]++
	}
	return kept, late, nil
}

// checkLandings compares kept plus late rows of each window with all there are.
// Which rows are late depends on how fast the partitions are read beside each
// other; that none is lost does not.
func checkLandings(kept, late byWindow) error {
	var known int64
	err := readCSV(expectedLandings, func(row map[string]string) error {
		n, err := integers(row, "window_start_ms", "kept_b300s_l0s", "dropped_b300s_l0s")
		if err != nil {
			return err
		}
		start, all := n[0], n[1]+n[2]
		if kept[start]+late[start] != all {
			return fmt.Errorf("window of %v: %d in time and %d late, there are %d", time.UnixMilli(start).UTC(), kept[start], late[start], all)
		}
		known += all
		return nil
	})
	if err != nil {
		return err
	}
	if got := sum(kept) + sum(late); got != known {
		return fmt.Errorf("got %d rows in all, %d are known: there are windows that are not", got, known)
	}
	return nil
}

// inUTC makes keys comparable: times that are equal may differ in their zone.
func inUTC(key window.Key[string]) window.Key[string] {
	key.Start, key.End = key.Start.UTC(), key.End.UTC()
	return key
}

func integers(row map[string]string, names ...string) ([]int64, error) {
	values := make([]int64, len(names))
	for i, name := range names {
		n, err := strconv.ParseInt(row[name], 10, 64)
		if err != nil {
			return values, err
		}
		values[i] = n
	}
	return values, nil
}
