// Sessions finds out when people sat down to edit Wikipedia: the edits of a user that follow
// each other without a break of half an hour are one session. The feed is out of order by up
// to an hour, so that sessions begin in their middle and grow together, and the node is closed
// and opened again half way. All sessions are compared with those of the sorted file.
// README.md explains it.
//
//	go run ./examples/sessions -dir run/sessions
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

// The topics.
var (
	edits    = topic.New[string, Edit]("edits").Partitions(4).EventTime(Edit.When)
	sessions = topic.New[window.Key[string], Work]("sessions")
)

// Work is what somebody did in a session.
type Work struct{ Edits, Added, Deleted int64 }

// Add counts one more edit.
func (w Work) Add(e Edit) Work { return w.Merge(Work{1, e.Added, e.Deleted}) }

// Merge is the work of two sessions that turned out to be one.
func (w Work) Merge(later Work) Work {
	return Work{w.Edits + later.Edits, w.Added + later.Added, w.Deleted + later.Deleted}
}

// pause is the longest one within a session.
const pause = 30 * time.Minute

func findSessions() *stream.Topology {
	app := stream.New("sessions").Disorder(disorder).IdleAfter(-1)
	app.Stream(edits).
		Filter(Edit.ByHand).
		GroupBy(Edit.Editor).
		Session(window.Gap(pause)).
		Aggregate(Work.Add, Work.Merge).As("sessions").
		To(sessions)
	return app
}

func main() {
	dir := flag.String("dir", "run/sessions", "the node's `directory`, to be empty or missing")
	flag.Parse()
	if err := run(context.Background(), *dir, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sessions:", err)
		os.Exit(1)
	}
}

// run sends the feed in two halves, with the node closed and opened again between them.
func run(ctx context.Context, dir string, out io.Writer) error {
	all, err := readEdits()
	if err != nil {
		return err
	}
	sent := feed(all)
	if err := runHalf(ctx, dir, sent[:len(sent)/2], findSessions()); err != nil {
		return err
	}
	fmt.Fprintln(out, "half of the feed; the node is closed, and opened again")
	if err := runHalf(ctx, dir, sent[len(sent)/2:], findSessions().StopAt(topic.End())); err != nil {
		return err
	}
	return check(ctx, dir, all, out)
}

func runHalf(ctx context.Context, dir string, half []Edit, app *stream.Topology) (err error) {
	node, err := thalweg.Open(dir)
	if err != nil {
		return err
	}
	defer closing(node, &err) // stops the job after a checkpoint
	producer, err := node.Producer(edits)
	if err != nil {
		return err
	}
	for _, e := range half {
		if err := producer.Queue(ctx, e.Page, e); err != nil {
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
	return job.CatchUp(ctx)
}

func closing(node *thalweg.Node, err *error) {
	if closed := node.Close(); *err == nil {
		*err = closed
	}
}

// check compares the sessions with those of the sorted file and prints the longest one.
func check(ctx context.Context, dir string, all []Edit, out io.Writer) (err error) {
	node, err := thalweg.Open(dir)
	if err != nil {
		return err
	}
	defer closing(node, &err)
	want := expected(all)
	found := 0
	var longest window.Key[string]
	for r, err := range node.ReadToEnd(ctx, sessions, topic.Start()) {
		if err != nil {
			return err
		}
		found++
		key := window.Key[string]{Key: r.Key.Key, Start: r.Key.Start.UTC(), End: r.Key.End.UTC()}
		if known, ok := want[key]; !ok || known != r.Value {
			return fmt.Errorf("session %v: got %+v, it should be %+v", key, r.Value, known)
		}
		if key.End.Sub(key.Start) > longest.End.Sub(longest.Start) {
			longest = key
		}
	}
	if found != len(want) {
		return fmt.Errorf("%d sessions, there are %d", found, len(want))
	}
	fmt.Fprintf(out, "longest: %s from %s to %s, %d edits\n", longest.Key,
		longest.Start.Format(time.TimeOnly), longest.End.Format(time.TimeOnly), want[longest].Edits)
	fmt.Fprintf(out, "all %d sessions are right\n", found)
	return nil
}
