package bench

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/thalweg/thalweg/stream"
)

// BenchmarkHotKey runs the main job where one key has half of the records and 10,000 others
// have the rest: it is one task that owns the key. What is sent to it and to the other one for each
// record that is read tells how much is counted before. The floor is the loop by hand.
func BenchmarkHotKey(b *testing.B) {
	in := input{records: pipelineRecords(0), keys: 10_001, pick: func(rng *rand.Rand) int {
		if rng.IntN(2) == 0 {
			return 0
		}
		return 1 + rng.IntN(10_000)
	}}
	var ours, floor time.Duration
	sent, runs := int64(0), 0
	for b.Loop() {
		b.StopTimer()
		var job *stream.Job
		m := measure(b, shuffled, in, everyTenth, func(j *stream.Job) { job = j })
		ours, floor, runs = ours+m.ours, floor+m.took, runs+1
		for _, task := range job.Status().Tasks {
			if task.Stage != "source-"+in.name() {
				sent += task.Records
			}
		}
		b.StartTimer()
	}
	records := float64(in.records * runs)
	b.ReportMetric(records/ours.Seconds(), "records/s")
	b.ReportMetric(float64(sent)/records, "sent/record")
	b.ReportMetric(records/floor.Seconds(), "floor-records/s")
	b.ReportMetric(100*floor.Seconds()/ours.Seconds(), "%floor")
}
