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
//	      1   flags: bit 0 being deleted; others zero, checked
//	      4   partitions
//	      2   number of settings, and for each, by ascending id
//
//	 0     2  id, see settings
//	 2     8  value, never zero
const (
	registryMagic        = "thalwegT"
	registryVersion      = 1
	registryHeaderBytes  = 20
	registryTopicBytes   = 7 // beside length, name and settings
	registrySettingBytes = 10

	topicDeleting = 0x01
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
		if topic.Deleting {
			flags |= topicDeleting
		}
		b = binary.BigEndian.AppendUint16(b, uint16(len(name)))
		b = append(b, name...)
		b = append(b, flags)
		b = binary.BigEndian.AppendUint32(b, uint32(topic.Spec.Partitions))
		count := len(b)
		b = binary.BigEndian.AppendUint16(b, 0)
		for i := range settings {
			if v := settings[i].get(&topic.Spec); v != 0 {
				b = binary.BigEndian.AppendUint16(b, settings[i].id)
				b = binary.BigEndian.AppendUint64(b, uint64(v))
			}
		}
		binary.BigEndian.PutUint16(b[count:], uint16((len(b)-count-2)/registrySettingBytes))
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
		if flags&^topicDeleting != 0 {
			return nil, fmt.Errorf("%w: topic %q has flags %#02x", ErrVersion, name, flags)
		}
		topic := registryTopic{Deleting: flags&topicDeleting != 0}
		topic.Spec.Partitions = int(int32(binary.BigEndian.Uint32(fields[1:])))
		var err error
		if rest, err = decodeSettings(&topic.Spec, int(binary.BigEndian.Uint16(fields[5:])), rest); err != nil {
			return nil, fmt.Errorf("topic %q: %w", name, err)
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

// decodeSettings takes count settings off b and returns what follows them.
func decodeSettings(spec *TopicSpec, count int, b []byte) (rest []byte, err error) {
	previous := -1
	for range count {
		if len(b) < registrySettingBytes {
			return nil, errors.New("a setting is cut off")
		}
		id, v := int(binary.BigEndian.Uint16(b)), int64(binary.BigEndian.Uint64(b[2:]))
		b = b[registrySettingBytes:]
		known := slices.IndexFunc(settings, func(f setting) bool { return int(f.id) == id })
		switch {
		case id <= previous:
			return nil, fmt.Errorf("setting %d follows %d", id, previous)
		case v == 0:
			return nil, fmt.Errorf("setting %d is zero", id)
		case known < 0:
			return nil, fmt.Errorf("%w: it has setting %d", ErrVersion, id)
		}
		previous = id
		f := &settings[known]
		if f.set(spec, v); f.get(spec) != v {
			return nil, fmt.Errorf("%s cannot be %d", f.name, v)
		}
	}
	return b, nil
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
