package engine

import (
	"context"
	"slices"
)

// backlogged tells whether a sink outside is so far behind that the job's sources have to wait
// for it. They are woken when it is not any more.
func (j *Job) backlogged() bool {
	if !j.farBehind() {
		return false
	}
	j.waiting.Store(true)
	return j.farBehind() // a delivery that came further before has not seen waiting
}

func (j *Job) farBehind() bool {
	return slices.ContainsFunc(j.deliveries, func(d *Delivery) bool { return d.behind() > int64(d.o.Backlog) })
}

// delivered takes note that a delivery has come further: sources that waited for it may go
// on, and when all of them have ended a checkpoint is to name it.
func (j *Job) delivered() {
	if j.waiting.Load() && !j.farBehind() && j.waiting.CompareAndSwap(true, false) {
		for _, t := range j.tasks {
			t.Signal()
		}
	}
	if j.sourcesEnded() {
		j.requestCheckpoint()
	}
}

// pauseDeliveries has the sinks outside finish what they are at and nothing more.
func (j *Job) pauseDeliveries(ctx context.Context) (paused []*Delivery) {
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	for _, d := range j.deliveries {
		if d.pause(ctx) {
			paused = append(paused, d)
		}
	}
	return paused
}

// commitDeliveries has paused two-phase sinks commit what the last checkpoint named. Where
// one does not agree at once the next attempt sees to it.
func commitDeliveries(ctx context.Context, paused []*Delivery) {
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	for _, d := range paused {
		d.commitNow(ctx)
	}
}
