package log

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// The part of a batch before an offset has the records below it and no others, is a
// whole batch to who walks it, and leaves the batch as it was, compressed or not.
func TestBatchBefore(t *testing.T) {
	for _, c := range []Compression{0, Gzip, Zstd} {
		l := mustOpen(t, Options{FS: vfs.NewMem(), SegmentBytes: 1 << 16, MaxBatchBytes: 1 << 16})
		defer l.Close()
		require.NoError(t, l.Create("t", TopicSpec{Partitions: 1, Compression: c}))
		p, err := l.Partition(TopicPartition{Topic: "t"})
		require.NoError(t, err)
		values := []string{"zero", "one", "two", "three"}
		var records []Record
		for _, v := range values {
			records = append(records, Record{Value: []byte(v)})
		}
		_, err = p.AppendRecords(t.Context(), records...)
		require.NoError(t, err)
		read := func(b *Batch) (got []string) {
			it := b.Records()
			for it.Next() {
				got = append(got, string(it.Value))
			}
			require.NoError(t, it.Err())
			return got
		}
		for from := range Offset(4) {
			for off := from; off <= 5; off++ {
				r := p.Reader(from, ReadCommitted)
				b, err := r.Next()
				require.NoError(t, err)
				before, err := b.Before(off)
				require.NoError(t, err)
				end := min(off, 4)
				require.ElementsMatch(t, values[from:end], read(&before), "%v: [%d, %d)", c, from, off)
				require.Equal(t, end-1, before.Last)
				require.Equal(t, values[from:], read(b))
				r.Close()
			}
		}
	}
}
