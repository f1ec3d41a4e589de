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
		length, n := binary.Varint(rest)
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
		r.Length = 0 // one byte
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

// TestWeReadKmsgBatches shows that our reader finds what an independent writer put
// into a batch.
func TestWeReadKmsgBatches(t *testing.T) {
	encoded := kmsgBatch(kmsg.RecordBatch{
		FirstOffset:          500,
		PartitionLeaderEpoch: 4,
		Attributes:           0x10,
		LastOffsetDelta:      9, // offsets at the end were compacted away
		FirstTimestamp:       1000,
		MaxTimestamp:         90_000_000_000,
		ProducerID:           1 << 40,
		ProducerEpoch:        2,
		FirstSequence:        6,
	},
		kmsg.Record{TimestampDelta64: 0, OffsetDelta: 0, Key: []byte("k"), Value: []byte("v")},
		kmsg.Record{TimestampDelta64: -5000, OffsetDelta: 3, Key: nil, Value: []byte{}},
		kmsg.Record{TimestampDelta64: 80_000_000_000, OffsetDelta: 4, Key: []byte{}, Value: nil, Headers: []kmsg.Header{
			{Key: "h", Value: []byte("1")}, {Key: "", Value: nil},
		}},
	)
	batch, err := ParseBatch(append(encoded[:len(encoded):len(encoded)], "what follows"...))
	require.NoError(t, err)
	require.Equal(t, Batch{
		Base: 500, Last: 509, First: 500, Epoch: 4,
		BaseTime: 1000, MaxTime: 90_000_000_000,
		Producer: Producer{ID: 1 << 40, Epoch: 2, Sequence: 6, Transactional: true},
		Count:    3,
		Bytes:    encoded,
	}, batch)
	require.NoError(t, batch.checkRecords(0))
	require.Equal(t, []Record{
		{Offset: 500, Time: 1000, Key: []byte("k"), Value: []byte("v")},
		{Offset: 503, Time: -4000, Key: nil, Value: []byte{}},
		{Offset: 504, Time: 80_000_001_000, Key: []byte{}, Value: nil, Headers: []Header{{Key: "h", Value: []byte("1")}, {Key: ""}}},
	}, collect(t, batch))

	batch.First = 501
	require.EqualValues(t, 503, collect(t, batch)[0].Offset, "a record at a removed offset is followed by the next")
	batch.First = 505
	require.Empty(t, collect(t, batch))
}

func TestLogAppendTime(t *testing.T) {
	batch, err := ParseBatch(kmsgBatch(kmsg.RecordBatch{
		Attributes: 0x08, LastOffsetDelta: 1, FirstTimestamp: 10, MaxTimestamp: 99, ProducerID: -1,
	}, kmsg.Record{TimestampDelta64: 1}, kmsg.Record{OffsetDelta: 1, TimestampDelta64: 2}))
	require.NoError(t, err)
	for _, r := range collect(t, batch) {
		require.EqualValues(t, 99, r.Time)
	}
}

func TestEmptyBatchKeepsItsOffsets(t *testing.T) {
	batch, err := ParseBatch(kmsgBatch(kmsg.RecordBatch{FirstOffset: 7, LastOffsetDelta: 4, ProducerID: 3, FirstSequence: 1}))
	require.NoError(t, err)
	require.EqualValues(t, 11, batch.Last)
	require.Empty(t, collect(t, batch))
}

// TestMarkers shows that kmsg reads our transaction markers, and we those it
// writes.
func TestMarkers(t *testing.T) {
	for _, commit := range []bool{false, true} {
		want := marker{commit: commit, coordinatorEpoch: 5}
		var b BatchBuilder
		encoded := encodeMarker(&b, -77, Producer{ID: 9, Epoch: 1, Sequence: 33}, want)
		batch, records := kmsgRecords(t, encoded)
		require.EqualValues(t, 0x30, batch.Attributes)
		require.EqualValues(t, 9, batch.ProducerID)
		require.EqualValues(t, 1, batch.ProducerEpoch)
		require.EqualValues(t, -1, batch.FirstSequence)
		require.EqualValues(t, -77, batch.FirstTimestamp)
		require.Len(t, records, 1)
		var key kmsg.ControlRecordKey
		require.NoError(t, key.ReadFrom(records[0].Key))
		require.Equal(t, kmsg.ControlRecordKey{Type: map[bool]kmsg.ControlRecordKeyType{
			false: kmsg.ControlRecordKeyTypeAbort, true: kmsg.ControlRecordKeyTypeCommit}[commit]}, key)
		var value kmsg.EndTxnMarker
		require.NoError(t, value.ReadFrom(records[0].Value))
		require.Equal(t, kmsg.EndTxnMarker{CoordinatorEpoch: 5}, value)

		ours, err := ParseBatch(encoded)
		require.NoError(t, err)
		require.True(t, ours.Control)
		got, err := decodeMarker(&ours)
		require.NoError(t, err)
		require.Equal(t, want, got)

		theirs, err := ParseBatch(kmsgBatch(kmsg.RecordBatch{Attributes: 0x30, ProducerID: 9, FirstSequence: -1},
			kmsg.Record{Key: key.AppendTo(nil), Value: value.AppendTo(nil)}))
		require.NoError(t, err)
		got, err = decodeMarker(&theirs)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestControlBatchesThatAreNoMarkers(t *testing.T) {
	marker := func(key, value []byte) []kmsg.Record { return []kmsg.Record{{Key: key, Value: value}} }
	value := []byte{0, 0, 0, 0, 0, 1}
	for name, test := range map[string]struct {
		attributes int16
		records    []kmsg.Record
	}{
		"data":                   {0x10, marker([]byte{0, 0, 0, 1}, value)},
		"not transactional":      {0x20, marker([]byte{0, 0, 0, 1}, value)},
		"of another type":        {0x30, marker([]byte{0, 0, 0, 2}, value)},
		"negative key version":   {0x30, marker([]byte{255, 0, 0, 1}, value)},
		"negative value version": {0x30, marker([]byte{0, 0, 0, 1}, []byte{255, 0, 0, 0, 0, 1})},
		"short key":              {0x30, marker([]byte{0, 0, 0}, value)},
		"no key":                 {0x30, marker(nil, value)},
		"short value":            {0x30, marker([]byte{0, 0, 0, 1}, value[:5])},
		"no records":             {0x30, nil},
		"two records":            {0x30, append(marker([]byte{0, 0, 0, 1}, value), kmsg.Record{OffsetDelta: 1, Key: []byte{0, 0, 0, 1}, Value: value})},
	} {
		t.Run(name, func(t *testing.T) {
			batch, err := ParseBatch(kmsgBatch(kmsg.RecordBatch{Attributes: test.attributes, LastOffsetDelta: 1, ProducerID: 1}, test.records...))
			require.NoError(t, err)
			_, err = decodeMarker(&batch)
			require.ErrorIs(t, err, ErrInvalidBatch)
			require.NotContains(t, err.Error(), "%!")
		})
	}
}
