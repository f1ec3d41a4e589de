package log

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// A worker that is woken works once more, however the wakes fall, and has a goroutine
// only meanwhile.
func TestWorkerWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls int
		var during func()
		w := newWorker(func() {
			calls++
			if during != nil {
				during()
			}
		})
		w.wake()
		synctest.Wait()
		require.Equal(t, 1, calls)
		require.Equal(t, idle, w.state.Load())

		during = func() {
			if calls == 2 {
				w.wake()
				w.wake()
				w.wake()
			}
		}
		w.wake()
		synctest.Wait()
		require.Equal(t, 3, calls, "wakes during the work make it begin once more, not three times")

		w.stop()
		w.wake()
		synctest.Wait()
		require.Equal(t, 3, calls)
	})
}

// Stop waits for what is under way, and nothing begins after it.
func TestWorkerStops(t *testing.T) {
	for range 1000 {
		var at atomic.Int64 // calls under way
		w := newWorker(func() {
			at.Add(1)
			runtime.Gosched()
			at.Add(-1)
		})
		var wakes sync.WaitGroup
		for range 2 {
			wakes.Go(w.wake)
		}
		w.stop()
		require.Zero(t, at.Load())
		wakes.Wait()
		require.Zero(t, at.Load())
	}
}

// Partitions with nothing to do have no goroutine, whatever their sync policy.
func TestIdlePartitionsHaveNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustOpen(t, small(vfs.NewMem()))
		none := runtime.NumGoroutine()
		for name, policy := range map[string]Sync{"os": SyncByOS, "always": SyncAlways, "every": SyncEvery(time.Second)} {
			require.NoError(t, l.Create(name, TopicSpec{Partitions: 20, Sync: policy}))
		}
		for p := range l.Partitions() {
			_, err := p.AppendRecords(t.Context(), Record{Value: []byte("v")})
			require.NoError(t, err)
		}
		synctest.Wait()
		// Some goroutine of the test's surroundings may come or go.
		require.Less(t, runtime.NumGoroutine(), none+10)

		time.Sleep(time.Second)
		synctest.Wait()
		for p := range l.Partitions() {
			require.Equal(t, p.spec().Sync != SyncByOS, p.Durable() == 1, p.Name())
			require.False(t, p.armed.Load())
			require.Equal(t, idle, p.worker.state.Load())
		}
		require.NoError(t, l.Close())
	})
}

// A shorter interval counts from the moment it is set, also for what was appended
// before.
func TestSyncIntervalIsShortened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := single(t, small(vfs.NewMem()), SyncEvery(time.Hour))
		_, err := p.AppendRecords(t.Context(), Record{Value: []byte("v")})
		require.NoError(t, err)
		spec, _ := l.Spec(p.Name().Topic)
		spec.Sync = SyncEvery(time.Second)
		require.NoError(t, l.Alter(p.Name().Topic, spec))
		time.Sleep(time.Second + 1)
		synctest.Wait()
		require.EqualValues(t, 1, p.Durable())
		require.NoError(t, l.Close())
	})
}
