package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/thalweg/thalweg/topic/codec"
)

// series are the entries of one key in time: windows, sessions or versions. They are sorted by
// from, then to, and no two have both alike.
type series[V any] struct{ entries []spanned[V] }

// spanned is a value with its place in time, in ms, both ends included.
type spanned[V any] struct {
	from, to int64
	deleted  bool // a version that says there is no value from here on
	value    V
}

// find is where the entry [from, to] is, or would be.
func (s *series[V]) find(from, to int64) (i int, found bool) {
	i = sort.Search(len(s.entries), func(i int) bool {
		e := &s.entries[i]
		return e.from > from || e.from == from && e.to >= to
	})
	return i, i < len(s.entries) && s.entries[i].from == from && s.entries[i].to == to
}

// asOf is the newest entry that begins at t or before; negative where there is none.
func (s *series[V]) asOf(t int64) int {
	return sort.Search(len(s.entries), func(i int) bool { return s.entries[i].from > t }) - 1
}

// set makes v the value of [from, to].
func (s *series[V]) set(v spanned[V]) {
	i, found := s.find(v.from, v.to)
	if !found {
		s.entries = slices.Insert(s.entries, i, v)
		return
	}
	s.entries[i] = v
}

// seriesCodec is the encoding of the series of a key in stores and changelogs. For each entry:
//
//	varint   from, ms since the epoch, less that of the entry before
//	uvarint  to less from
//	uvarint  twice the length of the value, plus one where the entry says there is none
//	rest     the value, in its own codec
type seriesCodec[V any] struct{ value codec.Codec[V] }

var errSeries = errors.New("state: damaged entries of a key")

func (c seriesCodec[V]) Append(dst []byte, s series[V]) ([]byte, error) {
	var value []byte
	before := int64(0)
	for i := range s.entries {
		e := &s.entries[i]
		value = value[:0]
		if !e.deleted {
			var err error
			if value, err = c.value.Append(value, e.value); err != nil {
				return dst, err
			}
		}
		dst = binary.AppendVarint(dst, e.from-before)
		dst = binary.AppendUvarint(dst, uint64(e.to-e.from))
		size := uint64(len(value)) << 1
		if e.deleted {
			size |= 1
		}
		dst = append(binary.AppendUvarint(dst, size), value...)
		before = e.from
	}
	return dst, nil
}

func (c seriesCodec[V]) Decode(src []byte) (s series[V], err error) {
	before := int64(0)
	for len(src) > 0 {
		from, a := binary.Varint(src)
		span, b := binary.Uvarint(src[max(a, 0):])
		size, n := binary.Uvarint(src[max(a, 0)+max(b, 0):])
		if a <= 0 || b <= 0 || n <= 0 {
			return series[V]{}, errSeries
		}
		src = src[a+b+n:]
		e := spanned[V]{from: before + from, deleted: size&1 != 0}
		e.to = e.from + int64(span)
		if size >>= 1; size > uint64(len(src)) || e.to < e.from || e.deleted && size > 0 {
			return series[V]{}, errSeries
		}
		if last := len(s.entries) - 1; last >= 0 && (s.entries[last].from > e.from || s.entries[last].from == e.from && s.entries[last].to >= e.to) {
			return series[V]{}, errSeries
		}
		if !e.deleted {
			if e.value, err = c.value.Decode(src[:size:size]); err != nil {
				return series[V]{}, err
			}
		}
		s.entries = append(s.entries, e)
		before, src = e.from, src[size:]
	}
	return s, nil
}

type schemedSeries[V any] struct {
	seriesCodec[V]
	codec.Schemed
}

// lifetime tells how long the entries of a key live.
type lifetime[V any] interface {
	// gone is how many of the first entries have had their time at now. One that has had it
	// behind another that has not stays as long as that.
	gone(s *series[V], now, ttl int64) int
	// next is when gone may be more, once it was asked; ok is false where it never is.
	next(s *series[V], ttl int64) (at int64, ok bool)
}

// seriesTable is a store of series in one task.
type seriesTable[K, V any] struct {
	*kvTable[K, series[V]]
	life   lifetime[V]
	ttl    int64 // ms; zero is for ever
	wall   bool
	expiry *TimerQueue // nil without a TTL; a key with entries that will go has a timer, at or before the first of them goes
}

// seriesCodecs are the codecs of a store of series.
func seriesCodecs[K, V any](name string, r *codec.Registry) (*codec.Registry, error) {
	values, err := r.Inner[V]()
	if err != nil {
		return nil, fmt.Errorf("state: store %q: no codec for the value: %w", name, err)
	}
	var own codec.Registry
	keys, err := r.Inner[K]()
	if err != nil {
		return nil, fmt.Errorf("state: store %q: no codec for the key: %w", name, err)
	}
	own.Use(keys)
	coded := seriesCodec[V]{values}
	if inner, ok := values.(codec.Schemed); ok {
		own.Use[series[V]](schemedSeries[V]{coded, inner})
	} else {
		own.Use[series[V]](coded)
	}
	return &own, nil
}

// openSeries makes the table of one task.
func openSeries[K, V any](name string, spec Spec, life lifetime[V], store *Store, expiry *Timers, r *codec.Registry) (Opened, error) {
	own, err := seriesCodecs[K, V](name, r)
	if err != nil {
		return nil, err
	}
	t := &seriesTable[K, V]{life: life, ttl: spec.TTL.Milliseconds(), wall: spec.Wall}
	kept := spec
	kept.TTL = 0     // of entries, not of keys
	kept.Owner = nil // own does not have its codec
	kv, err := KV[K, series[V]]{name: name, spec: kept}.Open(store, nil, own)
	if err != nil {
		return nil, err
	}
	t.kvTable = kv.(*kvTable[K, series[V]])
	if err := t.keyed(spec.Owner, r); err != nil {
		return nil, err
	}
	if expiry != nil {
		t.expiry = expiry.Queue(0)
	}
	return t, nil
}

// entries are those of k that have not had their time, to be read.
func (t *seriesTable[K, V]) entries(in Call, k K) []spanned[V] {
	c, ok := t.get(in, k)
	if !ok {
		return nil
	}
	return t.alive(in, &c.value)
}

func (t *seriesTable[K, V]) alive(in Call, s *series[V]) []spanned[V] {
	if t.ttl == 0 {
		return s.entries
	}
	return s.entries[t.life.gone(s, in.Instant(t.wall), t.ttl):]
}

// late tells whether what ends at a time has had its time already: it is not kept, since what took
// its place may be forgotten.
func (t *seriesTable[K, V]) late(in Call, to int64) bool {
	return t.ttl > 0 && plus(to, t.ttl) <= in.Instant(t.wall)
}

// set makes v an entry of k, unless it is late.
func (t *seriesTable[K, V]) set(in Call, k K, v spanned[V]) (kept bool) {
	if t.late(in, v.to) {
		return false
	}
	t.change(in, k, func(s *series[V]) { s.set(v) })
	return in.Err() == nil
}

// change has f change the series of k, of which what has had its time is gone.
func (t *seriesTable[K, V]) change(in Call, k K, f func(s *series[V])) {
	empty := false
	t.put(in, k, func(s series[V], _ bool) series[V] {
		was := t.alive(in, &s)
		s.entries = append(make([]spanned[V], 0, len(was)+1), was...)
		f(&s)
		s.entries = t.alive(in, &s)
		t.schedule(in, k, &s)
		empty = len(s.entries) == 0
		return s
	})
	if empty && in.Err() == nil {
		t.remove(in, k)
	}
}

// drop removes the entry [from, to] of k.
func (t *seriesTable[K, V]) drop(in Call, k K, from, to int64) {
	if all := (series[V]{t.entries(in, k)}); in.Err() == nil {
		if _, found := all.find(from, to); !found {
			return
		}
		t.change(in, k, func(s *series[V]) {
			if i, found := s.find(from, to); found {
				s.entries = slices.Delete(s.entries, i, i+1)
			}
		})
	}
}

// schedule sets the timer of a key.
func (t *seriesTable[K, V]) schedule(in Call, k K, s *series[V]) {
	if t.expiry == nil {
		return
	}
	at, ok := t.life.next(s, t.ttl)
	if !ok {
		return
	}
	key, _, ok := t.encode(in, k)
	if !ok {
		return
	}
	if err := t.expiry.Add(at, key, 0); err != nil {
		t.fail(in, "set the time to live", err)
	}
}

// Expire removes the entries that have had their time.
func (t *seriesTable[K, V]) Expire(now int64) error {
	if t.expiry == nil {
		return nil
	}
	return t.expiry.Pop(now, func(_ int64, key []byte, _ uint8) error {
		hash := Hash(key)
		e, err := t.table.get(hash, key)
		if e == nil || err != nil {
			return err
		}
		s := &valueOf[timed[series[V]]](e).value
		if n := t.life.gone(s, now, t.ttl); n == len(s.entries) {
			return t.Delete(hash, key)
		} else if n > 0 {
			if e, _, err = t.update(hash, key); err != nil {
				return err
			}
			s = &valueOf[timed[series[V]]](e).value
			s.entries = slices.Clone(s.entries[n:])
		}
		if at, ok := t.life.next(s, t.ttl); ok {
			return t.expiry.Add(max(at, now+1), key, 0)
		}
		return nil
	})
}

// NextExpiry is the time of the first timer.
func (t *seriesTable[K, V]) NextExpiry() (at int64, ok bool, err error) {
	if t.expiry == nil {
		return 0, false, nil
	}
	return t.expiry.Next()
}

// byEnd lets an entry live until ttl after it ends.
type byEnd[V any] struct{}

func (byEnd[V]) gone(s *series[V], now, ttl int64) (n int) {
	for n < len(s.entries) && plus(s.entries[n].to, ttl) <= now {
		n++
	}
	return n
}

func (byEnd[V]) next(s *series[V], ttl int64) (at int64, ok bool) {
	if len(s.entries) == 0 {
		return 0, false
	}
	return plus(s.entries[0].to, ttl), true
}

// byVersion lets a version live until ttl after the next one took its place. One that
// says there is no value, and is the first, says nothing.
type byVersion[V any] struct{}

func (byVersion[V]) gone(s *series[V], now, ttl int64) (n int) {
	for n+1 < len(s.entries) && plus(s.entries[n+1].from, ttl) <= now {
		n++
	}
	if n < len(s.entries) && s.entries[n].deleted && plus(s.entries[n].from, ttl) <= now {
		n++
	}
	return n
}

func (byVersion[V]) next(s *series[V], ttl int64) (at int64, ok bool) {
	switch {
	case len(s.entries) > 0 && s.entries[0].deleted:
		return plus(s.entries[0].from, ttl), true
	case len(s.entries) > 1:
		return plus(s.entries[1].from, ttl), true
	}
	return 0, false
}

// plus is a+b for b >= 0, or the end of int64 it would have passed.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
