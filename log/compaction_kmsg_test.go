package log

import (
	"hash/crc32"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/thalweg/thalweg/internal/vfs"
)

// horizonBit is bit 6 of a batch's attributes: its base timestamp is the time until which
// its deletions, or the marker it is, stay.
const horizonBit = 0x40

// stored returns the encoded batches of a partition, markers included, as they lie in
// its segments.
func stored(t *testing.T, p *Partition) (batches [][]byte) {
	t.Helper()
	for _, s := range *p.segments.Load() {
		require.NoError(t, s.eachBatch(s.base, func(b *Batch) error {
			batches = append(batches, append([]byte(nil), b.Bytes...))
			return nil
		}))
	}
	return batches
}

// TestKmsgReadsTheDeleteHorizon shows that an independent reader finds the delete horizon
// of a batch with deletions, and of a marker, where the format has it, the records' times
// as they were, and a checksum that fits.
func TestKmsgReadsTheDeleteHorizon(t *testing.T) {
	l, p, time := compactTopic(t, vfs.NewMem(), TopicSpec{TombstoneRetention: 1000 * 1e6}, nil)
	defer l.Close()
	l.SetOwners(&blocks{})
	var b BatchBuilder
	b.Add(500, []byte("gone"), []byte("older"), nil)
	b.Add(70, []byte("deleted"), nil, []Header{{Key: "h", Value: []byte("v")}})
	b.Add(9_000, []byte("kept"), []byte("value"), nil)
	write(t, p, b.Finish(plain))
	write(t, p, keyed(transactional(100, 0), 5, "gone"))
	_, err := p.EndTransaction(100, true)
	require.NoError(t, err)
	write(t, p, keyed(plain, 6, "gone=newest"))
	roll(t, p)
	time.ms = 10_000
	compacted(t, p)

	batches := stored(t, p)
	batch, records := kmsgRecords(t, batches[0])
	require.EqualValues(t, horizonBit, batch.Attributes)
	require.EqualValues(t, 11_000, batch.FirstTimestamp)
	require.EqualValues(t, 9_000, batch.MaxTimestamp)
	require.EqualValues(t, 0, batch.FirstOffset)
	require.EqualValues(t, 2, batch.LastOffsetDelta)
	require.Equal(t, crc32.Checksum(batches[0][21:], castagnoli), uint32(batch.CRC))
	require.Len(t, records, 2)
	for i, want := range []struct {
		delta int32
		time  int64
		key   string
		value []byte
	}{{1, 70, "deleted", nil}, {2, 9_000, "kept", []byte("value")}} {
		require.Equal(t, want.delta, records[i].OffsetDelta)
		require.Equal(t, want.time, batch.FirstTimestamp+records[i].TimestampDelta64)
		require.Equal(t, want.key, string(records[i].Key))
		require.Equal(t, want.value, records[i].Value)
	}
	require.Equal(t, "h", records[0].Headers[0].Key)

	// Of the transaction nothing is left but its end, which stays as long.
	marker, ends := kmsgRecords(t, batches[1])
	require.EqualValues(t, horizonBit|0x20|0x10, marker.Attributes, "a control batch of a transaction")
	require.EqualValues(t, 11_000, marker.FirstTimestamp)
	require.EqualValues(t, 100, marker.ProducerID)
	require.Len(t, ends, 1)
	require.Equal(t, []byte{0, 0, 0, 1}, ends[0].Key, "version 0, commit")
	require.Equal(t, crc32.Checksum(batches[1][21:], castagnoli), uint32(marker.CRC))
}

// TestDeleteHorizonOfAnotherWriter shows that a batch that another writer gave a delete
// horizon is read with the times of its records, and that its deletions go once that
// horizon is over, and not a retention after we met them.
func TestDeleteHorizonOfAnotherWriter(t *testing.T) {
	l, p, time := compactTopic(t, vfs.NewMem(), TopicSpec{TombstoneRetention: 1000 * 1e6}, nil)
	defer l.Close()
	encoded := kmsgBatch(kmsg.RecordBatch{
		Attributes: horizonBit, LastOffsetDelta: 1, FirstTimestamp: 5_000, MaxTimestamp: 80, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
	},
		kmsg.Record{TimestampDelta64: 70 - 5_000, Key: []byte("deleted")},
		kmsg.Record{TimestampDelta64: 80 - 5_000, OffsetDelta: 1, Key: []byte("kept"), Value: []byte("v")})
	_, err := p.WriteForeign(encoded)
	require.NoError(t, err)
	roll(t, p)
	read := func() (times []int64, values []string) {
		r := p.Reader(0, ReadCommitted)
		defer r.Close()
		for {
			b, err := r.Next()
			if err == io.EOF {
				return times, values
			}
			require.NoError(t, err)
			for it := b.Records(); it.Next(); {
				times, values = append(times, it.Time), append(values, string(it.Key))
			}
		}
	}
	time.ms = 4_999
	compacted(t, p)
	times, got := read()
	require.Equal(t, []int64{70, 80}, times)
	require.Equal(t, []string{"deleted", "kept"}, got)
	time.ms = 5_000
	compacted(t, p)
	times, got = read()
	require.Equal(t, []int64{80}, times)
	require.Equal(t, []string{"kept"}, got)
}
