package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const printed = `goos: linux
goarch: amd64
pkg: github.com/thalweg/thalweg/bench
cpu: some processor
BenchmarkAppend/size=100/batch=1-2   	 100	 12 ns/op	 50.00 %floor	 2000 floor-MB/s	 1000 MB/s	 1234567 records/s	 64 B/op	 0 allocs/op
BenchmarkAppend/size=100/batch=1-2   	 100	 14 ns/op	 70.00 %floor	 2000 floor-MB/s	 1400 MB/s	 2234567 records/s	 64 B/op	 0 allocs/op
BenchmarkLarge
    large_state_test.go:83: round 1: 100 records/s
BenchmarkLarge-2 	 1	 5 ns/op	 0.25 first-commit-s
PASS
ok  	github.com/thalweg/thalweg/bench	12.5s
pkg: github.com/thalweg/thalweg/bench/peers
BenchmarkAppend/a&b-2   	 100	 0 ns/op	 7.000 MB/s
PASS
`

// What benchmarks print is read: packages apart, medians of several runs, whatever they log.
func TestParse(t *testing.T) {
	results, err := parse(strings.NewReader(printed))
	require.NoError(t, err)
	require.Equal(t, []Result{
		{"github.com/thalweg/thalweg/bench", "Append/size=100/batch=1", 2, map[string]float64{
			"ns/op": 13, "%floor": 60, "floor-MB/s": 2000, "MB/s": 1200, "records/s": 1734567, "B/op": 64, "allocs/op": 0}},
		{"github.com/thalweg/thalweg/bench", "Large", 1, map[string]float64{"ns/op": 5, "first-commit-s": 0.25}},
		{"github.com/thalweg/thalweg/bench/peers", "Append/a&b", 1, map[string]float64{"ns/op": 0, "MB/s": 7}},
	}, results)
}

// A run in which a benchmark failed makes no report.
func TestParseFailure(t *testing.T) {
	for _, line := range []string{"--- FAIL: BenchmarkX", "FAIL\tgithub.com/x [build failed]", "panic: no"} {
		_, err := parse(strings.NewReader(printed + line + "\n"))
		require.ErrorContains(t, err, line)
	}
	require.ErrorContains(t, run(strings.NewReader("ok\n"), t.TempDir(), ""), "no benchmark")
}

// The files of a report have all results, the floor beside them, and the page keeps what is
// outside of the comments.
func TestRun(t *testing.T) {
	out, docs := t.TempDir(), t.TempDir()
	page := filepath.Join(docs, "performance.md")
	require.NoError(t, os.WriteFile(page, []byte("before\n"+tableBegins+"old\n"+tableEnds+"after\n"), 0o644))
	require.NoError(t, run(strings.NewReader(printed), out, page))

	table := read(t, filepath.Join(out, "table.md"))
	require.Contains(t, table, "### bench\n\n| benchmark | figures | floor | of the floor |\n| --- | --- | --- | ---: |\n"+
		"| Append/size=100/batch=1 | 1,734,567 records/s, 1,200 MB/s, 0 allocs/op | 2,000 MB/s | 60 % |\n"+
		"| Large | 0.25 first-commit-s |  |  |\n")
	require.Contains(t, table, "### bench/peers\n")
	require.Contains(t, table, "| Append/a&b | 7 MB/s |  |  |\n")

	require.Equal(t, "before\n"+tableBegins+"\n![What is reached of each floor](performance-chart.svg)\n\n"+table+"\n"+tableEnds+"after\n", read(t, page))
	for _, dir := range []string{out + "/", docs + "/performance-"} {
		var r Report
		require.NoError(t, json.Unmarshal([]byte(read(t, dir+"results.json")), &r))
		require.Len(t, r.Results, 3)
		require.NotEmpty(t, r.Machine.Go)

		chart := read(t, dir+"chart.svg")
		require.Contains(t, chart, ">Append/size=100/batch=1<")
		require.Contains(t, chart, `width="120.0"`, "60 of 200 percent of 400")
		tokens := xml.NewDecoder(strings.NewReader(chart))
		for {
			_, err := tokens.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
		}
	}
	require.NoError(t, os.WriteFile(page, []byte("no comments\n"), 0o644))
	require.ErrorContains(t, run(strings.NewReader(printed), out, page), "lacks the comments")
}

func TestNumber(t *testing.T) {
	for want, v := range map[string]float64{"1,234,567": 1234567.2, "-1,000": -1000, "123": 123.4, "12.3": 12.34, "1.23": 1.234, "0.00123": 0.001234, "0": 0, "7": 7} {
		require.Equal(t, want, number(v))
	}
}

func read(t *testing.T, name string) string {
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}
