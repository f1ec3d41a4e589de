package state

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/thalweg/thalweg/topic/codec"
)

// Owner tells to which of the keys that a step handles an entry of a store belongs: the one
// whose calls alone may touch it, and with which it moves when the step gets another number of
// tasks.
type Owner struct {
	keyType reflect.Type
	open    func(r *codec.Registry) (func(stored []byte) ([]byte, error), error)
}

// Type is the type of the keys of the step.
func (o *Owner) Type() reflect.Type { return o.keyType }

// Open returns what makes of an encoded key of the store the encoded key of the step that it
// belongs to, valid until the next call.
func (o *Owner) Open(r *codec.Registry) (func(stored []byte) ([]byte, error), error) {
	return o.open(r)
}

// itself says that the keys of the store are those of the step.
func itself[K any]() *Owner {
	return &Owner{reflect.TypeFor[K](), func(*codec.Registry) (func([]byte) ([]byte, error), error) {
		return func(stored []byte) ([]byte, error) { return stored, nil }, nil
	}}
}

// ownedBy says which key of the step a key of the store belongs to.
func ownedBy[K, O any](of func(K) O) *Owner {
	return &Owner{reflect.TypeFor[O](), func(r *codec.Registry) (func([]byte) ([]byte, error), error) {
		keys, err := r.Inner[K]()
		if err != nil {
			return nil, fmt.Errorf("no codec for the key: %w", err)
		}
		owners, err := r.Inner[O]()
		if err != nil {
			return nil, fmt.Errorf("no codec for the key of the step: %w", err)
		}
		var buf []byte
		return func(stored []byte) ([]byte, error) {
			k, err := keys.Decode(stored)
			if err != nil {
				return nil, fmt.Errorf("decode key: %w", err)
			}
			if buf, err = owners.Append(buf[:0], of(k)); err != nil {
				return nil, fmt.Errorf("encode the key of the step: %w", err)
			}
			return buf, nil
		}, nil
	}}
}

// owned fails the call where the store is keyed and the entry belongs to another key than that of the
// call.
func (t *timedTable) owned(in Call, key []byte) bool {
	if t.owner == nil {
		return true
	}
	own, err := t.owner(key)
	switch {
	case err != nil:
		t.fail(in, "find whose an entry is", err)
	case !bytes.Equal(own, in.Key()):
		t.fail(in, "touch an entry of another key", fmt.Errorf("the store is Keyed, and the entry belongs to key %x, while the call is for %x", own, in.Key()))
	default:
		return true
	}
	return false
}
