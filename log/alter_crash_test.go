package log

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// alterRun changes the settings of a topic again and again while two goroutines append
// to its first partition.
type alterRun struct {
	specs   []TopicSpec
	altered int // the last of specs that was acknowledged
	tried   int // the last that was asked for

	mu    sync.Mutex
	acked map[Offset]string
}

func (r *alterRun) run(mem *vfs.Mem) {
	l, err := Open("log", small(mem))
	if err != nil {
		return
	}
	defer l.abandon()
	if l.Create("t", r.specs[0]) != nil {
		return
	}
	p, err := l.Partition(TopicPartition{Topic: "t"})
	if err != nil {
		return
	}
	r.altered = 0
	var appending sync.WaitGroup
	for g := range 2 {
		appending.Go(func() {
			for i := range 12 {
				value := fmt.Sprint(g, "/", i, strings.Repeat("x", 150))
				got, err := p.AppendRecords(context.Background(), record(1, value))
				if err != nil {
					return
				}
				r.mu.Lock()
				r.acked[got.Base] = value
				r.mu.Unlock()
			}
		})
	}
	for i := 1; i < len(r.specs); i++ {
		r.tried = i
		if err = l.Alter("t", r.specs[i]); err != nil {
			break
		}
		r.altered = i
	}
	appending.Wait()
}

// TestAlterUnderAppendsCrash stops the file system at every operation while settings
// change under appends that wait for the disk. The settings are those acknowledged last
// or those asked for then, every record that was acknowledged is there, and partitions
// that were added take records.
func TestAlterUnderAppendsCrash(t *testing.T) {
	spec := func(partitions int, segment int64) TopicSpec {
		return TopicSpec{Partitions: partitions, Sync: SyncAlways, SegmentBytes: segment}
	}
	begin := func() *alterRun {
		return &alterRun{specs: []TopicSpec{spec(1, 0), spec(2, 0), spec(2, 400), spec(4, 900)}, altered: -1, acked: map[Offset]string{}}
	}
	step := sampled[int64](7)
	whole, mem := begin(), vfs.NewMem()
	whole.run(mem)
	require.Equal(t, 3, whole.altered)
	require.Len(t, whole.acked, 24)
	total := mem.Ops()
	for n := 1 + int64(*crashSeed)%step; n <= total; n += step {
		r, mem := begin(), vfs.NewMem()
		mem.StopAt(n)
		r.run(mem)
		for seed := range uint64(2) {
			at := fmt.Sprintf("operation %d of %d, seed %d", n, total, seed)
			after := mem.Kill()
			if seed > 0 {
				after = mem.Crash(*crashSeed + uint64(n))
			}
			l, err := Open("log", small(after))
			require.NoError(t, err, at)
			has, ok := l.Spec("t")
			if !ok {
				require.Equal(t, -1, r.altered, at)
				require.NoError(t, l.Close(), at)
				continue
			}
			require.Contains(t, r.specs[max(r.altered, 0):r.tried+1], has, at)
			values := readAll(t, mustPartition(t, l, "t"), 0, ReadCommitted)
			for off, value := range r.acked {
				require.Greater(t, len(values), int(off), at)
				require.Equal(t, fmt.Sprintf("%d:%s", off, value), values[off], at)
			}
			require.NoError(t, l.Alter("t", r.specs[3]), at)
			for i := range r.specs[3].Partitions {
				p, err := l.Partition(TopicPartition{"t", PartitionID(i)})
				require.NoError(t, err, at)
				_, err = p.AppendRecords(context.Background(), record(1, "more"))
				require.NoError(t, err, at)
			}
			require.NoError(t, l.Close(), at)
			err = l.Alter("t", r.specs[0])
			require.True(t, errors.Is(err, ErrClosed), at)
		}
	}
}
