package log

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// TestSequences shows which sequence numbers are taken, repeated and refused.
func TestSequences(t *testing.T) {
	l, p := single(t, small(vfs.NewMem()), SyncByOS)
	defer l.Close()
	send := func(epoch int16, sequence int32, n int) (AppendResult, error) {
		return p.Write(batchOf(Producer{ID: 5, Epoch: epoch, Sequence: sequence}, 1, make([]string, n)...))
	}
	ok := func(epoch int16, sequence int32, n int, base Offset, duplicate bool) {
		t.Helper()
		got, err := send(epoch, sequence, n)
		require.NoError(t, err)
		require.Equal(t, base, got.Base)
		require.Equal(t, base+Offset(n)-1, got.Last)
		require.Equal(t, Position{base + Offset(n), 0}, got.End)
		require.Equal(t, duplicate, got.Duplicate)
	}
	refused := func(epoch int16, sequence int32, n int, want error) {
		t.Helper()
		end := p.End()
		_, err := send(epoch, sequence, n)
		require.ErrorIs(t, err, want)
		require.Equal(t, end, p.End())
	}
	ok(0, math.MaxInt32-4, 3, 0, false) // an unknown id begins anywhere
	ok(0, math.MaxInt32-1, 3, 3, false) // across the wrap: the last is 0
	ok(0, 1, 1, 6, false)
	refused(0, 3, 1, ErrOutOfOrder)
	ok(0, 2, 2, 7, false)
	ok(0, 4, 1, 9, false)
	// The last five are remembered, exactly as they were.
	ok(0, math.MaxInt32-4, 3, 0, true)
	ok(0, math.MaxInt32-1, 3, 3, true)
	ok(0, 1, 1, 6, true)
	refused(0, 2, 1, ErrOutOfOrder)
	refused(0, 1, 2, ErrOutOfOrder)
	ok(0, 5, 1, 10, false)
	refused(0, math.MaxInt32-4, 3, ErrOutOfOrder)
	// A newer epoch begins at 0 and fences older ones.
	refused(1, 6, 1, ErrOutOfOrder)
	ok(1, 0, 1, 11, false)
	refused(0, 6, 1, ErrFenced)
	ok(1, 0, 1, 11, true)
	ok(1, 1, 1, 12, false)
}

// TestTransactionsOfOneProducer shows the use as in Kafka, without owners: one id
// runs one transaction after the other.
func TestTransactionsOfOneProducer(t *testing.T) {
	l, p := single(t, small(vfs.NewMem()), SyncByOS)
	defer l.Close()
	write := func(producer Producer, values ...string) error {
		_, err := p.Write(batchOf(producer, 1, values...))
		return err
	}
	end := func(commit bool) {
		t.Helper()
		_, err := p.EndTransaction(5, commit)
		require.NoError(t, err)
	}
	require.NoError(t, write(transactional(5, 0), "a"))
	require.ErrorIs(t, write(Producer{ID: 5, Sequence: 1}, "x"), ErrInvalidBatch, "outside of the open transaction")
	newer := transactional(5, 0)
	newer.Epoch = 1
	require.ErrorIs(t, write(newer, "x"), ErrOutOfOrder, "a newer epoch waits for the end of the older one's transaction")
	end(true)
	require.NoError(t, write(transactional(5, 1), "b"))
	end(false)
	require.NoError(t, write(transactional(5, 2), "c"))
	_, err := p.EndTransaction(5, true)
	require.NoError(t, err)
	_, err = p.EndTransaction(5, false)
	require.ErrorIs(t, err, ErrFenced)
	require.NoError(t, write(newer, "d"))
	require.ErrorIs(t, write(transactional(5, 3), "x"), ErrFenced)
	end(true)
	require.Equal(t, []string{"0:a", "4:c", "6:d"}, readAll(t, p, 0, ReadCommitted))
	position, err := p.EndTransaction(99, true)
	require.NoError(t, err, "an id that wrote nothing")
	require.Equal(t, p.End(), position)
	require.Equal(t, Offset(8), position.Offset)
}

// TestOwners shows what a partition refuses by what it is told of owners.
func TestOwners(t *testing.T) {
	mem := vfs.NewMem()
	l, p := single(t, small(mem), SyncByOS)
	owners := &blocks{over: map[ProducerID]bool{}, unknown: map[ProducerID]bool{400: true}}
	l.SetOwners(owners)
	write := func(producer Producer) error {
		_, err := p.Write(batchOf(producer, 1, "v"))
		return err
	}
	end := func(id ProducerID, commit bool) error {
		_, err := p.EndTransaction(id, commit)
		return err
	}
	require.ErrorIs(t, write(transactional(401, 0)), ErrUnknownOwner)
	require.NoError(t, write(transactional(101, 0)))
	require.NoError(t, write(Producer{ID: 100}), "an idempotent id beside")
	require.NoError(t, end(101, true))
	require.ErrorIs(t, write(transactional(101, 1)), ErrFenced)
	require.NoError(t, write(transactional(102, 0)))
	require.NoError(t, end(102, false))
	require.NoError(t, end(103, true), "it wrote nothing here")
	require.ErrorIs(t, write(transactional(103, 0)), ErrFenced, "and cannot do so late")
	require.NoError(t, end(101, true))
	require.ErrorIs(t, end(102, true), ErrFenced)
	require.NoError(t, end(102, false))
	require.NoError(t, write(Producer{ID: 100, Sequence: 1}))
	require.NoError(t, write(transactional(104, 0)))
	owners.over[100] = true
	require.ErrorIs(t, write(transactional(104, 1)), ErrFenced)
	require.ErrorIs(t, write(transactional(105, 0)), ErrFenced)
	require.ErrorIs(t, write(Producer{ID: 100, Sequence: 2}), ErrFenced)
	require.NoError(t, end(104, false), "an owner that is over still gets its markers")
	require.Empty(t, p.OpenTransactions())

	// What is kept grows with owners, not with transactions.
	sequence := int32(0)
	for id := ProducerID(200); id < 300; id++ {
		require.NoError(t, write(transactional(id, sequence)))
		require.NoError(t, end(id, id%2 == 0))
	}
	require.LessOrEqual(t, len(p.producers.byID), 1, "the idempotent id")
	require.LessOrEqual(t, len(p.producers.byOwner), 2)
	check := func() {
		t.Helper()
		require.ErrorIs(t, write(transactional(250, 1)), ErrFenced)
		require.ErrorIs(t, end(299, true), ErrFenced)
		require.ErrorIs(t, end(251, true), ErrFenced)
		require.NoError(t, end(299, false))
	}
	check()
	end0 := p.End()
	for _, clean := range []bool{true, false} {
		if !clean {
			mem = mem.Kill()
			l.abandon()
		} else {
			require.NoError(t, l.Close())
		}
		l = mustOpen(t, small(mem))
		l.SetOwners(owners)
		p = mustPartition(t, l, "t")
		check()
		require.Equal(t, end0.Offset, p.End().Offset)
	}
	require.NoError(t, l.Close())
}

// TestAppendWaitsForTheOwner shows that Append waits where Write refuses, and how
// the wait ends.
func TestAppendWaitsForTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := single(t, small(vfs.NewMem()), SyncByOS)
		defer l.Close()
		var known ownersFunc = func(id ProducerID) (ProducerID, bool, bool) { return id, false, false }
		l.SetOwners(known)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := p.Append(ctx, batchOf(transactional(1, 0), 1, "v"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrUnknownOwner)
		done := make(chan error)
		go func() {
			_, err := p.Append(context.Background(), batchOf(transactional(1, 0), 1, "v"))
			done <- err
		}()
		synctest.Wait()
		l.SetOwners(ownersFunc(func(id ProducerID) (ProducerID, bool, bool) { return id, false, true }))
		require.NoError(t, <-done)
		require.Equal(t, Offset(1), p.End().Offset)
	})
}

type ownersFunc func(ProducerID) (ProducerID, bool, bool)

func (f ownersFunc) Owner(id ProducerID) (ProducerID, bool, bool) { return f(id) }

// TestNothingOpensAfterTheOwnerIsOver shows that whoever marks an owner over and
// then ends what is open can be sure that nothing opens afterwards.
func TestNothingOpensAfterTheOwnerIsOver(t *testing.T) {
	l, p := single(t, small(vfs.NewMem()), SyncByOS)
	defer l.Close()
	for round := range 50 {
		over := make(chan struct{})
		l.SetOwners(ownersFunc(func(id ProducerID) (ProducerID, bool, bool) {
			select {
			case <-over:
				return id, true, true
			default:
				return id, false, true
			}
		}))
		id := ProducerID(round + 1)
		done := make(chan error)
		go func() {
			for sequence := int32(0); ; sequence++ {
				if _, err := p.Write(batchOf(transactional(id, sequence), 1, "v")); err != nil {
					done <- err
					return
				}
			}
		}()
		close(over)
		for _, open := range p.OpenTransactions() {
			_, err := p.EndTransaction(open.ID, false)
			require.NoError(t, err)
		}
		require.Empty(t, p.OpenTransactions())
		require.ErrorIs(t, <-done, ErrFenced)
		require.Empty(t, p.OpenTransactions())
	}
}

// TestSnapshotRoundTrip shows that what producers remember comes back from a
// snapshot, for random states.
func TestSnapshotRoundTrip(t *testing.T) {
	const seed = 3
	random := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		s := newProducers(nil, -1)
		end := Offset(0)
		for range random.IntN(60) {
			id := ProducerID(random.IntN(6))
			p := s.byID[id]
			if p != nil && p.open() && random.IntN(3) == 0 {
				s.end(id, verdictOf(random.IntN(2) == 0), int64(end))
				end++
				continue
			}
			b := Batch{Base: 0, Last: Offset(random.IntN(4)), Producer: Producer{
				ID: id, Epoch: int16(random.IntN(2)), Sequence: random.Int32(), Transactional: random.IntN(2) == 0 || p != nil && p.open(),
			}}
			s.apply(&b, end, end+b.Last, int64(end))
			end += b.Last + 1
		}
		for range random.IntN(3) {
			s.noteEnd(ProducerID(random.IntN(100)), ProducerID(100+random.IntN(100)), verdict(random.IntN(3)))
		}
		got, err := decodeSnapshot(s.encodeSnapshot(int64(end)), -1)
		require.NoError(t, err)
		require.Equal(t, s.byOwner, got.byOwner)
		require.Equal(t, len(s.byID), len(got.byID))
		for id, p := range s.byID {
			want := *p
			if !p.open() {
				require.Equal(t, p.transactionFirst, got.byID[id].transactionFirst)
			}
			for i := range recentBatches - p.count {
				want.recent[i] = sentBatch{} // not remembered any more
			}
			gotOne := *got.byID[id]
			for i := range recentBatches - gotOne.count {
				gotOne.recent[i] = sentBatch{}
			}
			require.Equal(t, want, gotOne)
		}
		require.Equal(t, s.firstOpen(end), got.firstOpen(end))
		require.Equal(t, len(s.opened), len(got.opened))
	}
}
