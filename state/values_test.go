package state

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Values of any size and alignment lie beside each other without touching, keep alive what they
// point to, and move and go as wholes.
func TestValuesOfAnyType(t *testing.T) {
	t.Run("nothing", testValues(func(int) struct{} { return struct{}{} }))
	t.Run("a byte", testValues(func(i int) uint8 { return uint8(i) }))
	t.Run("odd bytes", testValues(func(i int) [3]byte { return [3]byte{byte(i), byte(i >> 8), byte(i >> 16)} }))
	t.Run("a pointer", testValues(func(i int) string { return fmt.Sprint("value ", i) }))
	t.Run("an interface", testValues(func(i int) any { return fmt.Sprint("value ", i) }))
	t.Run("pointers between plain values", testValues(func(i int) struct {
		a uint8
		b string
		c [3]int16
		d complex128
		e any
	} {
		return struct {
			a uint8
			b string
			c [3]int16
			d complex128
			e any
		}{uint8(i), fmt.Sprint("b ", i), [3]int16{int16(i), 1, 2}, complex(float64(i), 1), fmt.Sprint("e ", i)}
	}))
	t.Run("more than a page", testValues(func(i int) [1100]int64 { return [1100]int64{0: int64(i), 1099: int64(-i)} }))
}

func testValues[V comparable](make func(i int) V) func(*testing.T) {
	return func(t *testing.T) {
		const n = 2*chunkSize + firstChunk
		v := valuesOf[V](nil)
		o := newOverlay(v, &ledger{entrySize: int64(v.stride)})
		key := func(i int) []byte { return fmt.Appendf(nil, "key %d", i) }
		find := func(i int) (uint32, *entry) { return o.find(Hash(key(i)), key(i)) }
		var zero V
		for i := range n {
			_, e := o.insert(Hash(key(i)), key(i))
			require.Equal(t, zero, *valueOf[V](e))
			*valueOf[V](e) = make(i)
		}
		runtime.GC()
		var garbage []V // where what the collector took for free would be
		for i := range n {
			garbage = append(garbage, make(-i))
		}
		boxes := map[int]any{}
		for i := range n {
			id, e := find(i)
			require.Equal(t, make(i), *valueOf[V](e))
			switch i % 3 {
			case 0:
				boxes[i] = v.box(e)
				o.remove(id, e)
			case 1:
				o.delete(id, e)
				require.Equal(t, zero, *valueOf[V](e))
			}
		}
		runtime.KeepAlive(garbage)
		for i, box := range boxes {
			_, e := o.insert(Hash(key(i)), key(i)) // where another one was
			require.Equal(t, zero, *valueOf[V](e))
			v.unbox(e, box)
		}
		runtime.GC()
		for i := range n {
			_, e := find(i)
			require.Equal(t, string(key(i)), string(o.key(e)))
			if i%3 == 1 {
				require.Equal(t, zero, *valueOf[V](e))
			} else {
				require.Equal(t, make(i), *valueOf[V](e))
			}
		}
	}
}
