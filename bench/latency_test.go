package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// BenchmarkLatency sends records at a constant rate and measures the time from sending a
// record to reading its result as committed. An operation is a run of three seconds, of
// which the first is not counted.
//
// The floor is a loop by hand that writes to a log, at the same interval, what was sent
// since the last time, and a reader of that log: half an interval, and what timers and the hand-over
// take on this machine.
func BenchmarkLatency(b *testing.B) {
	for _, c := range []struct {
		interval time.Duration
		rate     int
	}{{5 * time.Millisecond, 100_000}, {5 * time.Millisecond, 50_000}, {20 * time.Millisecond, 50_000}, {100 * time.Millisecond, 50_000}} {
		b.Run(fmt.Sprintf("interval=%v/rate=%d", c.interval, c.rate), func(b *testing.B) {
			var ours, floor []time.Duration
			for b.Loop() {
				floor = append(floor, latenciesByHand(b, c.interval, c.rate)...)
				ours = append(ours, latencies(b, c.interval, c.rate)...)
			}
			slices.Sort(ours)
			slices.Sort(floor)
			for _, q := range []float64{0.50, 0.99, 0.999} {
				at := func(all []time.Duration) float64 { return float64(all[int(q*float64(len(all)-1))]) / 1e6 }
				b.ReportMetric(at(ours), fmt.Sprintf("p%g-ms", 100*q))
				b.ReportMetric(at(floor), fmt.Sprintf("floor-p%g-ms", 100*q))
			}
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

// latencySeconds is how long each run sends.
const latencySeconds = 3

func latencies(b *testing.B, interval time.Duration, rate int) []time.Duration {
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
		err := sendAtRate(begin, rate, func(i int) error { return p.Queue(ctx, int64(i), stamp(time.Now().UnixNano())) })
		failed <- errors.Join(err, p.Close())
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
		if read++; read == rate*latencySeconds {
			break
		}
	}
	if err := <-failed; err != nil {
		b.Fatal(err)
	}
	return all
}

// sendAtRate calls send for latencySeconds, for each record that is due every millisecond.
func sendAtRate(begin time.Time, rate int, send func(i int) error) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; i < rate*latencySeconds; {
		now := <-tick.C
		for due := int(now.Sub(begin).Seconds() * float64(rate)); i < min(due, rate*latencySeconds); i++ {
			if err := send(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// latenciesByHand is the floor.
func latenciesByHand(b *testing.B, interval time.Duration, rate int) (all []time.Duration) {
	p := openPartition(b, log.TopicSpec{})
	var mu sync.Mutex // guards builder
	var builder log.BatchBuilder
	written := make(chan error, 1000*latencySeconds) // a word for each batch
	begin := time.Now()
	sent := make(chan struct{})
	go func() {
		var value []byte
		_ = sendAtRate(begin, rate, func(int) error {
			value = binary.LittleEndian.AppendUint64(value[:0], uint64(time.Now().UnixNano()))
			mu.Lock()
			builder.Add(0, nil, value, nil)
			mu.Unlock()
			return nil
		})
		close(sent)
	}()
	go func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for last := false; !last; {
			select {
			case <-tick.C:
			case <-sent:
				last = true
			}
			mu.Lock()
			if builder.Len() > 0 {
				_, err := p.Write(builder.Finish(log.Producer{ID: log.NoProducer}))
				builder.Reset()
				written <- err
			}
			mu.Unlock()
		}
		close(written)
	}()
	r := p.Reader(0, log.ReadCommitted)
	defer r.Close()
	counted := begin.Add(time.Second)
	read := 0
	for err := range written {
		batch, err2 := r.Next()
		if err := errors.Join(err, err2); err != nil {
			b.Fatal(err)
		}
		for it := batch.Records(); it.Next(); read++ {
			if at := time.Unix(0, int64(binary.LittleEndian.Uint64(it.Value))); at.After(counted) {
				all = append(all, time.Since(at))
			}
		}
	}
	if read != rate*latencySeconds {
		b.Fatalf("%d of %d records were read", read, rate*latencySeconds)
	}
	return all
}
