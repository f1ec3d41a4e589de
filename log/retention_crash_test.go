package log

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// retentionRun appends records to a topic that keeps little, and notes what it was told.
type retentionRun struct {
	spec  TopicSpec
	clock time.Time
	p     *Partition
	acked map[Offset]string
	start Offset // as readers saw it last
}

const retentionRecords = 24

// options have a clock that moves with the run, and no checks but its own.
func (r *retentionRun) options(mem *vfs.Mem) Options {
	o := small(mem)
	o.RetentionCheckInterval = -1
	o.Now = func() time.Time { return r.clock }
	return o
}

// run appends, an hour after one another, and lets retention look after each. It returns
// once the file system stops.
func (r *retentionRun) run(mem *vfs.Mem) {
	l, err := Open("log", r.options(mem))
	if err != nil {
		return
	}
	defer l.abandon()
	if l.Create("t", r.spec) != nil {
		return
	}
	if r.p, err = l.Partition(TopicPartition{Topic: "t"}); err != nil {
		return
	}
	for i := range retentionRecords {
		r.clock = r.clock.Add(time.Hour)
		value := fmt.Sprint(i, strings.Repeat("x", 160))
		got, err := r.p.Append(context.Background(), batchOf(plain, r.clock.UnixMilli(), value))
		if err != nil {
			return
		}
		r.acked[got.Base] = value
		r.p.retain()
		r.start = r.p.Start()
	}
}

// wanted is the first offset that retention must not have dropped, given the records
// that there are.
func (r *retentionRun) wanted(end Offset) Offset {
	if r.spec.RetentionAge > 0 {
		return max(end-Offset(r.spec.RetentionAge/time.Hour)-1, 0)
	}
	const size = 230 // of a batch, about
	return max(end-Offset(r.spec.RetentionBytes/size), 0)
}

// TestCrashAtEveryOperationOfRetention stops the process at every file operation of a
// partition that drops its oldest segments, by size and by age, kills it or cuts the
// power, and shows that the start stays where it was said to be, that nothing goes which
// is to be kept, and that retention goes on.
func TestCrashAtEveryOperationOfRetention(t *testing.T) {
	step := sampled[int64](19)
	for name, spec := range map[string]TopicSpec{
		"size": {RetentionBytes: 2000},
		"age":  {RetentionAge: 6 * time.Hour},
	} {
		spec.Partitions, spec.Sync = 1, SyncAlways
		begin := func() *retentionRun {
			return &retentionRun{spec: spec, clock: time.Unix(1_000_000, 0), acked: map[Offset]string{}}
		}
		whole, mem := begin(), vfs.NewMem()
		whole.run(mem)
		total := mem.Ops()
		require.Greater(t, whole.start, Offset(10), name)
		for n := 1 + int64(*crashSeed)%step; n <= total; n += step {
			for seed := range uint64(3) {
				at := fmt.Sprintf("%s, operation %d of %d, seed %d", name, n, total, seed)
				r, mem := begin(), vfs.NewMem()
				mem.StopAt(n)
				r.run(mem)
				if r.p == nil {
					continue
				}
				after := mem.Kill()
				if seed > 0 {
					after = mem.Crash(*crashSeed + seed)
				}
				r.check(t, after, at)
			}
		}
	}
}

// check opens what is left and goes on.
func (r *retentionRun) check(t *testing.T, mem *vfs.Mem, at string) {
	l, err := Open("log", r.options(mem))
	require.NoError(t, err, at)
	defer l.Close()
	p, err := l.Partition(TopicPartition{Topic: "t"})
	if err != nil {
		require.Empty(t, r.acked, at)
		require.NoError(t, l.Create("t", r.spec), at)
		return
	}
	start, end := p.Start(), p.End().Offset
	require.GreaterOrEqual(t, start, r.start, at)
	require.LessOrEqual(t, start, max(r.wanted(end), r.start), at)
	require.GreaterOrEqual(t, end, Offset(len(r.acked)), at)
	values := readAll(t, p, start, ReadCommitted)
	require.Len(t, values, int(end-start), at)
	for off := start; off < Offset(len(r.acked)); off++ {
		require.Equal(t, fmt.Sprintf("%d:%s", off, r.acked[off]), values[off-start], at)
	}
	for range retentionRecords {
		r.clock = r.clock.Add(time.Hour)
		_, err := p.Append(context.Background(), batchOf(plain, r.clock.UnixMilli(), strings.Repeat("x", 160)))
		require.NoError(t, err, at)
		p.retain()
	}
	require.Greater(t, p.Start(), start, at)
	require.Equal(t, end+retentionRecords, p.End().Offset, at)
}
