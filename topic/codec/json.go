package codec

import (
	"encoding"
	jsonv1 "encoding/json"
	json "encoding/json/v2"
	"reflect"
)

// jsonOptions make equal values equal bytes (maps are sorted by key), and write
// a time.Duration as its nanoseconds, which version 2 leaves undefined.
var jsonOptions = json.JoinOptions(json.Deterministic(true), jsonv1.FormatDurationAsNano(true))

// JSON returns a codec that writes T as JSON by the rules of encoding/json/v2:
// names are case-sensitive, unexported fields are left out, a nil slice or map
// is an empty one, and Decode refuses what follows the value. Codecs
// registered for types inside T have no say in it.
//
// A T that JSON cannot write makes a codec whose methods return the error.
func JSON[T any]() Codec[T] {
	t := reflect.TypeFor[T]()
	return jsonCodec[T]{err: jsonFault(t, t, "", nil)}
}

type jsonCodec[T any] struct{ err error }

// Err is the fault that every call will return, or nil.
func (c jsonCodec[T]) Err() error { return c.err }

func (c jsonCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	if c.err != nil {
		return dst, c.err
	}
	b, err := json.Marshal(&v, jsonOptions)
	if err != nil {
		return dst, err
	}
	return append(dst, b...), nil
}

func (c jsonCodec[T]) Decode(src []byte) (v T, err error) {
	if c.err != nil {
		return v, c.err
	}
	if err := json.Unmarshal(src, &v, jsonOptions); err != nil {
		var zero T
		return zero, wrapDecode[T](err)
	}
	return v, nil
}

var (
	jsonMarshaler   = reflect.TypeFor[json.Marshaler]()
	jsonMarshalerTo = reflect.TypeFor[json.MarshalerTo]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textAppender    = reflect.TypeFor[encoding.TextAppender]()
)

// jsonFault returns why JSON cannot keep a t, found at path inside root, or
// nil. It looks at types only, so that a fault shows when the codec is made and
// not at the first value that reaches the field. seen holds the types above t.
func jsonFault(root, t reflect.Type, path string, seen []reflect.Type) error {
	fault := func(reason string) error {
		return &TypeError{Type: root.String(), Field: path, Reason: reason}
	}
	if isProto(t) {
		return fault(protoReason)
	}
	for _, s := range seen {
		if s == t {
			return nil
		}
	}
	seen = append(seen, t)
	if t == timeType {
		return nil
	}
	for _, m := range []struct {
		iface reflect.Type
		name  string
	}{{jsonMarshalerTo, "MarshalJSONTo"}, {jsonMarshaler, "MarshalJSON"}, {textAppender, "AppendText"}, {textMarshaler, "MarshalText"}} {
		if !implements(t, m.iface) {
			continue
		}
		if from := inheritsMethod(t, m.name); from != "" {
			return fault("it embeds " + from + " and so inherits its " + m.name +
				", which leaves the other fields out; give the embedded field a name, or register a codec with Use")
		}
		return nil
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128:
		return fault("JSON cannot write a " + t.Kind().String() + "; register a codec with Use")
	case reflect.Interface:
		if t.NumMethod() > 0 || path == "" {
			return fault(interfaceReason)
		}
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return jsonFault(root, t.Elem(), path+elemSuffix(t), seen)
	case reflect.Map:
		switch k := t.Key(); {
		case implements(k, textMarshaler), k.Kind() == reflect.String, k.Kind() == reflect.Interface,
			k.Kind() >= reflect.Int && k.Kind() <= reflect.Float64:
		default:
			return fault("JSON cannot write map keys of type " + k.String() + "; register a codec with Use")
		}
		return jsonFault(root, t.Elem(), path+elemSuffix(t), seen)
	case reflect.Struct:
		kept := t.NumField() == 0
		for f := range t.Fields() {
			if f.Tag.Get("json") == "-" {
				kept = true // left out on purpose
				continue
			}
			if !f.IsExported() && !f.Anonymous {
				continue
			}
			kept = true
			if err := jsonFault(root, f.Type, path+"."+f.Name, seen); err != nil {
				return err
			}
		}
		if !kept {
			return fault("all its fields are unexported, so JSON would write none; register a codec with Use, such as Struct")
		}
	}
	return nil
}

// elemSuffix is what the elements of t add to a path.
func elemSuffix(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		return ""
	}
	return "[]"
}
