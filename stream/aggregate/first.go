package aggregate

import (
	"time"

	"github.com/thalweg/thalweg/topic/codec"
)

// First keeps the value that is first by the time at says it is of; of two of the same
// time the one added before.
func First[V any](at func(V) time.Time) func(Earliest[V], V) Earliest[V] {
	return func(e Earliest[V], v V) Earliest[V] { return e.Add(at(v), v) }
}

// Last keeps the value that is last by the time at says it is of; of two of the same time
// the one added after.
func Last[V any](at func(V) time.Time) func(Latest[V], V) Latest[V] {
	return func(l Latest[V], v V) Latest[V] { return l.Add(at(v), v) }
}

// Earliest is the value with the lowest time. In a Merge the values of the one that is
// called count as added before those of the other.
type Earliest[V any] struct{ timed[V] }

// Latest is the value with the highest time. See Earliest for Merge.
type Latest[V any] struct{ timed[V] }

type timed[V any] struct {
	at    time.Time
	value V
	has   bool
}

// Value is the value; ok is false where none was added.
func (t timed[V]) Value() (v V, ok bool) { return t.value, t.has }

// Time is the time of the value.
func (t timed[V]) Time() time.Time { return t.at }

// Add takes one more value in.
func (e Earliest[V]) Add(at time.Time, v V) Earliest[V] {
	if e.has && !at.Before(e.at) {
		return e
	}
	return Earliest[V]{timed[V]{at, v, true}}
}

// Merge takes in all that o has.
func (e Earliest[V]) Merge(o Earliest[V]) Earliest[V] {
	if !o.has {
		return e
	}
	return e.Add(o.at, o.value)
}

// Add takes one more value in.
func (l Latest[V]) Add(at time.Time, v V) Latest[V] {
	if l.has && at.Before(l.at) {
		return l
	}
	return Latest[V]{timed[V]{at, v, true}}
}

// Merge takes in all that o has.
func (l Latest[V]) Merge(o Latest[V]) Latest[V] {
	if !o.has {
		return l
	}
	return l.Add(o.at, o.value)
}

// Codec makes Earliest a codec.Provider. Decoded times are in UTC.
func (Earliest[V]) Codec(r *codec.Registry) (codec.Codec[Earliest[V]], error) {
	return timedCodec(r, formatEarliest,
		func(e Earliest[V]) timed[V] { return e.timed }, func(t timed[V]) Earliest[V] { return Earliest[V]{t} })
}

// Codec makes Latest a codec.Provider. Decoded times are in UTC.
func (Latest[V]) Codec(r *codec.Registry) (codec.Codec[Latest[V]], error) {
	return timedCodec(r, formatLatest,
		func(l Latest[V]) timed[V] { return l.timed }, func(t timed[V]) Latest[V] { return Latest[V]{t} })
}

// timeBytes is the size of an encoded time.
const timeBytes = 12

func timedCodec[V, A any](r *codec.Registry, format byte, open func(A) timed[V], wrap func(timed[V]) A) (codec.Codec[A], error) {
	value, err := r.Of[V]()
	if err != nil {
		return nil, err
	}
	return newCodec(format, func(dst []byte, a A) ([]byte, error) {
		t := open(a)
		if !t.has {
			return dst, nil
		}
		dst, err := codec.Time.Append(dst, t.at)
		if err != nil {
			return dst, err
		}
		return value.Append(dst, t.value)
	}, func(r *reader) (A, error) {
		var t timed[V]
		if len(r.rest) == 0 {
			return wrap(t), nil
		}
		at := r.bytes(timeBytes)
		if r.bad {
			return wrap(t), errDamaged
		}
		var err error
		if t.at, err = codec.Time.Decode(at); err == nil {
			t.has = true
			t.value, err = value.Decode(r.all())
		}
		return wrap(t), err
	}, value), nil
}
