package bench

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/window"
)

// BenchmarkWindowAssign finds the windows of a record by its time: one that tumbles, five
// that hop. The floor is a division by hand, and a loop.
func BenchmarkWindowAssign(b *testing.B) {
	const minute, begin = 60_000, 1_700_000_000_000
	var floorSum int64
	tumbling := everyOf(func(i int) {
		t := begin + 17*int64(i)
		floorSum += t - t%minute
	})
	hopping := everyOf(func(i int) {
		t := begin + 17*int64(i)
		for start := t - t%minute; start > t-5*minute; start -= minute {
			floorSum += start
		}
	})
	sink += uint32(floorSum)
	for _, c := range []struct {
		name    string
		spec    window.Spec
		windows int
		floor   float64
	}{
		{"tumbling", window.Tumbling(time.Minute), 1, tumbling},
		{"hopping", window.Hopping(5*time.Minute, time.Minute), 5, hopping},
	} {
		b.Run(c.name, func(b *testing.B) {
			n, starts, began := 0, 0, time.Now()
			b.ReportAllocs()
			for b.Loop() {
				t := begin + 17*int64(n)
				if c.windows == 1 {
					sink += uint32(c.spec.Last(t))
					starts++
				} else {
					for start := range c.spec.Starts(t) {
						sink += uint32(start)
						starts++
					}
				}
				n++
			}
			each := float64(time.Since(began)) / float64(n)
			if starts != n*c.windows {
				b.Fatalf("%d times are in %d windows", n, starts)
			}
			b.ReportMetric(c.floor, "floor-ns/op")
			b.ReportMetric(100*c.floor/each, "%floor")
		})
	}
}

const windowKeys = 100_000

// BenchmarkWindowClose closes a window of 100,000 keys: all of them in order, each with its
// value, and then they are gone. An operation is one. In memory, the window was filled by this
// attempt; on disk, it is as the store has it after a restart. The floor takes a Go map,
// sorts its keys, and looks at the values.
func BenchmarkWindowClose(b *testing.B) {
	b.Run("in=memory", func(b *testing.B) {
		store, _ := openStore(b, state.Memory(), true)
		table := state.NewWindowTable[tally](store, tallyCodec)
		closeWindows(b, func(start int64) (*state.WindowTable[tally], error) {
			for i := range windowKeys {
				k := keyNumber(i)
				v, _, err := table.Update(start, state.Hash(k[:]), k[:])
				if err != nil {
					return nil, err
				}
				v.n = int64(i)
			}
			return table, nil
		})
	})
	b.Run("in=disk", func(b *testing.B) {
		store, changelog := openStore(b, state.Disk(0), true)
		closeWindows(b, func(start int64) (*state.WindowTable[tally], error) {
			var builder log.BatchBuilder
			var key, value []byte
			for i := range windowKeys {
				k := keyNumber(i)
				key = state.AppendWindowKey(key[:0], start, k[:])
				value, _ = tallyCodec.Append(append(value[:0], 1), tally{n: int64(i)})
				builder.Add(0, state.StoredKey(key), value, nil)
				if builder.Size() < 256<<10 && i < windowKeys-1 {
					continue
				}
				if _, err := changelog.Write(builder.Finish(log.Producer{ID: log.NoProducer})); err != nil {
					return nil, err
				}
				builder.Reset()
			}
			err := store.Follow(b.Context(), state.Mark{Attempt: 1, N: 1 + start, End: changelog.End()})
			return state.NewWindowTable[tally](store, tallyCodec), err
		})
	})
}

// closeWindows closes the window that fill makes at each start.
func closeWindows(b *testing.B, fill func(start int64) (*state.WindowTable[tally], error)) {
	var ours, floor time.Duration
	start := int64(0)
	for b.Loop() {
		b.StopTimer()
		floor += closeByHand()
		table, err := fill(start)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		began := time.Now()
		keys, sum := 0, int64(0)
		err = table.CloseWindow(start, func(_ []byte, v *tally) error {
			keys++
			sum += v.n
			return nil
		})
		ours += time.Since(began)
		b.StopTimer()
		if err := errors.Join(err, table.Err()); err != nil || keys != windowKeys || sum != windowKeys*(windowKeys-1)/2 {
			b.Fatalf("%d keys whose values add up to %d were closed: %v", keys, sum, err)
		}
		start++
		b.StartTimer()
	}
	keys := float64(windowKeys * start)
	b.ReportMetric(keys/ours.Seconds(), "keys/s")
	b.ReportMetric(keys/floor.Seconds(), "floor-keys/s")
	b.ReportMetric(100*floor.Seconds()/ours.Seconds(), "%floor")
}

func closeByHand() time.Duration {
	counts := make(map[user]*tally, windowKeys)
	for i := range windowKeys {
		counts[keyNumber(i)] = &tally{n: int64(i)}
	}
	start := time.Now()
	for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b user) int { return cmp.Compare(string(a[:]), string(b[:])) }) {
		sink += uint32(counts[k].n)
	}
	clear(counts)
	return time.Since(start)
}
