package state

import (
	"iter"
	"time"

	"github.com/thalweg/thalweg/topic/codec"
)

// Window is a handle on a store of values by key and time, such as the start of a window; see KV
// for what all handles have in common.
//
// All entries of a key are one value in memory and on disk, written anew by a checkpoint in
// which one of them has changed: for hundreds a key, not for hundreds of thousands. Times are of
// whole milliseconds, what is below is cut off.
type Window[K, V any] struct {
	name string
	spec Spec
}

// NewWindow declares a store. Its name is unique in the step that uses it.
func NewWindow[K, V any](name string) Window[K, V] { return Window[K, V]{name: name} }

// TTL lets an entry live until event time is d past its own, whenever it was put.
func (s Window[K, V]) TTL(d time.Duration) Window[K, V] {
	s.spec.ttl(d, false)
	return s
}

// WallTTL is TTL by the node's clock.
func (s Window[K, V]) WallTTL(d time.Duration) Window[K, V] {
	s.spec.ttl(d, true)
	return s
}

// On keeps the store in another backend than the node's.
func (s Window[K, V]) On(b Backend) Window[K, V] {
	s.spec.Backend = b
	return s
}

// NoChangelog keeps the store in memory only; see KV.NoChangelog.
func (s Window[K, V]) NoChangelog() Window[K, V] {
	s.spec.NoChangelog = true
	return s
}

// Keyed says that the keys of the store are those of the step; see KV.Keyed.
func (s Window[K, V]) Keyed() Window[K, V] {
	s.spec.Owner = itself[K]()
	return s
}

// KeyedBy says to which key of the step a key of the store belongs; see KV.KeyedBy.
func (s Window[K, V]) KeyedBy[O any](of func(K) O) Window[K, V] {
	if s.spec.Owner = nil; of == nil {
		s.spec.fault = "KeyedBy needs a function, not nil"
		return s
	}
	s.spec.Owner = ownedBy(of)
	return s
}

// Name is the name given to NewWindow.
func (s Window[K, V]) Name() string { return s.name }

// Spec is how the store is kept.
func (s Window[K, V]) Spec() Spec { return s.spec }

// Open makes the table of one task.
func (s Window[K, V]) Open(store *Store, expiry *Timers, r *codec.Registry) (Opened, error) {
	return openSeries[K](s.name, s.spec, byEnd[V]{}, store, expiry, r)
}

func (s Window[K, V]) table(scope Scope) (in Call, t *seriesTable[K, V], ok bool) {
	return opened[*seriesTable[K, V]](scope, s.name)
}

// Get returns the value of k at a time; ok is false where there is none.
func (s Window[K, V]) Get(scope Scope, k K, at time.Time) (v V, ok bool) {
	in, t, ok := s.table(scope)
	if !ok {
		return v, false
	}
	found := series[V]{t.entries(in, k)}
	if i, ok := found.find(at.UnixMilli(), at.UnixMilli()); ok {
		return found.entries[i].value, true
	}
	return v, false
}

// Put makes v the value of k at a time. It is not kept where its time to live is over.
func (s Window[K, V]) Put(scope Scope, k K, at time.Time, v V) (kept bool) {
	return s.Update(scope, k, at, func(V, bool) V { return v })
}

// Update makes what f returns the value of k at a time. f gets the value there is, which it may
// change in place, or the zero value and false. It must not call the store, and is not called
// where the time to live is over.
func (s Window[K, V]) Update(scope Scope, k K, at time.Time, f func(v V, ok bool) V) (kept bool) {
	in, t, ok := s.table(scope)
	ms := at.UnixMilli()
	if !ok || t.late(in, ms) {
		return false
	}
	t.change(in, k, func(all *series[V]) {
		e := spanned[V]{from: ms, to: ms}
		i, found := all.find(ms, ms)
		if found {
			e = all.entries[i]
		}
		e.value = f(e.value, found)
		all.set(e)
	})
	return in.Err() == nil
}

// Delete removes what k has at a time.
func (s Window[K, V]) Delete(scope Scope, k K, at time.Time) {
	if in, t, ok := s.table(scope); ok {
		t.drop(in, k, at.UnixMilli(), at.UnixMilli())
	}
}

// Range walks what k has at times in [from, to), in their order. The loop may call the
// store: what it changes comes as it was.
func (s Window[K, V]) Range(scope Scope, k K, from, to time.Time) iter.Seq2[time.Time, V] {
	return func(yield func(time.Time, V) bool) {
		in, t, ok := s.table(scope)
		if !ok {
			return
		}
		for _, e := range t.entries(in, k) {
			if e.from >= from.UnixMilli() && e.from < to.UnixMilli() && !yield(time.UnixMilli(e.from).UTC(), e.value) {
				return
			}
		}
	}
}
