package stream_test

import (
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// The changelogs of a job that runs on and on stay as small as its state, through
// restarts, with new keys and closed windows all the time; and a store built anew
// from such a changelog gives the results that the whole one would give.
func TestChangelogsStayBounded(t *testing.T) {
	fs := vfs.NewMem()
	var late atomic.Int64 // added to the clock
	open := func() testNode {
		o := checkpoint.PlaneOptions{FS: fs, SyncInterval: 5 * time.Millisecond}
		o.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
		o.Log.SegmentBytes, o.Log.MaxBatchBytes, o.Log.CompactionInterval = 4<<10, 1<<20, 5*time.Millisecond
		plane, err := checkpoint.Open("node", o)
		require.NoError(t, err)
		return testNode{plane}
	}
	in, total := topic.New[string, int]("in"), topic.New[string, int64]("total")
	perWindow := topic.New[window.Key[string], int64]("per-window")
	app := stream.New("long").Checkpoint(checkpoint.Every(time.Hour)) // in this test, when asked for
	s := app.Stream(in).GroupByKey()
	s.Count().As("all").To(total)
	s.Window(window.Tumbling(time.Second)).Count().As("windowed").To(perWindow)

	n := open()
	job := n.start(t, app)
	sent, most := int64(0), int64(0)
	round := 0
	feed := func() {
		p, err := topic.NewProducer(t.Context(), n, in, topic.ProducerOptions{})
		require.NoError(t, err)
		for k := range 20 {
			_, _, err := p.SendRecord(t.Context(), topic.Record[string, int]{Key: fmt.Sprint(k), Time: at(int64(round) * 1000)})
			require.NoError(t, err)
			sent++
		}
		require.NoError(t, p.Close())
		require.NoError(t, job.CatchUp(t.Context()))
		late.Add(int64(2 * time.Minute))
		round++
	}
	rounds := 80
	if testing.Short() {
		rounds = 30
	}
	for round < rounds {
		feed()
		if round%20 == 0 {
			require.NoError(t, n.plane.SyncAll(t.Context()))
			image := fs.Kill()
			if round%40 == 0 {
				image = fs.Crash(uint64(round))
			}
			n.abandon(job)
			fs = image
			n = open()
			job = n.start(t, app)
		}
		for _, step := range []string{"all", "windowed"} {
			most = max(most, changelogRecords(t, n, step))
		}
	}
	// What a cleaning finds depends on when it comes: a deletion goes with a cleaning a
	// minute after the first that met it, and one comes when there is something to clean.
	// So the job goes on until it has come to that.
	for _, step := range []string{"all", "windowed"} {
		for changelogRecords(t, n, step) >= 20*12 {
			require.Less(t, round, 10*rounds, "step %s has %d of %d changes", step, changelogRecords(t, n, step), sent)
			feed()
			require.NoError(t, n.plane.SyncAll(t.Context()))
			// A store follows some seconds behind, and a deletion stays until it has passed it; one
			// that starts is at once where its job is.
			require.NoError(t, job.Stop(t.Context()))
			job = n.start(t, app)
		}
	}
	counts := committedCounts(t, n, total)
	require.Len(t, counts, 20)
	for key, count := range counts {
		require.EqualValues(t, round, count, "key %s", key)
	}
	windows := int64(0)
	for r, err := range topic.ReadToEnd(t.Context(), n, perWindow, topic.Start()) {
		require.NoError(t, err)
		require.EqualValues(t, 1, r.Value)
		windows++
	}
	require.EqualValues(t, sent-20, windows, "the last window is open")
	t.Logf("%d records in, at most %d in a changelog", sent, most)
	n.abandon(job)
}

// changelogRecords counts what is in the changelog of a step.
func changelogRecords(t *testing.T, n testNode, step string) (records int64) {
	t.Helper()
	p, err := n.plane.Log().Partition(log.TopicPartition{Topic: "__long-" + step + "-changelog"})
	require.NoError(t, err)
	r := p.Reader(p.Start(), log.ReadUncommitted)
	defer r.Close()
	for {
		b, err := r.Next()
		if err != nil {
			return records
		}
		records += int64(b.Count)
	}
}

// A changelog is compressed as the topology says, from the start of the job on that says
// it first, and state is restored from what was written before and after.
func TestChangelogsAreCompressed(t *testing.T) {
	n := openNode(t, vfs.NewMem())
	in, total := topic.New[string, int]("in"), topic.New[string, int64]("total")
	changelog := func() (spec log.TopicSpec, compressed int) {
		p, err := n.plane.Log().Partition(log.TopicPartition{Topic: "__squeezed-all-changelog"})
		require.NoError(t, err)
		spec, _ = n.plane.Log().Spec("__squeezed-all-changelog")
		r := p.Reader(p.Start(), log.ReadCommitted)
		defer r.Close()
		for {
			b, err := r.Next()
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
				return spec, compressed
			}
			if b.Compression == log.Zstd {
				compressed++
			}
		}
	}
	run := func(c checkpoint.Config) {
		app := stream.New("squeezed").Checkpoint(c).StopAt(topic.End())
		app.Stream(in).GroupByKey().Count().As("all").To(total)
		var keys []string
		for i := range 200 {
			keys = append(keys, fmt.Sprint("key ", i%100))
		}
		send(t, n, in, keys...)
		require.NoError(t, n.start(t, app).Wait())
	}
	run(checkpoint.Config{})
	spec, compressed := changelog()
	require.Zero(t, spec.Compression)
	require.Zero(t, compressed)
	run(checkpoint.Config{}.Compress(log.Zstd))
	spec, compressed = changelog()
	require.Equal(t, log.Zstd, spec.Compression)
	require.Positive(t, compressed)
	run(checkpoint.Every(time.Second).Compress(log.NoCompression))
	spec, _ = changelog()
	require.Zero(t, spec.Compression)
	counts := map[string]int64{}
	for r, err := range topic.ReadToEnd(t.Context(), n, total, topic.Start()) {
		require.NoError(t, err)
		counts[r.Key] = r.Value
	}
	require.Len(t, counts, 100)
	for k, c := range counts {
		require.EqualValues(t, 6, c, k)
	}
	require.ErrorContains(t, stream.New("bad").Checkpoint(checkpoint.Config{}.Compress(77)).Validate(), "compress changelogs")
}
