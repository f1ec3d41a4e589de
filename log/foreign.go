package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/internal/vfs"
)

// What a Kafka broker leaves in a partition directory beside segments, indexes and
// snapshots when it is stopped while it replaces segments: N.log.cleaned is not
// complete and counts for nothing; N.log.swap is complete and takes the place of all
// segments from N to its own end; N.log.deleted is on its way out. A segment may be
// replaced by several, of which none counts while one with a lower offset is not
// complete.
const (
	cleanedSuffix = ".cleaned"
	swapSuffix    = ".swap"
)

// swap is a segment that takes the place of those in [base, next).
type swap struct{ base, next Offset }

type swaps []swap

// cover tells whether a segment at base is replaced.
func (all swaps) cover(base Offset) bool {
	return len(all) > 0 && base >= all[0].base && base < max(all[len(all)-1].next, all[len(all)-1].base+1)
}

// findSwaps returns the segments that were to replace others when a broker stopped,
// by base offset.
func (o *opening) findSwaps() (all swaps, err error) {
	names, err := o.options.FS.List(o.dir)
	if err != nil {
		return nil, err
	}
	incomplete := maxOffset
	for _, name := range names {
		if base, ok := parseOffsetName(strings.TrimSuffix(name, cleanedSuffix), logSuffix); ok && strings.HasSuffix(name, cleanedSuffix) {
			incomplete = min(incomplete, base)
		}
	}
	for _, name := range names {
		base, ok := parseOffsetName(strings.TrimSuffix(name, swapSuffix), logSuffix)
		if !ok || !strings.HasSuffix(name, swapSuffix) || base >= incomplete {
			continue
		}
		s, err := o.openSwap(base)
		if err != nil {
			return nil, err
		}
		found := s.scan(s.allocated, scanOptions{gaps: true})
		err = errors.Join(found.fault, s.closeFile())
		s.unpin()
		if err != nil {
			return nil, &CorruptionError{File: path.Join(o.dir, name), Position: found.end, Offset: found.next, Cause: err}
		}
		all = append(all, swap{base: base, next: found.next})
	}
	return all, nil
}

// openSwap maps the segment that replaces others from base on.
func (o *opening) openSwap(base Offset) (*segment, error) {
	s := newSegment(o.options.FS, o.dir, base, o.options.IndexIntervalBytes)
	file, err := o.options.FS.Open(s.name(logSuffix + swapSuffix))
	if err != nil {
		return nil, err
	}
	size, err := file.Size()
	if err == nil {
		err = s.attach(file, size, 0)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

// completeSwaps does what the broker was about to do: the replaced segments go, then
// the new ones get their names. It can be interrupted and done again.
func (o *opening) completeSwaps() error {
	all, err := o.findSwaps()
	if err != nil || len(all) == 0 {
		return err
	}
	files, err := o.listFiles()
	if err != nil {
		return err
	}
	for _, base := range files.segments {
		if all.cover(base) {
			replaced := slices.ContainsFunc(all, func(s swap) bool { return s.base == base })
			for _, suffix := range []string{logSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix} {
				if suffix == logSuffix && replaced {
					continue // by the renaming
				}
				if err := removeIfPresent(o.options.FS, path.Join(o.dir, offsetName(base, suffix))); err != nil {
					return err
				}
			}
		}
	}
	// Before their replacement has a name that says no more which of them it replaces.
	if err := o.options.FS.SyncDir(o.dir); err != nil {
		return err
	}
	for _, swap := range all {
		name := path.Join(o.dir, offsetName(swap.base, logSuffix))
		if err := o.options.FS.Rename(name+swapSuffix, name); err != nil {
			return err
		}
		o.options.Logger.Info("a segment takes the place of those it replaces", "segment", name)
	}
	return o.options.FS.SyncDir(o.dir)
}

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

// completeForeign is completeSwaps for a directory that is not ours yet.
func (o *opening) completeForeign() error {
	if !o.state.adopt {
		return nil
	}
	return o.completeSwaps()
}
