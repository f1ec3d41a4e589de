package nexmark_test

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic/codec"
)

// flink are published figures: thousands of events a second for each core that was busy,
// of Flink 2.0 with 8 slots on 4 workers of 16 cores, events made in the process,
// checkpoints every 30 s (github.com/nexmark/nexmark, GUIDE_V2). There is none for q6.
var flink = map[string]float64{
	"q0": 378, "q1": 395, "q2": 414, "q3": 219, "q4": 28, "q5": 75, "q7": 23, "q8": 162,
	"q9": 14, "q10": 133, "q11": 46, "q12": 194, "q13": 188, "q14": 259, "q15": 168, "q16": 45,
	"q17": 161, "q18": 65, "q19": 43, "q20": 18, "q21": 147, "q22": 212,
}

// BenchmarkNexmark runs each query alone, over 500,000 events (-events) in a log on disk, exactly
// once with checkpoints every second, results into topics or files. An operation is a whole
// run. Figures are for each core that was busy: events by the processor time of the
// process. ×flink is that beside Flink's published one. The answer has to be that of the
// query's definition.
//
// The floor is what no query can do without: one core reads the log and decodes each event.
func BenchmarkNexmark(b *testing.B) {
	n := *howMany
	if n == 0 {
		n = 500_000
	}
	o := nexmark.Options{}
	sorted := collect(o, n)
	template := b.TempDir()
	floor := fillTemplate(b, template, o, n)
	for _, q := range queries {
		b.Run(q.String(), func(b *testing.B) {
			check := q.define(b, sorted)
			var took, busy time.Duration
			runs := 0
			for b.Loop() {
				b.StopTimer()
				dir := b.TempDir()
				node := openCopy(b, dir, template)
				at := files{vfs.OS(), dir + "/files"}
				app := topology(at, []answered{{q, check}}, 4*time.Second, time.Second)
				runtime.GC()
				start, before := time.Now(), processorTime(b)
				b.StartTimer()
				if err := node.Run(context.Background(), app); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				took, busy, runs = took+time.Since(start), busy+processorTime(b)-before, runs+1
				check(b, output{node, at})
				if err := errors.Join(node.Close(), os.RemoveAll(dir)); err != nil || b.Failed() {
					b.Fatal("the answer is not that of the definition, or: ", err)
				}
				b.StartTimer()
			}
			events := float64(n) * float64(runs)
			b.ReportMetric(events/took.Seconds(), "records/s")
			b.ReportMetric(events/busy.Seconds(), "records/s/core")
			b.ReportMetric(floor, "floor-records/s/core")
			b.ReportMetric(100*events/busy.Seconds()/floor, "%floor")
			if published := flink[strings.Fields(q.String())[0]]; published > 0 {
				b.ReportMetric(events/busy.Seconds()/1e3/published, "×flink")
			}
		})
	}
}

// fillTemplate makes a node that holds the events, and returns how many a second of processor
// time are read and decoded.
func fillTemplate(b *testing.B, dir string, o nexmark.Options, n int64) (floor float64) {
	b.Helper()
	node, err := thalweg.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	p, err := node.Producer(events)
	if err != nil {
		b.Fatal(err)
	}
	for number, e := range nexmark.New(o).Events(0, n) {
		if err := p.Queue(b.Context(), number, e); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		b.Fatal(err)
	}
	fillSide(b, node)
	floor = readByHand(b, node, n)
	if err := node.Close(); err != nil {
		b.Fatal(err)
	}
	return floor
}

func readByHand(b *testing.B, node *thalweg.Node, n int64) float64 {
	b.Helper()
	c := codec.Struct[nexmark.Event]()
	var decoded int64
	start := processorTime(b)
	for number := range 4 {
		p, err := node.Log().Partition(log.TopicPartition{Topic: events.Name(), Partition: log.PartitionID(number)})
		if err != nil {
			b.Fatal(err)
		}
		r := p.Reader(0, log.ReadCommitted)
		defer r.Close()
		for {
			batch, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			for it := batch.Records(); it.Next(); {
				if _, err := c.Decode(it.Value); err != nil {
					b.Fatal(err)
				}
				decoded++
			}
		}
	}
	if decoded != n {
		b.Fatalf("%d of %d events are in the log", decoded, n)
	}
	return float64(n) / (processorTime(b) - start).Seconds()
}

// openCopy opens a copy of a node.
func openCopy(b *testing.B, dir, from string) *thalweg.Node {
	b.Helper()
	err := os.CopyFS(dir, os.DirFS(from))
	if err != nil {
		b.Fatal(err)
	}
	node, err := thalweg.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	return node
}

// processorTime is what the process has used so far.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
