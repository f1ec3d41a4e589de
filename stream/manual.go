package stream

import (
	"context"
)

// Manual is a job without goroutines, which streamtest steps in virtual time.
type Manual struct{ *Job }

// StartManual starts app for a test: nothing happens but in calls of the result.
func StartManual(ctx context.Context, env Env, app *Topology) (*Manual, error) {
	env.Manual = true
	j, err := Start(ctx, env, app)
	if err != nil {
		return nil, err
	}
	return &Manual{j}, nil
}

// Step lets every task do one piece of work, or with Env.Pick one task, and tells whether there
// was any.
func (m *Manual) Step() (worked bool, err error) { return m.inner.Step() }

// Ended tells whether a bounded run has committed all it will.
func (m *Manual) Ended() bool { return m.inner.Ended() }

// Settle lets every task work until none has anything to do, or one fails.
func (m *Manual) Settle() error {
	for {
		worked, err := m.inner.Step()
		if err != nil || !worked {
			return err
		}
	}
}

// Trigger starts a checkpoint; it completes in Settle.
func (m *Manual) Trigger() { m.inner.Trigger() }

// Advance moves the watermark of every source partition to w, in ms since the epoch.
func (m *Manual) Advance(w int64) { m.inner.Advance(w) }

// Kill ends the job where it is.
func (m *Manual) Kill() { m.inner.Kill() }
