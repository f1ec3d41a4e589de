package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// clock is a wall clock that stands where it is set.
type clock struct{ ms int64 }

func (c *clock) now() time.Time { return time.UnixMilli(c.ms) }

// blocks is an Owners where ids come in blocks of a hundred.
type blocks struct {
	over    map[ProducerID]bool
	unknown map[ProducerID]bool
}

func (o *blocks) Owner(id ProducerID) (first ProducerID, over, known bool) {
	first = id / 100 * 100
	return first, o.over[first], !o.unknown[first]
}

// batchOf encodes one batch of one record for each value.
func batchOf(p Producer, timeMs int64, values ...string) []byte {
	var b BatchBuilder
	for _, value := range values {
		b.Add(timeMs, nil, []byte(value), nil)
	}
	return b.Finish(p)
}

var plain = Producer{ID: NoProducer, Epoch: -1, Sequence: -1}

func transactional(id ProducerID, sequence int32) Producer {
	return Producer{ID: id, Sequence: sequence, Transactional: true}
}

// committedReader reads on from where it stopped.
type committedReader struct{ *Reader }

func (r committedReader) more(t testing.TB) (seen []string) {
	t.Helper()
	for {
		b, err := r.Next()
		if err == io.EOF {
			return seen
		}
		require.NoError(t, err)
		it := b.Records()
		for it.Next() {
			seen = append(seen, fmt.Sprintf("%s@%d", it.Value, it.Offset))
		}
	}
}

// TestLastStableOffset walks case C-08: what a reader of committed data sees, step
// by step, while one transaction is committed and another aborted. An explicit
// abort stands where the case has a coordinator's timeout.
func TestLastStableOffset(t *testing.T) {
	mem := vfs.NewMem()
	o := small(mem)
	time := &clock{ms: 1000}
	o.Now = time.now
	o.SegmentAge = 10_000 * 1e6
	l, p := single(t, o, SyncByOS)
	l.SetOwners(&blocks{})
	reader := committedReader{p.Reader(0, ReadCommitted)}
	step := func(wantOffset, wantStable, wantPosition Offset, want []string, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, wantOffset+1, p.End().Offset)
		require.Equal(t, wantStable, p.LastStable())
		require.Equal(t, want, reader.more(t))
		require.Equal(t, wantPosition, reader.Offset())
	}
	write := func(producer Producer, value string) error {
		_, err := p.Write(batchOf(producer, 1, value))
		return err
	}
	end := func(id ProducerID, commit bool) error {
		_, err := p.EndTransaction(id, commit)
		return err
	}
	step(0, 0, 0, nil, write(transactional(100, 0), "x1"))
	step(1, 0, 0, nil, write(transactional(100, 1), "x2"))
	step(2, 0, 0, nil, write(plain, "n1"))
	step(3, 4, 4, []string{"x1@0", "x2@1", "n1@2"}, end(100, true))
	time.ms = 50_000 // and so the next batch begins a segment
	step(4, 4, 4, nil, write(transactional(200, 0), "y1"))
	require.Len(t, *p.segments.Load(), 2)
	require.Equal(t, Offset(4), p.active().base)
	step(5, 4, 4, nil, write(plain, "n2"))
	time.ms = 59_999
	step(5, 4, 4, nil, nil)
	require.Equal(t, []OpenTransaction{{ID: 200, First: 4, Since: (&clock{50_000}).now()}}, p.OpenTransactions())
	time.ms = 59_999
	step(6, 7, 7, []string{"n2@5"}, end(200, false))
	require.Equal(t, []string{"5:n2"}, readAll(t, p, 4, ReadCommitted), "a reader that seeks to where the aborted one began")
	require.ErrorIs(t, write(transactional(200, 1), "y2"), ErrFenced)
	step(6, 7, 7, nil, nil)
	require.ErrorIs(t, end(200, true), ErrFenced)
	require.NoError(t, end(200, false), "the same verdict again")
	step(6, 7, 7, nil, nil)
	step(7, 7, 7, nil, write(transactional(201, 0), "y3"))
	step(8, 9, 9, []string{"y3@7"}, end(201, true))

	check := func(p *Partition) {
		t.Helper()
		require.Equal(t, []string{"0:x1", "1:x2", "2:n1", "4:y1", "5:n2", "7:y3"}, readAll(t, p, 0, ReadUncommitted))
		require.Equal(t, []string{"0:x1", "1:x2", "2:n1", "5:n2", "7:y3"}, readAll(t, p, 0, ReadCommitted))
		require.Equal(t, []string{"5:n2", "7:y3"}, readAll(t, p, 4, ReadCommitted), "a reader that begins in the second segment")
		require.Equal(t, []string{"5:n2", "7:y3"}, readAll(t, p, 4, ReadDecided))
		require.Equal(t, Offset(9), p.LastStable())
	}
	check(p)

	t.Run("after a kill", func(t *testing.T) {
		l := mustOpen(t, small(mem.Kill()))
		check(mustPartition(t, l, "t"))
		require.NoError(t, l.Close())
	})
	require.NoError(t, l.Close())
	for _, damage := range []string{"none", "missing", "garbage"} {
		t.Run("transaction index "+damage, func(t *testing.T) {
			mem := mem.Kill()
			name := path.Join("log/t-0", offsetName(4, txnIndexSuffix))
			switch damage {
			case "missing":
				require.NoError(t, mem.Remove(name))
			case "garbage":
				flip(t, mem, name, 20)
			}
			l := mustOpen(t, small(mem))
			check(mustPartition(t, l, "t"))
			require.NoError(t, l.Close())
		})
	}
}

// flip inverts the bits of one byte of a file.
func flip(t testing.TB, fs vfs.FS, name string, at int64) {
	t.Helper()
	f, err := fs.Open(name)
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	require.True(t, err == nil || err == io.EOF, "%v", err)
	b[0] ^= 0xff
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
}

// TestOffsetAt walks case C-13: the lowest offset whose record has at least a
// given time, with times out of order.
func TestOffsetAt(t *testing.T) {
	segments := [][]int64{{100, 300, 200, 250}, {220, 260, 400, 350}, {380, 500}}
	full := map[int64]Offset{0: 0, 100: 0, 101: 1, 201: 1, 250: 1, 300: 1, 301: 6, 350: 6, 381: 6, 400: 6, 401: 9, 500: 9, 501: -1}
	cut6 := map[int64]Offset{260: 1, 300: 1, 301: -1}
	cut1 := map[int64]Offset{100: 0, 101: -1}
	check := func(t *testing.T, p *Partition, want map[int64]Offset) {
		t.Helper()
		for x, offset := range want {
			got, found, err := p.OffsetAt(x)
			require.NoError(t, err)
			require.Equal(t, offset >= 0, found, "time %d", x)
			if found {
				require.Equal(t, offset, got, "time %d", x)
			}
		}
	}
	for _, perBatch := range []int{1, 2} {
		for _, interval := range []int64{1, 1 << 20} {
			t.Run(fmt.Sprintf("%d a batch, interval %d", perBatch, interval), func(t *testing.T) {
				mem := vfs.NewMem()
				o := small(mem)
				o.IndexIntervalBytes = interval
				now := &clock{}
				o.Now, o.SegmentAge = now.now, time.Second
				l, p := single(t, o, SyncByOS)
				for _, times := range segments {
					for len(times) > 0 {
						n := min(perBatch, len(times))
						var b BatchBuilder
						for _, at := range times[:n] {
							b.Add(at, nil, nil, nil)
						}
						_, err := p.Write(b.Finish(plain))
						require.NoError(t, err)
						times = times[n:]
					}
					now.ms += 1000
				}
				require.Len(t, *p.segments.Load(), 3)
				reopen := func(damage func()) {
					t.Helper()
					require.NoError(t, l.Close())
					damage()
					l = mustOpen(t, o)
					p = mustPartition(t, l, "t")
				}
				withoutIndexes := func() {
					for _, base := range []Offset{0, 4, 8} {
						_, err := mem.Size(path.Join("log/t-0", offsetName(base, timeIndexSuffix)))
						require.Equal(t, base == 0 || base < p.End().Offset, err == nil, "segment %d", base)
						for _, suffix := range []string{indexSuffix, timeIndexSuffix, sealSuffix} {
							require.NoError(t, removeIfPresent(mem, path.Join("log/t-0", offsetName(base, suffix))))
						}
					}
				}
				kill := func() {
					t.Helper()
					image := mem.Kill()
					require.NoError(t, l.Close())
					mem, o.FS = image, image
					l = mustOpen(t, o)
					p = mustPartition(t, l, "t")
				}
				checkAll := func(want map[int64]Offset) {
					t.Helper()
					check(t, p, want)
					kill()
					check(t, p, want)
					reopen(func() {})
					check(t, p, want)
					reopen(withoutIndexes)
					check(t, p, want)
				}
				checkAll(full)
				require.NoError(t, p.TruncateTo(6))
				require.Equal(t, Offset(6), p.End().Offset)
				checkAll(cut6)
				if perBatch == 1 {
					require.NoError(t, p.TruncateTo(1))
					require.Equal(t, Offset(1), p.End().Offset)
					checkAll(cut1)
				}
				require.NoError(t, l.Close())
			})
		}
	}
}

// TestIndexesThatDoNotFit walks case C-14: after a kill and damage to the index or
// the tail of the data, positions are those of the data. A batch has a header of 61
// bytes, so each is 100 bytes larger than in the case.
func TestIndexesThatDoNotFit(t *testing.T) {
	sizes := []int64{140, 160, 150, 170, 130}
	positions := []int64{0, 140, 300, 450, 620}
	sized := func(size int64) []byte {
		var b BatchBuilder
		for n := int64(0); ; n++ {
			b.Reset()
			b.Add(1, nil, make([]byte, n), nil)
			if encoded := b.Finish(plain); int64(len(encoded)) == size {
				return encoded
			}
		}
	}
	const index, data = "log/t-0/00000000000000000000.index", "log/t-0/00000000000000000000.log"
	overwrite := func(t *testing.T, fs vfs.FS, name string, content []byte) {
		t.Helper()
		require.NoError(t, writeCacheFile(fs, name, content))
	}
	truncate := func(t *testing.T, fs vfs.FS, size int64) {
		t.Helper()
		f, err := fs.Open(data)
		require.NoError(t, err)
		require.NoError(t, f.Truncate(size))
		require.NoError(t, f.Close())
	}
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, fs vfs.FS)
		end    Offset
		clean  bool // the damage can also be met after a clean stop
	}{
		{"index missing", func(t *testing.T, fs vfs.FS) { require.NoError(t, removeIfPresent(fs, index)) }, 5, true},
		{"index holds garbage", func(t *testing.T, fs vfs.FS) {
			overwrite(t, fs, index, []byte("garbage that is no index at all."))
		}, 5, true},
		{"last index entry does not match", func(t *testing.T, fs vfs.FS) {
			overwrite(t, fs, index, encodeOffsetIndex([]offsetEntry{{1, 140}, {2, 300}, {3, 450}, {4, 621}}))
		}, 5, true},
		{"index has one more entry", func(t *testing.T, fs vfs.FS) {
			overwrite(t, fs, index, encodeOffsetIndex([]offsetEntry{{1, 140}, {2, 300}, {3, 450}, {4, 620}, {5, 750}}))
		}, 5, true},
		{"half of record 4 is cut", func(t *testing.T, fs vfs.FS) { truncate(t, fs, 685) }, 4, false},
		{"record 4 is cut", func(t *testing.T, fs vfs.FS) { truncate(t, fs, 620) }, 4, false},
	} {
		for _, clean := range []bool{false, true} {
			if clean && !test.clean {
				continue
			}
			t.Run(fmt.Sprintf("%s, clean %t", test.name, clean), func(t *testing.T) {
				mem := vfs.NewMem()
				o := small(mem)
				o.IndexIntervalBytes = 1
				l, p := single(t, o, SyncByOS)
				for _, size := range sizes {
					_, err := p.Write(sized(size))
					require.NoError(t, err)
				}
				if clean {
					require.NoError(t, l.Close())
				} else {
					mem = mem.Kill()
					require.NoError(t, l.Close())
					overwrite(t, mem, index, encodeOffsetIndex([]offsetEntry{{1, 140}, {2, 300}, {3, 450}, {4, 620}}))
				}
				test.damage(t, mem)
				o.FS = mem
				for round := range 2 {
					l := mustOpen(t, o)
					p := mustPartition(t, l, "t")
					require.Equal(t, test.end, p.End().Offset)
					s := p.active()
					require.Equal(t, append(positions, 750)[test.end], s.end.Load())
					for offset := range test.end {
						got, err := s.seek(offset, s.end.Load())
						require.NoError(t, err)
						require.Equal(t, positions[offset], got)
					}
					offsets, _, err := s.loadIndexes()
					require.NoError(t, err)
					require.Equal(t, []offsetEntry{{1, 140}, {2, 300}, {3, 450}, {4, 620}}[:test.end-1], offsets,
						"an entry for each batch but the first")
					require.Len(t, readAll(t, p, 0, ReadCommitted), int(test.end))
					if round == 1 {
						got, err := p.Write(sized(130))
						require.NoError(t, err)
						require.Equal(t, test.end, got.Base)
						at, err := s.seek(test.end, s.end.Load())
						require.NoError(t, err)
						require.Equal(t, append(positions, 750)[test.end], at)
					}
					require.NoError(t, l.Close())
				}
			})
		}
	}
}

// TestRetriesOfAnIdempotentProducer walks case C-16: what a producer was told is
// remembered through deletes and restarts, until its memory expires.
func TestRetriesOfAnIdempotentProducer(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("kill %t", kill), func(t *testing.T) {
			mem := vfs.NewMem()
			o := small(mem)
			now := &clock{}
			o.Now, o.ProducerExpiry = now.now, time.Minute
			l, p := single(t, o, SyncAlways)
			restart := func() {
				t.Helper()
				if kill {
					mem = mem.Kill()
				}
				require.NoError(t, l.Close())
				o.FS = mem
				l = mustOpen(t, o)
				p = mustPartition(t, l, "t")
			}
			send := func(wall int64, sequence int32) (AppendResult, error) {
				now.ms = wall
				return p.Append(context.Background(), batchOf(Producer{ID: 7, Sequence: sequence}, 1, "v"))
			}
			stored := func(wall int64, sequence int32, offset, end Offset, duplicate bool) {
				t.Helper()
				got, err := send(wall, sequence)
				require.NoError(t, err)
				require.Equal(t, offset, got.Base)
				require.Equal(t, duplicate, got.Duplicate)
				require.Equal(t, end, p.End().Offset)
			}
			stored(0, 0, 0, 1, false)
			stored(0, 1, 1, 2, false)
			stored(0, 2, 2, 3, false)
			now.ms = 10
			require.NoError(t, p.DeleteBefore(3))
			require.Equal(t, Offset(3), p.Start())
			now.ms = 20
			restart()
			require.Equal(t, Offset(3), p.Start())
			require.Equal(t, Offset(3), p.End().Offset)
			stored(30, 2, 2, 3, true)
			stored(40, 3, 3, 4, false)
			_, err := send(50, 5)
			require.ErrorIs(t, err, ErrOutOfOrder)
			require.Equal(t, Offset(4), p.End().Offset)
			now.ms = 60
			restart()
			stored(60, 3, 3, 4, true)
			stored(100_000, 4, 4, 5, false)
			stored(100_010, 4, 4, 5, true)
			require.NoError(t, l.Close())
		})
	}
}

// TestProducerMemoryExpires shows what the last rows of case C-16 cannot, since
// their sequence goes on: a gap is refused for as long as the producer is remembered
// and taken afterwards.
func TestProducerMemoryExpires(t *testing.T) {
	o := small(vfs.NewMem())
	now := &clock{}
	o.Now, o.ProducerExpiry = now.now, time.Minute
	l, p := single(t, o, SyncByOS)
	_, err := p.Write(batchOf(Producer{ID: 7, Sequence: 0}, 1, "v"))
	require.NoError(t, err)
	now.ms = 59_999
	_, err = p.Write(batchOf(Producer{ID: 7, Sequence: 5}, 1, "v"))
	require.ErrorIs(t, err, ErrOutOfOrder)
	now.ms = 60_001
	got, err := p.Write(batchOf(Producer{ID: 7, Sequence: 5}, 1, "v"))
	require.NoError(t, err)
	require.Equal(t, Offset(1), got.Base)
	require.False(t, got.Duplicate)
	require.NoError(t, l.Close())
}

// TestOpenTransactionNeverExpires shows the exception to expiry.
func TestOpenTransactionNeverExpires(t *testing.T) {
	o := small(vfs.NewMem())
	now := &clock{}
	o.Now, o.ProducerExpiry = now.now, time.Minute
	l, p := single(t, o, SyncByOS)
	_, err := p.Write(batchOf(transactional(7, 0), 1, "v"))
	require.NoError(t, err)
	now.ms = 1_000_000
	_, err = p.Write(batchOf(transactional(7, 5), 1, "v"))
	require.ErrorIs(t, err, ErrOutOfOrder)
	require.True(t, errors.Is(err, ErrOutOfOrder))
	require.NoError(t, l.Close())
}
