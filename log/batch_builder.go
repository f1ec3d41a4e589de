package log

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// BatchBuilder encodes records into one record batch (Kafka message format v2).
// It reuses its buffer: steady state allocates nothing. Not for concurrent use.
// The zero value is an empty builder.
type BatchBuilder struct {
	buf      []byte // header, filled in by Finish, and records
	count    int32
	baseTime int64 // of the first record
	maxTime  int64
	largest  int64 // bytes of the largest record, see payloadBytes
	err      error // first record refused; set until Reset

	compressor *Compressor // kept by Reset
	packed     []byte      // header and compressed records
}

// Compress makes Finish compress the records with c, also after Reset. Nil is the
// choice of whoever appends the batch: of the topic, where Partition.Encode is
// asked. The memory that takes is the builder's, and up to as much again as Size.
func (b *BatchBuilder) Compress(c *Compressor) { b.compressor = c }

// Add appends a record. key and value are copied; nil means absent. A record that
// makes the batch exceed what its format can say (a record of about 1 GiB, a batch
// of about 2 GiB) is not added: the builder then keeps the error Err returns until
// Reset.
func (b *BatchBuilder) Add(timeMs int64, key, value []byte, headers []Header) {
	if b.err != nil {
		return
	}
	if len(b.buf) == 0 {
		b.start()
	}
	if b.count == 0 {
		b.baseTime, b.maxTime = timeMs, timeMs
	}
	start := len(b.buf)
	room := recordRoom(key, value, headers)
	if room > maxRecordBytes || int64(start)+room > maxBatchTotalBytes || b.count == math.MaxInt32 {
		b.refuse(room)
		return
	}
	end := start + int(room)
	if end > cap(b.buf) {
		b.buf = slices.Grow(b.buf, int(room))
	}
	buf := b.buf[:end]

	// The length comes first and is known last. Its own size is guessed, which
	// costs half of measuring every field beforehand.
	body := start + varintLen(int64(len(key)+len(value)+minRecordBytes))
	buf[body] = 0 // attributes
	// The difference may wrap around; the reader's sum wraps back.
	at := putVarint(buf, body+1, timeMs-b.baseTime)
	at = putVarint(buf, at, int64(b.count))
	at = putBytes(buf, at, key)
	at = putBytes(buf, at, value)
	at = putVarint(buf, at, int64(len(headers)))
	for i := range headers {
		at = putVarint(buf, at, int64(len(headers[i].Key)))
		at += copy(buf[at:], headers[i].Key)
		at = putBytes(buf, at, headers[i].Value)
	}
	length := int64(at - body)
	if right := start + varintLen(length); right != body {
		copy(buf[right:], buf[body:at])
		at += right - body
	}
	putVarint(buf, start, length)

	b.buf = buf[:at]
	b.count++
	b.maxTime = max(b.maxTime, timeMs)
	b.largest = max(b.largest, payloadBytes(key, value, headers))
}

// Len is the number of records added since Reset.
func (b *BatchBuilder) Len() int { return int(b.count) }

// Size is the encoded size in bytes of what was added, the batch header included,
// before compression.
func (b *BatchBuilder) Size() int { return max(len(b.buf), batchHeaderBytes) }

// SizeWith is what Size would be after Add of this record.
func (b *BatchBuilder) SizeWith(timeMs int64, key, value []byte, headers []Header) int64 {
	timeDelta := timeMs - b.baseTime
	if b.count == 0 {
		timeDelta = 0
	}
	length := recordLength(timeDelta, b.count, key, value, headers)
	return int64(b.Size()) + length + int64(varintLen(length))
}

// Err is why a record was refused, matching ErrTooLarge, or nil.
func (b *BatchBuilder) Err() error { return b.err }

// Reset empties the builder and keeps its buffer.
func (b *BatchBuilder) Reset() {
	*b = BatchBuilder{buf: b.buf[:0], compressor: b.compressor, packed: b.packed}
}

// Finish fills in header and checksum and returns the encoded batch with base
// offset 0 and leader epoch -1. It is valid until the next Add, Finish or Reset.
// Finish may be called again with another producer: the records are not encoded
// anew. An empty builder, or one with an error, has no batch: Finish returns nil.
// Records that compression would not make smaller stay as they are.
func (b *BatchBuilder) Finish(p Producer) []byte { return b.finishWith(p, b.compressor) }

// finishWith is Finish with another compressor, or none.
func (b *BatchBuilder) finishWith(p Producer, c *Compressor) []byte {
	if b.count == 0 || b.err != nil {
		return nil
	}
	var attributes uint16
	if p.Transactional {
		attributes |= attrTransactional
	}
	if c.active() {
		header := slices.Grow(b.packed[:0], batchHeaderBytes)[:batchHeaderBytes]
		b.packed = c.compress(header, b.buf[batchHeaderBytes:])
		if len(b.packed) < len(b.buf) {
			return b.finish(b.packed, p, attributes|uint16(c.codec))
		}
	}
	return b.finish(b.buf, p, attributes)
}

// finish fills in the header in front of encoded records.
func (b *BatchBuilder) finish(batch []byte, p Producer, attributes uint16) []byte {
	if p.ID == NoProducer {
		p.Epoch, p.Sequence = noProducerEpoch, noSequence
	}
	h := batch[:batchHeaderBytes]
	stamp(h, 0, -1)
	binary.BigEndian.PutUint32(h[atBatchLength:], uint32(len(batch)-lengthExcludes))
	h[atMagic] = magicV2
	binary.BigEndian.PutUint16(h[atAttributes:], attributes)
	binary.BigEndian.PutUint32(h[atLastOffsetDelta:], uint32(b.count-1))
	binary.BigEndian.PutUint64(h[atBaseTimestamp:], uint64(b.baseTime))
	binary.BigEndian.PutUint64(h[atMaxTimestamp:], uint64(b.maxTime))
	binary.BigEndian.PutUint64(h[atProducerID:], uint64(p.ID))
	binary.BigEndian.PutUint16(h[atProducerEpoch:], uint16(p.Epoch))
	binary.BigEndian.PutUint32(h[atBaseSequence:], uint32(p.Sequence))
	binary.BigEndian.PutUint32(h[atRecordCount:], uint32(b.count))
	binary.BigEndian.PutUint32(h[atChecksum:], batchChecksum(batch))
	return batch
}

// start makes room for the header.
func (b *BatchBuilder) start() {
	b.buf = slices.Grow(b.buf, batchHeaderBytes)[:batchHeaderBytes]
}

func (b *BatchBuilder) refuse(room int64) {
	b.err = fmt.Errorf("%w: record %d of up to %d bytes, after %d bytes; the format holds records of %d, batches of %d",
		ErrTooLarge, b.count, room, len(b.buf), maxRecordBytes, maxBatchTotalBytes)
}

// payloadBytes is the size of a record as Spec settings count it: the bytes of its
// key, value and headers.
func payloadBytes(key, value []byte, headers []Header) int64 {
	n := int64(len(key)) + int64(len(value))
	for i := range headers {
		n += int64(len(headers[i].Key)) + int64(len(headers[i].Value))
	}
	return n
}

// recordRoom is the most that a record takes with its length field. It may exceed
// the limits but does not overflow.
func recordRoom(key, value []byte, headers []Header) int64 {
	const fixed, perHeader = 1 + 6*binary.MaxVarintLen64, 2 * binary.MaxVarintLen64
	n := fixed + int64(len(key)) + int64(len(value))
	for i := range headers {
		if n > maxRecordBytes {
			break // headers that share memory could still overflow the sum
		}
		n += perHeader + int64(len(headers[i].Key)) + int64(len(headers[i].Value))
	}
	return n
}

// recordLength is the value of a record's length field.
func recordLength(timeDelta int64, offsetDelta int32, key, value []byte, headers []Header) int64 {
	n := int64(1+varintLen(timeDelta)+varintLen(int64(offsetDelta))+varintLen(int64(len(headers)))) +
		bytesLength(key) + bytesLength(value)
	for i := range headers {
		n += int64(varintLen(int64(len(headers[i].Key)))+len(headers[i].Key)) + bytesLength(headers[i].Value)
	}
	return n
}

// bytesLength is the encoded length of a field with its length before it.
func bytesLength(field []byte) int64 {
	return int64(varintLen(int64(len(field))) + len(field)) // of the -1 of nil, too, it is 1
}

func putBytes(b []byte, i int, field []byte) int {
	if field == nil {
		b[i] = 1 // -1, zig-zag coded
		return i + 1
	}
	i = putVarint(b, i, int64(len(field)))
	return i + copy(b[i:], field)
}
