// Claims is for those who know Kafka's producers and consumers: no topology, but a
// producer, a group of consumers, transactions and a queue.
//
//	go run ./examples/claims -dir run/claims             # again: nothing is left to do
//	go run ./examples/claims -dir run/claims-2 -crash    # killed at random until it is done
//
// An idempotent producer sends every flight out of Houston in the second quarter of
// 2011. Two members of a group share its partitions, and while they work one leaves and
// another joins: each batch of flights becomes the claims of those that left two hours
// late or more, in one transaction with the group's position. Two clerks take the claims
// from a queue, each one for itself: most they settle, some they put back for another
// try, and those of six hours or more are for people, among the dead letters. In the end
// each claim is there once and has come to one end, whatever was killed on the way.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// The topics. As they are a killed process loses nothing; see Sync for power cuts.
var (
	flights = topic.New[string, Flight]("flights").Partitions(4).Compress(log.Zstd)
	claims  = topic.New[string, Claim]("claims").Partitions(2)
	people  = topic.New[[]byte, []byte]("claims-for-people") // as the queue stored them
)

func main() {
	dir := flag.String("dir", "run/claims", "the node's `directory`, made where it is missing")
	crash := flag.Bool("crash", false, "kill the program with SIGKILL at random and start it again, until it is done")
	kills := flag.Int("kills", 20, "with -crash, the most kills")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *crash {
		err = runKilled(ctx, *dir, *kills, os.Stdout)
	} else {
		err = run(ctx, *dir, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "claims:", err)
		os.Exit(1)
	}
}

// run does all there is to do, or what an earlier run has left of it.
func run(ctx context.Context, dir string, out io.Writer) (err error) {
	rows, err := readFlights()
	if err != nil {
		return err
	}
	node, err := thalweg.Options{TransactionTimeout: 10 * time.Second}.Open(dir)
	if err != nil {
		return err
	}
	defer func() {
		if closed := node.Close(); err == nil {
			err = closed
		}
	}()
	fmt.Fprintf(out, "%s is open\n", dir)
	work, working := errgroup.WithContext(ctx)
	work.Go(func() error {
		sent, err := send(working, node, rows)
		if err == nil {
			fmt.Fprintf(out, "sent %d flights; %d were there\n", sent, len(rows)-sent)
		}
		return err
	})
	work.Go(func() error { return rate(working, node, len(rows), out) })
	if err := work.Wait(); err != nil {
		return err
	}
	if err := settle(ctx, node, out); err != nil {
		return err
	}
	return check(ctx, node, rows, out)
}
