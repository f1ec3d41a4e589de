package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/thalweg/thalweg/log"
)

// Hooks are called by a Session, one at a time and never with its locks held, from
// whichever goroutine calls into the session or from one of the session's own. They
// may call back into the session. A nil hook is not called.
type Hooks struct {
	Barrier  func(n int64)   // inject barrier n into every source task
	Complete func(id ID)     // checkpoint id is committed (or nothing moved): n+1 may be appended
	Failed   func(err error) // the attempt is over; nothing more will complete
}

// JobOptions describes a job to StartJob.
type JobOptions struct {
	Name  string   // owns state, checkpoints and positions
	Tasks []TaskID // all that report; at least one, none twice

	// AtLeastOnce writes the partitions of Writer outside transactions; those of
	// ChangelogWriter stay inside.
	AtLeastOnce bool

	Hooks Hooks

	// Synchronous does all waits inline in the calls that lead to them, without a
	// goroutine: for tests in virtual time on memory.
	Synchronous bool
}

func (o JobOptions) check() error {
	if o.Name == "" {
		return errors.New("checkpoint: a job needs a name")
	}
	if len(o.Tasks) == 0 {
		return fmt.Errorf("checkpoint: job %q has no tasks", o.Name)
	}
	seen := map[TaskID]struct{}{}
	for _, t := range o.Tasks {
		if _, twice := seen[t]; twice {
			return fmt.Errorf("checkpoint: job %q has task %v twice", o.Name, t)
		}
		if t.Shard < 0 || t.Shard > math.MaxInt32 {
			return fmt.Errorf("checkpoint: job %q has a task with shard %d, allowed is 0 to %d", o.Name, t.Shard, math.MaxInt32)
		}
		seen[t] = struct{}{}
	}
	return nil
}

// Session is one attempt of a job. Its methods may be called concurrently.
//
// What is written and reported becomes final in this order, for each checkpoint: data
// in the partitions, as durable as their topics demand; Complete in the metadata log;
// markers; Hooks.Complete. Where no topic waits for the disk all of it happens
// in the last Report.
type Session struct {
	p        *Plane
	opts     JobOptions
	attempt  int64
	first    log.ProducerID // of the attempt's block
	base     int64          // the number the block counts from
	restored restored

	ctx    context.Context // ends the waits of a commit; made here because Close belongs here
	cancel context.CancelFunc

	followed []log.TopicPartition // see FollowChangelog; guarded by Plane.stateMu

	// behind is what entries since the last one that was synced name, with the
	// offset that has to be durable first. Begin and the commits, which never run
	// at the same time, use it.
	behind map[*log.Partition]log.Offset

	mu      sync.Mutex // guards the fields below; not held across I/O or a hook
	idle    *sync.Cond // busy has become false
	coord   *coordinator
	gate    gate
	busy    bool // a commit is running, in a goroutine or in the last Report
	writers map[log.TopicPartition]*Writer
	named   map[log.TopicPartition]struct{} // a complete checkpoint of the job has written to it
	hooks   []func()
	calling bool // a goroutine is working through hooks
	err     error
	closed  bool

	closeOnce sync.Once
	closeErr  error
}

// StartJob begins a new attempt: it commits attempt+1 first, ends what older attempts
// left open in every partition by the metadata log's verdict, and then picks the
// checkpoint to start from: the newest retained one whose positions are all there.
// While the session is open the job cannot be started again: ErrJobRunning.
func (p *Plane) StartJob(ctx context.Context, o JobOptions) (*Session, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.reserve(o.Name); err != nil {
		return nil, err
	}
	s, err := p.startJob(o)
	p.jobsMu.Lock()
	defer p.jobsMu.Unlock()
	if err != nil {
		delete(p.sessions, o.Name)
		return nil, fmt.Errorf("start job %q: %w", o.Name, err)
	}
	if s.restored.fellBack {
		p.fellBack++
	}
	if p.closed {
		delete(p.sessions, o.Name)
		return nil, ErrClosed // the attempt is over with the process
	}
	p.sessions[o.Name] = s
	return s, nil
}

// reserve takes the name of a job for the one session that may run it.
func (p *Plane) reserve(name string) error {
	p.jobsMu.Lock()
	defer p.jobsMu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if _, running := p.sessions[name]; running { // or is being started
		return fmt.Errorf("%w: %q", ErrJobRunning, name)
	}
	p.sessions[name] = nil
	return nil
}

func (p *Plane) startJob(o JobOptions) (*Session, error) {
	s := &Session{p: p, opts: o, writers: map[log.TopicPartition]*Writer{}, behind: map[*log.Partition]log.Offset{}}
	s.idle = sync.NewCond(&s.mu)
	s.ctx, s.cancel = context.WithCancel(context.Background())

	s.attempt = p.attempt(o.Name) + 1
	r, err := p.propose(attemptBegin{o.Name, s.attempt, nonce()}, true)
	if err != nil {
		return nil, err
	}
	s.first, s.base = r.first, r.base
	for part := range p.log.Partitions() {
		if err := p.settle(part, o.Name); err != nil {
			return nil, err
		}
	}
	p.settled(o.Name)
	if err := s.restore(); err != nil {
		return nil, err
	}
	s.named = map[log.TopicPartition]struct{}{}
	for tp := range s.restored.checkpoint.ends {
		s.named[tp] = struct{}{}
	}
	s.coord = newCoordinator(s.attempt, s.base, o.Tasks, rules{})
	if s.restored.ok {
		s.gate.begin(ID{s.attempt, s.base})
	}
	return s, nil
}

// attempt is the present attempt of a job, 0 for an unknown one.
func (p *Plane) attempt(name string) int64 {
	p.stateMu.RLock()
	defer p.stateMu.RUnlock()
	if j := p.state.jobs[name]; j != nil {
		return j.attempt
	}
	return 0
}

// Attempt is the number of this attempt of the job, from 1.
func (s *Session) Attempt() int64 { return s.attempt }

// Restored is the checkpoint the attempt starts from; ok is false when the job has none yet.
func (s *Session) Restored() (id ID, ok bool) { return s.restored.checkpoint.id, s.restored.ok }

// RestoredReport returns what task reported in the restored checkpoint, or last before it.
func (s *Session) RestoredReport(task TaskID) (Report, bool) {
	r, ok := s.restored.checkpoint.reports[task]
	return r, ok
}

// RestoredChangelog returns where the restored checkpoint stands in a changelog, and
// the task that reported it: also one that the job does not have any more, because
// the stage it belonged to has another name now.
func (s *Session) RestoredChangelog(tp log.TopicPartition) (task TaskID, end log.Position, ok bool) {
	for t, r := range s.restored.checkpoint.reports {
		for _, c := range r.Changelogs {
			if c.Partition == tp && (!ok || c.End.Offset > end.Offset) {
				task, end, ok = t, c.End, true
			}
		}
	}
	return task, end, ok
}

// RestoredInput returns how far the restored checkpoint has read a partition in a task
// that the job does not have any more; has tells which it has. Of several such tasks
// the one that is behind counts.
func (s *Session) RestoredInput(tp log.TopicPartition, has func(TaskID) bool) (next log.Position, ok bool) {
	for task, r := range s.restored.checkpoint.reports {
		for _, in := range r.Inputs {
			if in.Partition == tp && !has(task) && (!ok || in.Next.Offset < next.Offset) {
				next, ok = in.Next, true
			}
		}
	}
	return next, ok
}

// FellBack tells whether the restored checkpoint is older than one that had been
// completed, because a power cut took what that one names. Then results since may be
// committed a second time; from is the newest checkpoint known to be lost.
func (s *Session) FellBack() (from ID, ok bool) {
	return s.restored.fellBackBy, s.restored.fellBack
}

// Next is the number of the checkpoint that writes now belong to: the one after the
// last completed. It starts one after the restored checkpoint's; without one it is
// 0 until Begin, then 1.
func (s *Session) Next() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gate.open.N
}

// Err is why the attempt is over, or nil.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Begin commits checkpoint 0 of a job that has none: where every source starts. It is
// durable when Begin returns. Nothing can be written before.
func (s *Session) Begin(ctx context.Context, reports map[TaskID]Report) error {
	if s.restored.ok {
		return fmt.Errorf("%w: job %q has begun: it continues from %v", ErrGeneration, s.opts.Name, s.restored.checkpoint.id)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for t := range reports {
		if _, known := s.coord.tasks[t]; !known {
			return fmt.Errorf("checkpoint: job %q has no task %v", s.opts.Name, t)
		}
	}
	s.readBehind(reports)
	if err := s.syncBehind(ctx); err != nil {
		return err
	}
	zero := ID{Attempt: s.attempt}
	if _, err := s.p.propose(complete{s.opts.Name, zero, reports, nil}, true); err != nil {
		s.fail(err)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate.state == gateShut {
		s.gate.begin(zero)
	}
	return s.err
}

// Writer returns the node's one writer of an output partition in this attempt.
func (s *Session) Writer(tp log.TopicPartition) (*Writer, error) {
	return s.writer(tp, s.opts.AtLeastOnce)
}

// ChangelogWriter is Writer for a changelog, which is written in transactions also by a
// job that runs at least once. Call it before the store over the changelog is opened:
// of one that the restored checkpoint does not name, what lost checkpoints have
// written is cut away now.
func (s *Session) ChangelogWriter(tp log.TopicPartition) (*Writer, error) {
	if err := s.clearUnnamed(tp); err != nil {
		return nil, err
	}
	return s.writer(tp, false)
}

func (s *Session) writer(tp log.TopicPartition, plain bool) (*Writer, error) {
	part, err := s.p.log.Partition(tp)
	if err != nil {
		return nil, err
	}
	if tp == metadataPartition {
		return nil, fmt.Errorf("checkpoint: jobs do not write %v", tp)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate.state == gateClosed {
		return nil, s.overLocked()
	}
	w := s.writers[tp]
	if w == nil {
		w = &Writer{s: s, part: part, plain: plain}
		s.writers[tp] = w
	}
	if w.plain != plain {
		return nil, fmt.Errorf("checkpoint: %v is both an output and a changelog of job %q", tp, s.opts.Name)
	}
	return w, nil
}

// writes tells whether the session has a writer of tp.
func (s *Session) writes(tp log.TopicPartition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writers[tp] != nil
}

func (s *Session) names(tp log.TopicPartition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, named := s.named[tp]
	return named
}

// txn is the transaction of checkpoint n.
func (s *Session) txn(n int64) log.ProducerID { return s.first + log.ProducerID(n-s.base) }

// admits tells a writer whether n is open.
func (s *Session) admits(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate.state == gateClosed {
		return s.overLocked()
	}
	return s.gate.admits(ID{s.attempt, n})
}

func (s *Session) overLocked() error {
	if s.err != nil {
		return fmt.Errorf("%w: %w", ErrAttemptOver, s.err)
	}
	return ErrAttemptOver
}

// Trigger starts the next checkpoint unless one is in flight (then it is a no-op and
// reports false, and so it does before Begin and after a failure). It calls
// Hooks.Barrier before it returns, or, while another hook is running, lets that one
// return first.
func (s *Session) Trigger() (started bool) {
	_, started = s.TriggerNext()
	return started
}

// TriggerNext is Trigger, and tells the number of the checkpoint it started.
func (s *Session) TriggerNext() (n int64, started bool) {
	s.mu.Lock()
	if s.gate.state != gateOpen {
		s.mu.Unlock()
		return 0, false
	}
	id, started := s.coord.trigger()
	if started && s.opts.Hooks.Barrier != nil {
		s.hooks = append(s.hooks, func() { s.opts.Hooks.Barrier(id.N) })
	}
	s.mu.Unlock()
	s.callHooks()
	return id.N, started
}

// Report hands in a task's report for barrier n. It does not wait for a disk: once
// everything written through the session's writers for n is acknowledged and all
// tasks have reported, Complete is committed, the markers are written and
// Hooks.Complete called. Where nothing has to be waited for that happens in the last
// Report. A report for another checkpoint than the one in flight is dropped.
func (s *Session) Report(task TaskID, n int64, r Report) {
	s.mu.Lock()
	if !s.coord.report(ID{s.attempt, n}, task, r) {
		s.mu.Unlock()
		return
	}
	s.gate.seal()
	s.busy = true
	c := &commit{id: s.coord.id(), reports: s.coord.moved(), ends: map[log.TopicPartition]log.Position{}}
	writers := slices.Collect(maps.Values(s.writers))
	s.mu.Unlock()

	for _, r := range c.reports {
		c.strict = c.strict || r.Durable
	}
	for _, w := range writers {
		c.add(w, s.names(w.part.Name()))
	}
	run := func() {
		done, err := s.commit(c)
		s.committed(c, done, err)
	}
	if c.strict && !s.opts.Synchronous {
		go func() { // Close waits until it has cleared busy
			run()
			s.callHooks()
		}()
		return
	}
	run()
	s.callHooks()
}

// callHooks calls what is due, unless somebody is at it already.
func (s *Session) callHooks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calling {
		return
	}
	s.calling = true
	for len(s.hooks) > 0 && !s.closed {
		call := s.hooks[0]
		s.hooks = s.hooks[1:]
		s.mu.Unlock()
		call()
		s.mu.Lock()
	}
	s.hooks, s.calling = nil, false
}

// fail ends the attempt on this side with its cause.
func (s *Session) fail(cause error) {
	s.mu.Lock()
	s.failLocked(cause)
	s.mu.Unlock()
	s.callHooks()
}

func (s *Session) failLocked(cause error) {
	s.gate.close()
	if !s.coord.fail() || s.closed {
		return
	}
	s.err = cause
	s.cancel()
	if s.opts.Hooks.Failed != nil {
		s.hooks = append(s.hooks, func() { s.opts.Hooks.Failed(cause) })
	}
}

// Close ends the attempt: late reports and writes are refused, waits end, and no hook
// is called any more but one that is running. What the open checkpoint has written
// is aborted now, by an entry that ends the attempt, so that a job that is not
// started again never holds up readers of committed data. Close may be called from a
// hook, and repeated; it returns the first result.
func (s *Session) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Session) close() error {
	s.mu.Lock()
	s.closed = true
	s.gate.close()
	s.coord.fail()
	s.cancel()
	for s.busy {
		s.idle.Wait()
	}
	open := s.gate.open.N
	writers := slices.Collect(maps.Values(s.writers))
	s.mu.Unlock()

	s.unfollow()
	var err error
	dirty := false
	for _, w := range writers {
		// A writer that failed may have left a batch behind that it knows nothing of.
		_, wrote := w.written(open)
		dirty = dirty || wrote || w.failed()
	}
	if dirty {
		err = s.abort(writers)
	}
	s.p.jobsMu.Lock()
	defer s.p.jobsMu.Unlock()
	delete(s.p.sessions, s.opts.Name)
	return err
}

// abort ends the attempt for good and what it left open.
func (s *Session) abort(writers []*Writer) error {
	_, err := s.p.propose(attemptEnd{s.opts.Name, s.attempt}, true)
	if err != nil {
		return fmt.Errorf("end attempt %d of job %q: %w", s.attempt, s.opts.Name, err)
	}
	for _, w := range writers {
		err = errors.Join(err, s.p.settle(w.part, s.opts.Name))
	}
	return err
}
