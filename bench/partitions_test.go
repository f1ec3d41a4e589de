package bench

import (
	"testing"
	"time"
)

// BenchmarkPartitions runs the main job, exactly once at 100 ms over 10,000 keys, on topics of
// 100 partitions. The floor is the same with 4 of them.
func BenchmarkPartitions(b *testing.B) {
	in := input{records: pipelineRecords(0), keys: 10_000}
	var few, many time.Duration
	runs := 0
	for b.Loop() {
		b.StopTimer()
		in.partitions = 4
		few += measure(b, shuffled, in, everyTenth, nil).ours
		in.partitions = 100
		many += measure(b, shuffled, in, everyTenth, nil).ours
		runs++
		b.StartTimer()
	}
	records := float64(in.records * runs)
	b.ReportMetric(records/many.Seconds(), "records/s")
	b.ReportMetric(records/few.Seconds(), "floor-records/s")
	b.ReportMetric(100*few.Seconds()/many.Seconds(), "%floor")
}
