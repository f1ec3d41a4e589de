package stream

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
)

// storeDecl is a store of a step: one database and one changelog partition a task.
type storeDecl struct {
	step *step
	part string // tells the stores of one step apart; empty for the only or the main one

	backend state.Backend // of its databases; nil takes the node's
}

// keep declares a store of the step.
func (s *step) keep(part string) *storeDecl {
	d := &storeDecl{step: s, part: part}
	s.stores = append(s.stores, d)
	return d
}

// stateful tells whether the step has a store, and with it a name that must last.
func (s *step) stateful() bool { return len(s.stores) > 0 }

// name is what directory and changelog of the store are called after. It is final once the
// topology is validated.
func (d *storeDecl) name() string {
	if d.part == "" {
		return d.step.name
	}
	return d.step.name + "-" + d.part
}

// changelogTombstones is how long deletions stay in a changelog. Only stores read it,
// and none loses anything when one goes: not the running one, which must have it on
// disk before, nor another, which is rebuilt when it has not.
const changelogTombstones = time.Minute

// changelog is the topic behind a store.
func (r *run) changelog(d *storeDecl) string { return internalTopic(r.app.name, d.name(), "changelog") }

// internalTopic is the name of a topic that belongs to a step of a job. Each '-' of the job's
// name is doubled, so that the single one behind it ends that name: a step begins with a
// letter or a digit, and no two steps of two jobs have a topic in common.
func internalTopic(job, step, kind string) string {
	return "__" + strings.ReplaceAll(job, "-", "--") + "-" + step + "-" + kind
}

// openStored is a store being opened for a step.
type openStored struct {
	Store    *state.Store
	SetTable func(engine.Table)
}

// openStore opens a store for the task, at the checkpoint the attempt starts from. It is
// nil when that failed, and the task then does not start.
func (o *opening) openStore(d *storeDecl) *openStored {
	st, err := o.run.openStore(o.task, d)
	if err != nil {
		o.fail(fmt.Errorf("store of step %q: %w", d.name(), err))
		return nil
	}
	return st
}

func (r *run) openStore(t *engine.Task, d *storeDecl) (*openStored, error) {
	tp := topic.TopicPartition{Topic: r.changelog(d), Partition: topic.PartitionID(t.ID.Shard)}
	changelog, err := r.env.Plane.Log().Partition(tp)
	if err != nil {
		return nil, err
	}
	writer, err := t.OpenChangelog(tp)
	if err != nil {
		return nil, err
	}
	backend := r.env.Backend
	if d.backend != nil {
		backend = d.backend
	}
	db, err := backend.Open(path.Join(r.env.StateDir, r.app.name, d.name(), strconv.Itoa(t.ID.Shard)))
	if err != nil {
		return nil, err
	}
	store, err := state.OpenStore(state.StoreOptions{DB: db, Changelog: changelog, Cache: r.env.Cache,
		Name: tp.String(), Manual: r.env.Manual, Logger: r.env.Logger})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	id, end := t.RestoreTo(tp)
	if err := store.CatchUp(context.Background(), state.Mark{Attempt: id.Attempt, N: id.N, End: end}); err != nil {
		return nil, errors.Join(err, store.Close(), db.Close())
	}
	return &openStored{store, t.AddStore(d.step.id, store, db, tp, writer, end)}, nil
}
