package state

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// hashSeed differs from process to process, so that nobody can choose keys that
// collide in a table.
var hashSeed = rand.Uint64()

const (
	hashMul0 = 0x9E3779B97F4A7C15
	hashMul1 = 0xC2B2AE3D27D4EB4F
	hashMul2 = 0x165667B19E3779F9
)

// Hash is the hash tables expect: computed once by whoever made the key, and
// handed along with it. It differs from process to process and must not be
// stored or sent.
func Hash(key []byte) uint64 {
	n := len(key)
	h := hashSeed
	for len(key) > 16 {
		h = hashMix(binary.LittleEndian.Uint64(key)^hashMul1, binary.LittleEndian.Uint64(key[8:])^h)
		key = key[16:]
	}
	var a, b uint64
	switch {
	case len(key) >= 8:
		a = binary.LittleEndian.Uint64(key)
		b = binary.LittleEndian.Uint64(key[len(key)-8:])
	case len(key) >= 4:
		a = uint64(binary.LittleEndian.Uint32(key))
		b = uint64(binary.LittleEndian.Uint32(key[len(key)-4:]))
	case len(key) > 0:
		a = uint64(key[0])<<16 | uint64(key[len(key)/2])<<8 | uint64(key[len(key)-1])
	}
	return hashMix(hashMul0^uint64(n), hashMix(a^hashMul1, b^h)^hashMul2)
}

// hashMix folds the 128-bit product of a and b.
func hashMix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
