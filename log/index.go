package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
)

// Offset index (.index), big-endian, 8 bytes an entry. Entries grow in both
// fields. There is none for the first batch of a segment, whose position is 0.
//
//	at  size  field
//	 0     4  last offset of a batch, minus the segment's base offset
//	 4     4  the batch's position in the segment
//
// Time index (.timeindex), big-endian, 12 bytes an entry. An entry holds the
// greatest time so far, so that times grow too, and says that no data record at
// or below its offset has a later one. The last entry holds the segment's
// greatest time. Markers do not count: their time is the clock's, the records'
// may be years away from it.
//
//	at  size  field
//	 0     8  time, Unix ms
//	 8     4  last offset of the batch with that time, minus the base offset
//
// Neither has a checksum of its own; the segment's seal has both.
const (
	offsetEntryBytes = 8
	timeEntryBytes   = 12
)

type offsetEntry struct {
	relative int32
	position int32
}

type timeEntry struct {
	time     int64
	relative int32
}

// floorOffset returns the last entry at or below relative.
func floorOffset(entries []offsetEntry, relative int64) (offsetEntry, bool) {
	i := sort.Search(len(entries), func(i int) bool { return int64(entries[i].relative) > relative })
	if i == 0 {
		return offsetEntry{}, false
	}
	return entries[i-1], true
}

// belowTime returns the last entry whose time is less than timeMs: every record
// up to its offset is earlier than timeMs.
func belowTime(entries []timeEntry, timeMs int64) (timeEntry, bool) {
	i := sort.Search(len(entries), func(i int) bool { return entries[i].time >= timeMs })
	if i == 0 {
		return timeEntry{}, false
	}
	return entries[i-1], true
}

func encodeOffsetIndex(entries []offsetEntry) []byte {
	b := make([]byte, 0, len(entries)*offsetEntryBytes)
	for _, e := range entries {
		b = binary.BigEndian.AppendUint32(b, uint32(e.relative))
		b = binary.BigEndian.AppendUint32(b, uint32(e.position))
	}
	return b
}

func decodeOffsetIndex(b []byte) ([]offsetEntry, error) {
	if len(b)%offsetEntryBytes != 0 {
		return nil, fmt.Errorf("%d bytes are no whole number of entries", len(b))
	}
	entries := make([]offsetEntry, len(b)/offsetEntryBytes)
	previous := offsetEntry{relative: -1, position: -1}
	for i := range entries {
		e := offsetEntry{
			relative: int32(binary.BigEndian.Uint32(b[i*offsetEntryBytes:])),
			position: int32(binary.BigEndian.Uint32(b[i*offsetEntryBytes+4:])),
		}
		if e.relative <= previous.relative || e.position <= previous.position {
			return nil, errors.New("offsets and positions do not both grow")
		}
		entries[i], previous = e, e
	}
	return entries, nil
}

func encodeTimeIndex(entries []timeEntry) []byte {
	b := make([]byte, 0, len(entries)*timeEntryBytes)
	for _, e := range entries {
		b = binary.BigEndian.AppendUint64(b, uint64(e.time))
		b = binary.BigEndian.AppendUint32(b, uint32(e.relative))
	}
	return b
}

func decodeTimeIndex(b []byte) ([]timeEntry, error) {
	if len(b)%timeEntryBytes != 0 {
		return nil, fmt.Errorf("%d bytes are no whole number of entries", len(b))
	}
	entries := make([]timeEntry, len(b)/timeEntryBytes)
	for i := range entries {
		e := timeEntry{
			time:     int64(binary.BigEndian.Uint64(b[i*timeEntryBytes:])),
			relative: int32(binary.BigEndian.Uint32(b[i*timeEntryBytes+8:])),
		}
		if e.relative < 0 || i > 0 && (e.time <= entries[i-1].time || e.relative <= entries[i-1].relative) {
			return nil, errors.New("times and offsets do not both grow")
		}
		entries[i] = e
	}
	return entries, nil
}
