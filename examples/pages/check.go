package main

import (
	"bytes"
	"context"
	_ "embed" // the known answers travel in the program
	"encoding/csv"
	"fmt"
	"io"
	"strings"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/topic"
)

//go:embed data/expected_top5.csv
var expectedTop []byte

// check prints the first page of each hour and compares all with the known answers, which
// begin with a line of names.
func check(ctx context.Context, node *thalweg.Node, out io.Writer) error {
	rows, err := csv.NewReader(bytes.NewReader(expectedTop)).ReadAll()
	if err != nil {
		return err
	}
	rows = rows[1:]
	hours, places := 0, 0
	for r, err := range node.ReadToEnd(ctx, topPages, topic.Start()) {
		if err != nil {
			return err
		}
		hours++
		for rank, p := range r.Value.All() {
			if rank == 1 {
				fmt.Fprintf(out, "%s  %3d  %s\n", r.Key.Start.UTC().Format("15:04"), p.Score, strings.Replace(p.Key, "\t", "  ", 1))
			}
			channel, page, _ := strings.Cut(p.Key, "\t")
			got := []string{fmt.Sprint(r.Key.Start.UnixMilli()), fmt.Sprint(r.Key.End.UnixMilli()), fmt.Sprint(rank), channel, page, fmt.Sprint(p.Score)}
			if places == len(rows) {
				return fmt.Errorf("%q comes after the last of the %d known answers", got, len(rows))
			}
			if want := rows[places]; strings.Join(got, ",") != strings.Join(want, ",") {
				return fmt.Errorf("answer %d is %q, the known one is %q", places+1, got, want)
			}
			places++
		}
	}
	if places != len(rows) {
		return fmt.Errorf("%d answers, %d are known", places, len(rows))
	}
	fmt.Fprintf(out, "all %d places of %d hours are exactly the known ones\n", places, hours)
	return nil
}
