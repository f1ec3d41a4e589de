package log

import (
	"encoding/binary"
	"math"
	"sort"
)

// compactionFilter decides, batch by batch in the order of their offsets, what a
// pass of compaction keeps. It does no I/O.
//
// A batch keeps its offsets, first and last, and its sequence whatever is taken out
// of it. What stays of a record:
//
//	of an aborted transaction                 nothing
//	the map has a newer one of its key        nothing
//	a tombstone whose delete horizon is over  nothing
//	anything else                             all
//
// and of a batch with no record left: a producer's last batch stays without
// records, since its sequence is there; so does, without its producer, the last
// batch of a segment, which has to end where it ended, and the last one below end;
// others go.
//
// The delete horizon is the time until which the tombstones of a batch stay. The
// first pass that meets them has removed what they delete, and writes it down in
// the batch. A marker gets one in the first pass that leaves no batch of its
// transaction.
type compactionFilter struct {
	end       Offset // below it all is decided, and keys has the newest records
	keys      *keyMap
	aborted   abortedTransactions
	lastOf    map[ProducerID]Offset // last offset of the last batch of each living producer
	now       int64                 // Unix ms
	retention int64                 // of tombstones and markers, ms
	limit     Offset                // tombstones and markers from here on stay

	unpacker   *unpacker
	compressor func(Compression) *Compressor

	open map[ProducerID]struct{} // transactions with a batch kept and no marker so far

	// Results.
	horizon  Offset // above the highest tombstone or marker removed
	settleAt int64  // the latest delete horizon of what stays
	kept     int64  // records
	removed  int64
	aborts   abortedTransactions // those whose marker was kept since aborts was emptied

	plain  []byte    // encoded records of the present batch
	hashes []keyHash // of their keys, where there is one to look for
	spans  []span    // of them
	buf    []byte
	packed []byte
}

// span is a run of records in a batch, by bytes.
type span struct{ from, to int }

// next returns what stays of b: its own bytes when it stays as it is, others, valid
// until the next call, or none. last says that b is the last batch of its segment.
func (f *compactionFilter) next(b *Batch, last bool) ([]byte, error) {
	last = last || b.Last+1 == f.end // where the log may be cut
	if b.Control && b.Count > 0 {
		return f.marker(b, last)
	}
	keep, err := f.records(b)
	switch {
	case err != nil:
		return nil, err
	case keep.count == 0:
		return f.gone(b, last), nil
	}
	f.noteKept(b)
	if keep.tombstones && b.Last < f.end && !b.hasDeleteHorizon() {
		return f.stamped(b, keep), nil
	}
	if keep.tombstones && b.hasDeleteHorizon() {
		f.pending(b.BaseTime)
	}
	if keep.count == b.Count {
		return b.Bytes, nil
	}
	return f.without(b, keep), nil
}

func (f *compactionFilter) noteKept(b *Batch) {
	if b.Producer.Transactional {
		f.open[b.Producer.ID] = struct{}{}
	}
}

// pending notes that something stays until at.
func (f *compactionFilter) pending(at int64) {
	if at > f.now { // what is over and stays is held back by the limit, not by time
		f.settleAt = max(f.settleAt, at)
	}
}

func (f *compactionFilter) isOver(b *Batch) bool {
	return b.hasDeleteHorizon() && f.now >= b.BaseTime
}

// marker decides about a control batch.
func (f *compactionFilter) marker(b *Batch, last bool) ([]byte, error) {
	_, remains := f.open[b.Producer.ID]
	delete(f.open, b.Producer.ID)
	isEnd := b.Producer.Transactional && b.Last < f.end
	switch {
	case isEnd && !remains && f.isOver(b) && b.Last < f.limit:
		f.removed += int64(b.Count)
		f.horizon = max(f.horizon, b.Last+1)
		return f.gone(b, last), nil
	case isEnd && !remains && !b.hasDeleteHorizon():
		f.keptMarker(b)
		if err := f.unpack(b); err != nil {
			return nil, err
		}
		f.spans = append(f.spans[:0], span{0, len(f.plain)})
		return f.stamped(b, keptRecords{count: b.Count, maxTime: b.MaxTime}), nil
	}
	f.keptMarker(b)
	if b.hasDeleteHorizon() {
		f.pending(b.BaseTime)
	}
	return b.Bytes, nil
}

func (f *compactionFilter) keptMarker(b *Batch) {
	f.kept += int64(b.Count)
	i := sort.Search(len(f.aborted), func(i int) bool { return f.aborted[i].last >= b.Last })
	if i < len(f.aborted) && f.aborted[i].last == b.Last {
		f.aborts = append(f.aborts, f.aborted[i])
	}
}

// keptRecords describes the records in spans.
type keptRecords struct {
	count      int32
	maxTime    int64
	tombstones bool
}

// records finds the records of b that stay.
func (f *compactionFilter) records(b *Batch) (keep keptRecords, err error) {
	f.spans = f.spans[:0]
	if b.Producer.Transactional && b.Base < f.end && f.aborted.hides(b.Producer.ID, b.Base) {
		f.removed += int64(b.Count)
		return keep, nil
	}
	keep.maxTime = math.MinInt64
	over := f.isOver(b)
	if err := f.unpack(b); err != nil {
		return keep, err
	}
	b.First = b.Base
	f.hashKeys(b)
	it := b.Records()
	size, hashed := len(f.plain), 0
	for from := 0; it.Next(); from = size - len(it.rest) {
		isTombstone, superseded := it.Value == nil && it.Key != nil, false
		if f.looksFor(it.Key, it.Offset) {
			if hashed%warmBatch == 0 {
				f.keys.warm(f.hashes[hashed:])
			}
			superseded = f.keys.newest(f.hashes[hashed]) > it.Offset
			hashed++
		}
		switch {
		case superseded:
			f.removed++
			continue
		case isTombstone && over && it.Offset < f.limit:
			f.removed++
			f.horizon = max(f.horizon, it.Offset+1)
			continue
		}
		to := size - len(it.rest)
		if n := len(f.spans); n > 0 && f.spans[n-1].to == from {
			f.spans[n-1].to = to
		} else {
			f.spans = append(f.spans, span{from, to})
		}
		keep.count++
		keep.maxTime = max(keep.maxTime, it.Time)
		keep.tombstones = keep.tombstones || isTombstone
	}
	f.kept += int64(keep.count)
	return keep, it.Err()
}

// looksFor tells whether the map may have a newer record of a key.
func (f *compactionFilter) looksFor(key []byte, off Offset) bool {
	return key != nil && off < f.end && f.keys.used > 0
}

// hashKeys hashes the keys of b that looksFor wants.
func (f *compactionFilter) hashKeys(b *Batch) {
	f.hashes = f.hashes[:0]
	for it := b.Records(); it.Next(); {
		if f.looksFor(it.Key, it.Offset) {
			f.hashes = append(f.hashes, f.keys.hash(it.Key))
		}
	}
}

// gone returns what stays of a batch without records.
func (f *compactionFilter) gone(b *Batch, last bool) []byte {
	owner := b.Producer
	switch lastOf, lives := f.lastOf[owner.ID]; {
	case lives && lastOf == b.Last && !b.Control:
		f.noteKept(b)
	case last:
		owner = Producer{ID: NoProducer, Epoch: noProducerEpoch, Sequence: noSequence}
	default:
		return nil
	}
	if b.Count == 0 && owner == b.Producer && !b.Control {
		return b.Bytes
	}
	f.buf = append(f.buf[:0], b.Bytes[:batchHeaderBytes]...)
	attributes := uint16(0)
	if owner.Transactional {
		attributes = attrTransactional
	}
	binary.BigEndian.PutUint64(f.buf[atBaseTimestamp:], uint64(b.MaxTime))
	binary.BigEndian.PutUint64(f.buf[atProducerID:], uint64(owner.ID))
	binary.BigEndian.PutUint16(f.buf[atProducerEpoch:], uint16(owner.Epoch))
	binary.BigEndian.PutUint32(f.buf[atBaseSequence:], uint32(owner.Sequence))
	return f.finish(attributes, 0)
}

// unpack decompresses the records of b.
func (f *compactionFilter) unpack(b *Batch) (err error) {
	b.unpacker = f.unpacker
	f.plain, err = b.decompressed()
	return err
}

// without returns b with the records in spans only.
func (f *compactionFilter) without(b *Batch, keep keptRecords) []byte {
	f.begin(b, keep)
	for _, s := range f.spans {
		f.buf = append(f.buf, f.plain[s.from:s.to]...)
	}
	return f.finish(b.attributes(), keep.count)
}

// stamped returns b with the records in spans only, and with a delete horizon. It
// takes the place of the base timestamp, to which the times are relative: all
// of them are written anew.
func (f *compactionFilter) stamped(b *Batch, keep keptRecords) []byte {
	at := f.now + f.retention
	f.pending(at)
	f.begin(b, keep)
	binary.BigEndian.PutUint64(f.buf[atBaseTimestamp:], uint64(at))
	records := f.plain
	for _, s := range f.spans {
		for from := s.from; from < s.to; {
			length, body := readVarint(records, from)
			end := body + int(length)
			delta, rest := readVarint(records, body+1)
			delta += b.BaseTime - at // may wrap around; the reader's sum wraps back
			n := int64(1 + varintLen(delta) + end - rest)
			f.appendVarint(n)
			f.buf = append(f.buf, records[body])
			f.appendVarint(delta)
			f.buf = append(f.buf, records[rest:end]...)
			from = end
		}
	}
	return f.finish(b.attributes()|attrDeleteHorizon, keep.count)
}

func (f *compactionFilter) appendVarint(v int64) {
	var space [binary.MaxVarintLen64]byte
	f.buf = append(f.buf, space[:putVarint(space[:], 0, v)]...)
}

// begin starts the present batch's successor with its header.
func (f *compactionFilter) begin(b *Batch, keep keptRecords) {
	f.buf = append(f.buf[:0], b.Bytes[:batchHeaderBytes]...)
	if !b.AppendTime {
		binary.BigEndian.PutUint64(f.buf[atMaxTimestamp:], uint64(keep.maxTime))
	}
}

// finish compresses the records as attributes say, and fills in what depends on
// them. Records that compression does not make smaller stay as they are.
func (f *compactionFilter) finish(attributes uint16, count int32) []byte {
	batch := f.buf
	if codec := Compression(attributes & attrCompression); codec != 0 {
		f.packed = f.compressor(codec).compress(append(f.packed[:0], f.buf[:batchHeaderBytes]...), f.buf[batchHeaderBytes:])
		if len(f.packed) < len(f.buf) {
			batch = f.packed
		} else {
			attributes &^= attrCompression
		}
	}
	binary.BigEndian.PutUint32(batch[atBatchLength:], uint32(len(batch)-lengthExcludes))
	binary.BigEndian.PutUint16(batch[atAttributes:], attributes)
	binary.BigEndian.PutUint32(batch[atRecordCount:], uint32(count))
	binary.BigEndian.PutUint32(batch[atChecksum:], batchChecksum(batch))
	return batch
}

// attributes are the attribute bits of b.
func (b *Batch) attributes() uint16 { return binary.BigEndian.Uint16(b.Bytes[atAttributes:]) }

// hasDeleteHorizon tells whether b's base timestamp is the time until which its
// tombstones, or the marker it is, stay.
func (b *Batch) hasDeleteHorizon() bool { return b.attributes()&attrDeleteHorizon != 0 }

// firstWithoutKey returns the number of the first record without a key, or -1. It
// looks no further than the key, and leaves faults to whoever reads the records.
func (b *Batch) firstWithoutKey() int {
	records, err := b.decompressed()
	if err != nil {
		return -1
	}
	for i := range int(b.Count) {
		length, body := readVarint(records, 0)
		if body < 0 || length < minRecordBytes || length > int64(len(records)-body) {
			return -1
		}
		_, at := readVarint(records, body+1)
		_, at = readVarint(records, at)
		if n, at := readVarint(records, at); at >= 0 && n < 0 {
			return i
		}
		records = records[body+int(length):]
	}
	return -1
}
