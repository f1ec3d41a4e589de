package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// Seal (.seal), big-endian, fixed size: what a sealed segment holds, and the sums
// of its indexes, which have none of their own. It saves reading the segment when
// the log is opened. Like the indexes it is a cache: one that is missing, damaged,
// of another version or about another number of bytes is made anew from the data.
//
//	at  size  field
//	 0     8  magic "thalwegS"
//	 8     4  crc32c of [12, end)
//	12     4  format version: 2; version 1 ended before byte 92
//	16     8  base offset
//	24     8  next offset, the one after the last batch
//	32     8  bytes of the segment
//	40     8  greatest time of a data record, least int64 without one
//	48     8  last offset of the batch with that time, -1 without one
//	56     4  bytes of .index        60  4  crc32c of .index
//	64     4  bytes of .timeindex    68  4  crc32c of .timeindex
//	72     4  bytes of .txnindex     76  4  crc32c of .txnindex
//	80     8  position of the last batch
//	88     4  flags: bit 0 offsets are missing in the segment, bit 1 between it and
//	          the next one; others zero, checked
//	92     8  wall clock of the last append, greatest int64 where it is not known
const (
	sealMagic   = "thalwegS"
	sealVersion = 2
	sealBytes   = 100

	sealGaps     = 1 // flags
	sealGapAfter = 2
)

// noTime is the greatest time of a segment without data records.
const noTime = math.MinInt64

// neverAppended is the time of the last append where that is not known: no bound for
// the times of the records.
const neverAppended = math.MaxInt64

// seal describes a segment that no longer changes.
type seal struct {
	base, next    Offset
	size          int64
	maxTime       int64
	maxTimeOffset Offset
	index         fileSum
	timeIndex     fileSum
	txnIndex      fileSum
	lastBatch     int64 // its position
	gaps          bool
	gapAfter      bool
	appended      int64 // wall clock of the last append, or neverAppended
}

// fileSum is the length and checksum of a file.
type fileSum struct {
	size uint32
	sum  uint32
}

func sumOf(b []byte) fileSum {
	return fileSum{size: uint32(len(b)), sum: crc32.Checksum(b, castagnoli)}
}

func (s seal) encode() []byte {
	b := append(make([]byte, 0, sealBytes), sealMagic...)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, sealVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(s.base))
	b = binary.BigEndian.AppendUint64(b, uint64(s.next))
	b = binary.BigEndian.AppendUint64(b, uint64(s.size))
	b = binary.BigEndian.AppendUint64(b, uint64(s.maxTime))
	b = binary.BigEndian.AppendUint64(b, uint64(s.maxTimeOffset))
	for _, f := range []fileSum{s.index, s.timeIndex, s.txnIndex} {
		b = binary.BigEndian.AppendUint32(b, f.size)
		b = binary.BigEndian.AppendUint32(b, f.sum)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(s.lastBatch))
	flags := uint32(0)
	if s.gaps {
		flags |= sealGaps
	}
	if s.gapAfter {
		flags |= sealGapAfter
	}
	b = binary.BigEndian.AppendUint32(b, flags)
	b = binary.BigEndian.AppendUint64(b, uint64(s.appended))
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	return b
}

func decodeSeal(b []byte) (seal, error) {
	if len(b) < 16 || string(b[:8]) != sealMagic {
		return seal{}, errors.New("it does not look like a seal")
	}
	if stored, computed := binary.BigEndian.Uint32(b[8:]), crc32.Checksum(b[12:], castagnoli); stored != computed {
		return seal{}, fmt.Errorf("checksum is %08x, the content gives %08x", stored, computed)
	}
	if version := binary.BigEndian.Uint32(b[12:]); version != sealVersion {
		return seal{}, fmt.Errorf("%w: seal has version %d, known is %d", ErrVersion, version, sealVersion)
	}
	if len(b) != sealBytes {
		return seal{}, fmt.Errorf("it has %d bytes, a seal has %d", len(b), sealBytes)
	}
	sumAt := func(at int) fileSum {
		return fileSum{size: binary.BigEndian.Uint32(b[at:]), sum: binary.BigEndian.Uint32(b[at+4:])}
	}
	s := seal{
		base:          Offset(binary.BigEndian.Uint64(b[16:])),
		next:          Offset(binary.BigEndian.Uint64(b[24:])),
		size:          int64(binary.BigEndian.Uint64(b[32:])),
		maxTime:       int64(binary.BigEndian.Uint64(b[40:])),
		maxTimeOffset: Offset(binary.BigEndian.Uint64(b[48:])),
		index:         sumAt(56),
		timeIndex:     sumAt(64),
		txnIndex:      sumAt(72),
		lastBatch:     int64(binary.BigEndian.Uint64(b[80:])),
		gaps:          b[91]&sealGaps != 0,
		gapAfter:      b[91]&sealGapAfter != 0,
		appended:      int64(binary.BigEndian.Uint64(b[92:])),
	}
	if flags := binary.BigEndian.Uint32(b[88:]); flags&^(sealGaps|sealGapAfter) != 0 {
		return seal{}, fmt.Errorf("%w: seal has flags %#x", ErrVersion, flags)
	}
	if s.base < 0 || s.next < s.base || s.size < 0 || s.size > math.MaxInt32 || s.lastBatch < 0 || s.lastBatch > s.size {
		return seal{}, fmt.Errorf("%+v is implausible", s)
	}
	return s, nil
}
