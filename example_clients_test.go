package thalweg_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/topic"
)

// Orders are what the examples of clients send.
var orders = topic.New[string, int]("orders")

// openWithOrders returns a node in memory with three orders.
func openWithOrders(ctx context.Context) *thalweg.Node {
	node, err := thalweg.Open("") // in memory; give a directory to keep what is sent
	if err != nil {
		log.Fatal(err)
	}
	producer, err := node.Producer(orders)
	if err != nil {
		log.Fatal(err)
	}
	for i, customer := range []string{"ann", "bob", "eve"} {
		if err := producer.Send(ctx, customer, 10*(i+1)); err != nil {
			log.Fatal(err)
		}
	}
	if err := producer.Close(); err != nil {
		log.Fatal(err)
	}
	return node
}

// A consumer reads a topic as a member of a group. What the loop has finished is committed
// by itself, and the next one of the group goes on there.
func ExampleNode_Consumer() {
	ctx := context.Background()
	node := openWithOrders(ctx)
	defer node.Close()

	consumer, err := node.Consumer(orders, "billing")
	if err != nil {
		log.Fatal(err)
	}
	for r, err := range consumer.Records(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if r.Key == "eve" {
			break // this one is not finished
		}
		fmt.Println("bill", r.Key, r.Value)
	}
	if err := consumer.Close(); err != nil {
		log.Fatal(err)
	}

	next, err := node.Consumer(orders, "billing")
	if err != nil {
		log.Fatal(err)
	}
	defer next.Close()
	batch, err := next.Poll(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the next begins with", batch[0].Key)
	// Output:
	// bill ann 10
	// bill bob 20
	// the next begins with eve
}

// Group tells who reads what, and how far the group is behind.
func ExampleNode_Group() {
	ctx := context.Background()
	node := openWithOrders(ctx)
	defer node.Close()
	consumer, err := node.ConsumerWith(orders, "billing", topic.ConsumerOptions{StaticID: "desk 1"})
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	for _, err := range consumer.Records(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if err := consumer.Commit(ctx); err != nil { // the record in hand included
			log.Fatal(err)
		}
		break
	}
	info, err := node.Group("billing")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.State)
	for _, m := range info.Members {
		fmt.Println(m.Static, "reads", m.Owned)
	}
	for _, p := range info.Partitions {
		fmt.Println(p.TopicPartition, "is read up to", p.Committed.Offset, "and", p.Lag, "behind")
	}
	// Output:
	// stable
	// desk 1 reads [orders-0]
	// orders-0 is read up to 1 and 2 behind
}

// A transaction writes to several topics, and moves the position of a consumer, all
// together or not at all.
func ExampleNode_Transact() {
	ctx := context.Background()
	node := openWithOrders(ctx)
	defer node.Close()
	bills, parcels := topic.New[string, int]("bills"), topic.New[string, string]("parcels")

	consumer, err := node.Consumer(orders, "office")
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	var batch []topic.Record[string, int]
	for len(batch) < 3 {
		more, err := consumer.Poll(ctx)
		if err != nil {
			log.Fatal(err)
		}
		batch = append(batch, more...)
	}
	work := func(fail error) error {
		return node.Transact(ctx, func(tx *topic.Tx) error {
			for _, r := range batch {
				if err := errors.Join(tx.Send(bills, r.Key, r.Value), tx.Send(parcels, r.Key, "to pack")); err != nil {
					return err
				}
			}
			return errors.Join(tx.Commit(consumer), fail)
		})
	}
	fmt.Println("at first:", work(errors.New("the printer is jammed")))
	fmt.Println("then:", work(nil))
	for r, err := range node.ReadToEnd(ctx, bills, topic.Start()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("bill", r.Key, r.Value)
	}
	at, _ := consumer.Committed(0)
	fmt.Println("the group is at", at.Offset)
	// Output:
	// at first: the printer is jammed
	// then: <nil>
	// bill ann 10
	// bill bob 20
	// bill eve 30
	// the group is at 3
}

// SendIf stores a record only if nobody has changed what it rests on: here two clerks
// change the same balance, and the second is told.
func ExampleNode_Producer_sendIf() {
	ctx := context.Background()
	node, err := thalweg.Open("")
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	balances, err := node.Producer(topic.New[string, int]("balances").Compact())
	if err != nil {
		log.Fatal(err)
	}
	defer balances.Close()
	set := func(amount int, c topic.Condition) (version int64, err error) {
		_, version, err = balances.SendIf(ctx, topic.Record[string, int]{Key: "ann", Value: amount}, c)
		return version, err
	}

	seen, err := set(100, topic.Absent())
	fmt.Println("open the account:", err)
	_, err = set(80, topic.VersionIs(seen))
	fmt.Println("the first clerk takes 20:", err)
	_, err = set(50, topic.VersionIs(seen)) // he has seen 100, too
	if conflict, ok := errors.AsType[*topic.ConflictError](err); ok {
		fmt.Println("the second is to look at version", conflict.Found)
	}
	// Output:
	// open the account: <nil>
	// the first clerk takes 20: <nil>
	// the second is to look at version 1
}
