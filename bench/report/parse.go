package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Result is a benchmark with its figures.
type Result struct {
	Package string `json:"package"` // the import path
	Name    string `json:"name"`    // without "Benchmark" and the number of processors
	Runs    int    `json:"runs"`    // how often it ran; figures are medians

	// Figures are by their unit, as the benchmark reports them.
	Figures map[string]float64 `json:"figures"`
}

var (
	processors = regexp.MustCompile(`-\d+$`)
	// A benchmark that logs prints its name alone first, and its figures in another line.
	figures = regexp.MustCompile(`^(Benchmark\S*)?\s+\d+\s+\S+ \S+`)
)

// parse reads what go test -bench prints, in the order of its benchmarks. Those that fail print no
// figures, and are an error.
func parse(printed io.Reader) ([]Result, error) {
	type id struct{ pkg, name string }
	var order []id
	samples := map[id][]map[string]float64{}
	var pkg, named string
	lines := bufio.NewScanner(printed)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "--- FAIL") || strings.HasPrefix(line, "FAIL") || strings.HasPrefix(line, "panic:") {
			return nil, fmt.Errorf("a benchmark failed: %s", line)
		}
		if p, ok := strings.CutPrefix(line, "pkg: "); ok {
			pkg = p
			continue
		}
		if !strings.HasPrefix(line, "Benchmark") && !figures.MatchString(line) {
			continue
		}
		fields := strings.Fields(line)
		if strings.HasPrefix(line, "Benchmark") {
			named, fields = fields[0], fields[1:]
		}
		if len(fields) < 3 || named == "" {
			continue // the name alone
		}
		if _, err := strconv.Atoi(fields[0]); err != nil {
			continue // output of its own
		}
		sample := map[string]float64{}
		for i := 1; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %q is no figure", named, fields[i])
			}
			sample[fields[i+1]] = value
		}
		key := id{pkg, processors.ReplaceAllString(strings.TrimPrefix(named, "Benchmark"), "")}
		if samples[key] == nil {
			order = append(order, key)
		}
		samples[key] = append(samples[key], sample)
	}
	var results []Result
	for _, key := range order {
		results = append(results, Result{key.pkg, key.name, len(samples[key]), medians(samples[key])})
	}
	return results, lines.Err()
}

// medians are those of each unit over samples.
func medians(samples []map[string]float64) map[string]float64 {
	units := map[string][]float64{}
	for _, s := range samples {
		for unit, value := range s {
			units[unit] = append(units[unit], value)
		}
	}
	all := map[string]float64{}
	for unit := range maps.Keys(units) {
		values := slices.Sorted(slices.Values(units[unit]))
		all[unit] = (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	}
	return all
}
