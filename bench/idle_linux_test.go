package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/topic"
)

// BenchmarkIdleReaders measures what a node with 1,000 topics takes of one core while
// nothing is sent: alone, with n group consumers and n queues that wait for records, and
// with n producers and n producers of transactions besides.
func BenchmarkIdleReaders(b *testing.B) {
	const n, topics = 100, 1000
	for b.Loop() {
		node, err := thalweg.Open(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		all := make([]topic.Topic[string, string], topics)
		named := make([]thalweg.Named, topics)
		for i := range all {
			all[i] = topic.New[string, string](fmt.Sprintf("topic-%04d", i))
			named[i] = all[i]
		}
		if err := node.Create(b.Context(), named...); err != nil {
			b.Fatal(err)
		}
		idle(b, "alone")

		ctx, cancel := context.WithCancel(b.Context())
		var readers sync.WaitGroup
		for i := range n {
			c, err := node.Consumer(all[i], fmt.Sprintf("group-%d", i/2))
			if err != nil {
				b.Fatal(err)
			}
			readers.Go(func() {
				for range c.Records(ctx) {
				}
			})
			q, err := node.Queue(all[n+i], fmt.Sprintf("queue-%d", i), topic.QueueOptions{})
			if err != nil {
				b.Fatal(err)
			}
			readers.Go(func() {
				for range q.Receive(ctx) {
				}
			})
		}
		idle(b, "readers")

		for i := range n {
			p, err := node.Producer(all[i])
			if err != nil {
				b.Fatal(err)
			}
			if err := p.Send(b.Context(), "k", "v"); err != nil {
				b.Fatal(err)
			}
			if _, err := node.TxProducer(b.Context(), topic.TxOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		idle(b, "all")
		b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
		cancel()
		readers.Wait()
		if err := node.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
}
