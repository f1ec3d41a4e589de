package codec_test

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/thalweg/thalweg/topic/codec"
)

func fingerprint(schema []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, crc32.Checksum(schema, crc32.MakeTable(crc32.Castagnoli)))
}

// click is a struct of 80 bytes, as the field sees them.
type click struct {
	User, Page, Agent string
	Cents, Item       int64
	Score             float64
	Status            int32
	Human             bool
}

var someClick = click{
	User: "user-17", Page: "/products/1234", Agent: "firefox", Cents: 1999, Item: 123456, Score: 0.75, Status: 200, Human: true,
}

func benchmark[T any](b *testing.B, c codec.Codec[T], err error, v T) {
	if err != nil {
		b.Fatal(err)
	}
	buf, err := c.Append(nil, v)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = c.Append(buf[:0], v)
		}
		b.ReportMetric(float64(len(buf)), "bytes")
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Decode(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkString(b *testing.B) { benchmark(b, codec.String, nil, "user-12345678") }
func BenchmarkInt64(b *testing.B)  { benchmark(b, codec.Int64, nil, 1<<40) }
func BenchmarkTime(b *testing.B)   { benchmark(b, codec.Time, nil, full().At) }

func BenchmarkNamed(b *testing.B) {
	c, err := codec.Of[userID]()
	benchmark(b, c, err, "user-12345678")
}

func BenchmarkStruct(b *testing.B) { benchmark(b, codec.Struct[click](), nil, someClick) }
func BenchmarkMap(b *testing.B) {
	benchmark(b, codec.Struct[map[string]int64](), nil, map[string]int64{"a": 1, "bb": 2, "ccc": 3, "dddd": 4})
}
func BenchmarkJSON(b *testing.B) { benchmark(b, codec.JSON[click](), nil, someClick) }
