package log

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// syncsOf counts the syncs of files and directories that f causes, and the files that
// it makes.
func syncsOf(mem *vfs.Mem, f func()) (syncs int, made []string) {
	mem.SetHook(func(op vfs.Op) error {
		switch op.Kind {
		case vfs.OpSync, vfs.OpSyncDir:
			syncs++
		case vfs.OpCreate:
			made = append(made, op.Name)
		}
		return nil
	})
	defer mem.SetHook(nil)
	f()
	return syncs, made
}

func manySpecs(n int) map[string]TopicSpec {
	specs := make(map[string]TopicSpec)
	for i := range n {
		specs[fmt.Sprintf("t%03d", i)] = TopicSpec{Partitions: 1}
	}
	return specs
}

// Many topics cost as many syncs as one, and no files but the registry. A topic that
// nobody uses costs none when the log is closed and opened again.
func TestCreateAll(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, small(mem))
	syncs, made := syncsOf(mem, func() { require.NoError(t, l.CreateAll(manySpecs(50))) })
	require.Equal(t, 3, syncs, "the directories, the registry and its directory")
	require.Equal(t, []string{"log/" + registryFile + temporarySuffix}, made)
	require.NoError(t, l.CreateAll(manySpecs(50)), "they exist with these settings")
	names, err := mem.List("log/t007-0")
	require.NoError(t, err)
	require.Empty(t, names)

	p := mustPartition(t, l, "t007")
	add(t, p, time.UnixMilli(1))
	close := func(l *Log) { require.NoError(t, l.Close()) }
	few := 12 // of the log's own files, and of one partition
	syncs, made = syncsOf(mem, func() { close(l) })
	require.Less(t, syncs, few)
	require.Less(t, len(made), few)
	syncs, made = syncsOf(mem, func() {
		l = mustOpen(t, small(mem))
		close(l)
	})
	require.Less(t, syncs, few, "nothing was written since the last stop")
	for _, name := range made {
		require.NotContains(t, name, "log/t0", "no file of a partition is written anew")
	}

	l = mustOpen(t, small(mem))
	defer l.Close()
	for p := range l.Partitions() {
		require.True(t, p.Recovery().Clean)
		want := 0
		if p.Name().Topic == "t007" {
			want = 1
		}
		require.Len(t, readAll(t, p, 0, ReadCommitted), want)
	}
	add(t, mustPartition(t, l, "t008"), time.UnixMilli(1))
}

// One topic that cannot be made stands for all of them.
func TestCreateAllOrNone(t *testing.T) {
	l := mustOpen(t, small(vfs.NewMem()))
	defer l.Close()
	require.NoError(t, l.Create("t001", TopicSpec{Partitions: 2}))
	for _, bad := range []struct {
		name string
		spec TopicSpec
	}{{"a/b", TopicSpec{Partitions: 1}}, {"none", TopicSpec{}}, {"t001", TopicSpec{Partitions: 3}}} {
		specs := manySpecs(1)
		specs[bad.name] = bad.spec
		require.Error(t, l.CreateAll(specs))
		_, exists := l.Spec("t000")
		require.False(t, exists)
	}
}

// A crash at any operation of CreateAll leaves all topics or none, and of an adopted
// partition all its records, where they were. Created again, all are there.
func TestCrashInCreateAll(t *testing.T) {
	adopted := func() *vfs.Mem {
		mem := vfs.NewMem()
		l, p := single(t, small(mem), SyncAlways)
		for range 20 {
			add(t, p, time.UnixMilli(1))
		}
		require.NoError(t, p.DeleteBefore(12))
		require.NoError(t, l.Close())
		// As a partition comes from elsewhere: with its segments alone.
		other := vfs.NewMem()
		require.NoError(t, vfs.MkdirAllDurable(other, "log/t001-0"))
		names, err := mem.List("log/t-0")
		require.NoError(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, logSuffix) {
				b, err := readSmallFile(mem, "log/t-0/"+name)
				require.NoError(t, err)
				require.NoError(t, replaceFile(other, "log/t001-0/"+name, b))
			}
		}
		return other
	}
	scenario := func(mem *vfs.Mem) error {
		l, err := Open("log", small(mem))
		if err != nil {
			return err
		}
		defer l.abandon()
		return l.CreateAll(manySpecs(3))
	}
	whole := adopted()
	begin := whole.Ops()
	require.NoError(t, scenario(whole))
	l := mustOpen(t, small(whole.Kill()))
	want := readAll(t, mustPartition(t, l, "t001"), l.partitions()[1].Start(), ReadUncommitted)
	require.NotEmpty(t, want)
	require.Positive(t, l.partitions()[1].Start())
	require.NoError(t, l.Close())
	for n := begin + 1; n <= whole.Ops(); n += sampled[int64](5) {
		for seed := range uint64(4) {
			mem := adopted()
			mem.StopAt(n)
			if err := scenario(mem); err != nil && !errors.Is(err, vfs.ErrStopped) {
				require.NoError(t, err)
			}
			mem = mem.Crash(seed)
			l := mustOpen(t, small(mem))
			count := 0
			for range l.Topics() {
				count++
			}
			require.Contains(t, []int{0, 3}, count, "operation %d, seed %d", n, seed)
			require.NoError(t, l.CreateAll(manySpecs(3)))
			p := mustPartition(t, l, "t001")
			require.Equal(t, want, readAll(t, p, p.Start(), ReadUncommitted), "operation %d, seed %d", n, seed)
			require.NoError(t, l.Close())
		}
	}
}

// The first append to a partition makes its file. A power cut at any operation of it
// keeps what was acknowledged.
func TestCrashInFirstAppend(t *testing.T) {
	scenario := func(mem *vfs.Mem) (acked bool, err error) {
		l, err := Open("log", small(mem))
		if err != nil {
			return false, err
		}
		defer l.abandon()
		if err := l.Create("t", TopicSpec{Partitions: 1, Sync: SyncAlways}); err != nil {
			return false, err
		}
		p := mustPartition(t, l, "t")
		_, err = p.Append(t.Context(), batchOf(plain, 1, "first"))
		return err == nil, err
	}
	whole := vfs.NewMem()
	_, err := scenario(whole)
	require.NoError(t, err)
	for n := int64(1); n <= whole.Ops()+1; n++ {
		for seed := range uint64(4) {
			mem := vfs.NewMem()
			mem.StopAt(n)
			acked, err := scenario(mem)
			if err != nil && !errors.Is(err, vfs.ErrStopped) {
				require.NoError(t, err)
			}
			l, p := single(t, small(mem.Crash(seed)), SyncAlways)
			seen := readAll(t, p, 0, ReadCommitted)
			require.LessOrEqual(t, len(seen), 1)
			require.True(t, len(seen) == 1 || !acked, "operation %d, seed %d", n, seed)
			add(t, p, time.UnixMilli(1))
			require.NoError(t, l.Close())
		}
	}
}

// A full disk at the first append is an error of that append.
func TestFirstAppendOnAFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	l, p := single(t, small(mem), SyncByOS)
	fail := true
	mem.SetHook(func(op vfs.Op) error {
		if fail && op.Kind == vfs.OpCreate && strings.HasSuffix(op.Name, logSuffix) {
			return errInjected
		}
		return nil
	})
	_, err := p.Append(t.Context(), batchOf(plain, 1, "v"))
	require.ErrorIs(t, err, errInjected)
	require.NoError(t, p.Failed())
	require.Empty(t, readAll(t, p, 0, ReadCommitted))
	fail = false
	_, err = p.Append(t.Context(), batchOf(plain, 1, "v"))
	require.NoError(t, err)
	require.Equal(t, []string{"0:v"}, readAll(t, p, 0, ReadCommitted))
	require.NoError(t, l.Close())
}

// Many partitions are opened and closed several at a time, and an error of one of them
// is that of all.
func TestManyAreOpenedAtATime(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, small(mem))
	require.NoError(t, l.CreateAll(manySpecs(200)))
	for p := range l.Partitions() {
		add(t, p, time.UnixMilli(1))
	}
	require.NoError(t, l.Close())
	l = mustOpen(t, small(mem))
	for p := range l.Partitions() {
		require.True(t, p.Recovery().Clean)
		require.Len(t, readAll(t, p, 0, ReadCommitted), 1)
		add(t, p, time.UnixMilli(1))
	}
	require.NoError(t, l.Close())
	require.NoError(t, mem.Remove("log/t111-0/00000000000000000000.log"))
	_, err := Open("log", small(mem))
	_, damaged := errors.AsType[*CorruptionError](err)
	require.True(t, damaged, "%v", err)
}
