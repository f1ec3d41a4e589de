package aggregate

import (
	"github.com/axiomhq/hyperloglog"

	"github.com/thalweg/thalweg/topic/codec"
)

// ApproxDistinct estimates how many different things of makes of the values.
func ApproxDistinct[V any, T ~string | ~[]byte](of func(V) T) func(Cardinality, V) Cardinality {
	return func(c Cardinality, v V) Cardinality { return c.Add([]byte(of(v))) }
}

// precision is that of the sketch: 2 to its power are the registers. It can be changed
// for state that is written from then on only, since two precisions do not merge.
const precision = 14

// Cardinality is about how many different byte strings were added: a HyperLogLog sketch
// of 16 KiB at most, less for few. The standard error is 0.8 %; up to some thousands it is next
// to none. Add and Merge change the sketch they are called on.
type Cardinality struct{ sketch *hyperloglog.Sketch }

// Add takes one more in. b is not kept.
func (c Cardinality) Add(b []byte) Cardinality {
	if c.sketch == nil {
		c.sketch, _ = hyperloglog.NewSketch(precision, true) // fails for other precisions only
	}
	c.sketch.Insert(b)
	return c
}

// Merge takes in all that o has.
func (c Cardinality) Merge(o Cardinality) Cardinality {
	switch {
	case o.sketch == nil:
		return c
	case c.sketch == nil:
		return Cardinality{o.sketch.Clone()}
	}
	if err := c.sketch.Merge(o.sketch); err != nil {
		panic(err) // only for another precision, which no decoder lets in
	}
	return c
}

// Estimate is about how many different ones there are.
func (c Cardinality) Estimate() int64 {
	if c.sketch == nil {
		return 0
	}
	return int64(c.sketch.Clone().Estimate()) // which may rearrange what it is called on
}

// Codec makes Cardinality a codec.Provider.
func (Cardinality) Codec(*codec.Registry) (codec.Codec[Cardinality], error) {
	return newCodec(formatCardinality, func(dst []byte, c Cardinality) ([]byte, error) {
		if c.sketch == nil {
			return dst, nil
		}
		return c.sketch.AppendBinary(dst)
	}, func(r *reader) (c Cardinality, err error) {
		b := r.all()
		if len(b) == 0 {
			return c, nil
		}
		if len(b) > 1 && b[1] != precision {
			return c, errDamaged
		}
		c.sketch = new(hyperloglog.Sketch)
		return c, c.sketch.UnmarshalBinary(b)
	}, nil), nil
}
