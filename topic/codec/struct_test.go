package codec_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/topic/codec"
)

type embedded struct{ Deep int8 }

type point struct{ X, y int32 }

// everything holds each kind the binary codec writes by structure.
type everything struct {
	embedded
	Yes       bool
	I         int
	I8        int8
	I16       small
	I32       int32
	I64       cents
	U         uint
	U8        uint8
	U16       uint16
	U32       uint32
	U64       uint64
	F32       float32
	F64       ratio
	S         userID
	B         blob
	Raw       digest
	At        time.Time
	Stamp     stamp
	unseen    string
	Points    []point
	Pairs     [2]point
	Names     []string
	Floats    []float64
	Lists     [][]int
	Units     []struct{}
	Map       map[userID]point
	Set       map[int]struct{}
	ByPoint   map[point]*point
	Next      *point
	Nested    struct{ P **int }
	_         [3]int32
	Anonymous struct{}
}

func full() everything {
	n := 5
	p := &n
	return everything{
		embedded: embedded{-1}, Yes: true, I: math.MinInt64, I8: -128, I16: 300, I32: math.MaxInt32, I64: -7,
		U: math.MaxUint64, U8: 255, U16: 65535, U32: 1 << 31, U64: 1, F32: -1.5, F64: 1e300,
		S: "id", B: blob{}, Raw: digest{1, 2, 3, 4}, At: time.Date(1812, 1, 2, 3, 4, 5, 6, time.UTC),
		Stamp: stamp(time.Unix(9, 9).UTC()), unseen: "kept",
		Points: []point{{1, 2}, {3, -4}}, Pairs: [2]point{{5, 6}, {7, 8}}, Names: []string{"", "a"}, Floats: []float64{1, 2},
		Lists: [][]int{nil, {}, {1}}, Units: make([]struct{}, 1000),
		Map: map[userID]point{"b": {1, 1}, "a": {2, 2}, "": {}}, Set: map[int]struct{}{300: {}, -1: {}},
		ByPoint: map[point]*point{{1, 2}: {3, 4}, {0, 0}: nil}, Next: &point{9, 9}, Nested: struct{ P **int }{&p},
	}
}

// Every kind comes back as it was, unexported fields and nils included.
func TestStructKeepsEverything(t *testing.T) {
	c := codec.Struct[everything]()
	require.Equal(t, full(), roundTrip(t, c, full()))
	require.Equal(t, everything{}, roundTrip(t, c, everything{}))

	var r codec.Registry
	in, err := r.Inner[map[string][]everything]()
	require.NoError(t, err)
	m := map[string][]everything{"a": {full(), {}}, "b": nil}
	require.Equal(t, m, roundTrip(t, in, m))
	p, err := r.Inner[*everything]()
	require.NoError(t, err)
	require.Nil(t, roundTrip(t, p, nil))
}

// Each field stands where format.go puts it.
func TestStructBytes(t *testing.T) {
	type bytesOf struct {
		Yes  bool
		I    int32
		U    uint64
		F    float64
		S    string
		B, N []byte
		At   time.Time
		P, Q *int
		L    []int
		M    map[string]int
		Raw  [2]byte
	}
	c := codec.Struct[bytesOf]()
	one := 1
	b, err := c.Append([]byte("x"), bytesOf{
		Yes: true, I: -2, U: 300, F: 1, S: "ab", B: []byte{}, At: time.Unix(1, 2), P: &one, L: []int{1, 64},
		M: map[string]int{"b": 2, "a": 1}, Raw: [2]byte{8, 9},
	})
	require.NoError(t, err)
	schema := c.(codec.Schemed).Schema()
	require.Equal(t, "78"+ // what was there
		"b7f8a2ca"+ // fingerprint
		"01"+"03"+"ac02"+"3ff0000000000000"+"026162"+"01"+"00"+
		"800000000000000100000002"+ // the time
		"0102"+"00"+ // the pointers
		"03"+"02"+"8001"+ // the slice
		"03"+"0161"+"02"+"0162"+"04"+ // the map, in order
		"0809", hex.EncodeToString(b))
	require.Equal(t, "01"+ // version
		"09"+"0d"+ // a struct of thirteen fields
		"03"+hex.EncodeToString([]byte("Yes"))+"01"+
		"01"+hex.EncodeToString([]byte("I"))+"02"+
		"01"+hex.EncodeToString([]byte("U"))+"03"+
		"01"+hex.EncodeToString([]byte("F"))+"05"+
		"01"+hex.EncodeToString([]byte("S"))+"06"+
		"01"+hex.EncodeToString([]byte("B"))+"07"+
		"01"+hex.EncodeToString([]byte("N"))+"07"+
		"02"+hex.EncodeToString([]byte("At"))+"08"+
		"01"+hex.EncodeToString([]byte("P"))+"0d02"+
		"01"+hex.EncodeToString([]byte("Q"))+"0d02"+
		"01"+hex.EncodeToString([]byte("L"))+"0b02"+
		"01"+hex.EncodeToString([]byte("M"))+"0c0602"+
		"03"+hex.EncodeToString([]byte("Raw"))+"0e02", hex.EncodeToString(schema))
}

// Equal maps are equal bytes, however Go walks them.
func TestStructIsDeterministic(t *testing.T) {
	c := codec.Struct[map[int]string]()
	m := map[int]string{}
	for i := range 100 {
		m[i*7919-300] = fmt.Sprint(i)
	}
	want, err := c.Append(nil, m)
	require.NoError(t, err)
	for range 20 {
		got, err := c.Append(nil, m)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	nan := math.NaN()
	_, err = codec.Struct[map[float64]int]().Append(nil, map[float64]int{nan: 1, math.Copysign(nan, 1): 2})
	require.ErrorContains(t, err, "two keys of the map are the same bytes")
}

// evolve writes v with the type before and reads it with the type after.
func evolve[Before, After any](t *testing.T, v Before) (After, error) {
	t.Helper()
	before, after := codec.Struct[Before](), codec.Struct[After]()
	b, err := before.Append(nil, v)
	require.NoError(t, err)
	if err := after.(codec.Schemed).AddSchema(before.(codec.Schemed).Schema()); err != nil {
		var zero After
		return zero, err
	}
	return after.Decode(b)
}

type lineV1 struct {
	SKU  string
	Qty  int16
	Gone map[string][]int
}

type lineV2 struct {
	Price *int64
	Qty   int64
	SKU   string
}

type orderV1 struct {
	Old   [3]struct{ A, B string }
	Lines []lineV1
	Total int64
	Dead  *lineV1
	Tags  map[string]lineV1
	ID    string
	Bytes []byte
	Drop  []struct{}
	When  time.Time
	Sub   point
}

type orderV2 struct {
	ID    string
	New   []string
	Total int64
	Tags  map[string]lineV2
	Lines []lineV2
	Sub   point
}

// Fields may be added (zero), removed (skipped), reordered and widened, at any
// depth, once the older schema is known; before that it is a clear error.
func TestStructReadsOlderSchemas(t *testing.T) {
	v1 := orderV1{
		Old: [3]struct{ A, B string }{{"a", "b"}}, Lines: []lineV1{{"s", 3, map[string][]int{"k": {1, 2}}}, {}},
		Total: 10, Dead: &lineV1{SKU: "x"}, Tags: map[string]lineV1{"t": {"u", -4, nil}}, ID: "id", Bytes: []byte{1},
		Drop: make([]struct{}, 1<<20), When: time.Unix(1, 1), Sub: point{1, 2},
	}
	got, err := evolve[orderV1, orderV2](t, v1)
	require.NoError(t, err)
	require.Equal(t, orderV2{
		ID: "id", Total: 10, Lines: []lineV2{{SKU: "s", Qty: 3}, {}}, Tags: map[string]lineV2{"t": {SKU: "u", Qty: -4}}, Sub: point{1, 2},
	}, got)

	b, err := codec.Struct[orderV1]().Append(nil, v1)
	require.NoError(t, err)
	fresh := codec.Struct[orderV2]()
	_, err = fresh.Decode(b)
	require.ErrorIs(t, err, codec.ErrUnknownSchema)
	require.ErrorContains(t, err, "codec: decode codec_test.orderV2: unknown schema ")

	told := codec.Struct[orderV2](codec.Struct[orderV1]().(codec.Schemed).Schema())
	_, err = told.Decode(b)
	require.NoError(t, err)
}

// What does not fit is an error that names the field, when the schema is added
// or, for a number too wide, when the value is read.
func TestStructSchemaThatDoesNotFit(t *testing.T) {
	_, err := evolve[struct{ L []struct{ Q int } }, struct{ L []struct{ Q string } }](t, struct{ L []struct{ Q int } }{})
	require.ErrorIs(t, err, codec.ErrSchemaChanged)
	require.ErrorContains(t, err, ".L[].Q was int and is now string")
	_, err = evolve[struct{ A *int }, struct{ A int }](t, struct{ A *int }{})
	require.ErrorContains(t, err, ".A was pointer and is now int")
	_, err = evolve[struct{ A [2]int }, struct{ A [3]int }](t, struct{ A [2]int }{})
	require.ErrorContains(t, err, ".A was array of 2 and is now array of 3")
	_, err = evolve[struct{ A [2]byte }, struct{ A []byte }](t, struct{ A [2]byte }{})
	require.ErrorContains(t, err, ".A was 2 raw bytes and is now bytes")
	_, err = evolve[struct{ A card }, struct{ A boxed }](t, struct{ A card }{})
	require.ErrorContains(t, err, ".A was codec custom:codec_test.card and is now codec custom:codec_test.boxed")
	_, err = evolve[struct{ A []struct{} }, struct{ A []struct{ B int } }](t, struct{ A []struct{} }{})
	require.ErrorContains(t, err, "the elements of .A need memory and write no bytes")
	_, err = evolve[struct{ A map[point]int }, struct{ A map[struct{ X int32 }]int }](t,
		struct{ A map[point]int }{map[point]int{{1, 1}: 1, {1, 2}: 2}})
	require.ErrorContains(t, err, ".A: two keys have become one")

	ok, err := evolve[struct{ A int64 }, struct{ A int8 }](t, struct{ A int64 }{-128})
	require.NoError(t, err)
	require.EqualValues(t, -128, ok.A)
	_, err = evolve[struct{ A int64 }, struct{ A int8 }](t, struct{ A int64 }{128})
	require.ErrorContains(t, err, ".A: the number does not fit the type")
	_, err = evolve[struct{ A uint }, struct{ A uint16 }](t, struct{ A uint }{1 << 16})
	require.ErrorContains(t, err, ".A: the number does not fit the type")

	told := codec.Struct[point](codec.Struct[string]().(codec.Schemed).Schema())
	require.ErrorContains(t, told.(interface{ Err() error }).Err(), "the value was string and is now struct")
	_, err = told.Append(nil, point{})
	require.ErrorIs(t, err, codec.ErrSchemaChanged)
	for _, schema := range []string{"", "\x02\x01", "\x01", "\x01\x09\x01\x01", "\x01\x63", "\x01\x01\x01", "\x01\x09\x02\x01A\x01\x01A\x01", "\x01" + strings.Repeat("\x0b", 100)} {
		require.Error(t, codec.Struct[point]().(codec.Schemed).AddSchema([]byte(schema)), "%q", schema)
	}
}

// A topic keeps no schemas: fields added at the end are read all the same.
func TestStructOnTopicReadsFieldsAddedAtEnd(t *testing.T) {
	type v0 struct{ A int }
	type v1 struct {
		A int
		B string
	}
	type v2 struct {
		A int
		B string
		C []string
		D *int
	}
	b, err := codec.Struct[v1]().Append(nil, v1{1, "b"})
	require.NoError(t, err)
	c := codec.Struct[v2]()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				got, err := c.Decode(b)
				if err != nil || !reflect.DeepEqual(v2{A: 1, B: "b"}, got) {
					t.Errorf("got %v, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
	b, err = codec.Struct[v0]().Append(nil, v0{2})
	require.NoError(t, err)
	got, err := c.Decode(b)
	require.NoError(t, err)
	require.Equal(t, v2{A: 2}, got)

	b, err = codec.Struct[v2]().Append(nil, v2{A: 1})
	require.NoError(t, err)
	_, err = codec.Struct[v1]().Decode(b)
	require.ErrorIs(t, err, codec.ErrUnknownSchema, "a reader older than the writer")
}

// Damaged values are errors that name the field, and give the zero value.
func TestStructDamagedValues(t *testing.T) {
	c := codec.Struct[everything]()
	whole, err := c.Append(nil, full())
	require.NoError(t, err)
	for n := range whole {
		v, err := c.Decode(whole[:n])
		_, ok := errors.AsType[*codec.DecodeError](err)
		require.True(t, ok, "cut at %d: %v", n, err)
		require.Equal(t, everything{}, v)
	}
	_, err = c.Decode(append(whole, 0))
	require.ErrorContains(t, err, "bytes follow the value")

	plain := codec.Struct[struct{ A, B string }]()
	b, err := plain.Append(nil, struct{ A, B string }{"abc", "def"})
	require.NoError(t, err)
	_, err = plain.Decode(b[:len(b)-1])
	require.ErrorContains(t, err, ".B: want 3 bytes, got 2: it ends early")
	_, err = plain.Decode(b[:3])
	require.ErrorContains(t, err, "want 4 bytes, got 3")
	_, err = plain.Decode(append(b[:4:4], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1))
	require.ErrorContains(t, err, ".A: more elements than bytes")
}

// Values stay whole while the collector runs and stacks move, although plans
// hide their addresses.
func TestStructUnderGarbageCollection(t *testing.T) {
	type holder struct {
		S []string
		P *string
		T string
	}
	c := codec.Struct[holder]()
	make := func(i int) holder {
		s := strings.Repeat(fmt.Sprint(i), 20)
		return holder{S: []string{s + "a", s + "b"}, P: &s, T: s + "t"}
	}
	stop := make2gc()
	defer stop()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				b, err := c.Append(nil, make(g*i))
				if err != nil {
					t.Error(err)
					return
				}
				v, err := c.Decode(b)
				if err != nil || !reflect.DeepEqual(make(g*i), v) {
					t.Errorf("%v, %v", v, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func make2gc() (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				runtime.GC()
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// The simple path allocates nothing to encode, and what it returns to decode.
func TestStructAllocations(t *testing.T) {
	c := codec.Struct[click]()
	buf := make([]byte, 0, 256)
	v := someClick
	require.Zero(t, testing.AllocsPerRun(100, func() { buf, _ = c.Append(buf[:0], v) }))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = c.Decode(buf) }), 3.0)
	id, err := codec.Of[userID]()
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf, _ = id.Append(buf[:0], "some user") }))
}

// A value and its schema of every released version of the format still decode.
func TestStructGoldenFiles(t *testing.T) {
	const v1 = "testdata/format/struct-v1.txt"
	c := codec.Struct[everything]()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		b, err := c.Append(nil, full())
		require.NoError(t, err)
		text := fmt.Sprintf("%x\n%x\n", c.(codec.Schemed).Schema(), b)
		require.NoError(t, os.MkdirAll(filepath.Dir(v1), 0o777))
		require.NoError(t, os.WriteFile(v1, []byte(text), 0o666))
	}
	text, err := os.ReadFile(v1)
	require.NoError(t, err)
	lines := strings.Fields(string(text))
	schema, err := hex.DecodeString(lines[0])
	require.NoError(t, err)
	value, err := hex.DecodeString(lines[1])
	require.NoError(t, err)
	require.NoError(t, c.(codec.Schemed).AddSchema(schema))
	got, err := c.Decode(value)
	require.NoError(t, err)
	require.Equal(t, full(), got)
}
