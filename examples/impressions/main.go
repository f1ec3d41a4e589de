// Impressions joins each impression of an advertisement with the click on it, if one
// comes within ten minutes, and gives the rate of clicks by campaign and hour.
//
//	go run ./examples/impressions -dir run/impressions
//
// Both topics hold a day. An impression without a click counts too, but only when it
// is certain that none comes; so the join keeps it until event time has passed it by ten
// minutes. The job is stopped half way and started again, and the rates are compared with
// what a plain loop over all the data computes.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// Impression is an advertisement that was shown. Its id is the key of both topics.
type Impression struct{ Campaign string }

// Click is a click on the impression with the same key.
type Click struct{ User string }

// Outcome is an impression, and whether it was clicked on.
type Outcome struct {
	Campaign string
	Clicked  bool
}

func outcome(i Impression, _ Click, clicked bool) Outcome { return Outcome{i.Campaign, clicked} }

// Rate is how often the impressions of a campaign were clicked on in an hour.
type Rate struct{ Impressions, Clicks int }

// Add counts one more.
func (r Rate) Add(o Outcome) Rate {
	r.Impressions++
	if o.Clicked {
		r.Clicks++
	}
	return r
}

// The topics. The two that are joined have the same number of partitions, and their
// records the same key, so nothing has to be shuffled for it.
var (
	impressions = topic.New[string, Impression]("impressions").Partitions(4)
	clicks      = topic.New[string, Click]("clicks").Partitions(4)
	rates       = topic.New[window.Key[string], Rate]("rates")
)

// patience is how long after an impression a click on it counts.
const patience = 10 * time.Minute

func countRates() *stream.Topology {
	app := stream.New("rates").Disorder(disorder).IdleAfter(-1)
	app.Stream(impressions).
		LeftJoin(app.Stream(clicks), window.Between(0, patience), outcome).As("clicked").
		GroupBy(func(o Outcome) string { return o.Campaign }).
		Window(window.Tumbling(time.Hour)).
		Aggregate(Rate.Add).As("rate").
		To(rates)
	return app
}

func main() {
	dir := flag.String("dir", "run/impressions", "the node's `directory`, made where it is missing")
	flag.Parse()
	if err := run(context.Background(), *dir, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "impressions:", err)
		os.Exit(1)
	}
}

// run sends a day in two halves, with the job stopped and started between them.
func run(ctx context.Context, dir string, out io.Writer) error {
	shown := makeDay()
	for part, half := range [][]event{shown[:len(shown)/2], shown[len(shown)/2:]} {
		if err := runHalf(ctx, dir, half, part == 1); err != nil {
			return err
		}
		fmt.Fprintf(out, "half %d: %d events sent and joined\n", part+1, len(half))
	}
	return check(ctx, dir, shown, out)
}

// runHalf sends events, lets the job come to their end and stops it.
func runHalf(ctx context.Context, dir string, events []event, last bool) (err error) {
	node, err := thalweg.Open(dir)
	if err != nil {
		return err
	}
	defer func() {
		if closed := node.Close(); err == nil {
			err = closed
		}
	}()
	if err := send(ctx, node, events); err != nil {
		return err
	}
	app := countRates()
	if last {
		app.StopAt(topic.End()) // event time ends, and with it every window
		return node.Run(ctx, app)
	}
	job, err := node.Start(ctx, app)
	if err != nil {
		return err
	}
	if err := job.CatchUp(ctx); err != nil {
		return err
	}
	return job.Stop(ctx)
}

// check compares the rates with what a plain loop computes.
func check(ctx context.Context, dir string, events []event, out io.Writer) (err error) {
	node, err := thalweg.Open(dir)
	if err != nil {
		return err
	}
	defer func() {
		if closed := node.Close(); err == nil {
			err = closed
		}
	}()
	want := expected(events)
	hours, total := len(want), Rate{}
	for r, err := range node.ReadToEnd(ctx, rates, topic.Start()) {
		if err != nil {
			return err
		}
		if want[r.Key] != r.Value {
			return fmt.Errorf("%v: %+v, and it should be %+v", r.Key, r.Value, want[r.Key])
		}
		delete(want, r.Key)
		total.Impressions += r.Value.Impressions
		total.Clicks += r.Value.Clicks
	}
	if len(want) > 0 {
		return fmt.Errorf("%d hours of campaigns are missing", len(want))
	}
	fmt.Fprintf(out, "%d impressions, %d clicked on in time; all %d rates by campaign and hour are right\n", total.Impressions, total.Clicks, hours)
	return nil
}
