package log

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Record batch, Kafka message format version 2, big-endian. The same bytes are
// on disk, on the wire and in memory.
//
//	at  size  field
//	 0     8  base offset: offset of the first record
//	 8     4  batch length: bytes after this field, so 12 less than the batch
//	12     4  partition leader epoch
//	16     1  magic: 2
//	17     4  crc32c (Castagnoli) of [21, end)
//	21     2  attributes, see below
//	23     4  last offset delta: last offset minus base offset
//	27     8  base timestamp, Unix ms
//	35     8  max timestamp, Unix ms
//	43     8  producer id, -1 without one
//	51     2  producer epoch, -1 without producer id
//	53     4  base sequence: sequence of the first record, -1 without one
//	57     4  record count
//	61        records
//
// Base offset and leader epoch lie outside the checksum so that a leader can
// stamp them into a batch it was sent without reading its records again. A wrong
// length moves the end of what is summed, so the checksum fails; a wrong magic is
// told from a batch of another version by the checksum that still fits.
//
// Attributes:
//
//	bit   meaning
//	0-2   compression of all that follows the header: 0 none, 1 gzip, 2 snappy (as
//	      the Xerial library frames it; a bare block is read, too), 3 lz4 (frames),
//	      4 zstd (frames). The record count and all other fields stay readable
//	3     timestamp type: 0 the records' own, 1 all have the max timestamp, which is
//	      when the log took them
//	4     transactional
//	5     control: the record is a marker, not data
//	6     the base timestamp is a delete horizon (set by a broker's compaction);
//	      the records' times are still relative to it
//	7-15  zero, checked
//
// The record count can be less than last offset delta + 1: compaction takes
// records out and keeps the offsets of the others.
//
// Record. A varint is a zig-zag coded base-128 number, least significant group
// first; lengths of -1 mean absent.
//
//	varint  length: bytes after this field
//	1 byte  attributes: unused
//	varint  time minus base timestamp (64 bits, wraps around)
//	varint  offset minus base offset; grows from record to record
//	varint  key length
//	        key
//	varint  value length
//	        value
//	varint  header count, and for each header
//	  varint  key length, never absent
//	          key
//	  varint  value length
//	          value
//
// The one record of a control batch that ends a transaction has as key
//
//	0     2  version: 0
//	2     2  type: 0 abort, 1 commit
//
// and as value
//
//	0     2  version: 0
//	2     4  coordinator epoch
const (
	atBaseOffset      = 0
	atBatchLength     = 8
	atLeaderEpoch     = 12
	atMagic           = 16
	atChecksum        = 17
	atAttributes      = 21
	atLastOffsetDelta = 23
	atBaseTimestamp   = 27
	atMaxTimestamp    = 35
	atProducerID      = 43
	atProducerEpoch   = 51
	atBaseSequence    = 53
	atRecordCount     = 57

	// batchHeaderBytes is where the records begin.
	batchHeaderBytes = 61
	// lengthExcludes is how much longer a batch is than its length field says.
	lengthExcludes = 12
	// minLegacyLength is the least length field of the message formats before
	// version 2, which have the magic at the same place.
	minLegacyLength = 14
	// minRecordBytes is the least value of a record's length field: six fields
	// of a byte each.
	minRecordBytes = 6

	magicV2 = 2

	attrCompression    = 0x07
	attrLogAppendTime  = 0x08
	attrTransactional  = 0x10
	attrControl        = 0x20
	attrDeleteHorizon  = 0x40
	attrKnown          = attrCompression | attrLogAppendTime | attrTransactional | attrControl | attrDeleteHorizon
	noSequence         = int32(-1)
	noProducerEpoch    = int16(-1)
	maxRecordBytes     = 1 << 30   // of a record's length field, our own limit
	maxBatchTotalBytes = 1<<31 - 1 // so that all lengths and positions fit an int32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batchChecksum sums what the checksum of an encoded batch covers.
func batchChecksum(batch []byte) uint32 {
	return crc32.Checksum(batch[atAttributes:], castagnoli)
}

// verifyChecksum compares the checksum of a whole encoded batch with its content.
func verifyChecksum(batch []byte) error {
	stored, computed := binary.BigEndian.Uint32(batch[atChecksum:]), batchChecksum(batch)
	if stored != computed {
		return fmt.Errorf("%w: checksum is %08x, the content gives %08x", ErrInvalidBatch, stored, computed)
	}
	return nil
}

// stamp writes base offset and leader epoch into an encoded batch. The checksum
// does not cover them and stays right.
func stamp(batch []byte, base Offset, epoch LeaderEpoch) {
	binary.BigEndian.PutUint64(batch[atBaseOffset:], uint64(base))
	binary.BigEndian.PutUint32(batch[atLeaderEpoch:], uint32(epoch))
}

// stampHeader makes header that of b as the log writes it, for a writer that may not
// change the batch itself: with base offset and epoch and, where b has one that its
// bytes do not say, with the append time, which is summed anew.
func stampHeader(header *[batchHeaderBytes]byte, b *Batch, base Offset, epoch LeaderEpoch) {
	copy(header[:], b.Bytes)
	stamp(header[:], base, epoch)
	attributes, maxTime := binary.BigEndian.Uint16(header[atAttributes:]), int64(binary.BigEndian.Uint64(header[atMaxTimestamp:]))
	if b.AppendTime && (attributes&attrLogAppendTime == 0 || maxTime != b.MaxTime) {
		binary.BigEndian.PutUint16(header[atAttributes:], attributes|attrLogAppendTime)
		binary.BigEndian.PutUint64(header[atMaxTimestamp:], uint64(b.MaxTime))
		sum := crc32.Checksum(header[atAttributes:], castagnoli)
		binary.BigEndian.PutUint32(header[atChecksum:], crc32.Update(sum, castagnoli, b.Bytes[batchHeaderBytes:]))
	}
}

// addSequence returns the sequence number n records after seq. Sequence numbers
// are 31 bits: 0 follows the greatest.
func addSequence(seq, n int32) int32 {
	return int32((int64(seq) + int64(n)) & 0x7fffffff)
}
