package stream

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
)

// Where Tasks gives a stage another number of tasks its state moves before the first record is
// read: out of the stores as of the checkpoint that the attempt starts from, into changelogs
// of other names, in a checkpoint of its own. Which names count is what the newest checkpoint
// names, so a move that was cut short is none.

// movedStore is a store whose state moves in this start.
type movedStore struct {
	stage *stage
	decl  *storeDecl
	from  int // shards there were
	moves int // before
}

// countMoves finds how often the state of each store has moved.
func (r *run) countMoves() {
	_, changelogs, _ := r.env.Plane.JobState(r.app.name)
	r.moves = make(map[*storeDecl]int)
	for _, st := range r.stages {
		for _, d := range st.stores {
			first := changelogTopic(r.app.name, d.name(), 0)
			for tp := range changelogs {
				if digits, ok := strings.CutPrefix(tp.Topic, first); ok {
					if n, err := strconv.Atoi(digits); err == nil {
						r.moves[d] = max(r.moves[d], n)
					}
				}
			}
		}
	}
}

// move has the state of a store move to the tasks that its stage has now.
func (r *run) move(st *stage, d *storeDecl, from int) {
	r.moved = append(r.moved, movedStore{st, d, from, r.moves[d]})
	// What a start that was cut short has left may have another number of partitions.
	for r.moves[d]++; ; r.moves[d]++ {
		if spec, ok := r.env.Plane.Log().Spec(r.changelog(d)); !ok || spec.Partitions == st.tasks {
			return
		}
	}
}

// movesFrom is the number of shards that a store has before it moves; 0 where it does not.
func (r *run) movesFrom(d *storeDecl) int {
	for _, m := range r.moved {
		if m.decl == d {
			return m.from
		}
	}
	return 0
}

// moving is the state that moves; nil where none does.
func (r *run) moving() *engine.Import {
	if len(r.moved) == 0 {
		return nil
	}
	im := &engine.Import{State: func(task checkpoint.TaskID, from engine.Restored) ([]byte, error) {
		var times [][]byte
		for _, m := range r.moved {
			if m.stage.name != task.Stage || len(times) > 0 {
				continue
			}
			for shard := range m.from {
				if time, ok := from.State(r.changelogBefore(m, shard)); ok {
					times = append(times, time)
				}
			}
		}
		return engine.MergeClocks(times)
	}}
	for _, m := range r.moved {
		im.Stores = append(im.Stores, engine.ImportStore{Stage: m.stage.name, Topic: r.changelog(m.decl),
			From: r.changelogsBefore(m),
			Entries: func(from engine.Restored) iter.Seq2[engine.ImportEntry, error] {
				return resharded(m.stage, m.decl, m.from, func(shard int) iter.Seq2[state.Entry, error] { return r.before(m, shard, from) })
			}})
	}
	return im
}

// changelogBefore is the changelog of a shard before its state moves.
func (r *run) changelogBefore(m movedStore, shard int) topic.TopicPartition {
	return topic.TopicPartition{Topic: changelogTopic(r.app.name, m.decl.name(), m.moves), Partition: topic.PartitionID(shard)}
}

// changelogsBefore are all changelogs the store has had.
func (r *run) changelogsBefore(m movedStore) (all []string) {
	for moves := range m.moves + 1 {
		all = append(all, changelogTopic(r.app.name, m.decl.name(), moves))
	}
	return all
}

// before are the entries of a shard of a store before it moves.
func (r *run) before(m movedStore, shard int, from engine.Restored) iter.Seq2[state.Entry, error] {
	return func(yield func(state.Entry, error) bool) {
		err := r.withStore(m, shard, from, func(im *state.Image) bool {
			for e, err := range im.Stored() {
				if !yield(e, err) || err != nil {
					return false
				}
			}
			return true
		})
		if err != nil {
			yield(state.Entry{}, err)
		}
	}
}

// withStore opens a shard of a store where the attempt starts from and calls f with its image.
// The error is nil where f has returned false, and has told.
func (r *run) withStore(m movedStore, shard int, from engine.Restored, f func(*state.Image) bool) (err error) {
	tp := r.changelogBefore(m, shard)
	changelog, err := r.env.Plane.Log().Partition(tp)
	if err != nil {
		return err
	}
	backend := r.env.Backend
	if m.decl.backend != nil {
		backend = m.decl.backend
	}
	db, err := backend.Open(r.storeDir(m.decl, m.moves, shard))
	if err != nil {
		return err
	}
	told := false
	defer func() {
		if closed := db.Close(); !told {
			err = errors.Join(err, closed)
		}
	}()
	store, err := state.OpenStore(state.StoreOptions{DB: db, Changelog: changelog, Name: tp.String(), Manual: true, Logger: r.env.Logger})
	if err != nil {
		return err
	}
	defer store.Close()
	mark := from.Mark(tp)
	if err := store.CatchUp(context.Background(), mark); err != nil {
		return err
	}
	images, err := state.Images(context.Background(), []*state.Store{store}, func() []state.Mark { return []state.Mark{mark} })
	if err != nil {
		return err
	}
	defer images[0].Close()
	told = !f(images[0])
	return nil
}

// dropMoved deletes the changelogs that state has moved out of. The checkpoint that says so is
// on the disk, so nobody goes back to them; what cannot be deleted now is by a later start.
// Those stay that the last report of a task names which there is no more: it may come back, and
// a checkpoint is whole only where all is there that its tasks have named.
func (r *run) dropMoved() {
	_, changelogs, _ := r.env.Plane.JobState(r.app.name)
	named := make(map[string]bool)
	for tp := range changelogs {
		named[tp.Topic] = true
	}
	for _, st := range r.stages {
		for _, d := range st.stores {
			r.dropMovedFrom(d, named)
		}
	}
}

func (r *run) dropMovedFrom(d *storeDecl, named map[string]bool) {
	for moves := range r.moves[d] {
		name := changelogTopic(r.app.name, d.name(), moves)
		if _, ok := r.env.Plane.Log().Spec(name); !ok || named[name] {
			continue
		}
		if err := r.env.Plane.Log().Delete(name); err != nil {
			r.env.Logger.Warn("stream: a changelog that state has moved out of cannot be deleted", "job", r.app.name, "topic", name, "error", err)
		}
	}
}
