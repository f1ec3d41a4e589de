package stream

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thalweg/thalweg/checkpoint"
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
	writer, err := t.OpenChangelog(tp)
	if err != nil {
		return nil, err
	}
	id, end := t.RestoreTo(tp)
	st := r.takeStore(d, tp, id, end)
	if st.err != nil {
		return nil, st.err
	}
	return &openStored{st.store, t.AddStore(d.step.id, st.store, st.db, tp, writer, end)}, nil
}

// readyStore is a store that is at the checkpoint the attempt starts from, or why there is none.
type readyStore struct {
	db    state.DB
	store *state.Store
	err   error
}

// makeReady opens a shard's store and brings it to a checkpoint, which ends its changelog at end. Where
// catching is set, no more stores are brought forward at a time than it has room for.
func (r *run) makeReady(d *storeDecl, tp topic.TopicPartition, id checkpoint.ID, end topic.LogPosition, catching chan struct{}) readyStore {
	changelog, err := r.env.Plane.Log().Partition(tp)
	if err != nil {
		return readyStore{err: err}
	}
	db, err := r.backendOf(d).Open(r.storeDir(d, r.moves[d], int(tp.Partition)))
	if err != nil {
		return readyStore{err: err}
	}
	store, err := state.OpenStore(state.StoreOptions{DB: db, Changelog: changelog, Cache: r.env.Cache,
		Name: tp.String(), Manual: r.env.Manual, Logger: r.env.Logger})
	if err != nil {
		return readyStore{err: errors.Join(err, db.Close())}
	}
	if catching != nil {
		catching <- struct{}{}
		defer func() { <-catching }()
	}
	if err := store.CatchUp(context.Background(), state.Mark{Attempt: id.Attempt, N: id.N, End: end}); err != nil {
		return readyStore{err: errors.Join(err, store.Close(), db.Close())}
	}
	return readyStore{db: db, store: store}
}

// storesAtOnce is how many stores of a job are opened at a time: it is the disk that is
// waited for.
const storesAtOnce = 16

// makeAllReady opens those of all tasks and brings them to the checkpoint that the attempt starts
// from, before the tasks are opened one by one. What fails, fails when its task asks for it.
func (r *run) makeAllReady(restoreTo func(checkpoint.TaskID, topic.TopicPartition) (checkpoint.ID, topic.LogPosition)) {
	r.ready = make(map[topic.TopicPartition]readyStore)
	var (
		mu       sync.Mutex // guards r.ready
		group    errgroup.Group
		catching = make(chan struct{}, runtime.GOMAXPROCS(0)) // it is the processor that is waited for
	)
	group.SetLimit(storesAtOnce)
	for _, st := range r.stages {
		for _, d := range st.stores {
			for shard := range st.tasks {
				tp := topic.TopicPartition{Topic: r.changelog(d), Partition: topic.PartitionID(shard)}
				id, end := restoreTo(checkpoint.TaskID{Stage: st.name, Shard: shard}, tp)
				group.Go(func() error {
					ready := r.makeReady(d, tp, id, end, catching)
					mu.Lock()
					defer mu.Unlock()
					r.ready[tp] = ready
					return nil
				})
			}
		}
	}
	_ = group.Wait()
}

// takeStore gives a task the store that makeAllReady has made ready for it, or makes it ready.
func (r *run) takeStore(d *storeDecl, tp topic.TopicPartition, id checkpoint.ID, end topic.LogPosition) readyStore {
	if ready, ok := r.ready[tp]; ok {
		delete(r.ready, tp)
		return ready
	}
	return r.makeReady(d, tp, id, end, nil)
}

// closeStores closes those that no task has taken.
func (r *run) closeStores() (err error) {
	for _, ready := range r.ready {
		if ready.err == nil {
			err = errors.Join(err, ready.store.Close(), ready.db.Close())
		}
	}
	r.ready = nil
	return err
}

// backendOf is where the databases of a store are.
func (r *run) backendOf(d *storeDecl) state.Backend {
	if d.backend != nil {
		return d.backend
	}
	return r.env.Backend
}
