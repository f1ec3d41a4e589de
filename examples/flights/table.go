package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/thalweg/thalweg/window"
)

// hourly holds the departures of each hour and carrier.
type hourly map[window.Key[string]]Tally

// printTable prints one line for each carrier, the busiest first.
func printTable(out io.Writer, hours hourly) {
	type line struct {
		carrier string
		sum     Tally
		busiest time.Time
		most    int64
	}
	lines := map[string]*line{}
	for key, tally := range hours {
		l := lines[key.Key]
		if l == nil {
			l = &line{carrier: key.Key}
			lines[key.Key] = l
		}
		l.sum.Departures += tally.Departures
		l.sum.DelayMinutes += tally.DelayMinutes
		l.sum.Miles += tally.Miles
		if tally.Departures > l.most || tally.Departures == l.most && key.Start.Before(l.busiest) {
			l.most, l.busiest = tally.Departures, key.Start
		}
	}

	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "carrier\tdepartures\tmean delay\tmiles\tbusiest hour\tdepartures in it\t")
	for _, l := range slices.SortedFunc(maps.Values(lines), func(a, b *line) int {
		return cmp.Or(cmp.Compare(b.sum.Departures, a.sum.Departures), cmp.Compare(a.carrier, b.carrier))
	}) {
		fmt.Fprintf(table, "%s\t%s\t%.1f min\t%s\t%s\t%d\t\n", l.carrier, thousands(l.sum.Departures),
			float64(l.sum.DelayMinutes)/float64(l.sum.Departures), thousands(l.sum.Miles),
			l.busiest.UTC().Format("Jan _2 15:04"), l.most)
	}
	table.Flush() // errors of out are not ours to handle
	fmt.Fprintln(out)
}
