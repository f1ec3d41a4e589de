// Flights counts every departure from Houston in the second quarter of 2011, by
// hour and by carrier, and shows what kill -9 does to the result: nothing.
//
//	go run ./examples/flights -dir run/flights           # again: all is counted already
//	go run ./examples/flights -dir run/killed -crash     # killed at random until it is done
//
// The rows arrive when a flight is over and are counted by when it left: 86 of
// 100 come after one that left later, by up to eight hours. A second pipeline
// takes the time of landing and waits for five minutes only, so that some rows
// are late; they go to a topic of their own and none is lost. Every window of
// both is compared with the known answer.
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
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// The topics. Structs are JSON on a topic unless it names another codec.
var (
	flights      = topic.New[string, Flight]("flights").Partitions(4)
	departures   = topic.New[window.Key[string], Tally]("departures")
	landings     = topic.New[window.Key[string], int64]("landings")
	lateLandings = topic.New[string, Flight]("late-landings")
)

// Tally is what is counted of an hour's departures.
type Tally struct{ Departures, DelayMinutes, Miles int64 }

// Add counts one more.
func (t Tally) Add(f Flight) Tally {
	t.Departures++
	t.DelayMinutes += f.DelayMinutes()
	t.Miles += f.Miles
	return t
}

// countDepartures counts by the time of leaving the gate. It waits for the latest
// row there is, so no window closes too early.
func countDepartures(c config, p *progress) *stream.Topology {
	app := stream.New("count-departures")
	app.Checkpoint(checkpoint.Every(c.interval)).StopAt(topic.End())

	app.Stream(flights).
		Peek(func(topic.Record[string, Flight]) { p.row() }).
		EventTime(Flight.LeftGate).
		Disorder(8*time.Hour + 10*time.Minute).
		GroupBy(Flight.Airline).
		Window(window.Tumbling(time.Hour)).
		Aggregate(Tally.Add).
		To(departures.Partitions(c.partitions))
	return app
}

// countLandings counts by the time of landing and waits for five minutes: what
// comes later than that goes to the late landings.
func countLandings(c config, p *progress) *stream.Topology {
	app := stream.New("count-landings")
	app.Checkpoint(checkpoint.Every(c.interval)).StopAt(topic.End())

	windows := app.Stream(flights).
		Peek(func(topic.Record[string, Flight]) { p.row() }).
		EventTime(Flight.Landed).
		Disorder(5 * time.Minute).
		GroupBy(Flight.Airline).
		Window(window.Tumbling(10 * time.Minute))
	windows.Count().To(landings)
	windows.Late().To(lateLandings)
	return app
}

// config is what the flags say.
type config struct {
	dir        string
	interval   time.Duration
	partitions int
	rate       int
	crash      bool
	kills      int
	seed       uint64
}

func main() {
	var c config
	flag.StringVar(&c.dir, "dir", "run/flights", "the node's `directory`, made where it is missing")
	flag.DurationVar(&c.interval, "interval", 100*time.Millisecond, "time between two checkpoints")
	flag.IntVar(&c.partitions, "partitions", 4, "partitions of the topic of results")
	flag.IntVar(&c.rate, "rate", 0, "rows counted a second, 0 for as fast as it goes; with -crash 20000")
	flag.BoolVar(&c.crash, "crash", false, "kill the program with SIGKILL at random and start it again, until it is done")
	flag.IntVar(&c.kills, "kills", 1000, "with -crash, the most kills")
	flag.Uint64Var(&c.seed, "seed", uint64(time.Now().UnixNano()), "with -crash, decides when to kill")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if c.crash {
		_, err = runKilled(ctx, c, os.Stdout)
	} else {
		err = run(ctx, c, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "flights:", err)
		os.Exit(1)
	}
}

// run does the whole job, or what an earlier run has left of it.
func run(ctx context.Context, c config, out io.Writer) (err error) {
	rows, err := readFlights()
	if err != nil {
		return err
	}
	node, err := thalweg.Open(c.dir)
	if err != nil {
		return err
	}
	defer func() {
		if closed := node.Close(); err == nil {
			err = closed
		}
	}()

	fmt.Fprintf(out, "%s is open; a checkpoint every %v\n", c.dir, c.interval)
	sending := startProgress(out, "sent", len(rows), 4*c.rate) // counting is what is worth a kill
	err = send(ctx, node, rows, sending)
	sending.stop()
	if err != nil {
		return err
	}
	for _, pipeline := range []func(config, *progress) *stream.Topology{countDepartures, countLandings} {
		counting := startProgress(out, "counted", len(rows), c.rate)
		app := pipeline(c, counting)
		err := node.Run(ctx, app)
		counting.stop()
		if err == nil {
			err = ctx.Err() // interrupted: what is counted is kept, the rest is for the next run
		}
		if err != nil {
			return err
		}
	}

	hours, err := readDepartures(ctx, node, c.partitions)
	if err != nil {
		return err
	}
	printTable(out, hours)
	return check(ctx, node, hours, out)
}
