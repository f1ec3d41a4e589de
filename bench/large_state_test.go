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
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
)

var largeState = flag.Int("state.keys", 500_000, "keys of BenchmarkLargeState; 50,000,000 of them need 20 GB of disk")

// BenchmarkLargeState keeps the newest record of each of many keys, 16 B of key and 100 B
// of value, in a job whose state has 512 MiB of memory: the overlay and two caches. The rest
// is on disk. Keys come in no order: all of them in ten rounds, and after that a tenth of them again.
// It reports the throughput of these and of the whole, the longest that a round took, the most
// memory the process had, what the node takes on disk, and how long after it was closed the
// node takes to open, to start the job and to commit the change of a key. The floor is the
// first round, in which least is on disk.
func BenchmarkLargeState(b *testing.B) {
	const rounds = 10
	options := thalweg.Options{StateMemory: 256 << 20, CacheBytes: 64 << 20, State: state.Disk(192 << 20)}
	for b.Loop() {
		dir := b.TempDir()
		open := func() (*thalweg.Node, *stream.Job) {
			n, job, err := openLatest(options, dir, checkpoint.Config{})
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
		var whole, longest time.Duration
		var memory uint64
		perRound := *largeState / rounds
		// send sends a round, the i-th record of the key with the number that is asked for,
		// and returns the records a second until they are committed.
		send := func(number func(i int) int) float64 {
			start := time.Now()
			for i := range perRound {
				if err := w.add(number(i), event{Cents: int64(i)}); err != nil {
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
			whole, longest = whole+took, max(longest, took)
			forgetInput(b, w)
			return float64(perRound) / took.Seconds()
		}
		first := send(func(i int) int { return i })
		for round := 1; round < rounds; round++ {
			send(func(i int) int { return round*perRound + i })
		}
		again := send(func(i int) int { return i * 7919 % (rounds * perRound) })
		b.ReportMetric(again, "records/s")
		b.ReportMetric(first, "floor-records/s")
		b.ReportMetric(100*again/first, "%floor")
		b.ReportMetric(float64((rounds+1)*perRound)/whole.Seconds(), "whole-records/s")
		b.ReportMetric(longest.Seconds(), "longest-round-s")
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
