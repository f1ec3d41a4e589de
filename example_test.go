package thalweg_test

import (
	"context"
	"fmt"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

type Click struct {
	User string
	At   time.Time
}

var (
	clicks    = topic.New[string, Click]("clicks").Partitions(4)
	perMinute = topic.New[window.Key[string], int64]("clicks-per-minute")
)

// Clicks are counted by user and minute, by the time they were made and not the
// time they came. StopAt makes it a run with an end; without it Run goes on
// until its context ends.
func Example() {
	app := stream.New("count-clicks").StopAt(topic.End()).Disorder(time.Minute)
	app.Stream(clicks).
		EventTime(func(c Click) time.Time { return c.At }).
		GroupBy(func(c Click) string { return c.User }).
		Window(window.Tumbling(time.Minute)).
		Count().
		To(perMinute)

	node, err := thalweg.Open("") // or a directory; "" keeps all in memory
	if err != nil {
		panic(err)
	}
	defer node.Close()
	sendClicks(node)
	ctx := context.Background()
	if err := node.Run(ctx, app); err != nil {
		panic(err)
	}
	for r, err := range node.ReadToEnd(ctx, perMinute, topic.Start()) {
		fmt.Println(r.Key.Start.UTC().Format(time.TimeOnly), r.Key.Key, r.Value, err)
	}
	// Unordered output:
	// 12:00:00 ann 2 <nil>
	// 12:00:00 bob 1 <nil>
	// 12:01:00 ann 1 <nil>
}

func sendClicks(node *thalweg.Node) {
	producer, err := node.Producer(clicks)
	if err != nil {
		panic(err)
	}
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []Click{
		{"ann", noon.Add(5 * time.Second)},
		{"ann", noon.Add(70 * time.Second)}, // the next minute
		{"bob", noon.Add(30 * time.Second)},
		{"ann", noon.Add(59 * time.Second)}, // late in coming, not in time
	} {
		if err := producer.Send(context.Background(), c.User, c); err != nil {
			panic(err)
		}
	}
	if err := producer.Close(); err != nil {
		panic(err)
	}
}

// A producer writes typed records, and anyone reads them, from any position.
func ExampleNode_Read() {
	node, err := thalweg.Open("")
	if err != nil {
		panic(err)
	}
	defer node.Close()
	greetings := topic.New[string, string]("greetings")
	producer, err := node.Producer(greetings)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for _, name := range []string{"world", "river"} {
		if err := producer.Send(ctx, name, "hello "+name); err != nil {
			panic(err)
		}
	}

	for r, err := range node.Read(ctx, greetings, topic.Start()) {
		if err != nil {
			panic(err)
		}
		fmt.Println(r.Offset, r.Key, r.Value)
		if r.Key == "river" {
			break // Read waits for more; ReadToEnd would not
		}
	}
	// Output:
	// 0 world hello world
	// 1 river hello river
}
