package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/thalweg/thalweg/log"
)

// BenchmarkSeekTime asks a partition of 10 million records of 100 B, one a millisecond
// and in batches of 1,000, for the first one at or after a random time. With disorder
// a record's time is up to 10 s before its place. An operation is one question.
//
// The floor is what no index can spare: a batch is verified, and its records are decoded
// up to one in the middle.
func BenchmarkSeekTime(b *testing.B) {
	const records, perBatch = 10_000_000, 1000
	for _, disorder := range []int64{0, 10_000} {
		b.Run(fmt.Sprintf("disorder=%v", time.Duration(disorder)*time.Millisecond), func(b *testing.B) {
			p := openPartition(b, log.TopicSpec{})
			rng := rand.New(rand.NewPCG(1, 2))
			value := make([]byte, 100)
			var builder log.BatchBuilder
			var encoded []byte
			for at := int64(0); at < records; {
				builder.Reset()
				for range perBatch {
					back := int64(0)
					if disorder > 0 {
						back = rng.Int64N(disorder)
					}
					builder.Add(at-back, nil, value, nil)
					at++
				}
				encoded = builder.Finish(log.Producer{ID: log.NoProducer})
				if _, err := p.Write(encoded); err != nil {
					b.Fatal(err)
				}
			}
			floor := floorOfSeeking(b, encoded, perBatch/2)
			b.ReportAllocs()
			start, n := time.Now(), 0
			for b.Loop() {
				n++
				if _, found, err := p.OffsetAt(rng.Int64N(records - 2*disorder)); err != nil || !found {
					b.Fatal(found, err)
				}
			}
			each := time.Since(start) / time.Duration(n)
			b.ReportMetric(float64(floor.Nanoseconds()), "floor-ns/op")
			b.ReportMetric(100*float64(floor)/float64(each), "%floor")
		})
	}
}

func floorOfSeeking(b *testing.B, encoded []byte, middle int) time.Duration {
	b.Helper()
	const rounds = 10_000
	start := time.Now()
	for range rounds {
		read, err := log.ParseBatch(encoded)
		if err != nil {
			b.Fatal(err)
		}
		it := read.Records()
		for range middle {
			it.Next()
			sink += uint32(it.Time)
		}
	}
	return time.Since(start) / rounds
}
