package bench

import (
	"testing"
	"time"

	"github.com/thalweg/thalweg/checkpoint"
)

// BenchmarkExactlyOnce tells what exactly once at 100 ms costs: the main job over 10,000 keys,
// in turn with checkpoints every 100 ms and with the one at its end only. The latter is the
// floor. An operation is a run of each.
func BenchmarkExactlyOnce(b *testing.B) {
	in := input{records: pipelineRecords(0), keys: 10_000}
	var with, without time.Duration
	runs := 0
	for b.Loop() {
		b.StopTimer()
		for range 2 {
			with += measure(b, shuffled, in, everyTenth, nil).ours
			without += measure(b, shuffled, in, checkpoint.Every(time.Hour), nil).ours
			runs++
		}
		b.StartTimer()
	}
	records := float64(in.records * runs)
	b.ReportMetric(records/with.Seconds(), "records/s")
	b.ReportMetric(records/without.Seconds(), "floor-records/s")
	b.ReportMetric(100*without.Seconds()/with.Seconds(), "%floor")
}
