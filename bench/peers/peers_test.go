package peers

import (
	"fmt"
	"testing"
	"time"
)

// store is a log of one of the libraries, open in a directory.
type store interface {
	// append writes values as one batch. It returns when they are in the log, and on the
	// disk where the store was opened for that.
	append(values [][]byte) error
	// read calls f with each value that was written, in order.
	read(f func(value []byte)) error
	close() error
}

// library opens its logs in empty directories. With synced, append returns when the
// batch is on the disk; otherwise the library leaves that to the operating system.
type library struct {
	name string
	open func(dir string, synced bool) (store, error)
	// onlySynced is a library that cannot do without.
	onlySynced bool
}

var libraries = []library{
	{name: "thalweg", open: openThalweg},
	{name: "jetstream", open: openJetStream},
	{name: "jetstream-async", open: openJetStreamAsync},
	{name: "tidwall-wal", open: openTidwall},
	{name: "raft-wal", open: openRaftWAL, onlySynced: true},
	{name: "etcd-wal", open: openEtcd},
	{name: "pebble", open: openPebble},
}

const perBatch = 100

var sizes = []int{100, 1024}

// batch is perBatch values of a size, which compression would not help much.
func batch(size int) [][]byte {
	values := make([][]byte, perBatch)
	for i := range values {
		values[i] = make([]byte, size)
		for j := range values[i] {
			values[i][j] = byte(i*31 + j*j*7)
		}
	}
	return values
}

// BenchmarkAppend writes batches of 100 records to each of the logs. An operation is a batch.
func BenchmarkAppend(b *testing.B) {
	for _, synced := range []bool{false, true} {
		for _, size := range sizes {
			for _, l := range libraries {
				if l.onlySynced && !synced {
					continue
				}
				b.Run(fmt.Sprintf("synced=%t/size=%d/%s", synced, size, l.name), func(b *testing.B) {
					s, err := l.open(b.TempDir(), synced)
					if err != nil {
						b.Fatal(err)
					}
					values := batch(size)
					start, n := time.Now(), 0
					for b.Loop() {
						if err := s.append(values); err != nil {
							b.Fatal(err)
						}
						n += len(values)
					}
					report(b, n, size, time.Since(start))
					if err := s.close(); err != nil {
						b.Fatal(err)
					}
				})
			}
		}
	}
}

// readBytes is what a log to be read holds.
const readBytes = 64 << 20

// BenchmarkRead reads a log of 64 MiB from its beginning. An operation is the whole of it. One
// pass before is not counted.
func BenchmarkRead(b *testing.B) {
	for _, size := range sizes {
		for _, l := range libraries {
			b.Run(fmt.Sprintf("size=%d/%s", size, l.name), func(b *testing.B) {
				s, err := l.open(b.TempDir(), l.onlySynced)
				if err != nil {
					b.Fatal(err)
				}
				values := batch(size)
				batches := readBytes / (size * perBatch)
				for range batches {
					if err := s.append(values); err != nil {
						b.Fatal(err)
					}
				}
				pass := func() {
					n := 0
					err := s.read(func(value []byte) {
						if len(value) == size && value[1] == values[n%perBatch][1] {
							n++
						}
					})
					if err != nil || n != batches*perBatch {
						b.Fatalf("read %d of %d records: %v", n, batches*perBatch, err)
					}
				}
				pass()
				start, n := time.Now(), 0
				for b.Loop() {
					pass()
					n += batches * perBatch
				}
				report(b, n, size, time.Since(start))
				if err := s.close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func report(b *testing.B, records, size int, took time.Duration) {
	b.ReportMetric(float64(records)/took.Seconds(), "records/s")
	b.ReportMetric(float64(records*size)/1e6/took.Seconds(), "MB/s")
	b.ReportMetric(0, "ns/op")
}

// A value that is read is one that was written, whatever the library: the benchmarks
// compare like with like.
func TestLibrariesReadWhatTheyWrote(t *testing.T) {
	for _, l := range libraries {
		for _, synced := range []bool{false, true} {
			if l.onlySynced && !synced {
				continue
			}
			t.Run(fmt.Sprintf("%s/synced=%t", l.name, synced), func(t *testing.T) {
				s, err := l.open(t.TempDir(), synced)
				if err != nil {
					t.Fatal(err)
				}
				values := batch(100)
				for range 3 {
					if err := s.append(values); err != nil {
						t.Fatal(err)
					}
				}
				n := 0
				err = s.read(func(value []byte) {
					if string(value) != string(values[n%perBatch]) {
						t.Fatalf("record %d is not what was written", n)
					}
					n++
				})
				if err != nil || n != 3*perBatch {
					t.Fatalf("read %d of %d records: %v", n, 3*perBatch, err)
				}
				if err := s.close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
