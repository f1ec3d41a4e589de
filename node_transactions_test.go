package thalweg_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

var (
	ledger = topic.New[string, string]("ledger")
	audit  = topic.New[string, string]("audit").Partitions(3)
)

// values are those of what a read to the end gives.
func values[K, V any](t *testing.T, records iter.Seq2[topic.Record[K, V], error]) (all []V) {
	t.Helper()
	for r, err := range records {
		require.NoError(t, err)
		all = append(all, r.Value)
	}
	return all
}

// All that a function sends in a transaction can be read once it is committed, by
// readers of committed data too, and nothing of one that failed or panicked.
func TestTransact(t *testing.T) {
	node, err := thalweg.Open("")
	require.NoError(t, err)
	defer node.Close()
	require.NoError(t, node.Transact(t.Context(), func(tx *topic.Tx) error {
		return errors.Join(tx.Send(ledger, "a", "1"), tx.Send(audit, "a", "booked"), tx.Send(ledger, "b", "2"), tx.Delete(ledger, "a"))
	}))
	no := errors.New("no")
	require.ErrorIs(t, node.Transact(t.Context(), func(tx *topic.Tx) error {
		require.NoError(t, tx.Send(ledger, "a", "3"))
		return no
	}), no)
	require.PanicsWithValue(t, "f", func() {
		_ = node.Transact(t.Context(), func(tx *topic.Tx) error {
			require.NoError(t, tx.Send(ledger, "a", "4"))
			panic("f")
		})
	})
	ended, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, node.Transact(ended, func(tx *topic.Tx) error {
		cancel()
		return tx.Send(ledger, "a", "5")
	}), context.Canceled)
	var kept *topic.Tx
	require.NoError(t, node.Transact(t.Context(), func(tx *topic.Tx) error {
		kept = tx
		return nil
	}))
	require.ErrorIs(t, kept.Send(ledger, "a", "6"), topic.ErrTxEnded)

	require.Equal(t, []string{"1", "2", ""}, values(t, node.ReadToEnd(t.Context(), ledger, topic.Start())))
	require.Equal(t, []string{"booked"}, values(t, node.ReadToEnd(t.Context(), audit, topic.Start())))
	open, err := node.Transactions()
	require.NoError(t, err)
	require.Empty(t, open)

	require.NoError(t, node.Close())
	require.ErrorIs(t, node.Transact(t.Context(), func(*topic.Tx) error { return nil }), thalweg.ErrClosed)
}

// A failed send of a transaction is its end, whether or not the function hides it.
func TestTransactKeepsTheFirstError(t *testing.T) {
	node, err := thalweg.Options{Log: log.Options{MaxBatchBytes: 1 << 16}}.Open("")
	require.NoError(t, err)
	defer node.Close()
	big := string(make([]byte, 1<<17))
	var first error
	err = node.Transact(t.Context(), func(tx *topic.Tx) error {
		require.NoError(t, tx.Send(ledger, "a", "1"))
		first = tx.Send(ledger, "a", big)
		require.Equal(t, first, tx.Send(ledger, "a", "2"))
		return nil
	})
	require.ErrorIs(t, first, log.ErrTooLarge)
	require.ErrorIs(t, err, log.ErrTooLarge)
	require.NotErrorIs(t, err, topic.ErrUnknown)
	err = node.Transact(t.Context(), func(tx *topic.Tx) error { return tx.Send(topic.New[string, string]("no/name"), "a", "1") })
	require.ErrorIs(t, err, log.ErrInvalidName)
	require.Empty(t, values(t, node.ReadToEnd(t.Context(), ledger, topic.Start())))
	require.NoError(t, node.Transact(t.Context(), func(tx *topic.Tx) error { return tx.Send(ledger, "a", "3") }))
	require.Equal(t, []string{"3"}, values(t, node.ReadToEnd(t.Context(), ledger, topic.Start())))
}

// Committed data only, with a producer that dies: the steps of the case one by one, the
// last stable offset after each, and what a committed reader gets. The segment is so
// small that the second transaction begins in another one.
func TestLastStableOffsetAndAProducerThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		clock := func() time.Time { return time.UnixMilli(0).Add(time.Since(start)) }
		wall := func(ms int64) { time.Sleep(time.UnixMilli(ms).Sub(clock())) }
		node, err := thalweg.Options{Log: log.Options{Now: clock}}.Open("")
		require.NoError(t, err)
		defer node.Close()
		c08 := topic.New[string, string]("c08").SegmentBytes(300)
		plain, err := node.Producer(c08)
		require.NoError(t, err)
		reader := topic.Offset(0)
		part, err := node.Log().Partition(log.TopicPartition{Topic: "c08"})
		require.NoError(t, err)
		check := func(stable log.Offset, want ...string) {
			t.Helper()
			synctest.Wait()
			require.Equal(t, stable, part.LastStable())
			var got []string
			for r, err := range node.ReadToEnd(t.Context(), c08, reader) {
				require.NoError(t, err)
				got = append(got, fmt.Sprintf("%s@%d", r.Value, r.Offset))
				reader = topic.Offset(r.Offset + 1)
			}
			require.Equal(t, want, got)
		}
		send := func(v string) {
			t.Helper()
			require.NoError(t, plain.Send(t.Context(), "k", v))
		}
		options := func(name string) topic.TxOptions { return topic.TxOptions{Name: name, Timeout: 10 * time.Second} }
		p1, err := node.TxProducer(t.Context(), options("P1"))
		require.NoError(t, err)
		p2, err := node.TxProducer(t.Context(), options("P2"))
		require.NoError(t, err)
		// What a Tx is sent is written when it is committed; Flush writes it now.
		write := func(tx *topic.Tx, v string) error { return errors.Join(tx.Send(c08, "k", v), tx.Flush()) }

		tx1, err := p1.Begin()
		require.NoError(t, err)
		require.NoError(t, write(tx1, "x1"))
		check(0)
		require.NoError(t, write(tx1, "x2"))
		check(0)
		send("n1")
		check(0)
		require.NoError(t, p1.Commit(t.Context()))
		check(4, "x1@0", "x2@1", "n1@2")

		wall(50_000)
		tx2, err := p2.Begin()
		require.NoError(t, err)
		require.NoError(t, write(tx2, "y1"))
		check(4)
		send("n2")
		check(4)
		wall(59_999)
		check(4)
		open, err := node.Transactions()
		require.NoError(t, err)
		require.Len(t, open, 1)
		require.Equal(t, []any{"P2", false, 9999 * time.Millisecond}, []any{open[0].Owner, open[0].Job, clock().Sub(open[0].Since)})
		require.Equal(t, []log.TopicPartition{{Topic: "c08"}}, open[0].Partitions)
		wall(60_001)
		check(7, "n2@5")
		require.EqualValues(t, 7, part.End().Offset, "exactly one abort marker")

		require.ErrorIs(t, write(tx2, "y2"), topic.ErrFenced)
		check(7)
		err = p2.Commit(t.Context())
		require.ErrorIs(t, err, topic.ErrFenced)
		require.NotErrorIs(t, err, topic.ErrUnknown)
		check(7)
		require.EqualValues(t, 7, part.End().Offset)

		p2, err = node.TxProducer(t.Context(), options("P2"))
		require.NoError(t, err)
		tx2, err = p2.Begin()
		require.NoError(t, err)
		require.NoError(t, write(tx2, "y3"))
		check(7)
		require.NoError(t, p2.Commit(t.Context()))
		check(9, "y3@7")
		require.EqualValues(t, 9, part.End().Offset, "lag 0")

		var everything []string
		for r, err := range node.ReadToEnd(t.Context(), c08.Uncommitted(), topic.Start()) {
			require.NoError(t, err)
			everything = append(everything, fmt.Sprintf("%s@%d", r.Value, r.Offset))
		}
		require.Equal(t, []string{"x1@0", "x2@1", "n1@2", "y1@4", "n2@5", "y3@7"}, everything)
		reader = topic.Offset(4)
		check(9, "n2@5", "y3@7")
	})
}

// A newer instance of a name ends the one before, which can do nothing more, and whose
// open transaction is aborted before the newer one begins.
func TestTxProducerFencesItsPredecessor(t *testing.T) {
	node, err := thalweg.Open("")
	require.NoError(t, err)
	defer node.Close()
	begin := func() (*topic.TxProducer, *topic.Tx) {
		p, err := node.TxProducer(t.Context(), topic.TxOptions{Name: "payments"})
		require.NoError(t, err)
		tx, err := p.Begin()
		require.NoError(t, err)
		return p, tx
	}
	first, old := begin()
	require.NoError(t, old.Send(ledger, "a", "old"))
	require.NoError(t, old.Flush())
	second, tx := begin()
	open, err := node.Transactions()
	require.NoError(t, err)
	require.Empty(t, open, "that of the first is aborted")
	require.NoError(t, tx.Send(ledger, "a", "new"))
	require.NoError(t, old.Send(ledger, "a", "late"), "in memory")
	require.ErrorIs(t, old.Flush(), topic.ErrFenced)
	require.ErrorIs(t, first.Commit(t.Context()), topic.ErrFenced)
	_, err = first.Begin()
	require.ErrorIs(t, err, topic.ErrFenced)
	require.NoError(t, first.Close())
	_, err = second.Begin()
	require.ErrorIs(t, err, topic.ErrTxOpen)
	require.NoError(t, second.Commit(t.Context()))
	require.ErrorIs(t, second.Commit(t.Context()), topic.ErrTxEnded)
	require.NoError(t, second.Abort(), "nothing to abort")
	require.Equal(t, []string{"new"}, values(t, node.ReadToEnd(t.Context(), ledger, topic.Start())))

	// By name an operator ends what hangs.
	tx, err = second.Begin()
	require.NoError(t, err)
	require.NoError(t, tx.Send(ledger, "a", "hangs"))
	require.NoError(t, tx.Flush())
	require.ErrorIs(t, node.AbortTransaction(t.Context(), "nobody"), thalweg.ErrNoTransaction)
	require.NoError(t, node.AbortTransaction(t.Context(), "payments"))
	require.ErrorIs(t, second.Commit(t.Context()), topic.ErrFenced)
	require.ErrorIs(t, node.AbortTransaction(t.Context(), "payments"), thalweg.ErrNoTransaction)
	require.NoError(t, second.Close())

	// So does Close.
	third, tx := begin()
	require.NoError(t, tx.Send(ledger, "a", "unfinished"))
	require.NoError(t, tx.Flush())
	require.NoError(t, third.Close())
	require.NoError(t, third.Close())
	open, err = node.Transactions()
	require.NoError(t, err)
	require.Empty(t, open)
	require.Equal(t, []string{"new"}, values(t, node.ReadToEnd(t.Context(), ledger, topic.Start())))
	_, err = node.TxProducer(t.Context(), topic.TxOptions{Timeout: -1})
	require.ErrorContains(t, err, "must be positive")
}

// A program that died between asking for a commit and hearing of it asks after its
// restart, by the id it noted before.
func TestTransactionOutcome(t *testing.T) {
	fs := vfs.NewMem()
	node, err := openOn(fs)
	require.NoError(t, err)
	noted := map[topic.TxOutcome]topic.TxID{}
	send := func(outcome topic.TxOutcome, end error) func(tx *topic.Tx) error {
		return func(tx *topic.Tx) (err error) {
			noted[outcome], err = tx.ID()
			return errors.Join(err, tx.Send(ledger, "a", outcome.String()), end)
		}
	}
	require.NoError(t, node.Transact(t.Context(), send(topic.TxCommitted, nil)))
	no := errors.New("no")
	require.ErrorIs(t, node.Transact(t.Context(), send(topic.TxAborted, no)), no)
	p, err := node.TxProducer(t.Context(), topic.TxOptions{Name: "loader"})
	require.NoError(t, err)
	tx, err := p.Begin()
	require.NoError(t, err)
	require.NoError(t, send(topic.TxOpen, nil)(tx))
	require.Len(t, noted, 3)
	for want, id := range noted {
		got, err := node.TransactionOutcome(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err = node.TransactionOutcome(t.Context(), 17)
	require.ErrorIs(t, err, thalweg.ErrNoTransaction)

	killed := fs.Kill()
	require.NoError(t, p.Abort())
	_, err = tx.ID()
	require.ErrorIs(t, err, topic.ErrTxEnded)
	require.NoError(t, node.Close())
	_, err = node.TransactionOutcome(t.Context(), noted[topic.TxOpen])
	require.ErrorIs(t, err, thalweg.ErrClosed)
	for range 2 {
		node, err = openOn(killed)
		require.NoError(t, err)
		for was, id := range noted {
			want := was
			if was == topic.TxOpen {
				want = topic.TxAborted
			}
			got, err := node.TransactionOutcome(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		require.Equal(t, []string{"committed"}, values(t, node.ReadToEnd(t.Context(), ledger, topic.Start())))
		require.NoError(t, node.Close())
	}
}

// While many goroutines transact over two topics, and some give up, a reader never
// sees a record of a transaction that was given up, nor part of one that is done.
func TestTransactionsAreAllOrNothing(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	const writers = 4
	each := 60
	if testing.Short() {
		each = 15
	}
	node, err := thalweg.Open("")
	require.NoError(t, err)
	defer node.Close()
	require.NoError(t, node.Create(t.Context(), ledger, audit))
	var mu sync.Mutex
	begun, done, given := map[string]bool{}, map[string]bool{}, map[string]bool{}
	note := func(m map[string]bool, id string) {
		mu.Lock()
		defer mu.Unlock()
		m[id] = true
	}
	const copies = 3 // records of each transaction, in each topic
	count := func(ledger, audit topic.Topic[string, string]) (counts [2]map[string]int, err error) {
		for i, records := range []iter.Seq2[topic.Record[string, string], error]{
			node.ReadToEnd(t.Context(), ledger, topic.Start()), node.ReadToEnd(t.Context(), audit, topic.Start()),
		} {
			counts[i] = map[string]int{}
			for r, err := range records {
				if err != nil {
					return counts, err
				}
				counts[i][r.Value]++
			}
		}
		return counts, nil
	}
	// look reads what is committed and then what is there: a record that can be read is
	// of a transaction that was not given up, and all others of it are in the log.
	look := func() error {
		seen, err := count(ledger, audit)
		if err != nil {
			return err
		}
		there, err := count(ledger.Uncommitted(), audit.Uncommitted())
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range seen {
			for id := range seen[i] {
				if !begun[id] || given[id] {
					return fmt.Errorf("%s was given up, and can be read", id)
				}
				if there[0][id] != copies || there[1][id] != copies {
					return fmt.Errorf("%s can be read, and there are only %d and %d of its records", id, there[0][id], there[1][id])
				}
			}
		}
		return nil
	}
	ctx, stop := context.WithCancel(t.Context())
	var readers, group sync.WaitGroup
	readers.Go(func() {
		for ctx.Err() == nil {
			if err := look(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	giveUp := errors.New("given up")
	for w := range writers {
		rnd := rand.New(rand.NewPCG(seed, uint64(w)))
		group.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d/%d", w, i)
				abort := rnd.IntN(3) == 0
				note(begun, id)
				if abort {
					note(given, id)
				}
				err := node.Transact(t.Context(), func(tx *topic.Tx) error {
					for c := range copies {
						if err := errors.Join(tx.Send(ledger, id, id), tx.Send(audit, fmt.Sprint(id, c), id)); err != nil {
							return err
						}
						if rnd.IntN(3) == 0 {
							if err := tx.Flush(); err != nil {
								return err
							}
						}
					}
					if abort {
						return giveUp
					}
					return nil
				})
				switch {
				case abort && errors.Is(err, giveUp):
				case !abort && err == nil:
					note(done, id)
				default:
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	group.Wait()
	stop()
	readers.Wait()
	require.Len(t, done, writers*each-len(given))
	seen, err := count(ledger, audit)
	require.NoError(t, err)
	for i := range seen {
		require.Len(t, seen[i], len(done))
		for id := range done {
			require.Equal(t, copies, seen[i][id])
		}
	}
}
