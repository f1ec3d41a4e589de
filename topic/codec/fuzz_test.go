package codec_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/topic/codec"
)

// decodesBack checks that src is refused or encodes back to the same bytes.
func decodesBack[T any](t *testing.T, src []byte) {
	t.Helper()
	c, err := (*codec.Registry)(nil).Inner[T]()
	require.NoError(t, err)
	v, err := c.Decode(src)
	if err != nil {
		return
	}
	b, err := c.Append([]byte{}, v)
	require.NoError(t, err)
	require.Equal(t, append([]byte{}, src...), b, "%T", v)
}

func FuzzDecodeKinds(f *testing.F) {
	for _, n := range []int{0, 1, 2, 4, 8, 12} {
		f.Add(make([]byte, n))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		decodesBack[string](t, src)
		decodesBack[[]byte](t, src)
		decodesBack[digest](t, src)
		decodesBack[bool](t, src)
		decodesBack[int](t, src)
		decodesBack[uint](t, src)
		decodesBack[int8](t, src)
		decodesBack[int16](t, src)
		decodesBack[int32](t, src)
		decodesBack[cents](t, src)
		decodesBack[float32](t, src)
		decodesBack[float64](t, src)
		decodesBack[time.Time](t, src)
		decodesBack[struct{}](t, src)
	})
}

func FuzzDecodeJSON(f *testing.F) {
	f.Add([]byte(`{"ID":"a","Cents":5,"Tags":{"b":2},"Took":3}`))
	f.Add([]byte(`null`))
	c, err := codec.Of[order]()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		v, err := c.Decode(src)
		if err != nil {
			return
		}
		b, err := c.Append(nil, v)
		require.NoError(t, err)
		again, err := c.Decode(b)
		require.NoError(t, err)
		second, err := c.Append(nil, again)
		require.NoError(t, err)
		require.Equal(t, b, second)
	})
}

// FuzzDecodeStruct feeds bodies under the type's own fingerprint, to a type of
// all kinds and to one whose values go by other codecs.
func FuzzDecodeStruct(f *testing.F) {
	c := codec.Struct[everything]()
	empty, _ := c.Append(nil, everything{})
	some, _ := c.Append(nil, full())
	f.Add(empty[4:])
	f.Add(some[4:])
	w := codec.Struct[struct{ Cards map[card]card }]()
	cards, _ := w.Append(nil, struct{ Cards map[card]card }{map[card]card{{"1"}: {"2"}}})
	f.Add(cards[4:])
	f.Fuzz(func(t *testing.T, body []byte) {
		decodesBack[everything](t, append(append([]byte{}, empty[:4]...), body...))
		decodesBack[struct{ Cards map[card]card }](t, append(append([]byte{}, cards[:4]...), body...))
	})
}

// FuzzSchema feeds schemas, and values under those that fit.
func FuzzSchema(f *testing.F) {
	v1 := codec.Struct[orderV1]()
	b, _ := v1.Append(nil, orderV1{Lines: []lineV1{{"s", 3, nil}}, Tags: map[string]lineV1{"a": {}}})
	f.Add(v1.(codec.Schemed).Schema(), b[4:])
	v2 := codec.Struct[orderV2]()
	f.Add(v2.(codec.Schemed).Schema(), []byte{})
	f.Add([]byte{1, 9, 1, 1, 'A', 10, 255, 255, 255, 255, 255, 1, 9, 0}, []byte{0})
	f.Fuzz(func(t *testing.T, schema, body []byte) {
		c := codec.Struct[orderV2]()
		if c.(codec.Schemed).AddSchema(schema) != nil {
			return
		}
		v, err := c.Decode(append(fingerprint(schema), body...))
		if err != nil {
			require.True(t, reflect.ValueOf(v).IsZero())
			return
		}
		again, err := c.Append(nil, v)
		require.NoError(t, err)
		back, err := c.Decode(again)
		require.NoError(t, err)
		require.Equal(t, v, back)
	})
}
