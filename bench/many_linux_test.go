package bench

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

var (
	manyTopics = flag.Int("many.topics", 2_000, "topics of BenchmarkManyTopics")
	manyIdle   = flag.Duration("many.idle", 2*time.Second, "how long BenchmarkManyTopics looks at the idle node")
)

// BenchmarkManyTopics measures what a node with many topics of one partition takes, each
// with one record: the time to create them in one call, to append to each, to close and
// to open, the memory for each, goroutines, descriptors and mappings, and what the node
// uses of one core while nothing is done.
func BenchmarkManyTopics(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		named := make([]thalweg.Named, *manyTopics)
		for i := range named {
			named[i] = topic.New[string, string](fmt.Sprintf("topic-%05d", i))
		}
		n := openNode(b, dir, "open-empty")
		none := liveBytes()
		timed(b, "create", func() error { return n.Create(b.Context(), named...) })
		perTopic(b, "unused", liveBytes()-none)
		idle(b, "unused")

		timed(b, "append", func() error {
			for p := range n.Log().Partitions() {
				if strings.HasPrefix(p.Name().Topic, "__") {
					continue // the node's own
				}
				if _, err := p.AppendRecords(b.Context(), log.Record{Value: make([]byte, 100)}); err != nil {
					return err
				}
			}
			return nil
		})
		timed(b, "close", n.Close)
		n = openNode(b, dir, "open")
		perTopic(b, "used", liveBytes()-none)
		idle(b, "used")
		b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
		b.ReportMetric(float64(descriptors(b)), "descriptors")
		b.ReportMetric(float64(mappings(b)), "mappings")
		timed(b, "close-clean", n.Close)
	}
	b.ReportMetric(0, "ns/op")
}

func openNode(b *testing.B, dir, what string) (n *thalweg.Node) {
	timed(b, what, func() (err error) {
		n, err = thalweg.Open(dir)
		return err
	})
	return n
}

func perTopic(b *testing.B, what string, bytes int64) {
	b.ReportMetric(float64(bytes)/float64(*manyTopics), what+"-B/topic")
}

// idle reports the share of a core that the process takes while the benchmark waits.
func idle(b *testing.B, what string) {
	begin, used := time.Now(), cpuTime(b)
	time.Sleep(*manyIdle)
	b.ReportMetric(100*float64(cpuTime(b)-used)/float64(time.Since(begin)), what+"-idle-%core")
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func descriptors(b *testing.B) int {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		b.Fatal(err)
	}
	return len(open)
}

func mappings(b *testing.B) int {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		b.Fatal(err)
	}
	return bytes.Count(maps, []byte("\n"))
}
