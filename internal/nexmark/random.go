package nexmark

import (
	"bytes"
	"math"
)

// random is SplitMix64. Every event has its own, so it does not matter which events
// were made before.
type random uint64

const golden = 0x9E3779B97F4A7C15

// mix spreads every bit of z over all bits.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func (r *random) next() uint64 {
	*r += golden
	return mix(uint64(*r))
}

// below returns a number in [0, n), for n up to 1<<32.
func (r *random) below(n int64) int64 {
	return int64((r.next() >> 32) * uint64(n) >> 32)
}

// oneOf returns one of the names.
func (r *random) oneOf(names []string) string { return names[r.below(int64(len(names)))] }

// price is uniform in its logarithm, from 1 to 1,000,000 dollars, in cents.
func (r *random) price() int64 {
	u := float64(r.next()>>11) / (1 << 53)
	return int64(math.Round(100 * math.Pow(10, 6*u)))
}

// appendWord appends 3 to limit-1 letters, among which some are special. A blank at
// either end is left out.
func (r *random) appendWord(dst []byte, limit int64, special byte) []byte {
	start := len(dst)
	for range 3 + r.below(limit-3) {
		if r.below(13) == 0 {
			dst = append(dst, special)
		} else {
			dst = append(dst, 'a'+byte(r.below(26)))
		}
	}
	word := bytes.Trim(dst[start:], " ")
	return append(dst[:start], word...)
}
