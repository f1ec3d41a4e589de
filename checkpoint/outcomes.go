package checkpoint

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/thalweg/thalweg/log"
)

// outcomesKept is how many runs of outcomes are remembered at the least, some 2 MiB of
// them. A run is made of transactions of one owner that ended alike, one after the
// other: an owner that only commits has one, however long it lives.
const outcomesKept = 32 << 10

// outcomeRun says how the transactions [from, to) ended, all of one owner.
type outcomeRun struct {
	from, to  log.ProducerID
	committed bool
	index     int64 // of the last entry that said so
}

// outcomes remember how plain transactions ended, for programs that ask after a restart.
// The protocol itself does not need them: see verdict.
//
// Invariants: the runs of an owner are ascending, not empty, and apart or different.
// There are at most 9/8 of outcomesKept; those that go are the ones that have not
// changed for the longest time.
type outcomes struct {
	runs  map[log.ProducerID][]outcomeRun // by the first id of the owner's block
	count int                             // of all runs
}

func newOutcomes() outcomes { return outcomes{runs: map[log.ProducerID][]outcomeRun{}} }

func (o *outcomes) clone() outcomes {
	c := outcomes{maps.Clone(o.runs), o.count}
	for first, runs := range c.runs {
		c.runs[first] = slices.Clone(runs)
	}
	return c
}

// add notes that [from, to) ended by the entry at index, behind all of their owner that
// had ended before.
func (o *outcomes) add(index int64, from, to log.ProducerID, committed bool) {
	if from >= to {
		return
	}
	first := blockOf(from)
	runs := o.runs[first]
	if last := len(runs) - 1; last >= 0 && runs[last].to == from && runs[last].committed == committed {
		runs[last].to, runs[last].index = to, index
		return
	}
	o.runs[first] = append(runs, outcomeRun{from, to, committed, index})
	o.count++
	if o.count > outcomesKept+outcomesKept/8 {
		o.forget(o.count - outcomesKept)
	}
}

// forget drops n runs, many at a time so that the search for them costs little.
func (o *outcomes) forget(n int) {
	all := make([]outcomeRun, 0, o.count)
	for _, runs := range o.runs {
		all = append(all, runs...)
	}
	older := func(a, b outcomeRun) int { return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.from, b.from)) }
	slices.SortFunc(all, older)
	kept := all[n] // and what follows it
	for first, runs := range o.runs {
		runs = slices.DeleteFunc(runs, func(r outcomeRun) bool { return older(r, kept) < 0 })
		if o.runs[first] = runs; len(runs) == 0 {
			delete(o.runs, first)
		}
	}
	o.count -= n
}

// find returns the run that holds id.
func (o *outcomes) find(id log.ProducerID) (r outcomeRun, ok bool) {
	runs := o.runs[blockOf(id)]
	at, _ := slices.BinarySearchFunc(runs, id, func(r outcomeRun, id log.ProducerID) int { return cmp.Compare(r.to, id+1) })
	if at == len(runs) || id < runs[at].from {
		return outcomeRun{}, false
	}
	return runs[at], true
}

// endTxnOwner ends an owner of plain transactions: what it has not decided is aborted.
func (m *metadata) endTxnOwner(first log.ProducerID) {
	if o, live := m.txnOwners[first]; live {
		m.outcomes.add(m.applied, o.decided+1, first+blockSize, false)
		delete(m.txnOwners, first)
	}
}

// decide notes the verdict of a live owner on its transaction.
func (m *metadata) decide(first, id log.ProducerID, commit bool) {
	o := m.txnOwners[first]
	m.outcomes.add(m.applied, o.decided+1, id, false) // nothing was written with those
	m.outcomes.add(m.applied, id, id+1, commit)
	o.decided, o.committed = id, commit
	m.txnOwners[first] = o
}

// Outcome is what became of a plain transaction.
type Outcome uint8

const (
	OutcomeForgotten Outcome = iota // or it was a checkpoint of a job that is over
	OutcomeOpen
	OutcomeCommitted
	OutcomeAborted
)

// outcome tells what became of a transaction, and by which entry where that is known.
// ok is false for an id that no plain transaction has.
func (m *metadata) outcome(id log.ProducerID) (outcome Outcome, index int64, ok bool) {
	if id < firstBlock || id >= m.nextBlock {
		return 0, -1, false
	}
	first := blockOf(id)
	if _, job := m.owners[first]; job {
		return 0, -1, false
	}
	if r, found := m.outcomes.find(id); found {
		if r.committed {
			return OutcomeCommitted, r.index, true
		}
		return OutcomeAborted, r.index, true
	}
	if o, live := m.txnOwners[first]; live && id > o.decided {
		return OutcomeOpen, -1, true
	}
	return OutcomeForgotten, -1, true
}

// Outcome tells what became of the plain transaction with this id. It is asked of the
// metadata log, and durable there before it is told. An id that no transaction has is
// ErrNoTransaction; where the metadata log has failed nobody knows before it is opened
// again: ErrUnknown.
func (p *Plane) Outcome(ctx context.Context, id log.ProducerID) (Outcome, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	p.stateMu.RLock()
	outcome, index, ok := p.state.outcome(id)
	p.stateMu.RUnlock()
	if !ok {
		return 0, fmt.Errorf("%w: %d is no id of one", ErrNoTransaction, id)
	}
	if err := p.failure(); err != nil {
		return 0, fmt.Errorf("%w: of transaction %d: %w", ErrUnknown, id, err)
	}
	if index >= int64(p.meta.Durable()) {
		if err := p.meta.Sync(ctx); err != nil {
			if ctx.Err() == nil {
				err = p.fail(err)
			}
			return 0, fmt.Errorf("%w: of transaction %d: %w", ErrUnknown, id, err)
		}
	}
	return outcome, nil
}

// appendOutcomes encodes a count, then by first id of an owner: first id, and a count of
// runs; each has the ids since the run before (at first, the first id), ids, whether they
// were committed, and the entry's offset.
func appendOutcomes(b []byte, o outcomes) []byte {
	b = appendUint(b, uint64(len(o.runs)))
	for _, first := range sortedOrdered(o.runs) {
		b = appendUint(appendInt(b, int64(first)), uint64(len(o.runs[first])))
		at := first
		for _, r := range o.runs[first] {
			b = appendUint(appendUint(b, uint64(r.from-at)), uint64(r.to-r.from))
			b = appendInt(appendBool(b, r.committed), r.index)
			at = r.to
		}
	}
	return b
}

// The least sizes of an owner and a run in appendOutcomes.
const (
	minOutcomeOwner = 6
	minOutcomeRun   = 4
)

func (d *decoder) outcomes() outcomes {
	o := newOutcomes()
	n := d.count(minOutcomeOwner)
	if n == 0 {
		d.fail("no outcomes")
	}
	before := firstBlock - 1
	for range n {
		first := log.ProducerID(d.int())
		if first <= before || first >= lastBlock || blockOf(first) != first {
			d.fail("outcomes out of order")
		}
		before = first
		at, runs := first, d.count(minOutcomeRun)
		if runs == 0 {
			d.fail("an owner without outcomes")
		}
		for range runs {
			gap, ids := d.uint(), d.uint()
			left := uint64(first + blockSize - at)
			if gap > left || ids == 0 || ids > left-gap {
				d.fail("outcomes of ids that the owner does not have")
			}
			if d.err != nil {
				return o
			}
			from := at + log.ProducerID(gap)
			at = from + log.ProducerID(ids)
			o.runs[first] = append(o.runs[first], outcomeRun{from, at, d.bool(), d.int()})
			o.count++
		}
	}
	return o
}
