package log

import (
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// TestAppendAndReadAllocateNothing shows that neither a batch nor a record costs an
// allocation, on real files, rolls left aside.
func TestAppendAndReadAllocateNothing(t *testing.T) {
	l, err := Open(t.TempDir(), Options{FS: vfs.OS(), IndexIntervalBytes: 1 << 30})
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, l.Create("t", TopicSpec{Partitions: 1}))
	p := mustPartition(t, l, "t")
	var b BatchBuilder
	value := make([]byte, 100)
	sequence := int32(0)
	fill := func(producer Producer) []byte {
		b.Reset()
		for range 10 {
			b.Add(1, value[:8], value, nil)
		}
		return b.Finish(producer)
	}
	write := func(producer Producer) {
		if _, err := p.Write(fill(producer)); err != nil {
			t.Fatal(err)
		}
	}
	require.Zero(t, testing.AllocsPerRun(1000, func() { write(plain) }), "plain batches")
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		write(Producer{ID: 1, Sequence: sequence})
		sequence += 10
	}), "idempotent batches")
	write(transactional(2, 0))
	sequence = 10
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		write(transactional(2, sequence))
		sequence += 10
	}), "transactional batches")
	_, err = p.EndTransaction(2, true)
	require.NoError(t, err)

	r := p.Reader(0, ReadCommitted)
	defer r.Close()
	records := 0
	require.Zero(t, testing.AllocsPerRun(2000, func() {
		batch, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		for it := batch.Records(); it.Next(); {
			records++
		}
	}), "reading")
	require.Equal(t, 2001*10, records)
}

// BenchmarkWrite appends batches encoded before, so that it can be compared with
// the copy of the same bytes that BenchmarkWriteFloor does.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("100x%d", size), func(b *testing.B) {
			batch := benchBatch(size)
			l, err := Open(b.TempDir(), Options{})
			require.NoError(b, err)
			defer l.Close()
			require.NoError(b, l.Create("t", TopicSpec{Partitions: 1}))
			p := mustPartition(b, l, "t")
			written := 0
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				if _, err := p.Write(batch); err != nil {
					b.Fatal(err)
				}
				// Bounded, so that the disk is not what is measured.
				if written += len(batch); written > 256<<20 {
					b.StopTimer()
					require.NoError(b, p.DeleteBefore(p.End().Offset))
					written = 0
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/record")
		})
	}
}

func BenchmarkWriteFloor(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("100x%d", size), func(b *testing.B) {
			batch := benchBatch(size)
			f, err := vfs.OS().Create(b.TempDir() + "/f")
			require.NoError(b, err)
			defer f.Close()
			const total = 256 << 20
			require.NoError(b, f.Allocate(total))
			m, err := f.Map(total)
			require.NoError(b, err)
			defer m.Unmap()
			at := int64(0)
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				if at+int64(len(batch)) > total {
					b.StopTimer()
					require.NoError(b, f.Truncate(0))
					require.NoError(b, f.Allocate(total))
					at = 0
					b.StartTimer()
				}
				if err := m.Write(at, batch); err != nil {
					b.Fatal(err)
				}
				at += int64(len(batch))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/record")
		})
	}
}

func benchBatch(size int) []byte {
	var b BatchBuilder
	for range 100 {
		b.Add(1, make([]byte, 8), make([]byte, size), nil)
	}
	return b.Finish(plain)
}

// BenchmarkRead reads batches and walks their records.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("100x%d", size), func(b *testing.B) {
			batch := benchBatch(size)
			l, err := Open(b.TempDir(), Options{})
			require.NoError(b, err)
			defer l.Close()
			require.NoError(b, l.Create("t", TopicSpec{Partitions: 1}))
			p := mustPartition(b, l, "t")
			for range (128 << 20) / len(batch) {
				_, err := p.Write(batch)
				require.NoError(b, err)
			}
			r := p.Reader(0, ReadCommitted)
			defer r.Close()
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				got, err := r.Next()
				if err == io.EOF {
					r.Seek(0)
					got, err = r.Next()
				}
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for it := got.Records(); it.Next(); {
					n++
				}
				if n != 100 {
					b.Fatal(n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/record")
		})
	}
	// What no reader can do without: the checksum, and the records' lengths.
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("floor/100x%d", size), func(b *testing.B) {
			batch := benchBatch(size)
			data := make([]byte, 0, 128<<20)
			for len(data)+len(batch) <= cap(data) {
				data = append(data, batch...)
			}
			at := 0
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				if at == len(data) {
					at = 0
				}
				got, err := ParseBatch(data[at : at+len(batch)])
				if err != nil {
					b.Fatal(err)
				}
				at += len(batch)
				n := 0
				for it := got.Records(); it.Next(); {
					n++
				}
				if n != 100 {
					b.Fatal(n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/record")
		})
	}
}
