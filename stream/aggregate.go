package stream

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// fold takes v into the aggregate a, which is new where first is true.
type fold[A, V any] func(a *A, first bool, v *V)

func count[V any](n *int64, _ bool, _ *V) { *n++ }

func reduce[V any](f func(V, V) V) fold[V, V] {
	return func(a *V, first bool, v *V) {
		if first {
			*a = *v
		} else {
			*a = f(*a, *v)
		}
	}
}

func accumulate[A, V any](add func(A, V) A) fold[A, V] {
	return func(a *A, _ bool, v *V) { *a = add(*a, *v) }
}

// cell is an aggregate in a store, with the highest event time of its records.
type cell[A any] struct {
	time   int64
	value  A
	queued bool // to be emitted at the barrier, or when the clock ticks; not stored
}

// cellCodec is the encoding of a cell in stores and changelogs:
//
//	varint  highest event time, ms since the epoch
//	rest    the aggregate, in its own codec
type cellCodec[A any] struct{ value codec.Codec[A] }

func (c cellCodec[A]) Append(dst []byte, v cell[A]) ([]byte, error) {
	return c.value.Append(binary.AppendVarint(dst, v.time), v.value)
}

func (c cellCodec[A]) Decode(src []byte) (v cell[A], err error) {
	time, n := binary.Varint(src)
	if n <= 0 {
		return v, fmt.Errorf("stream: aggregate of %d bytes has no time", len(src))
	}
	v.time = time
	v.value, err = c.value.Decode(src[n:])
	return v, err
}

// cellsOf is the encoding of a store of s: an A by K, in windows where spec is not nil.
func cellsOf[K, A any](s *step, spec *window.Spec) laidOut[A] {
	what := ""
	if spec != nil {
		what = spec.Grace(0).String() + ", " // grace may change
	}
	value, l := layoutOf[K, A](s, what)
	return laidOut[A]{cellCodec[A]{value}, l}
}

// laidOut are the cells of a store.
type laidOut[A any] struct {
	cellCodec[A]
	layout
}

// layout has the store keep, as a schema, what its bytes mean: windows and types in
// a line of text, and behind it the schema of the value's codec where it has one.
// A store that was written with another layout is refused instead of misread.
type layout struct {
	text  string
	inner codec.Schemed // nil where there is none
}

// layoutOf returns the codec of the values of a store of s, an A by K, and its layout.
func layoutOf[K, A any](s *step, what string) (codec.Codec[A], layout) {
	value, err := s.app.codecs.Inner[A]()
	if err != nil {
		s.fault(fmt.Sprintf("no codec for the state: %v", err))
	}
	inner, _ := value.(codec.Schemed)
	text := what + "key " + plainName(reflect.TypeFor[K]()) + ", value "
	switch _, versioned := value.(interface{ Versioned() }); {
	case versioned:
		text += "in versions" // which say what it is
	case inner != nil:
		text += plainName(reflect.TypeFor[A]()) + " by field"
	default:
		text += plainName(reflect.TypeFor[A]())
	}
	return value, layout{text, inner}
}

func (l layout) Schema() []byte {
	schema := append([]byte(l.text), '\n')
	if l.inner != nil {
		schema = append(schema, l.inner.Schema()...)
	}
	return schema
}

func (l layout) AddSchema(schema []byte) error {
	text, inner, _ := strings.Cut(string(schema), "\n")
	if text != l.text {
		return fmt.Errorf("the state was written as %q and the step now is %q; change it back, "+
			"or give the step another name with As to begin anew", text, l.text)
	}
	if l.inner == nil {
		return nil
	}
	return l.inner.AddSchema([]byte(inner))
}

// plainName names how a type is stored, as far as its kind decides it. The name of
// the type itself may change.
func plainName(t reflect.Type) string {
	switch kind := t.Kind(); kind {
	case reflect.Slice:
		return "[]" + plainName(t.Elem())
	case reflect.Array:
		return fmt.Sprintf("[%d]%s", t.Len(), plainName(t.Elem()))
	default:
		return kind.String()
	}
}

// aggregate is an aggregation without windows. Where its values can be nil, one that is
// nil says that there is no row.
func aggregate[K, V, A any](g *grouping[K, V], s *step, emit window.Emit, f fold[A, V]) *tableNode[K, A] {
	n := newTable[K, A](s)
	guards[K, V](s)
	n.each, n.keeps = emit == window.OnUpdate, new(keeping)
	kept, cells := s.keep("").ownKeys(), cellsOf[K, A](s, nil)
	n.stored = storedCells(n.key, kept, codec.Codec[cell[A]](cells))
	vanish := nilable[A]()
	g.downs = append(g.downs, func(o *opening) engine.KeyedPort[V] {
		r := openKept[K, V, A](o, n, kept, cells)
		if r == nil {
			return engine.KeyedPort[V]{}
		}
		guarded := guardFold[K](o, s, g.key, newCloner(cells.value), f)
		if r.out.edge != nil && len(r.out.readers) == 0 && !vanish && !n.each && guarded == nil && r.expiry == nil && r.wall == nil && r.history == nil {
			return lastOfEach(r, f)
		}
		r.clone = newCloner(cells.value)
		folded := func(m *engine.Meta, c *cell[A], existed bool) bool {
			if !existed || m.Time > c.time {
				c.time = m.Time
			}
			return !vanish || !isNil(&c.value)
		}
		r.apply = func(m *engine.Meta, c *cell[A], existed bool, v *V) bool {
			f(&c.value, !existed, v)
			return folded(m, c, existed)
		}
		if guarded != nil {
			r.guarded = func(m *engine.Meta, key []byte, c *cell[A], existed bool, v *V) (keep, ok bool) {
				ok = guarded(m, key, &c.value, !existed, v)
				return ok && folded(m, c, existed), ok
			}
		}
		return r.port()
	})
	return n
}

// lastOfEach is an aggregation that only streams read, and only what each changed row
// is at a barrier: a change costs no more than the look at its row.
func lastOfEach[K, V, A any](r *kept[K, V, A], f fold[A, V]) engine.KeyedPort[V] {
	t, table, step, down := r.t, r.table, r.step, r.out.stream
	var queue changes
	in := r.port()
	in.Push = func(m *engine.Meta, hash uint64, encoded []byte, v *V) {
		t.Running = step
		c, existed, err := table.Update(hash, encoded)
		if err != nil {
			t.Fail(step, err)
			return
		}
		f(&c.value, !existed, v)
		if !existed || m.Time > c.time {
			c.time = m.Time
		}
		if !c.queued {
			c.queued = true
			queue.add(hash, encoded)
		}
	}
	own := engine.Meta{Offset: -1}
	t.OnBarrier(func() {
		queue.drain(func(hash uint64, encoded []byte) bool {
			c, ok, err := table.Get(hash, encoded)
			if err != nil {
				t.Fail(step, err)
			} else if ok {
				c.queued = false
				k, err := r.key.Decode(encoded)
				if err != nil {
					t.Fail(step, fmt.Errorf("decode key: %w", err))
					return false
				}
				own.Time = c.time
				down.Push(&own, k, &c.value)
			}
			return !t.Failed()
		})
	})
	return in
}

// changes are the keys changed since the last barrier, in order of their first change.
type changes struct {
	hashes []uint64
	ends   []int
	keys   []byte
}

func (c *changes) add(hash uint64, key []byte) {
	c.keys = append(c.keys, key...)
	c.hashes = append(c.hashes, hash)
	c.ends = append(c.ends, len(c.keys))
}

func (c *changes) drain(f func(hash uint64, key []byte) bool) {
	start := 0
	for i, hash := range c.hashes {
		if !f(hash, c.keys[start:c.ends[i]]) {
			break
		}
		start = c.ends[i]
	}
	c.hashes, c.ends, c.keys = c.hashes[:0], c.ends[:0], c.keys[:0]
}
