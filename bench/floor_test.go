package bench

import (
	"hash/crc32"
	"testing"
	"time"

	"github.com/thalweg/thalweg/log"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sink keeps results alive that nothing reads.
var sink uint32

// cold is memory larger than the caches, to copy into. clearPages makes it.
var cold []byte

// copyAndSum is the floor of append and read: each block is copied to cold memory and
// its CRC32C taken. It returns bytes per second over total bytes.
func copyAndSum(block []byte, total int64) float64 {
	clearPages()
	at := 0
	start := time.Now()
	for done := int64(0); done < total; done += int64(len(block)) {
		if at+len(block) > len(cold) {
			at = 0
		}
		copy(cold[at:], block)
		sink += crc32.Update(0, castagnoli, block)
		at += len(block)
	}
	return float64(total) / time.Since(start).Seconds()
}

// clearPages makes the pages of cold present, so that the floor is memory and not
// page faults.
func clearPages() {
	if cold == nil {
		cold = make([]byte, 512<<20)
	}
	for i := 0; i < len(cold); i += 4096 {
		cold[i] = 1
	}
}

// batch encodes n records with values of the given size.
func batch(n, size int) []byte {
	var b log.BatchBuilder
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(i * 7)
	}
	for i := range n {
		b.Add(int64(i), nil, value, nil)
	}
	return b.Finish(log.Producer{ID: log.NoProducer})
}

// decode goes through the records of a batch and counts them.
func decode(b *testing.B, read *log.Batch) (records int64) {
	it := read.Records()
	for it.Next() {
		sink += uint32(len(it.Value))
		records++
	}
	if it.Err() != nil {
		b.Fatal(it.Err())
	}
	return records
}

// report adds what every benchmark here reports: throughput, and its ratio to the
// floor measured in the same run.
func report(b *testing.B, records, bytes int64, elapsed time.Duration, floorBytesPerSecond float64) {
	perSecond := float64(bytes) / elapsed.Seconds()
	b.ReportMetric(float64(records)/elapsed.Seconds(), "records/s")
	b.ReportMetric(perSecond/1e6, "MB/s")
	b.ReportMetric(floorBytesPerSecond/1e6, "floor-MB/s")
	b.ReportMetric(100*perSecond/floorBytesPerSecond, "%floor")
}

// timed reports how many seconds f takes.
func timed(b *testing.B, what string, f func() error) {
	begin := time.Now()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(time.Since(begin).Seconds(), what+"-s")
}
