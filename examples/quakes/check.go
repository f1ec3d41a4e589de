package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/examples/quakes/data"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// check compares both answers with the known ones and prints the strongest hour.
func check(ctx context.Context, node *thalweg.Node, out io.Writer) error {
	if err := checkAll(ctx, node, out); err != nil {
		return fmt.Errorf("by hour: %w", err)
	}
	if err := checkNews(ctx, node, out); err != nil {
		return fmt.Errorf("news: %w", err)
	}
	return nil
}

func checkAll(ctx context.Context, node *thalweg.Node, out io.Writer) error {
	type hour struct {
		start   int64 // Unix ms
		network string
	}
	want := map[hour]Shaking{}
	err := readCSV(data.ByHour, func(row map[string]string) error {
		start, err := strconv.ParseInt(row["window_start_ms"], 10, 64)
		if err != nil {
			return err
		}
		n, err := numbers(row, "count", "mag_count", "mag_centi_sum", "mag_centi_max")
		want[hour{start, row["net"]}] = Shaking{n[0], n[1], n[2], n[3]}
		return err
	})
	if err != nil {
		return err
	}
	results := 0
	var strongest topic.Record[window.Key[string], Shaking]
	for r, err := range node.ReadToEnd(ctx, shaking, topic.Start()) {
		if err != nil {
			return err
		}
		results++
		if known, ok := want[hour{r.Key.Start.UnixMilli(), r.Key.Key}]; !ok || r.Value != known {
			return fmt.Errorf("%s in the hour of %v: got %+v, the known answer is %+v", r.Key.Key, r.Key.Start.UTC(), r.Value, known)
		}
		if strongest.Value.Highest < r.Value.Highest {
			strongest = r
		}
	}
	if results != len(want) {
		return fmt.Errorf("%d results, %d are known", results, len(want))
	}
	fmt.Fprintf(out, "strongest: %.2f, reported by %q in the hour of %s\n",
		float64(strongest.Value.Highest)/100, strongest.Key.Key, strongest.Key.Start.UTC().Format(time.DateTime))
	fmt.Fprintf(out, "all %d hours and networks are exactly the known ones\n", results)
	return nil
}

// checkNews compares, for each hour, how many quakes made it into the newest count, and how
// many were late.
func checkNews(ctx context.Context, node *thalweg.Node, out io.Writer) error {
	kept, dropped := map[int64]int64{}, map[int64]int64{} // by start of the hour
	newest := map[window.Key[string]]int64{}
	updates := 0
	for r, err := range node.ReadToEnd(ctx, news, topic.Start()) {
		if err != nil {
			return err
		}
		key := window.Key[string]{Key: r.Key.Key, Start: r.Key.Start.UTC(), End: r.Key.End.UTC()}
		kept[key.Start.UnixMilli()] += r.Value - newest[key]
		newest[key] = r.Value
		updates++
	}
	for r, err := range node.ReadToEnd(ctx, late, topic.Start()) {
		if err != nil {
			return err
		}
		dropped[r.Value.At.Truncate(time.Hour).UnixMilli()]++
	}
	var inTime, tooLate int64
	err := readCSV(data.Late, func(row map[string]string) error {
		start, err := strconv.ParseInt(row["window_start_ms"], 10, 64)
		if err != nil {
			return err
		}
		n, err := numbers(row, "kept_b86400s_l172800s", "dropped_b86400s_l172800s")
		if err != nil {
			return err
		}
		if kept[start] != n[0] || dropped[start] != n[1] {
			return fmt.Errorf("in the hour of %v: %d kept and %d late, the known answer is %d and %d",
				time.UnixMilli(start).UTC(), kept[start], dropped[start], n[0], n[1])
		}
		inTime += n[0]
		tooLate += n[1]
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "with the patience of a day, and two more for corrections: %d counted in %d results, %d late and kept apart\n",
		inTime, updates, tooLate)
	return nil
}

// numbers reads columns of a row; an empty one is zero.
func numbers(row map[string]string, columns ...string) (n []int64, err error) {
	for _, column := range columns {
		var number int64
		if row[column] != "" {
			if number, err = strconv.ParseInt(row[column], 10, 64); err != nil {
				return make([]int64, len(columns)), fmt.Errorf("%s: %w", column, err)
			}
		}
		n = append(n, number)
	}
	return n, nil
}
