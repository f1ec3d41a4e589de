package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// payload is a value of a given size that is not copied when it is decoded: the
// consumer's own cost is to be seen, not the codec's.
type payload struct {
	number uint64
	size   int
}

func payloadCodec(size int) codec.Codec[payload] {
	filler := make([]byte, size-8)
	return codec.Func(
		func(dst []byte, p payload) ([]byte, error) {
			return append(binary.LittleEndian.AppendUint64(dst, p.number), filler...), nil
		},
		func(src []byte) (payload, error) {
			if len(src) < 8 {
				return payload{}, errors.New("bench: a payload has 8 bytes or more")
			}
			return payload{binary.LittleEndian.Uint64(src), len(src)}, nil
		})
}

// BenchmarkProducerToConsumer sends records through one producer and reads them by one
// consumer of a group, both at once, as they are by default: idempotent, at least
// once, positions committed every second. An operation is one record. The floor, of the
// same bytes on one core, copies and sums each batch, and reads it back by hand: sum,
// records, decoding.
func BenchmarkProducerToConsumer(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, partitions := range []int{1, 8} {
			b.Run(fmt.Sprintf("%dB/partitions=%d", size, partitions), func(b *testing.B) {
				t := topic.New[struct{}, payload]("t").ValueCodec(payloadCodec(size)).Partitions(partitions)
				floor := floorOfConsumer(b, size)
				produceAndConsume(b, t, func(i int) payload { return payload{number: uint64(i)} },
					func(p payload) uint64 { return p.number })
				report(b, int64(b.N), int64(b.N*size), b.Elapsed(), floor)
			})
		}
	}
}

// BenchmarkProducerToConsumerCompressed is the same with values that compress, to topics
// of each compression; MB/s counts values before it. The values are made beforehand, as
// strings, which the consumer copies. The floor is that of the uncompressed bytes.
func BenchmarkProducerToConsumerCompressed(b *testing.B) {
	for _, size := range []int{100, 1024} {
		values := make([]string, 4096)
		for i := range values {
			values[i] = string(reading(uint64(i), size))
		}
		for _, c := range compressions {
			for _, partitions := range []int{1, 8} {
				b.Run(fmt.Sprintf("%dB/%v/partitions=%d", size, c, partitions), func(b *testing.B) {
					t := topic.New[struct{}, string]("t").Compress(c).Partitions(partitions)
					floor := floorOfConsumer(b, size)
					produceAndConsume(b, t, func(i int) string { return values[i%len(values)] },
						func(v string) uint64 { return binary.LittleEndian.Uint64([]byte(v[len(v)-8:])) })
					report(b, int64(b.N), int64(b.N*size), b.Elapsed(), floor)
				})
			}
		}
	}
}

// produceAndConsume sends b.N values to t and reads them at the same time, on the clock. What
// sum makes of the values read, added up, has to be what it makes of those sent.
func produceAndConsume[V any](b *testing.B, t topic.Topic[struct{}, V], value func(i int) V, sum func(v V) uint64) {
	b.Helper()
	n, err := thalweg.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	p, err := n.Producer(t)
	if err != nil {
		b.Fatal(err)
	}
	c, err := n.Consumer(t, "g")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	seen := make(chan error, 1)
	var got, want uint64
	read := func(left int) {
		for r, err := range c.Records(ctx) {
			if err == nil {
				got += sum(r.Value)
			}
			if left--; err != nil || left == 0 {
				seen <- err
				return
			}
		}
	}
	b.ReportAllocs()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	go read(b.N)
	for i := range b.N {
		v := value(i)
		want += sum(v)
		if err := p.Queue(ctx, struct{}{}, v); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	if err := <-seen; err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if got != want {
		b.Fatalf("the values read add up to %d, those sent to %d", got, want)
	}
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "allocs/record")
}

// floorOfConsumer returns bytes of values per second of the floor: batches of 128 KiB
// are built, copied to cold memory, summed, summed again and decoded.
func floorOfConsumer(b *testing.B, size int) float64 {
	b.Helper()
	const total = 256 << 20
	block := batch(128<<10/size, size)
	values := 128 << 10 / size * size
	clearPages()
	start, at, done := time.Now(), 0, 0
	for ; done < total; done += values {
		if at+len(block) > len(cold) {
			at = 0
		}
		copy(cold[at:], block)
		read, err := log.ParseBatch(cold[at : at+len(block)]) // sums
		if err != nil {
			b.Fatal(err)
		}
		if _, err := log.ParseBatch(block); err != nil { // as the writer does
			b.Fatal(err)
		}
		for it := read.Records(); it.Next(); {
			sink += uint32(binary.LittleEndian.Uint64(it.Value))
		}
		at += len(block)
	}
	return float64(done) / time.Since(start).Seconds()
}

// BenchmarkConsumer reads a topic of one partition that is there already, as a member
// of a group. An operation is one record.
func BenchmarkConsumer(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			n, err := thalweg.Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			defer n.Close()
			t := topic.New[struct{}, payload]("t").ValueCodec(payloadCodec(size))
			if err := n.Create(context.Background(), t); err != nil {
				b.Fatal(err)
			}
			lp, err := n.Log().Partition(log.TopicPartition{Topic: "t"})
			if err != nil {
				b.Fatal(err)
			}
			const block = 128 << 10
			for done := 0; done < 256<<20; done += block {
				if _, err := lp.Write(batch(block/size, size)); err != nil {
					b.Fatal(err)
				}
			}
			floor := floorOfReading(b, lp, size)
			c, err := n.Consumer(t, "g")
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			left := b.N
			for left > 0 {
				have := int64(lp.End().Offset)
				for r, err := range c.Records(context.Background()) {
					if err != nil {
						b.Fatal(err)
					}
					sink += uint32(r.Value.number)
					left--
					if r.Offset == have-1 || left == 0 {
						break
					}
				}
				if err := c.Seek(topic.Start()); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			report(b, int64(b.N), int64(b.N*size), b.Elapsed(), floor)
		})
	}
}

// floorOfReading reads a partition by hand.
func floorOfReading(b *testing.B, lp *log.Partition, size int) float64 {
	b.Helper()
	start := time.Now()
	records := 0
	r := lp.Reader(0, log.ReadCommitted)
	defer r.Close()
	for {
		read, err := r.Next()
		if errors.Is(err, io.EOF) {
			return float64(records*size) / time.Since(start).Seconds()
		}
		if err != nil {
			b.Fatal(err)
		}
		for it := read.Records(); it.Next(); {
			sink += uint32(binary.LittleEndian.Uint64(it.Value))
			records++
		}
	}
}
