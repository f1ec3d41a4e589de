package codec

import (
	"fmt"
	"math"
	"reflect"
	"unsafe"
)

// plan is a type reduced to what has to be done at which offset. Structs are
// flattened into the plan around them.
type plan struct {
	ops []op

	// plain says that no op hands the address of a value to code we do not
	// know (other codecs, reflection), so that the value may stay on the
	// stack: see noescape.
	plain bool
}

type opKind uint8

const (
	opBool opKind = iota
	opInt8
	opInt16
	opInt32
	opInt64
	opUint8
	opUint16
	opUint32
	opUint64
	opFloat32
	opFloat64
	opString
	opBytes
	opTime
	opRaw
	opArray
	opSlice
	opMap
	opPointer
	opOpaque
	opSkip // only when decoding: a field that is gone
)

// op is one step of a plan. What only some kinds need, or only errors, is apart,
// so that a plan is a few cache lines.
type op struct {
	kind   opKind
	offset uintptr
	*detail
}

type detail struct {
	length int          // elements of an array, raw bytes
	stride uintptr      // memory of one element of an array or slice
	least  uint64       // fewest encoded bytes of one element, of a map's key
	noscan bool         // the elements of a slice hold no pointers
	elem   *plan        // of an array, slice, map, pointer
	key    *plan        // of a map
	typ    reflect.Type // of a slice, map, or what a pointer points to
	codec  opaque
	skip   *node
	path   string
}

// planOf makes the plan by which values written under the schema n become
// values of the shape s. With n the node of s itself it also serves to encode.
func planOf(s *shape, n *node, path string) (*plan, error) {
	p := &plan{plain: true}
	if err := p.add(s, n, 0, path); err != nil {
		return nil, err
	}
	return p, nil
}

// add appends what it takes to do s at offset.
func (p *plan) add(s *shape, n *node, offset uintptr, path string) (err error) {
	if s.node.kind != n.kind || s.node.length != n.length || s.node.label != n.label {
		return fmt.Errorf("%w: %s was %v and is now %v", ErrSchemaChanged, orValue(path), n, s.node)
	}
	o := op{offset: offset, detail: &detail{path: path}}
	switch n.kind {
	case kindBool:
		o.kind = opBool
	case kindInt:
		o.kind = opInt8 + log2(s.typ.Size())
	case kindUint:
		o.kind = opUint8 + log2(s.typ.Size())
	case kindFloat32:
		o.kind = opFloat32
	case kindFloat64:
		o.kind = opFloat64
	case kindString:
		o.kind = opString
	case kindBytes:
		o.kind = opBytes
	case kindTime:
		o.kind = opTime
	case kindRaw:
		o.kind, o.length = opRaw, int(n.length)
	case kindArray:
		o.kind, o.length, o.stride, o.least = opArray, int(n.length), s.typ.Elem().Size(), n.elem.least
		o.elem, err = planOf(s.elem, n.elem, path+"[]")
	case kindSlice:
		o.kind, o.typ, o.stride, o.least = opSlice, s.typ, s.typ.Elem().Size(), n.elem.least
		if o.least == 0 && o.stride > 0 {
			// A few bytes could ask for any number of them.
			return fmt.Errorf("%w: the elements of %s need memory and write no bytes", ErrSchemaChanged, orValue(path))
		}
		o.noscan = pointerFree(s.typ.Elem())
		o.elem, err = planOf(s.elem, n.elem, path+"[]")
	case kindMap:
		o.kind, o.typ, o.least = opMap, s.typ, n.key.least
		p.plain = false
		if o.key, err = planOf(s.key, n.key, path+"[key]"); err != nil {
			return err
		}
		o.elem, err = planOf(s.elem, n.elem, path+"[]")
	case kindPointer:
		o.kind, o.typ = opPointer, s.typ.Elem()
		o.elem, err = planOf(s.elem, n.elem, path)
	case kindOpaque:
		o.kind, o.codec = opOpaque, s.op
		p.plain = false
	case kindStruct:
		return p.addFields(s, n, offset, path)
	}
	if err != nil {
		return err
	}
	p.plain = p.plain && (o.elem == nil || o.elem.plain)
	p.ops = append(p.ops, o)
	return nil
}

// addFields matches the fields of a struct by name: those of n that s has not
// are skipped, those of s that n has not stay zero.
func (p *plan) addFields(s *shape, n *node, offset uintptr, path string) error {
	byName := make(map[string]int, len(s.fields))
	for i, f := range s.node.fields {
		byName[f.name] = i
	}
	for _, f := range n.fields {
		path := path + "." + f.name
		i, ok := byName[f.name]
		if !ok {
			p.ops = append(p.ops, op{kind: opSkip, detail: &detail{skip: f.node, path: path}})
			continue
		}
		if err := p.add(s.fields[i], f.node, offset+s.offsets[i], path); err != nil {
			return err
		}
	}
	return nil
}

func orValue(path string) string {
	if path == "" {
		return "the value"
	}
	return path
}

func log2(size uintptr) opKind {
	switch size {
	case 1:
		return 0
	case 2:
		return 1
	case 4:
		return 2
	}
	return 3
}

// sliceHeader is a slice of any type in memory.
type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

// makeSlice returns the memory of n > 0 zero elements of the slice op o. What
// holds no pointers needs no type, and so no reflection.
func (o *op) makeSlice(n int) unsafe.Pointer {
	switch {
	case o.noscan:
		words := (uintptr(n)*o.stride + 7) / 8
		return unsafe.Pointer(unsafe.SliceData(make([]uint64, max(words, 1))))
	case o.typ.Elem().Kind() == reflect.String:
		return unsafe.Pointer(unsafe.SliceData(make([]string, n)))
	}
	return reflect.MakeSlice(o.typ, n, n).UnsafePointer()
}

// maxElems is the most elements whose memory an int can count.
func (o *op) maxElems() uint64 {
	if o.stride == 0 {
		return math.MaxInt32
	}
	return uint64(math.MaxInt) / uint64(o.stride) / 2
}

// noescape hides p from escape analysis, which gives up at the calls inside a
// plan and would move every value to the heap. The caller sees to it that
// nothing keeps p after the call: only plans that are plain get such a pointer. While the
// address is a number the stack must not move, so there is no call in between, not even one of
// the race detector's.
//
//go:nosplit
//go:norace
//go:nocheckptr
func noescape(p unsafe.Pointer) unsafe.Pointer {
	x := uintptr(p)
	return *(*unsafe.Pointer)(unsafe.Pointer(&x))
}
