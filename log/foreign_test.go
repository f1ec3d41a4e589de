package log

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/thalweg/thalweg/internal/vfs"
)

// A brokerPartition is a partition directory as a Kafka broker writes it, made with
// kmsg and by the layout the broker documents: nothing of ours is used.
type brokerPartition struct {
	files  map[string][]byte
	base   int64 // of the segment being written
	starts []int64
}

func (p *brokerPartition) file(base int64, suffix string) string {
	return fmt.Sprintf("%020d%s", base, suffix)
}

// segment begins a segment.
func (p *brokerPartition) segment(base int64) {
	if p.files == nil {
		p.files = map[string][]byte{}
	}
	p.base = base
	p.starts = append(p.starts, base)
	for _, suffix := range []string{".log", ".index", ".timeindex"} {
		p.files[p.file(base, suffix)] = []byte{}
	}
}

// add appends a batch to the segment, with an entry in both indexes.
func (p *brokerPartition) add(batch kmsg.RecordBatch, records ...kmsg.Record) {
	if batch.Records == nil {
		for _, r := range records {
			r.Length = 0
			r.Length = int32(len(r.AppendTo(nil)) - 1)
			batch.Records = r.AppendTo(batch.Records)
		}
		batch.NumRecords = int32(len(records))
		batch.Records = brokerCompress(batch.Attributes&7, batch.Records)
	}
	log := p.file(p.base, ".log")
	position := len(p.files[log])
	p.files[log] = append(p.files[log], rawKmsgBatch(batch)...)
	last := int32(batch.FirstOffset-p.base) + batch.LastOffsetDelta
	index, times := p.file(p.base, ".index"), p.file(p.base, ".timeindex")
	if position > 0 {
		p.files[index] = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(p.files[index], uint32(last)), uint32(position))
		p.files[times] = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(p.files[times], uint64(batch.MaxTimestamp)), uint32(last))
	}
}

func brokerCompress(codec int16, b []byte) []byte {
	var to bytes.Buffer
	switch codec {
	case 1:
		return gzipped(b)
	case 2:
		return literalSnappy(b) // bare, as some clients write it
	case 3:
		w := lz4.NewWriter(&to)
		_ = w.Apply(lz4.BlockSizeOption(lz4.Block64Kb)) // or each takes megabytes
		_, _ = w.Write(b)
		_ = w.Close()
		return to.Bytes()
	case 4:
		w, _ := zstd.NewWriter(&to, zstd.WithWindowSize(64<<10), zstd.WithEncoderConcurrency(1))
		_, _ = w.Write(b)
		_ = w.Close()
		return to.Bytes()
	}
	return b
}

func (p *brokerPartition) marker(offset int64, epoch int32, producer int64, kind kmsg.ControlRecordKeyType) {
	key, value := kmsg.NewControlRecordKey(), kmsg.NewEndTxnMarker()
	key.Type = kind
	p.add(kmsg.RecordBatch{
		FirstOffset: offset, PartitionLeaderEpoch: epoch, Attributes: 0x30, FirstTimestamp: 1, MaxTimestamp: 1,
		ProducerID: producer, FirstSequence: -1,
	}, kmsg.Record{Key: key.AppendTo(nil), Value: value.AppendTo(nil)})
}

// brokerProducer is an entry of a producer snapshot of version 1.
type brokerProducer struct {
	id           int64
	epoch        int16
	lastSequence int32
	lastOffset   int64
	delta        int32
	txnFirst     int64
}

func (p *brokerPartition) snapshot(offset int64, producers ...brokerProducer) {
	body := binary.BigEndian.AppendUint32(nil, uint32(len(producers)))
	for _, e := range producers {
		body = binary.BigEndian.AppendUint64(body, uint64(e.id))
		body = binary.BigEndian.AppendUint16(body, uint16(e.epoch))
		body = binary.BigEndian.AppendUint32(body, uint32(e.lastSequence))
		body = binary.BigEndian.AppendUint64(body, uint64(e.lastOffset))
		body = binary.BigEndian.AppendUint32(body, uint32(e.delta))
		body = binary.BigEndian.AppendUint64(body, 1_700_000_000_000)
		body = binary.BigEndian.AppendUint32(body, 0) // coordinator epoch
		body = binary.BigEndian.AppendUint64(body, uint64(e.txnFirst))
	}
	b := binary.BigEndian.AppendUint16(nil, 1)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	p.files[p.file(offset, ".snapshot")] = append(b, body...)
}

func (p *brokerPartition) write(t testing.TB, fs vfs.FS, dir string) {
	t.Helper()
	require.NoError(t, fs.MkdirAll(dir))
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		name, content := path.Join(dir, name), p.files[name]
		require.NoError(t, writeCacheFile(fs, name, content))
		f, err := fs.Open(name)
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		require.NoError(t, f.Close())
	}
	for ; dir != "."; dir = path.Dir(dir) {
		require.NoError(t, fs.SyncDir(dir))
	}
	require.NoError(t, fs.SyncDir("."))
}

// brokerHistory is a compacted partition with all a broker may leave in it.
func brokerHistory() *brokerPartition {
	p := new(brokerPartition)
	record := func(delta int32, key, value string) kmsg.Record {
		r := kmsg.Record{OffsetDelta: delta, TimestampDelta64: int64(delta)}
		if key != "" {
			r.Key = []byte(key)
		}
		if value != "" {
			r.Value = []byte(value)
		}
		return r
	}
	p.segment(100)
	withHeaders := record(1, "", "b")
	withHeaders.Headers = []kmsg.Header{{Key: "h", Value: []byte("1")}, {Key: "none"}}
	p.add(kmsg.RecordBatch{FirstOffset: 100, PartitionLeaderEpoch: 3, Attributes: 1, LastOffsetDelta: 2, FirstTimestamp: 5000, MaxTimestamp: 5002, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1},
		record(0, "k", "a"), withHeaders, record(2, "tombstone", ""))
	p.add(kmsg.RecordBatch{FirstOffset: 103, PartitionLeaderEpoch: 3, LastOffsetDelta: 2, MaxTimestamp: -1, FirstTimestamp: -1, ProducerID: 90, ProducerEpoch: 1, FirstSequence: 42}) // emptied
	p.add(kmsg.RecordBatch{FirstOffset: 106, PartitionLeaderEpoch: 3, Attributes: 4, LastOffsetDelta: 5, FirstTimestamp: 3000, MaxTimestamp: 3003, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1},
		record(0, "x", "c"), record(3, "y", "d"))
	p.add(kmsg.RecordBatch{FirstOffset: 112, PartitionLeaderEpoch: 4, Attributes: 0x10 | 3, LastOffsetDelta: 1, FirstTimestamp: 4000, MaxTimestamp: 4001, ProducerID: 77, FirstSequence: 0},
		record(0, "k", "aborted"), record(1, "k", "aborted too"))
	p.segment(120)
	p.add(kmsg.RecordBatch{FirstOffset: 120, PartitionLeaderEpoch: 4, Attributes: 0x10 | 2, FirstTimestamp: 6000, MaxTimestamp: 6000, ProducerID: 78, FirstSequence: 10}, record(0, "k", "e"))
	p.marker(121, 4, 77, kmsg.ControlRecordKeyTypeAbort)
	p.add(kmsg.RecordBatch{FirstOffset: 122, PartitionLeaderEpoch: 7, Attributes: 0x08 | 1, LastOffsetDelta: 1, FirstTimestamp: 10, MaxTimestamp: 9000, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1},
		record(0, "k", "f"), record(1, "k", "g"))
	p.marker(124, 7, 78, kmsg.ControlRecordKeyTypeCommit)
	p.add(kmsg.RecordBatch{FirstOffset: 125, PartitionLeaderEpoch: 7, LastOffsetDelta: 1, FirstTimestamp: 7000, MaxTimestamp: 7001, ProducerID: 80, ProducerEpoch: 2, FirstSequence: 5},
		record(0, "k", "h"), record(1, "k", "i"))
	p.add(kmsg.RecordBatch{FirstOffset: 127, PartitionLeaderEpoch: 7, Attributes: 0x10, FirstTimestamp: 7500, MaxTimestamp: 7500, ProducerID: 79, FirstSequence: 0}, record(0, "k", "open"))

	aborted := binary.BigEndian.AppendUint16(nil, 0)
	for _, v := range []uint64{77, 112, 121, 120} {
		aborted = binary.BigEndian.AppendUint64(aborted, v)
	}
	p.files[p.file(120, ".txnindex")] = aborted
	before := []brokerProducer{
		{id: 90, epoch: 1, lastSequence: 41, lastOffset: 99, delta: 1, txnFirst: -1},
		{id: 91, epoch: 0, lastSequence: 7, lastOffset: 90, delta: 0, txnFirst: -1},
	}
	p.snapshot(100, before...)
	p.snapshot(120, append(before[1:], brokerProducer{id: 90, epoch: 1, lastSequence: 44, lastOffset: 105, delta: 2, txnFirst: -1},
		brokerProducer{id: 77, lastSequence: 1, lastOffset: 113, delta: 1, txnFirst: 112})...)
	p.files["leader-epoch-checkpoint"] = []byte("0\n3\n3 100\n4 112\n7 122\n")
	p.files["partition.metadata"] = []byte("version: 0\ntopic_id: 6Ql3mPb3QbqzuTzGYwCwJA")
	return p
}

var (
	brokerCommitted   = []string{"100:a", "101:b", "102:", "106:c", "109:d", "120:e", "122:f", "123:g", "125:h", "126:i"}
	brokerUncommitted = []string{"100:a", "101:b", "102:", "106:c", "109:d", "112:aborted", "113:aborted too", "120:e", "122:f", "123:g", "125:h", "126:i", "127:open"}
)

// checkBroker shows that p holds what brokerHistory wrote.
func checkBroker(t testing.TB, p *Partition) {
	t.Helper()
	require.Equal(t, Offset(100), p.Start())
	require.Equal(t, Position{128, 7}, p.End())
	require.Equal(t, Offset(127), p.LastStable())
	require.Equal(t, brokerCommitted, readAll(t, p, 100, ReadCommitted))
	require.Equal(t, brokerUncommitted, readAll(t, p, 100, ReadUncommitted))
	require.Equal(t, brokerCommitted[3:], readAll(t, p, 103, ReadCommitted), "from an emptied batch on")
	require.Equal(t, brokerCommitted[5:], readAll(t, p, 110, ReadCommitted), "from a gap on")
	require.Equal(t, brokerCommitted[5:], readAll(t, p, 115, ReadCommitted), "from between the segments on")
	open := p.OpenTransactions()
	require.Len(t, open, 1)
	require.Equal(t, [2]any{ProducerID(79), Offset(127)}, [2]any{open[0].ID, open[0].First})
	for at, want := range map[int64]Offset{0: 100, 5001: 101, 5002: 102, 5003: 120, 6001: 122, 9000: 122, 9001: -1} {
		off, found, err := p.OffsetAt(at)
		require.NoError(t, err)
		require.Equal(t, want >= 0, found, "time %d", at)
		require.Equal(t, max(want, 0), off, "time %d", at)
	}
	for off, epoch := range map[Offset]LeaderEpoch{101: 3, 112: 3, 113: 4, 122: 4, 123: 7} {
		at, err := p.PositionAt(off)
		require.NoError(t, err)
		require.Equal(t, epoch, at.Epoch, "before offset %d", off)
	}
	r := p.Reader(100, ReadCommitted)
	defer r.Close()
	b, err := r.Next()
	require.NoError(t, err)
	records := collect(t, *b)
	require.Equal(t, Record{Offset: 101, Time: 5001, Value: []byte("b"), Headers: []Header{{Key: "h", Value: []byte("1")}, {Key: "none"}}}, records[1])
	require.Equal(t, Record{Offset: 102, Time: 5002, Key: []byte("tombstone")}, records[2])
	for _, id := range []struct {
		id   ProducerID
		next int32
	}{{80, 7}, {90, 45}, {91, 8}} {
		state, ok := p.ProducerState(id.id)
		require.True(t, ok, "producer %d", id.id)
		require.Equal(t, id.next, state.Next, "producer %d", id.id)
	}
}

// unexpired options do not forget producers of long ago. Their segments are small
// because in memory each is there in full.
func unexpired(fs vfs.FS) Options {
	return Options{FS: fs, ProducerExpiry: -1, SegmentBytes: 32 << 10, MaxBatchBytes: 32 << 10}
}

// filesOf returns all files below dir with their content.
func filesOf(t testing.TB, fs vfs.FS, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := fs.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		name = path.Join(dir, name)
		if b, err := readSmallFile(fs, name); err == nil {
			all[name] = string(b)
			continue
		}
		maps.Copy(all, filesOf(t, fs, name))
	}
	return all
}

// brokerVariants change a partition in ways that do not change what it holds.
var brokerVariants = map[string]func(p *brokerPartition){
	"as it is":         func(*brokerPartition) {},
	"without snapshot": func(p *brokerPartition) { delete(p.files, p.file(120, ".snapshot")) },
	"snapshot at the end": func(p *brokerPartition) {
		p.snapshot(128, brokerProducer{id: 80, epoch: 2, lastSequence: 6, lastOffset: 126, delta: 1, txnFirst: -1})
	},
	"nothing but segments and the first snapshot": func(p *brokerPartition) {
		for name := range p.files {
			if !strings.HasSuffix(name, ".log") && name != p.file(100, ".snapshot") {
				delete(p.files, name)
			}
		}
	},
	"preallocated": func(p *brokerPartition) {
		for _, suffix := range []string{".log", ".index", ".timeindex"} {
			name := p.file(120, suffix)
			p.files[name] = append(p.files[name], make([]byte, 50_000)...)
		}
	},
	"old and wrong indexes": func(p *brokerPartition) {
		index := p.file(100, ".index")
		p.files[index] = p.files[index][:8]
		p.files[p.file(100, ".timeindex")] = []byte("garbage that is no index")
		p.files[p.file(120, ".index")] = bytes.Repeat([]byte{0xff}, 33)
		p.files[p.file(120, ".txnindex")] = nil
	},
	"damaged snapshot and epochs": func(p *brokerPartition) {
		p.files[p.file(120, ".snapshot")][20] ^= 1
		p.files["leader-epoch-checkpoint"] = []byte("0\n1\n3 100\n")
	},
	"on their way out": func(p *brokerPartition) {
		p.files[p.file(50, ".log.deleted")] = []byte("a segment of old")
		p.files[p.file(50, ".index.deleted")] = nil
		p.files[p.file(100, ".log.cleaned")] = []byte("half a seg")
		p.files[p.file(100, ".log.swap")] = []byte("not complete either: the cleaned one is not lower")
	},
	"torn": func(p *brokerPartition) {
		name := p.file(120, ".log")
		torn := rawKmsgBatch(kmsg.RecordBatch{FirstOffset: 128, PartitionLeaderEpoch: 7, LastOffsetDelta: 0, NumRecords: 1, Records: []byte("cut off anyway")})
		p.files[name] = append(p.files[name], torn[:len(torn)-5]...)
	},
	"torn in its header": func(p *brokerPartition) {
		name := p.file(120, ".log")
		p.files[name] = append(p.files[name], 0, 0, 0, 0, 0, 0, 0, 128, 0, 0)
	},
	"torn without its first page": func(p *brokerPartition) {
		name := p.file(120, ".log")
		p.files[name] = append(append(p.files[name], make([]byte, 1000)...), "what came behind"...)
	},
	"torn in preallocated space": func(p *brokerPartition) {
		name := p.file(120, ".log")
		torn := rawKmsgBatch(kmsg.RecordBatch{FirstOffset: 128, PartitionLeaderEpoch: 7, LastOffsetDelta: 0, NumRecords: 1, Records: []byte("cut off anyway")})
		clear(torn[40:])
		p.files[name] = append(append(p.files[name], torn...), make([]byte, 4096)...)
	},
	"gaps in the last segment": func(p *brokerPartition) {
		p.files[p.file(100, ".log")] = append(p.files[p.file(100, ".log")], p.files[p.file(120, ".log")]...)
		delete(p.files, p.file(120, ".log"))
	},
	"an empty segment at the end": func(p *brokerPartition) { p.segment(128) },
}

// TestForeignReadOnly shows that a broker's partition reads as it was written, in
// whatever state the broker left it, and that reading changes no byte and makes no
// file.
func TestForeignReadOnly(t *testing.T) {
	for name, change := range brokerVariants {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			p := brokerHistory()
			change(p)
			p.write(t, mem, "broker/t-4")
			before := filesOf(t, mem, "broker")
			operations := mem.Ops()
			l, err := OpenReadOnly("broker", unexpired(mem), "t")
			require.NoError(t, err)
			part, err := l.Partition(TopicPartition{Topic: "t", Partition: 4})
			require.NoError(t, err)
			checkBroker(t, part)
			require.Equal(t, strings.HasPrefix(name, "torn"), part.Recovery().CutBytes > 0)
			require.False(t, part.Recovery().Clean)
			require.NoError(t, l.Close())
			require.Equal(t, operations, mem.Ops(), "nothing was even tried")
			require.Equal(t, before, filesOf(t, mem, "broker"))
		})
	}
}

// TestForeignReadWrite shows the same of a partition that Create adopts, which then
// takes records behind those of the broker, knows the broker's producers, and stays as
// it is through a restart and a kill.
func TestForeignReadWrite(t *testing.T) {
	for name, change := range brokerVariants {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			p := brokerHistory()
			change(p)
			p.write(t, mem, "log/t-0")
			l := mustOpen(t, unexpired(mem))
			require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Compact: true, Compression: Zstd}))
			for range 3 {
				part := mustPartition(t, l, "t")
				checkBroker(t, part)
				image := mem.Kill()
				require.NoError(t, l.Close())
				l = mustOpen(t, unexpired(mem))
				checkBroker(t, mustPartition(t, l, "t"))
				require.NoError(t, l.Close())
				mem = image
				l = mustOpen(t, unexpired(mem))
			}
			part := mustPartition(t, l, "t")
			again, err := part.Write(keyed(Producer{ID: 80, Epoch: 2, Sequence: 5}, 1, "k=h", "k=i"))
			require.NoError(t, err)
			require.Equal(t, [3]any{true, Offset(125), Offset(126)}, [3]any{again.Duplicate, again.Base, again.Last})
			_, err = part.Write(keyed(Producer{ID: 90, Epoch: 1, Sequence: 46}, 1, "k=gap"))
			require.ErrorIs(t, err, ErrOutOfOrder)
			_, err = part.Write(keyed(Producer{ID: 90, Epoch: 0, Sequence: 45}, 1, "k=late"))
			require.ErrorIs(t, err, ErrFenced)
			got, err := part.Write(keyed(Producer{ID: 90, Epoch: 1, Sequence: 45}, 1, "k=next"))
			require.NoError(t, err)
			require.Equal(t, Offset(128), got.Base)
			_, err = part.EndTransaction(79, true)
			require.NoError(t, err)
			_, err = part.AppendRecords(context.Background(), Record{Time: 1, Key: []byte("k"), Value: []byte("last")})
			require.NoError(t, err)
			want := append(slices.Clone(brokerCommitted), "127:open", "128:next", "130:last")
			require.Equal(t, want, readAll(t, part, 100, ReadCommitted))
			require.NoError(t, l.Close())
			l = mustOpen(t, unexpired(mem))
			require.Equal(t, want, readAll(t, mustPartition(t, l, "t"), 100, ReadCommitted))
			require.NoError(t, l.Close())
		})
	}
}

// TestForeignDamage shows what is refused, both ways, with an error that names the
// place, and that what is there stays.
func TestForeignDamage(t *testing.T) {
	for name, test := range map[string]struct {
		change func(p *brokerPartition)
		want   error
		text   string
	}{
		"in a sealed segment":   {func(p *brokerPartition) { p.files[p.file(100, ".log")][300] ^= 1 }, ErrInvalidBatch, "00000000000000000100.log is damaged at byte"},
		"before the last batch": {func(p *brokerPartition) { p.files[p.file(120, ".log")][70] ^= 1 }, ErrInvalidBatch, "00000000000000000120.log is damaged at byte 0 (offset 120)"},
		"in the last batch": {func(p *brokerPartition) {
			log := p.files[p.file(120, ".log")]
			log[len(log)-5] ^= 1
		}, ErrInvalidBatch, "(offset 127)"},
		"what belongs to no batch": {func(p *brokerPartition) {
			name := p.file(120, ".log")
			p.files[name] = append(p.files[name], "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"...)
		}, ErrInvalidBatch, "(offset 128)"},
		"segments that overlap": {func(p *brokerPartition) {
			p.files[p.file(113, ".log")] = p.files[p.file(120, ".log")]
			delete(p.files, p.file(120, ".log"))
		}, nil, "the segment before it ends at offset 114"},
		"format 1": {func(p *brokerPartition) { p.files[p.file(120, ".log")] = legacyMessage(120, 1) }, ErrVersion,
			"00000000000000000120.log at byte 0: message format 1: log: unknown format version: messages of brokers before version 0.11; copy the topic with a client into a new one"},
		"format 0": {func(p *brokerPartition) {
			name := p.file(120, ".log")
			p.files[name] = append(p.files[name], legacyMessage(128, 0)...)
		}, ErrVersion, "message format 0"},
		"a codec nobody knows": {func(p *brokerPartition) {
			name := p.file(120, ".log")
			p.files[name] = append(p.files[name], rawKmsgBatch(kmsg.RecordBatch{FirstOffset: 128, Attributes: 5, ProducerID: -1, NumRecords: 1, Records: []byte("who knows")})...)
		}, ErrVersion, "compression type is 5"},
		"a swap that is damaged": {func(p *brokerPartition) {
			p.files[p.file(100, ".log.swap")] = []byte("garbage that is longer than a header is, by far: sixty-one bytes")
		}, nil, "log.swap is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			p := brokerHistory()
			test.change(p)
			p.write(t, mem, "log/t-0")
			before := filesOf(t, mem, "log/t-0")
			_, err := OpenReadOnly("log", unexpired(mem))
			check := func(err error) {
				t.Helper()
				require.ErrorContains(t, err, test.text)
				if test.want != nil {
					require.ErrorIs(t, err, test.want)
				}
			}
			check(err)
			l := mustOpen(t, unexpired(mem))
			check(l.Create("t", TopicSpec{Partitions: 1, Compact: true}))
			require.NoError(t, l.Close())
			for file, content := range filesOf(t, mem, "log/t-0") {
				if strings.Contains(file, ".log") {
					require.Equal(t, before[file], content)
				}
			}
		})
	}
}

// positionOf finds the batch with a base offset.
func positionOf(log []byte, base uint64) (at int) {
	for binary.BigEndian.Uint64(log[at:]) != base {
		at += 12 + int(binary.BigEndian.Uint32(log[at+8:]))
	}
	return at
}

// legacyMessage is a message of format 0 or 1.
func legacyMessage(offset int64, magic int8) []byte {
	body := []byte{byte(magic), 0}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, 1_400_000_000_000)
	}
	body = binary.BigEndian.AppendUint32(body, 0xffffffff)
	body = append(binary.BigEndian.AppendUint32(body, 5), "value"...)
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(body)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(body))
	b = append(b, body...)
	return append(b, make([]byte, 100)...)
}

// TestForeignRecoveryPoint shows that a reader goes by the broker's recovery point: a
// batch that is not whole is damage below it and torn above it, in any segment, and
// that the log start is the broker's too.
func TestForeignRecoveryPoint(t *testing.T) {
	mem := vfs.NewMem()
	p := brokerHistory()
	p.files[p.file(100, ".log")][positionOf(p.files[p.file(100, ".log")], 106)+70] ^= 1
	p.write(t, mem, "broker/t-0")
	require.NoError(t, writeCacheFile(mem, "broker/recovery-point-offset-checkpoint", []byte("0\n2\nother 0 5\nt 0 104\n")))
	require.NoError(t, writeCacheFile(mem, "broker/log-start-offset-checkpoint", []byte("0\n1\nt 0 101\n")))
	l, err := OpenReadOnly("broker", unexpired(mem), "t")
	require.NoError(t, err)
	part := mustPartition(t, l, "t")
	require.Equal(t, []string{"101:b", "102:"}, readAll(t, part, 101, ReadCommitted))
	require.Equal(t, Offset(101), part.Start())
	require.Equal(t, Offset(106), part.End().Offset)
	require.Equal(t, Offset(106), part.Recovery().CutFrom)
	require.Equal(t, 2, part.Recovery().CutSegments)
	require.NoError(t, l.Close())

	require.NoError(t, writeCacheFile(mem, "broker/recovery-point-offset-checkpoint", []byte("0\n1\nt 0 128\n")))
	_, err = OpenReadOnly("broker", unexpired(mem), "t")
	var corruption *CorruptionError
	require.ErrorAs(t, err, &corruption)
	require.Equal(t, Offset(106), corruption.Offset)
}

// swapped is brokerHistory stopped while its two segments were being replaced by one.
// done says how far the broker got: 0 the replacement is complete, 1 the old ones are
// on their way out, 2 one of them is gone.
func swapped(done int) *brokerPartition {
	p := brokerHistory()
	first, second := p.files[p.file(100, ".log")], p.files[p.file(120, ".log")]
	// What a reader must not see any more: the old ones differ.
	p.files[p.file(100, ".log.swap")] = append(bytes.Clone(first), second...)
	p.files[p.file(100, ".index.swap")] = nil
	old := new(brokerPartition)
	old.segment(100)
	old.add(kmsg.RecordBatch{FirstOffset: 100, PartitionLeaderEpoch: 3, LastOffsetDelta: 19, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1}, kmsg.Record{Value: []byte("old")})
	p.files[p.file(100, ".log")] = old.files[p.file(100, ".log")]
	for base := range int64(done) {
		for _, suffix := range []string{".log", ".index", ".timeindex"} {
			name := p.file(100+20*base, suffix)
			p.files[name+".deleted"] = p.files[name]
			delete(p.files, name)
		}
	}
	return p
}

// TestForeignSwap shows that segments a broker was replacing are read as it would have
// gone on with them, wherever it was stopped, and that adopting them can be cut off at
// every file operation.
func TestForeignSwap(t *testing.T) {
	for done := range 3 {
		mem := vfs.NewMem()
		swapped(done).write(t, mem, "log/t-0")
		before := filesOf(t, mem, "log")
		l, err := OpenReadOnly("log", unexpired(mem))
		require.NoError(t, err)
		checkBroker(t, mustPartition(t, l, "t"))
		require.NoError(t, l.Close())
		require.Equal(t, before, filesOf(t, mem, "log"))

		image := mem.Kill()
		image.SetHook(nil)
		l, err = Open("log", unexpired(image))
		require.NoError(t, err)
		first := image.Ops()
		require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Compact: true}))
		last := image.Ops()
		l.abandon()
		for n := first; n < last; n += sampled[int64](7) {
			for _, after := range []func(*vfs.Mem) *vfs.Mem{(*vfs.Mem).Kill, func(m *vfs.Mem) *vfs.Mem { return m.Crash(uint64(n)) }} {
				image := mem.Kill()
				l, err := Open("log", unexpired(image))
				require.NoError(t, err)
				image.StopAt(n)
				err = l.Create("t", TopicSpec{Partitions: 1, Compact: true})
				l.abandon()
				if err == nil {
					continue
				}
				require.True(t, errors.Is(err, vfs.ErrStopped), "%v", err)
				image = after(image)
				l, err = Open("log", unexpired(image))
				require.NoError(t, err)
				require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Compact: true}))
				checkBroker(t, mustPartition(t, l, "t"))
				require.NoError(t, l.Close())
			}
		}
	}
}

// TestReadOnlyRefusesWrites shows that a log that is open for reading says so to
// whoever writes, waits or asks for what is not there.
func TestReadOnlyRefusesWrites(t *testing.T) {
	mem := vfs.NewMem()
	brokerHistory().write(t, mem, "broker/t-0")
	brokerHistory().write(t, mem, "broker/t-2")
	brokerHistory().write(t, mem, "broker/other-0")
	require.NoError(t, mem.MkdirAll("broker/t-3.0123456789abcdef0123456789abcdef-delete"))
	require.NoError(t, writeCacheFile(mem, "broker/meta-1", []byte("a file")))
	before := filesOf(t, mem, "broker")
	l, err := OpenReadOnly("broker", unexpired(mem))
	require.NoError(t, err)
	var names []string
	for p := range l.Partitions() {
		names = append(names, p.Name().String())
	}
	require.Equal(t, []string{"other-0", "t-0", "t-2"}, names)
	_, err = l.Partition(TopicPartition{Topic: "t", Partition: 1})
	require.ErrorIs(t, err, ErrUnknownTopic)
	require.ErrorContains(t, err, "no directory t-1")
	_, err = OpenReadOnly("broker", unexpired(mem), "t", "missing")
	require.ErrorIs(t, err, ErrUnknownTopic)
	require.ErrorContains(t, err, "missing-0")
	_, err = OpenReadOnly("nowhere", unexpired(mem))
	require.Error(t, err)

	p := mustPartition(t, l, "t")
	for name, write := range map[string]func() error{
		"write":    func() error { _, err := p.Write(batchOf(plain, 1, "v")); return err },
		"foreign":  func() error { _, err := p.WriteForeign(batchOf(plain, 1, "v")); return err },
		"append":   func() error { _, err := p.AppendRecords(t.Context(), record(1, "v")); return err },
		"end":      func() error { _, err := p.EndTransaction(79, true); return err },
		"truncate": func() error { return p.TruncateTo(110) },
		"delete":   func() error { return p.DeleteBefore(110) },
		"create":   func() error { return l.Create("new", TopicSpec{Partitions: 1}) },
		"remove":   func() error { return l.Delete("t") },
	} {
		require.ErrorIs(t, write(), ErrReadOnly, name)
	}
	require.NoError(t, l.Checkpoint())
	require.NoError(t, p.Sync(t.Context()))
	r := p.Reader(127, ReadCommitted)
	require.ErrorIs(t, r.Wait(t.Context()), ErrReadOnly)
	r.Seek(100)
	require.NoError(t, r.Wait(t.Context()))
	b, err := r.Next()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	require.Len(t, collect(t, *b), 3, "what a reader pinned stays")
	r.Close()
	_, err = r.Next()
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, before, filesOf(t, mem, "broker"))
}

// TestReadOnlyOfOurOwn shows that a directory of ours is read as well, after a clean
// stop and after a kill, even while nobody may write to it and its lock is held.
func TestReadOnlyOfOurOwn(t *testing.T) {
	dir := t.TempDir()
	o := small(vfs.OS())
	l, err := Open(dir, o)
	require.NoError(t, err)
	require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Compression: Snappy}))
	p := mustPartition(t, l, "t")
	var want []string
	for i := range 30 {
		value := fmt.Sprint(i, strings.Repeat(" drop", 20))
		_, err := p.AppendRecords(t.Context(), record(int64(i), value))
		require.NoError(t, err)
		want = append(want, fmt.Sprintf("%d:%s", i, value))
	}
	require.Greater(t, len(*p.segments.Load()), 2)
	check := func() {
		t.Helper()
		before := filesOf(t, vfs.OS(), dir)
		read, err := OpenReadOnly(dir, o)
		require.NoError(t, err)
		require.Equal(t, want, readAll(t, mustPartition(t, read, "t"), 0, ReadCommitted))
		require.NoError(t, read.Close())
		require.Equal(t, before, filesOf(t, vfs.OS(), dir))
	}
	check()
	require.NoError(t, p.DeleteBefore(5))
	want = want[5:]
	require.NoError(t, l.Close())
	read, err := OpenReadOnly(dir, o)
	require.NoError(t, err)
	require.Equal(t, Offset(5), mustPartition(t, read, "t").Start())
	require.Equal(t, want, readAll(t, mustPartition(t, read, "t"), 5, ReadCommitted))
	require.NoError(t, read.Close())
}

// TestForeignOffsetAt walks case C-13 over segments of another writer, compressed in
// each way, with and without its indexes: read as they are, adopted, cut, and opened
// again.
func TestForeignOffsetAt(t *testing.T) {
	segments := []struct {
		base  int64
		times []int64
	}{{0, []int64{100, 300, 200, 250}}, {4, []int64{220, 260, 400, 350}}, {8, []int64{380, 500}}}
	full := map[int64]Offset{0: 0, 100: 0, 101: 1, 201: 1, 250: 1, 300: 1, 301: 6, 350: 6, 381: 6, 400: 6, 401: 9, 500: 9, 501: -1}
	check := func(p *Partition, want map[int64]Offset) {
		t.Helper()
		for x, offset := range want {
			got, found, err := p.OffsetAt(x)
			require.NoError(t, err)
			require.Equal(t, offset >= 0, found, "time %d", x)
			require.Equal(t, max(offset, 0), got, "time %d", x)
		}
	}
	for codec := range int16(5) {
		for _, perBatch := range []int{1, 2} {
			for _, indexes := range []bool{true, false} {
				mem := vfs.NewMem()
				p := new(brokerPartition)
				for _, s := range segments {
					p.segment(s.base)
					offset := s.base
					for times := range slices.Chunk(s.times, perBatch) {
						var records []kmsg.Record
						for i, at := range times {
							records = append(records, kmsg.Record{OffsetDelta: int32(i), TimestampDelta64: at - times[0], Value: []byte("v")})
						}
						p.add(kmsg.RecordBatch{FirstOffset: offset, Attributes: codec, LastOffsetDelta: int32(len(times) - 1),
							FirstTimestamp: times[0], MaxTimestamp: slices.Max(times), ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1}, records...)
						offset += int64(len(times))
					}
				}
				maps.DeleteFunc(p.files, func(name string, _ []byte) bool { return !indexes && strings.Contains(name, "index") })
				p.write(t, mem, "log/t-0")
				read, err := OpenReadOnly("log", unexpired(mem))
				require.NoError(t, err)
				check(mustPartition(t, read, "t"), full)
				require.NoError(t, read.Close())

				l := mustOpen(t, unexpired(mem))
				require.NoError(t, l.Create("t", TopicSpec{Partitions: 1}))
				check(mustPartition(t, l, "t"), full)
				require.NoError(t, l.Close())
				l = mustOpen(t, unexpired(mem))
				check(mustPartition(t, l, "t"), full)
				require.NoError(t, mustPartition(t, l, "t").TruncateTo(6))
				check(mustPartition(t, l, "t"), map[int64]Offset{260: 1, 300: 1, 301: -1})
				require.NoError(t, l.Close())
				l = mustOpen(t, unexpired(mem))
				check(mustPartition(t, l, "t"), map[int64]Offset{260: 1, 300: 1, 301: -1})
				require.NoError(t, l.Close())
			}
		}
	}
}

// TestForeignIndexesThatDoNotFit walks case C-14 over a segment of another writer with
// indexes of its own: whatever they say, positions are those of the data, a record that
// is half there goes, and reading alone changes none of it.
func TestForeignIndexesThatDoNotFit(t *testing.T) {
	build := func() (*brokerPartition, []int64) {
		p := new(brokerPartition)
		p.segment(0)
		var positions []int64
		for i := range int64(5) {
			positions = append(positions, int64(len(p.files[p.file(0, ".log")])))
			p.add(kmsg.RecordBatch{FirstOffset: i, Attributes: 4 * int16(i%2), FirstTimestamp: i, MaxTimestamp: i, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1},
				kmsg.Record{Value: bytes.Repeat([]byte{byte(i)}, 40)})
		}
		return p, positions
	}
	for name, test := range map[string]struct {
		damage func(p *brokerPartition, positions []int64)
		end    Offset
	}{
		"index missing": {func(p *brokerPartition, _ []int64) { delete(p.files, p.file(0, ".index")) }, 5},
		"garbage": {func(p *brokerPartition, _ []int64) {
			p.files[p.file(0, ".index")] = []byte("garbage that is no index at all.")
		}, 5},
		"one more entry": {func(p *brokerPartition, _ []int64) {
			index := p.file(0, ".index")
			p.files[index] = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(p.files[index], 5), uint32(len(p.files[p.file(0, ".log")])))
		}, 5},
		"half of record 4 is cut": {func(p *brokerPartition, at []int64) {
			p.files[p.file(0, ".log")] = p.files[p.file(0, ".log")][:at[4]+15]
		}, 4},
		"record 4 is cut": {func(p *brokerPartition, at []int64) { p.files[p.file(0, ".log")] = p.files[p.file(0, ".log")][:at[4]] }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			p, positions := build()
			test.damage(p, positions)
			mem := vfs.NewMem()
			p.write(t, mem, "log/t-0")
			before := filesOf(t, mem, "log")
			check := func(part *Partition) {
				t.Helper()
				require.Equal(t, test.end, part.End().Offset)
				s := (*part.segments.Load())[0]
				for i, at := range positions[:test.end] {
					got, err := s.seek(Offset(i), s.end.Load())
					require.NoError(t, err)
					require.Equal(t, at, got)
				}
				require.Len(t, readAll(t, part, 0, ReadCommitted), int(test.end))
			}
			o := unexpired(mem)
			o.IndexIntervalBytes = 1
			for range 2 {
				read, err := OpenReadOnly("log", o)
				require.NoError(t, err)
				check(mustPartition(t, read, "t"))
				require.NoError(t, read.Close())
			}
			require.Equal(t, before, filesOf(t, mem, "log"))
			l := mustOpen(t, o)
			require.NoError(t, l.Create("t", TopicSpec{Partitions: 1}))
			check(mustPartition(t, l, "t"))
			got, err := mustPartition(t, l, "t").Write(batchOf(plain, 1, "next"))
			require.NoError(t, err)
			require.Equal(t, test.end, got.Base)
			require.NoError(t, l.Close())
		})
	}
}

// TestReadOnlyOfUsedFiles shows that of files of ours nothing is read but what they
// hold now, after a kill too.
func TestReadOnlyOfUsedFiles(t *testing.T) {
	for size := range 20 {
		r := newRecycling(t, SyncByOS, []int{5*size + 1}, 1+size%3)
		want := readAll(t, r.p, r.p.Start(), ReadUncommitted)
		r.log.abandon()
		l, err := OpenReadOnly("log", small(r.mem.Kill()))
		require.NoError(t, err)
		p := mustPartition(t, l, "t")
		require.Equal(t, want, readAll(t, p, r.p.Start(), ReadUncommitted))
		require.Equal(t, r.end, p.End().Offset)
		require.Zero(t, p.Recovery().CutBytes)
		require.NoError(t, l.Close())
	}
}
