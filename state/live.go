package state

import (
	"fmt"
	"reflect"

	"github.com/thalweg/thalweg/topic/codec"
)

// live is what Table and WindowTable have in common: the way to the store, and
// the account of what they hold.
type live[V any] struct {
	store  *Store
	codec  codec.Codec[V]
	share  cacheShare
	ledger *ledger
	budget int64 // zero means none
	err    error // fault met while the table was made; returned by every call

	buf      []byte // key and value of the entry being encoded
	schema   bool   // the changelog has the codec's schema, or there is none
	pointers bool   // V points to memory that the ledger does not see
	encoded  int64  // average size of an encoded value, when pointers
}

func newLive[V any](s *Store, c codec.Codec[V]) live[V] {
	l := live[V]{
		store:    s,
		codec:    c,
		share:    newCacheShare(s.o.Cache),
		ledger:   &ledger{base: s.Mark()},
		pointers: hasPointers(reflect.TypeFor[V]()),
	}
	l.schema, l.err = loadSchemas(s, c)
	return l
}

// Err is a fault met while the table was made, which every call returns: what is
// stored cannot be read with the codec, above all.
func (l *live[V]) Err() error { return l.err }

// hasPointers tells whether a value of type t refers to memory outside of it.
func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return false
	case reflect.Array:
		return t.Len() > 0 && hasPointers(t.Elem())
	case reflect.Struct:
		for field := range t.Fields() {
			if hasPointers(field.Type) {
				return true
			}
		}
		return false
	}
	return true
}

// load brings the value of a state key from the cache or the store.
func (l *live[V]) load(hash uint64, stateKey []byte) (v V, ok bool, err error) {
	if value := l.share.take(hash, stateKey); value != nil {
		return *value.(*V), true, nil
	}
	encoded, ok, err := l.store.Get(stateKey)
	if err != nil || !ok {
		return v, false, err
	}
	v, err = l.decode(stateKey, encoded)
	return v, err == nil, err
}

func (l *live[V]) decode(stateKey, encoded []byte) (V, error) {
	v, err := l.codec.Decode(encoded)
	if err != nil {
		return v, l.store.wrap(fmt.Sprintf("decode the value of key %x", stateKey), err)
	}
	l.sized(len(encoded))
	return v, nil
}

// sized takes the size of one encoded value into the average.
func (l *live[V]) sized(n int) {
	if l.pointers {
		l.encoded += (int64(n) - l.encoded) / 8
		if l.encoded == 0 {
			l.encoded = int64(n)
		}
	}
}

// begin starts a barrier: the schema goes before the first value written under it.
func (l *live[V]) begin(put func(key, value []byte) error) error {
	if l.err != nil || l.schema || l.ledger.dirty == 0 {
		return l.err
	}
	if err := putSchema(l.codec, put); err != nil {
		return err
	}
	l.schema = true
	return nil
}

// write encodes the entry and hands it to put. l.buf holds the key.
func (l *live[V]) write(e *entry[V], put func(key, value []byte) error) error {
	n := len(l.buf)
	if e.flags&flagDeleted != 0 {
		return put(l.buf, nil)
	}
	buf, err := l.codec.Append(append(l.buf, valueVersion), e.value)
	if err != nil {
		return l.store.wrap(fmt.Sprintf("encode the value of key %x", l.buf[1:n]), err)
	}
	l.buf = buf
	l.sized(len(buf) - n - 1)
	return put(buf[:n:n], buf[n:])
}

// evicted hands a value that leaves the overlay to the cache.
func (l *live[V]) evicted(hash uint64, stateKey []byte, e *entry[V]) {
	if l.share.cache == nil {
		return
	}
	l.share.left(hash, e.change)
	v := e.value
	l.share.put(hash, stateKey, &v, l.ledger.passed, l.ledger.entrySize+l.encoded)
}

func (l *live[V]) bytes(used int) int64 { return l.ledger.bytes() + l.encoded*int64(used) }

// unsettled is the memory of entries that cannot leave the overlay.
func (l *live[V]) unsettled() int64 {
	const slot = 12 // 8 bytes at three quarters full, and some
	return l.ledger.unsettled() * (l.ledger.entrySize + l.encoded + slot)
}
