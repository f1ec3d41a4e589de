package bench

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/thalweg/thalweg/log"
)

var largeCompaction = flag.Bool("compaction.large", false, "compact 2 GiB with 10 million keys in 256 MiB of memory")

// BenchmarkCompaction compacts 256 MiB of which half is superseded: every key was
// written twice, in another order. An operation is one such compaction. MB/s is of
// what there was before it. The floor, in the same run, is what cannot be done
// without: a read of the same bytes with their checksums, and a write of what is left,
// synced.
func BenchmarkCompaction(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			const total = 256 << 20
			records := total / (size + 30)
			var floor, took time.Duration
			var before, after int64
			for b.Loop() {
				b.StopTimer()
				p := compactedPartition(b, log.Options{})
				writeTwice(b, p, records/2, size)
				bytes, _ := p.Size()
				floor += readAndWriteHalf(b, p)
				b.StartTimer()
				stats, err := p.Compact(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				before += bytes
				after += stats.WrittenBytes
				took += stats.Took
			}
			b.ReportMetric(float64(before)/took.Seconds()/1e6, "MB/s")
			b.ReportMetric(float64(records*b.N)/took.Seconds(), "records/s")
			b.ReportMetric(100*floor.Seconds()/took.Seconds(), "%floor")
			b.ReportMetric(float64(after)/float64(before), "kept")
		})
	}
}

func compactedPartition(t testing.TB, o log.Options) *log.Partition {
	t.Helper()
	o.CompactionInterval = -1
	l, err := log.Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := l.Create("bench", log.TopicSpec{Partitions: 1, Compact: true}); err != nil {
		t.Fatal(err)
	}
	p, err := l.Partition(log.TopicPartition{Topic: "bench"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// keyOf is the key of record i among keys: every run of as many records has each once.
func keyOf(dst []byte, i, keys int) []byte {
	k := uint64(i) * 7_368_787 % uint64(keys)
	return binary.BigEndian.AppendUint64(append(dst, "account-"...), k)
}

// valueOf fills value with what record i has.
func valueOf(value []byte, i int) {
	binary.BigEndian.PutUint64(value, uint64(i))
	for at := 8; at < len(value); at++ {
		value[at] = byte(i + at)
	}
}

// writeTwice writes a record for each of keys, and another one.
func writeTwice(t testing.TB, p *log.Partition, keys, size int) {
	t.Helper()
	var builder log.BatchBuilder
	key, value := make([]byte, 0, 16), make([]byte, size)
	for i := range 2 * keys {
		valueOf(value, i)
		builder.Add(int64(i), keyOf(key, i, keys), value, nil)
		if builder.Len() < 100 && i+1 < 2*keys {
			continue
		}
		if _, err := p.Write(builder.Finish(log.Producer{ID: log.NoProducer})); err != nil {
			t.Fatal(err)
		}
		builder.Reset()
	}
	if err := p.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// readAndWriteHalf is the floor of a compaction.
func readAndWriteHalf(b *testing.B, p *log.Partition) time.Duration {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "floor"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	r := p.Reader(p.Start(), log.ReadUncommitted)
	defer r.Close()
	buffer := make([]byte, 0, 1<<20)
	half := p.End().Offset / 2
	start := time.Now()
	for {
		batch, err := r.Next() // checks the sum
		if err == io.EOF {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		if batch.Base < half {
			continue
		}
		if buffer = append(buffer, batch.Bytes...); len(buffer) > 1<<20-64<<10 {
			if _, err := f.Write(buffer); err != nil {
				b.Fatal(err)
			}
			buffer = buffer[:0]
		}
	}
	if _, err := f.Write(buffer); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// TestLargeCompaction compacts a partition of more than 2 GiB and 10 million keys,
// more than fit into the memory it may use, and reads all of it afterwards: of each
// key the newest record, with what was written, and nothing else below the newest
// segment. The memory of the process stays below 256 MiB, the mapped segments apart,
// which are the page cache's.
func TestLargeCompaction(t *testing.T) {
	if !*largeCompaction {
		t.Skip("takes gigabytes of disk; ask for it with -compaction.large")
	}
	const keys, size, limit = 10_000_000, 84, 256 << 20
	cold = nil
	debug.FreeOSMemory()
	p := compactedPartition(t, log.Options{CompactionMemoryBytes: 144 << 20})
	start := time.Now()
	writeTwice(t, p, keys, size)
	before, _ := p.Size()
	t.Logf("wrote %d records, %d MiB in %v", 2*keys, before>>20, time.Since(start).Round(time.Millisecond))
	debug.FreeOSMemory()
	peak, stop := watchMemory()
	stats, err := p.Compact(t.Context())
	stop()
	if err != nil {
		t.Fatal(err)
	}
	after, segments := p.Size()
	t.Logf("compacted in %v, %d passes: read %d MiB, wrote %d MiB; %d MiB in %d segments are left; at most %d MiB of memory",
		stats.Took.Round(time.Millisecond), stats.Passes, stats.ReadBytes>>20, stats.WrittenBytes>>20, after>>20, segments, *peak>>20)
	if *peak > limit {
		t.Errorf("%d MiB of memory, allowed are %d", *peak>>20, limit>>20)
	}

	// Record i is the newest of its key below e when i+keys >= e. All up to the first
	// one that is left was superseded; from there on nothing may be missing.
	r := p.Reader(0, log.ReadCommitted)
	defer r.Close()
	next, seen := -1, 0
	key, value := make([]byte, 0, 16), make([]byte, size)
	for {
		batch, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		it := batch.Records()
		for it.Next() {
			i := int(it.Offset)
			if next >= 0 && i != next {
				t.Fatalf("after offset %d comes %d", next-1, i)
			}
			valueOf(value, i)
			if string(it.Key) != string(keyOf(key, i, keys)) || string(it.Value) != string(value) {
				t.Fatalf("offset %d has another record", i)
			}
			next, seen = i+1, seen+1
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
	}
	if next != 2*keys || seen < keys || seen > keys+keys/10 {
		t.Fatalf("%d records up to %d are left, expected are %d up to %d and those of the newest segment", seen, next, keys, 2*keys)
	}
	t.Logf("%d records are left, of %d keys", seen, keys)
}

// processMemory is what the runtime has from the system and did not give back.
func processMemory() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}
