package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
)

// txnPlane opens a plane with topics a and b that wait for the disk as sync says.
func txnPlane(t *testing.T, fs vfs.FS, sync log.Sync) *Plane {
	t.Helper()
	p, err := openPlane(fs)
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	require.NoError(t, txnSetUp(p, map[string]log.Sync{"a": sync, "b": sync}))
	return p
}

func (p *Plane) partition(t *testing.T, tp log.TopicPartition) *log.Partition {
	t.Helper()
	pt, err := p.Log().Partition(tp)
	require.NoError(t, err)
	return pt
}

func transactor(t *testing.T, p *Plane, name string) *Transactor {
	t.Helper()
	x, err := p.Transactor(t.Context(), TransactorOptions{Name: name, Timeout: time.Hour})
	require.NoError(t, err)
	return x
}

// putIn writes a number in the open transaction.
func putIn(x *Transactor, pt *log.Partition, n int) error {
	var b log.BatchBuilder
	b.Add(0, nil, number(n), nil)
	return x.Write(pt, &b)
}

// Positions of a group are committed with the transaction; where the group has moved
// on, neither is: the records are aborted with the error of the group.
func TestPositionsAreCheckedByTheCommit(t *testing.T) {
	p := txnPlane(t, vfs.NewMem(), log.SyncByOS)
	a0 := group.Partition{Topic: "a"}
	require.NoError(t, p.ProposeGroup(t.Context(), group.Join{Group: "g", Member: 7, Subscription: group.Subscription{Topics: []string{"a"}}, Session: 1000}))
	require.NoError(t, p.ProposeGroup(t.Context(), group.SetTarget{Group: "g", Epoch: 1, Target: map[group.Partition]group.MemberID{a0: 7}}))
	var epoch int64
	p.Group("g", func(g *group.Group) { epoch = g.Owners[a0].Epoch })
	commit := func(member group.MemberID, epoch, offset int64) group.Commit {
		return group.Commit{Group: "g", Member: member, Positions: []group.Committed{
			{Grant: group.Grant{Partition: a0, Epoch: epoch}, Position: group.Position{Offset: offset, LeaderEpoch: 3, Metadata: "m"}},
		}}
	}
	b := p.partition(t, part("b", 0))
	x := transactor(t, p, "x")
	run := func(n int, c ...group.Commit) error {
		require.NoError(t, x.Begin())
		require.NoError(t, putIn(x, b, n))
		return x.Commit(t.Context(), c)
	}
	require.NoError(t, run(1, commit(7, epoch, 1)))
	require.ErrorIs(t, run(2, commit(7, epoch-1, 2)), group.ErrStale)
	require.ErrorIs(t, run(3, commit(8, epoch, 3)), group.ErrNotMember)
	// One that is refused refuses the others too.
	other := group.Commit{Group: "other", Positions: []group.Committed{{Grant: group.Grant{Partition: a0}, Position: group.Position{Offset: 9}}}}
	require.ErrorIs(t, run(4, other, commit(7, epoch-1, 4)), group.ErrStale)
	p.Group("other", func(g *group.Group) { require.Nil(t, g) })
	require.NoError(t, run(5, other, commit(7, epoch, 5)))
	require.NoError(t, p.ProposeGroup(t.Context(), group.Leave{Group: "g", Member: 7}))
	err := run(6, commit(7, epoch, 6))
	require.ErrorIs(t, err, group.ErrNotMember)
	require.NotErrorIs(t, err, ErrUnknown)
	// A transaction may consist of positions alone.
	require.NoError(t, x.Begin())
	require.NoError(t, x.Commit(t.Context(), []group.Commit{{Group: "other", Positions: []group.Committed{{Grant: group.Grant{Partition: a0}, Position: group.Position{Offset: 10}}}}}))

	got, err := readAll(p, part("b", 0), log.ReadCommitted, -1)
	require.NoError(t, err)
	require.Equal(t, []int{1, 5}, got)
	p.Group("g", func(g *group.Group) {
		require.Equal(t, group.Position{Offset: 5, LeaderEpoch: 3, Metadata: "m"}, g.Positions[a0])
	})
	p.Group("other", func(g *group.Group) { require.EqualValues(t, 10, g.Positions[a0].Offset) })
	require.NoError(t, nothingOpen(p))
}

// A transaction takes its steps in order, and each other one says what to do.
func TestTransactorSteps(t *testing.T) {
	p := txnPlane(t, vfs.NewMem(), log.SyncByOS)
	a := p.partition(t, part("a", 0))
	x := transactor(t, p, "")
	require.Equal(t, "transact-0", x.Name())
	require.ErrorIs(t, putIn(x, a, 1), ErrNoTransaction)
	require.ErrorIs(t, x.Commit(t.Context(), nil), ErrNoTransaction)
	require.NoError(t, x.Abort())
	require.NoError(t, x.Begin())
	require.ErrorIs(t, x.Begin(), ErrNoTransaction)
	before := p.state.applied
	require.NoError(t, x.Commit(t.Context(), nil))
	require.Equal(t, before, p.state.applied, "nothing was done: no entry")

	// A failed write leaves nothing but the abort.
	require.NoError(t, x.Begin())
	require.NoError(t, putIn(x, a, 2))
	var b log.BatchBuilder
	b.Add(0, nil, make([]byte, 64<<10), nil)
	require.ErrorIs(t, x.Write(a, &b), log.ErrTooLarge)
	require.ErrorIs(t, putIn(x, a, 3), ErrNoTransaction)
	require.ErrorIs(t, x.Commit(t.Context(), nil), ErrNoTransaction)
	require.NoError(t, x.Abort())

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, x.Begin())
	require.NoError(t, putIn(x, a, 4))
	err := x.Commit(ended, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrUnknown)
	_, err = p.Transactor(ended, TransactorOptions{Timeout: 1})
	require.ErrorIs(t, err, context.Canceled)
	_, err = p.Transactor(t.Context(), TransactorOptions{})
	require.ErrorContains(t, err, "must be positive")

	require.NoError(t, x.Begin())
	require.NoError(t, putIn(x, a, 5))
	require.NoError(t, x.Commit(t.Context(), nil))
	require.NoError(t, x.Close())
	require.ErrorIs(t, x.Begin(), ErrFenced)
	require.ErrorContains(t, x.Begin(), "it is closed")
	got, err := readAll(p, part("a", 0), log.ReadCommitted, -1)
	require.NoError(t, err)
	require.Equal(t, []int{5}, got)
	require.Empty(t, p.Transactions())
	require.NoError(t, p.Close())
	_, err = p.Transactor(t.Context(), TransactorOptions{Timeout: 1})
	require.ErrorIs(t, err, ErrClosed)
}

// When the metadata log fails under the commit nobody knows, and the next opening
// decides; when it failed before, the transaction is aborted for sure.
func TestCommitWithUnknownOutcome(t *testing.T) {
	fs := vfs.NewMem()
	p := txnPlane(t, fs, log.SyncAlways)
	a := p.partition(t, part("a", 0))
	x, y := transactor(t, p, "x"), transactor(t, p, "y")
	for i, x := range []*Transactor{x, y} {
		require.NoError(t, x.Begin())
		require.NoError(t, putIn(x, a, i+1))
	}
	broken := errors.New("broken disk")
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.Contains(op.Name, metadataPartition.Topic) {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, x.Commit(t.Context(), nil), ErrUnknown)
	err := y.Commit(t.Context(), nil)
	require.ErrorIs(t, err, ErrMetadata)
	require.NotErrorIs(t, err, ErrUnknown)
	require.ErrorIs(t, x.Begin(), ErrFenced)

	killed := fs.Kill()
	fs.Stop()
	_ = p.Close()
	p, err = openPlane(killed)
	require.NoError(t, err)
	defer p.Close()
	got, err := readAll(p, part("a", 0), log.ReadCommitted, -1)
	require.NoError(t, err)
	require.Equal(t, []int{1}, got, "the process was killed, and the entry is there")
	require.NoError(t, nothingOpen(p))
}

// When the disk is full, or broken for a moment, once a transaction is decided, the answer
// is the decision all the same, and its markers are written when there is room, without
// anybody who asks.
func TestMarkersAreWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		p, err := openPlane(fs)
		require.NoError(t, err)
		require.NoError(t, p.Log().Create("a", log.TopicSpec{Partitions: 1, SegmentBytes: 100}))
		a := p.partition(t, part("a", 0))
		x, y := transactor(t, p, "x"), transactor(t, p, "y")
		for i, x := range []*Transactor{x, y} {
			require.NoError(t, x.Begin())
			require.NoError(t, putIn(x, a, i+1))
		}
		full := errors.New("no space left")
		fs.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpCreate && strings.HasSuffix(op.Name, ".log") {
				return full // the next segment
			}
			return nil
		})
		require.NoError(t, x.Commit(t.Context(), nil))
		require.NoError(t, y.Abort())
		require.Len(t, a.OpenTransactions(), 2)
		require.Zero(t, a.LastStable())
		require.NoError(t, p.SyncAll(t.Context()), "it does not forget the commit")
		time.Sleep(time.Minute)
		require.Zero(t, a.LastStable())
		require.NoError(t, x.Begin())
		require.ErrorContains(t, putIn(x, a, 3), "no space left")
		require.NoError(t, x.Abort())

		fs.SetHook(nil)
		time.Sleep(2 * txnPoll)
		require.Empty(t, a.OpenTransactions())
		got, err := readAll(p, part("a", 0), log.ReadCommitted, -1)
		require.NoError(t, err)
		require.Equal(t, []int{1}, got)
		require.NoError(t, x.Begin())
		require.NoError(t, putIn(x, a, 4))
		require.NoError(t, x.Commit(t.Context(), nil))
		require.NoError(t, p.Close())
	})
}

// While the entry of one transaction waits for the disk, another that is aborted in the
// same partition, or a job that starts, writes no marker for the first: a power cut
// could still take the entry.
func TestNoMarkerBeforeTheEntryIsDurable(t *testing.T) {
	fs := vfs.NewMem()
	p := txnPlane(t, fs, log.SyncAlways)
	a := p.partition(t, part("a", 0))
	x, y := transactor(t, p, "x"), transactor(t, p, "y")
	require.NoError(t, x.Begin())
	require.NoError(t, putIn(x, a, 1))
	require.NoError(t, y.Begin())
	require.NoError(t, putIn(y, a, 2))
	require.NoError(t, a.Sync(t.Context()))

	waiting, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.Contains(op.Name, metadataPartition.Topic) {
			once.Do(func() { close(waiting) })
			<-release
		}
		return nil
	})
	done := make(chan error)
	go func() { done <- x.Commit(t.Context(), nil) }()
	<-waiting
	require.NoError(t, y.Abort())
	require.NoError(t, p.settle(a, "some job"))
	open := a.OpenTransactions()
	require.Len(t, open, 1)
	require.Equal(t, x.first, open[0].ID)
	close(release)
	require.NoError(t, <-done)
	require.NoError(t, nothingOpen(p))
}

// Several instances of one name begin, write, commit and are fenced at once, while
// others abort them by name. Of what anybody was told is committed all is there, once,
// in every partition, and of the rest nothing that was refused.
func TestFencingRaces(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	p := txnPlane(t, vfs.NewMem(), log.SyncByOS)
	parts := []*log.Partition{p.partition(t, txnParts[0]), p.partition(t, txnParts[1]), p.partition(t, txnParts[2])}
	var mu sync.Mutex
	acked, refused := map[int]bool{}, map[int]bool{}
	fencings := 0
	var group sync.WaitGroup
	for g := range 4 {
		rnd := rand.New(rand.NewPCG(seed, uint64(g)))
		group.Go(func() {
			for i := range rounds {
				x, err := p.Transactor(t.Context(), TransactorOptions{Name: "same", Timeout: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				for j := range 5 {
					n := g*10000 + i*10 + j
					err := x.Begin()
					for _, pt := range parts {
						if err == nil {
							err = putIn(x, pt, n)
						}
					}
					if err == nil {
						err = x.Commit(t.Context(), nil)
					}
					mu.Lock()
					switch {
					case err == nil:
						acked[n] = true
					case errors.Is(err, ErrFenced) && !errors.Is(err, ErrUnknown):
						refused[n] = true
						fencings++
					default:
						t.Errorf("%d: %v", n, err)
					}
					mu.Unlock()
					if rnd.IntN(20) == 0 {
						if err := p.AbortTransaction("same"); err != nil && !errors.Is(err, ErrNoTransaction) {
							t.Error(err)
						}
					}
				}
				if rnd.IntN(2) == 0 {
					if err := x.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	require.NoError(t, transactor(t, p, "same").Close())
	require.NoError(t, nothingOpen(p))
	require.Empty(t, p.Transactions())
	for _, tp := range txnParts {
		values, err := readAll(p, tp, log.ReadCommitted, -1)
		require.NoError(t, err)
		seen := map[int]bool{}
		for _, n := range values {
			require.False(t, seen[n], "%d is there twice", n)
			require.False(t, refused[n], "%d was refused, and is there", n)
			seen[n] = true
		}
		require.Equal(t, len(acked), len(seen), "in %v", tp)
	}
	require.Empty(t, p.txns.byID)
	require.Empty(t, p.state.txnOwners)
	t.Logf("%d committed, %d refused", len(acked), fencings)
}

// The oldest open transaction is first, with its owner; one that came with a partition
// from elsewhere can be aborted too.
func TestTransactionsTellTheirOwners(t *testing.T) {
	fs := vfs.NewMem()
	p := txnPlane(t, fs, log.SyncByOS)
	a, b := p.partition(t, part("a", 1)), p.partition(t, part("b", 0))
	x, y := transactor(t, p, "x"), transactor(t, p, "")
	require.NoError(t, y.Begin())
	require.NoError(t, putIn(y, b, 1))
	require.NoError(t, x.Begin())
	require.NoError(t, putIn(x, b, 2))
	require.NoError(t, putIn(x, a, 2))
	open := p.Transactions()
	require.Len(t, open, 2)
	byOwner := map[string]OpenTransaction{}
	for _, o := range open {
		byOwner[o.Owner] = o
	}
	require.Equal(t, []log.TopicPartition{part("a", 1), part("b", 0)}, byOwner["x"].Partitions)
	require.Equal(t, x.first, byOwner["x"].ID)
	require.Equal(t, []log.TopicPartition{part("b", 0)}, byOwner["transact-1"].Partitions)
	require.ErrorIs(t, p.AbortTransaction("z"), ErrNoTransaction)
	require.NoError(t, p.AbortTransaction("transact-1"))
	require.NoError(t, p.AbortTransaction("x"))
	require.ErrorIs(t, x.Commit(t.Context(), nil), ErrFenced)
	require.ErrorContains(t, y.Abort(), "aborted by name")
	require.NoError(t, nothingOpen(p))
}

// Entries of transactions are accepted while their owner lives, in the order of their
// ids, and repeated with the same success.
func TestApplyOfTransactions(t *testing.T) {
	l := newMetaLog()
	x := l.apply(txnOwnerBegin{"x", 1})
	require.NoError(t, x.err)
	require.Equal(t, result{first: x.first, repeat: true}, l.apply(txnOwnerBegin{"x", 1}))
	c := txnCommit{id: x.first, ends: ends(part("a", 0))}
	require.NoError(t, l.apply(c).err)
	require.True(t, l.apply(c).repeat)
	require.ErrorIs(t, l.apply(txnAbort{x.first}).err, ErrNoTransaction)
	require.NoError(t, l.apply(txnAbort{x.first + 1}).err)
	require.True(t, l.apply(txnAbort{x.first + 1}).repeat)
	require.ErrorIs(t, l.apply(txnCommit{id: x.first + 1}).err, ErrNoTransaction)
	require.True(t, l.apply(c).repeat, "its markers are not known to be durable")
	require.Equal(t, []verdict{committed, aborted, undecided}, []verdict{l.m.verdict(x.first), l.m.verdict(x.first + 1), l.m.verdict(x.first + 2)})
	y := l.apply(txnOwnerBegin{"x", 2})
	require.Equal(t, x.first+blockSize, y.first)
	require.Equal(t, aborted, l.m.verdict(x.first+2))
	require.ErrorIs(t, l.apply(txnCommit{id: x.first + 2}).err, ErrFenced)
	require.True(t, l.apply(c).repeat, "also when its owner is over")
	require.ErrorIs(t, l.apply(txnCommit{id: 17}).err, ErrFenced)
	l.apply(durable{l.n})
	require.Empty(t, l.m.completed)
	require.Len(t, l.m.txnOwners, 1, "state grows with living owners only")
	require.NoError(t, l.apply(txnCommit{id: y.first, ends: ends(part("a", 0))}).err)
	l.apply(durable{l.n})
	require.Equal(t, committed, l.m.verdict(y.first), "the last of a living owner is remembered")
	l.apply(nodeStart{})
	require.Empty(t, l.m.txnOwners)
}

// txnEntries are entries of every kind of transactions.
func txnEntries() []entry {
	at := group.Committed{Grant: group.Grant{Partition: group.Partition{Topic: "a"}, Epoch: 3}, Position: group.Position{Offset: 50, LeaderEpoch: 2, Metadata: "m"}}
	first := firstBlock + 64*blockSize
	return []entry{
		txnOwnerBegin{"x", 1 << 63}, txnOwnerBegin{"", 2}, txnOwnerBegin{"y", 3}, txnOwnerEnd{first},
		txnCommit{first, 1000, ends(part("a", 0), part("b", 1)), []group.Commit{{Group: "h", Positions: []group.Committed{at}}, {Group: "i", Member: 0}}},
		txnCommit{first + 1, 1001, map[log.TopicPartition]log.Position{}, nil}, txnAbort{first + 2},
	}
}

// The bytes of transactions are part of the format.
func TestFormatOfTransactionsStaysAsItIs(t *testing.T) {
	var got strings.Builder
	l := newMetaLog()
	for _, e := range txnEntries() {
		b := encodeEntry(nil, e)
		again, err := decodeEntry(b)
		require.NoError(t, err)
		require.Equal(t, e, again)
		fmt.Fprintf(&got, "%x\n", b)
		for n := range b {
			_, err := decodeEntry(b[:n])
			require.Error(t, err, "%+v cut to %d bytes", e, n)
		}
	}
	l.apply(txnOwnerBegin{"x", 1 << 63})
	l.apply(txnOwnerBegin{"", 2})
	l.apply(txnCommit{id: firstBlock, ends: ends(part("a", 0))})
	l.apply(txnAbort{firstBlock + blockSize})
	b := encodeSnapshot(nil, l.m)
	fmt.Fprintf(&got, "snapshot %x\n", b)
	golden(t, "testdata/format/transactions.v1.hex", []byte(got.String()))
	again, err := decodeSnapshot(b, 5)
	require.NoError(t, err)
	require.Equal(t, l.m.txnOwners, again.txnOwners)
	require.Equal(t, l.m.completed, again.completed)
	require.Equal(t, l.m.outcomes, again.outcomes)

	// A snapshot of before there were outcomes opens, and what had ended then is forgotten.
	before, err := decodeSnapshot(sealed(b[:len(b)-4-len("\x04\x1b")-0x1b]), 5)
	require.NoError(t, err)
	require.Equal(t, l.m.txnOwners, before.txnOwners)
	before.apply(6, nodeStart{})
	for id, want := range map[log.ProducerID]Outcome{firstBlock: OutcomeForgotten, firstBlock + 1: OutcomeAborted, firstBlock + blockSize: OutcomeForgotten} {
		got, _, ok := before.outcome(id)
		require.True(t, ok)
		require.Equal(t, want, got, "id %d", id)
	}
}
