package engine

import (
	"context"
	"sync"
)

// Calls are the calls of functions of the program that one step of a task has running
// beside the task. Only the task touches them, but for the fields that say otherwise.
//
// A step counts as pending what it has taken and not handed on yet, whatever its
// calls are at. With as many as its limit the task reads nothing more, and as long as
// there are any the task is not at rest and the job has not come to its end.
type Calls struct {
	t       *Task
	limit   int
	running int
	waiting []call
	pending int
	next    int64 // number of the record that comes next
	oldest  int64 // number of the oldest one pending; next where there is none

	mu       sync.Mutex // guards finished; a leaf
	finished []func()   // in the order in which they finished
}

// call is a function on its way: run beside the task, and then done by it.
type call struct {
	run  func(ctx context.Context)
	done func(err error)
}

// OpenCalls opens the calls of a step, limit at most at a time.
func (t *Task) OpenCalls(limit int) *Calls {
	c := &Calls{t: t, limit: limit}
	t.calls = append(t.calls, c)
	return c
}

// Start has run called on a goroutine of its own once fewer than the limit are running, and
// then done by the task: with nil, or with an error where run has ended its goroutine. Once
// the attempt is over, which ends ctx, done is not called any more. In a task that is stepped
// from outside the step calls both.
func (c *Calls) Start(run func(ctx context.Context), done func(err error)) {
	c.waiting = append(c.waiting, call{run, done})
}

// Pending says that n records are pending, the oldest of them number oldest, and that
// the next that comes is number next.
func (c *Calls) Pending(n int, oldest, next int64) {
	j, before := c.t.job, c.pending
	c.pending, c.oldest, c.next = n, oldest, next
	switch {
	case before == 0 && n > 0:
		j.calling.Add(1)
	case before > 0 && n == 0 && j.calling.Add(-1) == 0:
		j.signal()
	}
	c.t.pausing += pauses(n, c.limit) - pauses(before, c.limit)
}

func pauses(pending, limit int) int {
	if pending >= limit {
		return 1
	}
	return 0
}

// collect hands the results that are there to the step, and starts calls that wait.
func (c *Calls) collect() (worked bool) {
	if c.t.stepped() {
		return c.step()
	}
	c.mu.Lock()
	finished := c.finished
	c.finished = nil
	c.mu.Unlock()
	if c.t.job.ctx.Err() != nil { // they may have failed because of that
		return false
	}
	c.running -= len(finished)
	for i := 0; i < len(finished) && c.t.err == nil; i++ {
		c.t.moved()
		finished[i]()
	}
	for len(c.waiting) > 0 && c.running < c.limit && c.t.err == nil {
		c.running++
		c.launch(c.take(0))
		worked = true
	}
	return worked || len(finished) > 0
}

func (c *Calls) take(i int) call {
	next := c.waiting[i]
	copy(c.waiting[i:], c.waiting[i+1:])
	c.waiting[len(c.waiting)-1] = call{}
	c.waiting = c.waiting[:len(c.waiting)-1]
	return next
}

// launch runs a call on a goroutine of its own, which the end of the job waits for.
func (c *Calls) launch(next call) {
	t := c.t
	t.away.Add(1)
	t.job.wg.Go(func() {
		err := errGoexit
		defer func() {
			t.away.Add(-1)
			c.mu.Lock()
			c.finished = append(c.finished, func() { next.done(err) })
			c.mu.Unlock()
			t.Signal()
		}()
		next.run(t.job.ctx)
		err = nil
	})
}

// step makes one call, of those that could be running the one that is picked.
func (c *Calls) step() (worked bool) {
	n := min(len(c.waiting), c.limit)
	if n == 0 {
		return false
	}
	c.t.moved()
	next := c.take(c.t.job.pick(n))
	next.run(c.t.job.ctx)
	next.done(nil)
	return true
}

// collect lets the steps have the results of their calls.
func (t *Task) collect() (worked bool) {
	for _, c := range t.calls {
		if t.err != nil {
			break
		}
		worked = c.collect() || worked
	}
	return worked
}

// hasCalls tells whether a step has records pending.
func (t *Task) hasCalls() bool {
	for _, c := range t.calls {
		if c.pending > 0 {
			return true
		}
	}
	return false
}

// callProgress is how far the calls of a step were at a checkpoint.
type callProgress struct{ oldest, next int64 }

// reportCallsLocked says how far the calls of the task are at barrier n, which it has
// passed. Where some are pending n is not the job's last checkpoint.
func (j *Job) reportCallsLocked(t *Task, n int64) {
	for _, c := range t.calls {
		j.callsPending[c] = callProgress{c.oldest, c.next}
		if c.pending == 0 {
			continue
		}
		if j.notLast = n; j.endAt == n {
			j.endAt = 0
		}
	}
}

// awaitCalls waits until what is pending at the newest checkpoint is committed, and what
// of that leads to calls of other steps too.
func (j *Job) awaitCalls(await func(ok func() bool) error) error {
	for range j.callsCommitted {
		j.mu.Lock()
		targets := make(map[*Calls]int64)
		for c, at := range j.callsCommitted {
			if at.oldest < at.next {
				targets[c] = at.next
			}
		}
		j.mu.Unlock()
		if len(targets) == 0 {
			break
		}
		err := await(func() bool {
			j.mu.Lock()
			defer j.mu.Unlock()
			for c, next := range targets {
				if j.callsCommitted[c].oldest < next {
					return false
				}
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}
