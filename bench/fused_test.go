package bench

import (
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// BenchmarkFused runs four steps without state in one task for each of two partitions: what
// reading, decoding and the steps themselves cost, since the last one keeps a record of 10,000
// only. The floor calls the same functions in a loop over the same log, on one core: two tasks can
// exceed it.
func BenchmarkFused(b *testing.B) {
	in := input{records: pipelineRecords(0), keys: 10_000}.withDefaults()
	isHuman := func(e event) bool { return !e.Bot }
	double := func(e event) event { e.Cents *= 2; return e }
	mark := func(e event) event { e.Kind |= 0x80; return e }
	isRare := func(e event) bool { return e.Cents%20_000 == 0 }
	var ours, floor time.Duration
	var allocs uint64
	runs := 0
	for b.Loop() {
		b.StopTimer()
		n, err := thalweg.Open(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		in.fill(b, n)
		app := job(checkpoint.Config{})
		app.Stream(in.events()).Filter(isHuman).Map(double).Map(mark).Filter(isRare).To(topic.New[string, event]("rare").ValueCodec(eventCodec).Partitions(in.partitions))
		floor += fusedByHand(b, n, in, isHuman, double, mark, isRare)
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b.StartTimer()
		start := time.Now()
		if err := n.Run(b.Context(), app); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(start)
		b.StopTimer()
		runtime.ReadMemStats(&after)
		allocs += after.Mallocs - before.Mallocs
		runs++
		rare := 0
		eachEvent(b, n, "rare", in.partitions, func(e event) {
			if rare++; e.Kind < 0x80 || !isRare(e) {
				b.Fatal("a record is there that no step let through")
			}
		})
		if want := in.records / 10_000; rare != want {
			b.Fatalf("%d records are left, not %d", rare, want)
		}
		if err := n.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	records := float64(in.records * runs)
	b.ReportMetric(records/ours.Seconds(), "records/s")
	b.ReportMetric(float64(allocs)/records, "allocs/record")
	b.ReportMetric(records/floor.Seconds(), "floor-records/s")
	b.ReportMetric(100*floor.Seconds()/ours.Seconds(), "%floor")
}

func fusedByHand(b *testing.B, n *thalweg.Node, in input, isHuman func(event) bool, double, mark func(event) event, isRare func(event) bool) time.Duration {
	start := time.Now()
	eachEvent(b, n, in.name(), in.partitions, func(e event) {
		if !isHuman(e) {
			return
		}
		if e = mark(double(e)); isRare(e) {
			sink += uint32(e.Cents)
		}
	})
	return time.Since(start)
}

// eachEvent decodes the events of a topic.
func eachEvent(b *testing.B, n *thalweg.Node, name string, partitions int, f func(e event)) {
	b.Helper()
	for p := range partitions {
		r := partitionOf(b, n, name, p).Reader(0, log.ReadCommitted)
		defer r.Close()
		for {
			read, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			for it := read.Records(); it.Next(); {
				e, err := decodeEvent(it.Value)
				if err != nil {
					b.Fatal(err)
				}
				f(e)
			}
		}
	}
}
