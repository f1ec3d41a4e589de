package bench

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
)

// BenchmarkHotKey runs the main job where one key has half of the records and 10,000 others
// have the rest: it is one task that owns the key. What is sent to it and to the other one for each
// record that is read tells how much is counted before.
func BenchmarkHotKey(b *testing.B) {
	var took time.Duration
	sent, runs := int64(0), 0
	for b.Loop() {
		b.StopTimer()
		n, err := thalweg.Open(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		fillWith(b, n, 10_001, func(rng *rand.Rand) int {
			if rng.IntN(2) == 0 {
				return 0
			}
			return 1 + rng.IntN(10_000)
		})
		b.StartTimer()
		start := time.Now()
		job, err := n.Start(context.Background(), pipeline())
		if err == nil {
			err = job.Wait()
		}
		if err != nil {
			b.Fatal(err)
		}
		took += time.Since(start)
		b.StopTimer()
		runs++
		for _, task := range job.Status().Tasks {
			if task.Stage != "source-"+events.Name() {
				sent += task.Records
			}
		}
		if err := n.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	records := float64(pipelineRecords * runs)
	b.ReportMetric(records/took.Seconds(), "records/s")
	b.ReportMetric(float64(sent)/records, "sent/record")
}
