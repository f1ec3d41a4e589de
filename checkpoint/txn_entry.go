package checkpoint

import (
	"fmt"
	"math"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
)

// A plain transaction is the commit of a checkpoint without a job: data first, then
// one entry, then markers. Its owner has a block of ids, as an attempt has, and uses
// them in order, one for each transaction, so that one is undecided at a time.

// txnOwnerBegin begins an owner of plain transactions and asks for its block of ids.
// One that lives under the same name is over with it.
type txnOwnerBegin struct {
	name  string // empty for an owner nobody is to take over from
	nonce uint64 // tells a repetition from another owner
}

// txnOwnerEnd ends an owner: what it has not committed is aborted.
type txnOwnerEnd struct {
	first log.ProducerID // of its block
}

// txnCommit commits a transaction. It is the commit point.
type txnCommit struct {
	id        log.ProducerID
	time      int64                               // Unix ms
	ends      map[log.TopicPartition]log.Position // every partition written to, and the position after the last batch there
	positions []group.Commit                      // of consumer groups, by group and member
}

// txnAbort aborts a transaction.
type txnAbort struct {
	id log.ProducerID
}

func (txnOwnerBegin) kind() entryKind { return kindTxnOwnerBegin }
func (txnOwnerEnd) kind() entryKind   { return kindTxnOwnerEnd }
func (txnCommit) kind() entryKind     { return kindTxnCommit }
func (txnAbort) kind() entryKind      { return kindTxnAbort }

func (e txnOwnerBegin) appendTo(b []byte) []byte {
	return appendUint(appendString(b, e.name), e.nonce)
}

func (e txnOwnerEnd) appendTo(b []byte) []byte { return appendInt(b, int64(e.first)) }

func (e txnCommit) appendTo(b []byte) []byte {
	b = appendEnds(appendInt(appendInt(b, int64(e.id)), e.time), e.ends)
	b = appendUint(b, uint64(len(e.positions)))
	for _, c := range e.positions {
		b = appendCommit(b, c)
	}
	return b
}

func (e txnAbort) appendTo(b []byte) []byte { return appendInt(b, int64(e.id)) }

// minCommit is the least size of a group's commit: group, member, count.
const minCommit = 3

func (d *decoder) positions() (positions []group.Commit) {
	for range d.count(minCommit) {
		positions = append(positions, d.commit())
	}
	return positions
}

// txnOwner is a live owner. Of all its transactions the last decided one is
// remembered here: those before it have ended in every partition. What programs may ask
// for is in outcomes.
type txnOwner struct {
	name      string
	nonce     uint64
	decided   log.ProducerID // the highest id committed or aborted; the one before its block at first
	committed bool           // decided was committed
}

// verdict is that on one of the owner's transactions which lacks a marker somewhere
// and is not among the completed ones.
func (o txnOwner) verdict(id log.ProducerID) verdict {
	switch {
	case id > o.decided:
		return undecided
	case id == o.decided && o.committed:
		return committed
	}
	return aborted
}

// txnOwnerOf returns the live owner of a name.
func (m *metadata) txnOwnerOf(name string) (first log.ProducerID, ok bool) {
	for first, o := range m.txnOwners {
		if o.name == name {
			return first, true
		}
	}
	return 0, false
}

func (m *metadata) txnOwnerBegin(e txnOwnerBegin) result {
	before, taken := log.ProducerID(0), false
	if e.name != "" {
		before, taken = m.txnOwnerOf(e.name)
	}
	if taken && m.txnOwners[before].nonce == e.nonce {
		return result{first: before, repeat: true}
	}
	if m.nextBlock >= lastBlock {
		return result{err: ErrExhausted}
	}
	if taken {
		m.endTxnOwner(before)
	}
	first := m.nextBlock
	m.nextBlock += blockSize
	m.txnOwners[first] = txnOwner{name: e.name, nonce: e.nonce, decided: first - 1}
	return result{first: first}
}

func (m *metadata) txnCommit(index int64, e txnCommit) result {
	if v := m.verdict(e.id); v == committed {
		return result{first: e.id, repeat: true}
	}
	first := blockOf(e.id)
	o, live := m.txnOwners[first]
	if err := undecidedOf(o, live, e.id); err != nil && !m.rules.commitEnded {
		return result{err: err}
	}
	for _, c := range e.positions {
		if err := m.groups.Check(c); err != nil {
			return result{err: err}
		}
	}
	for _, c := range e.positions {
		m.groups.Apply(e.time, c)
	}
	if live {
		m.decide(first, e.id, true)
	}
	if len(e.ends) > 0 {
		m.completed = append(m.completed, completion{index: index, txn: e.id, ends: e.ends})
	}
	return result{first: e.id}
}

func (m *metadata) txnAbort(e txnAbort) result {
	first := blockOf(e.id)
	o, live := m.txnOwners[first]
	if live && e.id == o.decided && !o.committed {
		return result{first: e.id, repeat: true}
	}
	if err := undecidedOf(o, live, e.id); err != nil {
		return result{err: err}
	}
	m.decide(first, e.id, false)
	return result{first: e.id}
}

// undecidedOf is nil for a transaction that its owner may still decide.
func undecidedOf(o txnOwner, live bool, id log.ProducerID) error {
	switch {
	case !live || id < firstBlock:
		return fmt.Errorf("%w: transaction %d is aborted", ErrFenced, id)
	case id <= o.decided:
		return fmt.Errorf("%w: transaction %d was decided before", ErrNoTransaction, id)
	}
	return nil
}

// appendTxnOwners encodes a count, then by first id: first id, name, nonce, decided,
// committed.
func appendTxnOwners(b []byte, owners map[log.ProducerID]txnOwner) []byte {
	b = appendUint(b, uint64(len(owners)))
	for _, first := range sortedOrdered(owners) {
		o := owners[first]
		b = appendUint(appendString(appendInt(b, int64(first)), o.name), o.nonce)
		b = appendBool(appendInt(b, int64(o.decided)), o.committed)
	}
	return b
}

func (d *decoder) txnOwners() map[log.ProducerID]txnOwner {
	n := d.count(5)
	if n == 0 {
		d.fail("no owners of transactions")
	}
	owners := make(map[log.ProducerID]txnOwner, n)
	before := log.ProducerID(math.MinInt64)
	for range n {
		first := log.ProducerID(d.int())
		if first <= before {
			d.fail("owners of transactions out of order")
		}
		before = first
		owners[first] = txnOwner{name: d.string(), nonce: d.uint(), decided: log.ProducerID(d.int()), committed: d.bool()}
	}
	return owners
}
