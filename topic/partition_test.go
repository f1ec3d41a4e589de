package topic

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The hashes are those the Java client's own tests publish.
func TestMurmur2MatchesTheJavaClient(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		require.Equal(t, want, int32(murmur2([]byte(key))), key)
	}
}

// A negative hash loses its sign bit rather than its sign: 21 hashes to
// -973932308, and -973932308 & 0x7fffffff is 1173551340.
func TestPartitionOfNegativeHash(t *testing.T) {
	require.Equal(t, 1173551340%7, Partition([]byte("21"), 7))
	require.Equal(t, 479470107%1000, Partition([]byte("abc"), 1000))
	require.Equal(t, 0, Partition(nil, 1))
	for n := 1; n < 50; n++ {
		for i := range 1000 {
			p := Partition([]byte{byte(i), byte(i >> 8)}, n)
			require.True(t, p >= 0 && p < n)
		}
	}
}

func TestPartitionAllocatesNothing(t *testing.T) {
	key := []byte("a-little-bit-longer-string")
	require.Zero(t, testing.AllocsPerRun(100, func() { Partition(key, 12) }))
}
