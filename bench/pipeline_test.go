package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// user is a key of 16 bytes.
type user [16]byte

// event is a record of 100 bytes.
type event struct {
	User  user
	Kind  uint8
	Bot   bool
	Cents int64
	Rest  [74]byte
}

const eventBytes = 100

var userCodec = codec.Func(
	func(dst []byte, u user) ([]byte, error) { return append(dst, u[:]...), nil },
	func(src []byte) (u user, err error) {
		if len(src) != len(u) {
			return u, errors.New("bench: a user has 16 bytes")
		}
		return user(src), nil
	})

var eventCodec = codec.Func(appendEvent, decodeEvent)

func appendEvent(dst []byte, e event) ([]byte, error) {
	dst = append(dst, e.User[:]...)
	dst = append(dst, e.Kind, boolByte(e.Bot))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.Cents))
	return append(dst, e.Rest[:]...), nil
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func decodeEvent(src []byte) (e event, err error) {
	if len(src) != eventBytes {
		return e, errors.New("bench: an event has 100 bytes")
	}
	e.User = user(src)
	e.Kind, e.Bot, e.Cents = src[16], src[17] != 0, int64(binary.LittleEndian.Uint64(src[18:]))
	copy(e.Rest[:], src[26:])
	return e, nil
}

var (
	events = topic.New[string, event]("events").ValueCodec(eventCodec).Partitions(2)
	counts = topic.New[window.Key[user], int64]("counts").KeyCodec(windowUserCodec).Partitions(2)
)

var windowUserCodec = codec.Func(
	func(dst []byte, k window.Key[user]) ([]byte, error) {
		return append(binary.BigEndian.AppendUint64(dst, uint64(k.Start.UnixMilli())), k.Key[:]...), nil
	},
	func(src []byte) (k window.Key[user], err error) { return k, errors.New("bench: not read") })

const pipelineRecords = 4_000_000

// fill writes pipelineRecords events to both partitions, over 200 seconds of event time, of
// any of so many users.
func fill(b *testing.B, n *thalweg.Node, keys int) {
	b.Helper()
	fillWith(b, n, keys, func(rng *rand.Rand) int { return rng.IntN(keys) })
}

// fillWith is fill with users that pick chooses.
func fillWith(b *testing.B, n *thalweg.Node, keys int, pick func(rng *rand.Rand) int) {
	b.Helper()
	if err := n.Create(context.Background(), events); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, uint64(keys)))
	for p := range 2 {
		part, err := n.Log().Partition(log.TopicPartition{Topic: "events", Partition: log.PartitionID(p)})
		if err != nil {
			b.Fatal(err)
		}
		var builder log.BatchBuilder
		buf := make([]byte, 0, eventBytes)
		for i := range pipelineRecords / 2 {
			e := event{Kind: uint8(i % 4), Cents: int64(i)}
			binary.LittleEndian.PutUint64(e.User[:], uint64(pick(rng)))
			buf, _ = appendEvent(buf[:0], e)
			builder.Add(int64(i)/10, nil, buf, nil)
			if builder.Len() == 500 {
				if _, err := part.Write(builder.Finish(log.Producer{ID: log.NoProducer})); err != nil {
					b.Fatal(err)
				}
				builder.Reset()
			}
		}
	}
}

// pipeline is the main job: filter, map, group by with a shuffle, a tumbling count by
// minute.
func pipeline() *stream.Topology {
	app := stream.New("bench").Checkpoint(checkpoint.Every(100 * time.Millisecond)).StopAt(topic.End()).
		Use[user](userCodec)
	app.Stream(events).
		Filter(func(e event) bool { return !e.Bot }).
		Map(func(e event) event { e.Cents *= 2; return e }).
		GroupBy(func(e event) user { return e.User }).
		Window(window.Tumbling(time.Minute)).
		Count().
		To(counts)
	return app
}

// BenchmarkPipeline runs the main job over 4,000,000 records of 100 B, exactly once
// with checkpoints every 100 ms, against a hand-written loop over the same log. An
// operation is the whole run.
func BenchmarkPipeline(b *testing.B) {
	for _, keys := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			var ours, floor time.Duration
			var allocs uint64
			runs := 0
			for b.Loop() {
				b.StopTimer()
				n, err := thalweg.Open(b.TempDir())
				if err != nil {
					b.Fatal(err)
				}
				fill(b, n, keys)
				floor += byHand(b, n)
				runtime.GC()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				b.StartTimer()
				start := time.Now()
				if err := n.Run(context.Background(), pipeline()); err != nil {
					b.Fatal(err)
				}
				ours += time.Since(start)
				b.StopTimer()
				runtime.ReadMemStats(&after)
				allocs += after.Mallocs - before.Mallocs
				runs++
				if err := n.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			records := float64(pipelineRecords * runs)
			b.ReportMetric(records/ours.Seconds(), "records/s")
			b.ReportMetric(records*eventBytes/1e6/ours.Seconds(), "MB/s")
			b.ReportMetric(float64(allocs)/records, "allocs/record")
			b.ReportMetric(records/floor.Seconds(), "floor-records/s")
			b.ReportMetric(100*floor.Seconds()/ours.Seconds(), "%floor")
		})
	}
}

// byHand is the floor: one loop over both partitions in turn that decodes the same,
// counts in a Go map, writes changed counts to a changelog every 100 ms and each
// closed minute's counts to an output topic.
func byHand(b *testing.B, n *thalweg.Node) time.Duration {
	b.Helper()
	for _, name := range []string{"by-hand-changelog", "by-hand-output"} {
		if err := n.Create(context.Background(), topic.New[string, []byte](name)); err != nil {
			b.Fatal(err)
		}
	}
	open := func(name string, p int) *log.Partition {
		part, err := n.Log().Partition(log.TopicPartition{Topic: name, Partition: log.PartitionID(p)})
		if err != nil {
			b.Fatal(err)
		}
		return part
	}
	changelog, output := open("by-hand-changelog", 0), open("by-hand-output", 0)
	var changes, results log.BatchBuilder
	write := func(p *log.Partition, builder *log.BatchBuilder, least int) {
		if builder.Len() > 0 && builder.Size() >= least {
			if _, err := p.Write(builder.Finish(log.Producer{ID: log.NoProducer})); err != nil {
				b.Fatal(err)
			}
			builder.Reset()
		}
	}
	type count struct {
		n       int64
		minute  int64
		user    user
		changed bool
	}
	windows := make(map[int64]map[user]*count)
	var changed []*count
	key, value := make([]byte, 0, 32), make([]byte, 0, 16)
	encode := func(c *count) {
		key = append(binary.BigEndian.AppendUint64(key[:0], uint64(c.minute)), c.user[:]...)
		value = binary.AppendVarint(value[:0], c.n)
	}
	commit := func() {
		for _, c := range changed {
			encode(c)
			changes.Add(0, key, value, nil)
			write(changelog, &changes, 1<<20)
			c.changed = false
		}
		changed = changed[:0]
		write(changelog, &changes, 0)
		write(output, &results, 0)
	}
	closeBefore := func(minute int64) {
		commit() // what is closed is in the changelog
		for m, counts := range windows {
			if m >= minute {
				continue
			}
			for _, c := range counts {
				encode(c)
				results.Add(0, key, value, nil)
				write(output, &results, 256<<10)
				changes.Add(0, key, nil, nil)
				write(changelog, &changes, 1<<20)
			}
			delete(windows, m)
		}
	}

	start := time.Now()
	last, open0 := start, int64(0)
	readers := []*log.Reader{open("events", 0).Reader(0, log.ReadCommitted), open("events", 1).Reader(0, log.ReadCommitted)}
	for done := 0; done < len(readers); {
		done = 0
		var newest int64
		for _, r := range readers {
			batch, err := r.Next()
			if errors.Is(err, io.EOF) {
				done++
				continue
			}
			if err != nil {
				b.Fatal(err)
			}
			it := batch.Records()
			for it.Next() {
				e, err := decodeEvent(it.Value)
				if err != nil {
					b.Fatal(err)
				}
				if e.Bot {
					continue
				}
				e.Cents *= 2
				minute := it.Time / 60_000
				counts := windows[minute]
				if counts == nil {
					counts = make(map[user]*count)
					windows[minute] = counts
				}
				c := counts[e.User]
				if c == nil {
					c = &count{minute: minute, user: e.User}
					counts[e.User] = c
				}
				c.n++
				if !c.changed {
					c.changed = true
					changed = append(changed, c)
				}
				newest = max(newest, minute)
			}
		}
		if newest > open0 {
			closeBefore(newest)
			open0 = newest
		}
		if now := time.Now(); now.Sub(last) >= 100*time.Millisecond {
			commit()
			last = now
		}
	}
	closeBefore(1 << 62)
	commit()
	for _, r := range readers {
		r.Close()
	}
	return time.Since(start)
}
