package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
)

// fakeJob is a job of two tasks over a real log. Task i reads partition i of "in", whose
// record k is the number k, passes it on to "out", even numbers to partition 0, odd
// ones to 1, and keeps how many it has read in partition i of "changelog".
type fakeJob struct {
	p        *Plane
	s        *Session
	tasks    [2]fakeTask
	complete chan ID // newest, as told by the hook
	failed   chan error
	builder  log.BatchBuilder
	quiet    bool // task 1 writes to topic "quiet" instead
}

type fakeTask struct {
	id    TaskID
	next  int // of the input
	count int // the state
	end   log.Position
}

const fakeDir = "node"

var (
	fakeTasks     = []TaskID{{"count", 0}, {"count", 1}}
	fakeTopics    = []string{"in", "out", "changelog"}
	errIncomplete = errors.New("the checkpoint did not complete")
)

func part(topic string, i int) log.TopicPartition {
	return log.TopicPartition{Topic: topic, Partition: log.PartitionID(i)}
}

// fakeClock is the time of tests: it moves only so that it is not always zero.
func fakeClock() time.Time { return time.UnixMilli(1_700_000_000_000) }

func openPlane(fs vfs.FS) (*Plane, error) {
	return Open(fakeDir, PlaneOptions{FS: fs, SyncInterval: -1, Now: fakeClock, Log: log.Options{SegmentBytes: 1 << 10, MaxBatchBytes: 32 << 10}})
}

// setUp makes topics and input, all of it durable.
func setUp(p *Plane, sync log.Sync, records int) error {
	for _, topic := range fakeTopics {
		if err := p.Log().Create(topic, log.TopicSpec{Partitions: 2, Sync: sync}); err != nil {
			return err
		}
	}
	for i := range 2 {
		in, err := p.Log().Partition(part("in", i))
		if err != nil {
			return err
		}
		for k := int(in.End().Offset); k < records; k++ {
			if _, err := in.AppendRecords(context.Background(), log.Record{Value: number(k)}); err != nil {
				return err
			}
		}
		if err := in.Sync(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

func number(k int) []byte { return binary.AppendUvarint(nil, uint64(k)) }

func startFake(p *Plane, o JobOptions) (*fakeJob, error) {
	j := &fakeJob{p: p, complete: make(chan ID, 1), failed: make(chan error, 1)}
	o.Name, o.Tasks = "job", fakeTasks
	o.Hooks = Hooks{
		Complete: func(id ID) { j.complete <- id },
		Failed:   func(err error) { j.failed <- err },
	}
	s, err := p.StartJob(context.Background(), o)
	if err != nil {
		return nil, err
	}
	j.s = s
	_, restored := s.Restored()
	reports := map[TaskID]Report{}
	for i := range j.tasks {
		t := &j.tasks[i]
		t.id = fakeTasks[i]
		r, ok := s.RestoredReport(t.id)
		if ok != restored {
			return nil, fmt.Errorf("report of %v: %v, restored: %v", t.id, ok, restored)
		}
		if ok {
			t.next, t.end = int(r.Inputs[0].Next.Offset), r.Changelogs[0].End
		} else {
			reports[t.id] = j.report(i, true)
		}
		if t.count, err = foldChangelog(p, i, t.end.Offset); err != nil {
			return nil, err
		}
		if t.count != t.next {
			return nil, fmt.Errorf("task %d restores state %d with %d records read", i, t.count, t.next)
		}
	}
	if !restored {
		return j, s.Begin(context.Background(), reports)
	}
	return j, nil
}

// foldChangelog is the state that a follower has at end.
func foldChangelog(p *Plane, i int, end log.Offset) (count int, err error) {
	values, err := readAll(p, part("changelog", i), log.ReadDecided, end)
	if err != nil || len(values) == 0 {
		return 0, err
	}
	return values[len(values)-1], nil
}

// readAll returns the numbers below end, which is the partition's when negative.
func readAll(p *Plane, tp log.TopicPartition, iso log.Isolation, end log.Offset) (values []int, err error) {
	pt, err := p.Log().Partition(tp)
	if err != nil {
		return nil, err
	}
	rd := pt.Reader(pt.Start(), iso)
	defer rd.Close()
	for {
		b, err := rd.Next()
		if err == io.EOF || err == nil && end >= 0 && b.Base >= end {
			return values, nil
		}
		if err != nil {
			return nil, err
		}
		it := b.Records()
		for it.Next() {
			v, _ := binary.Uvarint(it.Value)
			values = append(values, int(v))
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
	}
}

// work lets a task read up to n records and write what comes of them for the open
// checkpoint.
func (j *fakeJob) work(i, n int) error {
	t := &j.tasks[i]
	in, err := j.p.Log().Partition(part("in", i))
	if err != nil {
		return err
	}
	gen := j.s.Next()
	for ; n > 0 && t.next < int(in.End().Offset); n-- {
		topic := "out"
		if i == 1 && j.quiet {
			topic = "quiet"
		}
		out, err := j.s.Writer(part(topic, t.next%2))
		if err != nil {
			return err
		}
		j.builder.Reset()
		j.builder.Add(0, []byte{byte(i)}, number(i*1000+t.next), nil)
		if _, err := out.Write(gen, &j.builder); err != nil {
			return err
		}
		t.next++
		t.count++
	}
	w, err := j.s.ChangelogWriter(part("changelog", i))
	if err != nil {
		return err
	}
	j.builder.Reset()
	j.builder.Add(0, []byte("count"), number(t.count), nil)
	end, err := w.Write(gen, &j.builder)
	if err == nil {
		t.end = end
	}
	return err
}

func (j *fakeJob) report(i int, moved bool) Report {
	t := &j.tasks[i]
	in, err := j.p.Log().Partition(part("in", i))
	if err != nil {
		panic(err)
	}
	next, err := in.PositionAt(log.Offset(t.next))
	if err != nil {
		panic(err)
	}
	return Report{
		Inputs:     []Input{{part("in", i), next}},
		Changelogs: []Changelog{{part("changelog", i), t.end}},
		State:      []byte{byte(t.next)},
		Moved:      moved,
	}
}

// checkpoint has task i work through counts[i] records, and completes a checkpoint.
func (j *fakeJob) checkpoint(counts ...int) error {
	var moved [2]bool
	for i, n := range counts {
		if n > 0 {
			if err := j.work(i, n); err != nil {
				return err
			}
			moved[i] = true
		}
	}
	return j.finish(moved)
}

// finish completes a checkpoint. A failure that follows its completion is left in
// j.failed: both hooks may have been called by the time anybody looks.
func (j *fakeJob) finish(moved [2]bool) error {
	n, started := j.s.TriggerNext()
	if !started {
		return fmt.Errorf("%w: not triggered: %v", errIncomplete, j.s.Err())
	}
	for i, id := range fakeTasks {
		j.s.Report(id, n, j.report(i, moved[i]))
	}
	var id ID
	select {
	case id = <-j.complete:
	case err := <-j.failed:
		if len(j.complete) == 0 { // hooks are called in order
			return fmt.Errorf("%w: %w", errIncomplete, err)
		}
		id = <-j.complete
		j.failed <- err
	}
	if id.N != n || id.Attempt != j.s.Attempt() {
		return fmt.Errorf("checkpoint %v completed instead of %d", id, n)
	}
	return nil
}

// committedOutput is what a read-committed reader of all output partitions gets, sorted.
func committedOutput(p *Plane) ([]int, error) {
	var all []int
	for i := range 4 {
		tp := part([]string{"out", "quiet"}[i/2], i%2)
		if _, exists := p.Log().Spec(tp.Topic); !exists {
			continue
		}
		values, err := readAll(p, tp, log.ReadCommitted, -1)
		if err != nil {
			return nil, err
		}
		all = append(all, values...)
	}
	slices.Sort(all)
	return all, nil
}

// outputOf is the output of a job that has read next[i] records of input i.
func outputOf(next [2]int) []int {
	var all []int
	for i, n := range next {
		for k := range n {
			all = append(all, i*1000+k)
		}
	}
	return all
}

func requireNothingOpen(t *testing.T, p *Plane) {
	t.Helper()
	for pt := range p.Log().Partitions() {
		require.Empty(t, pt.OpenTransactions(), "open in %v", pt.Name())
		require.Equal(t, pt.End().Offset, pt.LastStable(), "last stable offset of %v", pt.Name())
	}
}

// mustPlane opens a plane over a file system of its own, with topics and input.
func mustPlane(t *testing.T, sync log.Sync, records int) (*Plane, *vfs.Mem) {
	t.Helper()
	fs := vfs.NewMem()
	p, err := openPlane(fs)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	require.NoError(t, setUp(p, sync, records))
	return p, fs
}

// reopen kills the process of fs and starts another.
func reopen(t *testing.T, fs *vfs.Mem) (*Plane, *vfs.Mem) {
	t.Helper()
	after := fs.Kill()
	p, err := openPlane(after)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p, after
}
