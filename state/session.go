package state

import (
	"fmt"
	"iter"
	"time"

	"github.com/thalweg/thalweg/topic/codec"
)

// Session is a handle on a store of values by key and span of time, such as the sessions of a
// user; see KV for what all handles have in common, and Window for how its entries are kept.
type Session[K, V any] struct {
	name string
	spec Spec
}

// Span is a span of time from Start to End, both included, in whole milliseconds.
type Span struct{ Start, End time.Time }

// NewSession declares a store. Its name is unique in the step that uses it.
func NewSession[K, V any](name string) Session[K, V] { return Session[K, V]{name: name} }

// TTL lets an entry live until event time is d past its end, whenever it was put, or longer where
// one that began before it does.
func (s Session[K, V]) TTL(d time.Duration) Session[K, V] {
	s.spec.ttl(d, false)
	return s
}

// WallTTL is TTL by the node's clock.
func (s Session[K, V]) WallTTL(d time.Duration) Session[K, V] {
	s.spec.ttl(d, true)
	return s
}

// On keeps the store in another backend than the node's.
func (s Session[K, V]) On(b Backend) Session[K, V] {
	s.spec.Backend = b
	return s
}

// NoChangelog keeps the store in memory only; see KV.NoChangelog.
func (s Session[K, V]) NoChangelog() Session[K, V] {
	s.spec.NoChangelog = true
	return s
}

// Keyed says that the keys of the store are those of the step; see KV.Keyed.
func (s Session[K, V]) Keyed() Session[K, V] {
	s.spec.Owner = itself[K]()
	return s
}

// KeyedBy says to which key of the step a key of the store belongs; see KV.KeyedBy.
func (s Session[K, V]) KeyedBy[O any](of func(K) O) Session[K, V] {
	if s.spec.Owner = nil; of == nil {
		s.spec.fault = "KeyedBy needs a function, not nil"
		return s
	}
	s.spec.Owner = ownedBy(of)
	return s
}

// Name is the name given to NewSession.
func (s Session[K, V]) Name() string { return s.name }

// Spec is how the store is kept.
func (s Session[K, V]) Spec() Spec { return s.spec }

// Open makes the table of one task.
func (s Session[K, V]) Open(store *Store, expiry *Timers, r *codec.Registry) (Opened, error) {
	return openSeries[K](s.name, s.spec, byEnd[V]{}, store, expiry, r)
}

func (s Session[K, V]) table(scope Scope) (in Call, t *seriesTable[K, V], ok bool) {
	return opened[*seriesTable[K, V]](scope, s.name)
}

// Get returns the value of k in exactly this span; ok is false where there is none.
func (s Session[K, V]) Get(scope Scope, k K, span Span) (v V, ok bool) {
	in, t, ok := s.table(scope)
	if !ok {
		return v, false
	}
	found := series[V]{t.entries(in, k)}
	if i, ok := found.find(span.Start.UnixMilli(), span.End.UnixMilli()); ok {
		return found.entries[i].value, true
	}
	return v, false
}

// Put makes v the value of k in a span. It is not kept where its time to live is over. A span that
// ends before it starts is a failure of the call.
func (s Session[K, V]) Put(scope Scope, k K, span Span, v V) (kept bool) {
	in, t, ok := s.table(scope)
	if !ok {
		return false
	}
	from, to := span.Start.UnixMilli(), span.End.UnixMilli()
	if to < from {
		in.Fail(fmt.Errorf("state: store %q: a span from %v to %v ends before it starts", s.name, span.Start, span.End))
		return false
	}
	return t.set(in, k, spanned[V]{from: from, to: to, value: v})
}

// Delete removes what k has in exactly this span.
func (s Session[K, V]) Delete(scope Scope, k K, span Span) {
	if in, t, ok := s.table(scope); ok {
		t.drop(in, k, span.Start.UnixMilli(), span.End.UnixMilli())
	}
}

// Overlapping walks what k has in spans that have an instant in common with [from, to], both
// included, by their start, then end. The loop may call the store: what it changes comes as it
// was.
func (s Session[K, V]) Overlapping(scope Scope, k K, from, to time.Time) iter.Seq2[Span, V] {
	return func(yield func(Span, V) bool) {
		in, t, ok := s.table(scope)
		if !ok {
			return
		}
		for _, e := range t.entries(in, k) {
			if e.to >= from.UnixMilli() && e.from <= to.UnixMilli() &&
				!yield(Span{time.UnixMilli(e.from).UTC(), time.UnixMilli(e.to).UTC()}, e.value) {
				return
			}
		}
	}
}
