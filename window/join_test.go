package window_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/window"
)

// joiner is a left join of one key, kept by what the package says of each record.
type joiner struct {
	j              window.Join
	w              int64
	lefts, rights  []*side
	pairs, nomatch [][2]string
	late           []string
}

type side struct {
	name    string
	t       int64
	matched bool
}

func (k *joiner) advance(w int64) {
	k.w = max(k.w, w)
	k.lefts = slices.DeleteFunc(k.lefts, func(l *side) bool {
		closed := k.j.LeftClosed(l.t, k.w)
		if closed && !l.matched {
			k.nomatch = append(k.nomatch, [2]string{l.name, "nil"})
		}
		return closed
	})
	k.rights = slices.DeleteFunc(k.rights, func(r *side) bool { return k.j.RightClosed(r.t, k.w) })
}

func (k *joiner) left(name string, t int64) {
	k.advance(t)
	if k.j.LeftClosed(t, k.w) {
		k.late = append(k.late, name)
		return
	}
	l := &side{name, t, false}
	k.lefts = append(k.lefts, l)
	from, to := k.j.Rights(t)
	for _, r := range k.rights {
		if from <= r.t && r.t <= to {
			l.matched = true
			k.pairs = append(k.pairs, [2]string{name, r.name})
		}
	}
}

func (k *joiner) right(name string, t int64) {
	k.advance(t)
	if k.j.RightClosed(t, k.w) {
		k.late = append(k.late, name)
		return
	}
	k.rights = append(k.rights, &side{name, t, false})
	from, to := k.j.Lefts(t)
	for _, l := range k.lefts {
		if from <= l.t && l.t <= to {
			l.matched = true
			k.pairs = append(k.pairs, [2]string{l.name, name})
		}
	}
}

// Case C-07 (a), the bounds: a distance of 3000 matches and 3001 does not; a left
// record at 17000 is open at 20000 and closed at 20001.
func TestJoinIncludesBothEnds(t *testing.T) {
	j := window.Within(3 * time.Second)
	require.NoError(t, j.Err())
	for _, c := range []struct {
		left, right int64
		matches     bool
	}{{17000, 20000, true}, {17000, 20001, false}, {17000, 14000, true}, {17000, 13999, false}, {-1, -3001, true}, {-1, 2999, true}} {
		require.Equal(t, c.matches, j.Matches(c.left, c.right), "%+v", c)
		from, to := j.Rights(c.left)
		require.Equal(t, c.matches, from <= c.right && c.right <= to)
		from, to = j.Lefts(c.right)
		require.Equal(t, c.matches, from <= c.left && c.left <= to)
	}
	require.False(t, j.LeftClosed(17000, 20000))
	require.True(t, j.LeftClosed(17000, 20001))
	require.False(t, j.RightClosed(18500, 21500))
	require.True(t, j.RightClosed(18500, 21501))
}

// Case C-07 (b): a record out of order is open until its time, the bound and the
// grace have passed; answered once, it is not answered again; late is late.
func TestJoinOutOfOrder(t *testing.T) {
	keys := map[string]*joiner{}
	for _, key := range []string{"a", "b", "c", "d"} {
		keys[key] = &joiner{j: window.Within(10 * ms).Grace(10 * ms), w: window.Unknown}
	}
	advance := func(w int64) {
		for _, k := range keys {
			k.advance(w)
		}
	}
	a, b, c, d := keys["a"], keys["b"], keys["c"], keys["d"]
	advance(25)
	a.left("1", 5)
	require.Empty(t, a.nomatch, "open until 25")
	a.right("x", 12)
	require.Equal(t, [][2]string{{"1", "x"}}, a.pairs)
	b.left("2", 5)
	advance(26)
	require.Equal(t, [][2]string{{"2", "nil"}}, b.nomatch)
	b.right("y", 13)
	require.Empty(t, b.pairs)
	require.Empty(t, b.late)
	c.left("3", 4)
	require.Equal(t, []string{"3"}, c.late)
	d.left("4", 6)
	require.Empty(t, d.nomatch, "open until 26")
	advance(27)
	require.Equal(t, [][2]string{{"4", "nil"}}, d.nomatch)
	require.Empty(t, a.nomatch)
}

// Clicks from none to ten minutes after an impression: an impression waits for all
// of them, a click only as long as the grace. Where a match lies wholly before or
// after a record, that record is not late before its own time has passed.
func TestJoinToOneSide(t *testing.T) {
	j := window.Between(0, 10*time.Minute).Grace(time.Second)
	require.NoError(t, j.Err())
	require.EqualValues(t, 601_001, j.LeftClosesAt(0))
	require.EqualValues(t, 1001, j.RightClosesAt(0))
	require.True(t, j.Matches(0, 0))
	require.False(t, j.Matches(1, 0))
	require.EqualValues(t, 5000-601_000, j.OldestOpen(5000))

	after := window.Between(5*time.Second, 8*time.Second)
	require.EqualValues(t, 8001, after.LeftClosesAt(0))
	require.EqualValues(t, 1, after.RightClosesAt(0), "not -5000: in order it is in time")
	k := &joiner{j: after, w: window.Unknown}
	k.left("l", 0)
	k.right("r", 5000)
	require.Equal(t, [][2]string{{"l", "r"}}, k.pairs)
	require.Empty(t, k.late)

	before := window.Between(-8*time.Second, -5*time.Second)
	require.EqualValues(t, 1, before.LeftClosesAt(0))
	require.EqualValues(t, 8001, before.RightClosesAt(0))
	require.EqualValues(t, -8000, before.OldestOpen(0))
}

// With the records in any order: those in time pair up as their distance says, each
// left one has matches or one "no match", what is forgotten matches nothing, and no
// result is older than OldestOpen of the watermark before it.
func TestJoinEqualsItsDefinition(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		from := r.Int64N(30) - 15
		to := from + r.Int64N(20)
		grace := r.Int64N(20)
		j := window.Between(time.Duration(from)*ms, time.Duration(to)*ms).Grace(time.Duration(grace) * ms)
		k := &joiner{j: j, w: window.Unknown}
		type record struct {
			t    int64
			left bool
		}
		var seen []record
		var pairs [][2]string
		matched := map[string]bool{}
		var late []string
		w := window.Unknown
		for i := range 30 {
			rec := record{r.Int64N(80), r.IntN(2) == 0}
			name := fmt.Sprint(i)
			floor := j.OldestOpen(k.w)
			w = max(w, rec.t)
			seen = append(seen, rec)
			open := func(o record) bool {
				if o.left {
					return w <= o.t+max(to, 0)+grace
				}
				return w <= o.t+max(-from, 0)+grace
			}
			lefts := slices.Clone(k.lefts)
			answered := len(k.nomatch)
			if rec.left {
				k.left(name, rec.t)
			} else {
				k.right(name, rec.t)
			}
			for _, no := range k.nomatch[answered:] {
				for _, l := range lefts {
					if l.name == no[0] {
						require.GreaterOrEqual(t, l.t, floor)
					}
				}
			}
			if !open(rec) {
				late = append(late, name)
				seen[i].t = math.MinInt64 / 2 // matches nothing
				continue
			}
			require.GreaterOrEqual(t, rec.t, floor)
			for o, other := range seen[:i] {
				l, rt, pair := rec, other, [2]string{name, fmt.Sprint(o)}
				if !rec.left {
					l, rt, pair = other, rec, [2]string{pair[1], pair[0]}
				}
				if other.left != rec.left && open(other) && from <= rt.t-l.t && rt.t-l.t <= to {
					pairs = append(pairs, pair)
					matched[pair[0]] = true
				}
			}
		}
		k.advance(window.EndOfTime)
		require.ElementsMatch(t, pairs, k.pairs)
		require.Equal(t, late, k.late)
		var nomatch [][2]string
		for i, rec := range seen {
			if name := fmt.Sprint(i); rec.left && !matched[name] && !slices.Contains(late, name) {
				nomatch = append(nomatch, [2]string{name, "nil"})
			}
		}
		require.ElementsMatch(t, nomatch, k.nomatch)
		require.Empty(t, k.lefts)
		require.Empty(t, k.rights)
	}
}

// Times at the ends of int64 do not wrap, and every fault of a join is told.
func TestJoinFaults(t *testing.T) {
	j := window.Within(time.Hour).Grace(time.Minute)
	require.Equal(t, "within 1h0m0s grace 1m0s", j.String())
	require.Equal(t, "between -1s and 1m0s", window.Between(-time.Second, time.Minute).String())
	require.True(t, j.Matches(math.MaxInt64, math.MaxInt64-1))
	require.True(t, j.Matches(math.MinInt64, math.MinInt64+1))
	require.True(t, j.LeftClosed(math.MaxInt64, window.EndOfTime))
	require.False(t, j.LeftClosed(math.MinInt64, window.Unknown))
	require.Equal(t, window.Unknown, j.OldestOpen(window.Unknown))
	require.Equal(t, window.EndOfTime, j.OldestOpen(window.EndOfTime))
	require.NoError(t, window.Between(time.Second, time.Second).Err())
	require.NoError(t, window.Within(0).Err())
	require.EqualError(t, window.Within(-time.Second).Err(), "window: invalid specification: within -1s: from 1s to -1s is no time at all; the lower bound comes first")
	require.EqualError(t, window.Between(1, 2*ms).Err(), "window: invalid specification: between 1ns and 2ms: the lower bound is 1ns; event time counts whole milliseconds")
	require.EqualError(t, window.Within(ms).Grace(-ms).Err(), "window: invalid specification: within 1ms grace -1ms: the grace is -1ms and must not be negative")
}
