package state

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
)

// TestFormatOfMark reads each field where the table in format.go puts it.
func TestFormatOfMark(t *testing.T) {
	p := progress{
		target: Mark{Attempt: 3, N: 70, End: log.Position{Offset: 1 << 40, Epoch: 9}},
		done:   log.Position{Offset: 12, Epoch: 8},
	}
	b := p.append(nil)
	require.Len(t, b, markSize)
	require.EqualValues(t, 1, b[0])
	require.EqualValues(t, 3, binary.BigEndian.Uint64(b[1:]))
	require.EqualValues(t, 70, binary.BigEndian.Uint64(b[9:]))
	require.EqualValues(t, 1<<40, binary.BigEndian.Uint64(b[17:]))
	require.EqualValues(t, 9, binary.BigEndian.Uint32(b[25:]))
	require.EqualValues(t, 12, binary.BigEndian.Uint64(b[29:]))
	require.EqualValues(t, 8, binary.BigEndian.Uint32(b[37:]))
	got, err := parseProgress(b)
	require.NoError(t, err)
	require.Equal(t, p, got)

	b[0] = 2
	_, err = parseProgress(b)
	require.ErrorIs(t, err, ErrVersion)
}

// TestWindowKeysSortByTime shows that byte order of keys is order of windows,
// negative times among them, and then order of keys.
func TestWindowKeysSortByTime(t *testing.T) {
	starts := []int64{math.MinInt64, -1 << 40, -1, 0, 1, 255, 256, math.MaxInt64}
	last := ""
	for _, start := range starts {
		for _, key := range []string{"", "\x00", "a", "ab", "\xff\xff\xff"} {
			b := AppendWindowKey(nil, start, []byte(key))
			require.Less(t, last, string(b))
			last = string(b)
			s, k, err := SplitWindowKey(b)
			require.NoError(t, err)
			require.Equal(t, start, s)
			require.Equal(t, key, string(k))
		}
	}
	_, _, err := SplitWindowKey(make([]byte, 7))
	require.Error(t, err)
}

func TestParseChange(t *testing.T) {
	key, value, deleted, ok, err := ParseChange([]byte("\x01key"), []byte("\x01value"))
	require.NoError(t, err)
	require.True(t, ok)
	require.False(t, deleted)
	require.Equal(t, "key", string(key))
	require.Equal(t, "value", string(value))
	key, _, deleted, ok, err = ParseChange([]byte("\x01"), nil)
	require.NoError(t, err)
	require.True(t, ok && deleted)
	require.Empty(t, key)
	_, _, _, ok, err = ParseChange([]byte("\x00s1234"), []byte("\x01schema"))
	require.NoError(t, err)
	require.False(t, ok)
	_, _, _, ok, err = ParseChange(appendClosedKey(nil, 60_000), nil)
	require.NoError(t, err)
	require.False(t, ok)
	for _, record := range [][2]string{{"", "\x01"}, {"\x03key", "\x01"}, {"\x01key", ""}, {"\x01key", "\x02value"}} {
		_, _, _, ok, err = ParseChange([]byte(record[0]), []byte(record[1]))
		require.ErrorIs(t, err, ErrVersion, "%q", record)
		require.False(t, ok)
	}
}

func TestClosedKey(t *testing.T) {
	for _, start := range []int64{math.MinInt64, -60_000, 0, 60_000, math.MaxInt64} {
		got, err := parseClosedKey(appendClosedKey(nil, start))
		require.NoError(t, err)
		require.Equal(t, windowOf(StoredKey(AppendWindowKey(nil, start, []byte("key")))), got)
	}
	_, err := parseClosedKey([]byte("\x02short"))
	require.ErrorIs(t, err, ErrVersion)
}

func FuzzParseProgress(f *testing.F) {
	f.Add(progress{}.append(nil))
	f.Add(progress{target: Mark{1, 2, log.Position{Offset: 3, Epoch: 4}}, done: log.Position{Offset: 2}}.append(nil))
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseProgress(b)
		if err == nil {
			require.Equal(t, b, p.append(nil))
			require.LessOrEqual(t, p.done.Offset, p.target.End.Offset)
		}
	})
}

func FuzzParseChange(f *testing.F) {
	f.Add([]byte("\x01key"), []byte("\x01value"), false)
	f.Add([]byte("\x00s"), []byte("\x01"), true)
	f.Fuzz(func(t *testing.T, key, value []byte, null bool) {
		if null {
			value = nil
		} else if value == nil {
			value = []byte{}
		}
		k, v, deleted, ok, err := ParseChange(key, value)
		if err != nil || !ok {
			return
		}
		require.Equal(t, key, append([]byte{kindValue}, k...))
		require.Equal(t, null, deleted)
		if !deleted {
			require.Equal(t, value, append([]byte{valueVersion}, v...))
		}
		if start, rest, err := SplitWindowKey(k); err == nil {
			require.Equal(t, k, AppendWindowKey([]byte{}, start, rest))
		}
	})
}
