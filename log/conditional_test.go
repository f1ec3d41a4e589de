package log

import (
	"errors"
	"io"
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// A batch with a condition is written at the end the condition has seen, or not at
// all: then its numbers are free. A repetition is answered without asking.
func TestWriteIf(t *testing.T) {
	l, p := single(t, small(vfs.NewMem()), SyncByOS)
	defer l.Close()
	no := errors.New("no")
	var seen []Offset
	holds := func(err error) func(Tail) error {
		return func(t Tail) error {
			seen = append(seen, t.End())
			return err
		}
	}
	first := batchOf(Producer{ID: 5, Sequence: 0}, 1, "a", "b")
	_, err := p.WriteIf(first, holds(no))
	require.Equal(t, no, err)
	require.EqualValues(t, 0, p.End().Offset)
	_, ok := p.ProducerState(5)
	require.False(t, ok)
	got, err := p.WriteIf(first, holds(nil))
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Last)
	got, err = p.WriteIf(first, holds(no))
	require.NoError(t, err)
	require.True(t, got.Duplicate)
	_, err = p.WriteIf(batchOf(Producer{ID: 5, Sequence: 3}, 1, "c"), holds(nil))
	require.ErrorIs(t, err, ErrOutOfOrder)
	require.Equal(t, []Offset{0, 0}, seen)
	_, err = p.WriteIf([]byte("no batch"), holds(nil))
	require.ErrorIs(t, err, ErrInvalidBatch)
	state, ok := p.ProducerState(5)
	require.True(t, ok)
	require.Equal(t, ProducerState{Next: 2, Recent: []SentBatch{{Sequence: 0, Base: 0, Count: 2}}}, state)
}

// While it holds the end still, a condition sees all that was appended, acknowledged or
// not, and what became of each transaction.
func TestTail(t *testing.T) {
	fs := vfs.NewMem()
	l, p := single(t, small(fs), SyncAlways)
	defer l.Close()
	stuck := make(chan struct{})
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && path.Ext(op.Name) == logSuffix {
			<-stuck
		}
		return nil
	})
	defer close(stuck)
	write := func(id ProducerID, value string) {
		_, err := p.Write(batchOf(Producer{ID: id, Transactional: id != NoProducer}, 1, value))
		require.NoError(t, err)
	}
	end := func(id ProducerID, commit bool) {
		_, err := p.EndTransaction(id, commit)
		require.NoError(t, err)
	}
	write(7, "committed")
	end(7, true)
	write(8, "aborted")
	end(8, false)
	write(9, "open")
	write(NoProducer, "plain")
	require.Zero(t, p.HighWatermark())

	type outcome struct{ open, aborted bool }
	found, seen := map[string]outcome{}, Offset(0)
	_, err := p.WriteIf(batchOf(Producer{ID: NoProducer}, 1, "x"), func(tail Tail) error {
		r := p.Reader(0, ReadAppended)
		defer r.Close()
		for {
			b, err := r.Next()
			if err == io.EOF {
				seen = tail.End()
				return nil
			}
			if err != nil {
				return err
			}
			for it := b.Records(); it.Next(); {
				open, aborted := tail.Transaction(b.Producer.ID, b.Base)
				found[string(it.Value)] = outcome{open, aborted}
			}
		}
	})
	require.NoError(t, err)
	require.EqualValues(t, 6, seen)
	require.Equal(t, map[string]outcome{"committed": {}, "open": {open: true}, "plain": {}}, found)
	_, err = p.WriteIf(batchOf(Producer{ID: NoProducer}, 1, "x"), func(tail Tail) error {
		open, aborted := tail.Transaction(8, 2)
		found["aborted"] = outcome{open, aborted}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, outcome{aborted: true}, found["aborted"])
}
