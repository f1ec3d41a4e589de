package bench

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

var pipelineKeys = flag.Int("pipeline.keys", 0, "run the pipelines with so many keys only; 10,000,000 take 12 GB of disk and 4 of memory")

// pipelineRecords is how many records a pipeline reads: so many that its start and end count for
// little, and four for a key at least.
func pipelineRecords(keys int) int { return max(16_000_000, 4*keys) }

func keysOfPipelines() []int {
	if *pipelineKeys > 0 {
		return []int{*pipelineKeys}
	}
	return []int{10_000, 1_000_000}
}

func counts(partitions int) topic.Topic[window.Key[user], int64] {
	return topic.New[window.Key[user], int64]("counts").KeyCodec(windowUserCodec).Partitions(partitions)
}

// pipeline is a job over an input.
type pipeline func(in input, every checkpoint.Config) *stream.Topology

func job(every checkpoint.Config) *stream.Topology {
	return stream.New("bench").Checkpoint(every).StopAt(topic.End()).IdleAfter(-1).Use[user](userCodec)
}

// shuffled is the main job: filter, map, group by with a shuffle, a tumbling count by
// minute.
func shuffled(in input, every checkpoint.Config) *stream.Topology {
	app := job(every)
	app.Stream(in.events()).
		Filter(func(e event) bool { return !e.Bot }).
		Map(func(e event) event { e.Cents *= 2; return e }).
		GroupBy(func(e event) user { return e.User }).
		Window(window.Tumbling(time.Minute)).
		Count().
		To(counts(in.partitions))
	return app
}

// byKey is the same count of records that are in the partition of their key: nothing is
// sent to another task.
func byKey(in input, every checkpoint.Config) *stream.Topology {
	app := job(every)
	app.Stream(in.keyedEvents()).
		GroupByKey().
		Window(window.Tumbling(time.Minute)).
		Count().
		To(counts(in.partitions))
	return app
}

var everyTenth = checkpoint.Every(100 * time.Millisecond)

// BenchmarkPipeline runs the main job, with a shuffle, over 16,000,000 records of 100 B or
// four for each key, exactly once with checkpoints every 100 ms. An operation is the whole
// run. The floor is a hand-written loop over the same log, with a Go map and without a
// store; it has the same results.
func BenchmarkPipeline(b *testing.B) {
	for _, keys := range keysOfPipelines() {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			runPipeline(b, shuffled, input{records: pipelineRecords(keys), keys: keys})
		})
	}
}

// BenchmarkGroupByKey is BenchmarkPipeline without filter, map and shuffle: records are in
// the partition of their key, 16 B of key and 84 B of value.
func BenchmarkGroupByKey(b *testing.B) {
	for _, keys := range keysOfPipelines() {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			runPipeline(b, byKey, input{records: pipelineRecords(keys), keys: keys, keyed: true})
		})
	}
}

// measured is what a run of a pipeline took.
type measured struct {
	byHand
	ours   time.Duration
	allocs uint64
}

// measure runs the loop by hand and then the pipeline over an input of a node of their own, which
// have to have the same results. watch is called with the running job, if it is not nil.
func measure(b *testing.B, p pipeline, in input, every checkpoint.Config, watch func(job *stream.Job)) (m measured) {
	b.Helper()
	n, err := thalweg.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	in = in.withDefaults()
	in.fill(b, n)
	m.byHand = byHandOver(b, n, in)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.StartTimer()
	start := time.Now()
	job, err := n.Start(b.Context(), p(in, every))
	if err != nil {
		b.Fatal(err)
	}
	if watch != nil {
		watch(job)
	}
	if err := job.Wait(); err != nil {
		b.Fatal(err)
	}
	m.ours = time.Since(start)
	b.StopTimer()
	runtime.ReadMemStats(&after)
	m.allocs = after.Mallocs - before.Mallocs
	if got := digestOf(b, n, "counts", in.partitions); got != m.counts || got.records != int64(in.records) {
		b.Fatalf("of %d records the pipeline made %+v, the loop by hand %+v", in.records, got, m.counts)
	}
	return m
}

func runPipeline(b *testing.B, p pipeline, in input) {
	var ours, floor time.Duration
	var allocs uint64
	runs := 0
	for b.Loop() {
		b.StopTimer()
		m := measure(b, p, in, everyTenth, nil)
		ours, floor, allocs, runs = ours+m.ours, floor+m.took, allocs+m.allocs, runs+1
		b.StartTimer()
	}
	records := float64(in.records * runs)
	b.ReportMetric(records/ours.Seconds(), "records/s")
	b.ReportMetric(records*eventBytes/1e6/ours.Seconds(), "MB/s")
	b.ReportMetric(float64(allocs)/records, "allocs/record")
	b.ReportMetric(records/floor.Seconds(), "floor-records/s")
	b.ReportMetric(100*floor.Seconds()/ours.Seconds(), "%floor")
}
