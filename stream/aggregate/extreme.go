package aggregate

import (
	"cmp"

	"github.com/thalweg/thalweg/topic/codec"
)

// Min keeps the least of what of makes of each value.
func Min[V any, T cmp.Ordered](of func(V) T) func(Minimum[T], V) Minimum[T] {
	return func(m Minimum[T], v V) Minimum[T] { return m.Add(of(v)) }
}

// Max keeps the greatest of what of makes of each value.
func Max[V any, T cmp.Ordered](of func(V) T) func(Maximum[T], V) Maximum[T] {
	return func(m Maximum[T], v V) Maximum[T] { return m.Add(of(v)) }
}

// Minimum is the least of the values added, by the rules of min: with a NaN among them it
// is NaN.
type Minimum[T cmp.Ordered] struct{ extreme[T] }

// Maximum is the greatest of the values added, by the rules of max.
type Maximum[T cmp.Ordered] struct{ extreme[T] }

type extreme[T cmp.Ordered] struct {
	value T
	has   bool
}

// Value is the value; ok is false where none was added.
func (e extreme[T]) Value() (v T, ok bool) { return e.value, e.has }

// Add takes one more value in.
func (m Minimum[T]) Add(v T) Minimum[T] {
	if m.has {
		v = min(m.value, v)
	}
	return Minimum[T]{extreme[T]{v, true}}
}

// Merge takes in all that o has.
func (m Minimum[T]) Merge(o Minimum[T]) Minimum[T] {
	if !o.has {
		return m
	}
	return m.Add(o.value)
}

// Add takes one more value in.
func (m Maximum[T]) Add(v T) Maximum[T] {
	if m.has {
		v = max(m.value, v)
	}
	return Maximum[T]{extreme[T]{v, true}}
}

// Merge takes in all that o has.
func (m Maximum[T]) Merge(o Maximum[T]) Maximum[T] {
	if !o.has {
		return m
	}
	return m.Add(o.value)
}

// Codec makes Minimum a codec.Provider.
func (Minimum[T]) Codec(r *codec.Registry) (codec.Codec[Minimum[T]], error) {
	return extremeCodec(r, formatMinimum,
		func(m Minimum[T]) extreme[T] { return m.extreme }, func(e extreme[T]) Minimum[T] { return Minimum[T]{e} })
}

// Codec makes Maximum a codec.Provider.
func (Maximum[T]) Codec(r *codec.Registry) (codec.Codec[Maximum[T]], error) {
	return extremeCodec(r, formatMaximum,
		func(m Maximum[T]) extreme[T] { return m.extreme }, func(e extreme[T]) Maximum[T] { return Maximum[T]{e} })
}

func extremeCodec[T cmp.Ordered, A any](r *codec.Registry, format byte, open func(A) extreme[T], wrap func(extreme[T]) A) (codec.Codec[A], error) {
	value, err := r.Of[T]()
	if err != nil {
		return nil, err
	}
	return newCodec(format, func(dst []byte, a A) ([]byte, error) {
		e := open(a)
		if !e.has {
			return dst, nil
		}
		return value.Append(append(dst, 1), e.value)
	}, func(r *reader) (A, error) {
		var e extreme[T]
		if len(r.rest) == 0 {
			return wrap(e), nil
		}
		if r.bytes(1)[0] != 1 {
			return wrap(e), errDamaged
		}
		var err error
		e.has = true
		e.value, err = value.Decode(r.all())
		return wrap(e), err
	}, value), nil
}
