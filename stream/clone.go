package stream

import (
	"reflect"
	"time"

	"github.com/thalweg/thalweg/topic/codec"
)

// cloner makes copies of values that share nothing with the original: by assignment
// where the type allows it, else through its codec.
type cloner[V any] struct {
	codec  codec.Codec[V]
	shares bool // an assigned copy shares memory that may be changed
	buf    []byte
}

func newCloner[V any](c codec.Codec[V]) *cloner[V] {
	return &cloner[V]{codec: c, shares: shares(reflect.TypeFor[V]())}
}

// clone returns a copy of v.
func (c *cloner[V]) clone(v *V) (V, error) {
	if !c.shares {
		return *v, nil
	}
	var err error
	if c.buf, err = c.codec.Append(c.buf[:0], *v); err != nil {
		var none V
		return none, err
	}
	return c.codec.Decode(c.buf)
}

// shares tells whether copies of a value of type t share memory that may be changed.
func shares(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return true
	case reflect.Array:
		return t.Len() > 0 && shares(t.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return false // what it points to never changes
		}
		for field := range t.Fields() {
			if shares(field.Type) {
				return true
			}
		}
	}
	return false
}

// nilable tells whether a value of type V can be nil, which where rows are made by a
// function of the program says that there is none.
func nilable[V any]() bool {
	switch reflect.TypeFor[V]().Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		return true
	}
	return false
}

// isNil tells whether v, of a type that is nilable, is nil.
func isNil[V any](v *V) bool { return reflect.ValueOf(v).Elem().IsNil() }
