package state

import (
	"reflect"
	"unsafe"

	"github.com/thalweg/thalweg/topic/codec"
)

// Tables have a type parameter, what they are made of has none: the compiler makes a copy of
// all generic code for each type of value. What has to know the type is here; the rest
// deals in entries.

// typedEntry is an entry with its value, next to each other so that a look-up touches one
// line of the processor's cache. It holds no pointers unless V does, so that the
// collector need not look at a table of plain values.
//
// The memory of an overlay is made as typedEntry[V], by values.alloc, and nowhere else; so
// the collector knows what is in it, and the overlay's pointers to it keep it. In between it
// goes by pointers to entry, the first field, which are turned back by valueOf with the
// V of the table they came from. Steps from one entry to another are of the size of a
// typedEntry[V], within the entries that were made together.
type typedEntry[V any] struct {
	entry
	value V
}

// valueOf is the value of an entry of a table of V.
func valueOf[V any](e *entry) *V { return &(*typedEntry[V])(unsafe.Pointer(e)).value }

// values is all that tables know of the type of their values. Its functions are for entries
// of tables of that type.
type values struct {
	codec    any     // for its schemas
	stride   uintptr // from an entry to the next
	pointers bool    // a value refers to memory outside of it

	// alloc makes n entries, one after the other, the first of them copies of the had ones
	// at from.
	alloc func(n int, from unsafe.Pointer, had int) unsafe.Pointer

	// clear makes the value of e zero.
	clear func(e *entry)

	// append appends the encoding of the value of e, decode makes it what src encodes.
	append func(dst []byte, e *entry) ([]byte, error)
	decode func(e *entry, src []byte) error

	// box is a copy of the value of e to be kept elsewhere, unbox makes it the value of e.
	box   func(e *entry) any
	unbox func(e *entry, box any)
}

func valuesOf[V any](c codec.Codec[V]) *values {
	return &values{
		codec:    c,
		stride:   unsafe.Sizeof(typedEntry[V]{}),
		pointers: hasPointers(reflect.TypeFor[V]()),
		alloc: func(n int, from unsafe.Pointer, had int) unsafe.Pointer {
			entries := make([]typedEntry[V], n)
			copy(entries, unsafe.Slice((*typedEntry[V])(from), had))
			return unsafe.Pointer(unsafe.SliceData(entries))
		},
		clear: func(e *entry) {
			var zero V
			*valueOf[V](e) = zero
		},
		append: func(dst []byte, e *entry) ([]byte, error) { return c.Append(dst, *valueOf[V](e)) },
		decode: func(e *entry, src []byte) (err error) {
			*valueOf[V](e), err = c.Decode(src)
			return err
		},
		box: func(e *entry) any {
			v := *valueOf[V](e)
			return &v
		},
		unbox: func(e *entry, box any) { *valueOf[V](e) = *box.(*V) },
	}
}

// hasPointers tells whether a value of type t refers to memory outside of it.
func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return false
	case reflect.Array:
		return t.Len() > 0 && hasPointers(t.Elem())
	case reflect.Struct:
		for field := range t.Fields() {
			if hasPointers(field.Type) {
				return true
			}
		}
		return false
	}
	return true
}
