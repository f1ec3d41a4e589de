package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/topic"
)

// ErrStopped is the cause of a job that was stopped.
var ErrStopped = errors.New("stream: job stopped")

const (
	// stopGrace is how long Stop waits for the tasks once its context has ended.
	stopGrace = 5 * time.Second
	// catchUpEvery is how often CatchUp asks for a checkpoint where the job's own come
	// less often.
	catchUpEvery = 100 * time.Millisecond
)

// TaskSpec describes a task to Start.
type TaskSpec struct {
	ID      checkpoint.TaskID
	Sources []SourceStart // the partitions it reads; empty behind an exchange
	InOrder bool          // it has several inputs and reads them by event time

	// Delivers says that its one source is a partition the job itself writes, to be
	// handed to a sink outside (OpenDelivery).
	Delivers bool

	// Open opens the operators of the task, downstream first.
	Open func(t *Task) error
}

// SourceStart is a source partition and where a job without a checkpoint begins
// to read it.
type SourceStart struct {
	Partition *topic.LogPartition
	Committed bool            // read committed
	Stop      topic.LogOffset // the source ends here; negative is never
	Resolve   func() (topic.LogOffset, error)
}

// Options describes a job to Start.
type Options struct {
	Name     string
	Plane    *checkpoint.Plane
	Config   checkpoint.Config
	Budget   int64 // bytes of state and output that wait for a checkpoint, for the whole job
	Idleness time.Duration
	Now      func() time.Time
	Logger   *slog.Logger
	StepName func(step int) (name, line string)
	Feeds    []*Feed // of the sources it reads
	Manual   bool    // no goroutines: Step and Trigger are called from outside
	Import   *Import // nil where the job begins without state
	// Prepare is called before the tasks are opened, unless it is nil, with what Task.RestoreTo will tell.
	Prepare func(restoreTo func(checkpoint.TaskID, topic.TopicPartition) (checkpoint.ID, topic.LogPosition))

	// Pick chooses one of n in a manual job, where what comes next is free: the task that
	// works, the call that returns. Nil lets all tasks work in turn, and takes the first call.
	Pick func(n int) int
}

// Job is one attempt of a job.
type Job struct {
	o          Options
	session    *checkpoint.Session
	attempt    int64
	begun      map[checkpoint.TaskID]checkpoint.Report // checkpoint 0, or that of the import, when this attempt committed it
	imported   bool
	first      int64 // number of the attempt's first checkpoint after the one it starts from
	tasks      []*Task
	sources    []SourceStart
	deliveries []*Delivery
	taskBudget int64
	origins    origins
	aligned    alignment
	waits      *waits // where some task reads in order and tasks have goroutines
	killed     bool   // by Kill, before its end: as if the process had died

	ctx    context.Context // of the tasks
	cancel context.CancelCauseFunc
	done   <-chan struct{} // ctx is done
	wg     sync.WaitGroup

	completed atomic.Int64 // newest complete checkpoint; written by Hooks.Complete
	active    atomic.Bool  // some task did something since the last trigger
	open      atomic.Int64 // sources that have not ended
	calling   atomic.Int64 // steps with calls pending
	waiting   atomic.Bool  // some source may wait for deliveries
	poke      chan struct{}

	pausing    sync.Once
	triggering sync.Mutex // one Trigger at a time; taken before mu

	mu        sync.Mutex // guards the fields below
	pending   map[topic.TopicPartition]topic.LogPosition
	committed map[topic.TopicPartition]topic.LogPosition
	// What tasks said of themselves: in the checkpoint in flight, and in the newest complete one.
	pendingReports   map[checkpoint.TaskID]checkpoint.Report
	committedReports map[checkpoint.TaskID]checkpoint.Report

	advanced  chan struct{} // closed and replaced when a checkpoint completes
	last      CheckpointStatus
	triggered time.Time
	endAt     int64 // the checkpoint after which a job whose sources have ended is done; 0 while unknown
	notLast   int64 // the newest checkpoint with calls pending

	callsPending   map[*Calls]callProgress // as pending and committed, for calls
	callsCommitted map[*Calls]callProgress

	failed error
	urgent bool

	finished chan struct{} // closed when the job is over; result is set before
	result   error

	images images
}

// CheckpointStatus describes the newest complete checkpoint.
type CheckpointStatus struct {
	ID   checkpoint.ID
	At   time.Time     // when it completed
	Took time.Duration // from the barrier to completion
}

// Start begins an attempt. It returns once every store is where the attempt starts
// from; the tasks then run until Stop, a failure or the end of all sources.
func Start(ctx context.Context, o Options, specs []TaskSpec) (*Job, error) {
	j := &Job{o: o, poke: make(chan struct{}, 1), advanced: make(chan struct{}), finished: make(chan struct{})}
	j.pending = make(map[topic.TopicPartition]topic.LogPosition)
	j.committed = make(map[topic.TopicPartition]topic.LogPosition)
	j.callsPending, j.callsCommitted = make(map[*Calls]callProgress), make(map[*Calls]callProgress)
	j.pendingReports = make(map[checkpoint.TaskID]checkpoint.Report)
	j.committedReports = make(map[checkpoint.TaskID]checkpoint.Report)
	j.ctx, j.cancel = context.WithCancelCause(context.Background())
	j.done = j.ctx.Done()
	for _, f := range o.Feeds {
		f.job = j
	}
	ids := make([]checkpoint.TaskID, len(specs))
	for i, s := range specs {
		ids[i] = s.ID
	}
	session, err := o.Plane.StartJob(ctx, checkpoint.JobOptions{
		Name: o.Name, Tasks: ids, AtLeastOnce: o.Config.IsAtLeastOnce(), Synchronous: o.Manual,
		Hooks: checkpoint.Hooks{Barrier: j.inject, Complete: j.complete, Failed: j.fail},
	})
	if err != nil {
		return nil, fmt.Errorf("stream: start job %q: %w", o.Name, err)
	}
	j.session, j.attempt = session, session.Attempt()
	if err = j.begin(ctx, specs); err == nil {
		err = j.openTasks(specs)
	}
	if err != nil {
		j.cancel(err)
		return nil, errors.Join(err, j.close())
	}
	o.Logger.Info("stream: job started", "job", o.Name, "attempt", j.attempt, "from checkpoint", j.last.ID.N, "tasks", len(j.tasks))
	if !o.Manual {
		for _, t := range j.tasks {
			j.wg.Go(func() {
				defer func() { // also when a user's function ends the goroutine
					t.returned.Store(true)
					if t.err != nil {
						j.fail(t.err)
					}
				}()
				// In a profile each task can be told from the others.
				pprof.Do(j.ctx, pprof.Labels("job", o.Name, "stage", t.ID.Stage, "shard", strconv.Itoa(int(t.ID.Shard))),
					func(context.Context) { t.run(j.ctx) })
			})
		}
		for _, d := range j.deliveries {
			j.wg.Go(func() { d.run(j.ctx) })
		}
		for _, f := range o.Feeds {
			j.wg.Go(func() { f.run(j.ctx) })
		}
		go j.run()
	}
	return j, nil
}

// begin resolves where a new job starts and commits that as checkpoint 0, before
// the first record is read.
func (j *Job) begin(ctx context.Context, specs []TaskSpec) error {
	if id, ok := j.session.Restored(); ok {
		switch {
		case j.o.Import == nil:
			return nil
		case j.o.Import.Source == "":
			return j.moveState(ctx, specs)
		case id.N > 0:
			return nil
		}
		return j.resumeImport(ctx, specs)
	}
	reports := make(map[checkpoint.TaskID]checkpoint.Report, len(specs))
	for _, s := range specs {
		r := checkpoint.Report{Moved: true}
		for _, src := range s.Sources {
			off, err := src.Resolve()
			if err != nil {
				return fmt.Errorf("stream: job %q: where to start in %s: %w", j.o.Name, src.Partition.Name(), err)
			}
			pos, err := src.Partition.PositionAt(off)
			if err != nil {
				return fmt.Errorf("stream: job %q: where to start in %s: %w", j.o.Name, src.Partition.Name(), err)
			}
			r.Inputs = append(r.Inputs, checkpoint.Input{Partition: src.Partition.Name(), Next: pos})
		}
		if j.o.Import != nil {
			r.State = j.o.Import.mark()
		}
		reports[s.ID] = r
	}
	j.begun = reports
	if err := j.session.Begin(ctx, reports); err != nil {
		return fmt.Errorf("stream: job %q: commit checkpoint 0: %w", j.o.Name, err)
	}
	if j.o.Import != nil {
		return j.importState(ctx, specs)
	}
	return nil
}

func (j *Job) openTasks(specs []TaskSpec) error {
	if j.o.Prepare != nil {
		j.o.Prepare(j.restoreTo)
	}
	id, _ := j.session.Restored()
	j.first = j.session.Next()
	j.completed.Store(j.first - 1)
	if !j.imported {
		j.last.ID = id
	}
	j.taskBudget = j.o.Budget / int64(max(1, len(specs)))
	for _, s := range specs {
		t := newTask(j, s.ID, s.InOrder)
		j.tasks = append(j.tasks, t)
		if s.InOrder && !j.o.Manual && j.waits == nil {
			j.waits = &waits{of: make(map[*Task]wait)}
		}
		if t.delivers = s.Delivers; s.Delivers {
			continue
		}
		j.sources = append(j.sources, s.Sources...)
		j.open.Add(int64(len(s.Sources)))
	}
	for i, s := range specs {
		t := j.tasks[i]
		if err := s.Open(t); err != nil {
			return fmt.Errorf("stream: job %q: open task %s/%d: %w", j.o.Name, s.ID.Stage, s.ID.Shard, err)
		}
	}
	if err := j.readable(); err != nil {
		return fmt.Errorf("stream: job %q: %w", j.o.Name, err)
	}
	j.openCut()
	for _, t := range j.tasks {
		report := t.startingPoint()
		if err := t.open(report); err != nil {
			return fmt.Errorf("stream: job %q: %w", j.o.Name, err)
		}
		t.publish()
		for _, in := range report.Inputs {
			j.committed[in.Partition] = in.Next
		}
		for _, c := range t.calls {
			j.callsCommitted[c] = callProgress{c.oldest, c.next}
		}
		j.committedReports[t.ID] = t.restoredReport(report)
	}
	return nil
}

// UnreadableError says that state cannot be read as what the steps are now.
type UnreadableError struct {
	Steps map[int]error // why, by step
	text  string
}

func (e *UnreadableError) Error() string { return e.text }

// readable tells which stores hold what their steps cannot read.
func (j *Job) readable() error {
	steps := make(map[int]error)
	for _, t := range j.tasks {
		for _, s := range t.stores {
			if err := s.table.Err(); err != nil && steps[s.step] == nil {
				steps[s.step] = err
			}
		}
	}
	if len(steps) == 0 {
		return nil
	}
	var texts []string
	for _, step := range slices.Sorted(maps.Keys(steps)) {
		name, line := j.o.StepName(step)
		texts = append(texts, fmt.Sprintf("step %q (%s): %v", name, line, steps[step]))
	}
	return &UnreadableError{Steps: steps, text: strings.Join(texts, "; ")}
}

// openCut finds the tasks that pass barriers at one event time.
func (j *Job) openCut() {
	c := &cut{}
	for _, t := range j.tasks {
		if t.sources > 0 && (t.inOrder || slices.ContainsFunc(t.senders, sender.ordered)) {
			t.cut = c
			c.tasks = append(c.tasks, t)
		}
	}
}

// startingPoint is what the task reported in the checkpoint the attempt starts from.
// Where its stage has another name now, it goes on from what the task that had its state
// reported.
func (t *Task) startingPoint() checkpoint.Report {
	if r, ok := t.job.begun[t.ID]; ok {
		return r
	}
	r, ok := t.job.session.RestoredReport(t.ID)
	if ok {
		return r
	}
	for _, s := range t.stores {
		if before, _, ok := t.job.session.RestoredChangelog(s.changelog); ok {
			r, _ = t.job.session.RestoredReport(before)
			return r
		}
	}
	return r
}

// restoredReport is what the task would report of where it starts, with the stores it has.
func (t *Task) restoredReport(r checkpoint.Report) checkpoint.Report {
	r.Changelogs = nil
	for _, st := range t.stores {
		r.Changelogs = append(r.Changelogs, checkpoint.Changelog{Partition: st.changelog, End: st.end})
	}
	return r
}

// StartOf is where the attempt reads partition p from, for the nth of the task's inputs that
// read it: the restored position, or the beginning of a partition that was added since.
// An input that belonged to a task the job does not have any more, because
// the stage has another name now, goes on where that was.
func (t *Task) StartOf(p *topic.LogPartition, nth int) (topic.LogPosition, error) {
	for _, in := range t.startingPoint().Inputs {
		if in.Partition != p.Name() {
			continue
		}
		if nth == 0 {
			return in.Next, nil
		}
		nth--
	}
	if next, ok := t.job.session.RestoredInput(p.Name(), t.job.has); ok {
		return next, nil
	}
	return p.PositionAt(p.Start())
}

// has tells whether the attempt has a task.
func (j *Job) has(id checkpoint.TaskID) bool {
	return slices.ContainsFunc(j.tasks, func(t *Task) bool { return t.ID == id })
}

// RestoreTo is how far the changelog of a step goes in the checkpoint the attempt starts
// from, whichever task wrote it.
func (t *Task) RestoreTo(changelog topic.TopicPartition) (id checkpoint.ID, end topic.LogPosition) {
	return t.job.restoreTo(t.ID, changelog)
}

func (j *Job) restoreTo(task checkpoint.TaskID, changelog topic.TopicPartition) (id checkpoint.ID, end topic.LogPosition) {
	if r, ok := j.begun[task]; ok && j.imported {
		for _, c := range r.Changelogs {
			if c.Partition == changelog {
				return j.Last().ID, c.End
			}
		}
		return j.Last().ID, topic.LogPosition{}
	}
	id, _ = j.session.Restored()
	_, end, _ = j.session.RestoredChangelog(changelog)
	return id, end
}

// Session hooks.

func (j *Job) inject(n int64) {
	for _, t := range j.tasks {
		if t.sources > 0 {
			t.injected.Store(n)
			t.Signal()
		}
	}
}

func (j *Job) complete(id checkpoint.ID) {
	now := j.o.Now()
	j.mu.Lock()
	for tp, pos := range j.pending {
		j.committed[tp] = pos
	}
	clear(j.pending)
	maps.Copy(j.callsCommitted, j.callsPending)
	clear(j.callsPending)
	maps.Copy(j.committedReports, j.pendingReports)
	clear(j.pendingReports)
	j.last = CheckpointStatus{ID: id, At: now, Took: now.Sub(j.triggered)}
	j.completed.Store(id.N)
	j.mu.Unlock()
	for _, t := range j.tasks {
		t.Signal()
	}
	// Those who wait are told last: what they look at is there then, and who waits for the
	// checkpoint of an import may change the tasks.
	j.mu.Lock()
	close(j.advanced)
	j.advanced = make(chan struct{})
	j.mu.Unlock()
	j.signal()
}

func (j *Job) fail(err error) {
	j.mu.Lock()
	if j.failed == nil {
		j.failed = err
	}
	j.mu.Unlock()
	j.cancel(err)
	j.signal()
}

func (j *Job) report(t *Task, n int64, r checkpoint.Report) {
	j.mu.Lock()
	for _, in := range r.Inputs {
		// Where several inputs read a partition, the one that is behind counts.
		if other, ok := j.pending[in.Partition]; !ok || in.Next.Offset < other.Offset {
			j.pending[in.Partition] = in.Next
		}
	}
	j.reportCallsLocked(t, n)
	j.pendingReports[t.ID] = r
	j.mu.Unlock()
	j.session.Report(t.ID, n, r)
}

func (j *Job) sourceEnded() {
	if j.open.Add(-1) == 0 {
		j.signal()
	}
}

// sourcesEnded tells whether all sources have ended, and no step waits for calls.
func (j *Job) sourcesEnded() bool {
	return j.open.Load() == 0 && j.calling.Load() == 0 && len(j.sources) > 0
}

func (j *Job) requestCheckpoint() {
	j.mu.Lock()
	asked := j.urgent
	j.urgent = true
	j.mu.Unlock()
	if !asked {
		j.signal()
		runtime.Gosched() // it is the busy tasks that ask
	}
}

// pick chooses one of n where what comes next is free.
func (j *Job) pick(n int) int {
	if j.o.Pick == nil || n == 1 {
		return 0
	}
	return j.o.Pick(n)
}

func (j *Job) signal() {
	select {
	case j.poke <- struct{}{}:
	default:
	}
}

// Trigger starts a checkpoint unless one is under way, and returns its number.
func (j *Job) Trigger() (n int64, started bool) {
	j.triggering.Lock()
	defer j.triggering.Unlock()
	j.mu.Lock()
	before := j.triggered
	j.triggered = j.o.Now()
	j.mu.Unlock()
	j.active.Store(false)
	ended := j.sourcesEnded()
	n, started = j.session.TriggerNext()
	if !started {
		j.active.Store(true)
		j.mu.Lock()
		j.triggered = before // of the one under way
		j.mu.Unlock()
		return 0, false
	}
	j.mu.Lock()
	j.urgent = false
	if ended && j.endAt == 0 && j.notLast != n {
		j.endAt = n
	}
	j.mu.Unlock()
	return n, true
}

// Ended tells whether all sources have ended, all they brought is committed, and sinks
// outside have all of it.
//
// The checkpoint that ends the job began after the last source had ended, and no task had
// calls pending when it passed the barrier.
func (j *Job) Ended() bool {
	j.mu.Lock()
	ended := j.endAt != 0 && j.completed.Load() >= j.endAt
	j.mu.Unlock()
	return ended && !slices.ContainsFunc(j.deliveries, func(d *Delivery) bool { return !d.settled(d.o.Partition.LastStable()) })
}

// run triggers checkpoints until the job is over.
func (j *Job) run() {
	ticker := time.NewTicker(j.o.Config.Interval())
	defer ticker.Stop()
	idle := time.NewTicker(max(j.o.Idleness/4, 10*time.Millisecond))
	defer idle.Stop()
	for {
		select {
		case <-ticker.C:
			if j.active.Load() {
				j.Trigger()
			}
		case <-idle.C:
			if j.o.Idleness > 0 {
				for _, t := range j.tasks {
					t.Signal()
				}
			}
		case <-j.poke:
			j.mu.Lock()
			urgent, last := j.urgent, j.endAt != 0
			j.mu.Unlock()
			if j.Ended() {
				j.finish(nil)
				return
			}
			if urgent || !last && j.sourcesEnded() {
				j.Trigger()
			}
		case <-j.done:
			cause := context.Cause(j.ctx)
			if errors.Is(cause, ErrStopped) {
				cause = nil
			}
			j.finish(cause)
			return
		}
	}
}

func (j *Job) finish(result error) {
	ended := result == nil && j.Ended()
	j.cancel(ErrStopped)
	j.wg.Wait()
	if err := j.close(); err != nil && result == nil {
		result = err
	}
	j.logEnd(result, ended)
	j.result = result
	close(j.finished)
}

// logEnd says how the attempt ended, and what was passed over in it.
func (j *Job) logEnd(result error, ended bool) {
	log := j.o.Logger.With("job", j.o.Name, "attempt", j.attempt, "checkpoint", j.Last().ID.N)
	var sum Counters
	for _, t := range j.tasks {
		c := t.Status().Counters
		sum.Late += c.Late
		sum.NoKey += c.NoKey
		sum.NoValue += c.NoValue
		sum.Deleted += c.Deleted
		sum.Skipped += c.Skipped
		sum.DeadLetters += c.DeadLetters
		sum.FarFuture += c.FarFuture
	}
	if sum != (Counters{}) {
		log.Warn("stream: records were passed over", "late", sum.Late, "without key", sum.NoKey, "without value", sum.NoValue, "deleted before they were read", sum.Deleted,
			"skipped", sum.Skipped, "dead letters", sum.DeadLetters, "too far in the future", sum.FarFuture,
			"hint", "late records came beyond Disorder and grace; Late gives them")
	}
	switch f, isFailure := errors.AsType[*Failure](result); {
	case isFailure && f.Stack != nil:
		log.Error("stream: job failed", "error", result, "stack", string(f.Stack))
	case result != nil:
		log.Error("stream: job failed", "error", result)
	case ended:
		log.Info("stream: job came to its end")
	default:
		log.Info("stream: job stopped")
	}
}

func (j *Job) close() error {
	err := errors.Join(j.images.close(), j.session.Close())
	for _, f := range j.o.Feeds {
		f.o.Source.Close()
	}
	for _, t := range j.tasks {
		if e := t.close(); e != nil && err == nil {
			err = e
		}
	}
	return err
}

// Done is closed when the job is over; Err then is why, nil after Stop or the end
// of all sources.
func (j *Job) Done() <-chan struct{} { return j.finished }

// Err is the result of a job that is over.
func (j *Job) Err() error { return j.result }

// Checkpoint waits for a checkpoint that begins after the call.
func (j *Job) Checkpoint(ctx context.Context) (CheckpointStatus, error) {
	var n int64
	started := false
	err := j.await(ctx, func() bool {
		if !started {
			n, started = j.Trigger()
		}
		return started && j.completed.Load() >= n
	}, nil)
	if err != nil {
		return CheckpointStatus{}, err
	}
	return j.Last(), nil
}

// await waits until ok holds, looking after each completed checkpoint and each tick.
func (j *Job) await(ctx context.Context, ok func() bool, tick <-chan time.Time) error {
	for {
		j.mu.Lock()
		advanced := j.advanced // before ok looks: what completes meanwhile is not missed
		j.mu.Unlock()
		if ok() {
			return nil
		}
		select {
		case <-advanced:
		case <-tick:
			j.requestCheckpoint()
		case <-j.finished:
			if ok() {
				return nil
			}
			if j.result != nil {
				return j.result
			}
			return ErrStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Stop takes a last checkpoint and ends the attempt. When ctx ends first the
// attempt ends without that checkpoint; what it had not committed is done again by
// the next one. A user's function cannot be interrupted: where one does not return
// in time Stop returns an error that says so, and the attempt ends when it does.
//
// What sinks outside have by then is part of that checkpoint; the rest they are given by
// the next attempt.
func (j *Job) Stop(ctx context.Context) error {
	var paused []*Delivery
	j.pausing.Do(func() { paused = j.pauseDeliveries(ctx) })
	if _, err := j.Checkpoint(ctx); err != nil && ctx.Err() == nil {
		select {
		case <-j.finished:
			return j.result
		default:
		}
	}
	commitDeliveries(ctx, paused)
	j.cancel(ErrStopped)
	select {
	case <-j.finished:
		return j.result
	case <-ctx.Done():
	}
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-j.finished:
		return j.result
	case <-timer.C:
		return j.stuck()
	}
}

// stuck tells which tasks do not stop.
func (j *Job) stuck() error {
	var names []string
	for _, t := range j.tasks {
		if !t.returned.Load() || t.away.Load() > 0 {
			names = append(names, fmt.Sprintf("%s/%d", t.ID.Stage, t.ID.Shard))
		}
	}
	if len(names) == 0 && len(j.o.Feeds) > 0 {
		names = []string{"that reads a source outside of the log"}
	}
	return fmt.Errorf("stream: job %q is stopping, but a function or the disk has not returned in task %s: the job is over when it does",
		j.o.Name, strings.Join(names, ", "))
}

// Kill ends a manual attempt without a last checkpoint, as a crash would, and lets
// go of what it holds.
func (j *Job) Kill() {
	j.killed = !j.Ended()
	j.cancel(ErrStopped)
	_ = j.images.close()
	for _, f := range j.o.Feeds {
		f.o.Source.Close()
	}
	for _, t := range j.tasks {
		t.close()
	}
}

// CatchUp waits until all input that is in the log at the call is committed, and sinks
// outside have what came of it.
func (j *Job) CatchUp(ctx context.Context) error {
	type target struct {
		tp  topic.TopicPartition
		off topic.LogOffset
	}
	var targets []target
	for _, s := range j.sources {
		off := s.Partition.HighWatermark()
		if s.Committed {
			off = s.Partition.LastStable()
		}
		if s.Stop >= 0 {
			off = min(off, s.Stop)
		}
		targets = append(targets, target{s.Partition.Name(), off})
	}
	j.requestCheckpoint()
	again := time.NewTicker(catchUpEvery)
	defer again.Stop()
	caughtUp := func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, t := range targets {
			if j.committed[t.tp].Offset < t.off {
				return false
			}
		}
		return true
	}
	if err := j.await(ctx, caughtUp, again.C); err != nil {
		return err
	}
	if err := j.awaitCalls(func(ok func() bool) error { return j.await(ctx, ok, again.C) }); err != nil {
		return err
	}
	ends := make([]topic.LogOffset, len(j.deliveries))
	for i, d := range j.deliveries {
		ends[i] = d.o.Partition.LastStable()
	}
	return j.await(ctx, func() bool {
		for i, d := range j.deliveries {
			if !d.settled(ends[i]) {
				return false
			}
		}
		return true
	}, again.C)
}

// Step lets every task of a manual job do a piece of work; with Options.Pick one that has
// something to do.
func (j *Job) Step() (worked bool, err error) {
	for _, f := range j.o.Feeds {
		worked = f.step(j.ctx) || worked
	}
	first := j.pick(len(j.tasks))
	for i := range j.tasks {
		t := j.tasks[(first+i)%len(j.tasks)]
		if t.Step() || t.err == nil && t.flush() {
			worked = true
		}
		if t.err != nil {
			return worked, t.err
		}
		if worked && j.o.Pick != nil {
			break
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return worked, j.failed
}

// Advance moves the watermark of every source, and of every stream with an event time
// of its own, to w by hand.
func (j *Job) Advance(w int64) {
	for _, t := range j.tasks {
		for _, f := range t.byHand {
			f(w)
		}
		t.publish()
	}
}

// Lag is the number of offsets between what is committed and the end of the sources.
func (j *Job) Lag() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	var lag int64
	for _, s := range j.sources {
		end := s.Partition.HighWatermark()
		if s.Committed {
			end = s.Partition.LastStable()
		}
		if s.Stop >= 0 {
			end = min(end, s.Stop)
		}
		lag += max(0, int64(end-j.committed[s.Partition.Name()].Offset))
	}
	return lag
}

// Attempt is the number of the attempt.
func (j *Job) Attempt() int64 { return j.attempt }

// Last is the newest complete checkpoint.
func (j *Job) Last() CheckpointStatus {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// Tasks returns what can be seen of each task.
func (j *Job) Tasks() []Status {
	var all []Status
	for _, t := range j.tasks {
		all = append(all, t.Status())
	}
	return all
}
