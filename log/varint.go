package log

import "math/bits"

// varintLen returns the encoded size of v in bytes, 1 to 10.
func varintLen(v int64) int {
	return (bits.Len64(zigzag(v)|1) + 6) / 7
}

func zigzag(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

// putVarint writes v at b[i:] and returns the position after it. b has room.
func putVarint(b []byte, i int, v int64) int {
	u := zigzag(v)
	for u >= 0x80 {
		b[i] = byte(u) | 0x80
		u >>= 7
		i++
	}
	b[i] = byte(u)
	return i + 1
}

// readVarint reads a varint at b[i:] and returns it with the position after it,
// or -1 for one that is cut off or longer than 64 bits. A negative i is such a
// failure handed on, so a run of reads needs one check at its end.
func readVarint(b []byte, i int) (v int64, next int) {
	// One and two bytes are nearly all there is in a batch.
	if uint(i) < uint(len(b)) {
		c := b[i]
		if c < 0x80 {
			return int64(c>>1) ^ -int64(c&1), i + 1
		}
		if i+1 < len(b) && b[i+1] < 0x80 {
			u := uint64(c&0x7f) | uint64(b[i+1])<<7
			return int64(u>>1) ^ -int64(u&1), i + 2
		}
	}
	return readLongVarint(b, i)
}

func readLongVarint(b []byte, i int) (v int64, next int) {
	if i < 0 {
		return 0, -1
	}
	var u uint64
	for shift := uint(0); i < len(b); shift += 7 {
		c := b[i]
		i++
		if shift == 63 && c > 1 {
			return 0, -1
		}
		u |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i
		}
	}
	return 0, -1
}
