package aggregate

import (
	"encoding/binary"
	"math"

	"github.com/DataDog/sketches-go/ddsketch"
	"github.com/DataDog/sketches-go/ddsketch/mapping"
	"github.com/DataDog/sketches-go/ddsketch/store"

	"github.com/thalweg/thalweg/topic/codec"
)

// Quantiles estimates the quantiles of what of makes of the values.
func Quantiles[V any](of func(V) float64) func(Distribution, V) Distribution {
	return func(d Distribution, v V) Distribution { return d.Add(of(v)) }
}

const (
	// accuracy is how far, relatively, a value given may be from the one meant.
	accuracy = 0.01

	// maxBuckets bounds the memory of a sketch; above them the span of values covers
	// 17 orders of magnitude on each side of zero.
	maxBuckets = 2048
)

// Distribution is a DDSketch of the numbers added: it tells any quantile to within 1 % of
// the number that has that rank, where that number is no more than 17 orders of magnitude
// below the largest of its sign. Smaller ones count as that small. It takes 32 KiB at
// most, less for numbers that are close together. Infinities count as the largest numbers
// there are; a NaN has no rank, and is counted in NaNs only. Add and Merge change the
// sketch they are called on.
type Distribution struct {
	sketch *ddsketch.DDSketch
	nans   int64
}

func newSketch() *ddsketch.DDSketch {
	sketch, err := ddsketch.LogCollapsingLowestDenseDDSketch(accuracy, maxBuckets)
	if err != nil {
		panic(err) // only for another accuracy
	}
	return sketch
}

// Add takes one more number in.
func (d Distribution) Add(x float64) Distribution {
	if math.IsNaN(x) {
		d.nans++
		return d
	}
	if d.sketch == nil {
		d.sketch = newSketch()
	}
	most := d.sketch.MaxIndexableValue()
	if err := d.sketch.Add(min(max(x, -most), most)); err != nil {
		panic(err) // only for what was ruled out above
	}
	return d
}

// Merge takes in all that o has.
func (d Distribution) Merge(o Distribution) Distribution {
	d.nans += o.nans
	if o.sketch == nil {
		return d
	}
	if d.sketch == nil {
		d.sketch = newSketch()
	}
	if err := d.sketch.MergeWith(o.sketch); err != nil {
		panic(err) // only for another accuracy
	}
	return d
}

// Count is how many numbers were added, NaNs aside.
func (d Distribution) Count() int64 {
	if d.sketch == nil {
		return 0
	}
	return int64(d.sketch.GetCount())
}

// NaNs is how many of what was added were no numbers.
func (d Distribution) NaNs() int64 { return d.nans }

// Quantile is about the number below which the fraction q of the numbers are: the least
// for 0, the median for 0.5, the greatest for 1. It is NaN where there are none, and for
// another q.
func (d Distribution) Quantile(q float64) float64 {
	if d.sketch == nil || math.IsNaN(q) {
		return math.NaN()
	}
	v, err := d.sketch.GetValueAtQuantile(q)
	if err != nil {
		return math.NaN()
	}
	return v
}

// Codec makes Distribution a codec.Provider.
func (Distribution) Codec(*codec.Registry) (codec.Codec[Distribution], error) {
	return newCodec(formatDistribution, func(dst []byte, d Distribution) ([]byte, error) {
		dst = binary.AppendUvarint(dst, uint64(d.nans))
		if d.sketch == nil {
			return append(dst, 0, 0, 0), nil
		}
		dst = binary.AppendUvarint(dst, uint64(d.sketch.GetZeroCount()))
		dst = appendBuckets(dst, d.sketch.GetNegativeValueStore())
		return appendBuckets(dst, d.sketch.GetPositiveValueStore()), nil
	}, func(r *reader) (d Distribution, err error) {
		d.nans = r.uvarint()
		zeros := r.uvarint()
		sketch := newSketch()
		below := readBuckets(r, sketch.GetNegativeValueStore(), sketch.IndexMapping)
		above := readBuckets(r, sketch.GetPositiveValueStore(), sketch.IndexMapping)
		total := zeros + below + above
		if r.bad || zeros > exact || total > exact {
			return d, errDamaged
		}
		if zeros > 0 {
			err = sketch.AddWithCount(0, float64(zeros))
		}
		if total > 0 {
			d.sketch = sketch
		}
		return d, err
	}, nil), nil
}

// exact is the highest count that a bucket, which is a float, holds exactly.
const exact = 1 << 53

func appendBuckets(dst []byte, s store.Store) []byte {
	n := 0
	s.ForEach(func(int, float64) bool { n++; return false })
	dst = binary.AppendUvarint(dst, uint64(n))
	before := 0
	s.ForEach(func(index int, count float64) bool { // ascending
		dst = binary.AppendUvarint(binary.AppendVarint(dst, int64(index-before)), uint64(count))
		before = index
		return false
	})
	return dst
}

// readBuckets reads the buckets of one side and returns how many numbers are in them.
func readBuckets(r *reader, s store.Store, m mapping.IndexMapping) (total int64) {
	least, most := int64(m.Index(m.MinIndexableValue())), int64(m.Index(m.MaxIndexableValue()))
	n := r.uvarint()
	var first, index int64
	for i := int64(0); i < n && !r.bad; i++ {
		by := r.varint()
		count := r.uvarint()
		if by < -exact || by > exact || i > 0 && by <= 0 || count < 1 || count > exact {
			r.bad = true
			return 0
		}
		index += by
		if i == 0 {
			first = index
		}
		if total += count; index < least || index > most || index-first >= maxBuckets || total > exact {
			r.bad = true
			return 0
		}
		s.AddWithCount(int(index), float64(count))
	}
	return total
}
