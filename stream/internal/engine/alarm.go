package engine

import "time"

// alarm is what an operator wants to be told about the node's clock.
type alarm struct {
	next func() (ms int64, ok bool)
	ring func(now int64)
}

// OnTime has the task call ring when the node's clock has come to what next says, in ms
// since the epoch. Both are called by the task, between two pieces of work.
func (t *Task) OnTime(next func() (ms int64, ok bool), ring func(now int64)) {
	t.alarms = append(t.alarms, alarm{next, ring})
}

// ring rings the alarms that are due.
func (t *Task) ring() (rang bool) {
	if len(t.alarms) == 0 {
		return false
	}
	now := t.job.o.Now().UnixMilli()
	for _, a := range t.alarms {
		if ms, ok := a.next(); ok && ms <= now && t.err == nil {
			t.moved()
			a.ring(now)
			rang = true
		}
	}
	return rang
}

// untilAlarm is how long the task may wait before it has to look at the clock again;
// ok is false where nothing is set.
func (t *Task) untilAlarm() (d time.Duration, ok bool) {
	if t.stalled { // until a checkpoint completes
		return 0, false
	}
	var first int64
	for _, a := range t.alarms {
		if ms, set := a.next(); set && (!ok || ms < first) {
			first, ok = ms, true
		}
	}
	if !ok {
		return 0, false
	}
	// A clock set back, or a time far off, is looked at again now and then.
	const look = time.Minute
	left := first - t.job.o.Now().UnixMilli()
	return time.Duration(min(max(left, 0), look.Milliseconds())) * time.Millisecond, true
}

// await waits for news, or until an alarm is due.
func (t *Task) await() {
	var clock <-chan time.Time
	if d, ok := t.untilAlarm(); ok {
		timer := time.NewTimer(d)
		defer timer.Stop()
		clock = timer.C
	}
	select {
	case <-t.wake:
	case <-clock:
	case <-t.job.done:
	}
}
