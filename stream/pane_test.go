package stream

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// The window of a trigger is found at the byte positions that its codec's comment gives.
func TestPaneFormat(t *testing.T) {
	c := paneCodec[string]{value: codec.String}
	for want, p := range map[string]pane[string]{
		"\x0a\x02\x05\x12v": {Pane: window.Pane{Count: 2, Lowest: 2, Since: 9}, time: 5, value: "v"},
		"\x05\x00v":         {time: -3, value: "v"},
	} {
		b, err := c.Append(nil, p)
		require.NoError(t, err)
		require.Equal(t, want, string(b))
		got, err := c.Decode(b)
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	for _, damaged := range []string{"", "\x05", "\x0a\x02\x05"} {
		_, err := c.Decode([]byte(damaged))
		require.ErrorIs(t, err, errPane)
	}
}
