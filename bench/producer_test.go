package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// BenchmarkProducer queues records of a key of 8 B and a value for a topic of four partitions, from
// one goroutine: encoded, in batches by partition, idempotent. An operation is one record. The
// floor copies and sums the same bytes in batches of 128 KiB.
func BenchmarkProducer(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			floor := copyAndSum(make([]byte, 128<<10), 1<<30)
			n, err := thalweg.Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			defer n.Close()
			t := topic.New[int64, payload]("t").ValueCodec(payloadCodec(size)).Partitions(4)
			p, err := n.Producer(t)
			if err != nil {
				b.Fatal(err)
			}
			sent := int64(0)
			b.ReportAllocs()
			start := time.Now()
			for b.Loop() {
				if err := p.Queue(b.Context(), sent, payload{number: uint64(sent)}); err != nil {
					b.Fatal(err)
				}
				sent++
			}
			if err := p.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			took := time.Since(start)
			var written int64
			for number := range 4 {
				part, err := n.Log().Partition(log.TopicPartition{Topic: "t", Partition: log.PartitionID(number)})
				if err != nil {
					b.Fatal(err)
				}
				written += int64(part.End().Offset)
			}
			if written != sent {
				b.Fatalf("%d records were sent, %d are in the log", sent, written)
			}
			report(b, sent, sent*int64(size), took, floor)
		})
	}
}
