package engine

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// The event time of a task that takes the place of several is what all of them agree on, the
// lowest watermark, the longest gap; what holds for one of them alone begins anew.
func TestMergeClocks(t *testing.T) {
	state := func(clocks map[string]string) []byte {
		task := new(Task)
		for name, s := range clocks {
			task.AddClock(name, func(b []byte) []byte { return append(b, s...) }, nil, nil)
		}
		return task.saveClocks(nil)
	}
	be := func(v int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(v))) }
	vi := func(v int64) string { return string(binary.AppendVarint(nil, v)) }
	b, err := MergeClocks([][]byte{
		state(map[string]string{"watermark": be(-5), "lanes 1": "same", LongestGap + "s": vi(7), EndsOf + "s": vi(9), CallsOf + "s": be(4),
			ClockOf + "s": vi(100), HeldBy + "s": "ab", "global in-0": be(70), "join s": "x", EventTimeOf + "s": be(12) + "behind"}),
		state(map[string]string{"watermark": be(3), "lanes 1": "same", LongestGap + "s": vi(8), EndsOf + "s": vi(-9), CallsOf + "s": be(2),
			ClockOf + "s": vi(101), HeldBy + "s": "ab", "global in-0": be(60), "join s": "y", EventTimeOf + "s": be(11) + "ahead"}),
	})
	require.NoError(t, err)
	clocks, err := decodeClocks(b)
	require.NoError(t, err)
	got := map[string]string{}
	for name, s := range clocks {
		got[name] = string(s)
	}
	require.Equal(t, map[string]string{"watermark": be(-5), "lanes 1": "same", LongestGap + "s": vi(8), EndsOf + "s": vi(-9), CallsOf + "s": be(2),
		ClockOf + "s": vi(101), "global in-0": be(60), EventTimeOf + "s": be(11) + "ahead"}, got)

	// Of one task alone, too, since its rows go to several.
	b, err = MergeClocks([][]byte{state(map[string]string{HeldBy + "s": "ab", "join s": "x"})})
	require.NoError(t, err)
	clocks, err = decodeClocks(b)
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"join s": []byte("x")}, clocks)
}
