package log

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kmsgRecords decodes the records of an encoded batch with a reader that shares
// no code with ours.
func kmsgRecords(t testing.TB, encoded []byte) (kmsg.RecordBatch, []kmsg.Record) {
	t.Helper()
	var batch kmsg.RecordBatch
	require.NoError(t, batch.ReadFrom(encoded))
	records := make([]kmsg.Record, batch.NumRecords)
	rest := batch.Records
	for i := range records {
		var length, n = binary.Varint(rest)
		require.Positive(t, n)
		end := n + int(length)
		require.NoError(t, records[i].ReadFrom(rest[:end]))
		rest = rest[end:]
	}
	require.Empty(t, rest)
	return batch, records
}

// kmsgBatch encodes records with kmsg, filling in lengths and checksum. Offset
// deltas are the caller's.
func kmsgBatch(batch kmsg.RecordBatch, records ...kmsg.Record) []byte {
	batch.Records = nil
	for _, r := range records {
		r.Length = 0
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		batch.Records = r.AppendTo(batch.Records)
	}
	batch.Magic = 2
	batch.NumRecords = int32(len(records))
	batch.Length = int32(batchHeaderBytes - lengthExcludes + len(batch.Records))
	encoded := batch.AppendTo(nil)
	batch.CRC = int32(crc32.Checksum(encoded[21:], crc32.MakeTable(crc32.Castagnoli)))
	return batch.AppendTo(nil)
}

func collect(t testing.TB, b Batch) []Record {
	t.Helper()
	var records []Record
	it := b.Records()
	for it.Next() {
		require.Equal(t, len(it.Headers()) > 0, it.HasHeaders())
		records = append(records, Record{Offset: it.Offset, Time: it.Time, Key: it.Key, Value: it.Value, Headers: it.Headers()})
	}
	require.NoError(t, it.Err())
	return records
}

var sampleRecords = []Record{
	{Offset: 0, Time: 1_700_000_000_000, Key: []byte("a"), Value: []byte("first")},
	{Offset: 1, Time: 1_699_999_999_000, Key: nil, Value: []byte("no key, earlier")},
	{Offset: 2, Time: 1_700_000_000_500, Key: []byte("tombstone"), Value: nil},
	{Offset: 3, Time: -5, Key: []byte{}, Value: []byte{}, Headers: []Header{
		{Key: "trace", Value: []byte{0, 1, 2}}, {Key: "", Value: []byte{}}, {Key: "absent", Value: nil},
	}},
	{Offset: 4, Time: 1_700_000_100_000, Key: make([]byte, 300), Value: make([]byte, 20_000)},
}

func buildBatch(p Producer, records ...Record) []byte {
	var b BatchBuilder
	for _, r := range records {
		b.Add(r.Time, r.Key, r.Value, r.Headers)
	}
	return b.Finish(p)
}

// TestKmsgReadsOurBatches shows that an independent reader finds in our bytes
// what we put there.
func TestKmsgReadsOurBatches(t *testing.T) {
	encoded := buildBatch(Producer{ID: 77, Epoch: 3, Sequence: 12, Transactional: true}, sampleRecords...)
	stamp(encoded, 1000, 9)
	batch, records := kmsgRecords(t, encoded)

	require.EqualValues(t, 1000, batch.FirstOffset)
	require.EqualValues(t, len(encoded)-12, batch.Length)
	require.EqualValues(t, 9, batch.PartitionLeaderEpoch)
	require.EqualValues(t, 2, batch.Magic)
	require.Equal(t, crc32.Checksum(encoded[21:], crc32.MakeTable(crc32.Castagnoli)), uint32(batch.CRC))
	require.EqualValues(t, 0x10, batch.Attributes)
	require.EqualValues(t, 4, batch.LastOffsetDelta)
	require.EqualValues(t, 1_700_000_000_000, batch.FirstTimestamp)
	require.EqualValues(t, 1_700_000_100_000, batch.MaxTimestamp)
	require.EqualValues(t, 77, batch.ProducerID)
	require.EqualValues(t, 3, batch.ProducerEpoch)
	require.EqualValues(t, 12, batch.FirstSequence)
	require.Len(t, records, len(sampleRecords))
	for i, r := range records {
		want := sampleRecords[i]
		require.EqualValues(t, i, r.OffsetDelta)
		require.Equal(t, want.Time, batch.FirstTimestamp+r.TimestampDelta64)
		require.Equal(t, want.Key, r.Key)
		require.Equal(t, want.Value, r.Value)
		require.Len(t, r.Headers, len(want.Headers))
		for j, h := range r.Headers {
			require.Equal(t, want.Headers[j].Key, h.Key)
			require.Equal(t, want.Headers[j].Value, h.Value)
		}
	}
}
