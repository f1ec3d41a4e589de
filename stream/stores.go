package stream

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
)

// storeDecl is a store of a step: one database and one changelog partition a task.
type storeDecl struct {
	step *step
	part string // tells the stores of one step apart; empty for the only or the main one

	backend state.Backend // of its databases; nil takes the node's

	// owner is the key of the step's records that a state key belongs to, which decides in which
	// shard it is; nil where stays tells why nobody can say.
	owner func(stateKey []byte) (key []byte, err error)
	stays string

	everywhere bool // every task has the same
	numbered   bool // state keys begin with numbers that each task gives
	anyTask    bool // entries may be in any task where nobody can say in which
	together   bool // the timers of a task are all set to one time

	// schemas lets the store's codec read what was written under a schema; nil where it needs
	// none.
	schemas func(schema []byte) error
}

// keep declares a store of the step.
func (s *step) keep(part string) *storeDecl {
	d := &storeDecl{step: s, part: part}
	s.stores = append(s.stores, d)
	return d
}

// ownKeys says that state keys are those of the records.
func (d *storeDecl) ownKeys() *storeDecl { return d.keysBehind(0) }

// keysBehind says that n bytes come before the key of the records: a window start, or a timer's
// time.
func (d *storeDecl) keysBehind(n int) *storeDecl {
	return d.ownedBy(func(stateKey []byte) ([]byte, error) { return stateKey[min(n, len(stateKey)):], nil })
}

// ownedBy says to which key of the records a state key belongs.
func (d *storeDecl) ownedBy(owner func(stateKey []byte) ([]byte, error)) *storeDecl {
	d.owner = owner
	return d
}

// timersOf says that the store has timers for the state keys of another.
func (d *storeDecl) timersOf(other *storeDecl) *storeDecl {
	d.stays = other.stays
	if other.owner == nil {
		return d
	}
	return d.ownedBy(func(stateKey []byte) ([]byte, error) { return other.owner(stateKey[min(timerBytes, len(stateKey)):]) })
}

const (
	windowBytes = 8 // before the key in a window store
	timerBytes  = 9 // before the key of a timer
)

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
func (r *run) changelog(d *storeDecl) string { return changelogTopic(r.app.name, d.name(), r.moves[d]) }

// changelogTopic is the changelog of a store whose state has moved to another number of shards
// so many times.
func changelogTopic(job, store string, moves int) string {
	kind := "changelog"
	if moves > 0 {
		kind += strconv.Itoa(moves)
	}
	return internalTopic(job, store, kind)
}

// internalTopic is the name of a topic that belongs to a step of a job. Each '-' of the job's
// name is doubled, so that the single one behind it ends that name: a step begins with a
// letter or a digit, and no two steps of two jobs have a topic in common.
func internalTopic(job, step, kind string) string {
	return internalPrefix(job) + step + "-" + kind
}

// internalPrefix is what the names of a job's internal topics begin with, and those of no
// other.
func internalPrefix(job string) string { return "__" + strings.ReplaceAll(job, "-", "--") + "-" }

// storeDir is where the database of a shard is.
func (r *run) storeDir(d *storeDecl, moves, shard int) string {
	name := strconv.Itoa(shard)
	if moves > 0 {
		name = strconv.Itoa(moves) + "." + name
	}
	return path.Join(r.env.StateDir, r.app.name, d.name(), name)
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
	db, err := r.openDatabase(d, t.ID.Shard)
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

// database is one that was opened before its task.
type database struct {
	db  state.DB
	err error
}

// databasesAtOnce is how many databases of a job are opened at a time: it is the disk that is
// waited for.
const databasesAtOnce = 16

// openDatabases opens those of all tasks, before the tasks are opened one by one. What fails, fails when
// its task asks for it.
func (r *run) openDatabases() {
	r.databases = make(map[string]database)
	var (
		mu    sync.Mutex // guards r.databases
		group errgroup.Group
	)
	group.SetLimit(databasesAtOnce)
	for _, st := range r.stages {
		for _, d := range st.stores {
			for shard := range st.tasks {
				group.Go(func() error {
					dir := r.storeDir(d, r.moves[d], shard)
					db, err := r.backendOf(d).Open(dir)
					mu.Lock()
					defer mu.Unlock()
					r.databases[dir] = database{db, err}
					return nil
				})
			}
		}
	}
	_ = group.Wait()
}

// openDatabase opens the database of a store in a shard, or takes over what openDatabases has
// opened.
func (r *run) openDatabase(d *storeDecl, shard int) (state.DB, error) {
	dir := r.storeDir(d, r.moves[d], shard)
	if opened, ok := r.databases[dir]; ok {
		delete(r.databases, dir)
		return opened.db, opened.err
	}
	return r.backendOf(d).Open(dir)
}

// closeDatabases closes those that no task has taken over.
func (r *run) closeDatabases() (err error) {
	for _, opened := range r.databases {
		if opened.err == nil {
			err = errors.Join(err, opened.db.Close())
		}
	}
	r.databases = nil
	return err
}

// backendOf is where the databases of a store are.
func (r *run) backendOf(d *storeDecl) state.Backend {
	if d.backend != nil {
		return d.backend
	}
	return r.env.Backend
}
