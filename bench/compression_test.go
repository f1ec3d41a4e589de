package bench

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/thalweg/thalweg/log"
)

// compressions are the codecs with their default levels, none first as what the
// others stand beside.
var compressions = []log.Compression{log.NoCompression, log.Gzip, log.Snappy, log.LZ4, log.Zstd}

// reading is a value of about size bytes that compresses as structured records do: its
// names repeat from record to record, and its numbers are as good as random.
func reading(i uint64, size int) []byte {
	value := make([]byte, 0, size+64)
	for n := uint64(0); len(value) < size; n++ {
		random := (i*31 + n + 1) * 0x9e3779b97f4a7c15
		random ^= random >> 29
		value = fmt.Appendf(value, `{"station":"gauge-%03d","level_cm":%d,"flow":%d},`, random%200, random>>40%1000, random>>20%100_000)
	}
	return value[:size]
}

func packedPartition(b *testing.B, c log.Compression) *log.Partition {
	b.Helper()
	l, err := log.Open(b.TempDir(), log.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	if err := l.Create("bench", log.TopicSpec{Partitions: 1, Compression: max(c, 0)}); err != nil {
		b.Fatal(err)
	}
	p, err := l.Partition(log.TopicPartition{Topic: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// fillReadings adds a batch of about 128 KiB, as producers make them.
func fillReadings(builder *log.BatchBuilder, values [][]byte) {
	builder.Reset()
	for i, v := range values {
		builder.Add(int64(i), nil, v, nil)
	}
}

func writeBuilt(b *testing.B, p *log.Partition, builder *log.BatchBuilder) {
	batch, err := p.Encode(builder, log.Producer{ID: log.NoProducer})
	if err == nil {
		_, err = p.Write(batch)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func readings(size int) [][]byte {
	values := make([][]byte, 128<<10/size)
	for i := range values {
		values[i] = reading(uint64(i), size)
	}
	return values
}

// BenchmarkAppendCompressed writes batches of 128 KiB to a topic of each compression.
// An operation is a batch, its encoding included; MB/s counts records before
// compression, and packed is what is left of a batch.
func BenchmarkAppendCompressed(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, c := range compressions {
			b.Run(fmt.Sprintf("size=%d/%v", size, c), func(b *testing.B) {
				p := packedPartition(b, c)
				values := readings(size)
				plain := int64(size * len(values))
				floor := copyAndSum(make([]byte, plain), 1<<30)
				var builder log.BatchBuilder
				for range 64 { // encoders are made, and pages had
					fillReadings(&builder, values)
					writeBuilt(b, p, &builder)
				}
				var batches int64
				b.ReportAllocs()
				start := time.Now()
				var elapsed time.Duration
				for b.Loop() {
					fillReadings(&builder, values)
					writeBuilt(b, p, &builder)
					if batches++; batches%2048 == 0 { // 256 MiB: let the disk catch up
						elapsed += time.Since(start)
						b.StopTimer()
						if err := errors.Join(p.Sync(b.Context()), p.DeleteBefore(p.End().Offset)); err != nil {
							b.Fatal(err)
						}
						b.StartTimer()
						start = time.Now()
					}
				}
				elapsed += time.Since(start)
				report(b, batches*int64(len(values)), batches*plain, elapsed, floor)
				b.ReportMetric(100*packedShare(b, c, values), "%packed")
			})
		}
	}
}

// packedShare is the size of a compressed batch of values beside its size uncompressed.
func packedShare(b *testing.B, c log.Compression, values [][]byte) float64 {
	var builder log.BatchBuilder
	fillReadings(&builder, values)
	compressor, err := log.NewCompressor(c, 0)
	if err != nil {
		b.Fatal(err)
	}
	builder.Compress(compressor)
	return float64(len(builder.Finish(log.Producer{ID: log.NoProducer}))) / float64(builder.Size())
}

// BenchmarkReadCompressed reads 64 MiB of such batches over and over: every batch is
// verified and decompressed, every record decoded. An operation is a batch.
func BenchmarkReadCompressed(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, c := range compressions {
			b.Run(fmt.Sprintf("size=%d/%v", size, c), func(b *testing.B) {
				p := packedPartition(b, c)
				values := readings(size)
				plain := int64(size * len(values))
				var builder log.BatchBuilder
				for range 512 {
					fillReadings(&builder, values)
					writeBuilt(b, p, &builder)
				}
				floor := copyAndSum(make([]byte, plain), 1<<30)
				r := p.Reader(0, log.ReadCommitted)
				defer r.Close()
				var records int64
				b.ReportAllocs()
				start := time.Now()
				for b.Loop() {
					batch, err := r.Next()
					if errors.Is(err, io.EOF) {
						r.Seek(0)
						batch, err = r.Next()
					}
					if err != nil {
						b.Fatal(err)
					}
					records += decode(b, batch)
				}
				report(b, records, records*int64(size), time.Since(start), floor)
			})
		}
	}
}
