package log

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzParseBatch shows that no bytes make the decoder panic or read outside them,
// that errors are of the documented kinds, and that records which decode encode to
// a batch with the same records, in the bytes an independent writer gives.
func FuzzParseBatch(f *testing.F) {
	golden := goldenBatches()
	for rest := golden; len(rest) > 0; {
		batch, err := ParseBatch(rest)
		require.NoError(f, err)
		f.Add(batch.Bytes, true)
		rest = rest[len(batch.Bytes):]
	}
	f.Add(golden[:70], false)
	f.Add(make([]byte, batchHeaderBytes), true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, data []byte, fixSum bool) {
		if fixSum && len(data) >= batchHeaderBytes {
			data = bytes.Clone(data)
			// Mutations seldom come with a checksum that fits.
			if framed, err := frameBatch(data); err == nil {
				resummed(framed)
			}
		}
		batch, err := ParseBatch(data)
		if err != nil {
			if !errors.Is(err, ErrInvalidBatch) && !errors.Is(err, ErrVersion) {
				t.Fatalf("undocumented error %v", err)
			}
			return
		}
		scanned, err := parseHeader(data)
		require.NoError(t, err)
		require.Equal(t, batch, scanned)
		_, _ = decodeMarker(&batch)

		var builder BatchBuilder
		var records []Record
		dense := true
		it := batch.Records()
		for it.Next() {
			headers := it.Headers()
			records = append(records, Record{Offset: it.Offset, Time: it.Time, Key: it.Key, Value: it.Value, Headers: headers})
			dense = dense && it.Offset == batch.Base+Offset(builder.Len())
			builder.Add(it.Time, it.Key, it.Value, headers)
		}
		if it.Err() != nil {
			if !errors.Is(it.Err(), ErrInvalidBatch) && !errors.Is(it.Err(), ErrTooLarge) {
				t.Fatalf("undocumented error %v", it.Err())
			}
			return
		}
		require.Len(t, records, int(batch.Count))
		if len(records) == 0 || batch.Control {
			return
		}
		encoded := builder.Finish(batch.Producer)
		stamp(encoded, batch.Base, batch.Epoch)
		again, err := ParseBatch(encoded)
		require.NoError(t, err)
		require.NoError(t, again.checkRecords(0))
		decoded := collect(t, again)
		for i := range decoded {
			if !dense {
				decoded[i].Offset = records[i].Offset
			}
		}
		require.Equal(t, records, decoded)
		require.Equal(t, kmsgEncode(again, decoded), encoded, "an independent writer gives the same bytes")
	})
}

// kmsgEncode encodes dense records the way another implementation does.
func kmsgEncode(b Batch, records []Record) []byte {
	batch := kmsg.RecordBatch{
		FirstOffset:          int64(b.Base),
		PartitionLeaderEpoch: int32(b.Epoch),
		LastOffsetDelta:      int32(len(records) - 1),
		FirstTimestamp:       b.BaseTime,
		MaxTimestamp:         b.MaxTime,
		ProducerID:           int64(b.Producer.ID),
		ProducerEpoch:        b.Producer.Epoch,
		FirstSequence:        b.Producer.Sequence,
	}
	if b.Producer.Transactional {
		batch.Attributes = attrTransactional
	}
	var encoded []kmsg.Record
	for i, r := range records {
		k := kmsg.Record{TimestampDelta64: r.Time - b.BaseTime, OffsetDelta: int32(i), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		encoded = append(encoded, k)
	}
	return kmsgBatch(batch, encoded...)
}

// FuzzDecompression shows that no bytes make a decoder panic or give more than the
// limit, whatever they claim, and that errors are of the documented kinds.
func FuzzDecompression(f *testing.F) {
	const limit = 32 << 10
	records := buildBatch(plain, goldenLines()...)[batchHeaderBytes:]
	for _, c := range ways(f)[1:] {
		f.Add(uint8(c.codec), c.compress(nil, records))
	}
	for codec, bomb := range bombs(f, 2*limit) {
		f.Add(uint8(codec), bomb[batchHeaderBytes:])
	}
	u := unpacker{from: &decoders{limit: limit}}
	f.Fuzz(func(t *testing.T, codec uint8, data []byte) {
		plain, err := u.unpack(Compression(1+codec%4), data)
		switch {
		case err == nil && len(plain) > limit:
			t.Fatalf("%d bytes", len(plain))
		case err != nil && !errors.Is(err, ErrInvalidBatch) && !errors.Is(err, ErrTooLarge):
			t.Fatalf("undocumented error %v", err)
		case cap(u.buf) > 2*limit:
			t.Fatalf("a buffer of %d bytes", cap(u.buf))
		}
	})
}
