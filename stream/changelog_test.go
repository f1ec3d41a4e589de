package stream_test

import (
	"fmt"
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
	rounds := 150
	if testing.Short() {
		rounds = 60
	}
	for round := range rounds {
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
		if round%20 == 19 {
			require.NoError(t, n.plane.SyncAll(t.Context()))
			image := fs.Kill()
			if round%40 == 39 {
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
	require.NoError(t, job.CatchUp(t.Context()))
	counts := committedCounts(t, n, total)
	require.Len(t, counts, 20)
	for key, count := range counts {
		require.EqualValues(t, rounds, count, "key %s", key)
	}
	windows := int64(0)
	for r, err := range topic.ReadToEnd(t.Context(), n, perWindow, topic.Start()) {
		require.NoError(t, err)
		require.EqualValues(t, 1, r.Value)
		windows++
	}
	require.EqualValues(t, sent-20, windows, "the last window is open")
	// The background is a little behind: what is there now is bounded at last.
	for _, step := range []string{"all", "windowed"} {
		require.Eventually(t, func() bool {
			require.NoError(t, n.plane.SyncAll(t.Context()))
			return changelogRecords(t, n, step) < 20*12
		}, 20*time.Second, 10*time.Millisecond, "step %s has %d of %d changes", step, changelogRecords(t, n, step), sent)
	}
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
