package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic"
)

// images are what readers of the job's state hold. The databases must not be closed under
// them.
type images struct {
	mu     sync.Mutex // guards the fields below
	open   map[*state.Image]struct{}
	taking sync.WaitGroup // calls that may still add to open
	closed bool
}

// enter begins a call that takes images; false means that the job is over.
func (s *images) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.taking.Add(1)
	}
	return !s.closed
}

func (s *images) add(taken []*state.Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*state.Image]struct{})
	}
	for _, im := range taken {
		s.open[im] = struct{}{}
	}
}

// release closes images that were taken.
func (s *images) release(taken []*state.Image) (err error) {
	for _, im := range taken {
		err = errors.Join(err, im.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, im := range taken {
		delete(s.open, im)
	}
	return err
}

// close lets no more be taken and closes those that are open. The job's context has ended,
// so that calls that take some return soon.
func (s *images) close() (err error) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.taking.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for im := range s.open {
		err = errors.Join(err, im.Close())
	}
	s.open = nil
	return err
}

// Images are stores of a job at one instant.
type Images struct {
	job *Job
	all []*state.Image

	ID   checkpoint.ID       // of the checkpoint they are at; the zero value where they are ahead of it
	Ends []topic.LogPosition // of the changelogs in it

	// Reports are what the tasks reported in it.
	Reports map[checkpoint.TaskID]checkpoint.Report
}

// Of is the image of the nth store.
func (i *Images) Of(n int) *state.Image { return i.all[n] }

// Close lets go of the images. It may be repeated, also when the job is over.
func (i *Images) Close() error { return i.job.images.release(i.all) }

// Committed takes an image of each of the stores over the changelogs, as of the newest
// complete checkpoint.
func (j *Job) Committed(ctx context.Context, changelogs []topic.TopicPartition) (*Images, error) {
	return j.take(ctx, func(ctx context.Context, taken *Images) error {
		stores := make([]*state.Store, len(changelogs))
		for i, tp := range changelogs {
			_, st := j.storeOf(tp)
			if st == nil {
				return fmt.Errorf("stream: job %q has no store over %v", j.o.Name, tp)
			}
			stores[i] = st.store
		}
		// In one order whoever asks, since each holds what it has while it waits for the next.
		order := make([]int, len(stores))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return compareChangelogs(changelogs[a], changelogs[b]) })
		sorted := make([]*state.Store, len(stores))
		for i, n := range order {
			sorted[i] = stores[n]
		}
		got, err := state.Images(ctx, sorted, func() []state.Mark {
			j.mu.Lock()
			defer j.mu.Unlock()
			taken.ID, taken.Ends, taken.Reports = j.last.ID, j.endsLocked(changelogs), maps.Clone(j.committedReports)
			marks := make([]state.Mark, len(stores))
			for i, n := range order {
				marks[i] = state.Mark{Attempt: taken.ID.Attempt, N: taken.ID.N, End: taken.Ends[n]}
			}
			return marks
		})
		if err != nil {
			return err
		}
		taken.all = make([]*state.Image, len(stores))
		for i, n := range order {
			taken.all[n] = got[i]
		}
		return nil
	})
}

// Ends are where changelogs are in the newest complete checkpoint, also when the job is over. newer is
// closed when there is a newer one.
func (j *Job) Ends(changelogs []topic.TopicPartition) (id checkpoint.ID, ends []topic.LogPosition, newer <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last.ID, j.endsLocked(changelogs), j.advanced
}

func (j *Job) endsLocked(changelogs []topic.TopicPartition) []topic.LogPosition {
	of := make(map[topic.TopicPartition]topic.LogPosition)
	for _, r := range j.committedReports {
		for _, c := range r.Changelogs {
			of[c.Partition] = c.End
		}
	}
	ends := make([]topic.LogPosition, len(changelogs))
	for i, tp := range changelogs {
		ends[i] = of[tp]
	}
	return ends
}

func compareChangelogs(a, b topic.TopicPartition) int {
	if a.Topic != b.Topic {
		if a.Topic < b.Topic {
			return -1
		}
		return 1
	}
	return int(a.Partition) - int(b.Partition)
}

// Latest takes an image of each of the stores over the changelogs, with all that their tasks
// have changed so far, committed or not: those of one task at one instant. Of key alone, a
// state key, where it is not nil.
func (j *Job) Latest(ctx context.Context, changelogs []topic.TopicPartition, key []byte) (*Images, error) {
	return j.take(ctx, func(ctx context.Context, taken *Images) error {
		taken.all = make([]*state.Image, len(changelogs))
		of := make(map[*Task][]int)
		tables := make([]imaging, len(changelogs))
		for i, tp := range changelogs {
			t, st := j.storeOf(tp)
			if st == nil {
				return fmt.Errorf("stream: job %q has no store over %v", j.o.Name, tp)
			}
			if tables[i], _ = st.table.(imaging); tables[i] == nil {
				return fmt.Errorf("stream: job %q: the store over %v cannot be read", j.o.Name, tp)
			}
			of[t] = append(of[t], i)
		}
		for t, of := range of {
			var got []*state.Image
			failed := ErrStopped // where it does not come to an end
			err := t.ask(ctx, func() {
				for _, i := range of {
					im, err := tables[i].Image(key)
					if err != nil {
						failed = err
						return
					}
					got = append(got, im)
				}
				failed = nil
			})
			if err == nil {
				err = failed
			}
			for n, im := range got {
				taken.all[of[n]] = im
			}
			if err != nil {
				for _, im := range taken.all {
					if im != nil {
						err = errors.Join(err, im.Close())
					}
				}
				return err
			}
		}
		return nil
	})
}

// imaging is a table that can be read from outside.
type imaging interface {
	Image(key []byte) (*state.Image, error)
}

// take takes images while the job runs.
func (j *Job) take(ctx context.Context, f func(ctx context.Context, taken *Images) error) (*Images, error) {
	if !j.images.enter() {
		return nil, j.over()
	}
	defer j.images.taking.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(j.ctx, func() { cancel(j.over()) })()
	taken := &Images{job: j}
	if err := f(ctx, taken); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	j.images.add(taken.all)
	return taken, nil
}

// Context ends when the job does.
func (j *Job) Context() context.Context { return j.ctx }

// Over is why the job has ended.
func (j *Job) Over() error { return j.over() }

// over is why the state of a job that has ended cannot be read.
func (j *Job) over() error {
	err := context.Cause(j.ctx)
	if err == nil {
		err = ErrStopped
	}
	return fmt.Errorf("stream: job %q is over, its tables can be read again once it is started: %w", j.o.Name, err)
}

// storeOf finds the store over a changelog, and its task.
func (j *Job) storeOf(tp topic.TopicPartition) (*Task, *store) {
	for _, t := range j.tasks {
		for _, st := range t.stores {
			if st.changelog == tp {
				return t, st
			}
		}
	}
	return nil, nil
}

// questions are what others want a task to look up between two pieces of work.
type questions struct {
	waiting atomic.Bool // there are some

	mu    sync.Mutex // guards asked
	asked []*question
}

// question is answered by the task, or no longer asked: who takes it first.
type question struct {
	f     func()
	taken atomic.Bool
	done  chan struct{} // closed when f has returned
}

// ask has the task call f between two pieces of its work, and waits for it. When ctx ends
// first f is not called.
func (t *Task) ask(ctx context.Context, f func()) error {
	if t.stepped() {
		f()
		return nil
	}
	q := &question{f: f, done: make(chan struct{})}
	t.asked.mu.Lock()
	t.asked.asked = append(t.asked.asked, q)
	t.asked.waiting.Store(true)
	t.asked.mu.Unlock()
	t.Signal()
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		if q.taken.CompareAndSwap(false, true) {
			return context.Cause(ctx)
		}
		<-q.done
		return nil
	}
}

// answer answers what was asked.
func (q *questions) answer() (any bool) {
	if !q.waiting.Load() {
		return false
	}
	q.mu.Lock()
	asked := q.asked
	q.asked = nil
	q.waiting.Store(false)
	q.mu.Unlock()
	for _, one := range asked {
		if one.taken.CompareAndSwap(false, true) {
			one.answer()
		}
	}
	return true
}

func (q *question) answer() {
	defer close(q.done)
	q.f()
}
