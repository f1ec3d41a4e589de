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
	in, t, ok := opened[*kvTable[K, V]](scope, s)
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
	if in, t, ok := opened[*kvTable[K, V]](scope, s); ok {
		t.put(in, k, func(V, bool) V { return v })
	}
}

// Update makes what f returns the value of k. f gets the value there is, which it may
// change in place, or the zero value and false.
func (s KV[K, V]) Update(scope Scope, k K, f func(v V, ok bool) V) {
	if in, t, ok := opened[*kvTable[K, V]](scope, s); ok {
		t.put(in, k, f)
	}
}

// Delete removes k.
func (s KV[K, V]) Delete(scope Scope, k K) {
	if in, t, ok := opened[*kvTable[K, V]](scope, s); ok {
		t.remove(in, k)
	}
}

// Range walks the entries of the task with keys in [lo, hi), in the order of their encoded
// keys. The loop may call the methods of the store: what it adds may come or not, what it
// deletes comes no more. It looks at all that is in memory, so it is not for each record.
func (s KV[K, V]) Range(scope Scope, lo, hi K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		in, t, ok := opened[*kvTable[K, V]](scope, s)
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
		if in, t, ok := opened[*kvTable[K, V]](scope, s); ok {
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
	if store == nil {
		t.Table = NewVolatileTable[timed[V]](t.cells)
	} else {
		t.Table = NewTable[timed[V]](store, t.cells)
	}
	if expiry != nil {
		t.expiry = expiry.Queue(0)
	}
	if s.spec.Owner != nil {
		if t.owner, err = s.spec.Owner.Open(r); err != nil {
			return nil, fmt.Errorf("state: store %q: %w", s.name, err)
		}
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
	t := &kvTable[K, V]{name: s.name, spec: s.spec, keys: keys, values: values, mutable: hasPointers(reflect.TypeFor[V]())}
	cells := timedCodec[V]{values}
	t.cells = cells
	if inner, ok := values.(codec.Schemed); ok {
		t.cells = schemedTimed[V]{cells, inner}
	}
	return t, nil
}

// timed is a value and when it was put, in ms, by the clock of its TTL.
type timed[V any] struct {
	time  int64
	value V
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
	*Table[timed[V]]
	name    string
	spec    Spec
	owner   func(key []byte) ([]byte, error) // nil where any call may touch any entry
	keys    codec.Codec[K]
	values  codec.Codec[V]
	cells   codec.Codec[timed[V]]
	mutable bool        // a value may be changed through what Get returned
	expiry  *TimerQueue // nil without a TTL
	buf     []byte
}

func (t *kvTable[K, V]) fail(in Call, doing string, err error) {
	in.Fail(fmt.Errorf("state: store %q: %s: %w", t.name, doing, err))
}

func (t *kvTable[K, V]) encode(in Call, k K) (key []byte, hash uint64, ok bool) {
	var err error
	if t.buf, err = t.keys.Append(t.buf[:0], k); err != nil {
		t.fail(in, "encode a key", err)
		return nil, 0, false
	}
	return t.buf, Hash(t.buf), t.owned(in, t.buf)
}

// over tells whether a value that was put at the given time has had its time.
func (t *kvTable[K, V]) over(time, now int64) bool {
	return t.spec.TTL > 0 && time+t.spec.TTL.Milliseconds() <= now
}

func (t *kvTable[K, V]) get(in Call, k K) (*timed[V], bool) {
	key, hash, ok := t.encode(in, k)
	if !ok {
		return nil, false
	}
	c, ok, err := t.Table.Get(hash, key)
	if err != nil {
		t.fail(in, "get", err)
		return nil, false
	}
	if !ok || t.over(c.time, in.Instant(t.spec.Wall)) {
		return nil, false
	}
	if t.mutable && in.Undoes() {
		t.backup(in, hash, key, c)
	}
	return c, true
}

// backup registers what brings the entry back to what it is; c is nil where there is none.
func (t *kvTable[K, V]) backup(in Call, hash uint64, key []byte, c *timed[V]) {
	own := append([]byte(nil), key...)
	if c == nil {
		in.Undo(func() {
			if err := t.Table.Delete(hash, own); err != nil {
				t.fail(in, "take a change back", err)
			}
		})
		return
	}
	time := c.time
	encoded, err := t.values.Append(nil, c.value)
	if err != nil {
		t.fail(in, "keep what a value is before it changes", err)
		return
	}
	in.Undo(func() {
		c, _, err := t.Table.Update(hash, own)
		if err == nil {
			c.time = time
			c.value, err = t.values.Decode(encoded)
		}
		if err != nil {
			t.fail(in, "take a change back", err)
		}
	})
}

func (t *kvTable[K, V]) put(in Call, k K, f func(V, bool) V) {
	key, hash, ok := t.encode(in, k)
	if !ok {
		return
	}
	now := in.Instant(t.spec.Wall)
	c, existed, err := t.Table.Get(hash, key)
	if err == nil && in.Undoes() {
		t.backup(in, hash, key, c)
	}
	if err == nil {
		c, _, err = t.Table.Update(hash, key)
	}
	if err != nil {
		t.fail(in, "put", err)
		return
	}
	alive := existed && !t.over(c.time, now)
	if !alive {
		var none V
		c.value = none
	}
	v := f(c.value, alive)
	if key, hash, ok = t.encode(in, k); !ok { // f may have called the store
		return
	}
	if c, _, err = t.Table.Update(hash, key); err != nil {
		t.fail(in, "put", err)
		return
	}
	c.value, c.time = v, max(c.time, now)
	if t.expiry != nil && !existed {
		if err := t.expiry.Add(now+t.spec.TTL.Milliseconds(), key, 0); err != nil {
			t.fail(in, "set the time to live", err)
		}
	}
}

func (t *kvTable[K, V]) remove(in Call, k K) {
	key, hash, ok := t.encode(in, k)
	if !ok {
		return
	}
	if in.Undoes() {
		c, ok, err := t.Table.Get(hash, key)
		if err != nil {
			t.fail(in, "delete", err)
			return
		}
		if ok {
			t.backup(in, hash, key, c)
		}
	}
	if err := t.Table.Delete(hash, key); err != nil {
		t.fail(in, "delete", err)
	}
}

func (t *kvTable[K, V]) walk(in Call, lo, hi []byte, yield func(K, V) bool) {
	now := in.Instant(t.spec.Wall)
	err := t.Table.Scan(lo, hi, func(key []byte, c *timed[V]) bool {
		if t.over(c.time, now) {
			return true
		}
		k, err := t.keys.Decode(key)
		if err != nil {
			t.fail(in, "decode a key", err)
			return false
		}
		if t.mutable && in.Undoes() {
			t.backup(in, Hash(key), key, c)
		}
		return yield(k, c.value) && in.Err() == nil
	})
	if err != nil {
		t.fail(in, "walk", err)
	}
}

// Expire removes entries whose time is over. An entry has one timer at least, at or before
// the end of its time; one that was put again meanwhile gets another.
func (t *kvTable[K, V]) Expire(now int64) error {
	if t.expiry == nil {
		return nil
	}
	return t.expiry.Pop(now, func(_ int64, key []byte, _ uint8) error {
		hash := Hash(key)
		c, ok, err := t.Table.Get(hash, key)
		switch {
		case err != nil || !ok:
			return err
		case t.over(c.time, now):
			return t.Table.Delete(hash, key)
		}
		return t.expiry.Add(c.time+t.spec.TTL.Milliseconds(), key, 0)
	})
}

// NextExpiry is the time of the first timer.
func (t *kvTable[K, V]) NextExpiry() (at int64, ok bool, err error) {
	if t.expiry == nil {
		return 0, false, nil
	}
	return t.expiry.Next()
}
