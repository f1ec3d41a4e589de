package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/window"
)

// What a combiner sends, for few keys and many, short and long, folded and only counted, is what
// it was given: the sum, number and highest time of each key and pane, and where it has room for
// all keys little more than one record for each of them between two watermarks.
func TestCombinerLosesNothing(t *testing.T) {
	type pane struct {
		key   string
		start int64
	}
	type total struct {
		sum, records int
		newest       int64
	}
	for _, keys := range []int{1, 300, 2_000, 100_000} {
		for _, long := range []bool{false, true} {
			for _, folds := range []bool{false, true} {
				t.Run(fmt.Sprintf("keys=%d,long=%v,folds=%v", keys, long, folds), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(uint64(keys), 1))
					o := &Combine[int]{
						Pane: func(t int64) Pane {
							return Pane{Start: t - t%100, End: t - t%100 + 100, ClosesAt: t - t%100 + 100}
						},
						Closes: func(w int64) int64 {
							if w == window.Unknown {
								return w
							}
							return w - w%100 + 100
						},
					}
					if folds {
						o.Fold = func(into, v *int) { *into += *v }
					}
					x := NewExchange[int](ExchangeOptions{Senders: 1, Receivers: 3, KeepValue: folds})
					x.Combine(o)
					task := &Task{job: &Job{o: Options{Manual: true}}}
					s := x.OpenSender(task, 0)
					for _, l := range x.lanes[0] {
						l.receiver = newTask(&Job{}, task.ID, false)
					}
					want, got := map[pane]total{}, map[pane]total{}
					add := func(all map[pane]total, p pane, t total) {
						old := all[p]
						all[p] = total{old.sum + t.sum, old.records + t.records, max(old.newest, t.newest)}
					}
					sent := 0
					drain := func() {
						s.flush(false)
						for _, l := range x.lanes[0] {
							for b := l.receive(); b != nil; b = l.receive() {
								var m Meta
								from := uint32(0)
								for i := range b.records {
									b.describe(i, &m)
									key := b.keys[from:b.records[i].end()]
									from = b.records[i].end()
									require.Equal(t, state.Hash(key), b.records[i].hash)
									v := *b.value(i, new(int))
									add(got, pane{string(key), m.Time - m.Time%100}, total{v, 1 + int(m.More), m.Time})
									sent++
								}
								l.giveBack(b)
							}
						}
					}
					const records = 30_000
					for i := range records {
						key := fmt.Sprint(rng.IntN(keys))
						if long {
							key = strings.Repeat("x", 30) + key
						}
						m := &Meta{Time: int64(i/500) + rng.Int64N(20), Offset: int64(i)}
						v := i
						if !folds {
							v = 0
						}
						s.Send(m, []byte(key), &v)
						add(want, pane{key, m.Time - m.Time%100}, total{v, 1, m.Time})
						if i%500 == 499 {
							s.Watermark(int64(i/500) - 1)
						}
						if i%1000 == 0 && rng.IntN(30) == 0 {
							drain()
						}
					}
					drain()
					require.Equal(t, want, got)
					switch {
					case keys <= 2_000:
						require.Less(t, sent, records/2)
					default:
						require.Greater(t, sent, records*3/4)
					}
				})
			}
		}
	}
}
