package bench

import (
	"errors"
	"flag"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/stream"
)

var largeState = flag.Int("state.keys", 500_000, "keys of BenchmarkLargeState; 50,000,000 of them need 20 GB of disk")

// BenchmarkLargeState keeps the newest record of each of many keys, 16 B of key and 100 B
// of value, in a job whose state memory is 512 MiB: the rest is on disk. Keys come in no
// order, in ten rounds: a tenth of them new, and as many records again of keys that any
// round had. It reports the throughput of the last round and of the whole,
// the most memory the process had, what the node takes on disk, and how long after it
// was closed the node takes to open, to start the job and to commit the change of a key. The
// floor is the first round, in which all is in memory.
func BenchmarkLargeState(b *testing.B) {
	const rounds = 10
	for b.Loop() {
		dir := b.TempDir()
		open := func() (*thalweg.Node, *stream.Job) {
			n, job, err := openLatest(thalweg.Options{StateMemory: 512 << 20}, dir, checkpoint.Config{})
			if err != nil {
				b.Fatal(err)
			}
			return n, job
		}
		commit := func(job *stream.Job) {
			if err := job.CatchUp(b.Context()); err != nil {
				b.Fatal(err)
			}
			if _, err := job.Checkpoint(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		n, job := open()
		w := &latestWriter{n: n}
		var whole time.Duration
		var first float64
		var memory uint64
		perRound := *largeState / rounds
		for round := range rounds {
			start := time.Now()
			for i := range perRound {
				one, other := round*perRound+i, i*7919%((round+1)*perRound)
				if err := errors.Join(w.add(one, event{Cents: int64(one)}), w.add(other, event{Cents: int64(other)})); err != nil {
					b.Fatal(err)
				}
				if i%100_000 == 0 {
					memory = max(memory, processMemory())
				}
			}
			if err := w.flush(); err != nil {
				b.Fatal(err)
			}
			commit(job)
			took := time.Since(start)
			whole += took
			perSecond := float64(2*perRound) / took.Seconds()
			switch round {
			case 0:
				first = perSecond
			case rounds - 1:
				b.ReportMetric(perSecond, "records/s")
				b.ReportMetric(first, "floor-records/s")
				b.ReportMetric(100*perSecond/first, "%floor")
			}
			forgetInput(b, w)
		}
		b.ReportMetric(float64(2*perRound*rounds)/whole.Seconds(), "whole-records/s")
		b.ReportMetric(float64(memory)/1e6, "memory-MB")
		b.ReportMetric(float64(bytesBelow(b, dir))/1e6, "disk-MB")
		timed(b, "close", n.Close)
		start := time.Now()
		n, job = open()
		b.ReportMetric(time.Since(start).Seconds(), "restart-s")
		w = &latestWriter{n: n}
		if err := errors.Join(w.add(1, event{}), w.flush()); err != nil {
			b.Fatal(err)
		}
		commit(job)
		b.ReportMetric(time.Since(start).Seconds(), "first-commit-s")
		if err := n.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// forgetInput drops what the job has committed, so that the disk holds the state alone.
func forgetInput(b *testing.B, w *latestWriter) {
	for p := range w.builders {
		part, err := w.partition(p)
		if err == nil {
			err = part.DeleteBefore(part.HighWatermark())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func bytesBelow(b *testing.B, dir string) (total int64) {
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // gone meanwhile
		}
		if info, err := d.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return total
}
