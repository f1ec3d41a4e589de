// Command report makes a table and a chart of what benchmarks print:
//
//	go test -run '^$' -bench . ./bench | go run ./bench/report -out run/bench
//
// It writes results.json, table.md and chart.svg there. With -doc it also puts the
// table into a page, between two comments, and the other two beside that page.
//
// A benchmark reports the floor of a figure under the figure's own unit with "floor-" before
// it, and what its main figure is of the floor in percent as "%floor".
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	out := flag.String("out", "run/bench", "the folder to write to")
	doc := flag.String("doc", "", "a page to put the table into")
	flag.Parse()
	if err := run(os.Stdin, *out, *doc); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// run reads what benchmarks printed and writes the report.
func run(printed io.Reader, out, doc string) error {
	results, err := parse(printed)
	if err != nil {
		return err
	}
	if len(results) == 0 {
		return fmt.Errorf("no benchmark has printed a result: was there a failure before?")
	}
	r := Report{Machine: thisMachine(), Results: results}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := r.write(out, ""); err != nil {
		return err
	}
	table := r.markdown()
	if err := os.WriteFile(filepath.Join(out, "table.md"), []byte(table), 0o644); err != nil {
		return err
	}
	if doc == "" {
		return nil
	}
	page, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(doc), filepath.Ext(doc)) + "-"
	renewed, err := putTable(string(page), fmt.Sprintf("![What is reached of each floor](%schart.svg)\n\n%s", name, table))
	if err != nil {
		return fmt.Errorf("%s: %w", doc, err)
	}
	if err := r.write(filepath.Dir(doc), name); err != nil {
		return err
	}
	return os.WriteFile(doc, []byte(renewed), 0o644)
}

// Report is the content of results.json.
type Report struct {
	Machine Machine  `json:"machine"`
	Results []Result `json:"results"`
}

// write writes results.json and chart.svg, with a prefix to their names.
func (r Report) write(dir, prefix string) error {
	encoded, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, prefix+"results.json"), append(encoded, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, prefix+"chart.svg"), []byte(r.chart()), 0o644)
}
