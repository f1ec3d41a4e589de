package aggregate

import (
	"encoding/binary"
	"math"

	"github.com/thalweg/thalweg/topic/codec"
)

// Mean keeps the mean, the sum and the number of what of makes of each value.
func Mean[V any](of func(V) float64) func(Average, V) Average {
	return func(a Average, v V) Average { return a.Add(of(v)) }
}

// Average is the mean of the numbers added. Their sum is kept with what rounding took from
// it, so that a great many small ones beside a large one still count.
type Average struct {
	count      int64
	sum        float64
	correction float64 // what the additions to sum have lost
}

// Add takes one more number in.
func (a Average) Add(x float64) Average {
	a.count++
	return a.plus(x)
}

// plus adds x to the sum.
func (a Average) plus(x float64) Average {
	sum := a.sum + x
	switch {
	case math.IsInf(sum, 0) || math.IsNaN(sum): // there is nothing to correct any more
	case math.Abs(a.sum) >= math.Abs(x):
		a.correction += (a.sum - sum) + x
	default:
		a.correction += (x - sum) + a.sum
	}
	a.sum = sum
	return a
}

// Merge takes in all that o has.
func (a Average) Merge(o Average) Average {
	a.count += o.count
	a.correction += o.correction
	return a.plus(o.sum)
}

// Count is how many numbers were added.
func (a Average) Count() int64 { return a.count }

// Sum is the sum of the numbers.
func (a Average) Sum() float64 {
	if math.IsInf(a.sum, 0) || math.IsNaN(a.sum) {
		return a.sum
	}
	return a.sum + a.correction
}

// Value is the mean; NaN where there are no numbers.
func (a Average) Value() float64 { return a.Sum() / float64(a.count) }

// Codec makes Average a codec.Provider.
func (Average) Codec(*codec.Registry) (codec.Codec[Average], error) {
	return newCodec(formatAverage, func(dst []byte, a Average) ([]byte, error) {
		return appendFloat(appendFloat(binary.AppendUvarint(dst, uint64(a.count)), a.sum), a.correction), nil
	}, func(r *reader) (Average, error) {
		return Average{r.uvarint(), r.float(), r.float()}, nil
	}, nil), nil
}
