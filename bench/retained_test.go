package bench

import (
	"errors"
	"flag"
	"io"
	"testing"
	"time"

	"github.com/thalweg/thalweg/log"
)

var retainedRecords = flag.Int64("retained.records", 20_000_000, "records of BenchmarkRetained, 9 bytes each on disk: 1,000,000,000 take 9 GB")

// BenchmarkRetained appends to a partition that keeps 20,000,000 records (-retained.records), and
// reads what was appended, in batches of 500 records of 100 B. An operation is a batch, written and
// read. The floor is the same with 1,000,000 records kept.
func BenchmarkRetained(b *testing.B) {
	few, many := retaining(b, 1_000_000), retaining(b, *retainedRecords)
	encoded := batch(500, 100)
	var fewTook, manyTook time.Duration
	batches := 0
	for b.Loop() {
		fewTook += appendAndRead(b, few, encoded)
		manyTook += appendAndRead(b, many, encoded)
		batches++
	}
	records := float64(500 * batches)
	b.ReportMetric(records/manyTook.Seconds(), "records/s")
	b.ReportMetric(records/fewTook.Seconds(), "floor-records/s")
	b.ReportMetric(100*fewTook.Seconds()/manyTook.Seconds(), "%floor")
}

// retained is a partition and a reader that is at its end.
type retained struct {
	p *log.Partition
	r *log.Reader
}

func retaining(b *testing.B, records int64) retained {
	b.Helper()
	p := openPartition(b, log.TopicSpec{})
	const perBatch = 10_000
	encoded := batch(perBatch, 1)
	for written := int64(0); written < records; written += perBatch {
		if _, err := p.Write(encoded); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	r := p.Reader(p.End().Offset, log.ReadCommitted)
	b.Cleanup(func() { r.Close() })
	return retained{p, r}
}

func appendAndRead(b *testing.B, at retained, encoded []byte) time.Duration {
	start := time.Now()
	if _, err := at.p.Write(encoded); err != nil {
		b.Fatal(err)
	}
	read, err := at.r.Next()
	if err != nil {
		b.Fatal(err)
	}
	records := decode(b, read)
	took := time.Since(start)
	if _, err := at.r.Next(); records != 500 || !errors.Is(err, io.EOF) {
		b.Fatalf("%d records of a batch were read: %v", records, err)
	}
	return took
}
