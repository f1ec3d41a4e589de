package stream_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

var kills = flag.Int("kills", 12, "how often the crash tests kill the process")

// testNode is a node on an in-memory file system, with the goroutines of production.
type testNode struct {
	plane *checkpoint.Plane
}

func openNode(t *testing.T, fs *vfs.Mem) testNode {
	t.Helper()
	o := checkpoint.PlaneOptions{FS: fs, SyncInterval: 20 * time.Millisecond}
	o.Log.SegmentBytes, o.Log.MaxBatchBytes = 128<<10, 2<<20
	o.Log.CompactionInterval = 20 * time.Millisecond // changelogs are compacted all the time
	plane, err := checkpoint.Open("node", o)
	require.NoError(t, err)
	return testNode{plane}
}

func (n testNode) Open(name string, spec topic.Spec) ([]*topic.LogPartition, error) {
	if err := n.plane.Log().Create(name, spec); err != nil {
		return nil, err
	}
	var all []*topic.LogPartition
	for i := range spec.Partitions {
		p, err := n.plane.Log().Partition(log.TopicPartition{Topic: name, Partition: log.PartitionID(i)})
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func (n testNode) Partition(tp log.TopicPartition) (*log.Partition, error) {
	return n.plane.Log().Partition(tp)
}
func (n testNode) TopicsChanged() <-chan struct{} { return n.plane.Log().TopicsChanged() }

func (n testNode) AcquireProducer(ctx context.Context) (log.ProducerID, error) {
	return n.plane.AcquireProducer(ctx)
}
func (n testNode) AcquireNamedProducer(ctx context.Context, name string) (log.ProducerID, error) {
	return n.plane.AcquireNamedProducer(ctx, name)
}
func (n testNode) ReleaseProducer(id log.ProducerID) error { return n.plane.ReleaseProducer(id) }

func (n testNode) start(t *testing.T, app *stream.Topology) *stream.Job {
	t.Helper()
	job, err := stream.Start(context.Background(), stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state"}, app)
	require.NoError(t, err)
	return job
}

// abandon ends what runs on a file system that nobody looks at any more.
func (n testNode) abandon(job *stream.Job) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = job.Stop(gone)
	_ = n.plane.Close()
}

// killed is a pipeline with a shuffle, two windows and a table, over three
// partitions, with input that is there from the start.
type killed struct {
	in      topic.Topic[string, int]
	windows topic.Topic[window.Key[string], int64]
	totals  topic.Topic[string, int]
	records int
	batch   int // records sent together
}

func newKilled(sync log.Sync) killed {
	return killed{
		in:      topic.New[string, int]("in").Partitions(3).Sync(sync),
		windows: topic.New[window.Key[string], int64]("windows").Partitions(2).Sync(sync),
		totals:  topic.New[string, int]("totals").Sync(sync),
		records: 30_000,
		batch:   1000,
	}
}

func (k killed) topology(interval time.Duration) *stream.Topology {
	app := stream.New("killed").Checkpoint(checkpoint.Every(interval)).Disorder(time.Second).StopAt(topic.End())
	s := app.Stream(k.in).Filter(func(v int) bool { return v%10 != 3 })
	s.GroupBy(func(v int) string { return fmt.Sprint("g", v%37) }).Window(window.Tumbling(time.Second)).Count().To(k.windows)
	s.GroupByKey().Emit(window.OnUpdate).Reduce(func(a, b int) int { return a + b }).To(k.totals)
	return app
}

func (k killed) fill(t *testing.T, n testNode) {
	t.Helper()
	ctx := context.Background()
	p, err := topic.NewProducer(ctx, n, k.in, topic.ProducerOptions{})
	require.NoError(t, err)
	for i := range k.records {
		require.NoError(t, p.QueueRecord(ctx, topic.Record[string, int]{Key: fmt.Sprint("k", i%101), Value: i, Time: at(int64(i)*2 - int64(i%7)*100)}, nil))
		if i%k.batch == k.batch-1 {
			require.NoError(t, p.Flush(ctx))
		}
	}
	require.NoError(t, p.Close())
	for _, part := range partitions(t, n, k.in.Name(), 3) {
		require.NoError(t, part.Sync(ctx))
	}
}

func partitions(t *testing.T, n testNode, name string, count int) []*log.Partition {
	t.Helper()
	all, err := n.Open(name, topic.Spec{Partitions: count})
	if err != nil { // exists with another policy
		all = nil
		for i := range count {
			p, err := n.plane.Log().Partition(log.TopicPartition{Topic: name, Partition: log.PartitionID(i)})
			require.NoError(t, err)
			all = append(all, p)
		}
	}
	return all
}

// check compares what a committed reader sees with a recount.
func (k killed) check(t *testing.T, n testNode) {
	t.Helper()
	ctx := context.Background()
	wantWindows, wantTotals := map[string]int64{}, map[string][]int{}
	sums := map[string]int{}
	for i := range k.records {
		if i%10 == 3 {
			continue
		}
		ms := int64(i)*2 - int64(i%7)*100
		start := ms - (ms%1000+1000)%1000
		wantWindows[fmt.Sprintf("g%d@%d", i%37, start)]++
		key := fmt.Sprint("k", i%101)
		sums[key] += i
		wantTotals[key] = append(wantTotals[key], sums[key])
	}
	gotWindows := map[string]int64{}
	for r, err := range topic.ReadToEnd(ctx, n, k.windows, topic.Start()) {
		require.NoError(t, err)
		id := fmt.Sprintf("%s@%d", r.Key.Key, r.Key.Start.UnixMilli())
		require.NotContains(t, gotWindows, id, "a window came twice")
		gotWindows[id] = r.Value
	}
	require.Equal(t, wantWindows, gotWindows)
	gotTotals := map[string][]int{}
	for r, err := range topic.ReadToEnd(ctx, n, k.totals, topic.Start()) {
		require.NoError(t, err)
		gotTotals[r.Key] = append(gotTotals[r.Key], r.Value)
	}
	require.Equal(t, wantTotals, gotTotals, "every change once, in order")
}

// A process killed at random moments gives the results of one that ran through.
func TestKilledAtRandomMoments(t *testing.T) {
	for _, interval := range []time.Duration{time.Millisecond, 5 * time.Millisecond} {
		t.Run(interval.String(), func(t *testing.T) {
			crashAtRandom(t, log.SyncByOS, interval, func(fs *vfs.Mem, _ uint64) *vfs.Mem { return fs.Kill() })
		})
	}
}

// Under SyncAlways the same holds when the power is cut, whatever the disk kept of
// what was not synced.
func TestPowerCutAtRandomMoments(t *testing.T) {
	crashAtRandom(t, log.SyncAlways, 2*time.Millisecond, func(fs *vfs.Mem, seed uint64) *vfs.Mem { return fs.Crash(seed) })
}

func crashAtRandom(t *testing.T, sync log.Sync, interval time.Duration, crash func(*vfs.Mem, uint64) *vfs.Mem) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	k := newKilled(sync)
	fs := vfs.NewMem()
	n := openNode(t, fs)
	k.fill(t, n)
	for range *kills {
		job := n.start(t, k.topology(interval))
		timer := time.NewTimer(time.Duration(rng.IntN(int(40 * time.Millisecond))))
		select {
		case <-timer.C:
		case <-job.Done():
			require.NoError(t, job.Wait())
		}
		image := crash(fs, rng.Uint64())
		n.abandon(job)
		fs = image
		n = openNode(t, fs)
	}
	job := n.start(t, k.topology(interval))
	require.NoError(t, job.Wait())
	k.check(t, n)
	require.NoError(t, n.plane.Close())
}
