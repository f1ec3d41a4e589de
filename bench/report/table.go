package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

const (
	floorPrefix = "floor-"
	ofFloor     = "%floor"
)

// first are the units that a reader looks for first, in this order; the others follow by name.
var first = []string{"records/s", "records/s/core", "entries/s", "keys/s", "transactions/s", "MB/s", "p50-ms", "p99-ms", "p99.9-ms", "p50-µs", "p99-µs", "p99.9-µs"}

// left are units that say nothing beside the others.
var left = []string{"B/op"}

// markdown is a table for each package.
func (r Report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. Medians where a benchmark ran more than once.\n", r.Machine)
	pkg := ""
	for _, result := range r.Results {
		if result.Package != pkg {
			pkg = result.Package
			fmt.Fprintf(&b, "\n### %s\n\n| benchmark | figures | floor | of the floor |\n| --- | --- | --- | ---: |\n", shortPackage(pkg))
		}
		ours, floor := result.split()
		share := ""
		if v, ok := result.Figures[ofFloor]; ok {
			share = number(v) + " %"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", result.Name, strings.Join(ours, ", "), strings.Join(floor, ", "), share)
	}
	return b.String()
}

// split gives the figures of the benchmark and those of its floor, as text.
func (r Result) split() (ours, floor []string) {
	units := slices.SortedFunc(maps.Keys(r.Figures), func(a, b string) int {
		return compareUnits(strings.TrimPrefix(a, floorPrefix), strings.TrimPrefix(b, floorPrefix))
	})
	_, timed := r.Figures[floorPrefix+"ns/op"]
	timed = timed || len(r.Figures) == 1
	for _, unit := range units {
		value := r.Figures[unit]
		bare, isFloor := strings.CutPrefix(unit, floorPrefix)
		switch {
		case unit == ofFloor || slices.Contains(left, unit):
		case unit == "ns/op" && !timed: // what an operation is differs; rates do not
		case isFloor:
			floor = append(floor, figure(value, bare))
		default:
			ours = append(ours, figure(value, unit))
		}
	}
	return ours, floor
}

func compareUnits(a, b string) int {
	rank := func(unit string) int {
		if i := slices.Index(first, unit); i >= 0 {
			return i
		}
		return len(first)
	}
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

func figure(value float64, unit string) string {
	if share, ok := strings.CutPrefix(unit, "%"); ok {
		return number(value) + " % " + share
	}
	return number(value) + " " + unit
}

// number has three digits that count, and commas.
func number(v float64) string {
	switch size := math.Abs(v); {
	case size >= 1000:
		return commas(fmt.Sprintf("%.0f", v))
	case size >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case size >= 10:
		return fmt.Sprintf("%.1f", v)
	case size >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

func commas(digits string) string {
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// shortPackage is an import path without the module.
func shortPackage(pkg string) string {
	return strings.TrimPrefix(pkg, "github.com/thalweg/thalweg/")
}

const tableBegins, tableEnds = "<!-- table: made by make bench -->\n", "<!-- end of the table -->\n"

// putTable replaces what is between the comments of a page.
func putTable(page, table string) (string, error) {
	before, rest, ok := strings.Cut(page, tableBegins)
	_, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		return "", errors.New("the page lacks the comments between which the table goes")
	}
	return before + tableBegins + "\n" + table + "\n" + tableEnds + after, nil
}
