package checkpoint

import (
	"fmt"

	"github.com/thalweg/thalweg/log"
)

// An entry is one record's value in the metadata log. The record batch's checksum
// covers it.
//
//	size  field
//	 1    format version: entryVersion
//	 1    kind
//	 ...  the fields of the kind, in the order of its type below, encoded as
//	      wire.go says
//
// Entries are facts proposed, not facts: metadata.apply accepts or rejects each
// by what the entries before it say, the same on every replay.
type entry interface {
	kind() entryKind
	appendTo(b []byte) []byte
}

// entryVersion is raised when the meaning or the layout of any entry changes.
const entryVersion = 1

type entryKind uint8

const (
	kindNodeStart entryKind = iota + 1
	kindProducerBegin
	kindProducerEnd
	kindAttemptBegin
	kindAttemptEnd
	kindComplete
	kindRollback
	kindDurable
	kindSnapshot
	kindGroup
	kindNamedProducer
	kindForgetProducer
	kindTxnOwnerBegin
	kindTxnOwnerEnd
	kindTxnCommit
	kindTxnAbort
)

// nodeStart says that the process that wrote all entries before is gone: its
// attempts and its producers are over.
type nodeStart struct {
	unclean bool // it did not close the log: a power cut may have taken what was not durable
}

// producerBegin asks for the id of a plain producer.
type producerBegin struct{}

// producerEnd ends a plain producer.
type producerEnd struct {
	id log.ProducerID
}

// attemptBegin begins an attempt of a job, which ends the one before, and asks for
// its block of ids. It is accepted only as the successor of the present attempt.
type attemptBegin struct {
	job     string
	attempt int64
	nonce   uint64 // tells a repetition from a competitor who proposes the same attempt
}

// attemptEnd ends an attempt without a successor: the job's attempt becomes
// attempt+1, which nobody owns.
type attemptEnd struct {
	job     string
	attempt int64
}

// complete commits a checkpoint. It is the commit point.
type complete struct {
	job     string
	id      ID
	reports map[TaskID]Report                   // of the tasks that moved
	ends    map[log.TopicPartition]log.Position // every partition written to, and the position after the last batch there
}

// rollback makes an older retained checkpoint the newest, because later ones name
// what a power cut has taken. Accepted only before the attempt completes anything.
type rollback struct {
	job     string
	attempt int64
	to      ID
}

// durable says that all data and markers of transactions completed at or below
// upTo, an offset of the metadata log, are known to be on disk.
type durable struct {
	upTo int64
}

// snapshotPart is a part of the encoded state of all entries before it. Parts
// follow one another with nothing between them.
type snapshotPart struct {
	part, parts int
	data        []byte
}

func (nodeStart) kind() entryKind     { return kindNodeStart }
func (producerBegin) kind() entryKind { return kindProducerBegin }
func (producerEnd) kind() entryKind   { return kindProducerEnd }
func (attemptBegin) kind() entryKind  { return kindAttemptBegin }
func (attemptEnd) kind() entryKind    { return kindAttemptEnd }
func (complete) kind() entryKind      { return kindComplete }
func (rollback) kind() entryKind      { return kindRollback }
func (durable) kind() entryKind       { return kindDurable }
func (snapshotPart) kind() entryKind  { return kindSnapshot }

func (e nodeStart) appendTo(b []byte) []byte   { return appendBool(b, e.unclean) }
func (producerBegin) appendTo(b []byte) []byte { return b }
func (e producerEnd) appendTo(b []byte) []byte { return appendInt(b, int64(e.id)) }

func (e attemptBegin) appendTo(b []byte) []byte {
	return appendUint(appendInt(appendString(b, e.job), e.attempt), e.nonce)
}

func (e attemptEnd) appendTo(b []byte) []byte {
	return appendInt(appendString(b, e.job), e.attempt)
}

func (e complete) appendTo(b []byte) []byte {
	return appendEnds(appendReports(appendID(appendString(b, e.job), e.id), e.reports), e.ends)
}

func (e rollback) appendTo(b []byte) []byte {
	return appendID(appendInt(appendString(b, e.job), e.attempt), e.to)
}

func (e durable) appendTo(b []byte) []byte { return appendInt(b, e.upTo) }

func (e snapshotPart) appendTo(b []byte) []byte {
	return appendString(appendInt(appendInt(b, int64(e.part)), int64(e.parts)), e.data)
}

// encodeEntry appends e to b.
func encodeEntry(b []byte, e entry) []byte {
	return e.appendTo(append(b, entryVersion, byte(e.kind())))
}

// decodeEntry is the inverse of encodeEntry. What it returns shares nothing with b
// but the data of a snapshot's part.
func decodeEntry(b []byte) (entry, error) {
	if len(b) < 2 {
		return nil, fmt.Errorf("%w: %d bytes", ErrInvalid, len(b))
	}
	if b[0] != entryVersion {
		return nil, fmt.Errorf("%w: entry version %d, this library knows %d", ErrVersion, b[0], entryVersion)
	}
	d := &decoder{b: b[2:]}
	var e entry
	switch entryKind(b[1]) {
	case kindNodeStart:
		e = nodeStart{d.bool()}
	case kindProducerBegin:
		e = producerBegin{}
	case kindProducerEnd:
		e = producerEnd{log.ProducerID(d.int())}
	case kindAttemptBegin:
		e = attemptBegin{d.string(), d.int(), d.uint()}
	case kindAttemptEnd:
		e = attemptEnd{d.string(), d.int()}
	case kindComplete:
		e = complete{d.string(), d.id(), d.reports(), d.ends()}
	case kindRollback:
		e = rollback{d.string(), d.int(), d.id()}
	case kindDurable:
		e = durable{d.int()}
	case kindGroup:
		e = d.groupEntry()
	case kindNamedProducer:
		e = namedProducer{d.string()}
	case kindForgetProducer:
		e = forgetProducer{d.string()}
	case kindTxnOwnerBegin:
		e = txnOwnerBegin{d.string(), d.uint()}
	case kindTxnOwnerEnd:
		e = txnOwnerEnd{log.ProducerID(d.int())}
	case kindTxnCommit:
		e = txnCommit{log.ProducerID(d.int()), d.int(), d.ends(), d.positions()}
	case kindTxnAbort:
		e = txnAbort{log.ProducerID(d.int())}
	case kindSnapshot:
		e = snapshotPart{int(d.int32()), int(d.int32()), d.bytes()}
	default:
		return nil, fmt.Errorf("%w: kind %d", ErrInvalid, b[1])
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return e, nil
}
