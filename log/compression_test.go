package log

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/thalweg/thalweg/internal/vfs"
)

var allCompressions = []Compression{NoCompression, Gzip, Snappy, LZ4, Zstd}

// ways are all compressions with their least, default and greatest level.
func ways(t testing.TB) (all []*Compressor) {
	for _, codec := range allCompressions {
		levels := []int{0}
		if codec > 0 && maxLevel[codec] > 0 {
			levels = []int{0, 1, maxLevel[codec]}
		}
		for _, level := range levels {
			c, err := NewCompressor(codec, level)
			require.NoError(t, err)
			all = append(all, c)
		}
	}
	return all
}

func (c *Compressor) String() string { return fmt.Sprintf("%v level %d", c.codec, c.level) }

// encode is Partition.Encode of a batch that is in order.
func encode(t testing.TB, p *Partition, b *BatchBuilder, producer Producer) []byte {
	t.Helper()
	batch, err := p.Encode(b, producer)
	require.NoError(t, err)
	return batch
}

// goldenLines are records that compress well. They are those of the files in
// testdata/format/records.*, and must not change.
func goldenLines() (records []Record) {
	for i := range 60 {
		r := Record{
			Offset: Offset(i), Time: 1_700_000_000_000 + int64(i)*10,
			Key:   fmt.Appendf(nil, "sensor-%d", i%7),
			Value: fmt.Appendf(nil, `{"station":"sensor-%d","reading":%d,"unit":"m3/s","note":"%s"}`, i%7, i*i*31, strings.Repeat("steady ", i%5)),
		}
		if i%10 == 3 {
			r.Value = nil
		}
		if i%10 == 4 {
			r.Headers = []Header{{Key: "trace", Value: fmt.Appendf(nil, "%016x", i*7919)}}
		}
		records = append(records, r)
	}
	return records
}

// repack replaces the records of an encoded batch by their compressed form.
func repack(batch []byte, codec Compression, compressed []byte) []byte {
	b := append(bytes.Clone(batch[:batchHeaderBytes]), compressed...)
	binary.BigEndian.PutUint32(b[atBatchLength:], uint32(len(b)-lengthExcludes))
	attributes := binary.BigEndian.Uint16(b[atAttributes:])
	binary.BigEndian.PutUint16(b[atAttributes:], attributes&^attrCompression|uint16(codec))
	return resummed(b)
}

// TestCompressionRoundTrip shows that records come back from every way to compress
// them, in batches of all sizes, and that a batch is never larger than without.
func TestCompressionRoundTrip(t *testing.T) {
	random := make([]byte, 100_000)
	for i := range random {
		random[i] = byte(i * i * 7 >> 3 * i)
	}
	long := Record{Offset: 0, Time: 5, Value: bytes.Repeat([]byte("a long value "), 20_000)}
	for name, records := range map[string][]Record{
		"lines":   goldenLines(),
		"samples": sampleRecords,
		"long":    {long},
		"random":  {{Offset: 0, Value: random}},
		"one":     {{Offset: 0, Time: 1, Value: []byte("x")}},
	} {
		plain := buildBatch(Producer{ID: 7, Sequence: 3, Transactional: true}, records...)
		for _, c := range ways(t) {
			var b BatchBuilder
			b.Compress(c)
			for range 2 { // the second time with what the first left
				b.Reset()
				for _, r := range records {
					b.Add(r.Time, r.Key, r.Value, r.Headers)
				}
				encoded := b.Finish(Producer{ID: 7, Sequence: 3, Transactional: true})
				require.LessOrEqual(t, len(encoded), len(plain), "%s by %v", name, c)
				require.Equal(t, len(plain), b.Size(), "sizes are counted before compression")
				batch, err := ParseBatch(encoded)
				require.NoError(t, err)
				if c.codec > 0 && name != "one" && name != "random" {
					require.Equal(t, c.codec, batch.Compression)
				}
				require.EqualValues(t, len(records), batch.Count)
				require.Equal(t, records, collect(t, batch), "%s by %v", name, c)
				require.NoError(t, batch.checkRecords(0))
				require.Equal(t, batch.Compression == 0, bytes.Equal(encoded, plain))

				again := b.Finish(Producer{ID: 8, Sequence: 0})
				batch, err = ParseBatch(again)
				require.NoError(t, err)
				require.EqualValues(t, 8, batch.Producer.ID)
				require.Equal(t, records, collect(t, batch))
			}
		}
	}
}

// TestReadsWhatOthersCompressed shows that batches are read which kmsg framed and
// whose records were compressed by the reference implementations of gzip, lz4 and
// zstd, and for snappy by an encoder that knows nothing but literals.
func TestReadsWhatOthersCompressed(t *testing.T) {
	want := goldenLines()
	records := buildBatch(plain, want...)[batchHeaderBytes:]
	file := func(name string) []byte {
		b, err := os.ReadFile("testdata/format/" + name)
		require.NoError(t, err)
		return b
	}
	bare := literalSnappy(records)
	var framed []byte
	framed = append(framed, "\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"...)
	for chunk := range slices.Chunk(records, 1000) {
		block := literalSnappy(chunk)
		framed = append(binary.BigEndian.AppendUint32(framed, uint32(len(block))), block...)
	}
	for name, test := range map[string]struct {
		codec      Compression
		compressed []byte
	}{
		"gzip":                   {Gzip, file("records.gz")},
		"gzip in two members":    {Gzip, append(gzipped(records[:500]), gzipped(records[500:])...)},
		"lz4":                    {LZ4, file("records.lz4")},
		"lz4 with checksums":     {LZ4, file("records-sums.lz4")},
		"lz4 of one large block": {LZ4, file("records-linked.lz4")},
		"zstd":                   {Zstd, file("records.zst")},
		"zstd with all it has":   {Zstd, file("records-22.zst")},
		"snappy in frames":       {Snappy, framed},
		"snappy bare":            {Snappy, bare},
	} {
		t.Run(name, func(t *testing.T) {
			encoded := rawKmsgBatch(kmsg.RecordBatch{
				FirstOffset: 0, Attributes: int16(test.codec), LastOffsetDelta: int32(len(want) - 1), NumRecords: int32(len(want)),
				FirstTimestamp: want[0].Time, MaxTimestamp: want[len(want)-1].Time, ProducerID: -1, Records: test.compressed,
			})
			batch, err := ParseBatch(encoded)
			require.NoError(t, err)
			require.Equal(t, test.codec, batch.Compression)
			require.Equal(t, want, collect(t, batch))

			batch, err = ParseBatch(encoded)
			require.NoError(t, err)
			batch.First = 40
			require.Equal(t, want[40:], collect(t, batch))

			_, p := single(t, Options{FS: vfs.NewMem()}, SyncByOS)
			_, err = p.WriteForeign(encoded)
			require.NoError(t, err)
			_, err = p.Write(encoded)
			require.NoError(t, err)
			require.Len(t, readAll(t, p, 0, ReadCommitted), 2*len(want))
			off, found, err := p.OffsetAt(want[50].Time - 1)
			require.NoError(t, err)
			require.True(t, found)
			require.EqualValues(t, 50, off)
		})
	}
}

// TestOthersReadWhatWeCompress shows that decoders that share no code with ours find
// the records in our framing.
func TestOthersReadWhatWeCompress(t *testing.T) {
	records := goldenLines()
	plainRecords := buildBatch(plain, records...)[batchHeaderBytes:]
	for _, c := range ways(t) {
		var b BatchBuilder
		b.Compress(c)
		for _, r := range records {
			b.Add(r.Time, r.Key, r.Value, r.Headers)
		}
		var batch kmsg.RecordBatch
		require.NoError(t, batch.ReadFrom(b.Finish(plain)))
		require.EqualValues(t, max(c.codec, 0), batch.Attributes)
		require.EqualValues(t, len(records), batch.NumRecords)
		switch c.codec {
		case Gzip:
			r, err := gzip.NewReader(bytes.NewReader(batch.Records))
			require.NoError(t, err)
			got, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Equal(t, plainRecords, got)
		case Snappy:
			const header = "\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
			require.Equal(t, header, string(batch.Records[:len(header)]))
			var got []byte
			for rest := batch.Records[len(header):]; len(rest) > 0; {
				n := binary.BigEndian.Uint32(rest)
				got = append(got, simpleSnappy(t, rest[4:4+n])...)
				rest = rest[4+n:]
			}
			require.Equal(t, plainRecords, got)
		case LZ4:
			// Version 1, independent blocks, no sums and no size; blocks of 64 KiB.
			require.Equal(t, []byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}, batch.Records[:7])
			n := binary.LittleEndian.Uint32(batch.Records[7:])
			require.Equal(t, plainRecords, simpleLZ4(t, batch.Records[11:11+n]))
			require.Equal(t, []byte{0, 0, 0, 0}, batch.Records[11+n:], "the end mark, and nothing after it")
		case Zstd:
			require.Equal(t, []byte{0x28, 0xb5, 0x2f, 0xfd}, batch.Records[:4])
			require.Zero(t, batch.Records[4]&0x04, "no checksum")
		default:
			require.Equal(t, plainRecords, batch.Records)
		}
	}
}

// rawKmsgBatch is kmsgBatch for records that are encoded already.
func rawKmsgBatch(batch kmsg.RecordBatch) []byte {
	batch.Magic = 2
	batch.Length = int32(batchHeaderBytes - lengthExcludes + len(batch.Records))
	encoded := batch.AppendTo(nil)
	batch.CRC = int32(crc32.Checksum(encoded[21:], crc32.MakeTable(crc32.Castagnoli)))
	return batch.AppendTo(nil)
}

func gzipped(b []byte) []byte {
	var to bytes.Buffer
	w := gzip.NewWriter(&to)
	_, _ = w.Write(b) // into memory
	_ = w.Close()
	return to.Bytes()
}

// literalSnappy encodes b as a snappy block of literals.
func literalSnappy(b []byte) []byte {
	block := binary.AppendUvarint(nil, uint64(len(b)))
	for chunk := range slices.Chunk(b, 256) {
		block = append(append(block, 60<<2, byte(len(chunk)-1)), chunk...)
	}
	return block
}

// simpleSnappy decodes a snappy block by the book.
func simpleSnappy(t testing.TB, b []byte) (out []byte) {
	size, n := binary.Uvarint(b)
	b = b[n:]
	for len(b) > 0 {
		tag := int(b[0])
		length, offset, used := tag>>2+1, 0, 1
		switch tag & 3 {
		case 0:
			if extra := length - 60; extra > 0 {
				length = 1
				for i := range extra {
					length += int(b[1+i]) << (8 * i)
				}
				used += extra
			}
			out = append(out, b[used:used+length]...)
			b = b[used+length:]
			continue
		case 1:
			length, offset, used = tag>>2&7+4, tag>>5<<8|int(b[1]), 2
		case 2:
			offset, used = int(binary.LittleEndian.Uint16(b[1:])), 3
		case 3:
			offset, used = int(binary.LittleEndian.Uint32(b[1:])), 5
		}
		require.Positive(t, offset)
		for range length {
			out = append(out, out[len(out)-offset])
		}
		b = b[used:]
	}
	require.EqualValues(t, size, len(out))
	return out
}

// simpleLZ4 decodes an lz4 block by the book.
func simpleLZ4(t testing.TB, b []byte) (out []byte) {
	length := func(n int) int {
		if n == 15 {
			for more := byte(255); more == 255; {
				more, b = b[0], b[1:]
				n += int(more)
			}
		}
		return n
	}
	for {
		token := int(b[0])
		b = b[1:]
		literals := length(token >> 4)
		out = append(out, b[:literals]...)
		if b = b[literals:]; len(b) == 0 {
			return out
		}
		offset := int(binary.LittleEndian.Uint16(b))
		b = b[2:]
		require.Positive(t, offset)
		for range length(token&15) + 4 {
			out = append(out, out[len(out)-offset])
		}
	}
}

// bombs are small batches whose records decompress to size zeros, by codec.
func bombs(t testing.TB, size int) map[Compression][]byte {
	all := map[Compression][]byte{}
	for _, codec := range allCompressions[1:] {
		c, err := NewCompressor(codec, 0)
		require.NoError(t, err)
		all[codec] = repack(batchOf(plain, 1, "v"), codec, c.compress(nil, make([]byte, size)))
	}
	// Blocks of zstd that repeat one byte: 4 bytes for each 128 KiB, and no size.
	blocks := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38}
	for left := size; left > 0; left -= 128 << 10 {
		n := min(left, 128<<10)
		last := uint32(0)
		if left == n {
			last = 1
		}
		header := binary.LittleEndian.AppendUint32(nil, last|1<<1|uint32(n)<<3)
		blocks = append(append(blocks, header[:3]...), 0)
	}
	all[Zstd] = repack(batchOf(plain, 1, "v"), Zstd, blocks)
	return all
}

// TestDecompressionIsBounded shows that a small batch that decompresses to more than
// the setting allows is an error, which names the setting, to who appends and to who
// reads it, and that neither takes more memory than the setting says.
func TestDecompressionIsBounded(t *testing.T) {
	const limit, size = 256 << 10, 16 << 20
	strict := Options{MaxDecompressedBytes: limit}
	for codec, bomb := range bombs(t, size) {
		t.Run(codec.String(), func(t *testing.T) {
			require.Less(t, len(bomb), size/15)
			mem := vfs.NewMem()
			strict.FS = mem
			l, p := single(t, strict, SyncByOS)
			_, err := p.WriteForeign(bomb)
			require.ErrorIs(t, err, ErrTooLarge)
			require.ErrorContains(t, err, "raise Options.MaxDecompressedBytes")
			require.Zero(t, p.End().Offset)
			_, err = p.Write(batchOf(plain, 5, "good"))
			require.NoError(t, err)
			require.NoError(t, l.Close())

			// It is in the log all the same, as it might come with a foreign directory.
			stamp(bomb, 1, 0)
			name := "log/t-0/" + offsetName(0, logSuffix)
			content, err := readSmallFile(mem, name)
			require.NoError(t, err)
			require.NoError(t, writeCacheFile(mem, name, append(bytes.Clone(content), bomb...)))
			l = mustOpen(t, strict)
			defer l.Close()
			p = mustPartition(t, l, "t")
			require.EqualValues(t, 2, p.End().Offset, "opening reads no records")
			r := p.Reader(1, ReadCommitted)
			defer r.Close()
			batch, err := r.Next()
			require.NoError(t, err)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			it := batch.Records()
			require.False(t, it.Next())
			require.ErrorIs(t, it.Err(), ErrTooLarge)
			require.ErrorContains(t, it.Err(), "raise Options.MaxDecompressedBytes")
			_, _, err = p.OffsetAt(1)
			require.NoError(t, err, "the first record answers")
			_, _, err = p.OffsetAt(6)
			require.NoError(t, err)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8*limit))
			_, err = r.Next()
			require.ErrorIs(t, err, io.EOF, "the reader goes on behind it")
		})
	}
}

// TestAppendRefusesWhatCouldNotBeRead shows that a batch which compresses well is not
// taken where it would exceed the limit of readers.
func TestAppendRefusesWhatCouldNotBeRead(t *testing.T) {
	l := mustOpen(t, Options{FS: vfs.NewMem(), MaxDecompressedBytes: 10_000})
	defer l.Close()
	require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Compression: Zstd}))
	p := mustPartition(t, l, "t")
	_, err := p.AppendRecords(context.Background(), record(1, strings.Repeat("x", 9_900)))
	require.NoError(t, err)
	_, err = p.AppendRecords(context.Background(), record(1, strings.Repeat("x", 10_000)))
	require.ErrorIs(t, err, ErrTooLarge)
	require.ErrorContains(t, err, "MaxDecompressedBytes")
	require.EqualValues(t, 1, p.End().Offset)
}

// TestDamagedCompression shows that records which do not decompress, although the
// checksum fits, are an invalid batch, and no panic.
func TestDamagedCompression(t *testing.T) {
	good := buildBatch(plain, goldenLines()...)
	kept := new(decoders)
	for _, c := range ways(t)[1:] {
		compressed := c.compress(nil, good[batchHeaderBytes:])
		for _, cut := range []int{1, 5, len(compressed) / 2, len(compressed) - 1} {
			batch, err := ParseBatch(repack(good, c.codec, compressed[:cut]))
			require.NoError(t, err)
			require.ErrorIs(t, batch.checkRecords(0), ErrInvalidBatch, "%v cut to %d", c, cut)
		}
		for at := 0; at < len(compressed); at += sampled(13) {
			damaged := bytes.Clone(compressed)
			damaged[at] ^= 0x55
			batch, err := ParseBatch(repack(good, c.codec, damaged))
			require.NoError(t, err)
			batch.unpacker = kept.unpacker()
			if err := batch.checkRecords(0); err != nil && !errors.Is(err, ErrTooLarge) {
				require.ErrorIs(t, err, ErrInvalidBatch)
			}
		}
		batch, err := ParseBatch(repack(good, c.codec, []byte("this is something else entirely, in any format")))
		require.NoError(t, err)
		require.ErrorIs(t, batch.checkRecords(0), ErrInvalidBatch)
	}
}

// TestCompressedTopic shows that everything a partition does works on batches
// compressed as the topic says: duplicates, transactions, lookup by time, rolled
// segments, truncation, and opening after a clean stop and after a kill.
func TestCompressedTopic(t *testing.T) {
	for _, codec := range allCompressions {
		t.Run(codec.String(), func(t *testing.T) {
			mem := vfs.NewMem()
			o := small(mem)
			l := mustOpen(t, o)
			require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Compression: codec}))
			p := mustPartition(t, l, "t")
			var b BatchBuilder
			var want []string
			add := func(producer Producer, n int, tag string) {
				t.Helper()
				base := p.End().Offset
				b.Reset()
				for i := range n {
					value := fmt.Sprintf("%s %s", tag, strings.Repeat("ripple ", 20))
					b.Add(100*int64(base)+int64(i), []byte("k"), []byte(value), nil)
					want = append(want, fmt.Sprintf("%d:%s", int(base)+i, value))
				}
				got, err := p.Append(context.Background(), encode(t, p, &b, producer))
				require.NoError(t, err)
				require.Equal(t, base, got.Base)
			}
			for i := range 10 {
				add(Producer{ID: 5, Sequence: int32(3 * i)}, 3, fmt.Sprint("batch ", i))
			}
			b.Reset()
			for range 3 {
				b.Add(1, nil, nil, nil)
			}
			again, err := p.Write(encode(t, p, &b, Producer{ID: 5, Sequence: 27}))
			require.NoError(t, err)
			require.True(t, again.Duplicate)
			add(transactional(9, 0), 4, "committed")
			_, err = p.EndTransaction(9, true)
			require.NoError(t, err)
			visible := len(want)
			add(transactional(10, 0), 4, "aborted")
			_, err = p.EndTransaction(10, false)
			require.NoError(t, err)
			require.Greater(t, len(*p.segments.Load()), 1)
			check := func() {
				t.Helper()
				require.Equal(t, want[:visible], readAll(t, p, 0, ReadCommitted))
				require.Equal(t, want, readAll(t, p, 0, ReadUncommitted))
				require.Equal(t, want[14:visible], readAll(t, p, 14, ReadCommitted), "from inside a batch")
				for _, off := range []Offset{0, 1, 14, 29, 31} {
					base := off / 3 * 3
					if off >= 30 {
						base = 30
					}
					got, found, err := p.OffsetAt(100*int64(base) + int64(off-base))
					require.NoError(t, err)
					require.True(t, found)
					require.Equal(t, off, got)
				}
				r := p.Reader(0, ReadUncommitted)
				defer r.Close()
				batch, err := r.Next()
				require.NoError(t, err)
				require.Equal(t, codec.orNone(), batch.Compression)
			}
			check()
			image := mem.Kill()
			require.NoError(t, l.Close())
			for _, fs := range []*vfs.Mem{mem, image} {
				o.FS = fs
				l = mustOpen(t, o)
				p = mustPartition(t, l, "t")
				check()
				require.NoError(t, p.TruncateTo(27))
				require.Equal(t, want[:27], readAll(t, p, 0, ReadCommitted))
				again, err := p.Write(encode(t, p, &b, Producer{ID: 5, Sequence: 27}))
				require.NoError(t, err)
				require.False(t, again.Duplicate, "it was cut away")
				require.NoError(t, l.Close())
			}
		})
	}
}

// TestBuilderGoesBeforeTheTopic shows that a builder's own compressor, none too, is
// taken rather than the topic's.
func TestBuilderGoesBeforeTheTopic(t *testing.T) {
	l := mustOpen(t, Options{FS: vfs.NewMem()})
	defer l.Close()
	require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Compression: LZ4, CompressionLevel: 9}))
	p := mustPartition(t, l, "t")
	r := p.Reader(0, ReadCommitted)
	defer r.Close()
	none, err := NewCompressor(NoCompression, 0)
	require.NoError(t, err)
	gz, err := NewCompressor(Gzip, 2)
	require.NoError(t, err)
	for _, test := range []struct {
		own  *Compressor
		want Compression
	}{{nil, LZ4}, {none, 0}, {gz, Gzip}, {nil, LZ4}} {
		var b BatchBuilder
		b.Compress(test.own)
		b.Add(1, nil, bytes.Repeat([]byte("water "), 100), nil)
		b.Reset()
		b.Add(1, nil, bytes.Repeat([]byte("water "), 100), nil)
		_, err := p.Write(encode(t, p, &b, plain))
		require.NoError(t, err)
		batch, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, test.want, batch.Compression)
	}
}

// TestRecordsStayUntilTheNextBatch shows who owns decompressed records: readers do
// not share them, and asking twice gives the same.
func TestRecordsStayUntilTheNextBatch(t *testing.T) {
	l := mustOpen(t, Options{FS: vfs.NewMem()})
	defer l.Close()
	require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Compression: Zstd}))
	p := mustPartition(t, l, "t")
	for _, word := range []string{"first ", "other "} {
		_, err := p.AppendRecords(context.Background(), record(1, strings.Repeat(word, 50)))
		require.NoError(t, err)
	}
	one, two := p.Reader(0, ReadCommitted), p.Reader(1, ReadCommitted)
	defer one.Close()
	defer two.Close()
	first, err := one.Next()
	require.NoError(t, err)
	it := first.Records()
	require.True(t, it.Next())
	value := it.Value
	second, err := two.Next()
	require.NoError(t, err)
	other := second.Records()
	require.True(t, other.Next())
	require.Equal(t, strings.Repeat("other ", 50), string(other.Value))
	_, _, err = p.OffsetAt(1)
	require.NoError(t, err)
	again := first.Records()
	require.True(t, again.Next())
	require.Same(t, &value[0], &again.Value[0], "decompressed once")
	require.Equal(t, strings.Repeat("first ", 50), string(value))
}

// TestCompressionSettings shows which are refused, and that they are kept.
func TestCompressionSettings(t *testing.T) {
	for _, test := range []struct {
		spec TopicSpec
		want string
	}{
		{TopicSpec{Compression: 5}, "TopicSpec.Compression is compression 5, allowed is none to zstd"},
		{TopicSpec{CompressionLevel: 1}, "compression level 1 is set, but none has no levels"},
		{TopicSpec{CompressionLevel: 23}, "TopicSpec.CompressionLevel is 23"},
		{TopicSpec{Compression: Snappy, CompressionLevel: 1}, "snappy has no levels"},
		{TopicSpec{Compression: Gzip, CompressionLevel: 10}, "gzip has 1 to 9"},
		{TopicSpec{Compression: LZ4, CompressionLevel: 10}, "lz4 has 1 to 9"},
		{TopicSpec{Compression: Zstd, CompressionLevel: -1}, "TopicSpec.CompressionLevel is -1"},
		{TopicSpec{MaxRecordBytes: -1}, "TopicSpec.MaxRecordBytes is -1"},
	} {
		test.spec.Partitions = 1
		require.ErrorContains(t, test.spec.validate(), test.want)
	}
	require.Error(t, Compression(-2).CheckLevel(0))
	_, err := NewCompressor(Zstd, 23)
	require.ErrorContains(t, err, "zstd has 1 to 22")

	spec := TopicSpec{Partitions: 1, Compression: Zstd, CompressionLevel: 22, MaxRecordBytes: 1000, AppendTime: true}
	o := Options{FS: vfs.NewMem()}
	l := mustOpen(t, o)
	require.NoError(t, l.Create("t", spec))
	require.NoError(t, l.Create("none", TopicSpec{Partitions: 1, Compression: NoCompression}))
	require.NoError(t, l.Create("none", TopicSpec{Partitions: 1}))
	require.NoError(t, l.Close())
	l = mustOpen(t, o)
	got, _ := l.Spec("t")
	require.Equal(t, spec, got)
	err = l.Create("t", TopicSpec{Partitions: 1, Compression: LZ4, CompressionLevel: 9, AppendTime: true})
	require.ErrorContains(t, err, "Compression is zstd, asked for is lz4; CompressionLevel is 22, asked for is 9; MaxRecordBytes is 1000, asked for is 0")
	require.NoError(t, l.Close())
}

// TestNoAllocationPerCompressedRecord shows that batches of 600 records are written
// and read with less than one allocation for ten records. (It is a handful, but under
// the race detector pools forget what they hold.)
func TestNoAllocationPerCompressedRecord(t *testing.T) {
	for _, codec := range allCompressions[1:] {
		l, err := Open(t.TempDir(), Options{})
		require.NoError(t, err)
		require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Compression: codec}))
		p := mustPartition(t, l, "t")
		var b BatchBuilder
		lines := goldenLines()
		write := func() {
			b.Reset()
			for range 10 {
				for i := range lines {
					b.Add(lines[i].Time, lines[i].Key, lines[i].Value, nil)
				}
			}
			if _, err := p.Write(encode(t, p, &b, plain)); err != nil {
				t.Fatal(err)
			}
		}
		require.LessOrEqual(t, testing.AllocsPerRun(100, write), 60.0, "write by %v", codec)
		r := p.Reader(0, ReadCommitted)
		records := 0
		require.LessOrEqual(t, testing.AllocsPerRun(90, func() {
			batch, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			it := batch.Records()
			for it.Next() {
				records++
			}
		}), 60.0, "read by %v", codec)
		require.Equal(t, 91*600, records)
		r.Close()
		require.NoError(t, l.Close())
	}
}
