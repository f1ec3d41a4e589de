package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

var syncPolicies = []struct {
	name string
	sync log.Sync
}{{"os", log.SyncByOS}, {"100ms", log.SyncEvery(100 * time.Millisecond)}, {"always", log.SyncAlways}}

// BenchmarkAcknowledgement measures the time of one Send of 100 bytes, one after the
// other, for each sync policy. Between two of them a batch of the same size is written
// to an allocated file and synced by fdatasync: what the disk takes at that moment,
// under the same load. An operation is one of each.
func BenchmarkAcknowledgement(b *testing.B) {
	for _, p := range syncPolicies {
		b.Run("sync="+p.name, func(b *testing.B) {
			dir := b.TempDir()
			n, err := thalweg.Open(filepath.Join(dir, "node"))
			if err != nil {
				b.Fatal(err)
			}
			defer n.Close()
			t := topic.New[string, []byte]("acknowledged").ValueCodec(codec.Bytes).Sync(p.sync)
			producer, err := n.Producer(t)
			if err != nil {
				b.Fatal(err)
			}
			floor, err := newSyncedFile(filepath.Join(dir, "floor"))
			if err != nil {
				b.Fatal(err)
			}
			defer floor.Close()
			value := make([]byte, 100)
			var acks, syncs []time.Duration
			for b.Loop() {
				begin := time.Now()
				if err := producer.Send(b.Context(), "k", value); err != nil {
					b.Fatal(err)
				}
				acks = append(acks, time.Since(begin))
				begin = time.Now()
				if err := floor.append(170); err != nil { // the size of the batch
					b.Fatal(err)
				}
				syncs = append(syncs, time.Since(begin))
			}
			slices.Sort(acks)
			slices.Sort(syncs)
			for _, q := range []float64{0.50, 0.99, 0.999} {
				at := func(all []time.Duration) float64 { return float64(all[int(q*float64(len(all)-1))]) / 1e3 }
				b.ReportMetric(at(acks), fmt.Sprintf("p%g-µs", 100*q))
				b.ReportMetric(at(syncs), fmt.Sprintf("fdatasync-p%g-µs", 100*q))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// syncedFile is a file of allocated space that is written on and synced.
type syncedFile struct {
	*os.File
	at int64
}

const syncedFileBytes = 16 << 20

func newSyncedFile(name string) (*syncedFile, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(make([]byte, syncedFileBytes))
	if err := errors.Join(err, f.Sync()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &syncedFile{File: f}, nil
}

func (f *syncedFile) append(n int) error {
	if f.at+int64(n) > syncedFileBytes {
		f.at = 0
	}
	if _, err := f.WriteAt(make([]byte, n), f.at); err != nil {
		return err
	}
	f.at += int64(n)
	return syscall.Fdatasync(int(f.Fd()))
}

// BenchmarkTransact runs transactions of one record of 100 bytes in each partition, one
// after the other and eight at once, for each sync policy. An operation is one.
func BenchmarkTransact(b *testing.B) {
	for _, p := range syncPolicies {
		for _, partitions := range []int{1, 8} {
			for _, callers := range []int{1, 8} {
				b.Run(fmt.Sprintf("sync=%s/partitions=%d/callers=%d", p.name, partitions, callers), func(b *testing.B) {
					transact(b, p.sync, partitions, callers)
				})
			}
		}
	}
}

func transact(b *testing.B, sync log.Sync, partitions, callers int) {
	n, err := thalweg.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	t := topic.New[int, []byte]("transacted").ValueCodec(codec.Bytes).Partitions(partitions).Sync(sync).
		PartitionBy(func(k, n int) int { return k % n })
	value := make([]byte, 100)
	one := func(tx *topic.Tx) error {
		for k := range partitions {
			if err := tx.Send(t, k, value); err != nil {
				return err
			}
		}
		return nil
	}
	if err := n.Transact(b.Context(), one); err != nil { // opens everything
		b.Fatal(err)
	}
	b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
	b.ReportAllocs()
	b.ResetTimer()
	begin := time.Now()
	if callers == 1 {
		for range b.N {
			if err := n.Transact(b.Context(), one); err != nil {
				b.Fatal(err)
			}
		}
	} else {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := n.Transact(b.Context(), one); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.StopTimer() // closing is not part of it
	b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "transactions/s")
}
