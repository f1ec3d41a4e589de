package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
)

// ErrValueVersion is matched by the error of Decode for a value in a version that the codec
// was not told how to read.
var ErrValueVersion = errors.New("codec: unknown version of a value")

// VersionedCodec is a codec that writes a version in front of each value and reads older
// versions by functions of the program. It is a plain value; From returns a changed copy.
//
//	uvarint  version
//	rest     the value, in the codec of that version
//
// It suits state whose meaning changes, as where a number becomes a struct: what was written
// in an older version is read as that and brought up to date, and written in the new one when
// it changes next. Fields of a struct that come, go or change places need none of this;
// see Struct. State, and topics, that were written without versions cannot be told from those
// that have them: begin with versions, or give the step another name.
type VersionedCodec[T any] struct {
	version uint64
	codec   Codec[T]
	older   map[uint64]func(src []byte) (T, error)
	err     error
}

// Versioned writes version before each value, which c encodes. Versions are positive.
func Versioned[T any](version int, c Codec[T]) VersionedCodec[T] {
	v := VersionedCodec[T]{version: uint64(version), codec: c}
	switch {
	case version < 1:
		v.err = fmt.Errorf("codec: version %d of %s: use 1 or more", version, reflect.TypeFor[T]())
	case c == nil:
		v.err = fmt.Errorf("codec: version %d of %s has a nil codec", version, reflect.TypeFor[T]())
	}
	return v
}

// From reads values of an older version, which c decodes and up makes a T of.
func (v VersionedCodec[T]) From[Old any](version int, c Codec[Old], up func(Old) (T, error)) VersionedCodec[T] {
	fault := ""
	switch _, twice := v.older[uint64(version)]; {
	case c == nil || up == nil:
		fault = "has a nil codec or function"
	case version < 1 || uint64(version) >= v.version:
		fault = fmt.Sprintf("is not one before %d", v.version)
	case twice:
		fault = "is given twice"
	}
	if fault != "" {
		v.err = errors.Join(v.err, fmt.Errorf("codec: version %d of %s %s", version, reflect.TypeFor[T](), fault))
		return v
	}
	v.older = maps.Clone(v.older)
	if v.older == nil {
		v.older = make(map[uint64]func(src []byte) (T, error))
	}
	v.older[uint64(version)] = func(src []byte) (t T, err error) {
		old, err := c.Decode(src)
		if err != nil {
			return t, err
		}
		return up(old)
	}
	return v
}

// Err is what is wrong with the declaration; Append and Decode return it too.
func (v VersionedCodec[T]) Err() error { return v.err }

// Versioned marks a codec whose values tell their version, whatever type they were.
func (v VersionedCodec[T]) Versioned() {}

// Append writes the version and the value.
func (v VersionedCodec[T]) Append(dst []byte, t T) ([]byte, error) {
	if v.err != nil {
		return dst, v.err
	}
	return v.codec.Append(binary.AppendUvarint(dst, v.version), t)
}

// Decode reads a value of any version that the codec knows.
func (v VersionedCodec[T]) Decode(src []byte) (t T, err error) {
	if v.err != nil {
		return t, v.err
	}
	version, n := binary.Uvarint(src)
	if n <= 0 {
		return t, wrapDecode[T](errors.New("it has no version"))
	}
	if version == v.version {
		return v.codec.Decode(src[n:])
	}
	older, ok := v.older[version]
	if !ok {
		return t, wrapDecode[T](fmt.Errorf("%w: %d, and this one is %d; give older ones with From, and run newer ones with the program that wrote them", ErrValueVersion, version, v.version))
	}
	if t, err = older(src[n:]); err != nil {
		return t, fmt.Errorf("codec: bring a %s of version %d to %d: %w", reflect.TypeFor[T](), version, v.version, err)
	}
	return t, nil
}
