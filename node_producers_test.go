package thalweg_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// A name is for one open producer of a topic at a time.
func TestProducerName(t *testing.T) {
	node, err := thalweg.Open("")
	require.NoError(t, err)
	defer node.Close()
	named := topic.ProducerOptions{Name: "loader"}
	first, err := node.ProducerWith(words, named)
	require.NoError(t, err)
	_, err = node.ProducerWith(words, named)
	require.ErrorIs(t, err, topic.ErrNameInUse)
	other, err := node.ProducerWith(topic.New[string, int64]("others"), named)
	require.NoError(t, err, "another topic")
	require.NoError(t, other.Close())
	require.NoError(t, first.Send(t.Context(), "a", 1))
	require.NoError(t, first.Close())
	again, err := node.ProducerWith(words, named)
	require.NoError(t, err)
	written, err := again.Written(topic.Partition([]byte("a"), 3))
	require.NoError(t, err)
	require.EqualValues(t, 1, written)
}

// A program that sends the numbers from 0 on under a name, is stopped at some file
// operation or by a power cut, and asks when it begins again how far it was, sends
// each number once.
func TestNamedProducerSendsOnce(t *testing.T) {
	const total = 400
	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	numbers := topic.New[string, int64]("numbers").Sync(log.SyncAlways)
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		fs := vfs.NewMem()
		life := func() (done bool) {
			o := thalweg.Options{Log: log.Options{FS: fs, SegmentBytes: 8 << 10, MaxBatchBytes: 8 << 10}, SyncInterval: -1}
			node, err := o.Open("data")
			if err != nil {
				return false
			}
			defer node.Close()
			p, err := node.ProducerWith(numbers, topic.ProducerOptions{Name: "counter", BatchBytes: 1 << 10, MemoryBytes: 4 << 10})
			if err != nil {
				return false
			}
			next, err := p.Written(0)
			require.NoError(t, err)
			for ; next < total; next++ {
				if err := p.Queue(t.Context(), strconv.FormatInt(next, 10), next); err != nil {
					return false
				}
			}
			return p.Flush(t.Context()) == nil
		}
		lives := 1
		for {
			fs.StopAt(fs.Ops() + 20 + rnd.Int64N(60))
			if life() {
				break
			}
			if rnd.IntN(2) == 0 {
				fs = fs.Kill()
			} else {
				fs = fs.Crash(rnd.Uint64())
			}
			lives++
		}
		fs.StopAt(0)
		fs = fs.Kill()
		node, err := thalweg.Options{Log: log.Options{FS: fs, SegmentBytes: 8 << 10, MaxBatchBytes: 8 << 10}}.Open("data")
		require.NoError(t, err)
		next := int64(0)
		for r, err := range node.ReadToEnd(t.Context(), numbers, topic.Start()) {
			require.NoError(t, err)
			require.Equal(t, next, r.Value, "after %d lives", lives)
			next++
		}
		require.EqualValues(t, total, next)
		require.NoError(t, node.Close())
		t.Logf("%d lives", lives)
	}
}
