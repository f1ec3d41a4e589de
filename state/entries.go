package state

import (
	"fmt"

	"github.com/thalweg/thalweg/topic/codec"
)

// Entries is how what a handle keeps is read beside the tasks, out of images and changelogs.
type Entries[K, V any] struct {
	// Key is the codec of keys, whose encoding is the state key.
	Key codec.Codec[K]

	// Of are the entries in the encoded value of a state key, in their order.
	Of func(encoded []byte) ([]InTime[V], error)

	// Values is the codec of encoded values; it may be a codec.Schemed.
	Values any
}

// InTime is a value with its place in time, in ms: of a KV when it was put, by the clock of its
// TTL; of a Window its time; of a Session its span, both ends included; of a Versioned the time
// from which it is the value.
type InTime[V any] struct {
	From, To int64
	Value    V
}

// Series is a handle on a store of values by key and time: a Window, a Session or a Versioned.
type Series[K, V any] interface {
	Handle
	Entries(r *codec.Registry) (Entries[K, V], error)
}

// Entries is how entries are read beside the tasks: one of each state key.
func (s KV[K, V]) Entries(r *codec.Registry) (e Entries[K, V], err error) {
	t, err := s.table(r)
	if err != nil {
		return e, err
	}
	return Entries[K, V]{Key: t.keys, Values: t.cells, Of: func(encoded []byte) ([]InTime[V], error) {
		c, err := t.cells.Decode(encoded)
		return []InTime[V]{{c.time, c.time, c.value}}, err
	}}, nil
}

// Entries is how entries are read beside the tasks.
func (s Window[K, V]) Entries(r *codec.Registry) (Entries[K, V], error) {
	return entriesOf[K, V](s.name, s.spec, r)
}

// Entries is how entries are read beside the tasks.
func (s Session[K, V]) Entries(r *codec.Registry) (Entries[K, V], error) {
	return entriesOf[K, V](s.name, s.spec, r)
}

// Entries is how versions are read beside the tasks: those that say there is no value are left
// out.
func (s Versioned[K, V]) Entries(r *codec.Registry) (Entries[K, V], error) {
	return entriesOf[K, V](s.name, s.spec, r)
}

func entriesOf[K, V any](name string, spec Spec, r *codec.Registry) (e Entries[K, V], err error) {
	own, err := seriesCodecs[K, V](name, r)
	if err != nil {
		return e, err
	}
	t, err := KV[K, series[V]]{name: name, spec: spec}.table(own)
	if err != nil {
		return e, err
	}
	return Entries[K, V]{Key: t.keys, Values: t.cells, Of: func(encoded []byte) (all []InTime[V], err error) {
		c, err := t.cells.Decode(encoded)
		if err != nil {
			return nil, fmt.Errorf("state: store %q: %w", name, err)
		}
		for _, v := range c.value.entries {
			if !v.deleted {
				all = append(all, InTime[V]{v.from, v.to, v.value})
			}
		}
		return all, nil
	}}, nil
}
