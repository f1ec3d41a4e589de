package codec

import (
	"encoding/binary"
	"errors"
	"reflect"
	"strconv"
	"time"
	"unsafe"
)

// Ready codecs. They are what the types get by default.
var (
	String  Codec[string]    = stringCodec[string]{}
	Bytes   Codec[[]byte]    = bytesCodec[[]byte]{}
	Bool    Codec[bool]      = boolCodec[bool]{}
	Int     Codec[int]       = intCodec[int]{}
	Int8    Codec[int8]      = fixed8[int8]{}
	Int16   Codec[int16]     = fixed16[int16]{}
	Int32   Codec[int32]     = fixed32[int32]{}
	Int64   Codec[int64]     = fixed64[int64]{}
	Uint    Codec[uint]      = uintCodec[uint]{}
	Uint8   Codec[uint8]     = fixed8[uint8]{}
	Uint16  Codec[uint16]    = fixed16[uint16]{}
	Uint32  Codec[uint32]    = fixed32[uint32]{}
	Uint64  Codec[uint64]    = fixed64[uint64]{}
	Float32 Codec[float32]   = fixed32[float32]{}
	Float64 Codec[float64]   = fixed64[float64]{}
	Time    Codec[time.Time] = timeCodec[time.Time]{}
)

var timeType = reflect.TypeFor[time.Time]()

// basicOf returns the codec of T where its kind alone decides it, else nil.
func basicOf[T any]() Codec[T] {
	t := reflect.TypeFor[T]()
	switch kind := t.Kind(); {
	case kind == reflect.String:
		return stringCodec[T]{}
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return bytesCodec[T]{}
	case kind == reflect.Array && t.Elem().Kind() == reflect.Uint8:
		return arrayCodec[T]{}
	case kind == reflect.Bool:
		return boolCodec[T]{}
	case kind == reflect.Int:
		return intCodec[T]{}
	case kind == reflect.Uint:
		return uintCodec[T]{}
	case kind == reflect.Int8, kind == reflect.Uint8:
		return fixed8[T]{}
	case kind == reflect.Int16, kind == reflect.Uint16:
		return fixed16[T]{}
	case kind == reflect.Int32, kind == reflect.Uint32, kind == reflect.Float32:
		return fixed32[T]{}
	case kind == reflect.Int64, kind == reflect.Uint64, kind == reflect.Float64:
		return fixed64[T]{}
	case isTime(t):
		return timeCodec[T]{}
	case kind == reflect.Struct && t.NumField() == 0:
		return emptyCodec[T]{}
	}
	return nil
}

// isTime tells whether t is time.Time or a type declared from it.
func isTime(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.ConvertibleTo(timeType)
}

// The codecs below read a T as the plain type its kind has: the two have the
// same memory, which basicOf has made sure of. Going through a pointer is what
// lets named types share them at no cost.

type stringCodec[T any] struct{}

func (stringCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	return append(dst, *(*string)(unsafe.Pointer(&v))...), nil
}

func (stringCodec[T]) Decode(src []byte) (T, error) {
	s := string(src)
	return *(*T)(unsafe.Pointer(&s)), nil
}

// bytesCodec makes no difference between nil and empty: both decode as empty.
type bytesCodec[T any] struct{}

func (bytesCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	return append(dst, *(*[]byte)(unsafe.Pointer(&v))...), nil
}

func (bytesCodec[T]) Decode(src []byte) (T, error) {
	b := make([]byte, len(src))
	copy(b, src)
	return *(*T)(unsafe.Pointer(&b)), nil
}

// arrayCodec is that of [N]byte: the bytes themselves.
type arrayCodec[T any] struct{}

func (arrayCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	return append(dst, unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v))...), nil
}

func (arrayCodec[T]) Decode(src []byte) (T, error) {
	var v T
	if uintptr(len(src)) != unsafe.Sizeof(v) {
		return v, wrongLength[T](int(unsafe.Sizeof(v)), len(src))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)), src)
	return v, nil
}

var errNotBool = errors.New("neither 0 nor 1")

type boolCodec[T any] struct{}

func (boolCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	if *(*bool)(unsafe.Pointer(&v)) {
		return append(dst, 1), nil
	}
	return append(dst, 0), nil
}

func (boolCodec[T]) Decode(src []byte) (T, error) {
	var b bool
	if len(src) != 1 {
		return *(*T)(unsafe.Pointer(&b)), wrongLength[T](1, len(src))
	}
	if src[0] > 1 {
		return *(*T)(unsafe.Pointer(&b)), wrapDecode[T](errNotBool)
	}
	b = src[0] == 1
	return *(*T)(unsafe.Pointer(&b)), nil
}

type fixed8[T any] struct{}

func (fixed8[T]) Append(dst []byte, v T) ([]byte, error) {
	return append(dst, *(*uint8)(unsafe.Pointer(&v))), nil
}

func (fixed8[T]) Decode(src []byte) (v T, err error) {
	if len(src) != 1 {
		return v, wrongLength[T](1, len(src))
	}
	*(*uint8)(unsafe.Pointer(&v)) = src[0]
	return v, nil
}

type fixed16[T any] struct{}

func (fixed16[T]) Append(dst []byte, v T) ([]byte, error) {
	return binary.BigEndian.AppendUint16(dst, *(*uint16)(unsafe.Pointer(&v))), nil
}

func (fixed16[T]) Decode(src []byte) (v T, err error) {
	if len(src) != 2 {
		return v, wrongLength[T](2, len(src))
	}
	*(*uint16)(unsafe.Pointer(&v)) = binary.BigEndian.Uint16(src)
	return v, nil
}

type fixed32[T any] struct{}

func (fixed32[T]) Append(dst []byte, v T) ([]byte, error) {
	return binary.BigEndian.AppendUint32(dst, *(*uint32)(unsafe.Pointer(&v))), nil
}

func (fixed32[T]) Decode(src []byte) (v T, err error) {
	if len(src) != 4 {
		return v, wrongLength[T](4, len(src))
	}
	*(*uint32)(unsafe.Pointer(&v)) = binary.BigEndian.Uint32(src)
	return v, nil
}

type fixed64[T any] struct{}

func (fixed64[T]) Append(dst []byte, v T) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, *(*uint64)(unsafe.Pointer(&v))), nil
}

func (fixed64[T]) Decode(src []byte) (v T, err error) {
	if len(src) != 8 {
		return v, wrongLength[T](8, len(src))
	}
	*(*uint64)(unsafe.Pointer(&v)) = binary.BigEndian.Uint64(src)
	return v, nil
}

// intCodec and uintCodec write eight bytes whatever the machine's word is, so
// that bytes written on one machine are read on another.
type intCodec[T any] struct{}

func (intCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, uint64(*(*int)(unsafe.Pointer(&v)))), nil
}

func (intCodec[T]) Decode(src []byte) (v T, err error) {
	if len(src) != 8 {
		return v, wrongLength[T](8, len(src))
	}
	n := int64(binary.BigEndian.Uint64(src))
	if int64(int(n)) != n {
		return v, wrapDecode[T](errTooWide)
	}
	*(*int)(unsafe.Pointer(&v)) = int(n)
	return v, nil
}

type uintCodec[T any] struct{}

func (uintCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, uint64(*(*uint)(unsafe.Pointer(&v)))), nil
}

func (uintCodec[T]) Decode(src []byte) (v T, err error) {
	if len(src) != 8 {
		return v, wrongLength[T](8, len(src))
	}
	n := binary.BigEndian.Uint64(src)
	if uint64(uint(n)) != n {
		return v, wrapDecode[T](errTooWide)
	}
	*(*uint)(unsafe.Pointer(&v)) = uint(n)
	return v, nil
}

// errTooWide is a whole number the type cannot hold.
var errTooWide = errors.New("the number does not fit the type (int has " + strconv.Itoa(strconv.IntSize) + " bits here)")

// emptyCodec is that of struct{}: there is one value, and it needs no bytes.
type emptyCodec[T any] struct{}

func (emptyCodec[T]) Append(dst []byte, _ T) ([]byte, error) { return dst, nil }

func (emptyCodec[T]) Decode(src []byte) (v T, err error) {
	if len(src) != 0 {
		return v, wrongLength[T](0, len(src))
	}
	return v, nil
}
