package codec

// Codec encodes and decodes T. Both methods may be called concurrently.
type Codec[T any] interface {
	// Append appends the encoding of v to dst and returns the extended slice.
	// It keeps neither. No bytes at all is an encoding like any other.
	// On an error the returned slice is dst or nil and must not be used.
	Append(dst []byte, v T) ([]byte, error)

	// Decode decodes all of src, which is valid during the call only: what is
	// kept is copied. Bytes it cannot decode are an error, never a panic.
	Decode(src []byte) (T, error)
}

// Provider is a type that brings its own codec. Codec is called once per use
// of the type, on its zero value, and asks r for the codecs of the types inside
// it, never for that of the type itself.
type Provider[T any] interface {
	Codec(r *Registry) (Codec[T], error)
}

// Schemed is a codec whose bytes only mean something together with a schema.
// Whoever keeps the bytes keeps Schema beside them, and hands every schema it
// has kept to AddSchema before the first Decode. Codecs made by Struct have it.
type Schemed interface {
	// Schema describes what Append writes. It is the same for the same type in
	// every process.
	Schema() []byte

	// AddSchema lets Decode read what was written under an older schema. It
	// fails with ErrSchemaChanged, naming the field, when the two do not fit.
	// Adding the same schema again is no error. It may be called concurrently.
	AddSchema(schema []byte) error
}

// Of returns the default codec of T for topics. It is short for Of of an empty
// Registry.
func Of[T any]() (Codec[T], error) { return (*Registry)(nil).Of[T]() }

// Func returns a codec made of two functions, which follow the rules of Append
// and Decode. Decode errors gain the name of the type.
func Func[T any](enc func([]byte, T) ([]byte, error), dec func([]byte) (T, error)) Codec[T] {
	return funcCodec[T]{enc: enc, dec: dec}
}

type funcCodec[T any] struct {
	enc func([]byte, T) ([]byte, error)
	dec func([]byte) (T, error)
}

func (c funcCodec[T]) Append(dst []byte, v T) ([]byte, error) { return c.enc(dst, v) }

func (c funcCodec[T]) Decode(src []byte) (T, error) {
	v, err := c.dec(src)
	if err != nil {
		return v, wrapDecode[T](err)
	}
	return v, nil
}
