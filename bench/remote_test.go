package bench

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/log/dirstore"
)

// BenchmarkReadRemote reads a partition of 256 MiB whose sealed segments are in an object
// store only, over and over: every piece that is fetched ahead and every batch is
// verified, every record decoded. The store is a directory in the page cache, so what is
// measured is the path, not somebody's network. An operation is a batch.
//
// The floor reads the same batches from the log's own segments.
func BenchmarkReadRemote(b *testing.B) {
	for _, s := range shapes {
		if s.batch == 1 {
			continue
		}
		b.Run(fmt.Sprintf("size=%d/batch=%d", s.size, s.batch), func(b *testing.B) {
			store, err := dirstore.Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			l, err := log.Open(b.TempDir(), log.Options{Remote: store, RemoteInterval: -1})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { l.Close() })
			if err := l.Create("bench", log.TopicSpec{Partitions: 1, Remote: true, LocalRetentionBytes: 1}); err != nil {
				b.Fatal(err)
			}
			p, err := l.Partition(log.TopicPartition{Topic: "bench"})
			if err != nil {
				b.Fatal(err)
			}
			encoded := batch(s.batch, s.size)
			for done := int64(0); done < 256<<20; done += int64(s.size * s.batch) {
				if _, err := p.Write(encoded); err != nil {
					b.Fatal(err)
				}
			}
			floorOfBatches(b, p) // maps the pages
			floor := float64(s.size) * floorOfBatches(b, p)
			if err := p.Sync(b.Context()); err != nil { // what is not on disk is not offloaded
				b.Fatal(err)
			}
			start := time.Now()
			if err := p.Offload(b.Context()); err != nil {
				b.Fatal(err)
			}
			offload := float64(p.Remote().Bytes) / time.Since(start).Seconds()
			sealed := p.Remote().LocalStart
			if sealed == 0 {
				b.Fatal("nothing was offloaded")
			}
			r := p.Reader(0, log.ReadCommitted)
			defer r.Close()
			var records int64
			b.ReportAllocs()
			start = time.Now()
			for b.Loop() {
				if r.Offset() >= sealed {
					r.Seek(0)
				}
				read, err := r.Next()
				if err != nil {
					b.Fatal(err)
				}
				records += decode(b, read)
			}
			report(b, records, records*int64(s.size), time.Since(start), floor)
			b.ReportMetric(offload/1e6, "offload-MB/s")
		})
	}
}

// floorOfBatches returns how many records a second a pass over p reads.
func floorOfBatches(b *testing.B, p *log.Partition) float64 {
	b.Helper()
	r := p.Reader(0, log.ReadCommitted)
	defer r.Close()
	var records int64
	start := time.Now()
	for {
		read, err := r.Next()
		if errors.Is(err, io.EOF) {
			return float64(records) / time.Since(start).Seconds()
		}
		if err != nil {
			b.Fatal(err)
		}
		records += decode(b, read)
	}
}
