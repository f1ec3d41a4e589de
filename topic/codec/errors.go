package codec

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// ErrUnknownSchema is matched by the error of Decode for a value whose schema
// the codec was not given.
var ErrUnknownSchema = errors.New("codec: unknown schema")

// ErrSchemaChanged is matched by the error of AddSchema for a schema whose
// values cannot become the type of today.
var ErrSchemaChanged = errors.New("codec: schema changed")

// DecodeError says why bytes are not an encoding of a type.
type DecodeError struct {
	Type  string // the Go type asked for
	Field string // where in it, such as ".Lines[].Qty"; empty for all of it

	// Want and Got are lengths in bytes. Want is -1 where the length was not
	// the trouble.
	Want, Got int

	Err error // what else was wrong; nil when the length says all
}

func (e *DecodeError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "codec: decode %s%s: ", e.Type, e.Field)
	if e.Want >= 0 {
		fmt.Fprintf(&b, "want %d bytes, got %d", e.Want, e.Got)
		if e.Err != nil {
			b.WriteString(": ")
		}
	}
	if e.Err != nil {
		b.WriteString(strings.TrimPrefix(e.Err.Error(), "codec: "))
	}
	return b.String()
}

func (e *DecodeError) Unwrap() error { return e.Err }

// TypeError says why a type has no codec.
type TypeError struct {
	Type   string // the Go type asked for
	Field  string // where in it the trouble is; empty for the type itself
	Reason string // what is wrong and what to do
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("codec: no codec for %s%s: %s", e.Type, e.Field, e.Reason)
}

// wrapDecode makes err a DecodeError of T unless it is one already.
func wrapDecode[T any](err error) error {
	if _, ok := errors.AsType[*DecodeError](err); ok {
		return err
	}
	return &DecodeError{Type: reflect.TypeFor[T]().String(), Want: -1, Err: err}
}
