package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Struct returns the binary codec of a struct (an array, slice, map or pointer
// will do as well): its fields one after the other without their names, found
// by their offsets. It is several times as fast as JSON and half as long.
//
// All fields are written, exported or not, except those named _. Embedded
// structs are fields. Types inside T that have a codec of their own use it, the
// rest goes by structure: numbers, strings, bytes, bools, times, structs,
// arrays, slices, maps and pointers. Nil and empty slices and maps stay apart.
// Maps are written in the order of their keys' bytes, so equal values are equal
// bytes. Two pointers to one thing become two things. Types that contain
// themselves, interfaces, functions, channels, complex numbers and locks are
// errors, unless a codec is registered for them.
//
// # Schemas
//
// A value begins with a fingerprint of its schema: the names and kinds of the
// fields, as bytes from the method Schema. The codec returned is Schemed. Given
// the older schema, it decodes values written under it: a field that was added
// is zero, one that was removed is skipped, order is free, an integer may have
// become wider. A field that has another kind than before is an error when the
// schema is added; renaming one is removing it and adding another. A value
// whose schema was not added matches ErrUnknownSchema.
//
// State stores keep the schemas beside their data. A topic has no place for
// them; a codec on a topic therefore knows, without being told, the schemas T
// had before fields were added at its end. So: give a struct on a topic new
// fields at the end only, let readers have the new type before writers do, and
// hand the schema of anything older to Struct.
//
// A T that cannot be written, and an older schema that does not fit, make a
// codec whose methods return the error; its method Err tells beforehand.
func Struct[T any](older ...[]byte) Codec[T] {
	c := newStructCodec[T](nil)
	for _, schema := range older {
		if err := c.AddSchema(schema); err != nil {
			c.err = errors.Join(c.err, err)
		}
	}
	return c
}

// structCodec is the typed face of a layout.
type structCodec[T any] struct{ layout }

// structural marks codecs that describe their type by structure.
type structural interface{ structural() }

func newStructCodec[T any](r *Registry) *structCodec[T] {
	c := &structCodec[T]{}
	c.init(reflect.TypeFor[T](), r)
	return c
}

func (c *structCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	if c.err != nil {
		return dst, c.err
	}
	dst = binary.BigEndian.AppendUint32(dst, c.fingerprint)
	if c.own.plain {
		dst, err := c.own.append(dst, noescape(unsafe.Pointer(&v)))
		runtime.KeepAlive(&v)
		return dst, err
	}
	p := new(T)
	*p = v
	return c.own.append(dst, unsafe.Pointer(p))
}

func (c *structCodec[T]) Decode(src []byte) (v T, err error) {
	if c.own != nil && c.own.plain {
		if err := c.decode(src, noescape(unsafe.Pointer(&v))); err != nil {
			var zero T
			return zero, err
		}
		return v, nil
	}
	p := new(T)
	if err := c.decode(src, unsafe.Pointer(p)); err != nil {
		return v, err
	}
	return *p, nil
}

// layout is how values of one type are written, and which other ways of
// writing them it can read.
type layout struct {
	typ         reflect.Type
	err         error // why there is no layout; every call returns it
	shape       *shape
	own         *plan
	schema      []byte
	fingerprint uint32

	// prefixes are the fingerprints of the schemas of the first 0, 1, ...
	// fields of a struct.
	prefixes []uint32

	mu    sync.Mutex // held while older is replaced
	older atomic.Pointer[map[uint32]olderSchema]
}

type olderSchema struct {
	schema string
	plan   *plan
}

func (l *layout) init(t reflect.Type, r *Registry) {
	l.typ = t
	s := shaper{root: t, registry: r}
	if l.shape, l.err = s.shapeOf(t, ""); l.err != nil {
		return
	}
	if l.own, l.err = planOf(l.shape, l.shape.node, ""); l.err != nil {
		l.err = &TypeError{Type: t.String(), Reason: strings.TrimPrefix(l.err.Error(), ErrSchemaChanged.Error()+": ")}
		return
	}
	l.schema = appendSchema(nil, l.shape.node)
	l.fingerprint = fingerprintOf(l.schema)
	if l.shape.node.kind == kindStruct {
		for i := range l.shape.fields {
			l.prefixes = append(l.prefixes, fingerprintOf(l.prefix(i)))
		}
	}
	l.older.Store(&map[uint32]olderSchema{})
}

func (l *layout) structural() {}

// prefix is the schema of the first n fields.
func (l *layout) prefix(n int) []byte {
	return appendSchema(nil, &node{kind: kindStruct, fields: l.shape.node.fields[:n]})
}

// Err is the fault that every call will return, or nil.
func (l *layout) Err() error { return l.err }

// Schema implements Schemed. It is nil when there is a fault.
func (l *layout) Schema() []byte { return append([]byte(nil), l.schema...) }

// AddSchema implements Schemed.
func (l *layout) AddSchema(schema []byte) error {
	if l.err != nil {
		return l.err
	}
	if string(schema) == string(l.schema) {
		return nil
	}
	n, err := parseSchema(schema)
	if err != nil {
		return fmt.Errorf("codec: schema of %s: %w", l.typ, err)
	}
	p, err := planOf(l.shape, n, "")
	if err != nil {
		return fmt.Errorf("codec: schema of %s: %w", l.typ, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	older := *l.older.Load()
	fingerprint := fingerprintOf(schema)
	if have, ok := older[fingerprint]; ok && have.schema == string(schema) {
		return nil
	} else if ok || fingerprint == l.fingerprint {
		return fmt.Errorf("codec: schema of %s: %w: two schemas have the fingerprint %08x", l.typ, ErrSchemaChanged, fingerprint)
	}
	// Readers hold the map they loaded, so it is replaced, never changed.
	next := make(map[uint32]olderSchema, len(older)+1)
	for f, o := range older {
		next[f] = o
	}
	next[fingerprint] = olderSchema{schema: string(schema), plan: p}
	l.older.Store(&next)
	return nil
}

// decode decodes all of src into the zero value at p.
func (l *layout) decode(src []byte, p unsafe.Pointer) error {
	if l.err != nil {
		return l.err
	}
	if len(src) < fingerprintBytes {
		return &DecodeError{Type: l.typ.String(), Want: fingerprintBytes, Got: len(src), Err: errNoFingerprint}
	}
	plan := l.own
	if f := binary.BigEndian.Uint32(src); f != l.fingerprint {
		var err error
		if plan, err = l.planFor(f); err != nil {
			return &DecodeError{Type: l.typ.String(), Want: -1, Err: err}
		}
	}
	rest, err := plan.decode(src[fingerprintBytes:], p)
	if err != nil {
		return l.decodeError(err)
	}
	if len(rest) != 0 {
		return &DecodeError{Type: l.typ.String(), Want: len(src) - len(rest), Got: len(src), Err: errTrailing}
	}
	return nil
}

var (
	errNoFingerprint = errors.New("the fingerprint of a schema comes first")
	errTrailing      = errors.New("bytes follow the value")
)

func (l *layout) decodeError(err error) error {
	e, ok := err.(*fieldError)
	if !ok {
		return &DecodeError{Type: l.typ.String(), Want: -1, Err: err}
	}
	return &DecodeError{Type: l.typ.String(), Field: e.path, Want: e.want, Got: e.got, Err: e.err}
}

// planFor returns the plan for an older fingerprint. That of a prefix of our
// own fields is added at its first sight.
func (l *layout) planFor(fingerprint uint32) (*plan, error) {
	if o, ok := (*l.older.Load())[fingerprint]; ok {
		return o.plan, nil
	}
	for i, f := range l.prefixes {
		if f != fingerprint {
			continue
		}
		if err := l.AddSchema(l.prefix(i)); err != nil {
			return nil, err
		}
		return l.planFor(fingerprint)
	}
	return nil, fmt.Errorf("%w %08x; the type's own is %08x", ErrUnknownSchema, fingerprint, l.fingerprint)
}
