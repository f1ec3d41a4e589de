package codec

// Codec encodes and decodes T. Both methods may be called concurrently.
type Codec[T any] interface {
	// Append appends the encoding of v to dst.
	Append(dst []byte, v T) ([]byte, error)
	// Decode decodes src, which is valid during the call only: what is kept is copied.
	Decode(src []byte) (T, error)
}

// Provider is a type that brings its own codec.
type Provider[T any] interface {
	Codec(r *Registry) (Codec[T], error)
}

// Registry maps types to codecs; the zero value has the defaults.
type Registry struct{}

// Use makes c the codec of T.
func (r *Registry) Use[T any](c Codec[T]) { panic("todo") }

// Of returns the codec of T for topics: what others may read (JSON for structs). Nil is the empty registry.
func (r *Registry) Of[T any]() (Codec[T], error) { panic("todo") }

// Inner returns the codec of T for what only Thalweg reads: state, changelogs,
// exchanges. It differs from Of for structs, which use Struct.
func (r *Registry) Inner[T any]() (Codec[T], error) { panic("todo") }

// Of returns the default codec of T.
func Of[T any]() (Codec[T], error) { panic("todo") }

// Struct returns the binary codec of a struct type: a plan by field offsets, with field names once per ... see format.go.
func Struct[T any]() Codec[T] { panic("todo") }

// JSON returns a codec that writes T as JSON.
func JSON[T any]() Codec[T] { panic("todo") }

// Func returns a codec made of two functions.
func Func[T any](enc func([]byte, T) ([]byte, error), dec func([]byte) (T, error)) Codec[T] {
	panic("todo")
}
