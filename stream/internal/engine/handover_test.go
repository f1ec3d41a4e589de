package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/topic"
)

// The protocol of a two-phase sink over random failures, crashes and orders of barriers and
// completions: the sink commits every record once, in order. (In the model handles
// are ranges of records; a crash forgets all but what a complete checkpoint says.)
func TestHandoverCommitsEverythingOnce(t *testing.T) {
	type saved struct {
		done   topic.LogPosition
		handle []byte
	}
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 0))
		const records = 40
		var (
			h         = newHandover(true, topic.LogPosition{}, nil)
			durable   saved // of the newest complete checkpoint
			inFlight  *saved
			n         int64
			staged    []int
			prepared  = map[byte][]int{}
			committed []int
			handles   byte
			read      int
		)
		fails := func() bool { return rng.IntN(6) == 0 }
		for steps := 0; len(committed) < records || h.phase != phaseOpen; steps++ {
			require.Less(t, steps, 20_000, "seed %d stands still in %v", seed, h.phase)
			switch rng.IntN(12) {
			case 0: // a barrier
				if inFlight == nil {
					n++
					s := saved{}
					s.done, s.handle = h.report(n)
					inFlight = &s
				}
			case 1: // it completes
				if inFlight != nil {
					durable, inFlight = *inFlight, nil
					h.complete(n)
				}
			case 2: // a crash, with the verdict of the checkpoint in flight either way
				if rng.IntN(4) > 0 {
					break
				}
				if inFlight != nil && rng.IntN(2) == 0 {
					durable = *inFlight
				}
				inFlight = nil
				h = newHandover(true, durable.done, durable.handle)
				read = int(durable.done.Offset)
			default:
				switch h.next() {
				case actionCommit:
					id := h.handle[0]
					committed = append(committed, prepared[id]...)
					delete(prepared, id)
					if !fails() {
						h.committed()
					}
				case actionAbort:
					staged = nil
					clear(prepared)
					if !fails() {
						h.aborted()
						read = int(h.done.Offset)
					}
				case actionWrite:
					switch {
					case read < records && rng.IntN(3) > 0:
						staged = append(staged, read) // maybe in part: spoiled all the same
						if fails() {
							h.spoil()
							break
						}
						read++
						h.wrote(topic.LogPosition{Offset: topic.LogOffset(read)})
					case h.preparable():
						handles++
						prepared[handles], staged = staged, nil
						if fails() {
							h.spoil()
							break
						}
						h.prepared([]byte{handles})
					}
				}
			}
		}
		require.Len(t, committed, records, "seed %d", seed)
		for i, v := range committed {
			require.Equal(t, i, v, "seed %d", seed)
		}
	}
}

// A plain sink's position moves with what was written, and no handle is ever out.
func TestHandoverOfAPlainSink(t *testing.T) {
	h := newHandover(false, topic.LogPosition{Offset: 5}, nil)
	require.Equal(t, actionWrite, h.next())
	h.wrote(topic.LogPosition{Offset: 9})
	done, handle := h.report(1)
	require.EqualValues(t, 9, done.Offset)
	require.Nil(t, handle)
	require.False(t, h.complete(1))
	require.False(t, h.preparable())
	require.False(t, h.droppable())
}
