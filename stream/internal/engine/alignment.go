package engine

import (
	"math"
	"sync"

	"github.com/thalweg/thalweg/window"
)

// alignment keeps the sources of a job together that are to be aligned: one that is too far
// ahead of the slowest waits. Sources join it when they are opened, and use it after.
type alignment struct {
	mu      sync.Mutex // guards the fields below; a leaf
	members []*aligned
	merge   *window.Merge // their watermarks; nil until one is used
}

// aligned is the place of a source in an alignment.
type aligned struct {
	in     *alignment
	task   *Task
	within window.Alignment
	number int
	waits  bool // the task is to be signalled when it need not wait any more; guarded by in.mu
}

// align has a source of the task join the job's alignment; nil where nothing bounds it.
func (t *Task) align(within window.Alignment) *aligned {
	if within.Drift <= 0 {
		return nil
	}
	in := &t.job.aligned
	m := &aligned{in: in, task: t, within: within, number: len(in.members)}
	in.members = append(in.members, m)
	return m
}

// check tells whether the source has to wait, and the watermark up to which it need not ask
// again.
func (m *aligned) check() (waits bool, limit int64) {
	in := m.in
	in.mu.Lock()
	defer in.mu.Unlock()
	in.prepare()
	m.waits = in.merge.Waits(m.number, m.within)
	slowest := in.merge.Slowest()
	if slowest == window.Unknown || m.waits {
		return m.waits, math.MinInt64
	}
	return false, m.within.Limit(slowest)
}

// observe takes the watermark of the source, which has read something.
func (m *aligned) observe(w int64) {
	m.change(func(all *window.Merge) { all.Observe(m.number, w) })
}

// idle takes the source out until it is observed.
func (m *aligned) idle() { m.change(func(all *window.Merge) { all.Idle(m.number) }) }

// change changes the watermarks and wakes the tasks that need not wait any more.
func (m *aligned) change(f func(*window.Merge)) {
	in := m.in
	in.mu.Lock()
	defer in.mu.Unlock()
	in.prepare()
	f(in.merge)
	for _, other := range in.members {
		if other.waits && !in.merge.Waits(other.number, other.within) {
			other.waits = false
			other.task.Signal()
		}
	}
}

func (in *alignment) prepare() {
	if in.merge == nil {
		in.merge = window.NewMerge(len(in.members))
	}
}
