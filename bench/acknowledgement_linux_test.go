package bench

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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

// batchOfOne is the size of a batch of one record of 100 bytes.
const batchOfOne = 170

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
			value, same := make([]byte, 100), make([]byte, batchOfOne)
			var acks, syncs []time.Duration
			for b.Loop() {
				begin := time.Now()
				if err := producer.Send(b.Context(), "k", value); err != nil {
					b.Fatal(err)
				}
				acks = append(acks, time.Since(begin))
				begin = time.Now()
				if err := errors.Join(floor.write(same), floor.sync()); err != nil {
					b.Fatal(err)
				}
				syncs = append(syncs, time.Since(begin))
			}
			slices.Sort(acks)
			slices.Sort(syncs)
			for _, q := range []float64{0.50, 0.99, 0.999} {
				at := func(all []time.Duration) float64 { return float64(all[int(q*float64(len(all)-1))]) / 1e3 }
				b.ReportMetric(at(acks), fmt.Sprintf("p%g-µs", 100*q))
				b.ReportMetric(at(syncs), fmt.Sprintf("floor-p%g-µs", 100*q))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
