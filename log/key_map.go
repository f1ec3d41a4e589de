package log

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// keyMap remembers the newest offset of each key, in memory that does not grow.
//
// A key is known by a hash of 128 bits. Two keys with the same one would be taken
// for one key, and the older record lost: with n keys that happens with a
// probability of n²/2^129, for a thousand million keys less than 10^-20, which is
// below that of an error nobody notices in memory or on disk. The hash is keyed
// with a secret drawn for each map, so that nobody can send keys that collide.
type keyMap struct {
	secret [2]uint64
	slots  []keySlot // open addressing, linear probing
	used   int
	limit  int // keys that may be in it: probing stays short
}

// keySlot is a key and its newest offset.
type keySlot struct {
	lo, hi uint64
	next   Offset // the offset plus one; 0 marks a free slot
}

const keySlotBytes = 24

// newKeyMap returns a map for up to keys keys in at most memoryBytes, and for one
// key at least.
func newKeyMap(keys, memoryBytes int64) *keyMap {
	n := max(2, min(memoryBytes/keySlotBytes, keys+keys/4+1))
	m := &keyMap{slots: make([]keySlot, n), limit: max(1, int(n*4/5))}
	var secret [16]byte
	rand.Read(secret[:]) // never fails
	m.secret = [2]uint64{binary.LittleEndian.Uint64(secret[:]), binary.LittleEndian.Uint64(secret[8:])}
	return m
}

// reset empties the map.
func (m *keyMap) reset() {
	clear(m.slots)
	m.used = 0
}

// put notes that key is at off, above all offsets noted before. It is false when
// the map is full; then nothing changed.
func (m *keyMap) put(key []byte, off Offset) bool {
	lo, hi := sipHash(m.secret, key)
	s := m.find(lo, hi)
	if s.next == 0 {
		if m.used == m.limit {
			return false
		}
		m.used++
		s.lo, s.hi = lo, hi
	}
	s.next = off + 1
	return true
}

// newest returns the newest offset noted of key, or -1.
func (m *keyMap) newest(key []byte) Offset {
	if m.used == 0 {
		return -1
	}
	lo, hi := sipHash(m.secret, key)
	return m.find(lo, hi).next - 1
}

// find returns the slot of a key, or the free one where it belongs.
func (m *keyMap) find(lo, hi uint64) *keySlot {
	at, _ := bits.Mul64(lo, uint64(len(m.slots)))
	for {
		s := &m.slots[at]
		if s.next == 0 || s.lo == lo && s.hi == hi {
			return s
		}
		if at++; at == uint64(len(m.slots)) {
			at = 0
		}
	}
}

// sipHash is SipHash-2-4 with a result of 128 bits.
func sipHash(secret [2]uint64, b []byte) (lo, hi uint64) {
	v0 := secret[0] ^ 0x736f6d6570736575
	v1 := secret[1] ^ 0x646f72616e646f6d ^ 0xee
	v2 := secret[0] ^ 0x6c7967656e657261
	v3 := secret[1] ^ 0x7465646279746573
	last := uint64(len(b)) << 56
	for ; len(b) >= 8; b = b[8:] {
		m := binary.LittleEndian.Uint64(b)
		v3 ^= m
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0 ^= m
	}
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	v3 ^= last
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= last
	v2 ^= 0xee
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	lo = v0 ^ v1 ^ v2 ^ v3
	v1 ^= 0xdd
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	return lo, v0 ^ v1 ^ v2 ^ v3
}

func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v1
	v0 += v3
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
