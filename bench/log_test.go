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

func openPartition(b *testing.B, spec log.TopicSpec) *log.Partition {
	b.Helper()
	l, err := log.Open(b.TempDir(), log.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	spec.Partitions = 1
	if err := l.Create("bench", spec); err != nil {
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
//
// files=reused is the steady state of a topic that keeps 256 MiB: what retention drops
// is written again. files=new has no retention, in bursts of 512 MiB: between two, off
// the clock, the disk catches up and the log is emptied. What the disk takes in the
// long run is not this benchmark's question.
func BenchmarkAppend(b *testing.B) {
	for _, s := range shapes {
		b.Run(fmt.Sprintf("size=%d/batch=%d/files=reused", s.size, s.batch), func(b *testing.B) { appendReused(b, s.size, s.batch) })
		b.Run(fmt.Sprintf("size=%d/batch=%d/files=new", s.size, s.batch), func(b *testing.B) { appendNew(b, s.size, s.batch) })
	}
}

// writer returns a function that encodes a batch and appends it.
func writer(b *testing.B, p *log.Partition, size, batch int) func() {
	var builder log.BatchBuilder
	value := make([]byte, size)
	return func() {
		for i := range batch {
			builder.Add(int64(i), nil, value, nil)
		}
		if _, err := p.Write(builder.Finish(log.Producer{ID: log.NoProducer})); err != nil {
			b.Fatal(err)
		}
		builder.Reset()
	}
}

func appendReused(b *testing.B, size, batch int) {
	const kept, warmUp, large = 256 << 20, 2 << 30, 128 << 10
	p := openPartition(b, log.TopicSpec{RetentionBytes: kept})
	write := writer(b, p, size, batch)
	perBatch := int64(size * batch)
	warm := writer(b, p, size, large/size)
	for range warmUp / large {
		warm()
	}
	floor := copyAndSum(make([]byte, perBatch), 2<<30)
	var records int64
	b.ReportAllocs()
	start := time.Now()
	for b.Loop() {
		write()
		records += int64(batch)
	}
	report(b, records, records*int64(size), time.Since(start), floor)
}

func appendNew(b *testing.B, size, batch int) {
	const burst = 512 << 20
	p := openPartition(b, log.TopicSpec{})
	write := writer(b, p, size, batch)
	perBatch := int64(size * batch)
	floor := copyAndSum(make([]byte, perBatch), 2<<30)
	var records, written int64
	var elapsed time.Duration
	b.ReportAllocs()
	start := time.Now()
	for b.Loop() {
		write()
		records += int64(batch)
		if written += perBatch; written >= burst {
			elapsed += time.Since(start)
			b.StopTimer()
			if err := p.Sync(b.Context()); err != nil {
				b.Fatal(err)
			}
			if err := p.DeleteBefore(p.End().Offset); err != nil {
				b.Fatal(err)
			}
			written = 0
			b.StartTimer()
			start = time.Now()
		}
	}
	elapsed += time.Since(start)
	report(b, records, records*int64(size), elapsed, floor)
}

// BenchmarkRead reads a partition of 256 MiB in the page cache over and over: every batch
// is verified and every record decoded. A first pass, which maps the pages, is not
// counted, as the floor's memory is touched before. An operation is a batch.
func BenchmarkRead(b *testing.B) {
	for _, s := range shapes {
		b.Run(fmt.Sprintf("size=%d/batch=%d", s.size, s.batch), func(b *testing.B) {
			p := openPartition(b, log.TopicSpec{})
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
				records += decode(b, batch)
			}
			report(b, records, records*int64(s.size), time.Since(start), floor)
		})
	}
}
