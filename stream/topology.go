package stream

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// DefaultIdleAfter is how long a source partition may be silent before it no longer
// holds back the watermark.
const DefaultIdleAfter = 5 * time.Second

// Topology is a pipeline as declared: a description, which runs nowhere by itself.
// It is not for concurrent use while it is being built, and is not changed after.
type Topology struct {
	name       string
	line       string // file:line of New
	steps      []*step
	codecs     codec.Registry
	checkpoint checkpoint.Config
	startAt    topic.Position
	stopAt     *topic.Position
	idleAfter  time.Duration
	disorder   time.Duration
	skip       bool // what was deleted before it was read
	onError    ErrorPolicy
	tasks      int        // of a stage behind a shuffle; 0 takes what there is
	from       *Savepoint // where a job begins that has not run
	faults     []Fault
}

// New begins a topology. The name owns its state, its checkpoints and its positions:
// the same name on the same node continues where it was. Letters, digits, '.', '_'
// and '-' are allowed, up to 100 of them.
func New(name string) *Topology {
	app := &Topology{name: name, line: callerLine(), startAt: topic.Start(), idleAfter: DefaultIdleAfter}
	if !validName.MatchString(name) {
		app.faults = append(app.faults, Fault{Step: name, Line: app.line, Problem: "invalid name of a job: use 1 to 100 letters, digits, '.', '_' and '-'"})
	}
	return app
}

var validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$`)

// Name is the name given to New.
func (app *Topology) Name() string { return app.name }

// Topics returns the names of the topics the topology reads and writes, internal
// ones aside.
func (app *Topology) Topics() (read, written []string) {
	for _, s := range app.steps {
		switch {
		case s.source != nil && s.source.feed != nil:
		case s.source != nil:
			read = append(read, s.source.topic)
		case s.global != nil:
			read = append(read, s.global.topic)
		case s.sink != nil:
			written = append(written, s.sink.topic)
		}
	}
	for _, t := range app.deadLetters() {
		written = append(written, t.Name())
	}
	return read, written
}

// ReadsIntoState returns the names of the topics that feed a stateful step without a
// shuffle: each of their partitions has a shard of the state.
func (app *Topology) ReadsIntoState() (topics []string) {
	for _, st := range app.stages() {
		for _, s := range st.sources() {
			if len(st.stores) > 0 {
				topics = append(topics, s.source.topic)
			}
		}
	}
	return topics
}

// Use makes c the codec of every T inside the topology: in state, changelogs and
// exchanges. Topics keep their own codecs.
func (app *Topology) Use[T any](c codec.Codec[T]) *Topology {
	app.codecs.Use(c)
	return app
}

// Checkpoint sets how often results are committed, and how.
func (app *Topology) Checkpoint(c checkpoint.Config) *Topology {
	app.checkpoint = c
	if err := c.Err(); err != nil {
		app.fault("checkpoint", err.Error())
	}
	return app
}

// StartAt sets where the job begins to read when it runs for the first time; the
// default is the beginning. Later it continues where it was. A partition added to
// a topic later is read from its beginning.
func (app *Topology) StartAt(p topic.Position) *Topology {
	app.startAt = p
	return app
}

// StartFrom makes the job begin with the state of a savepoint, its positions and its event
// time, when it runs for the first time: also one of another name, or one whose topology was
// another, since state is found by the names of steps. The topics must hold what they held
// where the savepoint was taken, at the same offsets; one that the savepoint does not name is read from
// where StartAt says. Later the job goes on from where it was, and s is not read.
// s has to stay open until the job has started.
func (app *Topology) StartFrom(s *Savepoint) *Topology {
	app.from = s
	if s == nil {
		app.fault("start from", "StartFrom needs a savepoint, not nil")
	}
	return app
}

// Tasks sets how many tasks each stage behind a shuffle has: those of a stage that reads
// topics without one are the partitions. Without it they are what they have been since the
// state began, and at first as many as the widest stage that feeds the shuffle. Where a job, or
// the savepoint it starts from, has had another number, its state moves to the tasks that own
// the keys now, before the first record is read.
func (app *Topology) Tasks(n int) *Topology {
	app.tasks = n
	if n < 1 || n > maxTasks {
		app.fault("tasks", fmt.Sprintf("Tasks(%d): use 1 to %d", n, maxTasks))
	}
	return app
}

const maxTasks = 10_000

// StopAt makes the run bounded: each source partition is read up to p, resolved
// when the run begins (topic.End is what is there then). The watermark then goes to
// the end of time, all windows close, a last checkpoint follows and the run ends
// without an error. A job that has come to its end stays there: records that
// are added later and read by another run are late.
func (app *Topology) StopAt(p topic.Position) *Topology {
	app.stopAt = &p
	return app
}

// SkipDeleted makes the job go on behind records that were deleted from a source before
// it had read them, by the topic's retention or by Node.DeleteRecords: retention does not
// wait for a job that stands still. How many they were is logged and counted in
// TaskStatus.Deleted. Without it the job fails with a *DeletedInputError.
func (app *Topology) SkipDeleted() *Topology {
	app.skip = true
	return app
}

// IdleAfter sets how long a source partition may be silent, in wall-clock time,
// before it no longer holds back the watermark. Zero means DefaultIdleAfter,
// negative never.
func (app *Topology) IdleAfter(d time.Duration) *Topology {
	if d == 0 {
		d = DefaultIdleAfter
	}
	app.idleAfter = d
	return app
}

// Disorder sets how far the watermark of a source partition stays behind the newest
// event time in it: records up to d older than one before them are in time.
// Whole milliseconds, 0 by default.
func (app *Topology) Disorder(d time.Duration) *Topology {
	app.disorder = d
	if problem := checkDisorder(d); problem != "" {
		app.fault("disorder", problem)
	}
	return app
}

func checkDisorder(d time.Duration) string {
	if d < 0 || d%time.Millisecond != 0 {
		return fmt.Sprintf("disorder of %v: use zero or more whole milliseconds", d)
	}
	return ""
}

func (app *Topology) fault(step, problem string) {
	app.faults = append(app.faults, Fault{Step: step, Line: callerLine(), Problem: problem})
}

// Fault is one mistake in a topology.
type Fault struct {
	Step    string // name of the step
	Line    string // file:line where it was declared
	Problem string
}

func (f Fault) Error() string { return fmt.Sprintf("stream: %s (%s): %s", f.Step, f.Line, f.Problem) }

// Validate reports every mistake in the topology, joined; each is a Fault.
func (app *Topology) Validate() error {
	app.deriveNames()
	faults := append([]Fault(nil), app.faults...)
	add := func(s *step, problem string) {
		faults = append(faults, Fault{Step: s.label(), Line: s.line, Problem: problem})
	}
	names := make(map[string]*step)
	read := make(map[string]*step)
	sources := 0
	for _, s := range app.steps {
		for _, p := range s.faults {
			add(s, p)
		}
		if s.check != nil {
			if problem := s.check(); problem != "" {
				add(s, problem)
			}
		}
		s.checkPolicy(func(problem string) { add(s, problem) })
		if s.source != nil && !s.source.replay {
			read[s.source.topic] = s
			sources++
		}
		if s.global != nil {
			read[s.global.topic] = s
		}
		if s.name == "" {
			continue
		}
		if !validName.MatchString(s.name) {
			add(s, fmt.Sprintf("invalid name %q: use 1 to 100 letters, digits, '.', '_' and '-'", s.name))
		}
		if first, ok := names[s.name]; ok {
			problem := fmt.Sprintf("the name %q is taken by the step at %s; names own state, give one of them another with As", s.name, first.line)
			if !s.named {
				problem = fmt.Sprintf("ambiguous: its derived name %q is that of the step at %s too; name both with As, so that their state is found again", s.name, first.line)
			}
			add(s, problem)
		}
		names[s.name] = s
	}
	for _, s := range app.steps {
		if app.from != nil && s.source != nil && s.source.feed != nil {
			add(s, "is outside of the log, and a savepoint does not hold how far it was read: StartFrom needs sources that are topics")
		}
		for _, d := range s.stores {
			if other, ok := names[d.name()]; ok && d.part != "" {
				add(s, fmt.Sprintf("keeps state under the name %q, which is that of the step at %s; give one of them another with As", d.name(), other.line))
			}
		}
		if s.kind == "side" && len(s.inputs) == 0 {
			add(s, "no step emits into the side: give it to Process")
		}
		if len(s.outputs) == 0 && !s.mayEnd() {
			add(s, "nothing reads what it gives: end it with To, Each or Sink")
		}
		if s.sink == nil {
			continue
		}
		if src, ok := read[s.sink.topic]; ok {
			add(s, fmt.Sprintf("writes the topic %q that the topology reads at %s: it would feed itself", s.sink.topic, src.line))
		}
	}
	if len(faults) == 0 {
		for _, s := range app.joinsOfItself() {
			add(s, "joins a table with what a shuffle makes of the same table: a task would wait for itself; "+
				"join a copy of the table instead, made by ToStream().KeyByKV(func(k K, _ V) K { return k }).ToTable()")
		}
	}
	if sources == 0 {
		faults = append(faults, Fault{Step: app.name, Line: app.line, Problem: "no source: begin with Stream"})
	}
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}

// deriveNames gives every step that needs a name and has none one made of what it is and
// what it reads. It depends on neither position nor order, so that state stays
// where it is when other steps come and go.
func (app *Topology) deriveNames() {
	for _, s := range app.steps {
		if s.name == "" && s.needsName() && s.partOf == nil {
			s.name = origin(s) + "-" + strings.ReplaceAll(s.kind, " ", "-")
		}
	}
	for _, s := range app.steps {
		if s.partOf != nil {
			s.name = s.partOf.name + "-" + strings.ReplaceAll(s.kind, " ", "-")
		}
	}
	for _, s := range app.steps {
		if s.group == nil || s.name != "" {
			continue
		}
		for _, out := range s.outputs {
			if name := out.name + s.side + "-by"; (out.needsName() || out.named) && (s.name == "" || name < s.name) {
				s.name = name
			}
		}
		if s.name == "" {
			s.name = origin(s) + s.side + "-by"
		}
	}
	app.deriveClockNames()
}

// deriveClockNames names what makes watermarks by what they serve, so that a
// checkpoint's event time is found again when other steps come and go.
func (app *Topology) deriveClockNames() {
	taken := make(map[string]int)
	for _, s := range app.steps {
		if s.clock == nil {
			continue
		}
		name := engine.EventTimeOf + s.name
		switch {
		case s.source != nil:
			name = "source"
		case !s.named:
			name = engine.EventTimeOf + "of " + served(s)
		}
		if taken[name]++; taken[name] > 1 {
			name += fmt.Sprintf(" (%d)", taken[name])
		}
		s.clock.name = name
	}
}

// served is the first, by name, of the stores and topics behind s.
func served(s *step) string {
	first := ""
	for _, out := range s.outputs {
		name := out.name
		switch {
		case out.stateful():
		case out.sink != nil:
			name = out.sink.topic
		case out.deliver != nil:
		default:
			name = served(out)
		}
		if name != "" && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// origin names the sources a step reads, or the nearest named step above it.
func origin(s *step) string {
	var names []string
	for _, in := range s.inputs {
		switch {
		case in.source != nil && in.source.feed == nil:
			names = append(names, in.source.topic)
		case in.named:
			names = append(names, in.name)
		default:
			names = append(names, origin(in))
		}
	}
	return strings.Join(names, ".")
}

// String describes the topology: a line for each step, below what it reads.
func (app *Topology) String() string {
	app.deriveNames()
	var b strings.Builder
	fmt.Fprintf(&b, "job %s\n", app.name)
	var walk func(s *step, depth int)
	seen := make(map[*step]bool)
	walk = func(s *step, depth int) {
		fmt.Fprintf(&b, "%s%s", strings.Repeat("  ", depth), s.kind)
		if s.source != nil {
			fmt.Fprintf(&b, " %s", s.source.topic)
		}
		if s.global != nil {
			fmt.Fprintf(&b, " %s", s.global.topic)
		}
		if s.sink != nil {
			fmt.Fprintf(&b, " %s", s.sink.topic)
		}
		if s.named || s.stateful() || s.deliver != nil {
			fmt.Fprintf(&b, " %q", s.name)
		}
		if s.group != nil && s.group.mustShuffle() {
			b.WriteString(" [shuffle]")
		}
		if s.stateful() {
			b.WriteString(" [state]")
		}
		fmt.Fprintf(&b, "  %s\n", s.line)
		if seen[s] {
			return
		}
		seen[s] = true
		for _, out := range s.outputs {
			walk(out, depth+1)
		}
	}
	for _, s := range app.steps {
		if s.source != nil || s.global != nil {
			walk(s, 1)
		}
	}
	return b.String()
}
