package state

import (
	"encoding/binary"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/thalweg/thalweg/topic/codec"
)

// KV is a handle on a store of values by key, for functions given to Process. It is a
// plain value: declare it as a package variable, give it to Process, and call its methods
// with the context of a call.
//
// Each task of the step has a store of its own. What the calls of one task put is what
// the calls of that task find, whatever the key of their records: keys of the store are the
// program's. Records of one group are always in one task. Keyed and KeyedBy say that each entry
// belongs to one key of the step; then the step can go on in another number of tasks, too.
//
// Methods return no errors. The first failure is kept in the context, later ones do
// nothing, and the call's effects are dropped when it returns.
//
// Values are live: what Get returns shares maps, slices and pointers with the store.
// Change them only to Put them back, or in Update.
type KV[K, V any] struct {
	name string
	spec Spec
}

// NewKV declares a store. Its name is unique in the step that uses it, whose own name
// comes before it in directory and changelog.
func NewKV[K, V any](name string) KV[K, V] { return KV[K, V]{name: name} }

// TTL lets an entry live until d after it was last put, in event time: it is gone for a
// call whose record is that much later, and is removed once the watermark is.
func (s KV[K, V]) TTL(d time.Duration) KV[K, V] {
	s.spec.ttl(d, false)
	return s
}

// WallTTL is TTL by the node's clock.
func (s KV[K, V]) WallTTL(d time.Duration) KV[K, V] {
	s.spec.ttl(d, true)
	return s
}

// On keeps the store in another backend than the node's.
func (s KV[K, V]) On(b Backend) KV[K, V] {
	s.spec.Backend = b
	return s
}

// NoChangelog keeps the store in memory only: each run of the job, and what goes on after a
// rollback, begin with an empty one. For what may be forgotten, such as a cache.
func (s KV[K, V]) NoChangelog() KV[K, V] {
	s.spec.NoChangelog = true
	return s
}

// Keyed says that the keys of the store are those of the step, as Context.Key gives them: a call
// that touches an entry of another one fails. When the step gets another number of tasks
// (stream.Topology.Tasks), entries move with their key; a store that is not keyed cannot
// move.
func (s KV[K, V]) Keyed() KV[K, V] {
	s.spec.Owner = itself[K]()
	return s
}

// KeyedBy is Keyed where of tells to which key of the step a key of the store belongs, as the user of a
// (user, item). It must be a function of its argument.
func (s KV[K, V]) KeyedBy[O any](of func(K) O) KV[K, V] {
	if s.spec.Owner = nil; of == nil {
		s.spec.fault = "KeyedBy needs a function, not nil"
		return s
	}
	s.spec.Owner = ownedBy(of)
	return s
}

// Name is the name given to NewKV.
func (s KV[K, V]) Name() string { return s.name }

// Spec is how the store is kept.
func (s KV[K, V]) Spec() Spec { return s.spec }

// Get returns the value of k; ok is false where there is none.
func (s KV[K, V]) Get(scope Scope, k K) (v V, ok bool) {
	in, t, ok := opened[*kvTable[K, V]](scope, s.name)
	if !ok {
		return v, false
	}
	c, ok := t.get(in, k)
	if !ok {
		return v, false
	}
	return c.value, true
}

// Put makes v the value of k.
func (s KV[K, V]) Put(scope Scope, k K, v V) {
	if in, t, ok := opened[*kvTable[K, V]](scope, s.name); ok {
		t.put(in, k, func(V, bool) V { return v })
	}
}

// Update makes what f returns the value of k. f gets the value there is, which it may
// change in place, or the zero value and false.
func (s KV[K, V]) Update(scope Scope, k K, f func(v V, ok bool) V) {
	if in, t, ok := opened[*kvTable[K, V]](scope, s.name); ok {
		t.put(in, k, f)
	}
}

// Delete removes k.
func (s KV[K, V]) Delete(scope Scope, k K) {
	if in, t, ok := opened[*kvTable[K, V]](scope, s.name); ok {
		t.remove(in, k)
	}
}

// Range walks the entries of the task with keys in [lo, hi), in the order of their encoded
// keys. The loop may call the methods of the store: what it adds may come or not, what it
// deletes comes no more. It looks at all that is in memory, so it is not for each record.
func (s KV[K, V]) Range(scope Scope, lo, hi K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		in, t, ok := opened[*kvTable[K, V]](scope, s.name)
		if !ok {
			return
		}
		from, err := t.keys.Append(nil, lo)
		var to []byte
		if err == nil {
			to, err = t.keys.Append([]byte{}, hi)
		}
		if err != nil {
			in.Fail(fmt.Errorf("state: store %q: encode a key: %w", s.name, err))
			return
		}
		t.walk(in, from, to, yield)
	}
}

// All walks all entries of the task; see Range.
func (s KV[K, V]) All(scope Scope) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if in, t, ok := opened[*kvTable[K, V]](scope, s.name); ok {
			t.walk(in, nil, nil, yield)
		}
	}
}

// Open makes the table of one task.
func (s KV[K, V]) Open(store *Store, expiry *Timers, r *codec.Registry) (Opened, error) {
	t, err := s.table(r)
	if err != nil {
		return nil, err
	}
	if err := t.open(store, expiry, valuesOf(t.cells), r); err != nil {
		return nil, err
	}
	return t, nil
}

// table is the table of one task, which is not over a store yet.
func (s KV[K, V]) table(r *codec.Registry) (*kvTable[K, V], error) {
	keys, err := r.Inner[K]()
	if err != nil {
		return nil, fmt.Errorf("state: store %q: no codec for the key: %w", s.name, err)
	}
	values, err := r.Inner[V]()
	if err != nil {
		return nil, fmt.Errorf("state: store %q: no codec for the value: %w", s.name, err)
	}
	cells := timedCodec[V]{values}
	t := &kvTable[K, V]{
		timedTable: timedTable{name: s.name, spec: s.spec, mutable: hasPointers(reflect.TypeFor[V]())},
		keys:       keys, cells: cells,
	}
	if inner, ok := values.(codec.Schemed); ok {
		t.cells = schemedTimed[V]{cells, inner}
	}
	return t, nil
}

// timed is a value and when it was put.
type timed[V any] struct {
	stamp
	value V
}

// stamp is how each timed value begins, so that valueOf[stamp] is the stamp of an entry whatever
// its V.
type stamp struct {
	time int64 // ms, by the clock of the TTL
}

// timedCodec is the encoding of a timed value:
//
//	varint  when it was put, ms since the epoch
//	rest    the value, in its own codec
type timedCodec[V any] struct{ value codec.Codec[V] }

func (c timedCodec[V]) Append(dst []byte, v timed[V]) ([]byte, error) {
	return c.value.Append(binary.AppendVarint(dst, v.time), v.value)
}

func (c timedCodec[V]) Decode(src []byte) (v timed[V], err error) {
	time, n := binary.Varint(src)
	if n <= 0 {
		return v, fmt.Errorf("state: value of %d bytes has no time", len(src))
	}
	v.time = time
	v.value, err = c.value.Decode(src[n:])
	return v, err
}

type schemedTimed[V any] struct {
	timedCodec[V]
	codec.Schemed
}

// kvTable is a KV in one task.
type kvTable[K, V any] struct {
	timedTable
	keys  codec.Codec[K]
	cells codec.Codec[timed[V]]
}

// encode returns the key of k, valid until the next call.
func (t *kvTable[K, V]) encode(in Call, k K) (key []byte, hash uint64, ok bool) {
	var err error
	if t.buf, err = t.keys.Append(t.buf[:0], k); err != nil {
		t.fail(in, "encode a key", err)
		return nil, 0, false
	}
	return t.buf, Hash(t.buf), t.owned(in, t.buf)
}

func (t *kvTable[K, V]) get(in Call, k K) (*timed[V], bool) {
	key, hash, ok := t.encode(in, k)
	if !ok {
		return nil, false
	}
	e := t.read(in, hash, key)
	if e == nil {
		return nil, false
	}
	return valueOf[timed[V]](e), true
}

func (t *kvTable[K, V]) put(in Call, k K, f func(V, bool) V) {
	key, hash, ok := t.encode(in, k)
	if !ok {
		return
	}
	now := in.Instant(t.spec.Wall)
	e, existed, ok := t.write(in, hash, key)
	if !ok {
		return
	}
	c := valueOf[timed[V]](e)
	alive := existed && !t.over(c.time, now)
	if !alive {
		var none V
		c.value = none
	}
	v := f(c.value, alive)
	if key, hash, ok = t.encode(in, k); !ok { // f may have called the store
		return
	}
	if e = t.renew(in, hash, key, now, existed); e != nil {
		valueOf[timed[V]](e).value = v
	}
}

func (t *kvTable[K, V]) remove(in Call, k K) {
	if key, hash, ok := t.encode(in, k); ok {
		t.erase(in, hash, key)
	}
}

func (t *kvTable[K, V]) walk(in Call, lo, hi []byte, yield func(K, V) bool) {
	t.each(in, lo, hi, func(key []byte, e *entry) bool {
		k, err := t.keys.Decode(key)
		if err != nil {
			t.fail(in, "decode a key", err)
			return false
		}
		return yield(k, valueOf[timed[V]](e).value)
	})
}
