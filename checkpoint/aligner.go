package checkpoint

// Aligner tells a task with several inputs when a barrier has come on all of them.
// An input that has delivered it must not be read further until then: what follows
// the barrier belongs to the next checkpoint.
//
//	aligned ──first barrier n──▶ aligning(n) ──barrier n or end on the last input──▶ aligned
//
// An input that has ended counts as having delivered every later barrier. Barriers of
// another attempt, and of checkpoints already aligned, are dropped. It is not for
// concurrent use.
//
// Invariant: while aligning, at least one input is neither blocked nor ended.
type Aligner struct {
	rules    rules
	last     ID // the barrier aligned last
	pending  ID // the barrier being aligned, when aligning
	aligning bool
	inputs   []inputState
	missing  int // inputs that are reading
}

type inputState uint8

const (
	inputReading inputState = iota
	inputBlocked            // has delivered the pending barrier
	inputEnded
)

// NewAligner returns an Aligner over inputs numbered from 0, all of them of the same
// attempt.
func NewAligner(inputs int) *Aligner { return newAligner(ID{}, inputs, rules{}) }

// newAligner returns an Aligner that expects what comes after checkpoint last.
func newAligner(last ID, inputs int, r rules) *Aligner {
	return &Aligner{rules: r, last: last, inputs: make([]inputState, inputs), missing: inputs}
}

// Barrier takes barrier n from an input and tells whether it aligns the task: then
// all inputs may be read again once the task has passed the barrier on.
func (a *Aligner) Barrier(input int, n int64) (aligned bool) {
	return a.barrier(input, ID{a.last.Attempt, n})
}

func (a *Aligner) barrier(input int, id ID) (aligned bool) {
	if id.N <= a.last.N || !same(id, ID{a.last.Attempt, id.N}, a.rules.alignNOnly) {
		return false
	}
	if a.aligning && id.N != a.pending.N {
		return false // one is in flight at a time
	}
	if !a.aligning {
		a.aligning, a.pending = true, ID{a.last.Attempt, id.N}
	}
	if a.inputs[input] == inputReading {
		a.inputs[input] = inputBlocked
		a.missing--
	}
	return a.complete()
}

// End says that an input has ended. That may align the task, as Barrier does: Last is
// then the barrier.
func (a *Aligner) End(input int) (aligned bool) {
	if a.inputs[input] == inputReading {
		a.missing--
	}
	a.inputs[input] = inputEnded
	return a.complete()
}

func (a *Aligner) complete() bool {
	if !a.aligning || a.missing > 0 {
		return false
	}
	a.aligning, a.last = false, a.pending
	for i, s := range a.inputs {
		if s == inputBlocked {
			a.inputs[i] = inputReading
			a.missing++
		}
	}
	return true
}

// Blocked tells whether an input has delivered the pending barrier and must wait.
func (a *Aligner) Blocked(input int) bool { return a.inputs[input] == inputBlocked }

// Aligning tells whether a barrier has come on some inputs and not on others. A task
// that chooses among its inputs then takes those not blocked.
func (a *Aligner) Aligning() bool { return a.aligning }

// Last is the number of the barrier aligned last, 0 before the first.
func (a *Aligner) Last() int64 { return a.last.N }
