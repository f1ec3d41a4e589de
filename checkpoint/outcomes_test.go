package checkpoint

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
)

// However owners commit, abort, leave out ids and end, the outcome of each id is what its
// entry said, and the same behind a snapshot.
func TestOutcomesAgainstAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	l := newMetaLog()
	want := map[log.ProducerID]Outcome{}
	var live []log.ProducerID // the next id of each owner
	end := func(i int) {
		want[live[i]], want[live[i]+7], want[blockOf(live[i])+blockSize-1] = OutcomeAborted, OutcomeAborted, OutcomeAborted
		live = append(live[:i], live[i+1:]...)
	}
	for range 3000 {
		switch k := random.IntN(100); {
		case k < 8 || len(live) == 0:
			r := l.apply(txnOwnerBegin{"", random.Uint64()})
			require.NoError(t, r.err)
			live = append(live, r.first)
		case k < 12:
			i := random.IntN(len(live))
			l.apply(txnOwnerEnd{blockOf(live[i])})
			end(i)
		case k == 12:
			l.apply(nodeStart{unclean: k%2 == 0})
			for len(live) > 0 {
				end(0)
			}
		case k == 13:
			m, err := decodeSnapshot(encodeSnapshot(nil, l.m), l.n-1)
			require.NoError(t, err)
			require.Equal(t, l.m.outcomes, m.outcomes)
			l.m = m
		default:
			i := random.IntN(len(live))
			if random.IntN(10) == 0 {
				want[live[i]] = OutcomeAborted // left out
				live[i]++
			}
			if id := live[i]; random.IntN(3) == 0 {
				require.NoError(t, l.apply(txnAbort{id}).err)
				want[id] = OutcomeAborted
			} else {
				require.NoError(t, l.apply(txnCommit{id: id}).err)
				want[id] = OutcomeCommitted
			}
			live[i]++
		}
	}
	for _, next := range live {
		want[next] = OutcomeOpen
		if o := l.m.txnOwners[blockOf(next)]; next <= o.decided {
			want[next] = OutcomeAborted
		}
	}
	require.Greater(t, len(want), 1000)
	for id, outcome := range want {
		got, _, ok := l.m.outcome(id)
		require.True(t, ok)
		require.Equal(t, outcome, got, "id %d, of block %d", id, (blockOf(id)-firstBlock)/blockSize)
	}
	for _, id := range []log.ProducerID{-1, 17, firstProducer, l.m.nextBlock, lastBlock} {
		_, _, ok := l.m.outcome(id)
		require.False(t, ok, "id %d", id)
	}
}

// What is remembered is bounded, and what goes is what has not changed for the longest: an
// owner that goes on committing keeps its first outcome.
func TestOldOutcomesAreForgotten(t *testing.T) {
	l := newMetaLog()
	steady := l.apply(txnOwnerBegin{"steady", 1}).first
	other := l.apply(txnOwnerBegin{"other", 2}).first
	const pairs = outcomesKept
	for i := range log.ProducerID(pairs) {
		require.NoError(t, l.apply(txnCommit{id: other + 2*i}).err)
		require.NoError(t, l.apply(txnAbort{other + 2*i + 1}).err)
		if i%100 == 0 {
			require.NoError(t, l.apply(txnCommit{id: steady + i/100}).err)
		}
		require.LessOrEqual(t, l.m.outcomes.count, outcomesKept+outcomesKept/8)
	}
	count := 0
	for _, runs := range l.m.outcomes.runs {
		count += len(runs)
	}
	require.Equal(t, count, l.m.outcomes.count)
	require.GreaterOrEqual(t, count, outcomesKept)
	at := func(id log.ProducerID) Outcome {
		outcome, _, ok := l.m.outcome(id)
		require.True(t, ok)
		return outcome
	}
	require.Equal(t, OutcomeCommitted, at(steady))
	require.Equal(t, OutcomeForgotten, at(other))
	require.Equal(t, OutcomeForgotten, at(other+1))
	require.Equal(t, OutcomeCommitted, at(other+2*pairs-outcomesKept+2))
	require.Equal(t, OutcomeAborted, at(other+2*pairs-1))
	require.Equal(t, OutcomeOpen, at(other+2*pairs))
	require.Less(t, len(encodeSnapshot(nil, l.m)), 1<<20)
}

// An outcome is durable before it is told, where the metadata log fails it is not told,
// and the next process tells it.
func TestOutcomeOfALogThatFails(t *testing.T) {
	fs := vfs.NewMem()
	p, err := openPlane(fs)
	require.NoError(t, err)
	tr, err := p.Transactor(context.Background(), TransactorOptions{Name: "t", Timeout: time.Hour})
	require.NoError(t, err)
	commit := func() log.ProducerID {
		t.Helper()
		require.NoError(t, tr.Begin())
		id, err := tr.ID()
		require.NoError(t, err)
		again, err := tr.ID()
		require.NoError(t, err)
		require.Equal(t, id, again)
		require.NoError(t, tr.Commit(context.Background(), nil))
		_, err = tr.ID()
		require.ErrorIs(t, err, ErrNoTransaction)
		return id
	}
	first := commit()
	outcome, err := p.Outcome(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, OutcomeCommitted, outcome)
	crashed := fs.Crash(1) // keeps what was synced alone
	second := commit()
	require.NotEqual(t, first, second, "an empty transaction that was named has an id of its own")
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			return errors.New("broken disk")
		}
		return nil
	})
	for range 2 {
		_, err = p.Outcome(t.Context(), second)
		require.ErrorIs(t, err, ErrUnknown)
		require.ErrorIs(t, err, ErrMetadata)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Outcome(ended, first)
	require.ErrorIs(t, err, context.Canceled)
	_ = p.Close()

	p, err = openPlane(crashed)
	require.NoError(t, err)
	for id, want := range map[log.ProducerID]Outcome{first: OutcomeCommitted, second: OutcomeAborted} {
		outcome, err := p.Outcome(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, outcome)
	}
	_, err = p.Outcome(t.Context(), first+blockSize)
	require.ErrorIs(t, err, ErrNoTransaction)
	require.NoError(t, p.Close())
}
