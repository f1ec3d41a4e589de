package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// ledger is a system outside, with transactions, that outlives the process.
type ledger struct {
	staged    []int
	prepared  map[string][]int
	committed []int
	handles   int

	calls  int
	before func(call int) error // the call has no effect
	after  func(call int) error // the call has one
}

// do calls f between the two hooks.
func (l *ledger) do(f func() error) error {
	l.calls++
	call := l.calls
	if l.before != nil {
		if err := l.before(call); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	if l.after != nil {
		return l.after(call)
	}
	return nil
}

func (l *ledger) Write(_ context.Context, batch []stream.Output[string, int]) error {
	return l.do(func() error {
		for _, r := range batch {
			l.staged = append(l.staged, r.Value)
		}
		return nil
	})
}

func (l *ledger) Prepare(context.Context) (handle []byte, err error) {
	err = l.do(func() error {
		l.handles++
		handle = fmt.Append(nil, l.handles)
		if l.prepared == nil {
			l.prepared = map[string][]int{}
		}
		l.prepared[string(handle)], l.staged = l.staged, nil
		return nil
	})
	return handle, err
}

func (l *ledger) Commit(_ context.Context, handle []byte) error {
	return l.do(func() error {
		l.committed = append(l.committed, l.prepared[string(handle)]...) // nothing the second time
		delete(l.prepared, string(handle))
		return nil
	})
}

func (l *ledger) Abort(context.Context) error {
	return l.do(func() error {
		l.staged = nil
		clear(l.prepared)
		return nil
	})
}

// txJob is a job with a two-phase sink over bounded input.
type txJob struct {
	in      topic.Topic[string, int]
	records int
}

func newTxJob(sync log.Sync) txJob {
	return txJob{in: topic.New[string, int]("in").Partitions(2).Sync(sync), records: 120}
}

func (j txJob) fill(t *testing.T, n testNode) {
	t.Helper()
	p, err := topic.NewProducer(t.Context(), n, j.in, topic.ProducerOptions{})
	require.NoError(t, err)
	for i := range j.records {
		require.NoError(t, p.Send(t.Context(), fmt.Sprint(i%7), i))
	}
	require.NoError(t, p.Close())
	for _, part := range partitions(t, n, j.in.Name(), 2) {
		require.NoError(t, part.Sync(t.Context()))
	}
}

// run runs the job in one goroutine with a checkpoint every few steps, and tells whether
// it came to its end.
func (j txJob) run(fs *vfs.Mem, sink stream.Sink[string, int]) (ended bool) {
	o := checkpoint.PlaneOptions{FS: fs, SyncInterval: -1}
	o.Log.SegmentBytes, o.Log.MaxBatchBytes = 32<<10, 256<<10
	plane, err := checkpoint.Open("node", o)
	if err != nil {
		return false
	}
	defer plane.Close()
	app := stream.New("tx").StopAt(topic.End())
	app.Stream(j.in).Sink(sink).As("ledger").Batch(16)
	now := time.UnixMilli(0)
	job, err := stream.StartManual(context.Background(), stream.Env{Plane: plane, Backend: state.Memory(), StateDir: "state",
		Now: func() time.Time { return now }}, app)
	if err != nil {
		return false
	}
	defer job.Kill()
	for i := 1; !job.Ended(); i++ {
		now = now.Add(50 * time.Millisecond)
		if _, err := job.Step(); err != nil || i > 2000 {
			return false
		}
		if i%3 == 0 {
			job.Trigger()
		}
	}
	return true
}

func (j txJob) check(t *testing.T, l *ledger, msg ...any) {
	t.Helper()
	got := slices.Clone(l.committed)
	slices.Sort(got)
	want := make([]int, j.records)
	for i := range want {
		want[i] = i
	}
	require.Equal(t, want, got, msg...)
	last := map[int]int{}
	for _, v := range l.committed {
		require.GreaterOrEqual(t, v, last[v%7], msg...)
		last[v%7] = v
	}
	require.Empty(t, l.staged, msg...)
	require.Empty(t, l.prepared, msg...)
}

var errAway = errors.New("away")

// A two-phase sink has every record once although any one call fails, with its effect or
// without, and the process goes on.
func TestTxSinkCallsFail(t *testing.T) {
	j := newTxJob(log.SyncByOS)
	base := vfs.NewMem()
	n := openNode(t, base)
	j.fill(t, n)
	require.NoError(t, n.plane.Close())
	whole := &ledger{}
	require.True(t, j.run(base.Kill(), whole))
	j.check(t, whole)
	require.Greater(t, whole.calls, 10)
	for call := 1; call <= whole.calls; call++ {
		for _, effect := range []bool{false, true} {
			l := &ledger{}
			fault := func(c int) error {
				if c == call {
					return errAway
				}
				return nil
			}
			if effect {
				l.after = fault
			} else {
				l.before = fault
			}
			require.True(t, j.run(base.Kill(), l))
			j.check(t, l, "call %d failed, with effect: %v", call, effect)
		}
	}
}

// The same when the process dies in any one call, before its effect or after.
func TestTxSinkDiesInAnyCall(t *testing.T) {
	j := newTxJob(log.SyncByOS)
	base := vfs.NewMem()
	n := openNode(t, base)
	j.fill(t, n)
	require.NoError(t, n.plane.Close())
	whole := &ledger{}
	require.True(t, j.run(base.Kill(), whole))
	for call := 1; call <= whole.calls; call++ {
		for _, effect := range []bool{false, true} {
			fs, l := base.Kill(), &ledger{}
			die := func(c int) error {
				if c != call {
					return nil
				}
				fs.StopAt(fs.Ops() + 1)
				l.before = func(int) error { return errAway } // the dead call nobody
				return errAway
			}
			if effect {
				l.after = die
			} else {
				l.before = die
			}
			j.run(fs, l)
			l.before, l.after = nil, nil
			require.True(t, j.run(fs.Kill(), l))
			j.check(t, l, "died in call %d, with effect: %v", call, effect)
		}
	}
}

// The same when the process is stopped at a file operation, and when the power is cut there,
// whatever the sync policy.
func TestTxSinkStoppedAtEveryFileOperation(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for name, c := range map[string]struct {
		sync  log.Sync
		crash func(*vfs.Mem, uint64) *vfs.Mem
	}{
		"kill":                            {log.SyncByOS, func(fs *vfs.Mem, _ uint64) *vfs.Mem { return fs.Kill() }},
		"power cut":                       {log.SyncAlways, func(fs *vfs.Mem, seed uint64) *vfs.Mem { return fs.Crash(seed) }},
		"power cut, synced by the system": {log.SyncByOS, func(fs *vfs.Mem, seed uint64) *vfs.Mem { return fs.Crash(seed) }},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			j := newTxJob(c.sync)
			base := vfs.NewMem()
			n := openNode(t, base)
			j.fill(t, n)
			require.NoError(t, n.plane.Close())
			whole := base.Kill()
			require.True(t, j.run(whole, &ledger{}))
			total := whole.Ops()
			t.Logf("%d operations", total)
			step := int64(*everyOp)
			if testing.Short() {
				step *= 4
			}
			for stop := 1 + rng.Int64N(step); stop <= total; stop += step {
				fs, l := base.Kill(), &ledger{}
				fs.StopAt(stop)
				l.before = func(int) error {
					if fs.Ops() >= stop {
						return errAway // the dead call nobody
					}
					return nil
				}
				j.run(fs, l)
				l.before = nil
				require.True(t, j.run(c.crash(fs, rng.Uint64()), l), "after a stop at operation %d", stop)
				j.check(t, l, "stopped at operation %d", stop)
			}
		})
	}
}

// A job that is stopped has committed what its last checkpoint names.
func TestStopCommitsTwoPhaseSinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, l := topic.New[string, int]("in"), &ledger{}
		app := stream.New("job").Checkpoint(checkpoint.Every(10 * time.Millisecond))
		app.Stream(in).Sink(l)
		n := openNode(t, vfs.NewMem())
		job := n.start(t, app)
		send(t, n, in, "a", "b", "c")
		time.Sleep(11 * time.Millisecond)
		require.NoError(t, job.Stop(t.Context()))
		require.NotEmpty(t, l.committed)
		job = n.start(t, app)
		send(t, n, in, "d")
		require.NoError(t, job.CatchUp(t.Context()))
		require.Len(t, l.committed, 4)
		require.NoError(t, job.Stop(t.Context()))
		require.Empty(t, l.staged)
		require.Empty(t, l.prepared)
		require.NoError(t, n.plane.Close())
	})
}

// What a two-phase sink has prepared is not given to a plain one in its place.
func TestPlainSinkInPlaceOfATwoPhaseOne(t *testing.T) {
	j := newTxJob(log.SyncByOS)
	fs := vfs.NewMem()
	n := openNode(t, fs)
	j.fill(t, n)
	require.NoError(t, n.plane.Close())
	l := &ledger{}
	l.before = func(int) error {
		if len(l.prepared) > 0 {
			return errAway // never commits
		}
		return nil
	}
	require.False(t, j.run(fs, l))
	require.NotEmpty(t, l.prepared)
	fs = fs.Kill()
	require.False(t, j.run(fs, &outside{}))
	l.before = nil
	require.True(t, j.run(fs.Kill(), l))
	j.check(t, l)
}
