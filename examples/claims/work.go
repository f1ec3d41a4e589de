package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/topic"
)

// send sends the rows that are not in the topic yet. The producer has a name, so that the
// log knows after a kill how many it has stored in each partition.
func send(ctx context.Context, node *thalweg.Node, rows []Flight) (sent int, err error) {
	producer, err := node.ProducerWith(flights, topic.ProducerOptions{Name: "feed"})
	if err != nil {
		return 0, err
	}
	defer func() {
		if closed := producer.Close(); err == nil {
			err = closed
		}
	}()
	there := make([]int64, flights.Spec().Partitions)
	for i := range there {
		if there[i], err = producer.Written(i); err != nil {
			return 0, err
		}
	}
	for _, f := range rows {
		i := topic.Partition([]byte(f.Key()), len(there))
		if there[i] > 0 {
			there[i]--
			continue
		}
		r := topic.Record[string, Flight]{Key: f.Key(), Value: f, Time: f.There}
		if err := producer.QueueRecord(ctx, r, nil); err != nil {
			return sent, err
		}
		sent++
	}
	return sent, producer.Flush(ctx)
}

// group is what the members share.
const group = "rating"

// rate has two members make claims of flights until the group has read as many as there
// are. Half way through the first leaves, and a third takes its place.
func rate(ctx context.Context, node *thalweg.Node, flightsInAll int, out io.Writer) error {
	members, life := errgroup.WithContext(ctx)
	working, done := context.WithCancel(life)
	defer done()
	leaving, leave := context.WithCancel(working)
	defer leave()
	var rated atomic.Int64 // in this run
	members.Go(func() error { return member(leaving, node, "first", &rated, out) })
	members.Go(func() error { return member(working, node, "second", &rated, out) })
	members.Go(func() error {
		<-leaving.Done()
		if working.Err() != nil {
			return nil // all was done before
		}
		return member(working, node, "third", &rated, out)
	})

	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-life.Done(): // a member failed, or the program is interrupted
			return errors.Join(ctx.Err(), members.Wait())
		}
		read, err := position(node)
		switch {
		case err != nil:
			done()
			return errors.Join(err, members.Wait())
		case read >= flightsInAll:
			done()
			return members.Wait()
		case int(rated.Load()) > flightsInAll/2 && leaving.Err() == nil:
			leave()
		}
	}
}

// position is how many flights the group has read: offsets have no gaps here.
func position(node *thalweg.Node) (read int, err error) {
	info, err := node.Group(group)
	if errors.Is(err, topic.ErrUnknownGroup) {
		return 0, nil // nobody has joined yet
	}
	for _, p := range info.Partitions {
		if p.Known {
			read += int(p.Committed.Offset)
		}
	}
	return read, err
}

// member consumes flights, makes claims of them and produces those: the claims of a batch
// and the group's position are one transaction, so that each flight is rated once.
func member(ctx context.Context, node *thalweg.Node, name string, rated *atomic.Int64, out io.Writer) error {
	c, err := node.ConsumerWith(flights, group, topic.ConsumerOptions{CommitInterval: -1})
	if err != nil {
		return err
	}
	own := 0
	for {
		batch, err := c.Poll(ctx)
		if ctx.Err() != nil {
			break // it goes
		}
		if err != nil {
			return err
		}
		err = node.Transact(ctx, func(tx *topic.Tx) error {
			for _, r := range batch {
				if claim, ok := claimOf(r.Value); ok {
					if err := tx.Send(claims, r.Key, claim); err != nil {
						return err
					}
				}
			}
			return tx.Commit(c)
		})
		switch {
		case errors.Is(err, topic.ErrStale):
			continue // the partition went to another member, with these flights
		case ctx.Err() != nil:
		case err != nil:
			return err
		default:
			own += len(batch)
			rated.Add(int64(len(batch)))
		}
	}
	fmt.Fprintf(out, "the %s member rated %d flights\n", name, own)
	return c.Close()
}

// errAllDone ends the work of the clerks.
var errAllDone = errors.New("no claim is left")

// settle has two clerks work off the queue of claims.
func settle(ctx context.Context, node *thalweg.Node, out io.Writer) error {
	q, err := node.Queue(claims, "settling", topic.QueueOptions{
		MaxDeliveries: 3,
		Backoff:       -1, // what is put back comes again at once
		DeadLetters:   people,
	})
	if err != nil {
		return err
	}
	defer q.Close()
	clerks, working := errgroup.WithContext(ctx)
	for range 2 {
		clerks.Go(func() error {
			for d, err := range q.Receive(working) {
				if err != nil {
					return err
				}
				switch late := d.Value.Flight.Late(); {
				case late >= peopleFrom:
					err = d.Reject(working)
				case d.Count == 1 && late%(7*time.Minute) == 0:
					err = d.Release(working, 0) // the form has a stain
				default:
					err = d.Ack(working)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	clerks.Go(func() error {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-working.Done():
				return working.Err()
			}
			s, err := q.Status(working)
			if err != nil {
				return err
			}
			backlog := int64(0)
			for _, p := range s.Partitions {
				backlog += p.Backlog
			}
			if backlog == 0 {
				return errAllDone
			}
		}
	})
	if err := clerks.Wait(); !errors.Is(err, errAllDone) {
		return err
	}
	fmt.Fprintln(out, "no claim is left")
	return nil
}
