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
// operating system. An operation is a batch. The encoding is part of the work: the
// builder is filled and its checksum taken for each.
func BenchmarkAppend(b *testing.B) {
	for _, s := range shapes {
		b.Run(fmt.Sprintf("size=%d/batch=%d", s.size, s.batch), func(b *testing.B) {
			p := openPartition(b)
			floor := copyAndSum(make([]byte, s.size*s.batch), 2<<30)
			var builder log.BatchBuilder
			value := make([]byte, s.size)
			var records int64
			b.ReportAllocs()
			start := time.Now()
			for b.Loop() {
				for i := range s.batch {
					builder.Add(int64(i), nil, value, nil)
				}
				if _, err := p.Write(builder.Finish(log.Producer{ID: log.NoProducer})); err != nil {
					b.Fatal(err)
				}
				builder.Reset()
				records += int64(s.batch)
				keepSmall(b, p)
			}
			report(b, records, records*int64(s.size), time.Since(start), floor)
		})
	}
}

// keepSmall drops old segments, so that a long run does not fill the disk.
func keepSmall(b *testing.B, p *log.Partition) {
	const kept = 4 << 30 / 1024
	if end := p.End().Offset; end%(1<<16) < 1000 && end-p.Start() > kept {
		if err := p.DeleteBefore(end - kept/2); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead reads a partition of 1 GiB in the page cache from end to end: every
// batch is verified and every record decoded. An operation is a batch.
func BenchmarkRead(b *testing.B) {
	for _, s := range shapes {
		b.Run(fmt.Sprintf("size=%d/batch=%d", s.size, s.batch), func(b *testing.B) {
			p := openPartition(b)
			encoded := batch(s.batch, s.size)
			total := int64(1 << 30)
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
