package engine

import (
	"context"
	"time"
)

// What operators that call functions of the program need of the task besides.

// Now is the time of the node's clock.
func (t *Task) Now() time.Time { return t.job.o.Now() }

// Context ends with the attempt.
func (t *Task) Context() context.Context { return t.job.ctx }

// FailWith is Fail for a panic that was caught on its way, with its stack.
func (t *Task) FailWith(step int, err error, stack []byte) {
	if t.err == nil {
		t.err = t.failure(step, err, stack)
	}
}

// Skipped notes that a record is passed over because a function failed for it. The
// first one is logged.
func (t *Task) Skipped(step int, cause error, stack []byte) {
	if t.counters.Skipped+t.counters.DeadLetters > 0 {
		return
	}
	f := t.failure(step, cause, stack)
	t.job.o.Logger.Warn("stream: a record failed and is passed over; more are counted", "error", f, "stack", string(stack))
}

// Sleep waits, or until the attempt is over: then it is false. In a task that is
// stepped from outside it does not wait.
func (t *Task) Sleep(d time.Duration) bool {
	if t.stepped() || d <= 0 {
		return t.job.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.job.done:
		return false
	}
}
