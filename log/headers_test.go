package log

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecodeHeaders shows that no bytes make the decoder panic or allocate without
// bound, and that what decodes encodes back to the same headers.
func FuzzDecodeHeaders(f *testing.F) {
	f.Add(AppendHeaders(nil, nil))
	f.Add(AppendHeaders(nil, []Header{{Key: "trace", Value: []byte("1")}, {Key: "", Value: nil}, {Key: "k", Value: []byte{}}}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, data []byte) {
		headers, rest, err := DecodeHeaders(data)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidBatch)
			return
		}
		require.True(t, bytes.HasSuffix(data, rest))
		again, end, err := DecodeHeaders(append(AppendHeaders(nil, headers), "more"...))
		require.NoError(t, err)
		require.Equal(t, headers, again)
		require.Equal(t, "more", string(end))
	})
}

// The headers of a record in a batch are encoded as AppendHeaders does.
func TestHeadersOfARecord(t *testing.T) {
	var b BatchBuilder
	want := []Header{{Key: "a", Value: []byte("1")}, {Key: "b"}}
	b.Add(5, []byte("k"), []byte("v"), want)
	b.Add(6, []byte("k"), []byte("v"), nil)
	batch, err := ParseBatch(b.Finish(Producer{}))
	require.NoError(t, err)
	it := batch.Records()
	require.True(t, it.Next())
	require.Equal(t, AppendHeaders(nil, want), it.AppendHeaders(nil))
	require.True(t, it.Next())
	require.Equal(t, AppendHeaders(nil, nil), it.AppendHeaders(nil))
}
