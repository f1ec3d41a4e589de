package aggregate

// Number is what can be added up.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Count counts: Aggregate(aggregate.Count). Its Merge is Plus.
func Count[V any](n int64, _ V) int64 { return n + 1 }

// Sum adds up what of makes of each value. An integer that overflows wraps around, as it
// does everywhere in Go; floats are added as they come, see Mean for a sum that keeps what
// rounding loses. Its Merge is Plus.
func Sum[V any, N Number](of func(V) N) func(N, V) N {
	return func(sum N, v V) N { return sum + of(v) }
}

// Plus merges two counts or sums.
func Plus[N Number](a, b N) N { return a + b }
