package engine

import (
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic"
)

// changelogBytes is the size of a batch of the changelog.
const changelogBytes = 1 << 20

// Table is the overlay of a store, as far as the engine deals with it.
type Table interface {
	Barrier(n int64, put func(key, value []byte) error) error
	Passed(m state.Mark)
	Bytes() int64
	Dirty() int64
	SetBudget(bytes int64)
	Err() error // met when it was made
}

// store is the state of one step in one task: the table, the store behind it and
// the changelog between them.
type store struct {
	step      int
	store     *state.Store
	db        state.DB // closed after the store
	table     Table
	changelog topic.TopicPartition
	writer    *checkpoint.Writer
	batch     topic.BatchBuilder

	end   topic.LogPosition // of the changelog, as of the last barrier
	wrote bool              // at the last barrier
	n     int64             // the checkpoint end belongs to, until it is complete; 0 when none
}

// OpenChangelog opens a changelog for writing. That comes before its store is opened:
// what the changelog has beyond the checkpoint the attempt starts from is cut here.
func (t *Task) OpenChangelog(tp topic.TopicPartition) (*checkpoint.Writer, error) {
	w, err := t.job.session.ChangelogWriter(tp)
	if err != nil {
		return nil, fmt.Errorf("open changelog %s: %w", tp, err)
	}
	return w, nil
}

// AddStore hands the store of a step to the task, brought to where the attempt
// starts: position end of its changelog. The table made on it follows with the result.
func (t *Task) AddStore(step int, s *state.Store, db state.DB, tp topic.TopicPartition, w *checkpoint.Writer, end topic.LogPosition) (setTable func(Table)) {
	t.job.session.FollowChangelog(tp, s.Durable)
	st := &store{step: step, store: s, db: db, changelog: tp, writer: w, end: end}
	t.stores = append(t.stores, st)
	return func(table Table) {
		table.SetBudget(t.job.taskBudget)
		st.table = table
	}
}

// barrier appends what changed to the changelog, in the transaction of checkpoint n.
func (s *store) barrier(n int64) error {
	s.wrote = false
	err := s.table.Barrier(n, func(key, value []byte) error {
		largest := s.writer.MaxBatchBytes()
		if !fits(&s.batch, largest, 0, key, value, nil) {
			if err := s.write(n); err != nil {
				return err
			}
		}
		s.batch.Add(0, key, value, nil)
		if s.batch.Size() < min(changelogBytes, largest) {
			return nil
		}
		return s.write(n)
	})
	if err == nil && s.batch.Len() > 0 {
		err = s.write(n)
	}
	s.n = n
	return err
}

func (s *store) write(n int64) error {
	end, err := s.writer.Write(n, &s.batch)
	if err != nil {
		return fmt.Errorf("write to changelog %s: %w", s.changelog, err)
	}
	s.end, s.wrote = end, true
	return nil
}

// follow lets the store come up to checkpoint n, which is complete, and lets
// entries leave the table that the store has passed. With hurry it waits until the
// store is there: a follower that falls behind slows its task and does not grow it.
func (s *store) follow(j *Job, n int64, hurry bool) error {
	mark := state.Mark{Attempt: j.attempt, N: n, End: s.end}
	var err error
	if s.n == n && s.wrote {
		err = s.store.Follow(j.ctx, mark)
		if err == nil && hurry {
			err = s.store.Reach(j.ctx, mark)
		}
	}
	if err != nil && j.ctx.Err() == nil {
		return fmt.Errorf("store of changelog %s: %w", s.changelog, err)
	}
	s.table.Passed(s.store.Mark())
	return nil
}

func (s *store) close() error { return errors.Join(s.store.Close(), s.db.Close()) }
