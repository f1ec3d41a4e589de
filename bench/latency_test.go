package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// BenchmarkLatency sends 50,000 records a second and measures the time from sending a
// record to reading its result as committed. An operation is a run of three seconds, of
// which the first is not counted.
func BenchmarkLatency(b *testing.B) {
	for _, interval := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		b.Run(fmt.Sprintf("interval=%v", interval), func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				all = append(all, latencies(b, interval)...)
			}
			slices.Sort(all)
			at := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))]) / 1e6 }
			b.ReportMetric(at(0.50), "p50-ms")
			b.ReportMetric(at(0.99), "p99-ms")
			b.ReportMetric(at(0.999), "p99.9-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// stamp is when a record was sent, in ns since the epoch.
type stamp int64

var stampCodec = codec.Func(
	func(dst []byte, s stamp) ([]byte, error) {
		return binary.LittleEndian.AppendUint64(dst, uint64(s)), nil
	},
	func(src []byte) (stamp, error) {
		if len(src) != 8 {
			return 0, fmt.Errorf("bench: a stamp has 8 bytes, not %d", len(src))
		}
		return stamp(binary.LittleEndian.Uint64(src)), nil
	})

func latencies(b *testing.B, interval time.Duration) []time.Duration {
	const rate, seconds = 50_000, 3
	sent := topic.New[int64, stamp]("sent").ValueCodec(stampCodec).Partitions(2)
	seen := topic.New[int64, stamp]("seen").ValueCodec(stampCodec).Partitions(2)
	n, err := thalweg.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	app := stream.New("latency").Checkpoint(checkpoint.Every(interval)).Use[stamp](stampCodec)
	app.Stream(sent).
		GroupBy(func(s stamp) int64 { return int64(s) % 10_000 }).
		Emit(window.OnUpdate).
		Reduce(func(_, s stamp) stamp { return s }).
		To(seen)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	job, err := n.Start(ctx, app)
	if err != nil {
		b.Fatal(err)
	}
	defer job.Stop(context.Background())
	p, err := n.Producer(sent)
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	counted := begin.Add(time.Second)
	failed := make(chan error, 1)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; i < rate*seconds; {
			now := <-tick.C
			for due := int(now.Sub(begin).Seconds() * rate); i < min(due, rate*seconds); i++ {
				if err := p.Queue(ctx, int64(i), stamp(time.Now().UnixNano())); err != nil {
					failed <- err
					return
				}
			}
		}
		failed <- p.Close()
	}()
	var all []time.Duration
	read := 0
	for r, err := range n.Read(ctx, seen, topic.Start()) {
		if err != nil {
			b.Fatal(err)
		}
		if at := time.Unix(0, int64(r.Value)); at.After(counted) {
			all = append(all, time.Since(at))
		}
		if read++; read == rate*seconds {
			break
		}
	}
	if err := <-failed; err != nil {
		b.Fatal(err)
	}
	return all
}
