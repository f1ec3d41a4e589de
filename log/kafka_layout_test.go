package log

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/thalweg/thalweg/internal/vfs"
)

// TestKmsgReadsOurSegments shows that after Close an independent reader finds whole
// batches from the first to the last byte of every segment file, and in them what
// was written.
func TestKmsgReadsOurSegments(t *testing.T) {
	dir := t.TempDir()
	o := small(vfs.OS())
	l, err := Open(dir, o)
	require.NoError(t, err)
	require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Sync: SyncAlways}))
	p := mustPartition(t, l, "t")
	var want []string
	for i := range 40 {
		value := fmt.Sprintf("value %d %s", i, strings.Repeat("x", i*5))
		_, err := p.AppendRecords(context.Background(), Record{Time: int64(i), Key: []byte("k"), Value: []byte(value)})
		require.NoError(t, err)
		want = append(want, fmt.Sprintf("%d:%s", len(want), value))
	}
	_, err = p.Append(context.Background(), batchOf(transactional(9, 0), 1, "t"))
	require.NoError(t, err)
	want = append(want, "40:t")
	_, err = p.EndTransaction(9, false)
	require.NoError(t, err)
	want = append(want, "41:marker of 9, abort")
	require.NoError(t, l.Close())

	names, err := filepath.Glob(filepath.Join(dir, "t-0", "*.log"))
	require.NoError(t, err)
	require.Greater(t, len(names), 3)
	var got []string
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		var base int64
		_, err = fmt.Sscanf(filepath.Base(name), "%020d.log", &base)
		require.NoError(t, err)
		require.Equal(t, base, int64(len(got)), "the name is the first offset")
		for len(b) > 0 {
			length := 12 + int(binary.BigEndian.Uint32(b[8:]))
			batch, records := kmsgRecords(t, b[:length])
			require.Equal(t, int64(len(got)), batch.FirstOffset)
			require.Equal(t, int32(0), batch.PartitionLeaderEpoch)
			for _, r := range records {
				if batch.Attributes&0x20 != 0 {
					var key kmsg.ControlRecordKey
					require.NoError(t, key.ReadFrom(r.Key))
					require.Equal(t, kmsg.ControlRecordKeyTypeAbort, key.Type)
					got = append(got, fmt.Sprintf("%d:marker of %d, abort", len(got), batch.ProducerID))
					continue
				}
				got = append(got, fmt.Sprintf("%d:%s", batch.FirstOffset+int64(r.OffsetDelta), r.Value))
			}
			b = b[length:]
		}
	}
	require.Equal(t, want, got)

	// The aborted transaction stands in the last segment's index, as Kafka has it.
	txn, err := os.ReadFile(strings.TrimSuffix(names[len(names)-1], ".log") + ".txnindex")
	require.NoError(t, err)
	require.Len(t, txn, 34)
	require.Equal(t, []uint64{9, 40, 41, 42}, []uint64{
		binary.BigEndian.Uint64(txn[2:]), binary.BigEndian.Uint64(txn[10:]), binary.BigEndian.Uint64(txn[18:]), binary.BigEndian.Uint64(txn[26:]),
	})
	epochs, err := os.ReadFile(filepath.Join(dir, "t-0", "leader-epoch-checkpoint"))
	require.NoError(t, err)
	require.Equal(t, "0\n1\n0 0\n", string(epochs))
	points, err := os.ReadFile(filepath.Join(dir, "recovery-point-offset-checkpoint"))
	require.NoError(t, err)
	require.Equal(t, "0\n1\nt 0 42\n", string(points))
}

// TestAdoptsSegmentsOfAnotherWriter shows that a partition directory that holds
// nothing but segments kmsg encoded, beginning anywhere, is opened by Create with
// its epochs, transactions and producers.
func TestAdoptsSegmentsOfAnotherWriter(t *testing.T) {
	batch := func(base int64, epoch int32, producer int64, sequence int32, attributes int16, values ...string) []byte {
		var records []kmsg.Record
		for i, v := range values {
			r := kmsg.NewRecord()
			r.OffsetDelta, r.TimestampDelta64, r.Value = int32(i), int64(i), []byte(v)
			records = append(records, r)
		}
		return kmsgBatch(kmsg.RecordBatch{
			FirstOffset: base, PartitionLeaderEpoch: epoch, Attributes: attributes, LastOffsetDelta: int32(len(values) - 1),
			FirstTimestamp: base * 10, MaxTimestamp: base*10 + int64(len(values)-1),
			ProducerID: producer, ProducerEpoch: 0, FirstSequence: sequence,
		}, records...)
	}
	marker := func(base int64, epoch int32, producer int64, kind kmsg.ControlRecordKeyType) []byte {
		key, value := kmsg.NewControlRecordKey(), kmsg.NewEndTxnMarker()
		key.Type = kind
		r := kmsg.NewRecord()
		r.Key, r.Value = key.AppendTo(nil), value.AppendTo(nil)
		return kmsgBatch(kmsg.RecordBatch{
			FirstOffset: base, PartitionLeaderEpoch: epoch, Attributes: 0x30, FirstTimestamp: 1, MaxTimestamp: 1,
			ProducerID: producer, ProducerEpoch: 0, FirstSequence: -1,
		}, r)
	}
	var first, second []byte
	first = append(first, batch(500, 3, -1, -1, 0, "a", "b", "c")...)
	first = append(first, batch(503, 3, 77, 0, 0x10, "hidden")...)
	first = append(first, batch(504, 5, 78, 10, 0x10, "seen")...)
	second = append(second, marker(505, 5, 77, kmsg.ControlRecordKeyTypeAbort)...)
	second = append(second, marker(506, 5, 78, kmsg.ControlRecordKeyTypeCommit)...)
	second = append(second, batch(507, 9, 79, 0, 0x10, "open")...)
	second = append(second, batch(508, 9, 80, 5, 0, "d", "e")...)

	mem := vfs.NewMem()
	require.NoError(t, mem.MkdirAll("log/t-0"))
	require.NoError(t, writeCacheFile(mem, "log/t-0/00000000000000000500.log", first))
	require.NoError(t, writeCacheFile(mem, "log/t-0/00000000000000000505.log", append(second, make([]byte, 1000)...)))
	l, p := single(t, small(mem), SyncByOS)
	for range 2 {
		require.Equal(t, Offset(500), p.Start())
		require.Equal(t, Position{510, 9}, p.End())
		require.Equal(t, Offset(507), p.LastStable())
		require.Equal(t, []OpenTransaction{{ID: 79, First: 507, Since: p.OpenTransactions()[0].Since}}, p.OpenTransactions())
		require.Equal(t, []string{"500:a", "501:b", "502:c", "504:seen"}, readAll(t, p, 500, ReadCommitted))
		require.Equal(t, []string{"508:d", "509:e"}, readAll(t, p, 508, ReadUncommitted))
		for off, epoch := range map[Offset]LeaderEpoch{501: 3, 504: 3, 505: 5, 507: 5, 508: 9} {
			got, err := p.PositionAt(off)
			require.NoError(t, err)
			require.Equal(t, Position{off, epoch}, got)
		}
		got, err := p.Write(batchOf(Producer{ID: 80, Sequence: 5}, 1, "d", "e"))
		require.NoError(t, err)
		require.True(t, got.Duplicate)
		require.Equal(t, Offset(508), got.Base)
		require.NoError(t, l.Close())
		l = mustOpen(t, small(mem))
		p = mustPartition(t, l, "t")
	}
	require.NoError(t, l.Close())

	// Damage in it is refused: nobody knows what of it was durable.
	second[len(second)-3] ^= 1
	mem = vfs.NewMem()
	require.NoError(t, mem.MkdirAll("log/t-0"))
	require.NoError(t, writeCacheFile(mem, "log/t-0/00000000000000000505.log", second))
	l = mustOpen(t, small(mem))
	var corruption *CorruptionError
	require.ErrorAs(t, l.Create("t", TopicSpec{Partitions: 1}), &corruption)
	_, known := l.Spec("t")
	require.False(t, known)
	require.NoError(t, l.Close())
}

// TestReadsKafkasProducerSnapshot shows that the first part of a snapshot alone,
// which is all Kafka writes, is enough to recognise a repetition.
func TestReadsKafkasProducerSnapshot(t *testing.T) {
	b := []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 1}
	b = binary.BigEndian.AppendUint64(b, 77)      // producer id
	b = binary.BigEndian.AppendUint16(b, 2)       // epoch
	b = binary.BigEndian.AppendUint32(b, 1)       // last sequence
	b = binary.BigEndian.AppendUint64(b, 104)     // last offset
	b = binary.BigEndian.AppendUint32(b, 4)       // offset delta
	b = binary.BigEndian.AppendUint64(b, 5000)    // time
	b = binary.BigEndian.AppendUint32(b, 1<<32-1) // coordinator epoch
	b = binary.BigEndian.AppendUint64(b, 90)      // first offset of the transaction
	putSnapshotSum(b)
	s, err := decodeSnapshot(b, 0)
	require.NoError(t, err)
	p := s.byID[77]
	require.Equal(t, int16(2), p.epoch)
	require.Equal(t, int64(5000), p.lastSeen)
	newest, ok := p.newest()
	require.True(t, ok)
	require.Equal(t, sentBatch{firstSequence: 1<<31 - 3, lastSequence: 1, base: 100, last: 104}, newest, "five records, across the wrap")
	require.Equal(t, Offset(90), s.firstOpen(200))
}
