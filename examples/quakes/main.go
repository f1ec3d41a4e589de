// Quakes counts a month of earthquakes by hour and network, from a feed in the order of
// revision, in which an event may come four weeks after its time. It does so twice: with
// the patience to wait for all of them, and with that of a day, where what is late goes to
// a topic of its own. All answers are the known ones. README.md explains it.
//
//	go run ./examples/quakes -dir run/quakes
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
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// The topics. One partition keeps the order of the feed, on which it depends who is late.
var (
	quakes = topic.New[string, Quake]("quakes").EventTime(Quake.When)

	shaking = topic.New[window.Key[string], Shaking]("shaking-by-hour")
	news    = topic.New[window.Key[string], int64]("news-by-hour")
	late    = topic.New[string, Quake]("late-quakes")
)

const day = 24 * time.Hour

// countAll waits for the latest row there is: its windows close in the end, with all that
// belongs to them.
func countAll() *stream.Topology {
	app := stream.New("quakes").StopAt(topic.End()).Disorder(29 * day)
	app.Stream(quakes).
		GroupBy(Quake.Reporter).
		Window(window.Tumbling(time.Hour)).
		Aggregate(Shaking.Add).As("shaking").
		To(shaking)
	return app
}

// countNews has an hour's count a day later, and a new one for each quake of the two days
// after. What comes later still is not lost: it is in the topic of late ones.
func countNews() *stream.Topology {
	app := stream.New("quake-news").StopAt(topic.End()).Disorder(day)
	hours := app.Stream(quakes).
		GroupBy(Quake.Reporter).
		Window(window.Tumbling(time.Hour).Grace(2 * day)).
		Emit(window.OnUpdate)
	hours.Count().As("news").To(news)
	hours.Late().To(late)
	return app
}

func main() {
	dir := flag.String("dir", "run/quakes", "the node's `directory`, made where it is missing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quakes:", err)
		os.Exit(1)
	}
}

// run does the whole of it, or what an earlier run has left.
func run(ctx context.Context, dir string, out io.Writer) (err error) {
	node, err := thalweg.Open(dir)
	if err != nil {
		return err
	}
	defer func() {
		if closed := node.Close(); err == nil {
			err = closed
		}
	}()
	if err := send(ctx, node); err != nil {
		return err
	}
	for _, app := range []*stream.Topology{countAll(), countNews()} {
		if err := node.Run(ctx, app); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return check(ctx, node, out)
}

// send sends what is not in the topic yet, in the order of the file.
func send(ctx context.Context, node *thalweg.Node) (err error) {
	rows, err := readQuakes()
	if err != nil {
		return err
	}
	if err := node.Create(ctx, quakes); err != nil {
		return err
	}
	partition, err := node.Log().Partition(topic.TopicPartition{Topic: quakes.Name()})
	if err != nil {
		return err
	}
	producer, err := node.Producer(quakes)
	if err != nil {
		return err
	}
	defer func() {
		if closed := producer.Close(); err == nil {
			err = closed
		}
	}()
	for _, q := range rows[partition.End().Offset:] {
		if err := producer.Queue(ctx, q.Network, q); err != nil {
			return err
		}
	}
	return producer.Flush(ctx)
}
