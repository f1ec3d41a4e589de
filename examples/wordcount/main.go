// Wordcount counts words and is asked for counts while it runs. It is the smallest program that
// has all the parts: a topic, a job with a table, lines that come in, a look at the table, and a
// node that is closed and goes on where it was. README.md explains it.
//
//	go run ./examples/wordcount -dir run/wordcount
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// text is what is counted, a line at a time.
var text = []string{
	"the river is long and the river is old",
	"where the river is deep it is slow",
	"and where it is slow the line of the deep",
	"is the line that the river keeps",
}

var lines = topic.New[string, string]("lines").Partitions(2)

// countWords is the job, and its table of words.
func countWords() (app *stream.Topology, counts stream.Table[string, int64]) {
	app = stream.New("wordcount")
	counts = app.Stream(lines).
		FlatMap(strings.FieldsSeq).
		GroupBy(strings.ToLower).
		Count().As("counts")
	return app, counts
}

func main() {
	dir := flag.String("dir", "run/wordcount", "the node's `directory`, to be empty or missing")
	flag.Parse()
	if err := run(context.Background(), *dir, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "wordcount:", err)
		os.Exit(1)
	}
}

// run counts the text in two halves, with the node closed and opened again between them.
func run(ctx context.Context, dir string, out io.Writer) error {
	half := len(text) / 2
	for part, some := range [][]string{text[:half], text[half:]} {
		if err := countAndAsk(ctx, dir, part*half, some, out); err != nil {
			return err
		}
	}
	return nil
}

// countAndAsk sends lines, the first of them number first, and asks for counts.
func countAndAsk(ctx context.Context, dir string, first int, some []string, out io.Writer) (err error) {
	node, err := thalweg.Open(dir)
	if err != nil {
		return err
	}
	defer func() { // stops the job after a last checkpoint
		if closed := node.Close(); err == nil {
			err = closed
		}
	}()
	producer, err := node.Producer(lines)
	if err != nil {
		return err
	}
	for i, line := range some {
		if err := producer.Send(ctx, fmt.Sprint("line ", first+i), line); err != nil {
			return err
		}
	}
	if err := producer.Close(); err != nil {
		return err
	}
	app, counts := countWords()
	job, err := node.Start(ctx, app)
	if err != nil {
		return err
	}
	if err := job.CatchUp(ctx); err != nil { // all that was sent is counted and committed
		return err
	}
	return ask(ctx, job, counts, first+len(some), out)
}

// ask looks at the table while the job runs.
func ask(ctx context.Context, job *stream.Job, counts stream.Table[string, int64], sent int, out io.Writer) error {
	view := job.View(counts)
	n, _, err := view.Get(ctx, "the")
	if err != nil {
		return err
	}
	words, total := 0, int64(0)
	for row, err := range view.All(ctx) {
		if err != nil {
			return err
		}
		words++
		total += row.Value
	}
	_, err = fmt.Fprintf(out, "after %d lines: %d words, %d of them different, \"the\" %d times\n", sent, total, words, n)
	return err
}
