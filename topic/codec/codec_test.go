package codec_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/topic/codec"
)

type (
	userID string
	cents  int64
	small  int16
	ratio  float64
	flag   bool
	blob   []byte
	digest [4]byte
	stamp  time.Time
	unit   struct{}
)

// encodes checks that the default codec of T writes v as the bytes given in
// hex, reads them back, and appends rather than overwrites.
func encodes[T any](t *testing.T, v T, want string) {
	t.Helper()
	for _, of := range []func() (codec.Codec[T], error){codec.Of[T], (&codec.Registry{}).Inner[T]} {
		c, err := of()
		require.NoError(t, err)
		b, err := c.Append([]byte("x"), v)
		require.NoError(t, err)
		require.Equal(t, want, hex.EncodeToString(b[1:]), "%T", v)
		require.Equal(t, byte('x'), b[0])
		back, err := c.Decode(b[1:])
		require.NoError(t, err)
		require.Equal(t, v, back)
	}
}

// Kinds are written as Kafka's serializers write them, named or not, in topics
// and inside alike.
func TestKindsAreWrittenAsKafkaDoes(t *testing.T) {
	encodes(t, "héy", "68c3a979")
	encodes(t, "", "")
	encodes(t, userID("u1"), "7531")
	encodes(t, []byte{0, 255}, "00ff")
	encodes(t, blob{1}, "01")
	encodes(t, digest{1, 2, 3, 4}, "01020304")
	encodes(t, true, "01")
	encodes(t, flag(false), "00")
	encodes(t, int8(-1), "ff")
	encodes(t, int16(-2), "fffe")
	encodes(t, small(258), "0102")
	encodes(t, int32(-2), "fffffffe")
	encodes(t, int64(1), "0000000000000001")
	encodes(t, cents(-1), "ffffffffffffffff")
	encodes(t, -1, "ffffffffffffffff")
	encodes(t, time.Second, "000000003b9aca00")
	encodes(t, uint8(200), "c8")
	encodes(t, uint16(65535), "ffff")
	encodes(t, uint32(1), "00000001")
	encodes(t, uint64(math.MaxUint64), "ffffffffffffffff")
	encodes(t, uint(1), "0000000000000001")
	encodes(t, float32(1), "3f800000")
	encodes(t, 1.0, "3ff0000000000000")
	encodes(t, ratio(-2), "c000000000000000")
	encodes(t, math.Copysign(0, -1), "8000000000000000")
	encodes(t, struct{}{}, "")
	encodes(t, unit{}, "")
	encodes(t, time.Unix(1, 2).UTC(), "800000000000000100000002")
	encodes(t, stamp(time.Unix(-1, 0).UTC()), "7fffffffffffffff00000000")
	encodes(t, netip.MustParseAddr("10.0.0.1"), "0a000001")
}

// A NaN keeps its bits: as a key it is one key per bit pattern.
func TestNaNKeepsItsBits(t *testing.T) {
	const bits = 0x7ff0000000000001 // a signalling one
	b, err := codec.Float64.Append(nil, math.Float64frombits(bits))
	require.NoError(t, err)
	v, err := codec.Float64.Decode(b)
	require.NoError(t, err)
	require.Equal(t, uint64(bits), math.Float64bits(v))
}

// Times keep the instant for every year, come back in UTC, and sort as bytes.
func TestTimesKeepTheInstantAndSort(t *testing.T) {
	times := []time.Time{
		{},
		time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC),
		time.Date(1677, 9, 21, 0, 12, 43, 145224191, time.UTC),
		time.Date(1969, 12, 31, 23, 59, 59, 999999999, time.UTC),
		time.Unix(0, 0).UTC(),
		time.Date(2026, 3, 4, 5, 6, 7, 8, time.FixedZone("", 3600)),
		time.Date(2262, 4, 11, 23, 47, 16, 854775808, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
	}
	var last []byte
	for _, want := range times {
		b, err := codec.Time.Append(nil, want)
		require.NoError(t, err)
		require.Negative(t, bytes.Compare(last, b), "%v sorts before its predecessor", want)
		last = b
		got, err := codec.Time.Decode(b)
		require.NoError(t, err)
		require.Equal(t, want.UTC(), got)
	}
	now, err := codec.Time.Append(nil, time.Now())
	require.NoError(t, err)
	got, err := codec.Time.Decode(now)
	require.NoError(t, err)
	require.Equal(t, time.UTC, got.Location())
}

// Wrong bytes are an error that names the type, the length wanted and got.
func TestDecodeErrorsNameTypeAndLengths(t *testing.T) {
	decode := func(f func([]byte) error, src string) error { return f([]byte(src)) }
	cases := []struct {
		err  error
		want string
	}{
		{decode(try[int64], "abc"), "codec: decode int64: want 8 bytes, got 3"},
		{decode(try[cents], ""), "codec: decode codec_test.cents: want 8 bytes, got 0"},
		{decode(try[int8], "ab"), "codec: decode int8: want 1 bytes, got 2"},
		{decode(try[uint16], "abc"), "codec: decode uint16: want 2 bytes, got 3"},
		{decode(try[float32], "abc"), "codec: decode float32: want 4 bytes, got 3"},
		{decode(try[int], "abc"), "codec: decode int: want 8 bytes, got 3"},
		{decode(try[uint], "abc"), "codec: decode uint: want 8 bytes, got 3"},
		{decode(try[bool], "\x02"), "codec: decode bool: neither 0 nor 1"},
		{decode(try[bool], ""), "codec: decode bool: want 1 bytes, got 0"},
		{decode(try[time.Time], "abc"), "codec: decode time.Time: want 12 bytes, got 3"},
		{decode(try[time.Time], "\x80\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"), "codec: decode time.Time: a second has fewer than 1e9 nanoseconds"},
		{decode(try[digest], "abc"), "codec: decode codec_test.digest: want 4 bytes, got 3"},
		{decode(try[struct{}], "a"), "codec: decode struct {}: want 0 bytes, got 1"},
	}
	for _, c := range cases {
		require.EqualError(t, c.err, c.want)
		_, ok := errors.AsType[*codec.DecodeError](c.err)
		require.True(t, ok)
	}
	require.ErrorContains(t, try[netip.Addr]([]byte("abc")), "codec: decode netip.Addr: ")
	require.ErrorContains(t, try[order]([]byte(`{} x`)), "codec: decode codec_test.order: ")
}

func try[T any](src []byte) error {
	c, err := codec.Of[T]()
	if err != nil {
		return err
	}
	_, err = c.Decode(src)
	return err
}

// What Decode returns is its own: the source may be unmapped afterwards.
func TestDecodeCopies(t *testing.T) {
	src := []byte("abc")
	s, _ := codec.String.Decode(src)
	b, _ := codec.Bytes.Decode(src)
	copy(src, "xyz")
	require.Equal(t, "abc", s)
	require.Equal(t, "abc", string(b))
}

type order struct {
	ID    string
	Cents int64
	Tags  map[string]int
	Took  time.Duration
	note  string
}

// Structs on topics are JSON that others can read: sorted maps, durations in
// nanoseconds, nothing after the value.
func TestStructsOnTopicsAreJSON(t *testing.T) {
	c, err := codec.Of[order]()
	require.NoError(t, err)
	b, err := c.Append(nil, order{ID: "a", Cents: 5, Tags: map[string]int{"z": 1, "b": 2}, Took: 3, note: "lost"})
	require.NoError(t, err)
	require.Equal(t, `{"ID":"a","Cents":5,"Tags":{"b":2,"z":1},"Took":3}`, string(b))
	v, err := c.Decode(b)
	require.NoError(t, err)
	require.Equal(t, order{ID: "a", Cents: 5, Tags: map[string]int{"z": 1, "b": 2}, Took: 3}, v)
	for _, bad := range []string{"", "{", `{"ID":1}`, string(b) + "{}"} {
		_, err := c.Decode([]byte(bad))
		require.Error(t, err, bad)
	}
}

type (
	protoLike  struct{ A int }
	shaped     interface{ Area() float64 }
	withShape  struct{ S shaped }
	withAny    struct{ A any }
	withFunc   struct{ Inner struct{ F func() } }
	hidden     struct{ a, b int }
	tree       struct{ Kids []*tree }
	boolKeys   struct{ M map[bool]int }
	withProto  struct{ P *protoLike }
	timedEvent struct {
		time.Time
		Name string
	}
	onlyTime struct{ time.Time }
)

func (*protoLike) ProtoReflect() int { return 0 }

// A type without a codec is an error that names the field and says what to do.
func TestTypesWithoutCodec(t *testing.T) {
	check := func(err error, want string) {
		t.Helper()
		require.ErrorContains(t, err, want)
		_, ok := errors.AsType[*codec.TypeError](err)
		require.True(t, ok, "%T", err)
	}
	check(of[any](), "codec: no codec for interface {}: an interface does not say")
	check(of[error](), "codec: no codec for error: an interface")
	check(of[chan int](), "codec: no codec for chan int: JSON cannot write a chan")
	check(of[func()](), "codec: no codec for func(): JSON cannot write a func")
	check(of[complex128](), "codec: no codec for complex128: ")
	check(of[withShape](), "codec: no codec for codec_test.withShape.S: an interface")
	check(of[withFunc](), "codec: no codec for codec_test.withFunc.Inner.F: JSON cannot write a func")
	check(of[boolKeys](), "codec: no codec for codec_test.boolKeys.M: JSON cannot write map keys of type bool")
	check(of[hidden](), "all its fields are unexported")
	check(of[timedEvent](), "it embeds time.Time and so inherits its Marshal")
	check(of[protoLike](), "protobuf")
	check(of[*protoLike](), "protobuf")
	check(of[withProto](), "codec: no codec for codec_test.withProto.P: it is a protobuf message")
	check(of[[]*protoLike](), "protobuf")

	check(inner[any](), "an interface")
	check(inner[chan int](), "cannot write a chan")
	check(inner[withAny](), "codec: no codec for codec_test.withAny.A: an interface")
	check(inner[withFunc](), "codec: no codec for codec_test.withFunc.Inner.F: ")
	check(inner[map[string]any](), "codec: no codec for map[string]interface {}[]: an interface")
	check(inner[*protoLike](), "protobuf")
	check(inner[withProto](), "codec: no codec for codec_test.withProto.P: it is a protobuf message")
	check(inner[tree](), "codec: no codec for codec_test.tree.Kids[]: it contains itself")
	check(inner[map[*int]int](), "map keys with pointers")
	check(inner[struct{ L []struct{ _ int } }](), ": the elements of .L need memory and write no bytes")
	check(inner[struct{ Mu sync.Mutex }](), ".Mu: a sync.Mutex is not data")

	require.NoError(t, of[tree]())
	require.NoError(t, of[withAny]())
	require.NoError(t, of[onlyTime]())
	require.NoError(t, inner[hidden]())
	require.NoError(t, inner[timedEvent]())
	require.NoError(t, inner[boolKeys]())
}

func of[T any]() error    { _, err := codec.Of[T](); return err }
func inner[T any]() error { _, err := (*codec.Registry)(nil).Inner[T](); return err }

// An event that embeds a time keeps its other fields.
func TestEmbeddedMarshalerDoesNotHideFields(t *testing.T) {
	c, err := (*codec.Registry)(nil).Inner[timedEvent]()
	require.NoError(t, err)
	want := timedEvent{time.Unix(5, 6).UTC(), "n"}
	require.Equal(t, want, roundTrip(t, c, want))
}

func roundTrip[T any](t *testing.T, c codec.Codec[T], v T) T {
	t.Helper()
	b, err := c.Append(nil, v)
	require.NoError(t, err)
	back, err := c.Decode(b)
	require.NoError(t, err)
	again, err := c.Append(nil, back)
	require.NoError(t, err)
	require.Equal(t, b, again)
	return back
}

// card provides its own codec, made of one of the registry's.
type card struct{ digits string }

func (card) Codec(r *codec.Registry) (codec.Codec[card], error) {
	s, err := r.Of[string]()
	return codec.Func(
		func(dst []byte, c card) ([]byte, error) { return s.Append(append(dst, '#'), c.digits) },
		func(src []byte) (card, error) {
			if len(src) == 0 || src[0] != '#' {
				return card{}, errors.New("not a card")
			}
			d, err := s.Decode(src[1:])
			return card{d}, err
		}), err
}

// boxed provides a codec through its pointer.
type boxed struct{ n *big.Int }

func (*boxed) Codec(*codec.Registry) (codec.Codec[boxed], error) { return foreign{}, nil }

// foreign is a codec this package did not make.
type foreign struct{}

func (foreign) Append(dst []byte, b boxed) ([]byte, error) { return b.n.Append(dst, 10), nil }
func (foreign) Decode(src []byte) (boxed, error) {
	n, ok := new(big.Int).SetString(string(src), 10)
	if !ok {
		return boxed{}, fmt.Errorf("not a number: %q", src)
	}
	return boxed{n}, nil
}

// own asks for its structure, in spite of its methods.
type own struct {
	a int
	B *string
}

func (own) Codec(*codec.Registry) (codec.Codec[own], error) { return codec.Struct[own](), nil }
func (own) MarshalText() ([]byte, error)                    { return nil, errors.New("never") }

type wallet struct {
	Card  card
	Boxed boxed
	Own   own
	Addr  netip.Addr
	Sum   big.Int
	Cards map[string]card
}

// Types bring their own codecs, at the top and inside others, and Use wins over
// all.
func TestProvidersAndUse(t *testing.T) {
	c, err := codec.Of[card]()
	require.NoError(t, err)
	b, err := c.Append(nil, card{"12"})
	require.NoError(t, err)
	require.Equal(t, "#12", string(b))
	_, err = c.Decode([]byte("12"))
	require.EqualError(t, err, "codec: decode codec_test.card: not a card")

	bc, err := codec.Of[boxed]()
	require.NoError(t, err)
	require.Equal(t, "7", roundTrip(t, bc, boxed{big.NewInt(7)}).n.String())

	s := "s"
	w := wallet{
		Card: card{"1"}, Boxed: boxed{big.NewInt(-5)}, Own: own{3, &s}, Addr: netip.MustParseAddr("::1"),
		Sum: *big.NewInt(9), Cards: map[string]card{"x": {"2"}, "a": {string(make([]byte, 300))}},
	}
	var r codec.Registry
	wc, err := r.Inner[wallet]()
	require.NoError(t, err)
	require.Equal(t, w, roundTrip(t, wc, w))

	r.Use(codec.Func(
		func(dst []byte, s string) ([]byte, error) { return append(append(dst, '<'), s...), nil },
		func(src []byte) (string, error) { return string(src[1:]), nil }))
	c, err = r.Of[card]()
	require.NoError(t, err)
	b, err = c.Append(nil, card{"12"})
	require.NoError(t, err)
	require.Equal(t, "#<12", string(b))

	r.Use[card](codec.JSON[card]())
	_, err = r.Of[card]()
	require.NoError(t, err, "faults of JSON show when it is used")
	r.Use[card](nil)
	_, err = r.Of[card]()
	require.ErrorContains(t, err, "nil codec")
	_, err = r.Inner[wallet]()
	require.ErrorContains(t, err, "codec_test.wallet.Card: Use was given a nil codec")

	r.Use[shaped](codec.Func(func(dst []byte, s shaped) ([]byte, error) { return dst, nil },
		func([]byte) (shaped, error) { return nil, nil }))
	_, err = r.Inner[withShape]()
	require.NoError(t, err)
}

// pair asks for the codec of what it holds, as window keys do.
type pair[T any] struct{ v T }

func (pair[T]) Codec(r *codec.Registry) (codec.Codec[pair[T]], error) {
	c, err := r.Of[T]()
	if err != nil {
		return nil, err
	}
	return codec.Func(func(dst []byte, p pair[T]) ([]byte, error) { return c.Append(dst, p.v) },
		func(src []byte) (pair[T], error) { v, err := c.Decode(src); return pair[T]{v}, err }), nil
}

// A provider's parts are encoded for the same readers as the whole: JSON on a
// topic, binary inside, where unexported fields count.
func TestProvidersPartsFollowTheirUse(t *testing.T) {
	var r codec.Registry
	_, err := r.Of[pair[pair[hidden]]]()
	require.ErrorContains(t, err, "unexported")
	c, err := r.Inner[pair[pair[hidden]]]()
	require.NoError(t, err)
	require.Equal(t, pair[pair[hidden]]{pair[hidden]{hidden{1, 2}}}, roundTrip(t, c, pair[pair[hidden]]{pair[hidden]{hidden{1, 2}}}))
	_, err = r.Inner[struct{ P pair[hidden] }]()
	require.NoError(t, err)
}
