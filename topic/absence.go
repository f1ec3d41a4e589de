package topic

import (
	"reflect"
	"unsafe"
)

// absence says which values of a key's type are no key.
type absence uint8

const (
	absentNever  absence = iota
	absentNil            // the nil of a slice, pointer, map or interface
	absentAlways         // the type has no content, as struct{}
)

// absenceOf returns which values of K are no key.
func absenceOf[K any]() absence {
	t := reflect.TypeFor[K]()
	switch t.Kind() {
	case reflect.Slice, reflect.Pointer, reflect.Map, reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return absentNil
	}
	if t.Size() == 0 {
		return absentAlways
	}
	return absentNever
}

// absent tells whether k is no key. a must be absenceOf[K]: the question is
// asked of the type once, not for every record.
func absent[K any](a absence, k *K) bool {
	switch a {
	case absentNil:
		// The first word of each kind that has a nil is zero exactly for it.
		return *(*unsafe.Pointer)(unsafe.Pointer(k)) == nil
	case absentAlways:
		return true
	}
	return false
}
