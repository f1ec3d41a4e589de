package bench

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/thalweg/thalweg/log"
)

var shapes = []struct{ size, batch int }{
	{100, 1}, {100, 100}, {100, 1000}, {1024, 1}, {1024, 100}, {1024, 1000},
}

func openPartition(b *testing.B) *log.Partition {
	b.Helper()
	l, err := log.Open(b.TempDir(), log.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	if err := l.Create("bench", log.TopicSpec{Partitions: 1}); err != nil {
		b.Fatal(err)
	}
	p, err := l.Partition(log.TopicPartition{Topic: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// BenchmarkAppend writes encoded batches to a partition that leaves syncing to the
// operating system, in bursts of 512 MiB: between two, off the clock, the disk catches
// up and the segments are dropped, so that the next burst has pages which the system
// has had before. What the disk takes in the long run is not this benchmark's question.
// An operation is a batch. The encoding is part of the work: the builder is filled and
// its checksum taken for each.
func BenchmarkAppend(b *testing.B) {
	const burst = 512 << 20
	for _, s := range shapes {
		b.Run(fmt.Sprintf("size=%d/batch=%d", s.size, s.batch), func(b *testing.B) {
			p := openPartition(b)
			var builder log.BatchBuilder
			value := make([]byte, s.size)
			perBatch := int64(s.size * s.batch)
			write := func() {
				for i := range s.batch {
					builder.Add(int64(i), nil, value, nil)
				}
				if _, err := p.Write(builder.Finish(log.Producer{ID: log.NoProducer})); err != nil {
					b.Fatal(err)
				}
				builder.Reset()
			}
			rest := func() {
				if err := p.Sync(b.Context()); err != nil {
					b.Fatal(err)
				}
				if err := p.DeleteBefore(p.End().Offset); err != nil {
					b.Fatal(err)
				}
			}
			for range burst / perBatch {
				write()
			}
			rest()
			floor := copyAndSum(make([]byte, perBatch), 2<<30)
			var records, written int64
			var elapsed time.Duration
			b.ReportAllocs()
			start := time.Now()
			for b.Loop() {
				write()
				records += int64(s.batch)
				if written += perBatch; written >= burst {
					elapsed += time.Since(start)
					b.StopTimer()
					rest()
					written = 0
					b.StartTimer()
					start = time.Now()
				}
			}
			elapsed += time.Since(start)
			report(b, records, records*int64(s.size), elapsed, floor)
		})
	}
}

// BenchmarkRead reads a partition of 256 MiB in the page cache over and over: every batch
// is verified and every record decoded. A first pass, which maps the pages, is not
// counted, as the floor's memory is touched before. An operation is a batch.
func BenchmarkRead(b *testing.B) {
	for _, s := range shapes {
		b.Run(fmt.Sprintf("size=%d/batch=%d", s.size, s.batch), func(b *testing.B) {
			p := openPartition(b)
			encoded := batch(s.batch, s.size)
			total := int64(256 << 20)
			if s.batch == 1 {
				total = 128 << 20
			}
			for done := int64(0); done < total; done += int64(s.size * s.batch) {
				if _, err := p.Write(encoded); err != nil {
					b.Fatal(err)
				}
			}
			floor := copyAndSum(make([]byte, s.size*s.batch), 2<<30)
			r := p.Reader(0, log.ReadCommitted)
			defer r.Close()
			for err := error(nil); err == nil; {
				_, err = r.Next()
			}
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
				it := batch.Records()
				for it.Next() {
					sink += uint32(len(it.Value))
					records++
				}
				if it.Err() != nil {
					b.Fatal(it.Err())
				}
			}
			report(b, records, records*int64(s.size), time.Since(start), floor)
		})
	}
}
