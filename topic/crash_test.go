package topic_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// The file system stops at some operation while several goroutines send, and
// loses what was not synced. Each record whose Send returned nil is there
// afterwards, none twice, each goroutine's in order; one whose error was
// definite is not there.
func TestAcknowledgedRecordsSurviveACrash(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for round := range 30 {
		const senders, partitions = 4, 2
		durable := lines.Partitions(partitions).Sync(log.SyncAlways)
		n := openNode(t)
		p := produce(t, n, durable)
		n.fs.StopAt(n.fs.Ops() + 1 + rnd.Int64N(200))

		var mu sync.Mutex
		acknowledged, refused := map[string]bool{}, map[string]bool{}
		var group sync.WaitGroup
		for s := range senders {
			group.Go(func() {
				for i := range 200 {
					value := fmt.Sprintf("%d %d %s", s, i, strings.Repeat("x", 500))
					err := p.Send(t.Context(), fmt.Sprint(s), value)
					mu.Lock()
					switch {
					case err == nil:
						acknowledged[value] = true
					case !errors.Is(err, topic.ErrUnknown):
						refused[value] = true
					}
					mu.Unlock()
				}
			})
		}
		group.Wait()
		p.Close()
		n.log.Close()

		l, err := log.Open("data", log.Options{FS: n.fs.Crash(rnd.Uint64()), SegmentBytes: 1 << 16, MaxBatchBytes: 1 << 20})
		require.NoError(t, err)
		defer l.Close()
		after := &node{log: l}
		found := map[string]bool{}
		last := [senders]int{}
		for _, r := range all(t, topic.ReadToEnd(t.Context(), after, durable, topic.Start())) {
			require.False(t, found[r.Value], "twice: %.20s", r.Value)
			require.False(t, refused[r.Value], "round %d: refused, but there: %.20s", round, r.Value)
			found[r.Value] = true
			var s, i int
			_, err := fmt.Sscan(r.Value, &s, &i)
			require.NoError(t, err)
			require.Equal(t, last[s], i, "round %d: sender %d", round, s)
			last[s]++
		}
		for value := range acknowledged {
			require.True(t, found[value], "round %d: acknowledged, but lost: %.20s", round, value)
		}
	}
}
