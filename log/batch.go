package log

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Producer is what a batch says of its writer. The zero value is not a valid
// producer: use NoProducer as ID for batches without sequence numbers. A
// transactional batch needs an id.
type Producer struct {
	ID            ProducerID
	Epoch         int16
	Sequence      int32 // of the first record; -1 without producer id and in control batches
	Transactional bool
}

// Batch is a decoded batch header together with the batch's bytes. Bytes and all
// slices read from it point into the log's mapping and are valid only while the
// reader that returned it says so.
type Batch struct {
	Base, Last        Offset // first and last offset, both included
	Epoch             LeaderEpoch
	BaseTime, MaxTime int64 // Unix ms
	Producer          Producer
	Control           bool        // holds a marker, not data
	AppendTime        bool        // every record has MaxTime, when the log took it
	Compression       Compression // of the records, 0 for none
	Count             int32       // at most Last - Base + 1
	Bytes             []byte      // the whole encoded batch
	First             Offset      // Records skips the records below it, for a reader positioned inside the batch

	unpacker *unpacker // what Records decompresses with; nil makes one of its own
	plain    []byte    // the records decompressed, once they were asked for
}

// ParseBatch decodes the header of the batch at the start of b, checks its bounds
// and its checksum, and returns the batch. What follows it in b is ignored. The
// batch keeps b.
//
// A batch of another format version is ErrVersion, everything else that is wrong
// matches ErrInvalidBatch. The records themselves are decompressed and checked by
// the iterator that walks them.
func ParseBatch(b []byte) (Batch, error) {
	batch, err := frameBatch(b)
	if errors.Is(err, ErrVersion) && verifyChecksum(batch) == nil {
		return Batch{}, fmt.Errorf("%w: magic at byte %d is %d, but the checksum is that of a version %d batch",
			ErrInvalidBatch, atMagic, batch[atMagic], magicV2)
	}
	if errors.Is(err, ErrVersion) {
		err = cmp.Or(checkLegacy(batch), err)
	}
	if err != nil {
		return Batch{}, err
	}
	// First of all: what a damaged batch says of itself is not worth reporting.
	if err := verifyChecksum(batch); err != nil {
		return Batch{}, err
	}
	return decodeHeader(batch)
}

// parseHeader is ParseBatch without the checksum, for scanning batches that were
// checked before. Of bytes that never were (a tail after a crash) any error,
// ErrVersion too, may mean nothing but that they are no batch.
func parseHeader(b []byte) (Batch, error) {
	batch, err := frameBatch(b)
	if err != nil {
		return Batch{}, err
	}
	return decodeHeader(batch)
}

// frameBatch cuts the batch at the start of b by its length field. With
// ErrVersion, and no other error, it still returns the bytes (at least a header).
func frameBatch(b []byte) ([]byte, error) {
	if len(b) < batchHeaderBytes {
		return nil, fmt.Errorf("%w: header is cut off after %d of %d bytes", ErrInvalidBatch, len(b), batchHeaderBytes)
	}
	length := int64(int32(binary.BigEndian.Uint32(b[atBatchLength:])))
	if length < minLegacyLength {
		return nil, fmt.Errorf("%w: batch length at byte %d is %d", ErrInvalidBatch, atBatchLength, length)
	}
	if available := int64(len(b)) - lengthExcludes; length > available {
		return nil, fmt.Errorf("%w: batch length at byte %d is %d, %d bytes follow", ErrInvalidBatch, atBatchLength, length, available)
	}
	size := max(length+lengthExcludes, batchHeaderBytes)
	if magic := b[atMagic]; magic != magicV2 {
		return b[:size:size], fmt.Errorf("%w: magic at byte %d is %d, known is %d", ErrVersion, atMagic, int8(magic), magicV2)
	}
	if length < batchHeaderBytes-lengthExcludes {
		return nil, fmt.Errorf("%w: batch length at byte %d is %d, the header alone has %d",
			ErrInvalidBatch, atBatchLength, length, batchHeaderBytes-lengthExcludes)
	}
	return b[:size:size], nil
}

// decodeHeader reads and checks the fields of a whole encoded batch.
func decodeHeader(b []byte) (Batch, error) {
	_ = b[batchHeaderBytes-1]
	attributes := binary.BigEndian.Uint16(b[atAttributes:])
	batch := Batch{
		Base:     Offset(binary.BigEndian.Uint64(b[atBaseOffset:])),
		Epoch:    LeaderEpoch(binary.BigEndian.Uint32(b[atLeaderEpoch:])),
		BaseTime: int64(binary.BigEndian.Uint64(b[atBaseTimestamp:])),
		MaxTime:  int64(binary.BigEndian.Uint64(b[atMaxTimestamp:])),
		Producer: Producer{
			ID:            ProducerID(binary.BigEndian.Uint64(b[atProducerID:])),
			Epoch:         int16(binary.BigEndian.Uint16(b[atProducerEpoch:])),
			Sequence:      int32(binary.BigEndian.Uint32(b[atBaseSequence:])),
			Transactional: attributes&attrTransactional != 0,
		},
		Control:     attributes&attrControl != 0,
		AppendTime:  attributes&attrLogAppendTime != 0,
		Compression: Compression(attributes & attrCompression),
		Count:       int32(binary.BigEndian.Uint32(b[atRecordCount:])),
		Bytes:       b,
	}
	lastDelta := int32(binary.BigEndian.Uint32(b[atLastOffsetDelta:]))
	batch.First = batch.Base
	batch.Last = batch.Base + Offset(lastDelta)

	switch p := &batch.Producer; {
	case attributes&^attrKnown != 0:
		return Batch{}, fmt.Errorf("%w: attributes at byte %d are %#04x, known bits are %#04x", ErrVersion, atAttributes, attributes, attrKnown)
	case batch.Base < 0:
		return Batch{}, fmt.Errorf("%w: base offset is %d", ErrInvalidBatch, batch.Base)
	case lastDelta < 0 || batch.Base > math.MaxInt64-1-Offset(lastDelta):
		// The offset after the last must exist too: it is the next log end.
		return Batch{}, fmt.Errorf("%w: last offset delta at byte %d is %d, with base offset %d", ErrInvalidBatch, atLastOffsetDelta, lastDelta, batch.Base)
	case batch.Count < 0 || int64(batch.Count) > int64(lastDelta)+1:
		return Batch{}, fmt.Errorf("%w: record count at byte %d is %d, last offset delta is %d", ErrInvalidBatch, atRecordCount, batch.Count, lastDelta)
	case p.ID < NoProducer:
		return Batch{}, fmt.Errorf("%w: producer id at byte %d is %d", ErrInvalidBatch, atProducerID, p.ID)
	case p.ID == NoProducer && p.Transactional:
		return Batch{}, fmt.Errorf("%w: transactional without a producer id", ErrInvalidBatch)
	case p.ID != NoProducer && !batch.Control && p.Sequence < 0:
		return Batch{}, fmt.Errorf("%w: base sequence at byte %d is %d, with producer id %d", ErrInvalidBatch, atBaseSequence, p.Sequence, p.ID)
	case batch.Compression > Zstd:
		return Batch{}, fmt.Errorf("%w: compression type is %d, known are up to %d", ErrVersion, batch.Compression, Zstd)
	case batch.Compression == 0 && int64(batch.Count)*(minRecordBytes+1) > int64(len(b)-batchHeaderBytes):
		return Batch{}, fmt.Errorf("%w: %d bytes cannot hold %d records", ErrInvalidBatch, len(b)-batchHeaderBytes, batch.Count)
	}
	return batch, nil
}

// Records returns an iterator over the records of the batch, from First on.
//
// Those of a compressed batch are decompressed by the first call, as a whole. What
// the iterator gives then points into memory of the Reader that returned the batch,
// and is valid for as long as the batch is; for a batch from ParseBatch it points
// into memory of its own. Records that cannot be decompressed, or would exceed
// Options.MaxDecompressedBytes (ErrTooLarge), are an error of the iterator.
func (b *Batch) Records() RecordIterator {
	plain, err := b.decompressed()
	if err != nil {
		return RecordIterator{err: err}
	}
	return RecordIterator{
		rest:       plain,
		left:       b.Count,
		base:       b.Base,
		first:      b.First,
		last:       b.Last,
		previous:   b.Base - 1,
		baseTime:   b.BaseTime,
		maxTime:    b.MaxTime,
		appendTime: b.AppendTime,
		batchBytes: batchHeaderBytes + len(plain),
		count:      b.Count,
	}
}

// decompressed returns the encoded records. A batch that compaction left empty has
// none, whatever its attributes say.
func (b *Batch) decompressed() ([]byte, error) {
	records := b.Bytes[batchHeaderBytes:]
	switch {
	case b.plain != nil:
		return b.plain, nil
	case b.Compression == 0 || len(records) == 0:
		return records, nil
	}
	u := b.unpacker
	if u == nil {
		u = &unpacker{from: new(decoders)}
	}
	plain, err := u.unpack(b.Compression, records)
	if err != nil {
		return nil, fmt.Errorf("batch at offset %d: %w", b.Base, err)
	}
	b.plain = plain
	return plain, nil
}

// lastSequence is the sequence number of the batch's last record.
func (b *Batch) lastSequence() int32 {
	return addSequence(b.Producer.Sequence, int32(b.Last-b.Base))
}

// checkRecords walks all records, for a batch from somebody who is not trusted
// with what a checksum cannot tell. A limit other than 0 is that of a record, in
// bytes of its fields.
func (b *Batch) checkRecords(limit int64) error {
	whole := *b
	whole.First = b.Base
	it := whole.Records()
	for it.Next() {
		if it.Time > b.MaxTime {
			return fmt.Errorf("%w: record at offset %d has time %d, the batch's max timestamp is %d",
				ErrInvalidBatch, it.Offset, it.Time, b.MaxTime)
		}
		if limit == 0 {
			continue
		}
		if size := payloadBytes(it.Key, it.Value, it.Headers()); size > limit {
			return recordTooLarge(size, limit)
		}
	}
	return it.Err()
}
