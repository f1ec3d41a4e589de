package log

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
)

// Index of aborted transactions (.txnindex), big-endian, 34 bytes an entry. The
// entry is in the segment that holds the abort marker.
//
//	at  size  field
//	 0     2  version: 0
//	 2     8  producer id
//	10     8  first offset of the transaction
//	18     8  last offset: the marker's
//	26     8  last stable offset right after the marker
const (
	txnEntryBytes   = 34
	txnEntryVersion = 0
)

// abortedTransaction is a transaction whose records are hidden from readers of
// committed data.
type abortedTransaction struct {
	id          ProducerID
	first, last Offset // last is the marker's
	lastStable  Offset // first offset undecided right after the marker
}

// abortedTransactions are those of a partition by ascending last. A value is only
// ever appended to, so readers share it.
type abortedTransactions []abortedTransaction

// hides tells whether the batch of id at off belongs to one of them.
func (a abortedTransactions) hides(id ProducerID, off Offset) bool {
	i := sort.Search(len(a), func(i int) bool { return a[i].last > off })
	for ; i < len(a); i++ {
		if a[i].id == id && a[i].first <= off {
			return true
		}
		if a[i].lastStable > off {
			// All below was decided: whatever was aborted later began later.
			return false
		}
	}
	return false
}

// between returns those whose marker is in [from, to).
func (a abortedTransactions) between(from, to Offset) abortedTransactions {
	i := sort.Search(len(a), func(i int) bool { return a[i].last >= from })
	j := sort.Search(len(a), func(i int) bool { return a[i].last >= to })
	return a[i:max(i, j):max(i, j)]
}

// of tells whether a transaction of id is among them. It looks at the newest
// first and is not for hot paths.
func (a abortedTransactions) of(id ProducerID) bool {
	for _, t := range slices.Backward(a) {
		if t.id == id {
			return true
		}
	}
	return false
}

func encodeTxnIndex(aborted abortedTransactions) []byte {
	b := make([]byte, 0, len(aborted)*txnEntryBytes)
	for _, t := range aborted {
		b = binary.BigEndian.AppendUint16(b, txnEntryVersion)
		b = binary.BigEndian.AppendUint64(b, uint64(t.id))
		b = binary.BigEndian.AppendUint64(b, uint64(t.first))
		b = binary.BigEndian.AppendUint64(b, uint64(t.last))
		b = binary.BigEndian.AppendUint64(b, uint64(t.lastStable))
	}
	return b
}

func decodeTxnIndex(b []byte) (abortedTransactions, error) {
	if len(b)%txnEntryBytes != 0 {
		return nil, fmt.Errorf("%d bytes are no whole number of entries", len(b))
	}
	aborted := make(abortedTransactions, 0, len(b)/txnEntryBytes)
	previous := Offset(-1)
	for ; len(b) > 0; b = b[txnEntryBytes:] {
		if version := binary.BigEndian.Uint16(b); version != txnEntryVersion {
			return nil, fmt.Errorf("%w: entry of version %d", ErrVersion, version)
		}
		t := abortedTransaction{
			id:         ProducerID(binary.BigEndian.Uint64(b[2:])),
			first:      Offset(binary.BigEndian.Uint64(b[10:])),
			last:       Offset(binary.BigEndian.Uint64(b[18:])),
			lastStable: Offset(binary.BigEndian.Uint64(b[26:])),
		}
		if t.id < 0 || t.first < 0 || t.first >= t.last || t.last <= previous || t.lastStable < 0 || t.lastStable > t.last+1 {
			return nil, fmt.Errorf("entry %+v is implausible", t)
		}
		previous = t.last
		aborted = append(aborted, t)
	}
	return aborted, nil
}
