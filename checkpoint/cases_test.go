package checkpoint

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
)

// readCommitted returns "value@offset" of all that a reader of committed data gets from
// an offset on, and where it then stands.
func readFrom(t *testing.T, pt *log.Partition, from log.Offset, iso log.Isolation) (got string, position log.Offset) {
	t.Helper()
	rd := pt.Reader(from, iso)
	defer rd.Close()
	var all []string
	for {
		b, err := rd.Next()
		if err == io.EOF {
			return strings.Join(all, " "), rd.Offset()
		}
		require.NoError(t, err)
		for it := b.Records(); it.Next(); {
			all = append(all, fmt.Sprintf("%s@%d", it.Value, it.Offset))
		}
	}
}

// The last stable offset is the first that is not stable, and a producer that dies in
// its transaction holds readers up only until its successor begins: an entry decides,
// no timer.
func TestCaseC08ReadingOnlyCommittedData(t *testing.T) {
	p, _ := mustPlane(t, log.SyncByOS, 0)
	tp := part("out", 0)
	pt, err := p.Log().Partition(tp)
	require.NoError(t, err)
	begin := func(name string) *Session {
		s, err := p.StartJob(t.Context(), JobOptions{Name: name, Tasks: fakeTasks[:1], Synchronous: true})
		require.NoError(t, err)
		if _, ok := s.Restored(); !ok {
			require.NoError(t, s.Begin(t.Context(), nil))
		}
		return s
	}
	write := func(s *Session, value string) error {
		w, err := s.Writer(tp)
		if err != nil {
			return err
		}
		var b log.BatchBuilder
		b.Add(0, nil, []byte(value), nil)
		_, err = w.Write(s.Next(), &b)
		return err
	}
	plain := func(value string) {
		_, err := pt.AppendRecords(t.Context(), log.Record{Value: []byte(value)})
		require.NoError(t, err)
	}
	commit := func(s *Session) bool {
		n := s.Next()
		if !s.Trigger() {
			return false
		}
		s.Report(fakeTasks[0], n, Report{Moved: true})
		return s.Err() == nil
	}
	p1, p2 := begin("p1"), begin("p2")
	var fresh *Session
	at := log.Offset(0)
	for i, step := range []struct {
		do     func()
		stable log.Offset
		get    string
		next   log.Offset
	}{
		{func() { require.NoError(t, write(p1, "x1")) }, 0, "", 0},
		{func() { require.NoError(t, write(p1, "x2")) }, 0, "", 0},
		{func() { plain("n1") }, 0, "", 0},
		{func() { require.True(t, commit(p1)) }, 4, "x1@0 x2@1 n1@2", 4},
		{func() { require.NoError(t, write(p2, "y1")) }, 4, "", 4},
		{func() { plain("n2") }, 4, "", 4},
		{func() {
			p.jobsMu.Lock()
			delete(p.sessions, "p2") // it dies, and nobody tells
			p.jobsMu.Unlock()
			require.NoError(t, p.SyncAll(t.Context()))
		}, 4, "", 4},
		{func() { fresh = begin("p2") }, 7, "n2@5", 7},
		{func() { require.ErrorIs(t, write(p2, "y2"), log.ErrFenced) }, 7, "", 7},
		{func() { require.False(t, commit(p2)) }, 7, "", 7},
		{func() { require.NoError(t, write(fresh, "y3")) }, 7, "", 7},
		{func() { require.True(t, commit(fresh)) }, 9, "y3@7", 9},
	} {
		step.do()
		require.Equal(t, step.stable, pt.LastStable(), "step %d", i+1)
		got, next := readFrom(t, pt, at, log.ReadCommitted)
		require.Equal(t, step.get, got, "step %d", i+1)
		require.Equal(t, step.next, next, "step %d", i+1)
		at = next
	}
	got, _ := readFrom(t, pt, 0, log.ReadUncommitted)
	require.Equal(t, "x1@0 x2@1 n1@2 y1@4 n2@5 y3@7", got)
	got, _ = readFrom(t, pt, 4, log.ReadCommitted)
	require.Equal(t, "n2@5 y3@7", got)
}

// A process killed in the middle of a checkpoint: what it wrote counts for nothing, and
// records that arrive while it starts again are read.
func TestCaseC18CrashInTheMiddle(t *testing.T) {
	p, fs := mustPlane(t, log.SyncByOS, 0)
	task := TaskID{"count", 0}
	var s *Session
	var counts map[string]int
	var next log.Offset
	input := func(keys ...string) {
		in, err := p.Log().Partition(part("in", 0))
		require.NoError(t, err)
		for _, k := range keys {
			_, err := in.AppendRecords(t.Context(), log.Record{Key: []byte(k)})
			require.NoError(t, err)
		}
	}
	start := func() {
		var err error
		s, err = p.StartJob(t.Context(), JobOptions{Name: "count", Tasks: []TaskID{task}, Synchronous: true})
		require.NoError(t, err)
	}
	restore := func() {
		counts, next = map[string]int{}, 0
		r, ok := s.RestoredReport(task)
		if !ok {
			require.NoError(t, s.Begin(t.Context(), map[TaskID]Report{task: {Inputs: []Input{{part("in", 0), log.Position{}}}}}))
			return
		}
		next = r.Inputs[0].Next.Offset
		pt, err := p.Log().Partition(part("changelog", 0))
		require.NoError(t, err)
		rd := pt.Reader(0, log.ReadDecided)
		defer rd.Close()
		for b, err := rd.Next(); err == nil && b.Base < r.Changelogs[0].End.Offset; b, err = rd.Next() {
			for it := b.Records(); it.Next(); {
				counts[string(it.Key)] = int(it.Value[0] - '0')
			}
		}
	}
	var end log.Position
	work := func() {
		in, err := p.Log().Partition(part("in", 0))
		require.NoError(t, err)
		out, err := s.Writer(part("out", 0))
		require.NoError(t, err)
		changelog, err := s.ChangelogWriter(part("changelog", 0))
		require.NoError(t, err)
		rd := in.Reader(next, log.ReadCommitted)
		defer rd.Close()
		for b, err := rd.Next(); err == nil; b, err = rd.Next() {
			for it := b.Records(); it.Next(); {
				k := string(it.Key)
				counts[k]++
				for _, w := range []*Writer{out, changelog} {
					var batch log.BatchBuilder
					batch.Add(0, it.Key, fmt.Append(nil, counts[k]), nil)
					pos, err := w.Write(s.Next(), &batch)
					require.NoError(t, err)
					end = pos // the changelog's comes last
				}
			}
		}
		next = rd.Offset()
	}
	commit := func() {
		in, err := p.Log().Partition(part("in", 0))
		require.NoError(t, err)
		pos, err := in.PositionAt(next)
		require.NoError(t, err)
		n := s.Next()
		require.True(t, s.Trigger())
		s.Report(task, n, Report{Moved: true, Inputs: []Input{{part("in", 0), pos}}, Changelogs: []Changelog{{part("changelog", 0), end}}})
		require.Equal(t, n+1, s.Next())
	}

	start()
	restore()
	input("a", "a", "b")
	work()
	commit()
	input("a", "b")
	work()
	require.Equal(t, map[string]int{"a": 3, "b": 2}, counts)

	p, _ = reopen(t, fs)
	start()
	input("a", "c")
	restore()
	require.Equal(t, map[string]int{"a": 2, "b": 1}, counts)
	require.EqualValues(t, 3, next)
	work()
	commit()
	require.Equal(t, map[string]int{"a": 4, "b": 2, "c": 1}, counts)
	require.EqualValues(t, 7, next)

	out, err := p.Log().Partition(part("out", 0))
	require.NoError(t, err)
	var got []string
	rd := out.Reader(0, log.ReadCommitted)
	defer rd.Close()
	for b, err := rd.Next(); err == nil; b, err = rd.Next() {
		for it := b.Records(); it.Next(); {
			got = append(got, fmt.Sprintf("%s=%s", it.Key, it.Value))
		}
	}
	require.Equal(t, []string{"a=1", "a=2", "b=1", "a=3", "b=2", "a=4", "c=1"}, got)
}
