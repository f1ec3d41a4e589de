package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"slices"
)

// Compaction state (thalweg-compaction in the partition's directory), big-endian,
// fixed size. It is replaced before what it permits is done: a crash leaves it
// saying too much, which costs work, never too little.
//
//	at  size  field
//	 0     8  magic "thalwegC"
//	 8     4  crc32c of [12, end)
//	12     4  format version: 1
//	16     8  cleaned: below it no key has an older record left
//	24     8  touched: below it offsets may be missing
//	32     8  horizon: below it tombstones or markers were removed
//	40     8  wall clock at which what is left of these may go, Unix ms; 0 for none
const (
	compactionFile         = "thalweg-compaction"
	compactionMagic        = "thalwegC"
	compactionStateVersion = 1
	compactionStateBytes   = 48
)

// compactionState is how far a partition was compacted.
type compactionState struct {
	cleaned, touched, horizon Offset
	settleAt                  int64
}

func (s compactionState) encode() []byte {
	b := append(make([]byte, 0, compactionStateBytes), compactionMagic...)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, compactionStateVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(s.cleaned))
	b = binary.BigEndian.AppendUint64(b, uint64(s.touched))
	b = binary.BigEndian.AppendUint64(b, uint64(s.horizon))
	b = binary.BigEndian.AppendUint64(b, uint64(s.settleAt))
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	return b
}

func decodeCompactionState(b []byte) (compactionState, error) {
	if len(b) != compactionStateBytes || string(b[:8]) != compactionMagic {
		return compactionState{}, errors.New("it does not look like the state of a compaction")
	}
	if stored, computed := binary.BigEndian.Uint32(b[8:]), crc32.Checksum(b[12:], castagnoli); stored != computed {
		return compactionState{}, fmt.Errorf("checksum is %08x, the content gives %08x", stored, computed)
	}
	if version := binary.BigEndian.Uint32(b[12:]); version != compactionStateVersion {
		return compactionState{}, fmt.Errorf("%w: compaction state has version %d, known is %d", ErrVersion, version, compactionStateVersion)
	}
	s := compactionState{
		cleaned:  Offset(binary.BigEndian.Uint64(b[16:])),
		touched:  Offset(binary.BigEndian.Uint64(b[24:])),
		horizon:  Offset(binary.BigEndian.Uint64(b[32:])),
		settleAt: int64(binary.BigEndian.Uint64(b[40:])),
	}
	if s.cleaned < 0 || s.touched < s.cleaned || s.horizon < 0 || s.horizon > s.touched {
		return compactionState{}, fmt.Errorf("%+v is implausible", s)
	}
	return s, nil
}

// readCompaction reads the compaction state. Of one that is damaged nothing is
// believed: see settleCompaction.
func (o *opening) readCompaction() error {
	name := path.Join(o.dir, compactionFile)
	o.compaction = compactionState{}
	b, err := readSmallFile(o.options.FS, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		o.compaction, err = decodeCompactionState(b)
	}
	if errors.Is(err, ErrVersion) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err != nil {
		o.options.Logger.Warn("compaction state is made anew; whoever follows this partition starts over", "file", name, "error", err)
		o.compactionLost = true
		o.compaction.touched = maxOffset
	}
	return nil
}

// settleCompaction makes a lost state anew: anything may have been removed below the
// active segment, which is never compacted, and nothing above. It also takes down
// what another writer's compaction left in a directory that is adopted.
func (o *opening) settleCompaction() error {
	below := Offset(0)
	switch {
	case o.compactionLost:
		o.compaction = compactionState{}
		below = o.segments[len(o.segments)-1].base
	case slices.ContainsFunc(o.segments, func(s *segment) bool { return s.base >= o.compaction.touched && (s.gaps || s.gapAfter) }):
		// What the batches no longer tell of producers is in a snapshot from here on.
		below = o.logEnd()
		snapshot := path.Join(o.dir, offsetName(below, snapshotSuffix))
		if err := replaceFile(o.options.FS, snapshot, o.producers.encodeSnapshot(o.options.Now().UnixMilli())); err != nil {
			return err
		}
	}
	if below > 0 || o.compactionLost {
		o.compaction.touched, o.compaction.horizon = below, below
		if err := replaceFile(o.options.FS, path.Join(o.dir, compactionFile), o.compaction.encode()); err != nil {
			return err
		}
	}
	o.horizon.Store(int64(o.compaction.horizon))
	return nil
}

// gapsBelow is the offset below which offsets may be missing: where a compaction has
// been. What another writer left is taken as it is.
func (o *opening) gapsBelow() Offset {
	if o.spec().Compact && o.state.adopt {
		return maxOffset
	}
	return o.compaction.touched
}
