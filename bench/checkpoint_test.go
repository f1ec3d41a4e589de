package bench

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/log"
)

// BenchmarkCheckpoint checkpoints a job with a state of 200,000 keys of 16 B and 100 B of value, of
// which none, a hundred or half have changed since the last one. An operation is one; what
// was read meanwhile is not on the clock. The floor appends the changed keys and values to a log
// in one call for each 500, and a word that they are complete to another.
func BenchmarkCheckpoint(b *testing.B) {
	const keys = 200_000
	n, job, err := openLatest(thalweg.Options{}, b.TempDir(), checkpoint.Every(time.Hour))
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	w := &latestWriter{n: n}
	total := int64(0)
	change := func(b *testing.B, keys int) {
		for i := range keys {
			if err := w.add(i, event{Cents: total}); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.flush(); err != nil {
			b.Fatal(err)
		}
		total += int64(keys)
		processed(b, job, total)
	}
	take := func(b *testing.B) time.Duration {
		before := job.Status().Checkpoint
		start := time.Now()
		_, err := job.Checkpoint(b.Context())
		took := time.Since(start)
		if after := job.Status().Checkpoint; err != nil || after.N <= before.N {
			b.Fatalf("after checkpoint %v comes %v: %v", before, after, err)
		}
		return took
	}
	change(b, keys)
	take(b)
	changelog, verdicts := openPartition(b, log.TopicSpec{}), openPartition(b, log.TopicSpec{})
	byHand := func(b *testing.B, keys int) time.Duration {
		var builder log.BatchBuilder
		var buf []byte
		start := time.Now()
		write := func(p *log.Partition) {
			if builder.Len() == 0 {
				return
			}
			if _, err := p.Write(builder.Finish(log.Producer{ID: log.NoProducer})); err != nil {
				b.Fatal(err)
			}
			builder.Reset()
		}
		for i := range keys {
			k := keyNumber(i)
			buf, _ = appendEvent(buf[:0], event{User: k, Cents: int64(i)})
			builder.Add(0, k[:], buf, nil)
			if builder.Len() == 500 {
				write(changelog)
			}
		}
		write(changelog)
		builder.Add(0, nil, []byte("complete"), nil)
		write(verdicts)
		return time.Since(start)
	}
	for _, changed := range []int{0, 100, keys / 2} {
		b.Run(fmt.Sprintf("changed=%d", changed), func(b *testing.B) {
			var ours, floor []time.Duration
			for b.Loop() {
				b.StopTimer()
				change(b, changed)
				floor = append(floor, byHand(b, changed))
				b.StartTimer()
				ours = append(ours, take(b))
			}
			slices.Sort(ours)
			slices.Sort(floor)
			middle, least := ours[len(ours)/2], floor[len(floor)/2]
			b.ReportMetric(middle.Seconds()*1e3, "p50-ms")
			b.ReportMetric(least.Seconds()*1e3, "floor-p50-ms")
			b.ReportMetric(100*least.Seconds()/middle.Seconds(), "%floor")
		})
	}
	if err := errors.Join(job.Stop(b.Context()), n.Close()); err != nil {
		b.Fatal(err)
	}
}
