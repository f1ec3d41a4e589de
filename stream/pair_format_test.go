package stream

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/topic/codec"
)

// Each pair comes back as it was, and what is none is told.
func TestPairFormat(t *testing.T) {
	c, err := codec.Of[Pair[string, string]]()
	require.NoError(t, err)
	for text, p := range map[string]Pair[string, string]{
		"\x01ab":                   {Left: "ab", HasLeft: true},
		"\x02cd":                   {Right: "cd", HasRight: true},
		"\x03\x00\x00\x00\x02abcd": {Left: "ab", Right: "cd", HasLeft: true, HasRight: true},
		"\x03\x00\x00\x00\x00":     {HasLeft: true, HasRight: true},
	} {
		b, err := c.Append([]byte("before"), p)
		require.NoError(t, err)
		require.Equal(t, "before"+text, string(b))
		back, err := c.Decode([]byte(text))
		require.NoError(t, err)
		require.Equal(t, p, back)
	}
	for _, text := range []string{"", "\x00", "\x04a", "\x03\x00\x00\x00", "\x03\x00\x00\x00\x03ab", "\x03\xff\xff\xff\xffab"} {
		_, err := c.Decode([]byte(text))
		require.ErrorContains(t, err, "damaged pair", "%q", text)
	}
}

// FuzzPair decodes arbitrary bytes.
func FuzzPair(f *testing.F) {
	c, err := codec.Of[Pair[string, string]]()
	require.NoError(f, err)
	f.Add([]byte("\x03\x00\x00\x00\x01ab"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := c.Decode(b)
		if err != nil {
			return
		}
		again, err := c.Append(nil, p)
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}
