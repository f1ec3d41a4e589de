package bench

import (
	"runtime"
	"testing"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic/codec"
)

// stored is a value of 84 bytes, 100 with its key.
type stored [84]byte

var storedCodec = codec.Func(
	func(dst []byte, v stored) ([]byte, error) { return append(dst, v[:]...), nil },
	func(src []byte) (stored, error) { return stored(src), nil })

// BenchmarkOverlayMemory tells what a key of 16 B with a value of 84 B takes of the heap in the
// overlay, of a million of them. ×payload is that beside their 100 B. The floor is a Go map of
// pointers.
func BenchmarkOverlayMemory(b *testing.B) {
	const keys = 1_000_000
	for b.Loop() {
		before := liveBytes()
		byMap := make(map[user]*stored)
		for i := range keys {
			byMap[keyNumber(i)] = &stored{byte(i)}
		}
		floor := float64(liveBytes()-before) / keys
		runtime.KeepAlive(byMap)
		byMap = nil
		before = liveBytes()
		table := state.NewVolatileTable[stored](storedCodec)
		for i := range keys {
			k := keyNumber(i)
			v, existed, err := table.Update(state.Hash(k[:]), k[:])
			if err != nil || existed {
				b.Fatal(existed, err)
			}
			v[0] = byte(i)
		}
		each := float64(liveBytes()-before) / keys
		for i := 0; i < keys; i += 997 {
			k := keyNumber(i)
			if v, ok, err := table.Get(state.Hash(k[:]), k[:]); err != nil || !ok || v[0] != byte(i) {
				b.Fatal(i, ok, err)
			}
		}
		b.ReportMetric(each, "B/key")
		b.ReportMetric(each/100, "×payload")
		b.ReportMetric(float64(table.Bytes())/keys, "counted-B/key")
		b.ReportMetric(floor, "floor-B/key")
		b.ReportMetric(100*floor/each, "%floor")
	}
}

// liveBytes is the size of what is reachable on the heap.
func liveBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
