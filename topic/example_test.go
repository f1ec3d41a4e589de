package topic_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// Order is what the examples send. Its default codec is JSON.
type Order struct {
	ID    string    `json:"id"`
	Cents int64     `json:"cents"`
	At    time.Time `json:"at"`
}

// Orders is declared once, as a package variable, and used everywhere.
var Orders = topic.New[string, Order]("orders").
	Partitions(3).
	Sync(log.SyncAlways).
	EventTime(func(o Order) time.Time { return o.At })

var noon = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

// exampleNode stands for a *thalweg.Node, which is a topic.Node.
func exampleNode() *node {
	fs := vfs.NewMem()
	l, err := log.Open("data", log.Options{FS: fs})
	if err != nil {
		panic(err)
	}
	return &node{log: l, fs: fs}
}

// When Send returns, the order is on disk: the topic is declared so.
func Example() {
	ctx := context.Background()
	n := exampleNode()
	orders, err := topic.NewProducer(ctx, n, Orders, topic.ProducerOptions{})
	if err != nil {
		panic(err)
	}
	defer orders.Close()
	if err := orders.Send(ctx, "ann", Order{ID: "o1", Cents: 250, At: noon}); err != nil {
		panic(err)
	}
	if err := orders.Send(ctx, "ann", Order{ID: "o2", Cents: 1200, At: noon.Add(time.Minute)}); err != nil {
		panic(err)
	}
	for r, err := range topic.ReadToEnd(ctx, n, Orders, topic.Start()) {
		if err != nil {
			panic(err)
		}
		fmt.Println(r.Key, r.Value.ID, r.Value.Cents, r.Time.Format(time.TimeOnly), "offset", r.Offset)
	}
	// Output:
	// ann o1 250 12:00:00 offset 0
	// ann o2 1200 12:01:00 offset 1
}

// Queue does not wait for the disk. Flush does, and reports what failed.
func ExampleProducer_Queue() {
	ctx := context.Background()
	n := exampleNode()
	orders, err := topic.NewProducer(ctx, n, Orders, topic.ProducerOptions{})
	if err != nil {
		panic(err)
	}
	defer orders.Close()
	for i := range 1000 {
		if err := orders.Queue(ctx, fmt.Sprint("customer", i%7), Order{ID: fmt.Sprint("o", i), At: noon}); err != nil {
			panic(err)
		}
	}
	err = orders.Flush(ctx)
	if failed, ok := errors.AsType[*topic.FlushError](err); ok {
		fmt.Println(failed.Failed, "orders failed, the first with", failed.First)
	}
	count := 0
	for _, err := range topic.ReadToEnd(ctx, n, Orders, topic.Start()) {
		if err != nil {
			panic(err)
		}
		count++
	}
	fmt.Println(count, "orders")
	// Output:
	// 1000 orders
}

// QueueRecord tells the place of each record once it has one.
func ExampleProducer_QueueRecord() {
	ctx := context.Background()
	n := exampleNode()
	orders, err := topic.NewProducer(ctx, n, Orders, topic.ProducerOptions{})
	if err != nil {
		panic(err)
	}
	defer orders.Close()
	record := topic.Record[string, Order]{
		Key:     "ann",
		Value:   Order{ID: "o1", At: noon},
		Headers: []topic.Header{{Key: "trace", Value: []byte("7f3a")}},
	}
	err = orders.QueueRecord(ctx, record, func(r topic.Result) {
		fmt.Println("partition", r.Partition, "offset", r.Offset, r.Time.Format(time.TimeOnly), r.Err)
	})
	if err != nil {
		panic(err)
	}
	if err := orders.Flush(ctx); err != nil {
		panic(err)
	}
	// Output:
	// partition 2 offset 0 12:00:00 <nil>
}

// Read follows the log until the context ends, and says that it has.
func ExampleRead() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := exampleNode()
	orders, err := topic.NewProducer(ctx, n, Orders, topic.ProducerOptions{})
	if err != nil {
		panic(err)
	}
	defer orders.Close()
	go orders.Send(ctx, "ann", Order{ID: "o1", At: noon})
	for r, err := range topic.Read(ctx, n, Orders, topic.Start()) {
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(r.Value.ID)
		cancel()
	}
	// Output:
	// o1
}

// At finds the first record of a time, in a partition whose times ascend.
func ExampleAt() {
	ctx := context.Background()
	n := exampleNode()
	orders, err := topic.NewProducer(ctx, n, Orders, topic.ProducerOptions{})
	if err != nil {
		panic(err)
	}
	defer orders.Close()
	for i := range 5 {
		at := noon.Add(time.Duration(i) * time.Hour)
		if err := orders.Send(ctx, "ann", Order{ID: fmt.Sprint("o", i), At: at}); err != nil {
			panic(err)
		}
	}
	for r, err := range topic.ReadToEnd(ctx, n, Orders, topic.At(noon.Add(150*time.Minute))) {
		if err != nil {
			panic(err)
		}
		fmt.Println(r.Value.ID, r.Time.Format(time.TimeOnly))
	}
	// Output:
	// o3 15:00:00
	// o4 16:00:00
}

// A declaration never fails. Its mistakes come back from Err, all of them, and
// from whatever uses the topic first.
func ExampleTopic_Err() {
	t := topic.New[string, Order]("orders/2024").Partitions(0)
	fmt.Println(t.Err())
	// Output:
	// log: invalid topic name: "orders/2024" has '/' at byte 6, allowed are a-z, A-Z, 0-9, '.', '_' and '-'
	// topic "orders/2024": Partitions(0): give a number between 1 and 4096
}
