package stream_test

import (
	"cmp"
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
)

var everyOp = flag.Int("every", 17, "stop the job at one in so many file operations; 1 is all")

// A job that ends at any one file operation (write, mapped write, allocation, sync,
// rename, truncation) goes on from there to the results of one that ran through: after
// kill -9 whatever the sync policy, and after a power cut that keeps, drops or tears
// the pages not synced where every append is.
func TestStoppedAtEveryFileOperation(t *testing.T) {
	stopEverywhere(t, func(sync log.Sync) bounded {
		k := newKilled(sync)
		k.records, k.batch = 400, 4
		return bounded{fill: k.fill, check: k.check, topology: func() *stream.Topology { return k.topology(time.Second) }}
	})
}

// bounded is a job that comes to an end, its input and what it must give.
type bounded struct {
	fill     func(t *testing.T, n testNode)
	topology func() *stream.Topology
	check    func(t *testing.T, n testNode)
	pick     func(n int) int // see Env.Pick; may be nil
	steps    int             // between checkpoints; 0 is ten

	begin func()                         // before each history, which may be of several runs; may be nil
	now   func() time.Time               // the node's clock; nil is the system's
	drive func(job *stream.Manual) error // takes a job that has no end of its own to where it is checked; else nil
}

// stopEverywhere stops what make makes at one in everyOp file operations, and has it go on.
func stopEverywhere(t *testing.T, make func(sync log.Sync) bounded) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for name, c := range map[string]struct {
		sync  log.Sync
		crash func(*vfs.Mem, uint64) *vfs.Mem
	}{
		"kill":                          {log.SyncByOS, func(fs *vfs.Mem, _ uint64) *vfs.Mem { return fs.Kill() }},
		"power cut, synced each append": {log.SyncAlways, func(fs *vfs.Mem, seed uint64) *vfs.Mem { return fs.Crash(seed) }},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			b := make(c.sync)
			if b.begin == nil {
				b.begin = func() {}
			}
			base := vfs.NewMem()
			n := openNode(t, base)
			b.fill(t, n)
			require.NoError(t, n.plane.Close())

			b.begin()
			whole := base.Kill()
			require.True(t, b.runManually(whole))
			total := whole.Ops()
			t.Logf("%d operations", total)
			require.Greater(t, total, int64(50))
			step := int64(*everyOp)
			for stop := 1 + rng.Int64N(step); stop <= total; stop += step {
				fs := base.Kill()
				fs.StopAt(stop)
				b.begin()
				b.runManually(fs)
				fs = c.crash(fs, rng.Uint64())
				require.True(t, b.runManually(fs), "after a stop at operation %d", stop)
				n := openNode(t, fs.Kill())
				b.check(t, n)
				require.NoError(t, n.plane.Close())
			}
		})
	}
}

// runManually runs the job in one goroutine with a checkpoint every few steps, and
// tells whether it came to its end.
func (b bounded) runManually(fs *vfs.Mem) (ended bool) {
	o := checkpoint.PlaneOptions{FS: fs, SyncInterval: -1}
	o.Log.SegmentBytes, o.Log.MaxBatchBytes = 32<<10, 256<<10
	plane, err := checkpoint.Open("node", o)
	if err != nil {
		return false
	}
	defer plane.Close()
	job, err := stream.StartManual(context.Background(), stream.Env{Plane: plane, Backend: state.Memory(), StateDir: "state", Pick: b.pick, Now: b.now}, b.topology())
	if err != nil {
		return false
	}
	defer job.Kill()
	if b.drive != nil {
		return b.drive(job) == nil
	}
	for i := 1; !job.Ended(); i++ {
		if _, err := job.Step(); err != nil {
			return false
		}
		if i%cmp.Or(b.steps, 10) == 0 {
			job.Trigger()
		}
		if i%40 == 0 {
			if err := plane.SyncAll(context.Background()); err != nil {
				return false
			}
		}
	}
	return true
}

// killAtRandom runs what make makes with a goroutine for each task, and kills it several times.
func killAtRandom(t *testing.T, make func(sync log.Sync) bounded) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	b, fs := make(log.SyncByOS), vfs.NewMem()
	n := openNode(t, fs)
	b.fill(t, n)
	topology := func() *stream.Topology { return b.topology().Checkpoint(checkpoint.Every(time.Millisecond)) }
	for range rounds(2, 6) {
		job := n.start(t, topology())
		select {
		case <-time.After(time.Duration(rng.IntN(int(20 * time.Millisecond)))):
		case <-job.Done():
		}
		image := fs.Kill()
		n.abandon(job)
		fs = image
		n = openNode(t, fs)
	}
	require.NoError(t, n.start(t, topology()).Wait())
	b.check(t, n)
	require.NoError(t, n.plane.Close())
}
