package bench

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/thalweg/thalweg/topic/codec"
)

// click is a struct of 80 bytes, as it is written by hand.
type click struct {
	User, Page, Agent string
	Cents, Item       int64
	Score             int64
	Status            int32
	Human             bool
}

var someClick = click{User: "user-17", Page: "/products/1234", Agent: "firefox", Cents: 1999, Item: 123456, Score: 75, Status: 200, Human: true}

// BenchmarkCodec encodes and decodes a struct with three strings and five numbers by the codec
// that needs nothing but the type, and as JSON. The floor is written by hand: the same
// fields one after the other, with lengths.
func BenchmarkCodec(b *testing.B) {
	var byHand []byte
	encode := everyOf(func(int) { byHand = appendClick(byHand[:0], someClick) })
	decode := everyOf(func(int) { sink += uint32(len(decodeClick(byHand).Page)) })
	if decodeClick(byHand) != someClick {
		b.Fatal("what is written by hand is not read so")
	}
	for _, c := range []struct {
		name  string
		codec codec.Codec[click]
	}{{"struct", codec.Struct[click]()}, {"json", codec.JSON[click]()}} {
		encoded, err := c.codec.Append(nil, someClick)
		if err != nil {
			b.Fatal(err)
		}
		if back, err := c.codec.Decode(encoded); err != nil || back != someClick {
			b.Fatal(back, err)
		}
		run := func(name string, floor float64, f func() error) {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				start, n := time.Now(), 0
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
					n++
				}
				each := float64(time.Since(start)) / float64(n)
				b.ReportMetric(float64(len(encoded)), "bytes")
				b.ReportMetric(floor, "floor-ns/op")
				b.ReportMetric(100*floor/each, "%floor")
			})
		}
		run("encode", encode, func() (err error) {
			encoded, err = c.codec.Append(encoded[:0], someClick)
			return err
		})
		run("decode", decode, func() error {
			v, err := c.codec.Decode(encoded)
			sink += uint32(len(v.Page))
			return err
		})
	}
}

func appendClick(dst []byte, c click) []byte {
	for _, s := range []string{c.User, c.Page, c.Agent} {
		dst = append(binary.AppendUvarint(dst, uint64(len(s))), s...)
	}
	for _, n := range []int64{c.Cents, c.Item, c.Score, int64(c.Status)} {
		dst = binary.AppendVarint(dst, n)
	}
	return append(dst, boolByte(c.Human))
}

func decodeClick(src []byte) (c click) {
	text := func() string {
		size, n := binary.Uvarint(src)
		s := string(src[n : n+int(size)])
		src = src[n+int(size):]
		return s
	}
	number := func() int64 {
		v, n := binary.Varint(src)
		src = src[n:]
		return v
	}
	c.User, c.Page, c.Agent = text(), text(), text()
	c.Cents, c.Item, c.Score, c.Status = number(), number(), number(), int32(number())
	c.Human = src[0] != 0
	return c
}
