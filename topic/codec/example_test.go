package codec_test

import (
	"fmt"

	"github.com/thalweg/thalweg/topic/codec"
)

// A type gets its codec once; the kinds are what other programs expect.
func ExampleOf() {
	type UserID string
	type Click struct {
		User UserID
		Page string
	}
	ids, _ := codec.Of[UserID]()
	clicks, _ := codec.Of[Click]()

	b, _ := ids.Append(nil, "u7")
	fmt.Printf("%s\n", b)
	b, _ = clicks.Append(nil, Click{"u7", "/"})
	fmt.Printf("%s\n", b)
	_, err := codec.Int64.Decode(b)
	fmt.Println(err)
	_, err = codec.Of[func()]()
	fmt.Println(err)
	// Output:
	// u7
	// {"User":"u7","Page":"/"}
	// codec: decode int64: want 8 bytes, got 24
	// codec: no codec for func(): JSON cannot write a func; register a codec with Use
}

// Values written before a field was added are read once the schema of then is
// known. A state store keeps it; here it is kept by hand.
func ExampleStruct() {
	type VisitV1 struct {
		Pages int
		Last  string
	}
	type Visit struct {
		Last   string
		Bought bool
		Pages  int64
	}
	before := codec.Struct[VisitV1]()
	schema := before.(codec.Schemed).Schema()
	b, _ := before.Append(nil, VisitV1{Pages: 3, Last: "/cart"})

	_, err := codec.Struct[Visit]().Decode(b)
	fmt.Println(err)
	v, err := codec.Struct[Visit](schema).Decode(b)
	fmt.Printf("%+v %v\n", v, err)
	// Output:
	// codec: decode codec_test.Visit: unknown schema 2729d2ad; the type's own is 2eed431e
	// {Last:/cart Bought:false Pages:3} <nil>
}

// A type that needs bytes of its own brings them along.
func ExampleFunc() {
	var r codec.Registry
	r.Use(codec.Func(
		func(dst []byte, n [2]uint16) ([]byte, error) { return fmt.Appendf(dst, "%d.%d", n[0], n[1]), nil },
		func(src []byte) (n [2]uint16, err error) {
			_, err = fmt.Sscanf(string(src), "%d.%d", &n[0], &n[1])
			return n, err
		}))
	c, _ := r.Of[[2]uint16]()
	b, _ := c.Append(nil, [2]uint16{1, 27})
	fmt.Printf("%s\n", b)
	_, err := c.Decode([]byte("x"))
	fmt.Println(err)
	// Output:
	// 1.27
	// codec: decode [2]uint16: expected integer
}
