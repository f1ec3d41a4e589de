package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/invariant"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// Task is one stage on one partition or shard: its inputs, its operators and
// their state. Only the goroutine that steps it touches it, but for the fields
// that say otherwise.
type Task struct {
	ID  checkpoint.TaskID
	job *Job

	// Running is the step whose user function runs. Operators set it before they
	// call one, so that a panic can be told where it belongs.
	Running int

	wake     chan struct{} // has room for one: somebody has news
	injected atomic.Int64  // newest barrier the coordinator injected; written by Hooks.Barrier

	inputs    []input
	globals   []*global   // topics it reads as a whole
	lanes     int         // lanes of all receivers
	timeless  []int       // lanes that bring no event time
	sources   int         // inputs that are sources
	inOrder   bool        // takes what its inputs have by event time
	awaited   []heldLane  // by what it has of other inputs, in order
	bounds    []laneBound // scratch of earliest
	stalled   bool        // at its memory budget, and so not reading
	delivers  bool        // its input is a Delivery
	aligner   *checkpoint.Aligner
	merge     *window.Merge
	watermark int64 // of the task, where it has lanes; never goes back, whatever lanes a run has
	senders   []sender
	outputs   []*Output
	stores    []*store
	onBarrier []func()
	onDone    []func(n int64) // a checkpoint is complete
	clocks    []clock         // what has event time of its own, by name
	byHand    []func(int64)   // move the watermarks of clocks, in tests
	alarms    []alarm
	calls     []*Calls
	pausing   int // of calls, those with as many pending as may be: the task does not read

	cut     *cut  // nil where no task behind reads in order
	cutting int64 // the checkpoint whose cut it has joined, until it is passed; else 0
	cutLeft int   // records until it passes the barrier wherever it is
	newest  int64 // event time pushed since the last barrier
	order   int64 // event time that its source has come to, where it has one and a part in a cut

	generation int64 // the checkpoint whose barrier comes next
	passed     int64 // generation - 1
	completed  int64 // newest checkpoint seen complete
	reported   checkpoint.Report
	carried    []checkpoint.Changelog // of steps that this run does not have: a later one may

	meta     *Meta // of the record being pushed
	err      error // first failure; the task does nothing more
	counters Counters

	unpublished bool          // an input is idle or waits, or not any more
	inputStatus []InputStatus // scratch of publish

	returned atomic.Bool  // the task's goroutine has ended
	away     atomic.Int64 // calls that run beside the task

	asked questions // of those who read its state

	mu     sync.Mutex // guards public
	public Status
}

// input is a source or the receiving side of an exchange.
type input interface {
	// poll does a bounded piece of work, or nothing when there is none.
	poll() (worked bool)
	// atRest tells whether there is nothing to read, and nothing on its way.
	atRest() bool
	// silent adds the lanes that have nothing to read while something may be on its way.
	silent(lanes []heldLane) []heldLane
	close()
}

// clock is a generator of watermarks whose state is part of a checkpoint.
type clock struct {
	name    string
	save    func([]byte) []byte
	restore func([]byte) error
	resume  func() // tells the operators behind it the restored watermark
}

// Counters counts what a task did since the attempt began.
type Counters struct {
	Records int64 // read from a source or an exchange
	Emitted int64 // written to topics
	Late    int64 // dropped because no window was open and nobody reads the late side
	NoKey   int64 // skipped by an aggregation for want of a key
	NoValue int64 // skipped by an operator for want of a value
	Deleted int64 // offsets of a source that were deleted before they were read

	Skipped     int64 // dropped by a step that failed for them
	DeadLetters int64 // written to a topic by a step that failed for them

	Duplicates int64 // dropped by a deduplication, which is what it is for
	FarFuture  int64 // with an event time too far ahead, taken as late or given another

	Unordered int64 // times that the order of event time could not be kept; see waits and cut
}

// Status is what can be seen of a task from outside.
type Status struct {
	Task      checkpoint.TaskID
	Watermark int64 // window.Unknown until there is one
	Counters  Counters
	StateSize int64           // bytes of state in memory
	Inputs    []InputStatus   // the source partitions it reads
	Delivery  *DeliveryStatus // of a task that feeds a sink outside
}

// InputStatus is what can be seen of a source partition that a task reads.
type InputStatus struct {
	Partition topic.TopicPartition
	Watermark int64 // window.Unknown until there is one
	Idle      bool
	Waiting   bool // for others, which it is aligned with
}

func newTask(job *Job, id checkpoint.TaskID, inOrder bool) *Task {
	t := &Task{ID: id, job: job, inOrder: inOrder, wake: make(chan struct{}, 1), generation: job.first, watermark: window.Unknown, newest: math.MinInt64, order: math.MinInt64}
	t.passed, t.completed = job.first-1, job.first-1
	t.public = Status{Task: id, Watermark: window.Unknown}
	return t
}

// Signal wakes the task. It may be called by anybody and never blocks.
func (t *Task) Signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Counters returns the task's counters, for its operators to count in.
func (t *Task) Counters() *Counters { return &t.counters }

// Attempt is the attempt that the task belongs to.
func (t *Task) Attempt() int64 { return t.job.attempt }

// OnBarrier registers f to run when a barrier arrives, before state is encoded and
// before the barrier goes on: what f pushes belongs to the checkpoint. Operators
// open downstream first, and are called upstream first.
func (t *Task) OnBarrier(f func()) { t.onBarrier = append(t.onBarrier, f) }

// OnComplete registers f to be told of each complete checkpoint that the task has passed.
func (t *Task) OnComplete(f func(n int64)) { t.onDone = append(t.onDone, f) }

// AddClock registers a generator of event time under a stable name.
func (t *Task) AddClock(name string, save func([]byte) []byte, restore func([]byte) error, resume func()) {
	t.clocks = append(t.clocks, clock{name, save, restore, resume})
}

// Fail ends the attempt with err, in the step with the given index.
func (t *Task) Fail(step int, err error) {
	if t.err == nil && err != nil {
		t.err = t.failure(step, err, nil)
	}
}

// About says that what the task does now it does for the record of m.
func (t *Task) About(m *Meta) { t.meta = m }

// Failed tells an operator that emits in a loop to stop.
func (t *Task) Failed() bool { return t.err != nil }

// Err is the first failure of the task, or nil.
func (t *Task) Err() error { return t.err }

func (t *Task) failure(step int, cause error, stack []byte) *Failure {
	f := &Failure{Job: t.job.o.Name, Offset: -1, Cause: cause, Stack: stack}
	f.Step, f.Line = t.job.o.StepName(step)
	if t.meta != nil {
		f.Offset = t.meta.Offset
		f.Source, _ = t.Origin(t.meta)
	}
	return f
}

func (t *Task) stepped() bool { return t.job.o.Manual }

// open finishes the task once its operators are open: it restores event time from
// the report of the checkpoint the attempt starts from.
func (t *Task) open(restored checkpoint.Report) error {
	lanes := t.lanes
	if t.lanes > 0 && t.sources > 0 {
		lanes++ // the last one stands for the sources, which get a barrier all at once
	}
	t.aligner = checkpoint.NewAligner(lanes)
	if t.lanes > len(t.timeless) {
		t.merge = window.NewMerge(t.lanes)
		for _, lane := range t.timeless {
			t.merge.Idle(lane)
		}
		t.AddClock(t.lanesName(), t.merge.AppendState,
			func(b []byte) error { _, err := t.merge.LoadState(b); return err },
			func() {})
		t.AddClock("watermark",
			func(b []byte) []byte { return binary.BigEndian.AppendUint64(b, uint64(t.watermark)) },
			func(b []byte) error {
				if len(b) != 8 {
					return errClocks
				}
				t.watermark = int64(binary.BigEndian.Uint64(b))
				return nil
			},
			func() { t.advance(t.watermark) })
	}
	// Operators register downstream first; barriers and time travel the other way.
	slices.Reverse(t.onBarrier)
	slices.Reverse(t.clocks)
	t.reported = restored
	for _, c := range restored.Changelogs {
		if !t.delivers && !slices.ContainsFunc(t.stores, func(s *store) bool { return s.changelog == c.Partition }) {
			t.carried = append(t.carried, c)
		}
	}
	if err := t.restoreClocks(restored.State); err != nil {
		return fmt.Errorf("task %s/%d: restore event time: %w", t.ID.Stage, t.ID.Shard, err)
	}
	for _, g := range t.globals {
		if err := g.load(); err != nil {
			name, line := t.job.o.StepName(g.o.Step)
			return fmt.Errorf("step %q (%s): %w", name, line, err)
		}
	}
	return nil
}

// lanesName names the lanes of the task by their senders: watermarks of lanes mean
// something to the same lanes only.
func (t *Task) lanesName() string {
	h := fnv.New64a()
	for _, in := range t.inputs {
		if r, ok := in.(interface{ senders() []checkpoint.TaskID }); ok {
			for _, id := range r.senders() {
				fmt.Fprintf(h, "%s/%d\n", id.Stage, id.Shard)
			}
		}
	}
	return fmt.Sprintf("lanes %016x", h.Sum64())
}

// Step does a bounded piece of work: it takes note of a completed checkpoint,
// passes an injected barrier, or reads from one input. It reports whether
// there was anything to do.
func (t *Task) Step() (worked bool) {
	if t.err != nil {
		return false
	}
	returned := false
	defer func() { t.catch(recover(), returned) }()
	worked = t.asked.answer()
	worked = t.observeComplete() || worked
	n := t.injected.Load()
	if n > t.passed && t.cut != nil && t.cutting != n {
		t.joinCut(n)
		worked = true
	}
	switch {
	case n <= t.passed || t.cut != nil && !t.reachesCut():
		if t.stalled = t.full(); !t.stalled {
			worked = t.ring() || worked
			worked = t.collect() || worked
			t.stalled = t.heldBack()
			worked = t.err == nil && !t.stalled && t.pausing == 0 && t.poll() || worked
		}
	case t.lanes == 0:
		t.passBarrier(n)
		worked = true
	default:
		t.barrierFrom(t.lanes, n) // of the task's own sources
		worked = true
	}
	t.meta = nil
	if worked || t.unpublished {
		t.publish()
	}
	returned = true
	return worked
}

// poll lets the inputs do a bounded piece of work.
func (t *Task) poll() (worked bool) {
	for _, g := range t.globals {
		worked = g.poll() || worked
	}
	if t.inOrder {
		return t.err == nil && t.pollInOrder() || worked
	}
	for _, in := range t.inputs {
		if t.err != nil {
			break
		}
		if in.poll() {
			worked = true
		}
	}
	return worked
}

// catch turns a panic of a user's function into a failure, and the end of the
// goroutine too. It is deferred once per batch, not per record.
func (t *Task) catch(panicked any, returned bool) {
	switch {
	case t.err != nil:
	case panicked != nil:
		t.err = t.failure(t.Running, &PanicError{panicked}, debug.Stack())
	case !returned:
		t.err = t.failure(t.Running, errGoexit, debug.Stack())
	}
}

// run steps the task until ctx ends or it fails.
func (t *Task) run(ctx context.Context) {
	for ctx.Err() == nil {
		if t.Step() {
			continue
		}
		if t.err != nil {
			return
		}
		if t.flush() {
			continue
		}
		t.awaitNews()
	}
}

// awaitNews waits until there may be something to do.
func (t *Task) awaitNews() {
	if w := t.job.waits; w != nil && t.lanes > 0 {
		w.begin(t, t.waitsFor())
		defer w.end(t)
	}
	t.await()
}

// flush sends what the exchanges hold: the task has nothing to read, and somebody
// may be waiting for it.
func (t *Task) flush() (sent bool) {
	rest := t.atRest()
	for _, s := range t.senders {
		if s.flush(rest) {
			sent = true
		}
	}
	return sent
}

// full tells whether the task is at its memory budget and has to wait for a
// checkpoint: the one under way, if it has passed its barrier, or the next, whose
// barrier comes to a source from outside. Behind an exchange the barrier comes with the
// records, never further away than the lanes hold, and the task goes on to it.
func (t *Task) full() bool {
	used := t.held()
	if used <= t.job.taskBudget/2 {
		return false
	}
	t.job.requestCheckpoint()
	return used > t.job.taskBudget && (t.lanes == 0 || t.passed > t.completed)
}

// heldBack tells whether the task has to wait because a sink outside is far behind.
func (t *Task) heldBack() bool {
	return len(t.job.deliveries) > 0 && t.lanes == 0 && !t.delivers && t.job.backlogged()
}

// held is the memory that only a checkpoint frees.
func (t *Task) held() int64 {
	var n int64
	for _, s := range t.stores {
		n += s.table.Dirty()
	}
	for _, o := range t.outputs {
		n += o.bytes
	}
	return n
}

// observeComplete reacts to a checkpoint that completed: stores may follow to it,
// and what was held back goes out.
func (t *Task) observeComplete() bool {
	c := t.job.completed.Load()
	if c == t.completed {
		return false
	}
	t.completed = c
	hurry := t.held() > t.job.taskBudget/2
	for _, s := range t.stores {
		if err := s.follow(t.job, c, hurry); err != nil {
			t.Fail(s.step, err)
			return true
		}
	}
	for _, o := range t.outputs {
		o.writeFull()
	}
	for _, f := range t.onDone {
		f(c)
	}
	return true
}

// writable tells whether the task's generation is the open one: nothing of it is
// appended anywhere before the checkpoint below it is complete.
func (t *Task) writable() bool { return t.generation == t.completed+1 }

// mark takes a watermark, or idleness, of one lane.
func (t *Task) mark(lane int, k mark) {
	var w int64
	var moved bool
	if k.idle {
		w, moved = t.merge.Idle(lane)
	} else {
		w, moved = t.merge.Observe(lane, k.w)
	}
	if moved && w > t.watermark {
		t.advance(w)
	}
}

// advance moves the watermark of the task's lanes to w. A source has its own.
func (t *Task) advance(w int64) {
	t.watermark = w
	for _, in := range t.inputs {
		if r, ok := in.(interface{ lanesAt(w int64) }); ok {
			r.lanesAt(w)
		}
	}
}

// barrierFrom takes barrier n on a lane; the last lane to deliver it aligns the task.
func (t *Task) barrierFrom(lane int, n int64) {
	if t.aligner.Barrier(lane, n) {
		t.passBarrier(n)
	}
}

// passBarrier closes generation n: what operators held back goes on, changed state
// goes to the changelogs and output to its topics inside the transaction of n, the
// barrier goes to the stages below, and the task reports. It then works on n+1.
func (t *Task) passBarrier(n int64) {
	if c := t.job.completed.Load(); c != t.completed {
		t.observeComplete()
	}
	invariant.Check(n >= t.generation && t.completed == n-1, "task %s/%d passes barrier %d in generation %d with %d complete", t.ID.Stage, t.ID.Shard, n, t.generation, t.completed)
	t.generation = n
	for _, f := range t.onBarrier {
		f()
	}
	for _, s := range t.stores {
		if t.err != nil {
			return
		}
		if err := s.barrier(n); err != nil {
			t.Fail(s.step, err)
		}
	}
	for _, o := range t.outputs {
		if t.err != nil {
			return
		}
		o.flush()
	}
	if t.err != nil {
		return
	}
	for _, s := range t.senders {
		s.barrier(n)
	}
	t.generation, t.passed = n+1, n
	t.cutting, t.newest = 0, math.MinInt64
	t.report(n)
}

// report tells the coordinator where the task stands.
func (t *Task) report(n int64) {
	r := checkpoint.Report{State: t.saveClocks(nil)}
	for _, in := range t.inputs {
		if s, ok := in.(positioned); ok {
			r.Inputs = append(r.Inputs, s.position())
		}
	}
	wrote := false
	for _, s := range t.stores {
		r.Changelogs = append(r.Changelogs, checkpoint.Changelog{Partition: s.changelog, End: s.end})
		wrote = wrote || s.wrote
	}
	for _, o := range t.outputs {
		wrote = wrote || o.wrote
		o.wrote = false
	}
	if t.delivers {
		// So that what lost checkpoints have written there is cut.
		r.Changelogs = append(r.Changelogs, checkpoint.Changelog{Partition: r.Inputs[0].Partition, End: r.Inputs[0].Next})
	}
	r.Changelogs = append(r.Changelogs, t.carried...)
	r.Moved = wrote || !slices.Equal(r.Inputs, t.reported.Inputs) || string(r.State) != string(t.reported.State) ||
		!slices.Equal(r.Changelogs, t.reported.Changelogs)
	r.Durable = t.delivers && t.inputs[0].(*Delivery).decides
	t.reported = r
	t.publish()
	t.job.report(t, n, r)
}

// positioned is an input whose place is part of a checkpoint.
type positioned interface{ position() checkpoint.Input }

// moved says that the next checkpoint has something to commit.
func (t *Task) moved() {
	if !t.job.active.Load() {
		t.job.active.Store(true)
	}
}

func (t *Task) publish() {
	s := Status{Task: t.ID, Watermark: window.EndOfTime, Counters: t.counters}
	if t.merge != nil {
		s.Watermark = t.watermark
	}
	for _, in := range t.inputs {
		if w, ok := in.(interface{ watermark() int64 }); ok {
			s.Watermark = min(s.Watermark, w.watermark())
		}
	}
	t.unpublished, t.inputStatus = false, t.inputStatus[:0]
	for _, in := range t.inputs {
		if in, ok := in.(interface{ status() InputStatus }); ok {
			t.inputStatus = append(t.inputStatus, in.status())
		}
	}
	for _, st := range t.stores {
		s.StateSize += st.table.Bytes()
	}
	t.mu.Lock()
	before := t.public.Counters
	s.Inputs = append(t.public.Inputs[:0], t.inputStatus...)
	t.public = s
	t.mu.Unlock()
	if before.Late == 0 && s.Counters.Late > 0 {
		t.job.o.Logger.Warn("stream: a record came late and is dropped; more are counted",
			"job", t.job.o.Name, "task", t.ID.Stage, "shard", t.ID.Shard)
	}
}

// Status is the task as of its last piece of work. It may be called by anybody.
func (t *Task) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.public
	s.Inputs = slices.Clone(s.Inputs)
	if t.delivers {
		d := t.inputs[0].(*Delivery).Status()
		s.Delivery = &d
	}
	return s
}

func (t *Task) close() error {
	var first error
	for _, in := range t.inputs {
		in.close()
	}
	for _, g := range t.globals {
		g.close()
	}
	for _, s := range t.stores {
		if err := s.close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
