package stream

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/stream/internal/engine"
)

// Evolution is what becomes of the state of a job when a topology takes the place of the
// one its newest checkpoint is of. State is found by the names of steps.
type Evolution struct {
	Job  string
	From checkpoint.ID // the checkpoint; the zero value for a job that has not run

	// Savepoint is the name of the job whose savepoint the job begins with; empty where it does
	// not. From is the checkpoint that is of.
	Savepoint string

	Kept    []StepState // goes on from its state
	New     []StepState // begins without state, at the place in the input where the job is
	Dropped []StepState // has state and no step: it stays in the log, and is found again by a step of that name

	// Incompatible are steps whose state cannot be used as they are now. The topology is
	// not started.
	Incompatible []StepState
}

// StepState is the state of a step.
type StepState struct {
	Name   string // of the step, and of the part of its state where it has several
	Line   string // file:line of the step; empty where there is none any more
	Shards int    // of the state there is; 0 where there is none
	Reason string // why it is incompatible, and the way out
}

// Changed tells whether something is not as it was.
func (e Evolution) Changed() bool {
	return e.From != (checkpoint.ID{}) && len(e.New)+len(e.Dropped)+len(e.Incompatible) > 0
}

// String has a line for each state.
func (e Evolution) String() string {
	var b strings.Builder
	if e.From == (checkpoint.ID{}) {
		fmt.Fprintf(&b, "job %s runs for the first time\n", e.Job)
	} else {
		fmt.Fprintf(&b, "job %s from checkpoint %v", e.Job, e.From)
		if e.Savepoint != "" {
			fmt.Fprintf(&b, " of job %s, a savepoint", e.Savepoint)
		}
		b.WriteString("\n")
	}
	for _, part := range []struct {
		what   string
		states []StepState
	}{{"kept", e.Kept}, {"new", e.New}, {"dropped", e.Dropped}, {"incompatible", e.Incompatible}} {
		for _, s := range part.states {
			fmt.Fprintf(&b, "  %-12s %s", part.what, s.Name)
			if s.Line != "" {
				fmt.Fprintf(&b, " (%s)", s.Line)
			}
			if s.Reason != "" {
				fmt.Fprintf(&b, ": %s", s.Reason)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// IncompatibleError says that a topology cannot go on from the state of the job as it is. Nothing
// was changed: the topology that ran before still can.
type IncompatibleError struct{ Evolution Evolution }

func (e *IncompatibleError) Error() string {
	var texts []string
	for _, s := range e.Evolution.Incompatible {
		texts = append(texts, fmt.Sprintf("step %q (%s): %s", s.Name, s.Line, s.Reason))
	}
	return fmt.Sprintf("stream: job %q: the topology does not fit the state of %v: %s", e.Evolution.Job, e.Evolution.From, strings.Join(texts, "; "))
}

// Compare tells what would become of the state of app's job if app were started now, as far
// as names and shards tell; that values are stored as another type is found when it is
// started. Programs call Node.Compare.
func Compare(env Env, app *Topology) (Evolution, error) {
	if err := app.Validate(); err != nil {
		return Evolution{}, err
	}
	r := &run{app: app, env: env, stages: app.stages()}
	r.countMoves()
	if err := r.size(r.stages); err != nil {
		return Evolution{}, err
	}
	return r.evolution(), nil
}

// Evolution is what became of the state of the job when it was started.
func (j *Job) Evolution() Evolution { return j.evolved }

// evolution compares the stores of the stages, which have their sizes, with those that the
// newest checkpoint names.
func (r *run) evolution() Evolution {
	e := Evolution{Job: r.app.name}
	id, changelogs, known := r.env.Plane.JobState(r.app.name)
	if known {
		e.From = id
	}
	shards := make(map[string]int) // by topic
	if r.importing() {
		e.From, e.Savepoint, changelogs = r.app.from.Checkpoint(), r.app.from.Job(), nil
		for _, s := range r.app.from.index.stores {
			shards[internalTopic(r.app.name, s.name, "changelog")] = len(s.shards)
		}
	}
	for tp := range changelogs {
		shards[tp.Topic] = max(shards[tp.Topic], int(tp.Partition)+1)
	}
	own := make(map[string]bool)
	for _, st := range r.stages {
		if s := st.deliver(); s != nil {
			own[s.name] = true
		}
		for _, d := range st.stores {
			name := r.changelog(d)
			own[d.name()] = true
			s := StepState{Name: d.name(), Line: d.step.line, Shards: shards[name]}
			if n := r.movesFrom(d); n > 0 {
				s.Shards = n
			}
			switch reason := r.misfits[d]; {
			case reason != "":
				s.Reason = reason
				e.Incompatible = append(e.Incompatible, s)
			case s.Shards > 0:
				e.Kept = append(e.Kept, s)
			default:
				e.New = append(e.New, s)
			}
		}
	}
	for name, n := range shards {
		if step, ok := stepOf(r.app.name, name); ok && !own[step] {
			e.Dropped = append(e.Dropped, StepState{Name: step, Shards: n})
		}
	}
	for _, states := range [][]StepState{e.Kept, e.New, e.Dropped, e.Incompatible} {
		slices.SortFunc(states, func(a, b StepState) int { return strings.Compare(a.Name, b.Name) })
	}
	return e
}

// stepOf is the step that a topic of a job belongs to.
func stepOf(job, name string) (step string, ok bool) {
	if step, ok = strings.CutPrefix(name, internalPrefix(job)); ok {
		step, ok = cutLast(step, "-")
	}
	return step, ok
}

func cutLast(s, sep string) (before string, ok bool) {
	i := strings.LastIndex(s, sep)
	return s[:max(i, 0)], i > 0
}

// unreadable adds to the evolution the stores whose values cannot be read, and makes an error
// of it.
func (e Evolution) unreadable(app *Topology, err error) error {
	var stores *engine.UnreadableError
	if !errors.As(err, &stores) {
		return err
	}
	for step, cause := range stores.Steps {
		s := app.steps[step]
		at := slices.IndexFunc(e.Kept, func(k StepState) bool { return k.Name == s.name })
		state := StepState{Name: s.name, Line: s.line}
		if at >= 0 {
			state = e.Kept[at]
			e.Kept = slices.Delete(slices.Clone(e.Kept), at, at+1)
		}
		state.Reason = cause.Error()
		e.Incompatible = append(e.Incompatible, state)
	}
	slices.SortFunc(e.Incompatible, func(a, b StepState) int { return strings.Compare(a.Name, b.Name) })
	return &IncompatibleError{e}
}

// logTo tells what has changed.
func (e Evolution) logTo(env Env) {
	if !e.Changed() {
		return
	}
	names := func(states []StepState) (names []string) {
		for _, s := range states {
			names = append(names, s.Name)
		}
		return names
	}
	env.Logger.Info("stream: the topology has changed", "job", e.Job, "checkpoint", e.From.String(),
		"kept", names(e.Kept), "new", names(e.New), "dropped", names(e.Dropped))
}
