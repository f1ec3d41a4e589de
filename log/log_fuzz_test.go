package log

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// FuzzSmallFiles feeds arbitrary bytes to the decoders of all files beside the
// segments. None panics, and what one accepts encodes to the same bytes.
func FuzzSmallFiles(f *testing.F) {
	f.Add(encodeRegistry(map[string]registryTopic{
		"a": {Spec: TopicSpec{Partitions: 3, Sync: SyncAlways, SegmentBytes: 5}}, "b-0": {Spec: TopicSpec{Partitions: 1, Compact: true}, Deleting: true},
	}))
	f.Add(encodeOffsets(map[TopicPartition]Offset{{"a", 0}: 5, {"b", 12}: 1 << 40}))
	f.Add(encodeCleanStops(map[TopicPartition]cleanStop{{"a", 0}: {5, 1}}))
	f.Add(encodeEpochs(epochs{{0, 0}, {3, 17}}))
	f.Add(encodeOffsetIndex([]offsetEntry{{3, 100}, {9, 300}}))
	f.Add(encodeTimeIndex([]timeEntry{{-5, 3}, {9, 30}}))
	f.Add(encodeTxnIndex(abortedTransactions{{id: 3, first: 5, last: 9, lastStable: 10}}))
	f.Add(seal{base: 3, next: 9, size: 500, maxTime: 8, maxTimeOffset: 4, lastBatch: 300}.encode())
	random := rand.New(rand.NewPCG(1, 1))
	f.Add(randomProducers(random).encodeSnapshot(0))
	f.Fuzz(func(t *testing.T, b []byte) {
		same := func(what string, encoded []byte, err error) {
			if err == nil && string(encoded) != string(b) {
				t.Fatalf("%s: %q becomes %q", what, b, encoded)
			}
		}
		registry, err := decodeRegistry(b)
		same("registry", encodeRegistry(registry), err)
		offsets, err := decodeOffsets(b)
		if err == nil {
			again, err := decodeOffsets(encodeOffsets(offsets)) // other writers have another order
			require.NoError(t, err)
			require.Equal(t, offsets, again)
		}
		stops, err := decodeCleanStops(b)
		if err == nil {
			again, err := decodeCleanStops(encodeCleanStops(stops))
			require.NoError(t, err)
			require.Equal(t, stops, again)
		}
		known, err := decodeEpochs(b)
		same("epochs", encodeEpochs(known), err)
		index, err := decodeOffsetIndex(b)
		same("offset index", encodeOffsetIndex(index), err)
		times, err := decodeTimeIndex(b)
		same("time index", encodeTimeIndex(times), err)
		txns, err := decodeTxnIndex(b)
		same("transaction index", encodeTxnIndex(txns), err)
		made, err := decodeSeal(b)
		same("seal", made.encode(), err)
		snapshot, err := decodeSnapshot(b, -1)
		if err == nil {
			encoded := snapshot.encodeSnapshot(0)
			again, err := decodeSnapshot(encoded, -1)
			require.NoError(t, err)
			require.Equal(t, encoded, again.encodeSnapshot(0))
		}
	})
}

// FuzzSummedFiles does the same with checksums that fit, which arbitrary bytes
// hardly ever have.
func FuzzSummedFiles(f *testing.F) {
	f.Add(encodeRegistry(map[string]registryTopic{"a": {Spec: TopicSpec{Partitions: 3}}, "b": {Spec: TopicSpec{Partitions: 1}}}))
	f.Add(seal{base: 3, next: 9, size: 500, maxTime: 8, maxTimeOffset: 4, lastBatch: 300}.encode())
	f.Add(randomProducers(rand.New(rand.NewPCG(1, 2))).encodeSnapshot(0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 12 {
			return
		}
		b = slices.Clone(b) // the engine keeps its own
		putSum(b)
		if registry, err := decodeRegistry(b); err == nil && string(encodeRegistry(registry)) != string(b) {
			t.Fatalf("registry %q", b)
		}
		if made, err := decodeSeal(b); err == nil && string(made.encode()) != string(b) {
			t.Fatalf("seal %q", b)
		}
		putSnapshotSum(b)
		if snapshot, err := decodeSnapshot(b, -1); err == nil {
			encoded := snapshot.encodeSnapshot(0)
			again, err := decodeSnapshot(encoded, -1)
			require.NoError(t, err)
			require.Equal(t, encoded, again.encodeSnapshot(0))
		}
	})
}

func randomProducers(random *rand.Rand) *producers {
	s := newProducers(nil, -1)
	for end := Offset(0); end < 40; end++ {
		id := ProducerID(random.IntN(6))
		p := s.byID[id]
		if p != nil && p.open() && random.IntN(3) == 0 {
			s.end(id, verdictOf(random.IntN(2) == 0), int64(end))
			continue
		}
		b := Batch{Producer: Producer{ID: id, Sequence: random.Int32(), Transactional: random.IntN(2) == 0 || p != nil && p.open()}}
		s.apply(&b, end, end, int64(end))
	}
	s.noteEnd(100, 107, committed)
	return s
}

// FuzzRecovery opens partitions whose segment holds arbitrary bytes, above the
// recovery point and adopted. Opening fails or gives a log that can be read to its
// end, appended to, and opened again with the same content.
func FuzzRecovery(f *testing.F) {
	good := append(batchOf(plain, 1, "a", "b"), make([]byte, 100)...)
	second := batchOf(transactional(5, 0), 2, "c")
	stamp(second, 2, 0)
	var b BatchBuilder
	third := append([]byte(nil), encodeMarker(&b, 1, Producer{ID: 5, Transactional: true}, marker{})...)
	stamp(third, 3, 1)
	stamp(good, 0, 0)
	all := append(append(append([]byte(nil), good[:len(good)-100]...), second...), third...)
	f.Add(good, all)
	f.Add(all, []byte{})
	f.Add(all[:len(all)-1], append([]byte(nil), all[100:]...))
	f.Fuzz(func(t *testing.T, segment, next []byte) {
		for _, adopt := range []bool{false, true} {
			mem := vfs.NewMem()
			if !adopt {
				l, _ := single(t, small(mem), SyncByOS)
				require.NoError(t, l.Close())
				require.NoError(t, mem.Remove("log/"+cleanStopFile))
			} else {
				require.NoError(t, mem.MkdirAll("log/t-0"))
			}
			require.NoError(t, writeCacheFile(mem, "log/t-0/00000000000000000000.log", segment))
			if len(next) > 0 {
				require.NoError(t, writeCacheFile(mem, "log/t-0/00000000000000000004.log", next))
			}
			l, err := Open("log", small(mem))
			if err == nil && adopt {
				err = l.Create("t", TopicSpec{Partitions: 1})
			}
			var corruption *CorruptionError
			if errors.As(err, &corruption) {
				if l != nil {
					require.NoError(t, l.Close())
				}
				continue
			}
			require.NoError(t, err)
			p := mustPartition(t, l, "t")
			before, errBefore := readValues(p)
			if _, err := p.Write(batchOf(plain, 1, "more")); err != nil {
				t.Fatal(err)
			}
			require.NoError(t, l.Close())
			l = mustOpen(t, small(mem))
			after, errAfter := readValues(mustPartition(t, l, "t"))
			if errBefore == nil {
				require.NoError(t, errAfter)
				require.Equal(t, append(before, "more"), after)
			}
			require.NoError(t, l.Close())
		}
	})
}

// readValues returns all there is to read. Records whose encoding a good checksum
// covers can be bad all the same; that is an error here.
func readValues(p *Partition) (values []string, err error) {
	r := p.Reader(p.Start(), ReadUncommitted)
	defer r.Close()
	for {
		b, err := r.Next()
		if err == io.EOF {
			return values, nil
		}
		if err != nil {
			return values, fmt.Errorf("after %d values: %w", len(values), err)
		}
		it := b.Records()
		for it.Next() {
			values = append(values, string(it.Value))
		}
		if it.Err() != nil {
			return values, it.Err()
		}
	}
}
