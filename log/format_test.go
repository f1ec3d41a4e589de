package log

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateFormat = flag.Bool("update-format", false, "rewrite the golden record batches in testdata/format")

// TestBatchFieldsAreWhereTheTableSays reads every field of a batch by the
// positions the table in format.go states, written out here once more.
func TestBatchFieldsAreWhereTheTableSays(t *testing.T) {
	b := buildBatch(Producer{ID: 0x0102030405060708, Epoch: 0x0a0b, Sequence: 0x11121314, Transactional: true},
		Record{Time: -2, Key: []byte("k"), Value: []byte("v")},
		Record{Time: 0x21222324252627, Value: []byte("w")},
	)
	stamp(b, 0x31323334353637, 0x41424344)
	be := binary.BigEndian
	require.EqualValues(t, 0x31323334353637, be.Uint64(b[0:]), "base offset")
	require.EqualValues(t, len(b)-12, be.Uint32(b[8:]), "batch length")
	require.EqualValues(t, 0x41424344, be.Uint32(b[12:]), "leader epoch")
	require.EqualValues(t, 2, b[16], "magic")
	require.EqualValues(t, batchChecksum(b), be.Uint32(b[17:]), "checksum")
	require.EqualValues(t, 0x10, be.Uint16(b[21:]), "attributes")
	require.EqualValues(t, 1, be.Uint32(b[23:]), "last offset delta")
	require.EqualValues(t, -2, int64(be.Uint64(b[27:])), "base timestamp")
	require.EqualValues(t, 0x21222324252627, be.Uint64(b[35:]), "max timestamp")
	require.EqualValues(t, 0x0102030405060708, be.Uint64(b[43:]), "producer id")
	require.EqualValues(t, 0x0a0b, be.Uint16(b[51:]), "producer epoch")
	require.EqualValues(t, 0x11121314, be.Uint32(b[53:]), "base sequence")
	require.EqualValues(t, 2, be.Uint32(b[57:]), "record count")
	// length 8, attributes, time 0, offset 0, key length 1, value length 1, no headers; all but lengths zig-zag coded
	require.Equal(t, []byte{8 << 1, 0, 0, 0, 2, 'k', 2, 'v', 0}, b[61:70], "first record")
	require.Equal(t, byte(14<<1), b[70], "length of the second record")
	require.Equal(t, []byte{1 << 1, 1, 2, 'w', 0}, b[len(b)-5:], "its offset, absent key, value and headers")
	parsed, err := ParseBatch(b)
	require.NoError(t, err)
	require.EqualValues(t, 0x31323334353638, parsed.Last)
}

// TestChecksumCoversAllButThePrefix flips every bit of a batch: what lies outside
// the checksum may be stamped, everything else is noticed.
func TestChecksumCoversAllButThePrefix(t *testing.T) {
	good := buildBatch(Producer{ID: 5}, sampleRecords[:4]...)
	stamp(good, 1<<20, 3)
	for at := range good {
		for bit := range 8 {
			b := append([]byte(nil), good...)
			b[at] ^= 1 << bit
			batch, err := ParseBatch(b)
			if at < 8 && b[0] < 0x80 || at >= 12 && at < 16 {
				require.NoError(t, err, "byte %d bit %d", at, bit)
				require.Equal(t, binary.BigEndian.Uint64(b), uint64(batch.Base))
				continue
			}
			require.ErrorIs(t, err, ErrInvalidBatch, "byte %d bit %d", at, bit)
			require.NotErrorIs(t, err, ErrVersion, "a damaged magic is no other version")
		}
	}
}

func TestStampHeaderLeavesTheBatchAlone(t *testing.T) {
	original := buildBatch(Producer{ID: NoProducer}, sampleRecords...)
	before := append([]byte(nil), original...)
	batch, err := ParseBatch(original)
	require.NoError(t, err)
	var header, again [batchHeaderBytes]byte
	stampHeader(&header, &batch, 77, 8)
	require.Equal(t, before, original)
	stamp(before, 77, 8)
	require.Equal(t, before[:batchHeaderBytes], header[:])
	require.NoError(t, verifyChecksum(before))

	batch.AppendTime, batch.MaxTime = true, 123
	stampHeader(&header, &batch, 77, 8)
	stamped, err := ParseBatch(append(header[:], original[batchHeaderBytes:]...))
	require.NoError(t, err, "the checksum is of what the header says now")
	require.True(t, stamped.AppendTime)
	require.EqualValues(t, 123, stamped.MaxTime)
	require.EqualValues(t, 77, stamped.Base)
	require.Equal(t, batch.Producer, stamped.Producer)
	stampHeader(&again, &stamped, 77, 8)
	require.Equal(t, stamped.Bytes[:batchHeaderBytes], again[:])
	damaged := bytes.Clone(stamped.Bytes)
	damaged[len(damaged)-1] ^= 1
	stamped.Bytes = damaged
	stampHeader(&again, &stamped, 77, 8)
	require.Error(t, verifyChecksum(append(again[:], damaged[batchHeaderBytes:]...)), "damage is not summed where nothing changes")
}

func TestSequencesWrapAround(t *testing.T) {
	require.EqualValues(t, 5, addSequence(2, 3))
	require.EqualValues(t, 1<<31-1, addSequence(1<<31-2, 1))
	require.EqualValues(t, 0, addSequence(1<<31-1, 1))
	require.EqualValues(t, 1<<31-2, addSequence(1<<31-1, 1<<31-1))
	b := Batch{Base: 10, Last: 12, Producer: Producer{Sequence: 1<<31 - 2}}
	require.EqualValues(t, 0, b.lastSequence())
}

// goldenBatches are what testdata/format/batch-v2.bin holds, one after the other.
func goldenBatches() []byte {
	var all []byte
	offset := Offset(100)
	add := func(encoded []byte, epoch LeaderEpoch) {
		stamp(encoded, offset, epoch)
		all = append(all, encoded...)
		offset += Offset(binary.BigEndian.Uint32(encoded[atLastOffsetDelta:])) + 1
	}
	short := append([]Record(nil), sampleRecords...)
	short[4].Key, short[4].Value = make([]byte, 70), []byte(strings.Repeat("long ", 30))
	add(buildBatch(Producer{ID: NoProducer}, short...), 0)
	add(buildBatch(Producer{ID: 1000, Epoch: 2, Sequence: 1<<31 - 1}, short[:2]...), 1)
	add(buildBatch(Producer{ID: 1001, Sequence: 0, Transactional: true}, short[2:4]...), 1)
	var b BatchBuilder
	add(encodeMarker(&b, 1_700_000_000_001, Producer{ID: 1001}, marker{commit: true, coordinatorEpoch: 6}), 2)
	add(buildBatch(Producer{ID: 1002, Sequence: 0, Transactional: true}, short[0]), 2)
	add(encodeMarker(&b, 1_700_000_000_002, Producer{ID: 1002}, marker{commit: false, coordinatorEpoch: 7}), 3)
	return all
}

// describeBatches renders encoded batches for people to compare.
func describeBatches(t *testing.T, b []byte) string {
	t.Helper()
	var s strings.Builder
	for len(b) > 0 {
		batch, err := ParseBatch(b)
		require.NoError(t, err)
		b = b[len(batch.Bytes):]
		fmt.Fprintf(&s, "batch [%d, %d] epoch %d time %d to %d producer %+v control %t\n",
			batch.Base, batch.Last, batch.Epoch, batch.BaseTime, batch.MaxTime, batch.Producer, batch.Control)
		if batch.Control {
			m, err := decodeMarker(&batch)
			require.NoError(t, err)
			fmt.Fprintf(&s, "  marker %+v\n", m)
			continue
		}
		for _, r := range collect(t, batch) {
			fmt.Fprintf(&s, "  record %d time %d key %s value %s", r.Offset, r.Time, quote(r.Key), quote(r.Value))
			for _, h := range r.Headers {
				fmt.Fprintf(&s, " %q=%s", h.Key, quote(h.Value))
			}
			s.WriteString("\n")
		}
	}
	return s.String()
}

func quote(b []byte) string {
	if b == nil {
		return "absent"
	}
	return fmt.Sprintf("%q", b)
}

// TestGoldenBatches shows that the bytes written long ago still mean the same, and
// that the same records still give those bytes.
func TestGoldenBatches(t *testing.T) {
	const binaryFile, textFile = "testdata/format/batch-v2.bin", "testdata/format/batch-v2.txt"
	written := goldenBatches()
	if *updateFormat {
		require.NoError(t, os.WriteFile(binaryFile, written, 0o644))
		require.NoError(t, os.WriteFile(textFile, []byte(describeBatches(t, written)), 0o644))
	}
	golden, err := os.ReadFile(binaryFile)
	require.NoError(t, err)
	text, err := os.ReadFile(textFile)
	require.NoError(t, err)
	require.Equal(t, string(text), describeBatches(t, golden))
	require.Equal(t, golden, written)
}

// TestGoldenCompressedBatches shows that batches compressed long ago still mean the
// same. What a codec writes may change from version to version.
func TestGoldenCompressedBatches(t *testing.T) {
	const binaryFile = "testdata/format/batch-v2-compressed.bin"
	lines := goldenLines()
	if *updateFormat {
		var all []byte
		for i, codec := range allCompressions[1:] {
			var b BatchBuilder
			c, err := NewCompressor(codec, 0)
			require.NoError(t, err)
			b.Compress(c)
			for _, r := range lines {
				b.Add(r.Time, r.Key, r.Value, r.Headers)
			}
			encoded := b.Finish(Producer{ID: 1000, Sequence: int32(i * len(lines))})
			stamp(encoded, Offset(i*len(lines)), 4)
			all = append(all, encoded...)
		}
		require.NoError(t, os.WriteFile(binaryFile, all, 0o644))
	}
	rest, err := os.ReadFile(binaryFile)
	require.NoError(t, err)
	for i, codec := range allCompressions[1:] {
		batch, err := ParseBatch(rest)
		require.NoError(t, err)
		require.Equal(t, codec, batch.Compression)
		require.EqualValues(t, i*len(lines), batch.Producer.Sequence)
		got := collect(t, batch)
		for j := range got {
			got[j].Offset -= batch.Base
		}
		require.Equal(t, lines, got)
		rest = rest[len(batch.Bytes):]
	}
	require.Empty(t, rest)
}
