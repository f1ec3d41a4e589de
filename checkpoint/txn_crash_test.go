package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
)

// txnParts are the partitions that the transactions of the crash test write to.
var txnParts = []log.TopicPartition{part("a", 0), part("a", 1), part("b", 0)}

// txnHistory is what a life of the process was told of its transactions, which are
// numbered: a transaction writes its number, and commits the next one as the position
// of a group.
type txnHistory struct {
	begun   int
	acked   []int // committed for sure
	aborted []int // aborted for sure

	ids map[int]log.ProducerID // of those that were noted before their end
}

func txnSetUp(p *Plane, policy map[string]log.Sync) error {
	for topic, n := range map[string]int{"a": 2, "b": 1} {
		if err := p.Log().Create(topic, log.TopicSpec{Partitions: n, Sync: policy[topic]}); err != nil {
			return err
		}
	}
	return nil
}

// position is that of the group of the crash test behind transaction n.
func position(n int) []group.Commit {
	at := group.Committed{Grant: group.Grant{Partition: group.Partition{Topic: "a"}}}
	at.Position.Offset = int64(n) + 1
	return []group.Commit{{Group: "g", Positions: []group.Committed{at}}}
}

// write writes number n to the partitions that transaction n is about, in two batches
// each.
func (h *txnHistory) write(p *Plane, t *Transactor) error {
	n := h.begun
	h.begun++
	id, err := t.ID()
	if err != nil {
		return err
	}
	if h.ids == nil {
		h.ids = map[int]log.ProducerID{}
	}
	h.ids[n] = id
	var b log.BatchBuilder
	for range 2 {
		for _, tp := range txnPartsOf(n) {
			pt, err := p.Log().Partition(tp)
			if err != nil {
				return err
			}
			b.Add(0, nil, number(n), nil)
			if err := t.Write(pt, &b); err != nil {
				return err
			}
		}
	}
	return nil
}

func txnPartsOf(n int) []log.TopicPartition {
	if n%3 == 0 {
		return txnParts[:2]
	}
	return txnParts
}

// transact runs a transaction to its end.
func (h *txnHistory) transact(p *Plane, t *Transactor, commit bool) error {
	if err := t.Begin(); err != nil {
		return err
	}
	n := h.begun
	err := h.write(p, t)
	if err != nil || !commit {
		h.aborted = append(h.aborted, n)
		return errors.Join(err, t.Abort())
	}
	return h.outcome(n, t.Commit(context.Background(), position(n)))
}

func (h *txnHistory) outcome(n int, err error) error {
	switch {
	case err == nil:
		h.acked = append(h.acked, n)
	case !errors.Is(err, ErrUnknown):
		h.aborted = append(h.aborted, n)
	}
	return err
}

// txnLive is a life of the process with all that transactions can do, until something
// fails.
func txnLive(fs vfs.FS, policy map[string]log.Sync, h *txnHistory) (err error) {
	p, err := openPlane(fs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := txnSetUp(p, policy); err != nil {
		return err
	}
	o := TransactorOptions{Name: "t", Timeout: time.Hour}
	t, err := p.Transactor(context.Background(), o)
	if err != nil {
		return err
	}
	step := func(do func() error) {
		if err == nil {
			err = do()
		}
	}
	transact := func(commit bool) { step(func() error { return h.transact(p, t, commit) }) }
	transact(true)
	transact(false)
	transact(true)
	step(func() error { return p.SyncAll(context.Background()) })
	transact(true)
	// Left open, and fenced by the next instance.
	open := func(end func() error) {
		step(func() error {
			if err := t.Begin(); err != nil {
				return err
			}
			n := h.begun
			h.aborted = append(h.aborted, n)
			if err := h.write(p, t); err != nil {
				return err
			}
			return end()
		})
	}
	again := func() (err error) {
		t, err = p.Transactor(context.Background(), o)
		return err
	}
	open(again)
	transact(true)
	step(func() error { return p.cut(context.Background(), true) })
	// Open for too long.
	open(func() error {
		p.txns.condemn(t, "it was open for too long")
		return p.endTransactor(t)
	})
	step(again)
	transact(true)
	open(func() error { return p.AbortTransaction("t") })
	step(again)
	transact(true)
	open(t.Close)
	step(again)
	transact(true)
	open(func() error { return nil }) // for Close of the plane
	return err
}

// After a stop at any file operation, and a second one during recovery, each
// transaction is there as a whole or not at all, with the position that belongs to it;
// what was acknowledged is there, what was refused is not, and nothing is open. What became
// of each can be asked by its id, and is what its records say.
func TestTransactionsStopAtEveryFileOperation(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d (-crash.seed)", seed)
	every := *crashEvery
	if testing.Short() {
		every *= 6
	}
	for name, policy := range map[string]map[string]log.Sync{
		"by the operating system": {},
		"always":                  {"a": log.SyncAlways, "b": log.SyncAlways},
		"one topic":               {"a": log.SyncAlways},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			require.NoError(t, txnLive(fs, policy, &txnHistory{}))
			total := fs.Ops()
			random := rand.New(rand.NewPCG(seed, uint64(total)))
			runs := 0
			for n := 1 + random.Int64N(every); n <= total; n += every {
				for _, powerCut := range []bool{false, true} {
					runs++
					if err := txnStopAt(n, policy, powerCut, rand.New(rand.NewPCG(seed, uint64(n)))); err != nil {
						t.Fatalf("seed %d, stopped at operation %d of %d, power cut %v: %v", seed, n, total, powerCut, err)
					}
				}
			}
			t.Logf("%d operations, %d runs", total, runs)
		})
	}
}

func txnStopAt(n int64, policy map[string]log.Sync, powerCut bool, random *rand.Rand) error {
	fs := vfs.NewMem()
	fs.StopAt(n)
	h := &txnHistory{}
	_ = txnLive(fs, policy, h)
	after := func() {
		if powerCut {
			fs.WriteBack(random.Uint64())
			fs = fs.Crash(random.Uint64())
		} else {
			fs = fs.Kill()
		}
	}
	after()
	if random.IntN(2) == 0 {
		fs.StopAt(1 + random.Int64N(60))
		if p, err := openPlane(fs); err == nil {
			fs.Stop()
			_ = p.Close()
		}
		after()
	}
	return txnVerify(fs, policy, h, powerCut)
}

// txnVerify opens what a stop left. Where a topic does not wait for the disk a power
// cut may take any part of it, but nothing that was refused comes back.
func txnVerify(fs *vfs.Mem, policy map[string]log.Sync, h *txnHistory, powerCut bool) (err error) {
	p, err := openPlane(fs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := nothingOpen(p); err != nil {
		return err
	}
	if err := txnSetUp(p, policy); err != nil {
		return err
	}
	exact := !powerCut || policy["a"] == log.SyncAlways // every transaction writes to a
	if err := h.check(p, exact); err != nil {
		return err
	}
	t, err := p.Transactor(context.Background(), TransactorOptions{Name: "t", Timeout: time.Hour})
	if err != nil {
		return err
	}
	for _, commit := range []bool{true, false, true} {
		if err := h.transact(p, t, commit); err != nil {
			return err
		}
	}
	return h.check(p, exact)
}

// checkOutcome shows that the metadata log tells what became of transaction n: what its
// records tell, where those are exact, and nothing else than was told before.
func (h *txnHistory) checkOutcome(p *Plane, n int, there, exact bool) error {
	id, noted := h.ids[n]
	if !noted {
		return nil
	}
	got, err := p.Outcome(context.Background(), id)
	switch {
	case err != nil:
		return fmt.Errorf("outcome of transaction %d: %w", n, err)
	case got != OutcomeCommitted && got != OutcomeAborted,
		got == OutcomeCommitted && slices.Contains(h.aborted, n),
		exact && got == OutcomeAborted && slices.Contains(h.acked, n),
		exact && there != (got == OutcomeCommitted):
		return fmt.Errorf("transaction %d has outcome %d; records are there: %v; acknowledged %v, aborted %v", n, got, there, h.acked, h.aborted)
	}
	return nil
}

func (h *txnHistory) check(p *Plane, exact bool) error {
	found := map[log.TopicPartition][]int{}
	for _, tp := range txnParts {
		values, err := readAll(p, tp, log.ReadCommitted, -1)
		if err != nil {
			return err
		}
		found[tp] = values
	}
	newest := -1
	for n := range h.begun {
		records, want := 0, 0
		for _, tp := range txnPartsOf(n) {
			want += 2
			for _, v := range found[tp] {
				if v == n {
					records++
				}
			}
		}
		if err := h.checkOutcome(p, n, records > 0, exact); err != nil {
			return err
		}
		switch {
		case records > 0 && slices.Contains(h.aborted, n):
			return fmt.Errorf("transaction %d was aborted, %d records of it are there", n, records)
		case records > want:
			return fmt.Errorf("transaction %d has %d records, %d are there", n, want, records)
		case !exact:
			continue
		case records != 0 && records != want:
			return fmt.Errorf("transaction %d has %d records, %d are there", n, want, records)
		case records == 0 && slices.Contains(h.acked, n):
			return fmt.Errorf("transaction %d was acknowledged, and is not there", n)
		}
		if records > 0 {
			newest = n
		}
	}
	if !exact {
		return nil
	}
	at := int64(0)
	p.Group("g", func(g *group.Group) {
		if g != nil {
			from, _ := g.Position(group.Partition{Topic: "a"})
			at = from.Offset
		}
	})
	if at != int64(newest)+1 {
		return fmt.Errorf("transaction %d is the newest committed, the position is %d", newest, at)
	}
	return nil
}
