package codec

import (
	"reflect"
	"unsafe"
)

// opaque is a codec whose type is known to reflection only: that of a type
// inside another that is not encoded by its structure. p points to a value of
// that type, on the heap.
type opaque interface {
	appendAt(dst []byte, p unsafe.Pointer) ([]byte, error)
	decodeAt(src []byte, p unsafe.Pointer) error
}

// eraser is a codec of this package, which can forget its type by itself.
type eraser interface{ erase() opaque }

// erased is a codec that has forgotten its type.
type erased[T any] struct{ codec Codec[T] }

func (e erased[T]) appendAt(dst []byte, p unsafe.Pointer) ([]byte, error) {
	return e.codec.Append(dst, *(*T)(p))
}

func (e erased[T]) decodeAt(src []byte, p unsafe.Pointer) error {
	v, err := e.codec.Decode(src)
	if err != nil {
		return err
	}
	*(*T)(p) = v
	return nil
}

func (c funcCodec[T]) erase() opaque    { return erased[T]{c} }
func (c jsonCodec[T]) erase() opaque    { return erased[T]{c} }
func (c marshalCodec[T]) erase() opaque { return c.op }
func (c basicCodec[T]) erase() opaque   { return c.op }
func (c stringCodec) erase() opaque     { return erased[string]{c} }
func (c bytesCodec) erase() opaque      { return erased[[]byte]{c} }
func (c int64Codec) erase() opaque      { return erased[int64]{c} }

// reflected calls a codec made elsewhere through reflection, record by record.
// It is only reached for a Provider inside another type whose codec this
// package did not make; Func or Use avoid it.
type reflected struct {
	t              reflect.Type
	append, decode reflect.Value
}

func (r reflected) appendAt(dst []byte, p unsafe.Pointer) ([]byte, error) {
	out := r.append.Call([]reflect.Value{reflect.ValueOf(dst), reflect.NewAt(r.t, p).Elem()})
	err, _ := out[1].Interface().(error)
	return out[0].Bytes(), err
}

func (r reflected) decodeAt(src []byte, p unsafe.Pointer) error {
	out := r.decode.Call([]reflect.Value{reflect.ValueOf(src)})
	if err, _ := out[1].Interface().(error); err != nil {
		return err
	}
	reflect.NewAt(r.t, p).Elem().Set(out[0])
	return nil
}

var (
	registryType = reflect.TypeFor[*Registry]()
	errorType    = reflect.TypeFor[error]()
	bytesType    = reflect.TypeFor[[]byte]()
)

// provided returns what the Codec method of t makes, as an interface value, or
// ok false when t is no Provider of itself.
func provided(t reflect.Type, r *Registry) (c any, ok bool, err error) {
	v := reflect.New(t)
	m := v.Elem().MethodByName("Codec")
	if !m.IsValid() {
		if m = v.MethodByName("Codec"); !m.IsValid() {
			return nil, false, nil
		}
	}
	mt := m.Type()
	if mt.NumIn() != 1 || mt.In(0) != registryType || mt.NumOut() != 2 || mt.Out(1) != errorType || !isCodecOf(mt.Out(0), t) {
		return nil, false, nil
	}
	out := m.Call([]reflect.Value{reflect.ValueOf(r)})
	if err, _ := out[1].Interface().(error); err != nil {
		return nil, true, err
	}
	if out[0].IsNil() {
		return nil, true, &TypeError{Type: t.String(), Reason: "its Codec method returned nil"}
	}
	return out[0].Interface(), true, nil
}

// isCodecOf tells whether c is the interface type Codec[t].
func isCodecOf(c, t reflect.Type) bool {
	if c.Kind() != reflect.Interface || c.NumMethod() != 2 {
		return false
	}
	a, ok := c.MethodByName("Append")
	if !ok || a.Type.NumIn() != 2 || a.Type.In(0) != bytesType || a.Type.In(1) != t {
		return false
	}
	d, ok := c.MethodByName("Decode")
	return ok && d.Type.NumOut() == 2 && d.Type.Out(0) == t && d.Type.Out(1) == errorType
}

// eraseCodec makes an opaque of c, a Codec[t].
func eraseCodec(c any, t reflect.Type) opaque {
	if e, ok := c.(eraser); ok {
		return e.erase()
	}
	v := reflect.ValueOf(c)
	return reflected{t: t, append: v.MethodByName("Append"), decode: v.MethodByName("Decode")}
}
