package bench

import (
	"bytes"
	"encoding/binary"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/state"
)

var restoreBytes = flag.Int64("restore.bytes", 128<<20, "keys and values in the changelog of BenchmarkRestore; 2,147,483,648 take 8 GB of disk")

// stateValue is the encoded value of a key, of 84 bytes with its version in front, as tables write it.
func stateValue(dst []byte, i int) []byte {
	var rest [76]byte
	return append(binary.LittleEndian.AppendUint64(append(dst, 1), uint64(i)), rest[:]...)
}

// writeChanges writes a change of each of so many keys, in no order of theirs.
func writeChanges(b *testing.B, p *log.Partition, keys int) state.Mark {
	b.Helper()
	var builder log.BatchBuilder
	var value []byte
	for i := range keys {
		k := keyNumber(i)
		value = stateValue(value[:0], i)
		builder.Add(0, state.StoredKey(k[:]), value, nil)
		if builder.Size() < 256<<10 && i < keys-1 {
			continue
		}
		if _, err := p.Write(builder.Finish(log.Producer{ID: log.NoProducer})); err != nil {
			b.Fatal(err)
		}
		builder.Reset()
	}
	return state.Mark{Attempt: 1, N: 1, End: p.End()}
}

// checkStore fails unless some of the keys are in the store as they were written, and no other.
func checkStore(b *testing.B, s *state.Store, keys int) {
	b.Helper()
	for i := 0; i < keys; i += max(1, keys/1000) {
		k := keyNumber(i)
		got, ok, err := s.Get(k[:])
		if want := stateValue(nil, i)[1:]; err != nil || !ok || !bytes.Equal(got, want) {
			b.Fatalf("key %d is %x in the store, and not %x: %v", i, got, want, err)
		}
	}
	k := keyNumber(keys)
	if _, ok, err := s.Get(k[:]); ok || err != nil {
		b.Fatal("a key that was not written is in the store, or ", err)
	}
}

// BenchmarkFollower brings a store on disk 300,000 changes forward, as its follower does behind
// a job's checkpoints. An operation is all of them. The floor writes the same entries, sorted
// before, to a bare Pebble without its write-ahead log, in batches of 100,000.
func BenchmarkFollower(b *testing.B) {
	const keys = 300_000
	changelog := openPartition(b, log.TopicSpec{Compact: true})
	mark := writeChanges(b, changelog, keys)
	var ours, floor time.Duration
	runs := 0
	for b.Loop() {
		b.StopTimer()
		floor += pebbleByHand(b, keys)
		store := storeOver(b, state.Disk(0), changelog, true)
		b.StartTimer()
		start := time.Now()
		if err := store.Follow(b.Context(), mark); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(start)
		b.StopTimer()
		runs++
		checkStore(b, store, keys)
		b.StartTimer()
	}
	entries := float64(keys * runs)
	b.ReportMetric(entries/ours.Seconds(), "entries/s")
	b.ReportMetric(entries/floor.Seconds(), "floor-entries/s")
	b.ReportMetric(100*floor.Seconds()/ours.Seconds(), "%floor")
}

func pebbleByHand(b *testing.B, keys int) time.Duration {
	b.Helper()
	sorted := make([]user, keys)
	for i := range sorted {
		sorted[i] = keyNumber(i)
	}
	slices.SortFunc(sorted, func(a, b user) int { return bytes.Compare(a[:], b[:]) })
	db, err := pebble.Open(b.TempDir(), &pebble.Options{DisableWAL: true, MemTableSize: 16 << 20, Logger: quiet{}})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	start := time.Now()
	var value []byte
	for part := range slices.Chunk(sorted, 100_000) {
		batch := db.NewBatch()
		for _, k := range part {
			value = stateValue(value[:0], int(binary.BigEndian.Uint64(k[8:])))
			if err := batch.Set(state.StoredKey(k[:]), value, nil); err != nil {
				b.Fatal(err)
			}
		}
		if err := batch.Commit(pebble.NoSync); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start)
}

// quiet leaves out what Pebble tells of its work.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(format)
}

// BenchmarkRestore makes a store on disk anew out of its changelog, of 16 B of key and 85 B of
// value for each key, in no order of keys (-restore.bytes). MB/s counts keys and values. The floor
// reads the changelog with its sums and writes keys and values to a file, synced.
func BenchmarkRestore(b *testing.B) {
	const each = 16 + 85
	keys := int(*restoreBytes / each)
	changelog := openPartition(b, log.TopicSpec{Compact: true})
	mark := writeChanges(b, changelog, keys)
	var ours, floor time.Duration
	runs := 0
	for b.Loop() {
		b.StopTimer()
		floor += copyChangelog(b, changelog)
		store := storeOver(b, state.Disk(0), changelog, true)
		b.StartTimer()
		start := time.Now()
		if err := store.CatchUp(b.Context(), mark); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(start)
		b.StopTimer()
		runs++
		checkStore(b, store, keys)
		b.StartTimer()
	}
	megabytes := float64(each*keys*runs) / 1e6
	b.ReportMetric(megabytes/ours.Seconds(), "MB/s")
	b.ReportMetric(float64(keys*runs)/ours.Seconds(), "keys/s")
	b.ReportMetric(megabytes/floor.Seconds(), "floor-MB/s")
	b.ReportMetric(100*floor.Seconds()/ours.Seconds(), "%floor")
}

func copyChangelog(b *testing.B, changelog *log.Partition) time.Duration {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "floor"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	r := changelog.Reader(0, log.ReadCommitted)
	defer r.Close()
	start := time.Now()
	var buffer []byte
	for {
		read, err := r.Next()
		if err != nil && err != io.EOF {
			b.Fatal(err)
		}
		if err == nil {
			for it := read.Records(); it.Next(); {
				buffer = append(append(buffer, it.Key...), it.Value...)
			}
		}
		if len(buffer) < 1<<20 && err == nil {
			continue
		}
		if _, err := f.Write(buffer); err != nil {
			b.Fatal(err)
		}
		buffer = buffer[:0]
		if err == io.EOF {
			break
		}
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}
