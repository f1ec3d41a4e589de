package checkpoint

import "maps"

// coordinator runs the checkpoints of one attempt, one at a time.
//
//	idle ──trigger──▶ collecting ──last report──▶ committing ──committed──▶ idle
//	                                                 ▲  │ outcome unknown
//	                                                 └──┘
//	any ──fail──▶ over
//
// Invariants:
//
//	at most one checkpoint is in flight: state is collecting or committing
//	reports holds at most one report per task, all of checkpoint (attempt, n)
//	a checkpoint that cannot complete ends the attempt, for what it wrote cannot
//	be carried into the next
type coordinator struct {
	rules   rules
	tasks   map[TaskID]struct{} // never changed: clones share it
	attempt int64
	n       int64 // the checkpoint in flight, or the last one
	state   coordinatorState
	reports map[TaskID]Report
}

type coordinatorState uint8

const (
	coordinatorIdle       coordinatorState = iota
	coordinatorCollecting                  // barrier n is out
	coordinatorCommitting                  // Complete is proposed
	coordinatorOver                        // nothing more will complete
)

func (s coordinatorState) String() string {
	return [...]string{"idle", "collecting", "committing", "over"}[s]
}

// outcome is what became of a proposed entry.
type outcome uint8

const (
	outcomeUnknown  outcome = iota // the reply is lost: the entry may be there or not, now or later
	outcomeAccepted                // by this proposal or an earlier one
	outcomeRejected
)

func newCoordinator(attempt, last int64, tasks []TaskID, r rules) *coordinator {
	c := &coordinator{rules: r, attempt: attempt, n: last, tasks: map[TaskID]struct{}{}, reports: map[TaskID]Report{}}
	for _, t := range tasks {
		c.tasks[t] = struct{}{}
	}
	return c
}

// id is the checkpoint in flight, or the last one.
func (c *coordinator) id() ID { return ID{c.attempt, c.n} }

// trigger begins the next checkpoint; ok is false while one is in flight. The caller
// then sends barrier id to every source task.
func (c *coordinator) trigger() (id ID, ok bool) {
	if c.state != coordinatorIdle {
		return ID{}, false
	}
	c.n++
	c.state = coordinatorCollecting
	return c.id(), true
}

// report takes a task's report and tells whether it was the last one missing: then
// everything written has to become durable and Complete is to be proposed. A report
// of another checkpoint, of another attempt, of a stranger, or a repeated one
// changes nothing.
func (c *coordinator) report(id ID, task TaskID, r Report) (all bool) {
	if _, mine := c.tasks[task]; !mine || c.state != coordinatorCollecting || !same(id, c.id(), c.rules.compareNOnly) {
		return false
	}
	if _, repeated := c.reports[task]; repeated {
		return false
	}
	c.reports[task] = r
	if len(c.reports) < len(c.tasks) {
		return false
	}
	c.state = coordinatorCommitting
	return true
}

// moved returns the reports that belong into Complete: those of tasks where
// something moved.
func (c *coordinator) moved() map[TaskID]Report {
	moved := maps.Clone(c.reports)
	maps.DeleteFunc(moved, func(_ TaskID, r Report) bool { return !r.Moved })
	return moved
}

// committed takes the outcome of the proposed Complete. again says to propose the
// same entry once more, done that the checkpoint is complete and the tasks may be
// told. When both are false the answer is of another checkpoint, or the attempt is
// over.
func (c *coordinator) committed(id ID, o outcome) (again, done bool) {
	if c.state != coordinatorCommitting || !same(id, c.id(), c.rules.compareNOnly) {
		return false, false
	}
	switch o {
	case outcomeUnknown:
		return true, false
	case outcomeRejected:
		c.fail()
		return false, false
	}
	c.state = coordinatorIdle
	clear(c.reports)
	return false, true
}

// fail ends the attempt on this side. It reports false when it was over already.
func (c *coordinator) fail() bool {
	was := c.state
	c.state = coordinatorOver
	clear(c.reports)
	return was != coordinatorOver
}

func (c *coordinator) clone() *coordinator {
	d := *c
	d.reports = maps.Clone(c.reports)
	return &d
}
