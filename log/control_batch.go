package log

import (
	"encoding/binary"
	"fmt"
)

const (
	markerVersion = 0
	markerAbort   = 0
	markerCommit  = 1

	markerKeyBytes   = 4
	markerValueBytes = 6
)

// marker is the content of a control batch that ends a transaction.
type marker struct {
	commit           bool
	coordinatorEpoch int32 // of whoever decided
}

// encodeMarker encodes the control batch that ends p's transaction into b, which
// it empties first, and returns the batch, valid as after Finish. Control batches
// have no sequence.
func encodeMarker(b *BatchBuilder, timeMs int64, p Producer, m marker) []byte {
	var key [markerKeyBytes]byte
	binary.BigEndian.PutUint16(key[0:], markerVersion)
	binary.BigEndian.PutUint16(key[2:], markerAbort)
	if m.commit {
		binary.BigEndian.PutUint16(key[2:], markerCommit)
	}
	var value [markerValueBytes]byte
	binary.BigEndian.PutUint16(value[0:], markerVersion)
	binary.BigEndian.PutUint32(value[2:], uint32(m.coordinatorEpoch))

	b.Reset()
	b.Add(timeMs, key[:], value[:], nil)
	p.Sequence = noSequence
	return b.finish(b.buf, p, attrTransactional|attrControl)
}

// decodeMarker returns what a control batch says. One that is no end of a
// transaction (brokers have other kinds, in logs of their own) is an error.
// Versions above ours only append fields.
func decodeMarker(b *Batch) (marker, error) {
	if !b.Control || !b.Producer.Transactional || b.Count != 1 {
		return marker{}, fmt.Errorf("%w: not a marker: %d records, control %t, transactional %t",
			ErrInvalidBatch, b.Count, b.Control, b.Producer.Transactional)
	}
	it := b.Records()
	if it.first = b.Base; !it.Next() {
		return marker{}, it.Err()
	}
	if len(it.rest) > 0 {
		return marker{}, fmt.Errorf("%w: %d bytes follow the marker", ErrInvalidBatch, len(it.rest))
	}
	if len(it.Key) < markerKeyBytes || len(it.Value) < markerValueBytes {
		return marker{}, fmt.Errorf("%w: marker with a key of %d and a value of %d bytes", ErrInvalidBatch, len(it.Key), len(it.Value))
	}
	keyVersion := int16(binary.BigEndian.Uint16(it.Key[0:]))
	kind := int16(binary.BigEndian.Uint16(it.Key[2:]))
	valueVersion := int16(binary.BigEndian.Uint16(it.Value[0:]))
	if keyVersion < 0 || valueVersion < 0 {
		return marker{}, fmt.Errorf("%w: marker versions %d and %d", ErrInvalidBatch, keyVersion, valueVersion)
	}
	if kind != markerAbort && kind != markerCommit {
		return marker{}, fmt.Errorf("%w: control record of type %d", ErrInvalidBatch, kind)
	}
	return marker{
		commit:           kind == markerCommit,
		coordinatorEpoch: int32(binary.BigEndian.Uint32(it.Value[2:])),
	}, nil
}
