package bench

import (
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
)

// BenchmarkMemoryBudget keeps the newest event of each of 150,000 keys, some 24 MB of state, in
// a node that may have 16 MiB of it in memory, with 32 MiB for each cache, while the input comes as
// fast as it is written. It reports the most memory the process took from the system above
// what it had before, and what that is of the budget. What the collector lets the heap grow
// before it runs, and what is mapped and belongs to the page cache, is no part of the budget; the
// former is bounded here by GOGC=25.
func BenchmarkMemoryBudget(b *testing.B) {
	const keys, stateMemory, caches = 150_000, 16 << 20, 32 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(25))
	for b.Loop() {
		cold = nil
		debug.FreeOSMemory()
		before := processMemory()
		o := thalweg.Options{StateMemory: stateMemory, CacheBytes: caches, State: state.Disk(caches)}
		n, job, err := openLatest(o, b.TempDir(), checkpoint.Config{})
		if err != nil {
			b.Fatal(err)
		}
		most, stop := watchMemory()
		w := &latestWriter{n: n}
		start := time.Now()
		for round := range 2 {
			for i := range keys {
				if err := w.add(i, event{Cents: int64(round)}); err != nil {
					b.Fatal(err)
				}
			}
		}
		if err := w.flush(); err != nil {
			b.Fatal(err)
		}
		if err := job.CatchUp(b.Context()); err != nil {
			b.Fatal(err)
		}
		took := time.Since(start)
		stop()
		var read int64
		for _, t := range job.Status().Tasks {
			read += t.Records
		}
		if read != 2*keys {
			b.Fatalf("the job read %d records of %d", read, 2*keys)
		}
		if err := n.Close(); err != nil {
			b.Fatal(err)
		}
		above := float64(*most - min(before, *most))
		b.ReportMetric(2*keys/took.Seconds(), "records/s")
		b.ReportMetric(above/1e6, "memory-MB")
		b.ReportMetric((stateMemory+2*caches)/1e6, "floor-memory-MB")
		b.ReportMetric(100*above/(stateMemory+2*caches), "%budget")
	}
}

// watchMemory looks at the memory of the process until stop is called, and most is the most
// it saw then.
func watchMemory() (most *uint64, stop func()) {
	most = new(uint64)
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			*most = max(*most, processMemory())
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	return most, func() {
		close(done)
		watch.Wait()
	}
}
