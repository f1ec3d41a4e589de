package aggregate_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream/aggregate"
	"github.com/thalweg/thalweg/topic/codec"
)

// sample is what is aggregated.
type sample struct {
	Name string
	N    int64
	X    float64
	At   time.Time
}

func name(s sample) string  { return s.Name }
func n(s sample) int64      { return s.N }
func x(s sample) float64    { return s.X }
func at(s sample) time.Time { return s.At }
func samples(v ...float64) (all []sample) {
	for i, f := range v {
		all = append(all, sample{Name: fmt.Sprint("s", i), N: int64(f), X: f, At: time.UnixMilli(int64(f)).UTC()})
	}
	return all
}

func fold[A any](add func(A, sample) A, all []sample) (a A) {
	for _, s := range all {
		a = add(a, s)
	}
	return a
}

func TestCountAndSum(t *testing.T) {
	all := samples(3, -1, 2.5)
	require.EqualValues(t, 3, fold(aggregate.Count[sample], all))
	require.EqualValues(t, 4, fold(aggregate.Sum(n), all))
	require.Equal(t, 4.5, fold(aggregate.Sum(x), all))
	require.Equal(t, int64(7), aggregate.Plus(fold(aggregate.Sum(n), all), 3))
}

func TestMinAndMax(t *testing.T) {
	least, ok := fold(aggregate.Min(x), samples(3, -1, 2)).Value()
	require.True(t, ok)
	require.Equal(t, -1.0, least)
	greatest, ok := fold(aggregate.Max(name), samples(3, -1, 2)).Value()
	require.True(t, ok)
	require.Equal(t, "s2", greatest)
	_, ok = fold(aggregate.Max(x), nil).Value()
	require.False(t, ok)
	least, _ = fold(aggregate.Min(x), samples(3, 0, 2)).Value()
	require.Zero(t, least, "a zero is a value")
	least, _ = fold(aggregate.Min(x), samples(3, math.NaN(), 2)).Value()
	require.True(t, math.IsNaN(least))
}

// The mean counts what a plain sum would lose.
func TestMeanKeepsWhatRoundingLoses(t *testing.T) {
	a := fold(aggregate.Mean(x), samples(1, 1e100, 1, -1e100))
	require.EqualValues(t, 4, a.Count())
	require.Equal(t, 2.0, a.Sum())
	require.Equal(t, 0.5, a.Value())
	var parts aggregate.Average
	for i := range 1_000_000 {
		_ = i
		parts = parts.Add(0.1)
	}
	require.Equal(t, 0.1, parts.Value())
	require.True(t, math.IsNaN(aggregate.Average{}.Value()))
	require.True(t, math.IsInf(aggregate.Average{}.Add(math.Inf(1)).Add(5).Value(), 1))
}

// The variance of numbers that are large and close together is exact where the sum of
// squares is not.
func TestVarianceIsStable(t *testing.T) {
	s := fold(aggregate.Variance(x), samples(1e9+4, 1e9+7, 1e9+13, 1e9+16))
	require.EqualValues(t, 4, s.Count())
	require.Equal(t, 1e9+10, s.Mean())
	require.Equal(t, 22.5, s.Variance())
	require.Equal(t, 30.0, s.SampleVariance())
	require.Equal(t, math.Sqrt(22.5), s.Deviation())
	for _, none := range []float64{aggregate.Spread{}.Mean(), aggregate.Spread{}.Variance(), aggregate.Spread{}.Add(1).SampleVariance()} {
		require.True(t, math.IsNaN(none))
	}
	require.Zero(t, aggregate.Spread{}.Add(7).Variance())
}

func TestFirstAndLastByTime(t *testing.T) {
	all := samples(5, 3, 9, 3, 9)
	first, ok := fold(aggregate.First(at), all).Value()
	require.True(t, ok)
	require.Equal(t, all[1], first, "of two the one added before")
	last := fold(aggregate.Last(at), all)
	v, _ := last.Value()
	require.Equal(t, all[4], v, "of two the one added after")
	require.Equal(t, all[4].At, last.Time())
	_, ok = fold(aggregate.First(at), nil).Value()
	require.False(t, ok)
}

func places[K, S interface{ ~string | ~int64 }](r aggregate.Ranking[K, S]) (all []string) {
	for rank, p := range r.All() {
		all = append(all, fmt.Sprint(rank, " ", p.Key, " ", p.Score))
	}
	return all
}

func TestTop(t *testing.T) {
	var r aggregate.Ranking[string, int64]
	add := func(n int, key string, score int64) { r = r.Add(n, key, score) }
	add(3, "b", 5)
	add(3, "c", 5)
	before := r
	add(3, "a", 5)
	require.Equal(t, []string{"1 a 5", "2 b 5", "3 c 5"}, places(r), "ties by key")
	require.Equal(t, []string{"1 b 5", "2 c 5"}, places(before), "what was before does not change")
	add(3, "d", 4)
	require.Equal(t, []string{"1 a 5", "2 b 5", "3 c 5"}, places(r))
	add(3, "c", 9)
	require.Equal(t, []string{"1 c 9", "2 a 5", "3 b 5"}, places(r), "a key has one place")
	add(3, "c", 1)
	add(3, "d", 7)
	require.Equal(t, []string{"1 c 9", "2 d 7", "3 a 5"}, places(r))
	add(2, "e", 8)
	require.Equal(t, []string{"1 c 9", "2 e 8"}, places(r), "fewer places from now on")
	require.Equal(t, 2, r.Len())
	require.PanicsWithValue(t, "aggregate: a ranking of 0 places; take 1 to 10000", func() { add(0, "x", 1) })
	require.Panics(t, func() { add(aggregate.MaxTop+1, "x", 1) })
}

// A ranking is what sorting everything gives.
func TestTopIsTheSortedBeginning(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		best := map[string]int64{}
		var r aggregate.Ranking[string, int64]
		size := 1 + rng.IntN(6)
		for range rng.IntN(40) {
			key, score := fmt.Sprint(rng.IntN(12)), int64(rng.IntN(9)-4)
			if old, ok := best[key]; !ok || score > old {
				best[key] = score
			}
			r = r.Add(size, key, score)
		}
		var want []string
		keys := make([]string, 0, len(best))
		for key := range best {
			keys = append(keys, key)
		}
		slices.SortFunc(keys, func(a, b string) int {
			if best[a] != best[b] {
				return int(best[b] - best[a])
			}
			return bytes.Compare([]byte(a), []byte(b))
		})
		for i, key := range keys[:min(size, len(keys))] {
			want = append(want, fmt.Sprint(i+1, " ", key, " ", best[key]))
		}
		require.Equal(t, want, places(r))
	}
}

func TestDistinct(t *testing.T) {
	s := fold(aggregate.Distinct(n), samples(1, 2, 1, 3, 2))
	require.Equal(t, 3, s.Len())
	require.True(t, s.Has(3))
	require.False(t, s.Has(4))
	require.Equal(t, []int64{1, 2, 3}, slices.Sorted(s.All()))
	require.Zero(t, aggregate.Set[int]{}.Len())
}

// The estimate is next to exact for few, and within four standard errors for many.
func TestApproxDistinct(t *testing.T) {
	add := aggregate.ApproxDistinct(func(i int) string { return fmt.Sprint("user", i) })
	var c aggregate.Cardinality
	require.Zero(t, c.Estimate())
	for i := range 200_000 {
		c = add(c, i)
		if i%3 == 0 {
			c = add(c, i/2)
		}
		switch i + 1 {
		case 1, 10, 100, 1000:
			require.InDelta(t, i+1, c.Estimate(), float64(i+1)/500)
		case 10_000, 50_000, 200_000:
			require.InEpsilon(t, i+1, c.Estimate(), 4*0.0081)
		}
	}
}

// Every quantile is within 1 % of the number with that rank, on both sides of zero.
func TestQuantilesAreWithinTheirBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, draw := range map[string]func() float64{
		"uniform":     rng.Float64,
		"normal":      rng.NormFloat64,
		"exponential": func() float64 { return rng.ExpFloat64() * 1e6 },
		"wide":        func() float64 { return math.Exp(30 * (rng.Float64() - 0.5)) },
		"with zeros":  func() float64 { return float64(rng.IntN(5) - 2) },
	} {
		var d aggregate.Distribution
		var all []float64
		for range 20_001 {
			v := draw()
			all = append(all, v)
			d = d.Add(v)
		}
		slices.Sort(all)
		for _, q := range []float64{0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
			want := all[int(q*float64(len(all)-1))]
			require.InDelta(t, want, d.Quantile(q), 0.010001*math.Abs(want), "quantile %v", q)
		}
		require.EqualValues(t, len(all), d.Count())
	}
}

func TestQuantilesOfWhatIsNoOrdinaryNumber(t *testing.T) {
	var d aggregate.Distribution
	require.True(t, math.IsNaN(d.Quantile(0.5)))
	d = d.Add(math.NaN())
	require.EqualValues(t, 1, d.NaNs())
	require.Zero(t, d.Count())
	d = d.Add(math.Inf(1)).Add(math.Inf(-1)).Add(0)
	require.EqualValues(t, 3, d.Count())
	require.Less(t, d.Quantile(0), -1e307)
	require.Zero(t, d.Quantile(0.5))
	require.Greater(t, d.Quantile(1), 1e307)
	require.True(t, math.IsNaN(d.Quantile(1.5)))
	require.True(t, math.IsNaN(d.Quantile(math.NaN())))
	require.InEpsilon(t, 1e300, aggregate.Distribution{}.Add(1e-300).Add(1e300).Quantile(1), 0.01, "the large ones stay exact")
}

// subject is an aggregate under a test that holds for all of them.
type subject struct {
	name  string
	split func(t *testing.T, rng *rand.Rand, all []sample)
	fuzz  func(t *testing.T, b []byte)
	seeds func() [][]byte
}

// of makes a subject. close tells whether two that should agree do.
func of[A any](name string, add func(A, sample) A, merge func(A, A) A, same func(t *testing.T, want, got A)) subject {
	coded := func(t require.TestingT) codec.Codec[A] {
		c, err := new(codec.Registry).Inner[A]()
		require.NoError(t, err)
		return c
	}
	through := func(t *testing.T, a A) A {
		c := coded(t)
		b, err := c.Append([]byte("before"), a)
		require.NoError(t, err)
		require.Equal(t, "before", string(b[:6]))
		back, err := c.Decode(b[6:])
		require.NoError(t, err)
		same(t, a, back)
		return back
	}
	return subject{name,
		func(t *testing.T, rng *rand.Rand, all []sample) {
			var merged A
			for rest := all; len(rest) > 0; {
				n := rng.IntN(len(rest) + 1)
				part := fold(add, rest[:n])
				if rng.IntN(2) == 0 {
					part = through(t, part)
				}
				merged = merge(merged, part)
				if rng.IntN(2) == 0 {
					merged = through(t, merged)
				}
				rest = rest[n:]
				if n == 0 && len(rest) > 0 {
					merged = add(merged, rest[0])
					rest = rest[1:]
				}
			}
			same(t, fold(add, all), merged)
		},
		func(t *testing.T, b []byte) {
			c := coded(t)
			a, err := c.Decode(b)
			if err != nil {
				return
			}
			again, err := c.Append(nil, a)
			require.NoError(t, err)
			if name == "cardinality" { // not the same bytes, but the same sketch
				back, err := c.Decode(again)
				require.NoError(t, err)
				same(t, a, back)
				return
			}
			require.Equal(t, b, again)
		},
		func() (seeds [][]byte) {
			c := coded(panics{})
			for _, n := range []int{0, 1, 3, 40} {
				var all []sample
				for i := range n {
					all = append(all, samples(float64(i*i)-20)...)
				}
				b, err := c.Append(nil, fold(add, all))
				if err != nil {
					panic(err)
				}
				seeds = append(seeds, b)
			}
			return seeds
		},
	}
}

type panics struct{}

func (panics) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (panics) FailNow()                          { panic("failed") }

// exactly compares by what the codec writes.
func exactly[A any](t *testing.T, want, got A) {
	t.Helper()
	c, err := new(codec.Registry).Inner[A]()
	require.NoError(t, err)
	w, err := c.Append(nil, want)
	require.NoError(t, err)
	g, err := c.Append(nil, got)
	require.NoError(t, err)
	require.Equal(t, w, g)
}

var subjects = []subject{
	of("count", aggregate.Count[sample], aggregate.Plus, exactly),
	of("sum", aggregate.Sum(n), aggregate.Plus, exactly),
	of("minimum", aggregate.Min(x), aggregate.Minimum[float64].Merge, exactly),
	of("maximum", aggregate.Max(name), aggregate.Maximum[string].Merge, exactly),
	of("average", aggregate.Mean(x), aggregate.Average.Merge, func(t *testing.T, want, got aggregate.Average) {
		require.Equal(t, want.Count(), got.Count())
		require.InDelta(t, want.Sum(), got.Sum(), 1e-9)
	}),
	of("spread", aggregate.Variance(x), aggregate.Spread.Merge, func(t *testing.T, want, got aggregate.Spread) {
		require.Equal(t, want.Count(), got.Count())
		if want.Count() > 0 {
			require.InDelta(t, want.Mean(), got.Mean(), 1e-9)
			require.InDelta(t, want.Variance(), got.Variance(), 1e-6)
		}
	}),
	of("earliest", aggregate.First(at), aggregate.Earliest[sample].Merge, exactly),
	of("latest", aggregate.Last(at), aggregate.Latest[sample].Merge, exactly),
	of("ranking", aggregate.Top(4, name, n), aggregate.Ranking[string, int64].Merge, exactly),
	of("set", aggregate.Distinct(name), aggregate.Set[string].Merge, exactly),
	of("cardinality", aggregate.ApproxDistinct(name), aggregate.Cardinality.Merge, func(t *testing.T, want, got aggregate.Cardinality) {
		require.Equal(t, want.Estimate(), got.Estimate())
	}),
	of("distribution", aggregate.Quantiles(x), aggregate.Distribution.Merge, exactly),
}

// Aggregates of the parts, merged in order, some through their codecs, say what one of the
// whole says.
func TestMergedPartsAreTheWhole(t *testing.T) {
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, uint64(len(s.name))))
			for round := range 60 {
				var all []sample
				for range rng.IntN(60) {
					f := float64(rng.IntN(40)) - 10
					if round%4 == 0 {
						f = math.Exp(2 * rng.NormFloat64())
					}
					all = append(all, sample{fmt.Sprint("s", rng.IntN(30)), int64(f), f, time.UnixMilli(int64(f)).UTC()})
				}
				s.split(t, rng, all)
			}
		})
	}
	t.Run("many", func(t *testing.T) { // the sketches in all their forms
		rng := rand.New(rand.NewPCG(4, 4))
		var all []sample
		for i := range 40_000 {
			f := math.Exp(25 * rng.NormFloat64())
			all = append(all, sample{fmt.Sprint("s", i), 0, f * float64(rng.IntN(3)-1), time.Time{}})
		}
		for _, s := range subjects {
			if s.name == "cardinality" || s.name == "distribution" {
				s.split(t, rng, all)
			}
		}
	})
}

// The bytes of each aggregate are those of the table in format.go.
func TestFormats(t *testing.T) {
	for _, test := range []struct {
		what string
		got  []byte
		want string
	}{
		{"average", encoded(t, aggregate.Average{}.Add(1).Add(2)), "01 02 4008000000000000 0000000000000000"},
		{"spread", encoded(t, aggregate.Spread{}.Add(1).Add(3)), "02 02 4000000000000000 4000000000000000"},
		{"no minimum", encoded(t, aggregate.Minimum[int64]{}), "03"},
		{"minimum", encoded(t, aggregate.Minimum[int64]{}.Add(7)), "03 01 0000000000000007"},
		{"maximum", encoded(t, aggregate.Maximum[string]{}.Add("")), "04 01"},
		{"no earliest", encoded(t, aggregate.Earliest[string]{}), "05"},
		{"latest", encoded(t, aggregate.Latest[string]{}.Add(time.Unix(1, 2), "v")), "06 " + fmt.Sprintf("%x", encoded(t, time.Unix(1, 2))) + " 76"},
		{"ranking", encoded(t, aggregate.Ranking[string, int8]{}.Add(3, "a", 1).Add(3, "bc", 2)), "07 03 02 6263 01 02 01 61 01 01"},
		{"set", encoded(t, aggregate.Set[string]{}.Add("b").Add("").Add("aa")), "08 00 02 6161 01 62"},
		{"no cardinality", encoded(t, aggregate.Cardinality{}), "09"},
		{"distribution", encoded(t, aggregate.Distribution{}.Add(0).Add(1).Add(1).Add(-1).Add(math.NaN())), "0a 01 01 01 00 01 01 00 02"},
	} {
		require.Equal(t, string(bytes.ReplaceAll([]byte(test.want), []byte(" "), nil)), fmt.Sprintf("%x", test.got), test.what)
	}
	c, err := codec.Of[aggregate.Spread]()
	require.NoError(t, err)
	_, err = c.Decode(encoded(t, aggregate.Average{}.Add(1)))
	require.ErrorContains(t, err, "is not the format 2", "one is not read as another")
}

func encoded[A any](t *testing.T, a A) []byte {
	t.Helper()
	c, err := codec.Of[A]()
	require.NoError(t, err)
	b, err := c.Append(nil, a)
	require.NoError(t, err)
	return b
}

// The values inside a First and a Set may gain fields, as those of any state may.
func TestSchemaOfWhatIsInside(t *testing.T) {
	c, err := new(codec.Registry).Inner[aggregate.Latest[sample]]()
	require.NoError(t, err)
	require.Implements(t, (*codec.Schemed)(nil), c)
}

// No bytes make a decoder panic, and what decodes encodes to the same.
func FuzzDecode(f *testing.F) {
	for i, s := range subjects {
		for _, b := range s.seeds() {
			f.Add(byte(i), b)
		}
	}
	f.Fuzz(func(t *testing.T, i byte, b []byte) {
		if s := subjects[int(i)%len(subjects)]; s.name != "latest" && s.name != "earliest" || len(b) < 1<<12 {
			s.fuzz(t, b)
		}
	})
}
