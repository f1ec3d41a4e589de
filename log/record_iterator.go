package log

import (
	"fmt"
	"math"
)

// RecordIterator walks the records of a batch without allocating (records that
// have headers allocate when Headers is called). Use:
//
//	it := batch.Records()
//	for it.Next() {
//		... it.Offset, it.Time, it.Key, it.Value
//	}
//	if it.Err() != nil { ... }
//
// Key and Value point into the batch.
type RecordIterator struct {
	Offset     Offset
	Time       int64  // Unix ms
	Key, Value []byte // nil when absent

	headers     []byte // of the present record, encoded and checked
	headerCount int
	rest        []byte // records not yet decoded
	left        int32  // their number

	base, first, last Offset
	previous          Offset // of the record decoded last; offsets grow
	baseTime, maxTime int64
	appendTime        bool // every record has maxTime
	batchBytes        int  // for the positions in errors
	count             int32
	err               error
}

// Next moves to the next record and tells whether there is one. Without one, Err
// tells the end of the batch from a fault in it.
func (it *RecordIterator) Next() bool {
	for it.left > 0 {
		length, start := readVarint(it.rest, 0)
		if start < 0 || length < minRecordBytes || length > int64(len(it.rest)-start) {
			return it.fail("length")
		}
		end := start + int(length)
		record := it.rest[start:end:end]

		// record[0] holds the attributes, of which none is in use.
		timeDelta, at := readVarint(record, 1)
		offsetDelta, at := readVarint(record, at)
		// Twice readBytes, written out: the calls cost an eighth of the time.
		keyBytes, at := readVarint(record, at)
		if at < 0 || keyBytes < -1 || keyBytes > int64(len(record)-at) {
			return it.fail("time, offset or key")
		}
		var key, value []byte
		if keyBytes >= 0 {
			key = record[at : at+int(keyBytes) : at+int(keyBytes)]
			at += int(keyBytes)
		}
		valueBytes, at := readVarint(record, at)
		if at < 0 || valueBytes < -1 || valueBytes > int64(len(record)-at) {
			return it.fail("value")
		}
		if valueBytes >= 0 {
			value = record[at : at+int(valueBytes) : at+int(valueBytes)]
			at += int(valueBytes)
		}
		headerCount, at := readVarint(record, at)
		if at < 0 || (headerCount != 0 || at != len(record)) && !validHeaders(record[at:], headerCount) {
			return it.fail("headers")
		}
		// The first comparison keeps the sum from overflowing.
		if uint64(offsetDelta) > uint64(it.last-it.base) || it.base+Offset(offsetDelta) <= it.previous {
			return it.fail("offset")
		}

		it.previous = it.base + Offset(offsetDelta)
		it.rest = it.rest[end:]
		it.left--
		if it.previous < it.first {
			continue
		}
		it.Offset = it.previous
		it.Time = it.baseTime + timeDelta
		if it.appendTime {
			it.Time = it.maxTime
		}
		it.Key, it.Value = key, value
		it.headers, it.headerCount = record[at:], int(headerCount)
		return true
	}
	if len(it.rest) > 0 && it.err == nil {
		it.err = fmt.Errorf("%w: %d bytes follow the last of %d records", ErrInvalidBatch, len(it.rest), it.count)
	}
	it.clear()
	return false
}

// Err is the first fault met in the batch's records; Next has returned false.
func (it *RecordIterator) Err() error { return it.err }

// HasHeaders tells whether the present record has headers.
func (it *RecordIterator) HasHeaders() bool { return it.headerCount > 0 }

// Headers decodes the headers of the present record. Values point into the batch.
func (it *RecordIterator) Headers() []Header {
	if it.headerCount == 0 {
		return nil
	}
	// The count was checked against the bytes there are.
	headers := make([]Header, 0, it.headerCount)
	for at := 0; len(headers) < it.headerCount; {
		var key, value []byte
		key, at, _ = readBytes(it.headers, at)
		value, at, _ = readBytes(it.headers, at)
		headers = append(headers, Header{Key: string(key), Value: value})
	}
	return headers
}

// fail ends the iteration at the record after it.previous.
func (it *RecordIterator) fail(field string) bool {
	it.err = fmt.Errorf("%w: record %d of %d at byte %d has a bad %s",
		ErrInvalidBatch, it.count-it.left, it.count, it.batchBytes-len(it.rest), field)
	it.clear()
	return false
}

// clear makes every later Next return false, and leaves no record behind.
func (it *RecordIterator) clear() {
	it.left, it.rest = 0, nil
	it.Key, it.Value = nil, nil
	it.headers, it.headerCount = nil, 0
}

// readBytes reads a length and as many bytes at b[i:]. A length of -1 gives nil.
// A negative i is a failure handed on, as in readVarint.
func readBytes(b []byte, i int) (field []byte, next int, ok bool) {
	n, i := readVarint(b, i)
	if i < 0 || n < -1 || n > int64(len(b)-i) {
		return nil, -1, false
	}
	if n < 0 {
		return nil, i, true
	}
	end := i + int(n)
	return b[i:end:end], end, true
}

// validHeaders tells whether b is exactly count encoded headers.
func validHeaders(b []byte, count int64) bool {
	if count < 0 || count > math.MaxInt32 {
		return false
	}
	at := 0
	for ; count > 0; count-- {
		key, next, ok := readBytes(b, at)
		if !ok || key == nil {
			return false
		}
		if _, at, ok = readBytes(b, next); !ok {
			return false
		}
	}
	return at == len(b)
}
