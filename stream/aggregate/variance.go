package aggregate

import (
	"encoding/binary"
	"math"

	"github.com/thalweg/thalweg/topic/codec"
)

// Variance keeps the variance and the mean of what of makes of each value.
func Variance[V any](of func(V) float64) func(Spread, V) Spread {
	return func(s Spread, v V) Spread { return s.Add(of(v)) }
}

// Spread is the variance of the numbers added. It is computed around the mean as it
// moves, and so does not lose itself where the numbers are large and close together.
type Spread struct {
	count   int64
	mean    float64
	squares float64 // sum of the squared distances from the mean
}

// Products are converted where they are added to something, which keeps the processor from
// fusing the two: results are the same on every one.

// Add takes one more number in.
func (s Spread) Add(x float64) Spread {
	s.count++
	d := x - s.mean
	s.mean += d / float64(s.count)
	s.squares += float64(d * (x - s.mean))
	return s
}

// Merge takes in all that o has.
func (s Spread) Merge(o Spread) Spread {
	switch {
	case o.count == 0:
		return s
	case s.count == 0:
		return o
	}
	n := float64(s.count + o.count)
	d := o.mean - s.mean
	s.mean += float64(d * (float64(o.count) / n))
	s.squares += o.squares + float64(d*d*(float64(s.count)*(float64(o.count)/n)))
	s.count += o.count
	return s
}

// Count is how many numbers were added.
func (s Spread) Count() int64 { return s.count }

// Mean is their mean; NaN where there are none.
func (s Spread) Mean() float64 {
	if s.count == 0 {
		return math.NaN()
	}
	return s.mean
}

// Variance is the variance of the numbers as all there are; NaN where there are none.
func (s Spread) Variance() float64 { return s.squares / float64(s.count) }

// SampleVariance is the variance of what the numbers are a sample of; NaN where there are
// fewer than two.
func (s Spread) SampleVariance() float64 {
	if s.count < 2 {
		return math.NaN()
	}
	return s.squares / float64(s.count-1)
}

// Deviation is the standard deviation, the root of Variance.
func (s Spread) Deviation() float64 { return math.Sqrt(s.Variance()) }

// Codec makes Spread a codec.Provider.
func (Spread) Codec(*codec.Registry) (codec.Codec[Spread], error) {
	return newCodec(formatSpread, func(dst []byte, s Spread) ([]byte, error) {
		return appendFloat(appendFloat(binary.AppendUvarint(dst, uint64(s.count)), s.mean), s.squares), nil
	}, func(r *reader) (Spread, error) {
		return Spread{r.uvarint(), r.float(), r.float()}, nil
	}, nil), nil
}
