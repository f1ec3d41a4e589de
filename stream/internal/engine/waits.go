package engine

import "sync"

// Tasks that read in order wait for lanes, and tasks that send wait for credit of lanes. So
// they may come to wait for each other: one waits for a record of a sender, which waits
// for credit of a task that waits for a record of another sender, and so on around. None
// of them can go on then, and the sender with the oldest record is one of them.
//
// The tasks of a job with ordered ones therefore note what they wait for before they do.
// Who closes a circle gives the senders in it credit beyond the usual, a batch at a time:
// what the others wait for may be behind what the lane has no room for. That ends when
// lanes hold maxExtra batches more (as many records as these have room for, where checkpoints
// or a slow input make small ones), which is when keys are spread so that a lane gets
// nothing for very long, and time says nothing either: then the senders let the tasks behind
// their other lanes go on without them, and count it.

// maxExtra and maxExtraSmall bound the batches beyond its credits that a lane may hold, full
// ones and all.
const (
	maxExtra      = 64
	maxExtraSmall = 16 * maxExtra
)

// waits knows what the tasks of a job wait for.
type waits struct {
	mu sync.Mutex // taken before lane.mu
	of map[*Task]wait
}

// wait is what a task waits for: credit of one lane, or records of some.
type wait struct {
	credit heldLane
	lanes  []heldLane
	all    bool // of each of the lanes; otherwise one is enough
}

// heldLane is a lane whatever it carries.
type heldLane interface {
	ends() (sender, receiver *Task)
	empty() bool
	hasCredit() bool
	relieve()
}

// begin notes what t waits for from now on. What it waits for may have come meanwhile, so
// the caller still has to look at what wakes it.
func (w *waits) begin(t *Task, what wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[t] = what
	for _, l := range w.stuck(t) {
		l.relieve()
	}
}

func (w *waits) end(t *Task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.of, t)
}

// stuck returns the lanes without credit in the circle that t is in, if it is in one.
func (w *waits) stuck(t *Task) (lanes []heldLane) {
	reached := []*Task{t} // the waiting tasks that t waits for in the end
	seen := map[*Task]bool{t: true}
	for i := 0; i < len(reached); i++ {
		for other := range w.of[reached[i]].others {
			if _, waiting := w.of[other]; waiting && !seen[other] {
				seen[other] = true
				reached = append(reached, other)
			}
		}
	}
	free := make(map[*Task]bool, len(reached)) // those that will go on
	for changed := true; changed; {
		changed = false
		for _, r := range reached {
			if !free[r] && w.of[r].ends(func(other *Task) bool { return !seen[other] || free[other] }) {
				free[r], changed = true, true
			}
		}
	}
	if free[t] {
		return nil
	}
	for _, r := range reached {
		if l := w.of[r].credit; l != nil && !free[r] {
			lanes = append(lanes, l)
		}
	}
	return lanes
}

// others yields the tasks that are waited for.
func (w wait) others(yield func(*Task) bool) {
	if w.credit != nil {
		_, receiver := w.credit.ends()
		yield(receiver)
		return
	}
	for _, l := range w.lanes {
		if sender, _ := l.ends(); !yield(sender) {
			return
		}
	}
}

// ends tells whether the wait is over, or will be, given which others go on.
func (w wait) ends(goesOn func(*Task) bool) bool {
	if w.credit != nil {
		_, receiver := w.credit.ends()
		return w.credit.hasCredit() || goesOn(receiver)
	}
	going := 0
	for _, l := range w.lanes {
		if !l.empty() {
			return true
		}
		if sender, _ := l.ends(); goesOn(sender) {
			going++
		}
	}
	return len(w.lanes) == 0 || going == len(w.lanes) || !w.all && going > 0
}

// waitsFor is what the task waits for when it has nothing to do.
func (t *Task) waitsFor() (w wait) {
	switch {
	case t.stalled || t.pausing > 0: // for what is outside of tasks
	case len(t.awaited) > 0:
		w.lanes, w.all = t.awaited, true
	default:
		for _, in := range t.inputs {
			w.lanes = in.silent(w.lanes)
		}
	}
	return w
}
