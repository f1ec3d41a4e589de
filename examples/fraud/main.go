// Fraud watches charges to cards. It raises an alert when a large charge comes soon after a
// tiny one, which tries whether the card works, and when a large one is not confirmed by the
// holder within five minutes; for an hour after an alert the card is declined.
//
//	go run ./examples/fraud -dir run/fraud
//
// The node is closed in the middle of the day and opened again, with charges unconfirmed and
// cards blocked; the alerts are compared with what a plain loop over all the events finds.
// README.md explains it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// The topics. The key is the card.
var (
	events   = topic.New[string, Event]("card-events").Partitions(4)
	alerts   = topic.New[string, Alert]("alerts")
	declined = topic.New[string, Event]("declined")
)

func watchCards() *stream.Topology {
	app := stream.New("fraud").IdleAfter(-1)
	refused := app.Side[string, Event]("declined")
	app.Stream(events).GroupByKey().Process(detector{refused}, refused).As("watch").To(alerts)
	refused.Stream().To(declined)
	return app
}

func main() {
	dir := flag.String("dir", "run/fraud", "the node's `directory`, to be empty or missing")
	flag.Parse()
	if err := run(context.Background(), *dir, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fraud:", err)
		os.Exit(1)
	}
}

// run does the first half of the day, closes the node, and does the rest.
func run(ctx context.Context, dir string, out io.Writer) error {
	day := makeDay()
	if err := runHalf(ctx, dir, day[:len(day)/2], watchCards(), out); err != nil {
		return err
	}
	fmt.Fprintln(out, "the node is closed, and opened again")
	if err := runHalf(ctx, dir, day[len(day)/2:], watchCards().StopAt(topic.End()), out); err != nil {
		return err
	}
	return check(ctx, dir, day, out)
}

// runHalf sends events, has the job come to their end, and closes the node, which stops
// the job after a checkpoint.
func runHalf(ctx context.Context, dir string, half []happened, app *stream.Topology, out io.Writer) (err error) {
	node, err := thalweg.Open(dir)
	if err != nil {
		return err
	}
	defer closing(node, &err)
	producer, err := node.Producer(events)
	if err != nil {
		return err
	}
	for _, h := range half {
		if err := producer.QueueRecord(ctx, topic.Record[string, Event]{Key: h.card, Value: h.event, Time: h.at}, nil); err != nil {
			return err
		}
	}
	if err := producer.Close(); err != nil {
		return err
	}
	job, err := node.Start(ctx, app)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d events\n", len(half))
	return job.CatchUp(ctx)
}

func closing(node *thalweg.Node, err *error) {
	if closed := node.Close(); *err == nil {
		*err = closed
	}
}

// check compares what was raised and declined with what a plain loop finds.
func check(ctx context.Context, dir string, day []happened, out io.Writer) (err error) {
	node, err := thalweg.Open(dir)
	if err != nil {
		return err
	}
	defer closing(node, &err)
	want := expected(day)
	raised, refused := map[string]int{}, 0
	for r, err := range node.ReadToEnd(ctx, alerts, topic.Start()) {
		if err != nil {
			return err
		}
		key := finding{r.Key, r.Time.UnixMilli(), r.Value}
		if want.alerts[key] == 0 {
			return fmt.Errorf("an alert that is not due: %+v", key)
		}
		want.alerts[key]--
		raised[r.Value.Rule]++
	}
	for key, n := range want.alerts {
		if n > 0 {
			return fmt.Errorf("missing: %+v", key)
		}
	}
	for _, err := range node.ReadToEnd(ctx, declined, topic.Start()) {
		if err != nil {
			return err
		}
		refused++
	}
	if refused != want.declined {
		return fmt.Errorf("%d charges declined, %d should be", refused, want.declined)
	}
	for _, rule := range []string{"large after a probe", "large and not confirmed"} {
		fmt.Fprintf(out, "%s: %d\n", rule, raised[rule])
	}
	fmt.Fprintf(out, "all alerts are right, and all %d charges declined\n", refused)
	return nil
}
