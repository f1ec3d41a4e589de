package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/thalweg/thalweg/stream"
)

// BenchmarkStall tells the longest time in which a pipeline processed nothing at all, its
// checkpoints included: no task of it counted a record more. The floor is the longest time
// the loop by hand took from one round of batches to the next.
func BenchmarkStall(b *testing.B) {
	for _, keys := range keysOfPipelines()[len(keysOfPipelines())-1:] { // the most
		for _, p := range []struct {
			name  string
			run   pipeline
			keyed bool
		}{{"shuffled", shuffled, false}, {"by-key", byKey, true}} {
			b.Run(fmt.Sprintf("%s/keys=%d", p.name, keys), func(b *testing.B) {
				var ours, floor time.Duration
				for b.Loop() {
					b.StopTimer()
					in := input{records: pipelineRecords(keys), keys: keys, keyed: p.keyed}
					m := measure(b, p.run, in, everyTenth, func(job *stream.Job) {
						ours = max(ours, longestStall(job))
					})
					floor = max(floor, m.stall)
					b.StartTimer()
				}
				b.ReportMetric(ours.Seconds()*1e3, "stall-ms")
				b.ReportMetric(floor.Seconds()*1e3, "floor-stall-ms")
			})
		}
	}
}

// longestStall watches a job, every other millisecond, from its first record to its last.
func longestStall(job *stream.Job) (longest time.Duration) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	var seen int64
	var since time.Time
	for {
		select {
		case <-job.Done():
			return longest // what comes after the last record is no stall
		case <-tick.C:
		}
		var records int64
		for _, t := range job.Status().Tasks {
			records += t.Records
		}
		now := time.Now()
		if records == seen {
			continue
		}
		if seen > 0 {
			longest = max(longest, now.Sub(since))
		}
		seen, since = records, now
	}
}
