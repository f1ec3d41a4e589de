package checkpoint

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
)

var policies = map[string]log.Sync{"by the operating system": log.SyncByOS, "always": log.SyncAlways}

// Output is visible once its checkpoint is complete, not before, and a restarted job
// goes on where the last complete checkpoint stands.
func TestJobGoesOnFromItsLastCheckpoint(t *testing.T) {
	for name, sync := range policies {
		t.Run(name, func(t *testing.T) {
			p, fs := mustPlane(t, sync, 10)
			j, err := startFake(p, JobOptions{})
			require.NoError(t, err)
			require.EqualValues(t, 1, j.s.Attempt())
			require.NoError(t, j.checkpoint(2, 3))
			require.NoError(t, j.work(0, 4))
			out, err := committedOutput(p)
			require.NoError(t, err)
			require.Equal(t, outputOf([2]int{2, 3}), out)

			p, fs = reopen(t, fs)
			requireNothingOpen(t, p)
			j, err = startFake(p, JobOptions{})
			require.NoError(t, err)
			id, ok := j.s.Restored()
			require.True(t, ok)
			require.Equal(t, ID{1, 1}, id)
			require.EqualValues(t, 3, j.s.Attempt(), "the start of the process ended attempt 1")
			require.Equal(t, [2]int{2, 3}, [2]int{j.tasks[0].next, j.tasks[1].next})
			require.NoError(t, j.checkpoint(1, 0))
			require.NoError(t, j.checkpoint(100, 100))

			p, _ = reopen(t, fs)
			out, err = committedOutput(p)
			require.NoError(t, err)
			require.Equal(t, outputOf([2]int{10, 10}), out)
		})
	}
}

// A checkpoint in which nothing moved completes without an entry; one where one task
// moved names that task alone, and the others keep what they reported last.
func TestNothingMovedWritesNoEntry(t *testing.T) {
	p, fs := mustPlane(t, log.SyncByOS, 10)
	j, err := startFake(p, JobOptions{})
	require.NoError(t, err)
	require.NoError(t, j.checkpoint(1, 1))
	end := p.meta.End()
	require.NoError(t, j.checkpoint(0, 0))
	require.NoError(t, j.checkpoint(0, 0))
	require.Equal(t, end, p.meta.End())
	require.NoError(t, j.checkpoint(0, 2))
	require.Equal(t, end.Offset+1, p.meta.End().Offset)
	cs := p.state.jobs["job"].checkpoints
	require.Equal(t, ID{1, 4}, cs[len(cs)-1].id)
	require.Len(t, cs[len(cs)-1].reports, 1)

	p, _ = reopen(t, fs)
	j, err = startFake(p, JobOptions{})
	require.NoError(t, err)
	require.Equal(t, [2]int{1, 3}, [2]int{j.tasks[0].next, j.tasks[1].next})
	r, _ := j.s.RestoredReport(fakeTasks[0])
	require.Equal(t, []byte{1}, r.State)
}

// Writes of a checkpoint that is not the open one, after all its reports, before
// checkpoint 0 and after the end are refused.
func TestWriterRefusesWhatIsNotOpen(t *testing.T) {
	p, _ := mustPlane(t, log.SyncByOS, 1)
	s, err := p.StartJob(t.Context(), JobOptions{Name: "job", Tasks: fakeTasks, Hooks: Hooks{}})
	require.NoError(t, err)
	w, err := s.Writer(part("out", 0))
	require.NoError(t, err)
	var b log.BatchBuilder
	b.Add(0, nil, []byte("x"), nil)
	_, err = w.Write(1, &b)
	require.ErrorIs(t, err, ErrGeneration, "before Begin")
	require.False(t, s.Trigger(), "before Begin")
	require.NoError(t, s.Begin(t.Context(), map[TaskID]Report{fakeTasks[0]: {Moved: true}}))
	for _, n := range []int64{0, 2} {
		_, err = w.Write(n, &b)
		require.ErrorIs(t, err, ErrGeneration)
	}
	_, err = w.Write(1, &b)
	require.NoError(t, err)
	require.Zero(t, b.Len(), "a batch that was written is reset")
	require.True(t, s.Trigger())
	require.False(t, s.Trigger(), "one is in flight")
	s.Report(fakeTasks[0], 1, Report{Moved: true})
	b.Add(0, nil, []byte("y"), nil)
	_, err = w.Write(1, &b)
	require.NoError(t, err, "a task has not reported yet")
	s.Report(fakeTasks[1], 7, Report{Moved: true})
	require.EqualValues(t, 1, s.Next(), "a report for another checkpoint is dropped")
	require.NoError(t, s.Close())
	_, err = w.Write(1, &b)
	require.ErrorIs(t, err, ErrAttemptOver)
	_, err = s.Writer(part("out", 1))
	require.ErrorIs(t, err, ErrAttemptOver)
}

// A job that is stopped in the middle of a checkpoint leaves nothing open: readers of
// what others wrote to the same partition do not wait for it.
func TestCloseAbortsWhatIsOpen(t *testing.T) {
	for name, sync := range policies {
		t.Run(name, func(t *testing.T) {
			p, _ := mustPlane(t, sync, 5)
			j, err := startFake(p, JobOptions{})
			require.NoError(t, err)
			require.NoError(t, j.checkpoint(1, 1))
			require.NoError(t, j.work(0, 2))
			out, err := p.Log().Partition(part("out", 1))
			require.NoError(t, err)
			_, err = out.AppendRecords(t.Context(), log.Record{Value: number(77)})
			require.NoError(t, err)
			require.Less(t, out.LastStable(), out.End().Offset)

			require.NoError(t, j.s.Close())
			require.NoError(t, j.s.Close(), "Close may be repeated")
			requireNothingOpen(t, p)
			require.Equal(t, aborted, p.state.verdict(j.s.txn(2)))
			got, err := readAll(p, part("out", 1), log.ReadCommitted, -1)
			require.NoError(t, err)
			require.Equal(t, []int{77}, got)

			j, err = startFake(p, JobOptions{})
			require.NoError(t, err)
			require.EqualValues(t, 3, j.s.Attempt())
			require.NoError(t, j.checkpoint(9, 9))
		})
	}
}

// Two sessions of one job at once are refused; jobs of different names share
// partitions, each with transactions of its own.
func TestOneSessionOfAJobAtATime(t *testing.T) {
	p, _ := mustPlane(t, log.SyncByOS, 5)
	j, err := startFake(p, JobOptions{})
	require.NoError(t, err)
	_, err = startFake(p, JobOptions{})
	require.ErrorIs(t, err, ErrJobRunning)
	require.ErrorContains(t, err, `"job"`)

	other, err := p.StartJob(t.Context(), JobOptions{Name: "other", Tasks: fakeTasks[:1], Synchronous: true})
	require.NoError(t, err)
	require.NoError(t, other.Begin(t.Context(), map[TaskID]Report{}))
	w, err := other.Writer(part("out", 0))
	require.NoError(t, err)
	var b log.BatchBuilder
	b.Add(0, nil, number(5000), nil)
	_, err = w.Write(1, &b)
	require.NoError(t, err)
	require.NoError(t, j.checkpoint(2, 0))
	out, err := p.Log().Partition(part("out", 0))
	require.NoError(t, err)
	require.Zero(t, out.LastStable(), "the other job's checkpoint is open")
	require.True(t, other.Trigger())
	other.Report(fakeTasks[0], 1, Report{})
	got, err := readAll(p, part("out", 0), log.ReadCommitted, -1)
	require.NoError(t, err)
	require.Equal(t, []int{5000, 0}, got)
	require.NoError(t, j.s.Close())
	_, err = startFake(p, JobOptions{})
	require.NoError(t, err)
}

// An attempt that was replaced while it lived can neither write nor complete anything.
func TestZombieIsRefused(t *testing.T) {
	p, _ := mustPlane(t, log.SyncByOS, 5)
	zombie, err := startFake(p, JobOptions{})
	require.NoError(t, err)
	require.NoError(t, zombie.work(0, 1))
	p.jobsMu.Lock()
	delete(p.sessions, "job") // as another node would not know of it
	p.jobsMu.Unlock()
	j, err := startFake(p, JobOptions{})
	require.NoError(t, err)
	requireNothingOpen(t, p)

	require.ErrorIs(t, zombie.finish([2]bool{true, false}), ErrAttemptOver)
	require.ErrorIs(t, zombie.s.Err(), ErrAttemptOver)
	require.ErrorIs(t, zombie.work(0, 1), ErrAttemptOver)
	require.NoError(t, j.checkpoint(5, 5))
	out, err := committedOutput(p)
	require.NoError(t, err)
	require.Equal(t, outputOf([2]int{5, 5}), out)

	zombie2 := j
	p.jobsMu.Lock()
	delete(p.sessions, "job")
	p.jobsMu.Unlock()
	_, err = startFake(p, JobOptions{})
	require.NoError(t, err)
	err = zombie2.work(0, 1)
	require.ErrorIs(t, err, log.ErrFenced, "the partition's leader refuses the write")
	require.ErrorIs(t, <-zombie2.failed, log.ErrFenced)
}

// At least once, output is there at once and a failure repeats it; state is exact.
func TestAtLeastOnce(t *testing.T) {
	p, fs := mustPlane(t, log.SyncByOS, 4)
	j, err := startFake(p, JobOptions{AtLeastOnce: true})
	require.NoError(t, err)
	require.NoError(t, j.checkpoint(1, 0))
	require.NoError(t, j.work(0, 1))
	out, err := committedOutput(p)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, out)

	p, _ = reopen(t, fs)
	requireNothingOpen(t, p)
	j, err = startFake(p, JobOptions{AtLeastOnce: true})
	require.NoError(t, err)
	require.Equal(t, 1, j.tasks[0].next)
	require.NoError(t, j.checkpoint(4, 0))
	out, err = committedOutput(p)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 1, 2, 3}, out)
}

// Under SyncByOS a checkpoint runs in the calls that lead to it and leaves no
// goroutine; Complete has been called when the last Report returns.
func TestCheckpointWithoutWaitsIsInline(t *testing.T) {
	p, _ := mustPlane(t, log.SyncByOS, 5)
	j, err := startFake(p, JobOptions{})
	require.NoError(t, err)
	require.NoError(t, j.checkpoint(1, 1)) // the first to touch its partitions waits for the disk
	require.NoError(t, j.checkpoint(1, 1))
	require.NoError(t, j.work(0, 1))
	n, started := j.s.TriggerNext()
	require.True(t, started)
	j.s.Report(fakeTasks[0], n, j.report(0, true))
	require.Equal(t, n, j.s.Next())
	j.s.Report(fakeTasks[1], n, j.report(1, false))
	require.Equal(t, n+1, j.s.Next())
	require.Equal(t, ID{1, n}, <-j.complete)
}

// Hooks may call back into the session, and are called one at a time.
func TestHooksMayCallBack(t *testing.T) {
	p, _ := mustPlane(t, log.SyncByOS, 1)
	var s *Session
	var events []string
	s, err := p.StartJob(t.Context(), JobOptions{Name: "job", Tasks: fakeTasks[:1], Synchronous: true, Hooks: Hooks{
		Barrier: func(n int64) {
			events = append(events, "barrier")
			s.Report(fakeTasks[0], n, Report{Moved: true})
			events = append(events, "barrier returns")
		},
		Complete: func(id ID) {
			events = append(events, "complete")
			if id.N < 2 {
				require.True(t, s.Trigger())
			} else {
				s.fail(errors.New("enough"))
			}
			events = append(events, "complete returns")
		},
		Failed: func(err error) {
			events = append(events, err.Error())
			require.NoError(t, s.Close())
		},
	}})
	require.NoError(t, err)
	require.NoError(t, s.Begin(t.Context(), nil))
	require.True(t, s.Trigger())
	require.Equal(t, []string{
		"barrier", "barrier returns", "complete", "complete returns",
		"barrier", "barrier returns", "complete", "complete returns", "enough",
	}, events)
	require.False(t, s.Trigger())
}

// A metadata log that fails leaves the outcome open: the attempt fails, nothing more is
// accepted, and the next process finds out what was committed.
func TestFailedMetadataLog(t *testing.T) {
	for _, entryIsThere := range []bool{false, true} {
		p, fs := mustPlane(t, log.SyncAlways, 5)
		j, err := startFake(p, JobOptions{})
		require.NoError(t, err)
		require.NoError(t, j.checkpoint(1, 1))
		broken := errors.New("broken disk")
		fs.SetHook(func(op vfs.Op) error {
			inMetadata := strings.Contains(op.Name, metadataPartition.String())
			if inMetadata && (op.Kind == vfs.OpSync || !entryIsThere && op.Kind == vfs.OpMappedWrite) {
				return broken
			}
			return nil
		})
		err = j.checkpoint(1, 1)
		require.ErrorIs(t, err, errIncomplete)
		require.ErrorIs(t, err, ErrMetadata)
		require.ErrorIs(t, err, broken)
		_, err = p.AcquireProducer(context.Background())
		require.ErrorIs(t, err, ErrMetadata)
		require.ErrorIs(t, j.s.Close(), ErrMetadata)
		_, err = startFake(p, JobOptions{})
		require.ErrorIs(t, err, ErrMetadata)

		p, _ = reopen(t, fs)
		requireNothingOpen(t, p)
		want := 1
		if entryIsThere {
			want = 2
		}
		j, err = startFake(p, JobOptions{})
		require.NoError(t, err)
		require.Equal(t, want, j.tasks[0].next)
		out, err := committedOutput(p)
		require.NoError(t, err)
		require.Equal(t, outputOf([2]int{want, want}), out)
	}
}

// A full disk refuses the write and ends the attempt, not the plane.
func TestFullDisk(t *testing.T) {
	p, fs := mustPlane(t, log.SyncByOS, 5)
	j, err := startFake(p, JobOptions{})
	require.NoError(t, err)
	require.NoError(t, j.checkpoint(1, 1))
	fs.SetCapacity(1)
	var b log.BatchBuilder
	b.Add(0, nil, make([]byte, 20<<10), nil)
	w, err := j.s.Writer(part("out", 0))
	require.NoError(t, err)
	for err == nil {
		_, err = w.Write(2, &b)
		b.Add(0, nil, make([]byte, 20<<10), nil)
	}
	require.NotErrorIs(t, err, ErrGeneration)
	require.Error(t, <-j.failed)
	fs.SetCapacity(0)
	require.NoError(t, j.s.Close())
	requireNothingOpen(t, p)
	j, err = startFake(p, JobOptions{})
	require.NoError(t, err)
	require.NoError(t, j.checkpoint(5, 5))
}

func TestStartJobChecksItsOptions(t *testing.T) {
	p, _ := mustPlane(t, log.SyncByOS, 1)
	for want, o := range map[string]JobOptions{
		"shard -1":      {Name: "job", Tasks: []TaskID{{"count", -1}}},
		"needs a name":  {Tasks: fakeTasks},
		"has no tasks":  {Name: "job"},
		"count-1 twice": {Name: "job", Tasks: []TaskID{{"count", 1}, {"count", 1}}},
	} {
		_, err := p.StartJob(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.StartJob(ctx, JobOptions{Name: "job", Tasks: fakeTasks})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, p.Close())
	_, err = p.StartJob(t.Context(), JobOptions{Name: "job", Tasks: fakeTasks})
	require.ErrorIs(t, err, ErrClosed)
}

func TestConfig(t *testing.T) {
	var zero Config
	require.Equal(t, 100*time.Millisecond, zero.Interval())
	require.False(t, zero.IsAtLeastOnce())
	c := Every(5 * time.Millisecond).AtLeastOnce()
	require.Equal(t, 5*time.Millisecond, c.Interval())
	require.True(t, c.IsAtLeastOnce())
	require.NoError(t, c.Err())
	require.NoError(t, Every(time.Millisecond).Err())
	require.EqualError(t, Every(999*time.Microsecond).AtLeastOnce().Err(), "checkpoint: interval 999µs is below the minimum of 1ms")
}
