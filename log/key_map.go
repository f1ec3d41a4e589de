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
	limit  int    // keys that may be in it: probing stays short
	warmed uint64 // keeps the loads of warm from being optimised away
}

// keySlot is a key and its newest offset.
type keySlot struct {
	keyHash
	next Offset // the offset plus one; 0 marks a free slot
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

// keyHash stands for a key.
type keyHash struct{ lo, hi uint64 }

func (m *keyMap) hash(key []byte) keyHash {
	lo, hi := sipHash(m.secret, key)
	return keyHash{lo, hi}
}

// warmBatch is how many slots are fetched at once: as many as the processor waits for
// at the same time, and some more.
const warmBatch = 32

// warm fetches the slots of up to warmBatch keys, all at once, so that a look at
// each does not have to wait for memory by itself.
func (m *keyMap) warm(keys []keyHash) {
	sum := uint64(0)
	for _, k := range keys[:min(warmBatch, len(keys))] {
		sum += m.slots[m.home(k)].lo
	}
	m.warmed = sum
}

// put notes that a key is at off, above all offsets noted before. It is false when
// the map is full; then nothing changed.
func (m *keyMap) put(k keyHash, off Offset) bool {
	s := m.find(k)
	if s.next == 0 {
		if m.used == m.limit {
			return false
		}
		m.used++
		s.keyHash = k
	}
	s.next = off + 1
	return true
}

// newest returns the newest offset noted of a key, or -1.
func (m *keyMap) newest(k keyHash) Offset { return m.find(k).next - 1 }

// home is where the search for a key begins.
func (m *keyMap) home(k keyHash) uint64 {
	at, _ := bits.Mul64(k.lo, uint64(len(m.slots)))
	return at
}

// find returns the slot of a key, or the free one where it belongs.
func (m *keyMap) find(k keyHash) *keySlot {
	at := m.home(k)
	for {
		s := &m.slots[at]
		if s.next == 0 || s.keyHash == k {
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
