package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/window"
)

// DefaultStateMemory bounds what a job keeps in memory until a checkpoint.
const DefaultStateMemory = 512 << 20

// ErrStopped is returned by calls that wait for a job that was stopped.
var ErrStopped = engine.ErrStopped

// Failure is what ended a job: an error, or a panic, where it happened and which
// record was being processed. Wait and Stop return it; errors.As and errors.AsType
// find it. Its fields:
//
//	Job, Step, Line  the job, the step's name and the file:line where it was declared
//	Source           Topic and Partition the record came from; an empty Topic is unknown
//	Offset           of that record, or -1
//	Cause            the error a function returned, or a *PanicError; Unwrap gives it
//	Stack            of a panic, else nil; Error leaves it out
type Failure = engine.Failure

// PanicError is the cause of a Failure that was a panic; its field Value is what was
// given to panic.
type PanicError = engine.PanicError

// DeletedInputError is the cause of a Failure where records of a source were deleted
// before the job had read them; see Topology.SkipDeleted. It matches
// log.ErrOffsetOutOfRange.
type DeletedInputError = engine.DeletedInputError

// Env is what a job needs of the node it runs on. Programs do not fill it in: they
// call Node.Run or Node.Start, or use streamtest.
type Env struct {
	Plane       *checkpoint.Plane
	Backend     state.Backend
	StateDir    string       // stores live below it
	Cache       *state.Cache // may be nil
	StateMemory int64        // bytes; zero means DefaultStateMemory
	Files       vfs.FS       // that savepoints are saved to; nil means the operating system's
	Logger      *slog.Logger // nil discards
	Now         func() time.Time
	Manual      bool // no goroutines: for tests in virtual time

	// Pick chooses one of n where Manual leaves open what comes next: the task that works, the
	// call that returns. Nil lets all tasks work in turn, and takes the first call.
	Pick func(n int) int
}

// Job is a running topology.
type Job struct {
	app   *Topology
	run   *run
	inner *engine.Job

	saving sync.Mutex // held while a savepoint is written to a file

	evolved Evolution
}

// Start validates app and starts it. It returns once state is restored.
func Start(ctx context.Context, env Env, app *Topology) (*Job, error) {
	if app == nil {
		return nil, errors.New("stream: no topology: make one with stream.New")
	}
	if err := app.Validate(); err != nil {
		return nil, err
	}
	if env.Now == nil {
		env.Now = time.Now
	}
	if env.Logger == nil {
		env.Logger = slog.New(slog.DiscardHandler)
	}
	r, err := newRun(app, env)
	if err != nil {
		return nil, err
	}
	specs, err := r.tasks()
	if err != nil {
		return nil, err
	}
	feeds, err := r.openFeeds()
	if err != nil {
		return nil, err
	}
	imports, err := r.imports()
	if err != nil {
		return nil, err
	}
	budget := env.StateMemory
	if budget <= 0 {
		budget = DefaultStateMemory
	}
	prepare := r.makeAllReady
	if env.Manual { // one thing after the other
		prepare = nil
	}
	inner, err := engine.Start(ctx, engine.Options{
		Name: app.name, Plane: env.Plane, Config: app.checkpoint, Budget: budget, Idleness: app.leastIdle(), Feeds: feeds,
		Now: env.Now, Logger: env.Logger, Manual: env.Manual, Pick: env.Pick, Import: imports, Prepare: prepare,
		StepName: func(id int) (string, string) {
			if id < 0 || id >= len(app.steps) {
				return "engine", ""
			}
			return app.steps[id].label(), app.steps[id].line
		},
	}, specs)
	if closing := r.closeStores(); closing != nil {
		env.Logger.Warn("stream: a store that no task needs does not close", "job", app.name, "error", closing)
	}
	if err != nil {
		return nil, r.evolved.unreadable(app, err)
	}
	r.dropMoved()
	return &Job{app: app, run: r, inner: inner, evolved: r.evolved}, nil
}

func (o *opening) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// Done is closed when the job is over.
func (j *Job) Done() <-chan struct{} { return j.inner.Done() }

// Wait waits for the end of the job: nil after Stop or the end of all sources of a
// bounded run, else the Failure, or what else kept the job from going on, such as a
// full disk.
func (j *Job) Wait() error {
	<-j.inner.Done()
	return j.named(j.inner.Err())
}

// named adds the job's name to an error that does not have it.
func (j *Job) named(err error) error {
	if _, ok := errors.AsType[*Failure](err); ok || err == nil {
		return err
	}
	return fmt.Errorf("stream: job %q: %w", j.app.name, err)
}

// Stop commits what was read with a last checkpoint and ends the job. Sinks outside of the log
// finish what they are at; what they do not have then the next run gives them. When ctx ends
// first the job ends without it, and what it had not committed is done again by the
// next run. A function given to an operator cannot be interrupted: when one does not
// return within seconds after ctx has ended, Stop returns an error that names its
// task, and the job ends when it does.
func (j *Job) Stop(ctx context.Context) error { return j.named(j.inner.Stop(ctx)) }

// CatchUp waits until all input that is in the log at the call is committed, and sinks
// outside of the log have what came of it.
func (j *Job) CatchUp(ctx context.Context) error { return j.inner.CatchUp(ctx) }

// Checkpoint commits what the job has done so far, and waits for it.
func (j *Job) Checkpoint(ctx context.Context) (checkpoint.ID, error) {
	s, err := j.inner.Checkpoint(ctx)
	return s.ID, err
}

// Lag is how many offsets of the sources are not committed yet.
func (j *Job) Lag() int64 { return j.inner.Lag() }

// Status is a job as it stands.
type Status struct {
	Name       string
	Attempt    int64
	Checkpoint checkpoint.ID // newest complete one
	At         time.Time     // when it completed; zero before the first of this run
	Took       time.Duration // from its barrier to its completion
	Lag        int64         // offsets of the sources that are not committed yet
	Tasks      []TaskStatus
}

// TaskStatus is a task as of its last piece of work. Counters begin with the run.
type TaskStatus struct {
	Stage     string
	Shard     int
	Watermark time.Time // zero while there is none, and at the end of time
	Ended     bool      // event time has come to its end: a bounded run read all it will
	StateSize int64     // bytes of state in memory

	Inputs []InputStatus // the source partitions that it reads

	Records int64 // read from a source or an exchange
	Emitted int64 // written to topics
	Late    int64 // dropped: no window was open, and nothing reads Late
	NoKey   int64 // skipped for want of a key
	NoValue int64 // skipped for want of a value
	Deleted int64 // offsets that were deleted from a source before they were read; see Topology.SkipDeleted

	Skipped     int64 // dropped by a step whose function failed for them; see Skip
	DeadLetters int64 // written as dead letters; see DeadLetter
	Duplicates  int64 // dropped by Deduplicate
	FarFuture   int64 // with an event time too far ahead, taken as late or given another; see Watermarks

	// Unordered is how often the order of event time, in which tasks read several inputs,
	// could not be kept: tasks would have waited for each other for ever, because thousands of
	// records went to one and none to another; or a checkpoint could not wait until a partition
	// that is far behind had come to where the others were. What a join finds may then depend
	// on which input was read faster.
	Unordered int64

	// Of a task that feeds a sink outside of the log:
	Delivered   int64 // handed over
	Undelivered int64 // offsets committed and not handed over yet
	Retries     int64 // calls of the sink that returned an error
	SinkErr     error // why it is not getting on; nil when it is
}

// InputStatus tells how far event time has come in a source partition.
type InputStatus struct {
	Topic     string
	Partition int
	Watermark time.Time // zero while there is none, and at the end of time
	Ended     bool      // a bounded run has read all it will
	Idle      bool      // silent for so long that it holds back no watermark
	Waiting   bool      // not read until the slowest partition that it is aligned with has come nearer
}

// timeOf is a watermark as Status has it.
func timeOf(w int64) (at time.Time, ended bool) {
	if w != window.Unknown && w != window.EndOfTime {
		at = time.UnixMilli(w).UTC()
	}
	return at, w == window.EndOfTime
}

// Status tells how the job stands.
func (j *Job) Status() Status {
	last := j.inner.Last()
	s := Status{Name: j.app.name, Attempt: j.inner.Attempt(), Checkpoint: last.ID, At: last.At, Took: last.Took, Lag: j.inner.Lag()}
	for _, t := range j.inner.Tasks() {
		ts := TaskStatus{Stage: t.Task.Stage, Shard: t.Task.Shard, StateSize: t.StateSize, Records: t.Counters.Records,
			Emitted: t.Counters.Emitted, Late: t.Counters.Late, NoKey: t.Counters.NoKey, NoValue: t.Counters.NoValue, Deleted: t.Counters.Deleted,
			Skipped: t.Counters.Skipped, DeadLetters: t.Counters.DeadLetters, Duplicates: t.Counters.Duplicates, FarFuture: t.Counters.FarFuture, Unordered: t.Counters.Unordered}
		ts.Watermark, ts.Ended = timeOf(t.Watermark)
		for _, in := range t.Inputs {
			is := InputStatus{Topic: in.Partition.Topic, Partition: int(in.Partition.Partition), Idle: in.Idle, Waiting: in.Waiting}
			is.Watermark, is.Ended = timeOf(in.Watermark)
			ts.Inputs = append(ts.Inputs, is)
		}
		if d := t.Delivery; d != nil {
			ts.Delivered, ts.Undelivered, ts.Retries, ts.SinkErr = d.Delivered, d.Behind, d.Retries, d.Err
		}
		s.Tasks = append(s.Tasks, ts)
	}
	return s
}
