// Pages says which five pages of Wikipedia were edited most in each hour of a day. The
// feed repeats every third edit, and the node is closed and opened again in the middle:
// the answers are the known ones. README.md explains it.
//
//	go run ./examples/pages -dir run/pages
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/aggregate"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// Top is the pages with the most edits, by title.
type Top = aggregate.Ranking[string, int64]

// The topics. The key of an edit is its page, so that a repeated one comes behind the
// first in the same partition.
var (
	edits    = topic.New[string, Edit]("edits").Partitions(4).EventTime(Edit.When)
	topPages = topic.New[window.Key[string], Top]("top-pages")
)

// Page is how often a page was edited in an hour.
type Page struct {
	Title string
	Edits int64
}

func (p Page) title() string { return p.Title }
func (p Page) edits() int64  { return p.Edits }

// ranked puts key and value of a count into one value.
func ranked(k window.Key[string], edits int64) Page { return Page{k.Key, edits} }

// everything is the one key of all pages.
func everything(Page) string { return "all" }

func topology() *stream.Topology {
	app := stream.New("pages").IdleAfter(-1)
	app.Stream(edits).
		GroupBy(Edit.ID).Deduplicate(time.Hour).As("once").
		GroupBy(Edit.Title).Window(window.Tumbling(time.Hour)).Count().As("edits-by-page").
		ToStream().MapKV(ranked).
		GroupBy(everything).Window(window.Tumbling(time.Hour)).Aggregate(aggregate.Top(5, Page.title, Page.edits)).As("top-pages").
		To(topPages)
	return app
}

func main() {
	dir := flag.String("dir", "run/pages", "the node's `directory`, made where it is missing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

// run does the first half of the day, closes the node, and does the rest.
func run(ctx context.Context, dir string, out io.Writer) error {
	all, err := readEdits()
	if err != nil {
		return err
	}
	sent := feed(all)
	if err := firstHalf(ctx, dir, sent[:len(sent)/2], out); err != nil {
		return err
	}
	fmt.Fprintln(out, "the node is closed, and opened again")
	return secondHalf(ctx, dir, sent, out)
}

func firstHalf(ctx context.Context, dir string, sent []Edit, out io.Writer) (err error) {
	node, err := thalweg.Open(dir)
	if err != nil {
		return err
	}
	defer closing(node, &err)
	if err := send(ctx, node, sent); err != nil {
		return err
	}
	job, err := node.Start(ctx, topology())
	if err != nil {
		return err
	}
	if err := job.CatchUp(ctx); err != nil {
		return err
	}
	if err := job.Stop(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "half of the day: %s\n", summary(job.Status()))
	return nil
}

func secondHalf(ctx context.Context, dir string, sent []Edit, out io.Writer) (err error) {
	node, err := thalweg.Open(dir)
	if err != nil {
		return err
	}
	defer closing(node, &err)
	if err := send(ctx, node, sent); err != nil {
		return err
	}
	job, err := node.Start(ctx, topology().StopAt(topic.End()))
	if err != nil {
		return err
	}
	select {
	case <-job.Done():
		err = job.Wait()
	case <-ctx.Done():
		err = job.Stop(context.WithoutCancel(ctx))
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the rest: %s\n", summary(job.Status()))
	return check(ctx, node, out)
}

func closing(node *thalweg.Node, err *error) {
	if closed := node.Close(); *err == nil {
		*err = closed
	}
}

// summary says what the job read and dropped.
func summary(s stream.Status) string {
	var read, duplicates, late int64
	for _, task := range s.Tasks {
		if task.Stage == "source-"+edits.Name() {
			read += task.Records
		}
		duplicates += task.Duplicates
		late += task.Late
	}
	return fmt.Sprintf("%d edits read, %d of them duplicates, %d late", read, duplicates, late)
}

// send sends what is not in the topic yet: a partition keeps the order of the feed, so the
// number of its records tells which are there.
func send(ctx context.Context, node *thalweg.Node, sent []Edit) (err error) {
	if err := node.Create(ctx, edits); err != nil {
		return err
	}
	there := make([]int64, edits.Spec().Partitions)
	for i := range there {
		partition, err := node.Log().Partition(topic.TopicPartition{Topic: edits.Name(), Partition: topic.PartitionID(i)})
		if err != nil {
			return err
		}
		there[i] = int64(partition.End().Offset)
	}
	producer, err := node.Producer(edits)
	if err != nil {
		return err
	}
	defer func() {
		if closed := producer.Close(); err == nil {
			err = closed
		}
	}()
	for _, e := range sent {
		i := topic.Partition([]byte(e.Title()), len(there))
		if there[i] > 0 {
			there[i]--
			continue
		}
		if err := producer.Queue(ctx, e.Title(), e); err != nil {
			return err
		}
	}
	return producer.Flush(ctx)
}
