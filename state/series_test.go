package state

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/topic/codec"
)

func ms(t int64) time.Time { return time.UnixMilli(t).UTC() }

// handleTest is a handle in a test, over a store that follows its barriers.
type handleTest struct {
	t      *testing.T
	handle Handle
	in     *fakeCall
	table  Opened
	of     *fakeFollower
	timers *Timers
	timed  *fakeFollower
	n      int64
}

func newHandleTest(t *testing.T, h Handle) *handleTest {
	h1, h2 := Memory(), Memory()
	db, err := h1.Open("")
	require.NoError(t, err)
	timersDB, err := h2.Open("")
	require.NoError(t, err)
	x := &handleTest{t: t, handle: h, in: &fakeCall{}, of: newFakeFollower(t, db, nil), timed: newFakeFollower(t, timersDB, nil)}
	x.open()
	return x
}

// open opens what is in the stores, as after a restart.
func (x *handleTest) open() {
	x.timers = NewTimers(x.timed.store)
	var err error
	x.table, err = x.handle.Open(x.of.store, x.timers, new(codec.Registry))
	require.NoError(x.t, err)
	x.in.stores = map[string]Opened{x.handle.Name(): x.table}
}

// restart brings all to the stores and begins anew.
func (x *handleTest) restart() {
	x.n++
	x.of.barrier(x.n, x.table)
	x.timed.barrier(x.n, x.timers)
	x.of.follow(len(x.of.pending))
	x.timed.follow(len(x.timed.pending))
	x.open()
}

func (x *handleTest) at(now int64) { x.in.now = now }

func (x *handleTest) expire() { require.NoError(x.t, x.table.Expire(x.in.now)) }

// kept is how many keys are in the table.
func kept[K comparable, V any](x *handleTest) (n int) {
	require.NoError(x.t, x.table.(*seriesTable[K, V]).scan(nil, nil, func([]byte, *entry) bool { n++; return true }))
	return n
}

// A window store finds values by key and time, walks a key's in order, and lets each live until
// its time is over by the TTL, after restarts too.
func TestWindowStore(t *testing.T) {
	s := NewWindow[string, int]("windows").TTL(100 * time.Millisecond)
	x := newHandleTest(t, s)
	for _, at := range []int64{30, 10, 20} {
		s.Put(x.in, "a", ms(at), int(at))
	}
	s.Update(x.in, "a", ms(20), func(v int, ok bool) int { require.True(t, ok); return v + 1 })
	s.Update(x.in, "b", ms(-5), func(v int, ok bool) int { require.False(t, ok); return v + 7 })
	x.restart()
	v, ok := s.Get(x.in, "a", ms(20))
	require.Equal(t, 21, v)
	require.True(t, ok)
	_, ok = s.Get(x.in, "a", ms(21))
	require.False(t, ok)
	require.Equal(t, map[time.Time]int{ms(10): 10, ms(20): 21}, maps.Collect(s.Range(x.in, "a", ms(10), ms(30))))
	s.Delete(x.in, "a", ms(20))
	s.Delete(x.in, "a", ms(20))
	require.Equal(t, map[time.Time]int{ms(10): 10, ms(30): 30}, maps.Collect(s.Range(x.in, "a", ms(-100), ms(100))))
	x.at(109)
	v, ok = s.Get(x.in, "b", ms(-5))
	require.False(t, ok, v)
	x.restart()
	x.expire()
	require.Equal(t, 1, kept[string, int](x))
	x.at(110)
	_, ok = s.Get(x.in, "a", ms(10))
	require.False(t, ok)
	require.False(t, s.Put(x.in, "c", ms(10), 1))
	require.Equal(t, 1, kept[string, int](x))
	x.expire()
	x.restart()
	v, ok = s.Get(x.in, "a", ms(30))
	require.Equal(t, 30, v)
	require.True(t, ok)
	x.at(130)
	x.expire()
	require.Zero(t, kept[string, int](x))
	_, ok, err := x.table.NextExpiry()
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, x.in.err)
}

// A session store finds what overlaps a span, both ends included.
func TestSessionStore(t *testing.T) {
	s := NewSession[string, string]("sessions").TTL(50 * time.Millisecond)
	x := newHandleTest(t, s)
	span := func(from, to int64) Span { return Span{ms(from), ms(to)} }
	s.Put(x.in, "a", span(0, 10), "first")
	s.Put(x.in, "a", span(20, 20), "second")
	s.Put(x.in, "a", span(20, 40), "third")
	x.restart()
	overlapping := func(from, to int64) (all []string) {
		for _, v := range s.Overlapping(x.in, "a", ms(from), ms(to)) {
			all = append(all, v)
		}
		return all
	}
	require.Equal(t, []string{"first"}, overlapping(10, 19))
	require.Equal(t, []string{"first", "second", "third"}, overlapping(10, 20))
	require.Equal(t, []string{"third"}, overlapping(21, 100))
	require.Empty(t, overlapping(11, 19))
	v, ok := s.Get(x.in, "a", span(20, 40))
	require.Equal(t, "third", v)
	require.True(t, ok)
	s.Delete(x.in, "a", span(20, 20))
	require.Equal(t, []string{"first", "third"}, overlapping(0, 100))
	x.at(60)
	require.Equal(t, []string{"third"}, overlapping(0, 100))
	x.at(90)
	x.expire()
	require.Zero(t, kept[string, string](x))
	require.NoError(t, x.in.err)
	s.Put(x.in, "a", span(2, 1), "")
	require.ErrorContains(t, x.in.err, "ends before it starts")
}

// A versioned store knows what was true when, whatever the order in which versions come, for as
// long as its history.
func TestVersionedStore(t *testing.T) {
	s := NewVersioned[string, string]("versions").History(100 * time.Millisecond)
	x := newHandleTest(t, s)
	s.Put(x.in, "a", ms(30), "c")
	s.Put(x.in, "a", ms(10), "a")
	s.Delete(x.in, "a", ms(20))
	x.restart()
	asOf := func(at int64) string {
		if v, ok := s.GetAt(x.in, "a", ms(at)); ok {
			return v
		}
		return "none"
	}
	for at, want := range map[int64]string{9: "none", 10: "a", 19: "a", 20: "none", 29: "none", 30: "c", 1000: "c"} {
		require.Equal(t, want, asOf(at), at)
	}
	versions := func(from, to int64) map[time.Time]string {
		return maps.Collect(s.Versions(x.in, "a", ms(from), ms(to)))
	}
	require.Equal(t, map[time.Time]string{ms(10): "a", ms(30): "c"}, versions(0, 31))
	require.Equal(t, map[time.Time]string{ms(10): "a"}, versions(15, 30))
	require.Empty(t, versions(20, 30))
	x.at(119)
	require.Equal(t, "a", asOf(15))
	x.at(120)
	require.Equal(t, "none", asOf(15))
	x.expire()
	x.restart()
	x.at(100_000)
	x.expire()
	v, ok := s.Get(x.in, "a")
	require.Equal(t, "c", v)
	require.True(t, ok)
	s.Delete(x.in, "a", ms(100_000))
	_, ok = s.Get(x.in, "a")
	require.False(t, ok)
	require.Equal(t, "c", asOf(99_999))
	x.at(100_100)
	x.expire()
	require.Zero(t, kept[string, string](x), "a deletion without anything before it says nothing")
	require.NoError(t, x.in.err)
}

// Random versions under random times, restarts and expiries give what a list of all versions
// gives.
func TestVersionsAgainstList(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		const history = 30
		s := NewVersioned[int, int]("versions").History(history * time.Millisecond)
		x := newHandleTest(t, s)
		type version struct{ at, value int64 } // value 0 is deleted
		all := map[int][]version{}
		for i := range int64(200) {
			x.at(x.in.now + rng.Int64N(4))
			k, at := rng.IntN(3), max(x.in.now-rng.Int64N(40), 0)
			asOf := func(at int64) int64 {
				value := int64(0)
				for j, v := range all[k] {
					// A version is forgotten once the next one is history.
					forgotten := j+1 < len(all[k]) && all[k][j+1].at+history <= x.in.now
					if v.at <= at {
						if value = v.value; forgotten {
							value = 0
						}
					}
				}
				return value
			}
			switch rng.IntN(6) {
			case 0, 1, 2:
				v, kept := version{at, i + 1}, false
				if rng.IntN(4) == 0 {
					v.value = 0
					kept = s.Delete(x.in, k, ms(at))
				} else {
					kept = s.Put(x.in, k, ms(at), int(v.value))
				}
				if require.Equal(t, at+history > x.in.now, kept); !kept {
					continue
				}
				all[k] = slices.DeleteFunc(all[k], func(o version) bool { return o.at == at })
				all[k] = append(all[k], v)
				slices.SortFunc(all[k], func(a, b version) int { return int(a.at - b.at) })
			case 3, 4:
				got, ok := s.GetAt(x.in, k, ms(at))
				require.Equal(t, asOf(at), int64(got), "seed %d", seed)
				require.Equal(t, asOf(at) != 0, ok)
			case 5:
				if rng.IntN(2) == 0 {
					x.expire()
				} else {
					x.restart()
				}
			}
		}
		require.NoError(t, x.in.err)
	}
}

// A series is found at the byte positions that its codec's comment gives, and damage is an error.
func TestFormatOfSeries(t *testing.T) {
	c := seriesCodec[string]{codec.String}
	b, err := c.Append(nil, series[string]{[]spanned[string]{{from: -3, to: 5, value: "v"}, {from: 7, to: 7, deleted: true}, {from: 7, to: 8, value: ""}}})
	require.NoError(t, err)
	require.Equal(t, "\x05\x08\x02v"+"\x14\x00\x01"+"\x00\x01\x00", string(b))
	s, err := c.Decode(b)
	require.NoError(t, err)
	again, err := c.Append(nil, s)
	require.NoError(t, err)
	require.Equal(t, b, again)
	for i := range b {
		if s, err := c.Decode(b[:i]); err == nil {
			again, err := c.Append(nil, s)
			require.NoError(t, err)
			require.Equal(t, string(b[:i]), string(again), "what decodes is whole entries")
		}
	}
	for _, damaged := range []string{"\x05\x08\x04v", "\x00\x00\x03v", "\x02\x00\x00\x01\x00\x00", "\x00\x00\x00\x00\x00\x00"} {
		_, err := c.Decode([]byte(damaged))
		require.Error(t, err, fmt.Sprintf("%q", damaged))
	}
}

func FuzzSeries(f *testing.F) {
	f.Add([]byte("\x05\x08\x02v\x14\x00\x01"))
	c := seriesCodec[string]{codec.String}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := c.Decode(b)
		if err != nil {
			return
		}
		again, err := c.Append(nil, s)
		require.NoError(t, err)
		same, err := c.Decode(again)
		require.NoError(t, err)
		require.Equal(t, s, same)
	})
}
