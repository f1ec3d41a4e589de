package stream

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// stored is how the rows of a table are read beside the tasks that make them: out of images
// of the stores they are kept in, or made of, which are in one shard.
type stored[K, V any] struct {
	decls []*storeDecl

	// stateKey is under which the row of k is in the stores.
	stateKey func(k K) ([]byte, error)
	// owner is what decides the shard of k.
	owner func(k K) ([]byte, error)

	get  func(in stores, k K) (row[V], bool, error)
	walk func(in stores, within bounded[K]) iter.Seq2[storedRow[V], error]

	// sorted tells that walk ascends by the encoded key.
	sorted bool

	// changed is what a change of a state key says; nil where that takes more to tell.
	changed func(stateKey, encoded []byte, deleted bool) (storedRow[V], error)
}

// stores are images of the stores of one shard.
type stores map[*storeDecl]image

// image is a *state.Image, or what is read alike.
type image interface {
	Get(key []byte) (value []byte, ok bool, err error)
	Range(lo, hi []byte) iter.Seq2[state.Entry, error]
}

// storedRow is a row with its encoded key, valid until the next.
type storedRow[V any] struct {
	key []byte
	row[V]
	gone bool // by a change
}

// bounded are the keys in [lo, hi), by their encoding. Nil is no bound; first and last are
// what lo and hi encode, where they do.
type bounded[K any] struct {
	lo, hi      []byte
	first, last *K
}

func (b bounded[K]) has(key []byte) bool {
	return bytes.Compare(key, b.lo) >= 0 && (b.hi == nil || bytes.Compare(key, b.hi) < 0)
}

// storedCells is a table whose rows are cells in the store d.
func storedCells[K, A any](n *tableNode[K, A], d *storeDecl, cells codec.Codec[cell[A]]) *stored[K, A] {
	d.readBy(cells)
	encode := func(k K) ([]byte, error) { return n.key.Append(nil, k) }
	decode := func(encoded []byte) (row[A], error) {
		c, err := cells.Decode(encoded)
		return row[A]{c.value, c.time}, err
	}
	return &stored[K, A]{
		decls: []*storeDecl{d}, stateKey: encode, owner: encode, sorted: true,
		get: func(in stores, k K) (r row[A], ok bool, err error) {
			key, err := encode(k)
			if err != nil {
				return r, false, err
			}
			encoded, ok, err := in[d].Get(key)
			if err == nil && ok {
				r, err = decode(encoded)
			}
			return r, ok, err
		},
		walk: func(in stores, within bounded[K]) iter.Seq2[storedRow[A], error] {
			return func(yield func(storedRow[A], error) bool) {
				for e, err := range in[d].Range(within.lo, within.hi) {
					var r row[A]
					if err == nil {
						r, err = decode(e.Value)
					}
					if !yield(storedRow[A]{key: e.Key, row: r}, err) || err != nil {
						return
					}
				}
			}
		},
		changed: func(stateKey, encoded []byte, deleted bool) (storedRow[A], error) {
			if deleted {
				return storedRow[A]{key: stateKey, gone: true}, nil
			}
			r, err := decode(encoded)
			return storedRow[A]{key: stateKey, row: r}, err
		},
	}
}

// storedWindows is a table of windows, which are cells in the window store d until they
// close.
func storedWindows[K any, WK window.KeyOf[K], A any](n *tableNode[WK, A], key codec.Codec[K], spec window.Spec, d *storeDecl, cells codec.Codec[cell[A]]) *stored[WK, A] {
	d.readBy(cells)
	stateKey := func(wk WK) ([]byte, error) {
		k := window.Key[K](wk)
		return key.Append(state.AppendWindowKey(nil, k.Start.UnixMilli(), nil), k.Key)
	}
	rowOf := func(stateKey, encoded []byte, gone bool) (r storedRow[A], err error) {
		start, inner, err := state.SplitWindowKey(stateKey)
		if err != nil {
			return r, err
		}
		k, err := key.Decode(inner)
		if err != nil {
			return r, fmt.Errorf("decode key: %w", err)
		}
		wk := WK(window.Key[K]{Key: k, Start: time.UnixMilli(start).UTC(), End: time.UnixMilli(spec.End(start)).UTC()})
		if r.key, err = n.key.Append(nil, wk); err != nil || gone {
			r.gone = gone
			return r, err
		}
		c, err := cells.Decode(encoded)
		r.row = row[A]{c.value, c.time}
		return r, err
	}
	return &stored[WK, A]{
		decls: []*storeDecl{d}, stateKey: stateKey, sorted: true,
		owner: func(wk WK) ([]byte, error) { return key.Append(nil, window.Key[K](wk).Key) },
		get: func(in stores, wk WK) (r row[A], ok bool, err error) {
			if k := window.Key[K](wk); k.End.UnixMilli() != spec.End(k.Start.UnixMilli()) {
				return r, false, nil // no such window
			}
			at, err := stateKey(wk)
			if err != nil {
				return r, false, err
			}
			encoded, ok, err := in[d].Get(at)
			if err != nil || !ok {
				return r, false, err
			}
			c, err := cells.Decode(encoded)
			return row[A]{c.value, c.time}, err == nil, err
		},
		walk: func(in stores, within bounded[WK]) iter.Seq2[storedRow[A], error] {
			var lo, hi []byte
			if within.first != nil {
				lo = state.AppendWindowKey(nil, window.Key[K](*within.first).Start.UnixMilli(), nil)
			}
			if within.last != nil {
				hi = state.AppendWindowKey(nil, plus(window.Key[K](*within.last).Start.UnixMilli(), 1), nil)
			}
			return func(yield func(storedRow[A], error) bool) {
				for e, err := range in[d].Range(lo, hi) {
					var r storedRow[A]
					if err == nil {
						r, err = rowOf(e.Key, e.Value, false)
					}
					if err == nil && !within.has(r.key) {
						continue
					}
					if !yield(r, err) || err != nil {
						return
					}
				}
			}
		},
		changed: rowOf,
	}
}

// storedSessions is a table of sessions, which are in the store d by key until they close.
func storedSessions[K any, WK window.KeyOf[K], A any](n *tableNode[WK, A], key codec.Codec[K], d *storeDecl, sessions codec.Codec[openSessions[A]]) *stored[WK, A] {
	d.readBy(sessions)
	inner := func(wk WK) ([]byte, error) { return key.Append(nil, window.Key[K](wk).Key) }
	return &stored[WK, A]{
		decls: []*storeDecl{d}, stateKey: inner, owner: inner,
		get: func(in stores, wk WK) (r row[A], ok bool, err error) {
			at, err := inner(wk)
			if err != nil {
				return r, false, err
			}
			encoded, ok, err := in[d].Get(at)
			if err != nil || !ok {
				return r, false, err
			}
			all, err := sessions.Decode(encoded)
			k := window.Key[K](wk)
			for _, s := range all.open {
				if err == nil && s.First == k.Start.UnixMilli() && s.Last == k.End.UnixMilli() {
					return row[A]{s.value, s.Last}, true, nil
				}
			}
			return r, false, err
		},
		walk: func(in stores, within bounded[WK]) iter.Seq2[storedRow[A], error] {
			return func(yield func(storedRow[A], error) bool) {
				for e, err := range in[d].Range(nil, nil) {
					var all openSessions[A]
					var k K
					if err == nil {
						all, err = sessions.Decode(e.Value)
					}
					if err == nil {
						k, err = key.Decode(e.Key)
					}
					if err != nil {
						yield(storedRow[A]{}, err)
						return
					}
					for _, s := range all.open {
						wk := WK(window.Key[K]{Key: k, Start: time.UnixMilli(s.First).UTC(), End: time.UnixMilli(s.Last).UTC()})
						encoded, err := n.key.Append(nil, wk)
						if err == nil && !within.has(encoded) {
							continue
						}
						if !yield(storedRow[A]{key: encoded, row: row[A]{s.value, s.Last}}, err) || err != nil {
							return
						}
					}
				}
			}
		},
	}
}

// storedDerived is a table whose rows f makes of those of another.
func storedDerived[K, V, R any](from *tableNode[K, V], f func(K, V) (R, bool)) *stored[K, R] {
	st := from.stored
	if st == nil {
		return nil
	}
	of := func(r storedRow[V]) (made storedRow[R], ok bool, err error) {
		made = storedRow[R]{key: r.key, gone: r.gone, row: row[R]{time: r.time}}
		if r.gone {
			return made, true, nil
		}
		k, err := from.key.Decode(r.key)
		if err != nil {
			return made, false, fmt.Errorf("decode key: %w", err)
		}
		made.value, ok = f(k, r.value)
		return made, ok, nil
	}
	s := &stored[K, R]{
		decls: st.decls, stateKey: st.stateKey, owner: st.owner, sorted: st.sorted,
		get: func(in stores, k K) (made row[R], ok bool, err error) {
			r, ok, err := st.get(in, k)
			if err != nil || !ok {
				return made, false, err
			}
			made.time = r.time
			made.value, ok = f(k, r.value)
			return made, ok, nil
		},
		walk: func(in stores, within bounded[K]) iter.Seq2[storedRow[R], error] {
			return func(yield func(storedRow[R], error) bool) {
				for r, err := range st.walk(in, within) {
					var made storedRow[R]
					ok := true
					if err == nil {
						made, ok, err = of(r)
					}
					if (ok || err != nil) && !yield(made, err) || err != nil {
						return
					}
				}
			}
		},
	}
	if st.changed != nil {
		s.changed = func(stateKey, encoded []byte, deleted bool) (made storedRow[R], err error) {
			r, err := st.changed(stateKey, encoded, deleted)
			if err != nil {
				return made, err
			}
			made, ok, err := of(r)
			made.gone = made.gone || !ok
			return made, err
		}
	}
	return s
}

// storedJoin is a table whose rows pair makes of those of two others with the same key.
func storedJoin[K, V, V2, R any](left *tableNode[K, V], right *tableNode[K, V2], exists func(left, right bool) bool, pair func(*V, *V2) R) *stored[K, R] {
	l, r := left.stored, right.stored
	if l == nil || r == nil || !l.sorted || !r.sorted {
		return nil
	}
	both := func(a *row[V], b *row[V2]) (made row[R], ok bool) {
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
		return row[R]{pair(v, v2), latest(timeA, a != nil, timeB, b != nil)}, true
	}
	return &stored[K, R]{
		decls: append(append([]*storeDecl(nil), l.decls...), r.decls...), stateKey: l.stateKey, owner: l.owner, sorted: true,
		get: func(in stores, k K) (made row[R], ok bool, err error) {
			a, okA, errA := l.get(in, k)
			b, okB, errB := r.get(in, k)
			if err := errors.Join(errA, errB); err != nil {
				return made, false, err
			}
			made, ok = both(ifAny(&a, okA), ifAny(&b, okB))
			return made, ok, nil
		},
		walk: func(in stores, within bounded[K]) iter.Seq2[storedRow[R], error] {
			return func(yield func(storedRow[R], error) bool) {
				nextA, stopA := iter.Pull2(l.walk(in, within))
				defer stopA()
				nextB, stopB := iter.Pull2(r.walk(in, within))
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
		},
	}
}

// readBy says with which codec the store's values are read.
func (d *storeDecl) readBy(c any) {
	if schemed, ok := c.(codec.Schemed); ok {
		d.schemas = schemed.AddSchema
	}
}

// spreads tells whether the rows of the table of s are in the shard that the hash of their
// key says.
func spreads(s *step) bool {
	for _, in := range s.inputs {
		if in.group != nil && !in.group.spreads() || in.group == nil && !spreads(in) {
			return false
		}
	}
	return len(s.inputs) > 0
}
