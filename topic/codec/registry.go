package codec

import (
	"reflect"
	"sync"
)

// Registry maps types to codecs. The zero value, and a nil Registry, have the
// defaults of the package comment. It may be used by many goroutines at once;
// a codec handed out is not changed by a later Use.
type Registry struct {
	// inner makes Of answer as Inner of base does: it is what a Provider
	// gets when the codec it makes is for our own eyes.
	inner bool
	base  *Registry

	mu    sync.RWMutex
	types map[reflect.Type]registered
}

// registered is one codec twice: as a Codec of its type, and for the inside of
// others, where the type is known to reflection only.
type registered struct {
	codec any
	op    opaque
}

// Use makes c the codec of T, in place of any other. It holds for T itself and,
// in the binary codec, for every T inside other types; JSON does not ask it.
func (r *Registry) Use[T any](c Codec[T]) {
	if r.base != nil {
		r = r.base
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.types == nil {
		r.types = make(map[reflect.Type]registered)
	}
	r.types[reflect.TypeFor[T]()] = registered{codec: c, op: erased[T]{codec: c}}
}

// Of returns the codec of T for topics, which others may read: JSON for what is
// not decided otherwise. The error is a *TypeError or what a Provider returned.
func (r *Registry) Of[T any]() (Codec[T], error) {
	if r != nil && r.inner {
		return r.Inner[T]()
	}
	if c, err := decided[T](r, r); c != nil || err != nil {
		return c, err
	}
	c := jsonCodec[T]{err: jsonFault(reflect.TypeFor[T](), reflect.TypeFor[T](), "", nil)}
	if c.err != nil {
		return nil, c.err
	}
	return c, nil
}

// Inner returns the codec of T for what only this application reads: state,
// changelogs, exchanges. It is Of's, except that the binary codec (see Struct)
// takes the place of JSON. What it returns may be Schemed.
func (r *Registry) Inner[T any]() (Codec[T], error) {
	if c, err := decided[T](r, r.asInner()); c != nil || err != nil {
		return c, err
	}
	c := newStructCodec[T](r)
	if c.err != nil {
		return nil, c.err
	}
	return c, nil
}

// decided returns the codec of T where Of and Inner do not differ, nil where
// they do. A Provider is asked with provide.
func decided[T any](r, provide *Registry) (Codec[T], error) {
	t := reflect.TypeFor[T]()
	if e, ok := r.lookup(t); ok {
		if c, ok := e.codec.(Codec[T]); ok {
			return c, nil
		}
		return nil, &TypeError{Type: t.String(), Reason: "Use was given a nil codec"}
	}
	if t.Kind() == reflect.Interface {
		return nil, &TypeError{Type: t.String(), Reason: interfaceReason}
	}
	if p, ok := providerOf[T](); ok {
		c, err := p.Codec(provide.orEmpty())
		if err == nil && c == nil {
			err = &TypeError{Type: t.String(), Reason: "its Codec method returned nil"}
		}
		return c, err
	}
	if isProto(t) || t.Kind() == reflect.Pointer && isProto(t.Elem()) {
		return nil, &TypeError{Type: t.String(), Reason: protoReason}
	}
	// A composite kind with methods is encoded by them; a simple kind is not,
	// and neither is a time.
	basic := basicOpOf(t)
	if basic != nil && basic.form != formArray {
		return basic.codec[T](), nil
	}
	if op := marshalOpOf(t); op != nil {
		return marshalCodec[T]{op: op}, nil
	}
	if basic != nil {
		return basic.codec[T](), nil
	}
	return nil, nil
}

// providerOf returns T's own Codec method, of the value or of a pointer to it.
func providerOf[T any]() (Provider[T], bool) {
	p := new(T)
	if v, ok := any(*p).(Provider[T]); ok {
		return v, true
	}
	v, ok := any(p).(Provider[T])
	return v, ok
}

func (r *Registry) lookup(t reflect.Type) (registered, bool) {
	if r == nil {
		return registered{}, false
	}
	if r.base != nil {
		return r.base.lookup(t)
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	e, ok := r.types[t]
	return e, ok
}

// asInner returns a view of r whose Of is Inner.
func (r *Registry) asInner() *Registry {
	if r != nil && r.inner {
		return r
	}
	return &Registry{inner: true, base: r}
}

// orEmpty spares providers the nil.
func (r *Registry) orEmpty() *Registry {
	if r == nil {
		return &Registry{}
	}
	return r
}
