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
	String  = basicOf[string]()
	Bytes   = basicOf[[]byte]()
	Bool    = basicOf[bool]()
	Int     = basicOf[int]()
	Int8    = basicOf[int8]()
	Int16   = basicOf[int16]()
	Int32   = basicOf[int32]()
	Int64   = basicOf[int64]()
	Uint    = basicOf[uint]()
	Uint8   = basicOf[uint8]()
	Uint16  = basicOf[uint16]()
	Uint32  = basicOf[uint32]()
	Uint64  = basicOf[uint64]()
	Float32 = basicOf[float32]()
	Float64 = basicOf[float64]()
	Time    = basicOf[time.Time]()
)

// basicOf returns the codec of T where its kind alone decides it, else nil.
func basicOf[T any]() Codec[T] {
	if op := basicOpOf(reflect.TypeFor[T]()); op != nil {
		return op.codec[T]()
	}
	return nil
}

// codec returns o as the codec of T, which has to be the type of o. The types that most keys
// have get one of their own, which saves looking at the form.
func (o *basicOp) codec[T any]() Codec[T] {
	for _, usual := range usualCodecs {
		if c, ok := usual.(Codec[T]); ok {
			return c
		}
	}
	return basicCodec[T]{o}
}

// basicCodec is a basicOp as a codec of its own.
type basicCodec[T any] struct{ op *basicOp }

func (c basicCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	return c.op.appendAt(dst, unsafe.Pointer(&v))
}

func (c basicCodec[T]) Decode(src []byte) (v T, err error) {
	err = c.op.decodeAt(src, unsafe.Pointer(&v))
	return v, err
}

// usualCodecs write what basicCodec does.
var usualCodecs = [...]any{stringCodec{}, bytesCodec{}, int64Codec{}}

type stringCodec struct{}

func (stringCodec) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }
func (stringCodec) Decode(src []byte) (string, error)           { return string(src), nil }

type bytesCodec struct{}

func (bytesCodec) Append(dst, v []byte) ([]byte, error)    { return append(dst, v...), nil }
func (bytesCodec) Decode(src []byte) (v []byte, err error) { return append([]byte{}, src...), nil }

type int64Codec struct{}

func (int64Codec) Append(dst []byte, v int64) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, uint64(v)), nil
}

func (int64Codec) Decode(src []byte) (int64, error) {
	if len(src) != 8 {
		return 0, &DecodeError{Type: "int64", Want: 8, Got: len(src)}
	}
	return int64(binary.BigEndian.Uint64(src)), nil
}

// basicOp encodes a type by its form. It reads a value as the plain type of that
// form: the two have the same memory, which basicOpOf has made sure of. Going through a
// pointer is what lets named types share it, and one op know nothing of types.
type basicOp struct {
	form form
	typ  reflect.Type // for errors
	size int          // of a value in memory
}

// form is what the encoding of a plain type looks like. Numbers are big-endian.
type form uint8

const (
	formString form = iota
	formBytes       // nil and empty are the same: both decode as empty
	formArray       // [N]byte: the bytes themselves
	formBool        // 0 or 1
	form8
	form16
	form32
	form64
	formInt // eight bytes whatever the machine's word is, so that another machine reads them
	formUint
	formTime
	formEmpty // struct{}: there is one value, and it needs no bytes
)

// basicOpOf returns the op of t where its kind alone decides it, else nil.
func basicOpOf(t reflect.Type) *basicOp {
	op := &basicOp{typ: t, size: int(t.Size())}
	switch kind := t.Kind(); {
	case kind == reflect.String:
		op.form = formString
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		op.form = formBytes
	case kind == reflect.Array && t.Elem().Kind() == reflect.Uint8:
		op.form = formArray
	case kind == reflect.Bool:
		op.form = formBool
	case kind == reflect.Int:
		op.form = formInt
	case kind == reflect.Uint:
		op.form = formUint
	case kind == reflect.Int8, kind == reflect.Uint8:
		op.form = form8
	case kind == reflect.Int16, kind == reflect.Uint16:
		op.form = form16
	case kind == reflect.Int32, kind == reflect.Uint32, kind == reflect.Float32:
		op.form = form32
	case kind == reflect.Int64, kind == reflect.Uint64, kind == reflect.Float64:
		op.form = form64
	case isTime(t):
		op.form = formTime
	case kind == reflect.Struct && t.NumField() == 0:
		op.form = formEmpty
	default:
		return nil
	}
	return op
}

var timeType = reflect.TypeFor[time.Time]()

// isTime tells whether t is time.Time or a type declared from it.
func isTime(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.ConvertibleTo(timeType)
}

func (o *basicOp) appendAt(dst []byte, p unsafe.Pointer) ([]byte, error) {
	switch o.form {
	case formString:
		dst = append(dst, *(*string)(p)...)
	case formBytes:
		dst = append(dst, *(*[]byte)(p)...)
	case formArray:
		dst = append(dst, unsafe.Slice((*byte)(p), o.size)...)
	case formBool:
		b := byte(0)
		if *(*bool)(p) {
			b = 1
		}
		dst = append(dst, b)
	case form8:
		dst = append(dst, *(*uint8)(p))
	case form16:
		dst = binary.BigEndian.AppendUint16(dst, *(*uint16)(p))
	case form32:
		dst = binary.BigEndian.AppendUint32(dst, *(*uint32)(p))
	case form64:
		dst = binary.BigEndian.AppendUint64(dst, *(*uint64)(p))
	case formInt:
		dst = binary.BigEndian.AppendUint64(dst, uint64(*(*int)(p)))
	case formUint:
		dst = binary.BigEndian.AppendUint64(dst, uint64(*(*uint)(p)))
	case formTime:
		dst = appendTime(dst, *(*time.Time)(p))
	case formEmpty:
	}
	return dst, nil
}

// decodeAt leaves the value as it is where it fails.
func (o *basicOp) decodeAt(src []byte, p unsafe.Pointer) error {
	switch o.form {
	case formString:
		*(*string)(p) = string(src)
		return nil
	case formBytes:
		b := make([]byte, len(src))
		copy(b, src)
		*(*[]byte)(p) = b
		return nil
	}
	if want := o.length(); len(src) != want {
		return &DecodeError{Type: o.typ.String(), Want: want, Got: len(src)}
	}
	switch o.form {
	case formArray:
		copy(unsafe.Slice((*byte)(p), o.size), src)
	case formBool:
		if src[0] > 1 {
			return o.wrap(errNotBool)
		}
		*(*bool)(p) = src[0] == 1
	case form8:
		*(*uint8)(p) = src[0]
	case form16:
		*(*uint16)(p) = binary.BigEndian.Uint16(src)
	case form32:
		*(*uint32)(p) = binary.BigEndian.Uint32(src)
	case form64:
		*(*uint64)(p) = binary.BigEndian.Uint64(src)
	case formInt:
		n := int64(binary.BigEndian.Uint64(src))
		if int64(int(n)) != n {
			return o.wrap(errTooWide)
		}
		*(*int)(p) = int(n)
	case formUint:
		n := binary.BigEndian.Uint64(src)
		if uint64(uint(n)) != n {
			return o.wrap(errTooWide)
		}
		*(*uint)(p) = uint(n)
	case formTime:
		t, err := decodeTime(src)
		if err != nil {
			return o.wrap(err)
		}
		*(*time.Time)(p) = t
	case formEmpty:
	}
	return nil
}

// length is that of an encoded value, of a form that has one length.
func (o *basicOp) length() int {
	switch o.form {
	case formInt, formUint:
		return 8
	case formTime:
		return timeBytes
	}
	return o.size
}

func (o *basicOp) wrap(err error) error {
	return &DecodeError{Type: o.typ.String(), Want: -1, Err: err}
}

var (
	errNotBool = errors.New("neither 0 nor 1")
	// errTooWide is a whole number the type cannot hold.
	errTooWide = errors.New("the number does not fit the type (int has " + strconv.Itoa(strconv.IntSize) + " bits here)")
)
