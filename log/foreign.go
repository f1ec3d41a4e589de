package log

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/thalweg/thalweg/internal/vfs"
)

// wholeBatchAt tells whether there is a batch whose checksum fits at position, so that
// what is wrong with it is no torn write.
func (s *segment) wholeBatchAt(position int64) (is bool) {
	_ = vfs.Guard(func() error {
		b, err := frameBatch(s.data[position:s.allocated])
		is = err == nil && verifyChecksum(b) == nil
		return nil
	})
	return is
}

// cutShort tells whether a fault is the begin of the next batch, or space for it, and
// without its end: by its length it goes on beyond the file, or into zeros that were
// never written.
func (s *segment) cutShort(found scanned) (is bool) {
	const zeros = 8 // more than batches end with
	_ = vfs.Guard(func() error {
		rest := s.data[found.end:s.allocated]
		next := binary.BigEndian.AppendUint64(nil, uint64(found.next))
		n := min(len(rest), len(next))
		if !bytes.Equal(rest[:n], next[:n]) && !allZero(rest[:min(len(rest), batchHeaderBytes)]) {
			return nil
		}
		length := int64(0)
		if len(rest) >= lengthExcludes {
			length = int64(int32(binary.BigEndian.Uint32(rest[atBatchLength:])))
		}
		end := lengthExcludes + length
		is = length == 0 || length > 0 && (end > int64(len(rest)) || end-zeros > found.dirty)
		return nil
	})
	return is
}

// goodBatchAfter tells whether there is a whole batch behind a fault, wherever it may
// begin. Then the fault is no end that a crash tore.
func (s *segment) goodBatchAfter(found scanned) (is bool) {
	rest := s.data[found.end : found.end+found.dirty]
	_ = vfs.Guard(func() error {
		for at := 1; at+batchHeaderBytes <= len(rest); at++ {
			b := rest[at:]
			if b[atMagic] != magicV2 {
				continue
			}
			if _, err := ParseBatch(b); err == nil {
				is = true
				break
			}
		}
		return nil
	})
	return is
}

// errLegacyFormat tells messages of a format before version 2 from damage. It matches
// ErrVersion.
var errLegacyFormat = fmt.Errorf("%w: messages of brokers before version 0.11; copy the topic with a client into a new one, which has format 2", ErrVersion)

// Message of formats 0 and 1, big-endian, for recognising one:
//
//	at  size  field
//	 0     8  offset
//	 8     4  length of what follows
//	12     4  crc32 (IEEE) of [16, end)
//	16     1  magic: 0 or 1

// checkLegacy returns errLegacyFormat if b begins with such a message. Its length is
// known to be within b.
func checkLegacy(b []byte) error {
	end := lengthExcludes + int(binary.BigEndian.Uint32(b[atBatchLength:]))
	if b[atMagic] < magicV2 && binary.BigEndian.Uint32(b[12:]) == crc32.ChecksumIEEE(b[atMagic:end]) {
		return fmt.Errorf("message format %d: %w", b[atMagic], errLegacyFormat)
	}
	return nil
}
