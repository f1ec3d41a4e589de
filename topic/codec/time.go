package codec

import (
	"encoding/binary"
	"errors"
	"time"
)

// timeBytes is the length of an encoded time: the seconds since 1970 in eight
// bytes, big-endian with the sign bit flipped, then the nanoseconds of the
// second in four. Ascending bytes are ascending times, before 1970 as well.
//
// Nanoseconds since 1970 in an int64 would be four bytes shorter and end in the
// years 1677 and 2262; the zero time.Time is in the year 1.
const timeBytes = 12

var errNanoseconds = errors.New("a second has fewer than 1e9 nanoseconds")

// appendTime keeps the instant, to the nanosecond, for every year a time.Time can hold.
// Zone and monotonic reading are not kept: what is decoded is in UTC.
func appendTime(dst []byte, t time.Time) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.Unix())^1<<63)
	return binary.BigEndian.AppendUint32(dst, uint32(t.Nanosecond()))
}

// decodeTime decodes the timeBytes bytes at the start of src.
func decodeTime(src []byte) (time.Time, error) {
	sec := int64(binary.BigEndian.Uint64(src) ^ 1<<63)
	nsec := binary.BigEndian.Uint32(src[8:])
	if nsec >= 1e9 {
		return time.Time{}, errNanoseconds
	}
	return time.Unix(sec, int64(nsec)).UTC(), nil
}
