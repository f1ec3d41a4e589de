package checkpoint

import (
	"cmp"
	"slices"

	"github.com/thalweg/thalweg/log"
)

// What a partition's leader does with the metadata it has applied: it refuses
// batches of owners that are over, and ends the transactions that are decided.
// On one node the leader is package log, which asks Plane as its log.Owners.

// admission is a leader's answer to a batch.
type admission uint8

const (
	admit  admission = iota
	refuse           // the owner is over: the batch comes too late for ever
	wait             // the owner is not known yet: the metadata has to catch up
)

// admits answers a batch that carries id.
func (m *metadata) admits(id log.ProducerID) admission {
	_, over, known := m.owner(id)
	switch {
	case !known:
		return wait
	case over && !m.rules.admitEnded:
		return refuse
	}
	return admit
}

// ending is a marker to be written.
type ending struct {
	txn    log.ProducerID
	commit bool
}

// endings tells which of a partition's open transactions to end, and how, in the
// order in which to do it: an owner's ids ascend in the order of the metadata log.
//
// A transaction that nothing has decided stays open. Whoever wants it ended has
// to end its owner first, by an entry.
func (m *metadata) endings(open []log.ProducerID) []ending {
	var ends []ending
	for _, id := range open {
		switch m.verdict(id) {
		case committed:
			ends = append(ends, ending{id, true})
		case aborted:
			ends = append(ends, ending{id, false})
		case undecided:
			if m.rules.abortUndecided {
				ends = append(ends, ending{id, false})
			}
		}
	}
	slices.SortFunc(ends, func(a, b ending) int { return cmp.Compare(a.txn, b.txn) })
	return ends
}
