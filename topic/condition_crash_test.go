package topic_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// counters are a topic whose conditional records are durable when they are acknowledged.
var counters = topic.New[string, string]("counters").Sync(log.SyncAlways)

// chain is a key that is counted up by conditional records, each of which names the one
// before.
type chain struct {
	version int64 // of the newest that was acknowledged
	value   int   // of it
	unknown bool  // the next may be there too
}

// extend sends the next record of the chain, which is over once one has failed.
func (c *chain) extend(t *testing.T, p *topic.Producer[string, string]) error {
	_, at, err := p.SendIf(t.Context(), record("k", fmt.Sprint(c.value+1)), topic.VersionIs(c.version))
	if err == nil {
		c.version, c.value = at, c.value+1
		return nil
	}
	require.NotErrorIs(t, err, topic.ErrConflict)
	c.unknown = errors.Is(err, topic.ErrUnknown)
	return err
}

// The file system stops in place of each operation in turn while conditional records are
// sent, among others. What was acknowledged is there, what certainly failed is not, and
// the chain of versions has no break and no branch; the next process goes on with it.
func TestSendIfSurvivesACrashAnywhere(t *testing.T) {
	const records = 20
	step := int64(1)
	if testing.Short() {
		step = 5
	}
	for at := int64(1); ; at += step {
		fs := vfs.NewMem()
		options := log.Options{FS: fs, SegmentBytes: 1 << 10, MaxBatchBytes: 1 << 10}
		l, err := log.Open("data", options)
		require.NoError(t, err)
		n := &node{log: l, fs: fs}
		c := chain{version: topic.NoVersion}
		fs.StopAt(fs.Ops() + at)
		p, err := topic.NewProducer(t.Context(), n, counters, topic.ProducerOptions{})
		for err == nil && c.value < records {
			if err = c.extend(t, p); err == nil {
				err = p.Send(t.Context(), "other", "x")
			}
		}
		done := err == nil
		if p != nil {
			_ = p.Close()
		}
		_ = l.Close()

		for seed := range uint64(2) {
			c := c
			after := fs.Kill()
			if seed > 0 {
				after = fs.Crash(seed + uint64(at))
			}
			where := fmt.Sprintf("operation %d, seed %d", at, seed)
			options.FS = after
			l, err := log.Open("data", options)
			require.NoError(t, err, where)
			n := &node{log: l, fs: after}
			n.next.Store(1000) // ids nobody had
			values := []string{}
			last := int64(topic.NoVersion)
			for r, err := range topic.ReadToEnd(t.Context(), n, counters, topic.Start()) {
				require.NoError(t, err, where)
				if r.Key == "k" {
					values, last = append(values, r.Value), r.Offset
				}
			}
			want := []string{}
			for i := range len(values) {
				want = append(want, fmt.Sprint(i+1))
			}
			require.Equal(t, want, values, where)
			require.GreaterOrEqual(t, len(values), c.value, where)
			if !c.unknown {
				require.Len(t, values, c.value, where)
			}
			require.LessOrEqual(t, len(values), c.value+1, where)
			p, err := topic.NewProducer(t.Context(), n, counters, topic.ProducerOptions{})
			require.NoError(t, err, where)
			if len(values) > c.value {
				_, _, err := p.SendIf(t.Context(), record("k", "branch"), topic.VersionIs(c.version))
				require.Equal(t, last, conflict(t, err).Found, where)
			}
			c.version, c.value = last, len(values)
			require.NoError(t, c.extend(t, p), where)
			require.NoError(t, p.Close())
			require.NoError(t, l.Close())
		}
		if done {
			return
		}
	}
}
