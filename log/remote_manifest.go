package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"path"
	"slices"
)

// Manifest of the object store (thalweg-remote in the partition's directory),
// big-endian: which segments are there. An object counts only once it is listed here,
// and is removed only after it is not.
//
//	at  size  field
//	 0     8  magic "thalwegO"
//	 8     4  crc32c of [12, end)
//	12     4  format version: 1
//	16     8  id: part of the objects' names, drawn when the first one is written
//	24     8  local start: segments below are in the object store alone
//	32     4  number of segments, and for each, by base offset
//
//	 0     8  base offset
//	 8     8  next offset, the one after the last batch
//	16     4  bytes of the segment   20  4  crc32c of them
//	24     4  bytes of its .index    28  4  crc32c of that
//	32     4  bytes of its .timeindex 36 4  crc32c of that
//	40     8  greatest time of a data record, least int64 without one
//	48     8  wall clock of the last append, greatest int64 where not known
//	56     4  flags: bit 0 offsets are missing in the segment; others zero, checked
//	60     4  number of aborted transactions whose marker is in the segment, and for
//	          each 34 bytes as in a .txnindex
//
// An object is the segment's bytes, its .index and its .timeindex, in this order.
const (
	manifestFile         = "thalweg-remote"
	manifestMagic        = "thalwegO"
	manifestVersion      = 1
	manifestHeaderBytes  = 36
	manifestSegmentBytes = 64

	manifestGaps = 1
)

// remoteSegment is a segment in the object store.
type remoteSegment struct {
	base, next        Offset
	data              fileSum
	index, timeIndex  fileSum
	maxTime, appended int64
	gaps              bool
	aborted           abortedTransactions
}

// manifest is what the object store has of a partition. A value never changes.
type manifest struct {
	id         uint64
	localStart Offset
	segments   []remoteSegment // by base, without gaps between them
}

// object is the name of a segment's object. Equal names mean equal content.
func (m *manifest) object(tp TopicPartition, s *remoteSegment) string {
	return fmt.Sprintf("%s%0*d-%0*d-%08x", m.prefix(tp), offsetDigits, int64(s.base), offsetDigits, int64(s.next), s.data.sum)
}

// prefix begins the names of all objects of the partition, and of no other.
func (m *manifest) prefix(tp TopicPartition) string { return fmt.Sprintf("%s/%016x/", tp, m.id) }

// end is the offset up to which the object store has the partition.
func (m *manifest) end() Offset {
	if len(m.segments) == 0 {
		return 0
	}
	return m.segments[len(m.segments)-1].next
}

// covers tells whether the object store has all of [from, to).
func (m *manifest) covers(from, to Offset) bool { return m.find(from) != nil && m.end() >= to }

// below returns the segments that end at or below off.
func (m *manifest) below(off Offset) []remoteSegment {
	n := len(m.segments)
	for n > 0 && m.segments[n-1].next > off {
		n--
	}
	return m.segments[:n]
}

// find returns the segment that holds off, or nil.
func (m *manifest) find(off Offset) *remoteSegment {
	i, found := slices.BinarySearchFunc(m.segments, off, func(s remoteSegment, off Offset) int {
		switch {
		case s.next <= off:
			return -1
		case s.base > off:
			return 1
		}
		return 0
	})
	if !found {
		return nil
	}
	return &m.segments[i]
}

// without returns a manifest of the segments for which gone is false, and the names of
// the others' objects.
func (m *manifest) without(tp TopicPartition, gone func(*remoteSegment) bool) (left manifest, objects []string) {
	left = *m
	left.segments = nil
	for i := range m.segments {
		if s := &m.segments[i]; gone(s) {
			objects = append(objects, m.object(tp, s))
		} else {
			left.segments = append(left.segments, *s)
		}
	}
	return left, objects
}

func (m *manifest) encode() []byte {
	b := append(make([]byte, 0, manifestHeaderBytes+len(m.segments)*manifestSegmentBytes), manifestMagic...)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, manifestVersion)
	b = binary.BigEndian.AppendUint64(b, m.id)
	b = binary.BigEndian.AppendUint64(b, uint64(m.localStart))
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.segments)))
	for _, s := range m.segments {
		b = binary.BigEndian.AppendUint64(b, uint64(s.base))
		b = binary.BigEndian.AppendUint64(b, uint64(s.next))
		for _, f := range []fileSum{s.data, s.index, s.timeIndex} {
			b = binary.BigEndian.AppendUint32(b, f.size)
			b = binary.BigEndian.AppendUint32(b, f.sum)
		}
		b = binary.BigEndian.AppendUint64(b, uint64(s.maxTime))
		b = binary.BigEndian.AppendUint64(b, uint64(s.appended))
		flags := uint32(0)
		if s.gaps {
			flags |= manifestGaps
		}
		b = binary.BigEndian.AppendUint32(b, flags)
		b = binary.BigEndian.AppendUint32(b, uint32(len(s.aborted)))
		b = append(b, encodeTxnIndex(s.aborted)...)
	}
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	return b
}

func decodeManifest(b []byte) (*manifest, error) {
	if len(b) < manifestHeaderBytes || string(b[:8]) != manifestMagic {
		return nil, errors.New("it does not look like a manifest")
	}
	if stored, computed := binary.BigEndian.Uint32(b[8:]), crc32.Checksum(b[12:], castagnoli); stored != computed {
		return nil, fmt.Errorf("checksum is %08x, the content gives %08x", stored, computed)
	}
	if version := binary.BigEndian.Uint32(b[12:]); version != manifestVersion {
		return nil, fmt.Errorf("%w: manifest has version %d, known is %d", ErrVersion, version, manifestVersion)
	}
	m := &manifest{id: binary.BigEndian.Uint64(b[16:]), localStart: Offset(binary.BigEndian.Uint64(b[24:]))}
	count := binary.BigEndian.Uint32(b[32:])
	rest := b[manifestHeaderBytes:]
	for i := range count {
		if len(rest) < manifestSegmentBytes {
			return nil, errors.New("a segment is cut off")
		}
		sumAt := func(at int) fileSum {
			return fileSum{size: binary.BigEndian.Uint32(rest[at:]), sum: binary.BigEndian.Uint32(rest[at+4:])}
		}
		s := remoteSegment{
			base: Offset(binary.BigEndian.Uint64(rest)), next: Offset(binary.BigEndian.Uint64(rest[8:])),
			data: sumAt(16), index: sumAt(24), timeIndex: sumAt(32),
			maxTime: int64(binary.BigEndian.Uint64(rest[40:])), appended: int64(binary.BigEndian.Uint64(rest[48:])),
			gaps: rest[59]&manifestGaps != 0,
		}
		if flags := binary.BigEndian.Uint32(rest[56:]); flags&^manifestGaps != 0 {
			return nil, fmt.Errorf("%w: segment %d has flags %#x", ErrVersion, i, flags)
		}
		n := int64(binary.BigEndian.Uint32(rest[60:])) * txnEntryBytes
		rest = rest[manifestSegmentBytes:]
		if n > int64(len(rest)) {
			return nil, errors.New("aborted transactions are cut off")
		}
		var err error
		if s.aborted, err = decodeTxnIndex(rest[:n]); err != nil {
			return nil, err
		}
		rest = rest[n:]
		if s.base < 0 || s.next <= s.base || s.data.size > math.MaxInt32 || i > 0 && s.base != m.end() {
			return nil, fmt.Errorf("segment %d, %d to %d, is implausible", i, s.base, s.next)
		}
		m.segments = append(m.segments, s)
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes follow the last segment", len(rest))
	}
	return m, nil
}

// readManifest reads what the object store has of the partition.
func (o *opening) readManifest() error {
	m, err := o.loadManifest()
	if err != nil {
		return err
	}
	if len(m.segments) > 0 && o.options.Remote == nil {
		return fmt.Errorf("%s says that offsets %d to %d are in an object store: set Options.Remote to it", path.Join(o.dir, manifestFile),
			m.segments[0].base, m.end())
	}
	o.remote.Store(m)
	return nil
}

func (p *Partition) loadManifest() (*manifest, error) {
	name := path.Join(p.dir, manifestFile)
	b, err := readSmallFile(p.options.FS, name)
	if errors.Is(err, fs.ErrNotExist) {
		return new(manifest), nil
	}
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(b)
	if errors.Is(err, ErrVersion) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err != nil {
		return nil, &CorruptionError{File: name, Offset: -1, Cause: err}
	}
	return m, nil
}

// saveManifest makes m the partition's manifest, on disk first. The caller holds
// syncMu.
func (p *Partition) saveManifest(m manifest) error {
	if err := replaceFile(p.files(), path.Join(p.dir, manifestFile), m.encode()); err != nil {
		return err
	}
	p.remote.Store(&m)
	return nil
}

// settleRemote brings the manifest and the log together, and returns the transactions
// that were aborted in what the object store alone has.
func (o *opening) settleRemote(start, end Offset) (aborted abortedTransactions, err error) {
	if err := o.forgetRemote(func(s *remoteSegment) bool { return s.next <= start || s.next > end }); err != nil {
		return nil, err
	}
	for _, s := range o.remote.Load().below(o.segments[0].base) {
		aborted = append(aborted, s.aborted...)
	}
	return aborted, nil
}
