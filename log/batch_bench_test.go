package log

import (
	"fmt"
	"testing"
)

func BenchmarkBatchBuild(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("record=%d", size), func(b *testing.B) {
			key, value := make([]byte, 16), make([]byte, size-16)
			const n = 1000
			var builder BatchBuilder
			b.ReportAllocs()
			for b.Loop() {
				builder.Reset()
				for i := range n {
					builder.Add(1_700_000_000_000+int64(i), key, value, nil)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/record")
		})
	}
}

func BenchmarkBatchFinish(b *testing.B) {
	var builder BatchBuilder
	for i := range 1000 {
		builder.Add(int64(i), nil, make([]byte, 100), nil)
	}
	b.SetBytes(int64(builder.Size()))
	b.ReportAllocs()
	for b.Loop() {
		builder.Finish(Producer{ID: NoProducer})
	}
}

func BenchmarkBatchIterate(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("record=%d", size), func(b *testing.B) {
			key, value := make([]byte, 16), make([]byte, size-16)
			const n = 1000
			var builder BatchBuilder
			for i := range n {
				builder.Add(1_700_000_000_000+int64(i), key, value, nil)
			}
			encoded := builder.Finish(Producer{ID: NoProducer})
			b.ReportAllocs()
			var sum int
			for b.Loop() {
				batch, err := parseHeader(encoded)
				if err != nil {
					b.Fatal(err)
				}
				it := batch.Records()
				for it.Next() {
					sum += len(it.Value) + int(it.Time)
				}
				if it.Err() != nil {
					b.Fatal(it.Err())
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/record")
		})
	}
}
