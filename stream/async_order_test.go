package stream

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// Whatever the order in which calls return, results of a key come in the order of its
// records, as soon as they may, and time comes behind all that arrived before it and at once
// when that is gone. The model keeps all that arrived in one list and looks through it.
func TestAsyncOrderAgainstModel(t *testing.T) {
	type arrival struct {
		n        int
		key      string
		over     bool
		gone     bool
		w        int64 // a watermark instead of a record
		isMark   bool
		idleMark bool
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for round := range 300 {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		o := asyncOrder[int]{unordered: rng.IntN(4) == 0}
		var model []*arrival
		var pending []*pendingCall[int]
		records, w := 0, int64(0)
		for range 80 {
			var got, want []int
			switch rng.IntN(5) {
			case 0, 1:
				a := &arrival{n: records, key: fmt.Sprint(rng.IntN(3))}
				model = append(model, a)
				pending = append(pending, o.arrive(a.key, a.n))
				records++
			case 2:
				w += int64(rng.IntN(3))
				idle := rng.IntN(4) == 0
				model = append(model, &arrival{w: w, isMark: true, idleMark: idle})
				o.mark(w, idle)
			default:
				if len(pending) == 0 {
					continue
				}
				i := rng.IntN(len(pending))
				c := pending[i]
				pending = slices.Delete(pending, i, i+1)
				held := map[string]bool{}
				for _, a := range model {
					if a.isMark || a.gone {
						continue
					}
					a.over = a.over || a.n == c.item
					if a.over && (o.unordered || !held[a.key]) {
						a.gone = true
						want = append(want, a.n)
					} else {
						held[a.key] = true
					}
				}
				o.finish(c, func(n int) { got = append(got, n) })
			}
			require.Equal(t, want, got, "round %d", round)
			wantW, wantIdle, wantOK, left := int64(window.Unknown), false, false, 0
			blocked := false
			model = slices.DeleteFunc(model, func(a *arrival) bool {
				if !a.isMark {
					blocked = blocked || !a.gone
					if !a.gone {
						left++
					}
					return a.gone
				}
				if !blocked {
					wantW, wantIdle, wantOK = a.w, a.idleMark, true
				}
				return !blocked
			})
			gotW, gotIdle, gotOK := o.time()
			require.Equal(t, []any{wantW, wantIdle, wantOK, left}, []any{gotW, gotIdle, gotOK, o.pending}, "round %d", round)
		}
	}
}

// What is on its way is the same after it was stored.
func TestAsyncRecordIsStoredWhole(t *testing.T) {
	c := asyncCodec[string]{value: codec.String}
	for _, r := range []asyncRecord[string]{
		{time: 5, w: window.Unknown, offset: -1, value: "v"},
		{time: math.MinInt64, w: math.MaxInt64, offset: math.MaxInt64, noKey: true, tooFar: true, value: ""},
		{time: -1, w: 7, offset: 3, hasFrom: true, from: topic.TopicPartition{Topic: "in", Partition: 12}, deleted: true},
		{headers: topic.AppendHeaders(nil, []topic.Header{{Key: "trace", Value: []byte("x")}, {Key: "empty"}}), value: "after headers"},
	} {
		b, err := c.Append(nil, r)
		require.NoError(t, err)
		got, err := c.Decode(b)
		require.NoError(t, err)
		require.Equal(t, r, got)
	}
}

// No bytes make it panic, and what decodes encodes to something that decodes to the same.
func FuzzAsyncRecord(f *testing.F) {
	c := asyncCodec[string]{value: codec.String}
	for _, r := range []asyncRecord[string]{{value: "v"}, {hasFrom: true, from: topic.TopicPartition{Topic: "in", Partition: 1}, deleted: true, noKey: true}} {
		b, err := c.Append(nil, r)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := c.Decode(b)
		if err != nil {
			return
		}
		again, err := c.Append(nil, r)
		require.NoError(t, err)
		same, err := c.Decode(again)
		require.NoError(t, err)
		require.Equal(t, r, same)
	})
}
