package bench

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

var largeState = flag.Int("state.keys", 1_000_000, "keys of BenchmarkLargeState; 50,000,000 of them need 20 GB of disk")

// BenchmarkLargeState keeps the newest record of each of many keys, 16 B of key and 100 B
// of value, in a job whose state memory is 512 MiB: the rest is on disk. Keys come in no
// order, in ten rounds: a tenth of them new, and as many records again of keys that any
// round had. It reports the throughput of the first and of the last round, of the whole,
// the most memory the process had, what the node takes on disk, and how long after it
// was closed the node takes to open, to start the job and to commit the change of a key.
func BenchmarkLargeState(b *testing.B) {
	const rounds = 10
	latest := topic.New[user, event]("latest-in").KeyCodec(userCodec).ValueCodec(eventCodec).Partitions(2)
	app := func() *stream.Topology {
		app := stream.New("large").Use[user](userCodec).Use[event](eventCodec)
		app.Stream(latest).GroupByKey().Reduce(func(_, e event) event { return e }).As("latest").
			ToStream().Filter(func(e event) bool { return e.Bot }).To(topic.New[user, event]("bots"))
		return app
	}
	for b.Loop() {
		dir := b.TempDir()
		open := func() (*thalweg.Node, *stream.Job) {
			n, err := thalweg.Options{StateMemory: 512 << 20}.Open(dir)
			if err != nil {
				b.Fatal(err)
			}
			if err := n.Create(b.Context(), latest); err != nil {
				b.Fatal(err)
			}
			job, err := n.Start(b.Context(), app())
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
		var whole time.Duration
		var memory uint64
		perRound := *largeState / rounds
		for round := range rounds {
			start := time.Now()
			for i := range perRound {
				writeLatest(b, n, uint64(round*perRound+i), uint64(i)*7919%uint64((round+1)*perRound), i == perRound-1)
				if i%100_000 == 0 {
					memory = max(memory, processMemory())
				}
			}
			commit(job)
			took := time.Since(start)
			whole += took
			perSecond := float64(2*perRound) / took.Seconds()
			if round == 0 || round == rounds-1 {
				b.ReportMetric(perSecond, fmt.Sprintf("round-%d-records/s", round+1))
			}
			b.Logf("round %d: %.0f records/s, %d MB of memory", round+1, perSecond, processMemory()>>20)
			forgetInput(b, n)
		}
		b.ReportMetric(float64(2*perRound*rounds)/whole.Seconds(), "records/s")
		b.ReportMetric(float64(memory)/1e6, "memory-MB")
		b.ReportMetric(float64(bytesBelow(b, dir))/1e6, "disk-MB")
		timed(b, "close", n.Close)
		start := time.Now()
		n, job = open()
		b.ReportMetric(time.Since(start).Seconds(), "restart-s")
		writeLatest(b, n, 1, 2, true)
		commit(job)
		b.ReportMetric(time.Since(start).Seconds(), "first-commit-s")
		if err := n.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// writer of BenchmarkLargeState's records: one batch of each partition at a time.
var latestBuilders [2]log.BatchBuilder

// writeLatest adds a record of each of two keys, in the partition of the key, and writes
// what there is when it makes a batch or is the last.
func writeLatest(b *testing.B, n *thalweg.Node, one, other uint64, last bool) {
	var buf [eventBytes]byte
	for _, number := range []uint64{one, other} {
		e := event{Cents: int64(number)}
		binary.BigEndian.PutUint64(e.User[:], number*0x9e3779b97f4a7c15) // in no order
		binary.BigEndian.PutUint64(e.User[8:], number)
		value, _ := appendEvent(buf[:0], e)
		latestBuilders[number%2].Add(int64(number), e.User[:], value, nil)
	}
	for p := range latestBuilders {
		builder := &latestBuilders[p]
		if builder.Len() == 0 || builder.Len() < 500 && !last {
			continue
		}
		if _, err := latestPartition(b, n, p).Write(builder.Finish(log.Producer{ID: log.NoProducer})); err != nil {
			b.Fatal(err)
		}
		builder.Reset()
	}
}

func latestPartition(b *testing.B, n *thalweg.Node, p int) *log.Partition {
	part, err := n.Log().Partition(log.TopicPartition{Topic: "latest-in", Partition: log.PartitionID(p)})
	if err != nil {
		b.Fatal(err)
	}
	return part
}

// forgetInput drops what the job has committed, so that the disk holds the state alone.
func forgetInput(b *testing.B, n *thalweg.Node) {
	for p := range latestBuilders {
		part := latestPartition(b, n, p)
		if err := part.DeleteBefore(part.HighWatermark()); err != nil {
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
