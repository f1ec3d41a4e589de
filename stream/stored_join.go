package stream

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// storedJoin is a table whose rows pair makes of those of two others with the same key.
func storedJoin[K, V, V2, R any](left *tableNode[K, V], right *tableNode[K, V2], exists func(left, right bool) bool, pair func(*V, *V2) (R, bool)) *stored[K, R] {
	if left.stored == nil || right.stored == nil {
		return nil
	}
	return storedPairs(left.key.Decode, left.stored, right.stored, func(a *row[V], b *row[V2]) (made row[R], ok bool) {
		if !exists(a != nil, b != nil) {
			return made, false
		}
		var v *V
		var v2 *V2
		var timeA, timeB int64
		if a != nil {
			v, timeA = &a.value, a.time
		}
		if b != nil {
			v2, timeB = &b.value, b.time
		}
		made.time = latest(timeA, a != nil, timeB, b != nil)
		made.value, ok = pair(v, v2)
		return made, ok
	})
}

// storedPairs is a table whose rows both makes of those of l and r with the same key; it gets nil
// for a side that has none.
func storedPairs[K, V, V2, R any](decode func([]byte) (K, error), l *stored[K, V], r *stored[K, V2], both func(*row[V], *row[V2]) (row[R], bool)) *stored[K, R] {
	decls := slices.Clone(l.decls)
	for _, d := range r.decls {
		if !slices.Contains(decls, d) {
			decls = append(decls, d)
		}
	}
	p := &stored[K, R]{
		decls: decls, owner: l.owner, sorted: l.sorted && r.sorted,
		stateKey: func(k K) ([]byte, error) {
			a, errA := l.stateKey(k)
			b, errB := r.stateKey(k)
			if !bytes.Equal(a, b) {
				a = nil // there are two to be read
			}
			return a, errors.Join(errA, errB)
		},
		get: func(in stores, k K) (made row[R], ok bool, err error) {
			a, okA, errA := l.get(in, k)
			b, okB, errB := r.get(in, k)
			if err := errors.Join(errA, errB); err != nil {
				return made, false, err
			}
			made, ok = both(ifAny(&a, okA), ifAny(&b, okB))
			return made, ok, nil
		},
		madeOf: func(in stores, d *storeDecl, stateKey []byte) (keys []K, err error) {
			if slices.Contains(l.decls, d) {
				keys, err = l.madeOf(in, d, stateKey)
			}
			if err == nil && slices.Contains(r.decls, d) {
				var more []K
				more, err = r.madeOf(in, d, stateKey)
				keys = append(keys, more...)
			}
			return keys, err
		},
	}
	p.walk = func(in stores, within bounded[K]) iter.Seq2[storedRow[R], error] {
		if p.sorted {
			return sortedPairs(l.walk(in, within), r.walk(in, within), both)
		}
		return foundPairs(decode, in, l, r, within, both)
	}
	return p
}

// sortedPairs walks the rows made of those of two walks in the order of their keys.
func sortedPairs[V, V2, R any](left iter.Seq2[storedRow[V], error], right iter.Seq2[storedRow[V2], error], both func(*row[V], *row[V2]) (row[R], bool)) iter.Seq2[storedRow[R], error] {
	return func(yield func(storedRow[R], error) bool) {
		nextA, stopA := iter.Pull2(left)
		defer stopA()
		nextB, stopB := iter.Pull2(right)
		defer stopB()
		a, errA, okA := nextA()
		b, errB, okB := nextB()
		for okA || okB {
			if err := errors.Join(errA, errB); err != nil {
				yield(storedRow[R]{}, err)
				return
			}
			order := 0
			switch {
			case !okB:
				order = -1
			case !okA:
				order = 1
			default:
				order = bytes.Compare(a.key, b.key)
			}
			key := a.key
			if order > 0 {
				key = b.key
			}
			made, ok := both(ifAny(&a.row, order <= 0), ifAny(&b.row, order >= 0))
			if ok && !yield(storedRow[R]{key: key, row: made}, nil) {
				return
			}
			if order <= 0 {
				a, errA, okA = nextA()
			}
			if order >= 0 {
				b, errB, okB = nextB()
			}
		}
	}
}

// foundPairs walks the rows made of those of l, each with what r has of its key, and then of
// those that r alone has.
func foundPairs[K, V, V2, R any](decode func([]byte) (K, error), in stores, l *stored[K, V], r *stored[K, V2], within bounded[K], both func(*row[V], *row[V2]) (row[R], bool)) iter.Seq2[storedRow[R], error] {
	return func(yield func(storedRow[R], error) bool) {
		give := func(key []byte, a *row[V], b *row[V2]) bool {
			made, ok := both(a, b)
			return !ok || yield(storedRow[R]{key: key, row: made}, nil)
		}
		for a, err := range l.walk(in, within) {
			var b row[V2]
			ok := false
			if err == nil {
				b, ok, err = find(decode, a.key, in, r)
			}
			if err != nil {
				yield(storedRow[R]{}, err)
				return
			}
			if !give(a.key, &a.row, ifAny(&b, ok)) {
				return
			}
		}
		for b, err := range r.walk(in, within) {
			ok := false
			if err == nil {
				_, ok, err = find(decode, b.key, in, l)
			}
			if err != nil {
				yield(storedRow[R]{}, err)
				return
			}
			if !ok && !give(b.key, nil, &b.row) {
				return
			}
		}
	}
}

// find finds the row of an encoded key.
func find[K, V any](decode func([]byte) (K, error), key []byte, in stores, st *stored[K, V]) (r row[V], ok bool, err error) {
	k, err := decode(key)
	if err != nil {
		return r, false, fmt.Errorf("decode key: %w", err)
	}
	return st.get(in, k)
}
