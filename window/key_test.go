package window_test

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

func key[K any](k K, start, end int64) window.Key[K] {
	return window.Key[K]{Key: k, Start: time.UnixMilli(start).UTC(), End: time.UnixMilli(end).UTC()}
}

// A window key is its window in sixteen bytes and then its key.
func TestKeyBytes(t *testing.T) {
	c, err := codec.Of[window.Key[string]]()
	require.NoError(t, err)
	b, err := c.Append([]byte("x"), key("ab", -1, 258))
	require.NoError(t, err)
	require.Equal(t, "7fffffffffffffff"+"8000000000000102"+"6162", hex.EncodeToString(b[1:]))
	k, err := c.Decode(b[1:])
	require.NoError(t, err)
	require.Equal(t, key("ab", -1, 258), k)
	require.Equal(t, "ab@1969-12-31T23:59:59.999Z..1970-01-01T00:00:00.258Z", k.String())
}

// Ascending bytes are ascending starts, then ends, then keys, before 1970 too.
func TestKeysSortByStart(t *testing.T) {
	c, err := codec.Of[window.Key[string]]()
	require.NoError(t, err)
	var last []byte
	for _, k := range []window.Key[string]{
		key("z", window.Unknown, window.Unknown+1), key("z", -20, -10), key("y", -10, 0), key("a", 0, 10),
		key("b", 0, 10), key("a", 0, 20), key("a", 10, 20), key("", window.EndOfTime-1, window.EndOfTime),
	} {
		b, err := c.Append(nil, k)
		require.NoError(t, err)
		require.Negative(t, bytes.Compare(last, b), "%v", k)
		last = b
		back, err := c.Decode(b)
		require.NoError(t, err)
		require.Equal(t, k, back)
	}
}

type user struct{ name string }

// Window keys nest, and hold struct keys where only we read.
func TestKeysNest(t *testing.T) {
	c, err := codec.Of[window.Key[window.Key[int64]]]()
	require.NoError(t, err)
	k := key(key(int64(7), 5, 6), 0, 10)
	b, err := c.Append(nil, k)
	require.NoError(t, err)
	require.Len(t, b, 16+16+8)
	back, err := c.Decode(b)
	require.NoError(t, err)
	require.Equal(t, k, back)

	_, err = codec.Of[window.Key[user]]()
	require.ErrorContains(t, err, "no codec for window_test.user")
	var r codec.Registry
	in, err := r.Inner[window.Key[user]]()
	require.NoError(t, err)
	b, err = in.Append(nil, key(user{"n"}, 0, 1))
	require.NoError(t, err)
	u, err := in.Decode(b)
	require.NoError(t, err)
	require.Equal(t, key(user{"n"}, 0, 1), u)
}

// What cannot be a window key is refused: times between milliseconds, which
// would make two keys one, and bytes too short.
func TestKeyErrors(t *testing.T) {
	c, err := codec.Of[window.Key[int64]]()
	require.NoError(t, err)
	_, err = c.Append(nil, window.Key[int64]{Start: time.Unix(0, 1), End: time.Unix(1, 0)})
	require.EqualError(t, err, "window: start and end of a window are whole milliseconds")
	_, err = c.Decode(make([]byte, 15))
	require.ErrorContains(t, err, "a window key needs 16 bytes for its window")
	_, err = c.Decode(make([]byte, 20))
	require.EqualError(t, err, "codec: decode int64: want 8 bytes, got 4")
}

// Range bounds the windows of a key that start in [from, to).
func TestRangeBounds(t *testing.T) {
	c, err := codec.Of[window.Key[string]]()
	require.NoError(t, err)
	enc := func(k window.Key[string]) []byte {
		b, err := c.Append(nil, k)
		require.NoError(t, err)
		return b
	}
	lo, hi := window.Range("k", time.UnixMilli(-10), time.UnixMilli(20))
	in := func(k window.Key[string]) bool {
		return bytes.Compare(enc(lo), enc(k)) <= 0 && bytes.Compare(enc(k), enc(hi)) < 0
	}
	require.False(t, in(key("k", -11, -1)))
	require.True(t, in(key("k", -10, 0)))
	require.True(t, in(key("k", 19, 29)))
	require.False(t, in(key("k", 20, 30)))
}

func FuzzKeyDecode(f *testing.F) {
	f.Add([]byte("0123456789abcdefkey"))
	f.Add(make([]byte, 16))
	c, err := codec.Of[window.Key[string]]()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := c.Decode(b)
		if err != nil {
			return
		}
		again, err := c.Append(nil, k)
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}
