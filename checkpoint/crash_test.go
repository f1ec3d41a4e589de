package checkpoint

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
)

var (
	crashEvery = flag.Int64("crash.every", 9, "stop at every nth file operation only, from a random one on")
	crashSeed  = flag.Uint64("crash.seed", 0, "seed of the crash tests; 0 picks one")
)

// history is what a life of the process was told.
type history struct {
	acked  [2]int // records read in the newest checkpoint completed
	synced int    // of those of task 0, in the newest that waited for the disk
}

// policy is a choice of sync policies.
type policy struct {
	in, out, changelog log.Sync
	quiet              bool // task 1 writes to a topic that never waits for the disk
}

// strict tells whether a power cut may take nothing that was completed.
func (p policy) strict() bool { return p.out == log.SyncAlways && !p.quiet }

const crashRecords = 8

func (p policy) setUp(pl *Plane) error {
	for topic, sync := range map[string]log.Sync{"in": p.in, "out": p.out, "changelog": p.changelog, "quiet": log.SyncByOS} {
		if topic == "quiet" && !p.quiet {
			continue
		}
		if err := pl.Log().Create(topic, log.TopicSpec{Partitions: 2, Sync: sync}); err != nil {
			return err
		}
	}
	for i := range 2 {
		in, err := pl.Log().Partition(part("in", i))
		if err != nil {
			return err
		}
		for k := int(in.End().Offset); k < crashRecords; k++ {
			if _, err := in.AppendRecords(context.Background(), log.Record{Value: number(k)}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p policy) start(pl *Plane) (*fakeJob, error) {
	j, err := startFake(pl, JobOptions{Synchronous: true})
	if err == nil {
		j.quiet = p.quiet
	}
	return j, err
}

// live is a life of the process with all a job can do, until something fails.
func live(fs vfs.FS, pol policy, h *history) (err error) {
	p, err := openPlane(fs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := pol.setUp(p); err != nil {
		return err
	}
	j, err := pol.start(p)
	if err != nil {
		return err
	}
	step := func(do func() error) {
		if err == nil {
			err = do()
		}
	}
	checkpoint := func(a, b int) func() error {
		return func() error {
			if err := j.checkpoint(a, b); err != nil {
				return err
			}
			h.acked = [2]int{j.tasks[0].next, j.tasks[1].next}
			if a > 0 && pol.out == log.SyncAlways {
				h.synced = j.tasks[0].next
			}
			return nil
		}
	}
	step(checkpoint(2, 1))
	step(checkpoint(1, 0))
	step(func() error { return p.SyncAll(context.Background()) })
	step(checkpoint(0, 2))
	step(checkpoint(0, 1)) // waits for nothing where only the first task's output is synced
	step(checkpoint(1, 1))
	step(func() error { return p.cut(context.Background(), true) })
	step(checkpoint(1, 0))
	step(func() error { return j.work(0, 1) })
	step(func() error { return j.s.Close() }) // aborts
	step(func() error {
		id, err := p.AcquireProducer(context.Background())
		if err != nil {
			return err
		}
		return p.ReleaseProducer(id)
	})
	step(func() error {
		j, err = pol.start(p)
		return err
	})
	step(checkpoint(1, 1))
	step(checkpoint(100, 100))
	return err
}

// After a stop at any file operation, and a second one during recovery, what was
// acknowledged is there, nothing is open or half there, and the job ends with the
// results of an undisturbed one. Only a power cut under SyncByOS may repeat
// results, and then the job says so.
func TestStopAtEveryFileOperation(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d (-crash.seed)", seed)
	every := *crashEvery
	if testing.Short() {
		every *= 4
	}
	for name, pol := range map[string]policy{
		"by the operating system":   {},
		"always":                    {in: log.SyncAlways, out: log.SyncAlways, changelog: log.SyncAlways},
		"only the output is synced": {out: log.SyncAlways},
		"only one task is synced":   {out: log.SyncAlways, quiet: true},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			require.NoError(t, live(fs, pol, &history{}))
			total := fs.Ops()
			fellBack, runs := 0, 0
			random := rand.New(rand.NewPCG(seed, uint64(total)))
			for n := 1 + random.Int64N(every); n <= total; n += every {
				for _, powerCut := range []bool{false, true} {
					runs++
					fell, err := stopAt(n, pol, powerCut, rand.New(rand.NewPCG(seed, uint64(n))))
					if err != nil {
						t.Fatalf("seed %d, stopped at operation %d of %d, power cut %v: %v", seed, n, total, powerCut, err)
					}
					if fell {
						fellBack++
					}
				}
			}
			t.Logf("%d operations, %d runs, %d fell back", total, runs, fellBack)
			if pol.strict() {
				require.Zero(t, fellBack)
			}
		})
	}
}

func stopAt(n int64, pol policy, powerCut bool, random *rand.Rand) (fell bool, err error) {
	fs := vfs.NewMem()
	fs.StopAt(n)
	h := &history{}
	_ = live(fs, pol, h)
	after := func() {
		if powerCut {
			fs.WriteBack(random.Uint64())
			fs = fs.Crash(random.Uint64())
		} else {
			fs = fs.Kill()
		}
	}
	after()
	if random.IntN(2) == 0 {
		// Recovery is stopped as well.
		fs.StopAt(1 + random.Int64N(60))
		if p, err := openPlane(fs); err == nil {
			if err := pol.setUp(p); err == nil {
				_, _ = pol.start(p)
			}
			fs.Stop()
			_ = p.Close()
		}
		after()
	}
	exact := pol.strict() || !powerCut
	return verifyRecovery(fs, pol, h, exact)
}

// verifyRecovery opens what a stop left and finishes the job.
func verifyRecovery(fs *vfs.Mem, pol policy, h *history, exact bool) (fell bool, err error) {
	p, err := openPlane(fs)
	if err != nil {
		return false, err
	}
	defer func() {
		if p != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if err := nothingOpen(p); err != nil {
		return false, err
	}
	if err := pol.setUp(p); err != nil {
		return false, err
	}
	before, err := committedOutput(p)
	if err != nil {
		return false, err
	}
	j, err := pol.start(p)
	if err != nil {
		return false, err
	}
	from, fell := j.s.FellBack()
	id, _ := j.s.Restored()
	next := [2]int{j.tasks[0].next, j.tasks[1].next}
	done := outputOf(next)
	if exact {
		if fell {
			return fell, fmt.Errorf("fell back from %v to %v", from, id)
		}
		if next[0] < h.acked[0] || next[1] < h.acked[1] {
			return fell, fmt.Errorf("checkpoint %v has read %v, %v was acknowledged", id, next, h.acked)
		}
		if !slices.Equal(before, done) {
			return fell, fmt.Errorf("checkpoint %v has read %v, the committed output is %v", id, next, before)
		}
	}
	if next[0] < h.synced {
		return fell, fmt.Errorf("checkpoint %v has read %d records of input 0, %d were synced", id, next[0], h.synced)
	}
	repeats := slices.ContainsFunc(before, func(v int) bool { return !slices.Contains(done, v) })
	if repeats && !fell {
		return fell, fmt.Errorf("results %v after checkpoint %v at %v are committed, and nothing says so", before, id, next)
	}
	for _, v := range done {
		if !slices.Contains(before, v) {
			return fell, fmt.Errorf("result %d of checkpoint %v is missing from %v", v, id, before)
		}
	}

	// What the attempt completes stands on what it started from, also of tasks that
	// do not move, and for the next process.
	if err := j.checkpoint(1, 0); err != nil {
		return fell, err
	}
	next = [2]int{j.tasks[0].next, j.tasks[1].next}
	killed := fs.Kill()
	fs.Stop()
	_ = p.Close()
	if p, err = openPlane(killed); err != nil {
		return fell, err
	}
	if j, err = pol.start(p); err != nil {
		return fell, err
	}
	if again, fell := j.s.FellBack(); fell {
		return fell, fmt.Errorf("after a killed process, checkpoint %v is said to be lost", again)
	}
	if got := [2]int{j.tasks[0].next, j.tasks[1].next}; got != next {
		return fell, fmt.Errorf("the next process restores %v, %v was complete", got, next)
	}
	if err := j.checkpoint(1, 1); err != nil {
		return fell, err
	}
	if err := j.checkpoint(100, 100); err != nil {
		return fell, err
	}
	if err := nothingOpen(p); err != nil {
		return fell, err
	}
	all, err := committedOutput(p)
	if err != nil {
		return fell, err
	}
	want := outputOf([2]int{crashRecords, crashRecords})
	if exact && !slices.Equal(all, want) {
		return fell, fmt.Errorf("the output is %v", all)
	}
	if pol.quiet {
		// What waits for the disk is exact whatever happens to the rest.
		synced := slices.DeleteFunc(slices.Clone(all), func(v int) bool { return v >= 1000 })
		if !slices.Equal(synced, want[:crashRecords]) {
			return fell, fmt.Errorf("the synced output is %v", synced)
		}
	}
	if !slices.Equal(slices.Compact(all), want) {
		return fell, fmt.Errorf("the output is %v", all)
	}
	for i := range j.tasks {
		counts, err := readAll(p, part("changelog", i), log.ReadCommitted, -1)
		if err != nil {
			return fell, err
		}
		if !slices.IsSorted(counts) || counts[len(counts)-1] != crashRecords {
			return fell, fmt.Errorf("the committed changelog of task %d is %v", i, counts)
		}
	}
	return fell, nil
}

func nothingOpen(p *Plane) error {
	for pt := range p.Log().Partitions() {
		if open := pt.OpenTransactions(); len(open) > 0 {
			return fmt.Errorf("transaction %d of %v is open", open[0].ID-firstBlock, pt.Name())
		}
	}
	return nil
}
