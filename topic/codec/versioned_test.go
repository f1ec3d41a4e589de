package codec

import (
	"errors"
	"strconv"
	"testing"
)

type rate struct{ Hits, Views int64 }

// Values of every version are read as those of today; others say what is the matter.
func TestVersioned(t *testing.T) {
	refused := errors.New("refused")
	one := Versioned(1, String)
	two := Versioned(2, Int64).From(1, String, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) })
	three := Versioned[rate](3, Struct[rate]()).
		From(2, Int64, func(n int64) (rate, error) { return rate{n, n}, nil }).
		From(1, String, func(string) (rate, error) { return rate{}, refused })
	a, err := one.Append([]byte("x"), "17")
	if err != nil || string(a) != "x\x0117" {
		t.Fatalf("%q, %v", a, err)
	}
	a = a[1:]
	b, _ := two.Append(nil, 5)
	c, _ := three.Append(nil, rate{3, 4})
	if n, err := two.Decode(a); err != nil || n != 17 {
		t.Fatal(n, err)
	}
	if r, err := three.Decode(b); err != nil || r != (rate{5, 5}) {
		t.Fatal(r, err)
	}
	if r, err := three.Decode(c); err != nil || r != (rate{3, 4}) {
		t.Fatal(r, err)
	}
	if _, err := three.Decode(a); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	for _, src := range [][]byte{c, {9, 1}} {
		if _, err := two.Decode(src); !errors.Is(err, ErrValueVersion) {
			t.Fatal(err)
		}
	}
	var fault *DecodeError
	for _, src := range [][]byte{nil, {0x80}, {2, 1}} {
		if _, err := two.Decode(src); !errors.As(err, &fault) {
			t.Fatalf("%x: %v", src, err)
		}
	}
}

// A declaration that makes no sense is an error of every call.
func TestVersionedFaults(t *testing.T) {
	same := func(n int64) (int64, error) { return n, nil }
	for _, v := range []VersionedCodec[int64]{
		Versioned(0, Int64), Versioned[int64](1, nil),
		Versioned(2, Int64).From(2, Int64, same), Versioned(2, Int64).From(0, Int64, same), Versioned(2, Int64).From(1, Int64, nil),
		Versioned(3, Int64).From(1, Int64, same).From(1, Int64, same),
	} {
		_, errAppend := v.Append(nil, 1)
		_, errDecode := v.Decode([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1})
		if v.Err() == nil || errAppend == nil || errDecode == nil {
			t.Errorf("%v: %v, %v, %v", v, v.Err(), errAppend, errDecode)
		}
	}
	base := Versioned(3, Int64)
	if one, other := base.From(1, Int64, same), base.From(2, Int64, same); len(one.older) != 1 || len(other.older) != 1 {
		t.Error("a copy changed another")
	}
}
