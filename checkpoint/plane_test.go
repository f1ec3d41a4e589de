package checkpoint

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
)

// A producer's id is its own for ever: not handed out again after a power cut, and
// refused once released or once its process is gone.
func TestProducerIDsAreNeverHandedOutTwice(t *testing.T) {
	fs := vfs.NewMem()
	p, err := openPlane(fs)
	require.NoError(t, err)
	require.NoError(t, p.Log().Create("t", log.TopicSpec{Partitions: 1}))
	pt, err := p.Log().Partition(part("t", 0))
	require.NoError(t, err)
	seen := map[log.ProducerID]bool{}
	acquire := func() log.ProducerID {
		id, err := p.AcquireProducer(t.Context())
		require.NoError(t, err)
		require.False(t, seen[id])
		seen[id] = true
		return id
	}
	write := func(id log.ProducerID, sequence int32) error {
		var b log.BatchBuilder
		b.Add(0, nil, []byte("x"), nil)
		_, err := pt.Write(b.Finish(log.Producer{ID: id, Sequence: sequence}))
		return err
	}
	id := acquire()
	require.NoError(t, write(id, 0))
	require.NoError(t, p.ReleaseProducer(id))
	require.ErrorIs(t, write(id, 1), log.ErrFenced)
	id = acquire()
	require.NoError(t, write(id, 0))
	for seed := range uint64(5) {
		after := fs.Crash(seed)
		fs.Stop()
		_ = p.Close()
		fs = after
		p, err = openPlane(fs)
		require.NoError(t, err)
		pt, err = p.Log().Partition(part("t", 0))
		require.NoError(t, err)
		require.ErrorIs(t, write(id, 1), log.ErrFenced)
		id = acquire()
		require.NoError(t, write(id, 0))
	}
	require.NoError(t, p.Close())
	require.NoError(t, p.Close(), "Close may be repeated")
	_, err = p.AcquireProducer(t.Context())
	require.ErrorIs(t, err, ErrClosed)
}

// The background sync makes what was completed known-durable: what it replaces is
// forgotten, and a power cut loses nothing of it.
func TestBackgroundSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		p, err := Open(fakeDir, PlaneOptions{FS: fs, Log: log.Options{SegmentBytes: 32 << 10, MaxBatchBytes: 32 << 10}})
		require.NoError(t, err)
		require.NoError(t, setUp(p, log.SyncByOS, 10))
		j, err := startFake(p, JobOptions{Synchronous: true})
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, j.checkpoint(1, 1))
		}
		retained := func() int {
			p.stateMu.RLock()
			defer p.stateMu.RUnlock()
			return len(p.state.jobs["job"].checkpoints)
		}
		require.Equal(t, 4, retained())
		time.Sleep(defaultSyncInterval + time.Millisecond) // virtual
		synctest.Wait()
		require.Equal(t, 1, retained())
		require.Empty(t, p.state.completed)
		end := p.meta.End()
		time.Sleep(10 * defaultSyncInterval)
		synctest.Wait()
		require.Equal(t, end, p.meta.End(), "an idle node writes nothing")

		for seed := range uint64(10) {
			q, err := openPlane(fs.Crash(seed))
			require.NoError(t, err)
			k, err := startFake(q, JobOptions{Synchronous: true})
			require.NoError(t, err)
			require.Equal(t, 3, k.tasks[0].next)
			require.NoError(t, q.Close())
		}
		require.NoError(t, p.Close())
	})
}

// The metadata log does not grow with checkpoints, and what is cut from it is not missed.
func TestMetadataLogIsCut(t *testing.T) {
	p, fs := mustPlane(t, log.SyncByOS, 400)
	p.cutAfter = 4 << 10
	j, err := startFake(p, JobOptions{})
	require.NoError(t, err)
	for i := range 100 {
		require.NoError(t, j.checkpoint(1, 2))
		if i%10 == 9 {
			require.NoError(t, p.SyncAll(t.Context()))
			p.cutAfter = min(p.cutAfter, 4<<10)
		}
	}
	require.Greater(t, p.meta.Start(), log.Offset(50))
	for range 2 {
		p, fs = reopen(t, fs)
		j, err = startFake(p, JobOptions{})
		require.NoError(t, err)
		require.NoError(t, j.checkpoint(1, 1))
	}
	require.Equal(t, [2]int{102, 202}, [2]int{j.tasks[0].next, j.tasks[1].next})
	require.EqualValues(t, 5, j.s.Attempt())
	out, err := committedOutput(p)
	require.NoError(t, err)
	require.Len(t, out, 304)
}

// Completed transactions are remembered until their markers are durable, and ended in
// every partition where the marker is missing.
func TestMissingMarkersAreWritten(t *testing.T) {
	p, fs := mustPlane(t, log.SyncByOS, 10)
	j, err := startFake(p, JobOptions{})
	require.NoError(t, err)
	require.NoError(t, j.checkpoint(1, 1))
	require.NoError(t, j.work(0, 2))
	require.NoError(t, j.work(1, 2))
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpMappedWrite && bytes.Contains([]byte(op.Name), []byte("out-1")) {
			return vfs.ErrStopped
		}
		return nil
	})
	require.NoError(t, j.finish([2]bool{true, true}), "the entry is there: the checkpoint is complete")
	require.ErrorIs(t, <-j.failed, log.ErrOffline)
	p, _ = reopen(t, fs)
	requireNothingOpen(t, p)
	out, err := committedOutput(p)
	require.NoError(t, err)
	require.Equal(t, outputOf([2]int{3, 3}), out)
	require.NoError(t, p.SyncAll(t.Context()))
	require.Empty(t, p.state.completed)
}

// A job whose retained checkpoints have all lost what they name cannot start, and the
// error says what is missing. Output that was deleted is not missed.
func TestNoCheckpointIsWhole(t *testing.T) {
	p, _ := mustPlane(t, log.SyncByOS, 10)
	j, err := startFake(p, JobOptions{})
	require.NoError(t, err)
	require.NoError(t, j.checkpoint(3, 3))
	require.NoError(t, p.SyncAll(t.Context()))
	require.NoError(t, j.s.Close())
	require.NoError(t, p.Log().Delete("out"))
	require.NoError(t, p.Log().Create("out", log.TopicSpec{Partitions: 2}))
	j, err = startFake(p, JobOptions{})
	require.NoError(t, err)
	require.NoError(t, j.checkpoint(1, 1))
	require.NoError(t, j.s.Close())

	require.NoError(t, p.Log().Delete("changelog"))
	_, err = startFake(p, JobOptions{})
	require.ErrorIs(t, err, ErrNoCheckpoint)
	require.ErrorIs(t, err, log.ErrUnknownTopic)
	require.ErrorContains(t, err, "changelog of count-")
}

// After a power cut that took complete checkpoints, the job says which, also to the log.
func TestFallingBackIsReported(t *testing.T) {
	var events bytes.Buffer
	p, fs := mustPlane(t, log.SyncByOS, 10)
	j, err := startFake(p, JobOptions{})
	require.NoError(t, err)
	require.NoError(t, j.checkpoint(1, 1))
	require.NoError(t, j.checkpoint(1, 1))
	require.NoError(t, p.SyncAll(t.Context()))
	require.NoError(t, j.checkpoint(2, 2))
	require.NoError(t, j.checkpoint(2, 2))
	// The output is on disk, the metadata log and the changelogs are not.
	for i := range 2 {
		out, err := p.Log().Partition(part("out", i))
		require.NoError(t, err)
		require.NoError(t, out.Sync(t.Context()))
	}
	found := false
	for seed := uint64(0); seed < 200 && !found; seed++ {
		events.Reset()
		q, err := Open(fakeDir, PlaneOptions{FS: fs.Crash(seed), SyncInterval: -1, Logger: slog.New(slog.NewTextHandler(&events, nil))})
		require.NoError(t, err)
		k, err := startFake(q, JobOptions{})
		require.NoError(t, err)
		restored, _ := k.s.Restored()
		from, fell := k.s.FellBack()
		if restored == (ID{1, 4}) {
			require.False(t, fell)
		} else {
			found = true
			require.True(t, fell)
			require.Equal(t, ID{1, 4}, from)
			require.EqualValues(t, 1, q.FellBack())
			require.Contains(t, events.String(), fmt.Sprintf("lost=1/4 restored=%v", restored))
		}
		require.NoError(t, q.Close())
	}
	require.True(t, found, "no seed lost a checkpoint")
}

// A metadata log that was replaced by an older one would hand out ids again: it is refused
// as soon as a transaction shows it.
func TestLostMetadataLog(t *testing.T) {
	p, fs := mustPlane(t, log.SyncByOS, 5)
	j, err := startFake(p, JobOptions{})
	require.NoError(t, err)
	require.NoError(t, j.work(0, 1))
	after := fs.Kill()
	l, err := log.Open(fakeDir, log.Options{FS: after, SegmentBytes: 1 << 10, MaxBatchBytes: 32 << 10})
	require.NoError(t, err)
	require.NoError(t, l.Delete(metadataPartition.Topic))
	require.NoError(t, l.Close())
	_, err = openPlane(after)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "is unknown: the metadata log was lost")
}

// A metadata log of a later version is left alone.
func TestUnknownVersionOfTheMetadataLog(t *testing.T) {
	p, fs := mustPlane(t, log.SyncByOS, 0)
	var b log.BatchBuilder
	b.Add(0, nil, []byte{entryVersion + 1, byte(kindNodeStart), 0}, nil)
	_, err := p.meta.Write(b.Finish(log.Producer{ID: log.NoProducer}))
	require.NoError(t, err)
	_, err = openPlane(fs.Kill())
	require.ErrorIs(t, err, ErrVersion)
	require.ErrorContains(t, err, "version 2")
}

// What a checkpoint costs where nothing waits for the disk.
func BenchmarkCheckpoint(b *testing.B) {
	p, err := Open(fakeDir, PlaneOptions{FS: vfs.NewMem(), SyncInterval: -1})
	require.NoError(b, err)
	defer p.Close()
	require.NoError(b, setUp(p, log.SyncByOS, 1))
	j, err := startFake(p, JobOptions{})
	require.NoError(b, err)
	require.NoError(b, j.checkpoint(1, 1))
	b.ReportAllocs()
	for b.Loop() {
		if err := j.checkpoint(1, 1); err != nil { // no input is left: the changelogs are written
			b.Fatal(err)
		}
		if j.s.Next()%1000 == 0 {
			if err := p.SyncAll(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
}
