package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"
	"unsafe"
)

// append appends the encoding of the value at base.
func (p *plan) append(dst []byte, base unsafe.Pointer) ([]byte, error) {
	var err error
	for i := range p.ops {
		o := &p.ops[i]
		at := unsafe.Add(base, o.offset)
		switch o.kind {
		case opBool, opUint8:
			if b := *(*uint8)(at); b < 0x80 {
				dst = append(dst, b)
			} else {
				dst = append(dst, b, 1)
			}
		case opInt8:
			dst = appendInt(dst, int64(*(*int8)(at)))
		case opInt16:
			dst = appendInt(dst, int64(*(*int16)(at)))
		case opInt32:
			dst = appendInt(dst, int64(*(*int32)(at)))
		case opInt64:
			dst = appendInt(dst, *(*int64)(at))
		case opUint16:
			dst = appendUint(dst, uint64(*(*uint16)(at)))
		case opUint32:
			dst = appendUint(dst, uint64(*(*uint32)(at)))
		case opUint64:
			dst = appendUint(dst, *(*uint64)(at))
		case opFloat32:
			dst = binary.BigEndian.AppendUint32(dst, *(*uint32)(at))
		case opFloat64:
			dst = binary.BigEndian.AppendUint64(dst, *(*uint64)(at))
		case opString:
			s := *(*string)(at)
			dst = append(appendUint(dst, uint64(len(s))), s...)
		case opBytes:
			b := *(*[]byte)(at)
			if b == nil {
				dst = append(dst, 0)
			} else {
				dst = append(appendUint(dst, uint64(len(b))+1), b...)
			}
		case opTime:
			dst = appendTime(dst, *(*time.Time)(at))
		case opRaw:
			dst = append(dst, unsafe.Slice((*byte)(at), o.length)...)
		case opArray:
			dst, err = o.appendElems(dst, at, o.length)
		case opSlice:
			s := *(*sliceHeader)(at)
			if s.data == nil {
				dst = append(dst, 0)
				continue
			}
			dst, err = o.appendElems(appendUint(dst, uint64(s.len)+1), s.data, s.len)
		case opPointer:
			to := *(*unsafe.Pointer)(at)
			if to == nil {
				dst = append(dst, 0)
				continue
			}
			dst, err = o.elem.append(append(dst, 1), to)
		case opMap:
			dst, err = o.appendMap(dst, at)
		case opOpaque:
			dst, err = o.appendOpaque(dst, at)
		}
		if err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func appendInt(dst []byte, v int64) []byte { return appendUint(dst, uint64(v)<<1^uint64(v>>63)) }

func appendUint(dst []byte, v uint64) []byte {
	if v < 0x80 {
		return append(dst, byte(v))
	}
	return binary.AppendUvarint(dst, v)
}

func (o *op) appendElems(dst []byte, at unsafe.Pointer, n int) ([]byte, error) {
	if o.least == 0 {
		return dst, nil // there may be very many
	}
	var err error
	for i := range n {
		if dst, err = o.elem.append(dst, unsafe.Add(at, uintptr(i)*o.stride)); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendOpaque writes what the codec writes after its length, which is only
// known then: room for a short one is left in front.
func (o *op) appendOpaque(dst []byte, at unsafe.Pointer) ([]byte, error) {
	start := len(dst)
	out, err := o.codec.appendAt(append(dst, 0), at)
	if err != nil {
		return dst, fmt.Errorf("codec: encode %s: %w", o.path, err)
	}
	if len(out) <= start {
		return dst, fmt.Errorf("codec: encode %s: the codec of a %s did not append", o.path, o.typ)
	}
	n := len(out) - start - 1
	if n < 0x80 {
		out[start] = byte(n)
		return out, nil
	}
	var size [binary.MaxVarintLen64]byte
	return slices.Replace(out, start, start+1, size[:binary.PutUvarint(size[:], uint64(n))]...), nil
}

// entry is a map entry in a buffer: the key at [key, elem), the element at
// [elem, end).
type entry struct{ key, elem, end int }

// appendMap writes the entries in ascending order of their keys' bytes, so that
// equal maps are equal bytes.
func (o *op) appendMap(dst []byte, at unsafe.Pointer) ([]byte, error) {
	m := reflect.NewAt(o.typ, at).Elem()
	if m.IsNil() {
		return append(dst, 0), nil
	}
	dst = appendUint(dst, uint64(m.Len())+1)
	key, elem := reflect.New(o.typ.Key()), reflect.New(o.typ.Elem())
	buf := make([]byte, 0, 256)
	entries := make([]entry, 0, m.Len())
	var err error
	for iter := m.MapRange(); iter.Next(); {
		key.Elem().SetIterKey(iter)
		elem.Elem().SetIterValue(iter)
		e := entry{key: len(buf)}
		if buf, err = o.key.append(buf, key.UnsafePointer()); err != nil {
			return dst, err
		}
		e.elem = len(buf)
		if buf, err = o.elem.append(buf, elem.UnsafePointer()); err != nil {
			return dst, err
		}
		e.end = len(buf)
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return bytes.Compare(buf[a.key:a.elem], buf[b.key:b.elem]) })
	for i, e := range entries {
		if i > 0 && bytes.Equal(buf[entries[i-1].key:entries[i-1].elem], buf[e.key:e.elem]) {
			return dst, fmt.Errorf("codec: encode %s: %w", orValue(o.path), errSameKeys)
		}
		dst = append(dst, buf[e.key:e.end]...)
	}
	return dst, nil
}

var errSameKeys = errors.New("two keys of the map are the same bytes (a NaN?)")
