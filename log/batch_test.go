package log

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// patched returns a copy of a batch with a field replaced and the checksum right
// again.
func patched(batch []byte, at int, value any) []byte {
	b := append([]byte(nil), batch...)
	if _, err := binary.Encode(b[at:], binary.BigEndian, value); err != nil {
		panic(err)
	}
	return resummed(b)
}

func resummed(b []byte) []byte {
	binary.BigEndian.PutUint32(b[atChecksum:], batchChecksum(b))
	return b
}

func TestParseBatchRefuses(t *testing.T) {
	good := buildBatch(Producer{ID: 5, Sequence: 1}, sampleRecords[:4]...)
	anonymous := buildBatch(Producer{ID: NoProducer}, sampleRecords[:4]...)
	for name, test := range map[string]struct {
		batch []byte
		want  error
		says  string
	}{
		"nothing":                       {nil, ErrInvalidBatch, "0 of 61"},
		"half a header":                 {good[:60], ErrInvalidBatch, "60 of 61"},
		"half a batch":                  {good[:len(good)-1], ErrInvalidBatch, "bytes follow"},
		"zeros":                         {make([]byte, 4096), ErrInvalidBatch, "length at byte 8 is 0"},
		"ones":                          {[]byte(strings.Repeat("\xff", 4096)), ErrInvalidBatch, "length at byte 8 is -1"},
		"negative length":               {patched(good, atBatchLength, int32(math.MinInt32)), ErrInvalidBatch, "-2147483648"},
		"greatest length":               {patched(good, atBatchLength, int32(math.MaxInt32)), ErrInvalidBatch, "2147483647"},
		"length within header":          {patched(good, atBatchLength, int32(48)), ErrInvalidBatch, "is 48"},
		"length of header alone":        {patched(good, atBatchLength, int32(49)), ErrInvalidBatch, "checksum"},
		"wrong checksum":                {append(append([]byte(nil), good[:len(good)-1]...), 9), ErrInvalidBatch, "checksum"},
		"old message":                   {append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 14}, make([]byte, 60)...), ErrVersion, "is 0"},
		"version 3":                     {patched(patched(good, atMagic, int8(3)), atChecksum+4, uint8(9))[:len(good)], ErrInvalidBatch, "magic"},
		"version 3, other sum":          {func() []byte { b := patched(good, atMagic, int8(3)); b[atChecksum]++; return b }(), ErrVersion, "is 3"},
		"unknown attribute":             {patched(good, atAttributes, uint16(0x80)), ErrVersion, "0x0080"},
		"compression nobody knows":      {patched(good, atAttributes, uint16(5)), ErrVersion, "compression type is 5"},
		"the last such, transactional":  {patched(good, atAttributes, uint16(0x17)), ErrVersion, "compression type is 7"},
		"negative base offset":          {patched(good, atBaseOffset, int64(-1)), ErrInvalidBatch, "base offset is -1"},
		"offsets overflow":              {patched(good, atBaseOffset, int64(math.MaxInt64-3)), ErrInvalidBatch, "last offset delta"},
		"negative last offset":          {patched(good, atLastOffsetDelta, int32(-1)), ErrInvalidBatch, "last offset delta"},
		"more records than offsets":     {patched(good, atLastOffsetDelta, int32(2)), ErrInvalidBatch, "record count"},
		"negative count":                {patched(good, atRecordCount, int32(-1)), ErrInvalidBatch, "record count"},
		"more records than bytes":       {patched(patched(good, atRecordCount, int32(1000)), atLastOffsetDelta, int32(5000)), ErrInvalidBatch, "cannot hold 1000"},
		"impossible producer":           {patched(good, atProducerID, int64(-2)), ErrInvalidBatch, "producer id"},
		"no sequence":                   {patched(good, atBaseSequence, int32(-1)), ErrInvalidBatch, "sequence"},
		"transactional without a owner": {patched(anonymous, atAttributes, uint16(0x10)), ErrInvalidBatch, "without a producer id"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseBatch(test.batch)
			require.ErrorIs(t, err, test.want)
			require.ErrorContains(t, err, test.says)
		})
	}
}

func TestParseHeaderLeavesTheChecksum(t *testing.T) {
	good := buildBatch(Producer{ID: 5, Sequence: 1}, sampleRecords...)
	want, err := ParseBatch(good)
	require.NoError(t, err)
	got, err := parseHeader(good)
	require.NoError(t, err)
	require.Equal(t, want, got)
	good[len(good)-1] ^= 1
	_, err = parseHeader(good)
	require.NoError(t, err)
	require.ErrorIs(t, verifyChecksum(good), ErrInvalidBatch)
}

func TestIteratorRefuses(t *testing.T) {
	// Each test replaces the records of a batch of two.
	record := func(parts ...any) []byte {
		var body []byte
		for _, p := range parts {
			switch p := p.(type) {
			case int:
				var b [10]byte
				body = append(body, b[:putVarint(b[:], 0, int64(p))]...)
			case string:
				body = append(body, p...)
			}
		}
		var b [10]byte
		return append(b[:putVarint(b[:], 0, int64(len(body)))], body...)
	}
	ok := record("\x00", 0, 0, -1, -1, 0)
	last := record("\x00", 0, 1, -1, -1, 0)
	for name, test := range map[string]struct {
		records [][]byte
		says    string
		read    int
	}{
		"missing record":              {[][]byte{ok, []byte("       ")[:0], make([]byte, 7)}, "record 1 of 2", 1},
		"bytes after the last":        {[][]byte{ok, last, {0}}, "1 bytes follow the last of 2", 2},
		"length beyond the batch":     {[][]byte{ok, {200, 1, 0, 0, 0, 0, 0, 0}}, "record 1 of 2 at byte 68 has a bad length", 1},
		"negative length":             {[][]byte{ok, {1, 0, 0, 0, 0, 0, 0, 0}}, "length", 1},
		"length that never ends":      {[][]byte{ok, []byte(strings.Repeat("\x80", 12))}, "length", 1},
		"length of more than 64 bits": {[][]byte{ok, []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02")}, "length", 1},
		"key beyond the record":       {[][]byte{record("\x00", 0, 0, 9, "k", 0, 0), last}, "key", 0},
		"key length -2":               {[][]byte{record("\x00", 0, 0, -2, "k", 0, 0), last}, "key", 0},
		"value beyond the record":     {[][]byte{record("\x00", 0, 0, -1, 3, "v", 0), last}, "value", 0},
		"value length -2":             {[][]byte{record("\x00", 0, 0, -1, -2, 0), last}, "value", 0},
		"no header count":             {[][]byte{record("\x00", 0, 0, -1, 2, "vv"), last}, "headers", 0},
		"negative header count":       {[][]byte{record("\x00", 0, 0, -1, -1, -1), last}, "headers", 0},
		"too many headers":            {[][]byte{record("\x00", 0, 0, -1, -1, 1000), last}, "headers", 0},
		"absent header key":           {[][]byte{record("\x00", 0, 0, -1, -1, 1, -1, 1, "v"), last}, "headers", 0},
		"header value beyond":         {[][]byte{record("\x00", 0, 0, -1, -1, 1, 1, "k", 9), last}, "headers", 0},
		"bytes after the headers":     {[][]byte{record("\x00", 0, 0, -1, -1, 1, 1, "k", -1, "more"), last}, "headers", 0},
		"bytes after no headers":      {[][]byte{record("\x00", 0, 0, -1, -1, 0, "more"), last}, "headers", 0},
		"offset repeats":              {[][]byte{ok, ok}, "offset", 1},
		"offset falls":                {[][]byte{last, ok}, "offset", 1},
		"offset past the last":        {[][]byte{ok, record("\x00", 0, 2, -1, -1, 0)}, "offset", 1},
		"negative offset":             {[][]byte{record("\x00", 0, -1, -1, -1, 0), last}, "offset", 0},
		"offset that overflows":       {[][]byte{record("\x00", 0, math.MaxInt64, -1, -1, 0), last}, "offset", 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := buildBatch(Producer{ID: NoProducer}, Record{}, Record{})[:batchHeaderBytes]
			for _, r := range test.records {
				b = append(b, r...)
			}
			binary.BigEndian.PutUint32(b[atBatchLength:], uint32(len(b)-lengthExcludes))
			batch, err := ParseBatch(resummed(b))
			require.NoError(t, err)
			it := batch.Records()
			read := 0
			for it.Next() {
				read++
			}
			require.Equal(t, test.read, read)
			require.ErrorIs(t, it.Err(), ErrInvalidBatch)
			require.ErrorContains(t, it.Err(), test.says)
			require.False(t, it.Next(), "it stays at its end")
			require.Nil(t, it.Key)
			require.False(t, it.HasHeaders())
			require.Equal(t, it.Err(), batch.checkRecords(0))
		})
	}
}

func TestCheckRecordsComparesTheMaxTimestamp(t *testing.T) {
	b := buildBatch(Producer{ID: NoProducer}, Record{Time: 7}, Record{Time: 9})
	batch, err := ParseBatch(b)
	require.NoError(t, err)
	require.NoError(t, batch.checkRecords(0))
	batch, err = ParseBatch(patched(b, atMaxTimestamp, int64(8)))
	require.NoError(t, err)
	batch.First = 2
	require.ErrorContains(t, batch.checkRecords(0), "has time 9", "records below First are checked too")
}

// TestBuilderRoundTrip shows that random records come back as they were, and that
// sizes are told exactly beforehand.
func TestBuilderRoundTrip(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	data := func(limit int) []byte {
		if random.IntN(5) == 0 {
			return nil
		}
		// Lengths around the steps of the varint are the interesting ones.
		n := random.IntN(limit)
		if random.IntN(2) == 0 {
			n = min(limit, []int{0, 1, 55, 56, 57, 58, 63, 64, 65, 8180, 8186, 8191, 8192, 8193}[random.IntN(14)])
		}
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	var builder BatchBuilder
	for range 300 {
		builder.Reset()
		require.Equal(t, batchHeaderBytes, builder.Size())
		var want []Record
		maxTime := int64(math.MinInt64)
		for i := range 1 + random.IntN(20) {
			r := Record{Offset: Offset(i), Time: random.Int64N(100_000), Key: data(100), Value: data(9000)}
			if random.IntN(5) == 0 {
				r.Time = []int64{math.MinInt64, math.MaxInt64, -1, 0, int64(random.Uint64())}[random.IntN(5)]
			}
			for range random.IntN(4) * random.IntN(2) {
				r.Headers = append(r.Headers, Header{Key: string(data(70)), Value: data(70)})
			}
			size := builder.SizeWith(r.Time, r.Key, r.Value, r.Headers)
			builder.Add(r.Time, r.Key, r.Value, r.Headers)
			require.EqualValues(t, size, builder.Size())
			want = append(want, r)
			maxTime = max(maxTime, r.Time)
		}
		require.Equal(t, len(want), builder.Len())
		require.NoError(t, builder.Err())
		encoded := builder.Finish(Producer{ID: 4, Epoch: 5, Sequence: 6})
		require.Len(t, encoded, builder.Size())
		batch, err := ParseBatch(encoded)
		require.NoError(t, err)
		require.Equal(t, Producer{ID: 4, Epoch: 5, Sequence: 6}, batch.Producer)
		require.EqualValues(t, -1, batch.Epoch)
		require.Equal(t, want[0].Time, batch.BaseTime)
		require.Equal(t, maxTime, batch.MaxTime)
		require.NoError(t, batch.checkRecords(0))
		require.Equal(t, want, collect(t, batch))
		kmsgRecords(t, encoded)
	}
}

func TestFinishAgainWithAnotherProducer(t *testing.T) {
	var b BatchBuilder
	b.Add(1, []byte("k"), []byte("v"), nil)
	first := append([]byte(nil), b.Finish(Producer{ID: 1, Sequence: 1, Transactional: true})...)
	second, err := ParseBatch(b.Finish(Producer{ID: NoProducer, Epoch: 7, Sequence: 7}))
	require.NoError(t, err)
	require.Equal(t, Producer{ID: NoProducer, Epoch: -1, Sequence: -1}, second.Producer)
	require.Equal(t, first, b.Finish(Producer{ID: 1, Sequence: 1, Transactional: true}))
	b.Add(2, nil, nil, nil)
	third, err := ParseBatch(b.Finish(Producer{ID: NoProducer}))
	require.NoError(t, err)
	require.Len(t, collect(t, third), 2, "records can follow a Finish")
}

func TestEmptyBuilderHasNoBatch(t *testing.T) {
	var b BatchBuilder
	require.Nil(t, b.Finish(Producer{ID: NoProducer}))
	b.Add(0, nil, nil, nil)
	require.NotNil(t, b.Finish(Producer{ID: NoProducer}))
	b.Reset()
	require.Nil(t, b.Finish(Producer{ID: NoProducer}))
	require.Zero(t, b.Len())
}

// TestBuilderRefusesWhatTheFormatCannotSay uses memory that is reserved only, never
// touched, except by the race detector.
func TestBuilderRefusesWhatTheFormatCannotSay(t *testing.T) {
	if testing.Short() {
		t.Skip("gigabytes under the race detector")
	}
	big := make([]byte, 1<<30)
	var shared []Header
	for range 1000 {
		shared = append(shared, Header{Key: "h", Value: big})
	}
	for name, add := range map[string]func(b *BatchBuilder){
		"key":     func(b *BatchBuilder) { b.Add(0, big, nil, nil) },
		"value":   func(b *BatchBuilder) { b.Add(0, nil, big, nil) },
		"headers": func(b *BatchBuilder) { b.Add(0, nil, nil, shared) },
		"batch": func(b *BatchBuilder) {
			b.buf = make([]byte, maxBatchTotalBytes-1000)
			b.Add(0, nil, make([]byte, 1000), nil)
		},
		"count": func(b *BatchBuilder) {
			b.count = math.MaxInt32
			b.Add(0, nil, nil, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b BatchBuilder
			b.Add(0, nil, []byte("first"), nil)
			add(&b)
			require.ErrorIs(t, b.Err(), ErrTooLarge)
			size, count := b.Size(), b.Len()
			b.Add(0, nil, []byte("another"), nil)
			require.Equal(t, size, b.Size(), "nothing is added after an error")
			require.Equal(t, count, b.Len())
			require.Nil(t, b.Finish(Producer{ID: NoProducer}))
			b.Reset()
			require.NoError(t, b.Err())
			b.buf = nil
			b.Add(0, nil, []byte("again"), nil)
			require.NotNil(t, b.Finish(Producer{ID: NoProducer}))
		})
	}
}

func TestNoAllocationPerRecord(t *testing.T) {
	headers := []Header{{Key: "trace", Value: []byte("id")}}
	key, value := make([]byte, 16), make([]byte, 84)
	var b BatchBuilder
	build := func() []byte {
		b.Reset()
		for i := range 100 {
			b.Add(int64(i), key, value, headers)
		}
		return b.Finish(Producer{ID: 1})
	}
	encoded := build()
	require.Zero(t, testing.AllocsPerRun(100, func() { build() }), "building")
	read := 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		batch, err := ParseBatch(encoded)
		if err != nil {
			panic(err)
		}
		it := batch.Records()
		for it.Next() {
			if it.HasHeaders() {
				read += len(it.Value)
			}
		}
		if batch.checkRecords(0) != nil {
			panic(it.Err())
		}
	}), "iterating")
	require.NotZero(t, read)
}

func TestVarints(t *testing.T) {
	var b [10]byte
	for _, v := range []int64{0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64} {
		n := putVarint(b[:], 0, v)
		require.Equal(t, varintLen(v), n)
		want := binary.AppendVarint(nil, v)
		require.Equal(t, want, b[:n])
		got, next := readVarint(b[:n], 0)
		require.Equal(t, v, got)
		require.Equal(t, n, next)
		for cut := range n {
			_, next := readVarint(b[:cut], 0)
			require.Equal(t, -1, next, fmt.Sprint(v, cut))
		}
	}
	_, next := readVarint(b[:], -1)
	require.Equal(t, -1, next, "a failure is handed on")
	_, next = readVarint(b[:], 10)
	require.Equal(t, -1, next)
}
