package aggregate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/thalweg/thalweg/topic/codec"
)

// The first byte of each encoding is its format:
//
//	1 Average       uvarint count; sum and its correction, 8 bytes each
//	2 Spread        uvarint count; mean and sum of squares, 8 bytes each
//	3 Minimum       nothing where it is empty, else a byte 1 and the value in its own codec
//	4 Maximum       the same
//	5 Earliest      nothing where it is empty, else the time in 12 bytes and the value in
//	                its own codec
//	6 Latest        the same
//	7 Ranking       uvarint n; then by rank, for each: uvarint length of the key, the key;
//	                uvarint length of the score, the score; both in their own codecs
//	8 Set           for each value: uvarint length, the value in its own codec; in the
//	                order of those bytes
//	9 Cardinality   nothing where it is empty, else the sketch as its library writes it
//	10 Distribution uvarint count of NaNs, uvarint count of zeros; then the buckets below
//	                zero and those above: uvarint number of them, and for each: varint
//	                index less that of the one before, uvarint count
//
// Floats are big-endian IEEE 754. Integers are written as short as they can be, and what
// is longer is refused: what decodes encodes to the same bytes, Cardinality aside.
const (
	formatAverage byte = 1 + iota
	formatSpread
	formatMinimum
	formatMaximum
	formatEarliest
	formatLatest
	formatRanking
	formatSet
	formatCardinality
	formatDistribution
)

var errDamaged = errors.New("aggregate: damaged bytes")

// newCodec makes the codec of an A whose bytes follow the format byte. inner is the codec
// of what is inside, if its schema has to be kept.
func newCodec[A any](format byte, enc func(dst []byte, a A) ([]byte, error), dec func(r *reader) (A, error), inner any) codec.Codec[A] {
	c := codec.Func(
		func(dst []byte, a A) ([]byte, error) { return enc(append(dst, format), a) },
		func(src []byte) (a A, err error) {
			if len(src) == 0 || src[0] != format {
				return a, fmt.Errorf("aggregate: %.1x is not the format %x", src, format)
			}
			r := reader{rest: src[1:]}
			if a, err = dec(&r); err == nil && (r.bad || len(r.rest) > 0) {
				err = errDamaged
			}
			if err != nil {
				var none A
				return none, err
			}
			return a, nil
		})
	if s, ok := inner.(codec.Schemed); ok {
		return schemed[A]{c, s}
	}
	return c
}

// schemed is a codec with the schema of what is inside.
type schemed[A any] struct {
	codec.Codec[A]
	codec.Schemed
}

// reader reads an encoding from its beginning; bad says that it could not.
type reader struct {
	rest []byte
	bad  bool
}

// uvarint reads a number up to MaxInt64.
func (r *reader) uvarint() int64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > math.MaxInt64 || n > 1 && r.rest[n-1] == 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return int64(v)
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 || n > 1 && r.rest[n-1] == 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// bytes reads n of them.
func (r *reader) bytes(n int64) []byte {
	if n > int64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) float() float64 {
	b := r.bytes(8)
	if r.bad {
		return 0
	}
	return math.Float64frombits(binary.BigEndian.Uint64(b))
}

func (r *reader) all() []byte { return r.bytes(int64(len(r.rest))) }

func appendFloat(dst []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(f))
}

// appendSized appends v behind its length. Its bytes are made in scratch, which is
// returned for the next.
func appendSized[T any](dst, scratch []byte, c codec.Codec[T], v T) (extended, buf []byte, err error) {
	if scratch, err = c.Append(scratch[:0], v); err != nil {
		return dst, nil, err
	}
	return appendBytes(dst, scratch), scratch, nil
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}
