package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"time"
	"unsafe"
)

// fieldError is a DecodeError in the making: the type is added on top.
type fieldError struct {
	path      string
	want, got int
	err       error
}

func (e *fieldError) Error() string { return e.path }

var (
	errVarint    = errors.New("bad varint")
	errShort     = errors.New("it ends early")
	errMarker    = errors.New("neither nil nor a pointer")
	errKeyOrder  = errors.New("map keys out of order")
	errKeysMerge = errors.New("two keys have become one")
	errTooMany   = errors.New("more elements than bytes")
)

func (o *op) short(want, got int) error {
	return &fieldError{path: o.path, want: want, got: got, err: errShort}
}

func (o *op) fail(err error) error {
	if e, ok := err.(*fieldError); ok {
		return e
	}
	return &fieldError{path: o.path, want: -1, err: err}
}

// decode decodes the value at the start of src into the zero value at base and
// returns the rest. Where it fails, part of the value is set.
func (p *plan) decode(src []byte, base unsafe.Pointer) ([]byte, error) {
	var err error
	for i := range p.ops {
		o := &p.ops[i]
		at := unsafe.Add(base, o.offset)
		switch o.kind {
		case opBool:
			if len(src) == 0 {
				return nil, o.short(1, 0)
			}
			if src[0] > 1 {
				return nil, o.fail(errNotBool)
			}
			*(*bool)(at) = src[0] == 1
			src = src[1:]
		case opInt8, opInt16, opInt32, opInt64:
			u, n := uvarint(src)
			if n == 0 {
				return nil, o.fail(errVarint)
			}
			src = src[n:]
			v := int64(u>>1) ^ -int64(u&1)
			fits := true
			switch o.kind {
			case opInt64:
				*(*int64)(at) = v
			case opInt32:
				*(*int32)(at), fits = int32(v), v == int64(int32(v))
			case opInt16:
				*(*int16)(at), fits = int16(v), v == int64(int16(v))
			case opInt8:
				*(*int8)(at), fits = int8(v), v == int64(int8(v))
			}
			if !fits {
				return nil, o.fail(errTooWide)
			}
		case opUint8, opUint16, opUint32, opUint64:
			v, n := uvarint(src)
			if n == 0 {
				return nil, o.fail(errVarint)
			}
			src = src[n:]
			fits := true
			switch o.kind {
			case opUint64:
				*(*uint64)(at) = v
			case opUint32:
				*(*uint32)(at), fits = uint32(v), v == uint64(uint32(v))
			case opUint16:
				*(*uint16)(at), fits = uint16(v), v == uint64(uint16(v))
			case opUint8:
				*(*uint8)(at), fits = uint8(v), v == uint64(uint8(v))
			}
			if !fits {
				return nil, o.fail(errTooWide)
			}
		case opFloat32:
			if len(src) < 4 {
				return nil, o.short(4, len(src))
			}
			*(*uint32)(at) = binary.BigEndian.Uint32(src)
			src = src[4:]
		case opFloat64:
			if len(src) < 8 {
				return nil, o.short(8, len(src))
			}
			*(*uint64)(at) = binary.BigEndian.Uint64(src)
			src = src[8:]
		case opString:
			length, n := uvarint(src)
			if n == 0 {
				return nil, o.fail(errVarint)
			}
			src = src[n:]
			if length > uint64(len(src)) {
				return nil, o.tooLong(length, len(src))
			}
			*(*string)(at) = string(src[:length])
			src = src[length:]
		case opBytes:
			length, n := uvarint(src)
			if n == 0 {
				return nil, o.fail(errVarint)
			}
			src = src[n:]
			if length == 0 {
				continue
			}
			length--
			if length > uint64(len(src)) {
				return nil, o.tooLong(length, len(src))
			}
			b := make([]byte, length)
			copy(b, src)
			*(*[]byte)(at) = b
			src = src[length:]
		case opTime:
			if len(src) < timeBytes {
				return nil, o.short(timeBytes, len(src))
			}
			t, err := decodeTime(src)
			if err != nil {
				return nil, o.fail(err)
			}
			*(*time.Time)(at) = t
			src = src[timeBytes:]
		case opRaw:
			if len(src) < o.length {
				return nil, o.short(o.length, len(src))
			}
			copy(unsafe.Slice((*byte)(at), o.length), src)
			src = src[o.length:]
		case opArray:
			src, err = o.decodeElems(src, at, o.length)
		case opSlice:
			src, err = o.decodeSlice(src, at)
		case opPointer:
			if len(src) == 0 {
				return nil, o.short(1, 0)
			}
			marker := src[0]
			src = src[1:]
			if marker == 0 {
				continue
			}
			if marker != 1 {
				return nil, o.fail(errMarker)
			}
			to := reflect.New(o.typ).UnsafePointer()
			*(*unsafe.Pointer)(at) = to
			src, err = o.elem.decode(src, to)
		case opMap:
			src, err = o.decodeMap(src, at)
		case opOpaque:
			length, n := uvarint(src)
			if n == 0 {
				return nil, o.fail(errVarint)
			}
			src = src[n:]
			if length > uint64(len(src)) {
				return nil, o.tooLong(length, len(src))
			}
			if err := o.codec.decodeAt(src[:length:length], at); err != nil {
				return nil, o.fail(err)
			}
			src = src[length:]
		case opSkip:
			if src, err = o.skip.skip(src); err != nil {
				return nil, o.fail(err)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return src, nil
}

// tooLong is short for a length that was read and may be any number.
func (o *op) tooLong(length uint64, got int) error {
	if length > 1<<31-1 {
		return o.fail(errTooMany)
	}
	return o.short(int(length), got)
}

func (o *op) decodeElems(src []byte, at unsafe.Pointer, n int) ([]byte, error) {
	if o.least == 0 {
		return src, nil
	}
	var err error
	for i := range n {
		if src, err = o.elem.decode(src, unsafe.Add(at, uintptr(i)*o.stride)); err != nil {
			return nil, err
		}
	}
	return src, nil
}

// count decodes the number of elements of a slice or map, each at least least
// bytes long. nil stands for a nil slice or map.
func (o *op) count(src []byte, most uint64) (n int, isNil bool, rest []byte, err error) {
	count, size := uvarint(src)
	if size == 0 {
		return 0, false, nil, o.fail(errVarint)
	}
	src = src[size:]
	if count == 0 {
		return 0, true, src, nil
	}
	count--
	if o.least > 0 {
		most = min(most, uint64(len(src))/o.least)
	}
	if count > most {
		return 0, false, nil, o.fail(errTooMany)
	}
	return int(count), false, src, nil
}

func (o *op) decodeSlice(src []byte, at unsafe.Pointer) ([]byte, error) {
	n, isNil, src, err := o.count(src, o.maxElems())
	if err != nil || isNil {
		return src, err
	}
	data := unsafe.Pointer(&empty)
	if n > 0 {
		data = o.makeSlice(n)
	}
	*(*sliceHeader)(at) = sliceHeader{data: data, len: n, cap: n}
	return o.decodeElems(src, data, n)
}

// empty is what a slice without elements points to.
var empty uint64

func (o *op) decodeMap(src []byte, at unsafe.Pointer) ([]byte, error) {
	// A key without bytes can be there once.
	n, isNil, src, err := o.count(src, max(1, uint64(len(src))))
	if err != nil || isNil {
		return src, err
	}
	// The memory of an entry is not bounded by its bytes: let it grow.
	m := reflect.MakeMapWithSize(o.typ, min(n, 1024))
	key, elem := reflect.New(o.typ.Key()), reflect.New(o.typ.Elem())
	var last []byte
	for i := range n {
		key.Elem().SetZero()
		elem.Elem().SetZero()
		start := src
		if src, err = o.key.decode(src, key.UnsafePointer()); err != nil {
			return nil, err
		}
		this := start[:len(start)-len(src)]
		if i > 0 && bytes.Compare(last, this) >= 0 {
			return nil, o.fail(errKeyOrder)
		}
		last = this
		if src, err = o.elem.decode(src, elem.UnsafePointer()); err != nil {
			return nil, err
		}
		m.SetMapIndex(key.Elem(), elem.Elem())
	}
	if m.Len() != n {
		return nil, o.fail(errKeysMerge)
	}
	reflect.NewAt(o.typ, at).Elem().Set(m)
	return src, nil
}

// skip returns what follows the value of type n at the start of src. What it
// passes over is checked for its length only.
func (n *node) skip(src []byte) ([]byte, error) {
	fixed := n.least
	switch n.kind {
	case kindInt, kindUint:
		_, size := uvarint(src)
		if size == 0 {
			return nil, errVarint
		}
		return src[size:], nil
	case kindString, kindOpaque, kindBytes:
		length, size := uvarint(src)
		if size == 0 {
			return nil, errVarint
		}
		src = src[size:]
		if n.kind == kindBytes && length > 0 {
			length--
		}
		fixed = length
	case kindRaw:
		fixed = n.length
	case kindStruct:
		for _, f := range n.fields {
			var err error
			if src, err = f.node.skip(src); err != nil {
				return nil, err
			}
		}
		return src, nil
	case kindArray:
		return n.skipElems(src, n.length)
	case kindPointer:
		if len(src) == 0 {
			return nil, errShort
		}
		if src[0] == 0 {
			return src[1:], nil
		}
		return n.elem.skip(src[1:])
	case kindSlice, kindMap:
		count, size := uvarint(src)
		if size == 0 {
			return nil, errVarint
		}
		if src = src[size:]; count == 0 {
			return src, nil
		}
		return n.skipElems(src, count-1)
	}
	if fixed > uint64(len(src)) {
		return nil, errShort
	}
	return src[fixed:], nil
}

func (n *node) skipElems(src []byte, count uint64) ([]byte, error) {
	least := n.elem.least
	if n.kind == kindMap {
		least += n.key.least
	}
	if least == 0 {
		return src, nil
	}
	if count > uint64(len(src))/least {
		return nil, errTooMany
	}
	var err error
	for range count {
		if n.kind == kindMap {
			if src, err = n.key.skip(src); err != nil {
				return nil, err
			}
		}
		if src, err = n.elem.skip(src); err != nil {
			return nil, err
		}
	}
	return src, nil
}
