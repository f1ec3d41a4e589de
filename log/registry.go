package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"

	"github.com/thalweg/thalweg/internal/vfs"
)

// Topic registry, big-endian: which topics there are, and with what settings. The
// checksum comes before the version so that a later version, however it goes on,
// is told from damage.
//
//	at  size  field
//	 0     8  magic "thalwegT"
//	 8     4  crc32c of [12, end)
//	12     4  format version: 1
//	16     4  number of topics, and for each, by ascending name
//
//	 0     2  length of the name
//	 2        name
//	      1   flags: bit 0 compact, bit 1 being deleted; others zero, checked
//	      4   partitions
//	      8   sync policy: -1 always, 0 by the operating system, else nanoseconds
//	      8   segment bytes, 0 for the log's setting
const (
	registryMagic       = "thalwegT"
	registryVersion     = 1
	registryHeaderBytes = 20
	registryTopicBytes  = 21 // beside length and name

	topicCompact  = 0x01
	topicDeleting = 0x02
)

// registryTopic is a topic's entry.
type registryTopic struct {
	Spec     TopicSpec
	Deleting bool // its directories are on their way out
}

func encodeRegistry(topics map[string]registryTopic) []byte {
	b := append(make([]byte, 0, registryHeaderBytes+64*len(topics)), registryMagic...)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, registryVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(topics)))
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		topic := topics[name]
		var flags byte
		if topic.Spec.Compact {
			flags |= topicCompact
		}
		if topic.Deleting {
			flags |= topicDeleting
		}
		b = binary.BigEndian.AppendUint16(b, uint16(len(name)))
		b = append(b, name...)
		b = append(b, flags)
		b = binary.BigEndian.AppendUint32(b, uint32(topic.Spec.Partitions))
		b = binary.BigEndian.AppendUint64(b, uint64(topic.Spec.Sync))
		b = binary.BigEndian.AppendUint64(b, uint64(topic.Spec.SegmentBytes))
	}
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	return b
}

// decodeRegistry fails with ErrVersion for a later format, and tells damage by
// any other error.
func decodeRegistry(b []byte) (map[string]registryTopic, error) {
	if len(b) < registryHeaderBytes || string(b[:8]) != registryMagic {
		return nil, errors.New("it does not begin as a topic registry")
	}
	if stored, computed := binary.BigEndian.Uint32(b[8:]), crc32.Checksum(b[12:], castagnoli); stored != computed {
		return nil, fmt.Errorf("checksum is %08x, the content gives %08x", stored, computed)
	}
	if version := binary.BigEndian.Uint32(b[12:]); version != registryVersion {
		return nil, fmt.Errorf("%w: topic registry has version %d, known is %d", ErrVersion, version, registryVersion)
	}
	count := binary.BigEndian.Uint32(b[16:])
	topics := make(map[string]registryTopic)
	previous := ""
	rest := b[registryHeaderBytes:]
	for range count {
		if len(rest) < 2 {
			return nil, errors.New("a topic is cut off")
		}
		n := int(binary.BigEndian.Uint16(rest))
		if rest = rest[2:]; len(rest) < n+registryTopicBytes {
			return nil, errors.New("a topic is cut off")
		}
		name, fields := string(rest[:n]), rest[n:n+registryTopicBytes]
		rest = rest[n+registryTopicBytes:]
		if err := ValidateName(name); err != nil {
			return nil, err
		}
		if name <= previous {
			return nil, fmt.Errorf("topic %q follows %q", name, previous)
		}
		previous = name
		flags := fields[0]
		topic := registryTopic{
			Spec: TopicSpec{
				Partitions:   int(int32(binary.BigEndian.Uint32(fields[1:]))),
				Sync:         Sync(binary.BigEndian.Uint64(fields[5:])),
				SegmentBytes: int64(binary.BigEndian.Uint64(fields[13:])),
				Compact:      flags&topicCompact != 0,
			},
			Deleting: flags&topicDeleting != 0,
		}
		if flags&^(topicCompact|topicDeleting) != 0 {
			return nil, fmt.Errorf("%w: topic %q has flags %#02x", ErrVersion, name, flags)
		}
		if err := topic.Spec.validate(); err != nil {
			return nil, fmt.Errorf("topic %q: %w", name, err)
		}
		topics[name] = topic
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%d bytes follow the last topic", len(rest))
	}
	return topics, nil
}

// readRegistry returns the topics of the log in dir, none where there is no
// registry.
func readRegistry(files vfs.FS, dir string) (map[string]registryTopic, error) {
	name := path.Join(dir, registryFile)
	b, err := readSmallFile(files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]registryTopic{}, nil
	}
	if err != nil {
		return nil, err
	}
	topics, err := decodeRegistry(b)
	if errors.Is(err, ErrVersion) {
		return nil, fmt.Errorf("%s: %w: it was written by a newer release, which is needed to open it", name, err)
	}
	if err != nil {
		return nil, &CorruptionError{File: name, Offset: -1, Cause: err}
	}
	return topics, nil
}

// maxOffset stands for an offset no log reaches.
const maxOffset = Offset(math.MaxInt64)
