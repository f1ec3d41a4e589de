package stream

import (
	"bytes"
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

	// anywhere tells that a row may be in any shard, and a key have one in several.
	anywhere bool

	// changed is what a change of a state key says; nil where that takes more to tell.
	changed func(stateKey, encoded []byte, deleted bool) (storedRow[V], error)

	// madeOf are the keys of rows, that are there or not, which are made of what a store has
	// under a state key, as the stores are.
	madeOf func(in stores, d *storeDecl, stateKey []byte) ([]K, error)
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
func storedCells[K, A any](key codec.Codec[K], d *storeDecl, cells codec.Codec[cell[A]]) *stored[K, A] {
	d.readBy(cells)
	return storedValues(key, d, func(encoded []byte) (row[A], error) {
		c, err := cells.Decode(encoded)
		return row[A]{c.value, c.time}, err
	})
}

// storedValues is a table whose rows are the values in the store d, as decode reads them.
func storedValues[K, A any](key codec.Codec[K], d *storeDecl, decode func(encoded []byte) (row[A], error)) *stored[K, A] {
	encode := func(k K) ([]byte, error) { return key.Append(nil, k) }
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
		madeOf: func(_ stores, _ *storeDecl, stateKey []byte) ([]K, error) { return one(key.Decode(stateKey)) },
	}
}

// one is the one key there is.
func one[K any](k K, err error) ([]K, error) { return []K{k}, err }

// storedWindows is a table of windows, which are cells in the window store d until they
// close.
func storedWindows[K any, WK window.KeyOf[K], A any](n *tableNode[WK, A], key codec.Codec[K], spec window.Spec, d *storeDecl, cells codec.Codec[cell[A]]) *stored[WK, A] {
	d.readBy(cells)
	stateKey := func(wk WK) ([]byte, error) {
		k := window.Key[K](wk)
		return key.Append(state.AppendWindowKey(nil, k.Start.UnixMilli(), nil), k.Key)
	}
	keyOf := windowOf[K, WK](key, spec)
	rowOf := func(stateKey, encoded []byte, gone bool) (r storedRow[A], err error) {
		wk, err := keyOf(stateKey)
		if err != nil {
			return r, err
		}
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
		madeOf:  func(_ stores, _ *storeDecl, stateKey []byte) ([]WK, error) { return one(keyOf(stateKey)) },
	}
}

// windowOf makes the window of a key out of the state key that its start and the key make.
func windowOf[K any, WK window.KeyOf[K]](key codec.Codec[K], spec window.Spec) func(stateKey []byte) (WK, error) {
	return func(stateKey []byte) (wk WK, err error) {
		start, inner, err := state.SplitWindowKey(stateKey)
		if err != nil {
			return wk, err
		}
		k, err := key.Decode(inner)
		if err != nil {
			return wk, fmt.Errorf("decode key: %w", err)
		}
		return WK(spanOf(k, start, spec.End(start))), nil
	}
}

// spanOf is a key with its place in time, in ms.
func spanOf[K any](k K, from, to int64) window.Key[K] {
	return window.Key[K]{Key: k, Start: time.UnixMilli(from).UTC(), End: time.UnixMilli(to).UTC()}
}

// storedSessions is a table of sessions, which are in the store d by key until they close.
func storedSessions[K any, WK window.KeyOf[K], A any](n *tableNode[WK, A], key codec.Codec[K], d *storeDecl, sessions codec.Codec[openSessions[A]]) *stored[WK, A] {
	d.readBy(sessions)
	return storedSeries[K](n.key, key, d, func(encoded []byte) (all []state.InTime[A], err error) {
		s, err := sessions.Decode(encoded)
		for _, o := range s.open {
			all = append(all, state.InTime[A]{From: o.First, To: o.Last, Value: o.value})
		}
		return all, err
	})
}

// storedSeries is a table of what the store d has by key, and within a key in time, as decode
// reads it.
func storedSeries[K any, WK window.KeyOf[K], A any](rowKey codec.Codec[WK], key codec.Codec[K], d *storeDecl, decode func(encoded []byte) ([]state.InTime[A], error)) *stored[WK, A] {
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
			all, err := decode(encoded)
			k := window.Key[K](wk)
			for _, e := range all {
				if err == nil && e.From == k.Start.UnixMilli() && e.To == k.End.UnixMilli() {
					return row[A]{e.Value, e.To}, true, nil
				}
			}
			return r, false, err
		},
		walk: func(in stores, within bounded[WK]) iter.Seq2[storedRow[A], error] {
			return func(yield func(storedRow[A], error) bool) {
				for at, err := range in[d].Range(nil, nil) {
					var all []state.InTime[A]
					var k K
					if err == nil {
						all, err = decode(at.Value)
					}
					if err == nil {
						k, err = key.Decode(at.Key)
					}
					if err != nil {
						yield(storedRow[A]{}, err)
						return
					}
					for _, e := range all {
						encoded, err := rowKey.Append(nil, WK(spanOf(k, e.From, e.To)))
						if err == nil && !within.has(encoded) {
							continue
						}
						if !yield(storedRow[A]{key: encoded, row: row[A]{e.Value, e.To}}, err) || err != nil {
							return
						}
					}
				}
			}
		},
		madeOf: func(in stores, _ *storeDecl, stateKey []byte) (keys []WK, err error) {
			encoded, ok, err := in[d].Get(stateKey)
			if err != nil || !ok {
				return nil, err
			}
			all, err := decode(encoded)
			if err != nil {
				return nil, err
			}
			k, err := key.Decode(stateKey)
			for _, e := range all {
				keys = append(keys, WK(spanOf(k, e.From, e.To)))
			}
			return keys, err
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
		decls: st.decls, stateKey: st.stateKey, owner: st.owner, sorted: st.sorted, anywhere: st.anywhere, madeOf: st.madeOf,
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
