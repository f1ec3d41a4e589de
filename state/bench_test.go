package state

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchKeys returns n keys of 16 bytes, one after the other.
func benchKeys(n int) []byte {
	var keys []byte
	for i := range n {
		keys = fmt.Appendf(keys, "user-%011d", i)
	}
	return keys
}

// benchStream returns keys in random order, as they would come out of a log.
func benchStream(keys []byte) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	stream := make([]byte, 0, streamLen*16)
	for range streamLen {
		i := rng.IntN(len(keys) / 16)
		stream = append(stream, keys[16*i:16*i+16]...)
	}
	return stream
}

const streamLen = 1 << 21

type counter struct{ n, sum int64 }

type counterCodec struct{}

func (counterCodec) Append(dst []byte, v counter) ([]byte, error) {
	dst, _ = intCodec{}.Append(dst, v.n)
	return intCodec{}.Append(dst, v.sum)
}

func (counterCodec) Decode(src []byte) (v counter, err error) {
	if v.n, err = (intCodec{}).Decode(src[:8]); err == nil {
		v.sum, err = intCodec{}.Decode(src[8:])
	}
	return v, err
}

// BenchmarkUpdate looks up and changes existing keys, uniformly distributed,
// hashing included.
func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		keys := benchKeys(n)
		stream := benchStream(keys)
		at := func(i int) []byte {
			i = i & (streamLen - 1) * 16
			return stream[i : i+16 : i+16]
		}
		b.Run(fmt.Sprintf("keys=%d/map", n), func(b *testing.B) {
			m := make(map[string]*counter)
			for i := range n {
				m[string(keys[16*i:16*i+16])] = &counter{}
			}
			i := 0
			for b.Loop() {
				m[string(at(i))].n++
				i++
			}
		})
		b.Run(fmt.Sprintf("keys=%d/table", n), func(b *testing.B) {
			t := benchTable(b, keys)
			i := 0
			for b.Loop() {
				k := at(i)
				v, _, _ := t.Update(Hash(k), k)
				v.n++
				i++
			}
		})
		b.Run(fmt.Sprintf("keys=%d/touch", n), func(b *testing.B) {
			t := benchTable(b, keys)
			var batch [256]uint64
			i := 0
			for b.Loop() {
				if i&255 == 0 {
					for j := range batch {
						batch[j] = Hash(at(i + j))
					}
					t.Touch(batch[:])
				}
				v, _, _ := t.Update(batch[i&255], at(i))
				v.n++
				i++
			}
		})
		b.Run(fmt.Sprintf("keys=%d/window", n), func(b *testing.B) {
			s := newFakeFollower(b, benchDB(b), nil).store
			t := NewWindowTable[counter](s, counterCodec{})
			for i := range n {
				k := keys[16*i : 16*i+16]
				_, _, err := t.Update(60, Hash(k), k)
				require.NoError(b, err)
			}
			i := 0
			for b.Loop() {
				k := at(i)
				v, _, _ := t.Update(60, Hash(k), k)
				v.n++
				i++
			}
		})
	}
}

func benchDB(b *testing.B) DB {
	db, err := Memory().Open("")
	require.NoError(b, err)
	return db
}

func benchTable(b *testing.B, keys []byte) *Table[counter] {
	t := NewTable[counter](newFakeFollower(b, benchDB(b), nil).store, counterCodec{})
	for i := 0; i < len(keys); i += 16 {
		k := keys[i : i+16]
		if _, _, err := t.Update(Hash(k), k); err != nil {
			b.Fatal(err)
		}
	}
	return t
}

func BenchmarkInsert(b *testing.B) {
	const n = 1_000_000
	keys := benchKeys(n)
	b.Run("map", func(b *testing.B) {
		for b.Loop() {
			m := make(map[string]*counter)
			for i := range n {
				m[string(keys[16*i:16*i+16])] = &counter{}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
	})
	b.Run("table", func(b *testing.B) {
		for b.Loop() {
			benchTable(b, keys)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
	})
}

func BenchmarkBarrier(b *testing.B) {
	const n = 100_000
	keys := benchKeys(n)
	t := benchTable(b, keys)
	var buf []byte
	put := func(key, value []byte) error {
		buf = append(append(buf[:0], key...), value...)
		return nil
	}
	checkpoint := int64(0)
	for b.Loop() {
		for i := range n {
			k := keys[16*i : 16*i+16]
			v, _, _ := t.Update(Hash(k), k)
			v.n++
		}
		checkpoint++
		require.NoError(b, t.Barrier(checkpoint, put))
		t.Passed(Mark{Attempt: 1, N: checkpoint})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
}

func BenchmarkCloseWindow(b *testing.B) {
	const n = 100_000
	keys := benchKeys(n)
	t := NewWindowTable[counter](newFakeFollower(b, benchDB(b), nil).store, counterCodec{})
	for b.Loop() {
		for i := range n {
			k := keys[16*i : 16*i+16]
			v, _, _ := t.Update(60, Hash(k), k)
			v.n++
		}
		require.NoError(b, t.CloseWindow(60, func([]byte, *counter) error { return nil }))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
}
