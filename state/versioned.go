package state

import (
	"iter"
	"math"
	"time"

	"github.com/thalweg/thalweg/topic/codec"
)

// Versioned is a handle on a store that knows what the value of a key was at a time; see KV for
// what all handles have in common, and Window for how its entries are kept.
//
// A version is the value from its time on, until that of the next one, in whatever order they
// are put.
type Versioned[K, V any] struct {
	name string
	spec Spec
}

// NewVersioned declares a store. Its name is unique in the step that uses it.
func NewVersioned[K, V any](name string) Versioned[K, V] { return Versioned[K, V]{name: name} }

// History forgets a version once event time is d past the time of the one that took its place:
// what was true up to d ago is known. Without it all versions are kept. The newest is kept in any
// case.
func (s Versioned[K, V]) History(d time.Duration) Versioned[K, V] {
	s.spec.ttl(d, false)
	return s
}

// On keeps the store in another backend than the node's.
func (s Versioned[K, V]) On(b Backend) Versioned[K, V] {
	s.spec.Backend = b
	return s
}

// NoChangelog keeps the store in memory only; see KV.NoChangelog.
func (s Versioned[K, V]) NoChangelog() Versioned[K, V] {
	s.spec.NoChangelog = true
	return s
}

// Keyed says that the keys of the store are those of the step; see KV.Keyed.
func (s Versioned[K, V]) Keyed() Versioned[K, V] {
	s.spec.Owner = itself[K]()
	return s
}

// KeyedBy says to which key of the step a key of the store belongs; see KV.KeyedBy.
func (s Versioned[K, V]) KeyedBy[O any](of func(K) O) Versioned[K, V] {
	if s.spec.Owner = nil; of == nil {
		s.spec.fault = "KeyedBy needs a function, not nil"
		return s
	}
	s.spec.Owner = ownedBy(of)
	return s
}

// Name is the name given to NewVersioned.
func (s Versioned[K, V]) Name() string { return s.name }

// Spec is how the store is kept.
func (s Versioned[K, V]) Spec() Spec { return s.spec }

// Open makes the table of one task.
func (s Versioned[K, V]) Open(store *Store, expiry *Timers, r *codec.Registry) (Opened, error) {
	return openSeries[K](s.name, s.spec, byVersion[V]{}, store, expiry, r)
}

func (s Versioned[K, V]) table(scope Scope) (in Call, t *seriesTable[K, V], ok bool) {
	return opened[*seriesTable[K, V]](scope, s.name)
}

// Get returns the newest value of k; ok is false where there is none, or that was deleted.
func (s Versioned[K, V]) Get(scope Scope, k K) (v V, ok bool) {
	return s.get(scope, k, math.MaxInt64)
}

// GetAt returns what the value of k was at a time; ok is false where there was none, or it is
// forgotten.
func (s Versioned[K, V]) GetAt(scope Scope, k K, at time.Time) (v V, ok bool) {
	return s.get(scope, k, at.UnixMilli())
}

func (s Versioned[K, V]) get(scope Scope, k K, at int64) (v V, ok bool) {
	in, t, ok := s.table(scope)
	if !ok {
		return v, false
	}
	all := series[V]{t.entries(in, k)}
	if i := all.asOf(at); i >= 0 && !all.entries[i].deleted {
		return all.entries[i].value, true
	}
	return v, false
}

// Put makes v the value of k from a time on, until that of the next version, if there is one. It
// is not kept where the time is further back than the history: what came after may be
// forgotten.
func (s Versioned[K, V]) Put(scope Scope, k K, at time.Time, v V) (kept bool) {
	in, t, ok := s.table(scope)
	ms := at.UnixMilli()
	return ok && t.set(in, k, spanned[V]{from: ms, to: ms, value: v})
}

// Delete says that k has no value from a time on, until that of the next version, as Put does.
func (s Versioned[K, V]) Delete(scope Scope, k K, at time.Time) (kept bool) {
	in, t, ok := s.table(scope)
	ms := at.UnixMilli()
	return ok && t.set(in, k, spanned[V]{from: ms, to: ms, deleted: true})
}

// Versions walks the values that k had at some time in [from, to), with the time from which
// each was the value, which may be before from; the oldest first. The loop may call the store:
// what it changes comes as it was.
func (s Versioned[K, V]) Versions(scope Scope, k K, from, to time.Time) iter.Seq2[time.Time, V] {
	return func(yield func(time.Time, V) bool) {
		in, t, ok := s.table(scope)
		if !ok || !from.Before(to) {
			return
		}
		all := series[V]{t.entries(in, k)}
		for i := max(all.asOf(from.UnixMilli()), 0); i < len(all.entries); i++ {
			e := &all.entries[i]
			if e.from >= to.UnixMilli() {
				return
			}
			if !e.deleted && !yield(time.UnixMilli(e.from).UTC(), e.value) {
				return
			}
		}
	}
}
