package stream

import (
	"fmt"
	"iter"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
)

// importing tells whether the job begins with the state of a savepoint: where it has not run.
// Checkpoint 0 says no more than where it was to begin.
func (r *run) importing() bool {
	id, _, known := r.env.Plane.JobState(r.app.name)
	return r.app.from != nil && (!known || id.N == 0)
}

// shardsKept is the number of shards of the state a store has, in its changelog or in the
// savepoint that the job begins with; 0 where it has none.
func (r *run) shardsKept(d *storeDecl) int {
	if spec, ok := r.env.Plane.Log().Spec(r.changelog(d)); ok {
		return spec.Partitions
	}
	if r.importing() {
		return r.app.from.shards(d)
	}
	return 0
}

// misfit notes that a store has its state in kept shards and its stage another number of tasks,
// unless the state moves.
func (r *run) misfit(st *stage, d *storeDecl, kept int) {
	has := fmt.Sprintf("it has state in %d shards and would now run in %d tasks", kept, st.tasks)
	_, exists := r.env.Plane.Log().Spec(r.changelog(d))
	reason := ""
	switch {
	case len(st.sources()) > 0:
		reason = has + "; state does not move between shards where a topic feeds it without a shuffle: keep the partitions of the source, or give the step another name with As to begin anew"
	case d.staysWhy() != "":
		reason = has + "; " + d.staysWhy() + ": keep the number of tasks (Tasks, Repartition), or give the step another name with As to begin anew"
	default:
		if exists {
			r.move(st, d, kept)
		}
		return
	}
	if r.misfits == nil {
		r.misfits = make(map[*storeDecl]string)
	}
	r.misfits[d] = reason
}

// savedInput is where a task that reads partition tp as the nth of its inputs goes on in the
// savepoint: where the task of that name was, or where a task was that there is no more.
func (r *run) savedInput(task checkpoint.TaskID, tp topic.TopicPartition, nth int) (next topic.LogOffset, ok bool) {
	has := make(map[string]bool)
	for _, st := range r.stages {
		has[st.name] = true
	}
	for _, t := range r.app.from.index.tasks {
		at := nth
		for _, in := range t.inputs {
			if in.partition != tp {
				continue
			}
			if t.id == task {
				if at == 0 {
					return in.next, true
				}
				at--
			} else if !has[t.id.Stage] && (!ok || in.next < next) {
				next, ok = in.next, true
			}
		}
	}
	return next, ok
}

// startSaved resolves where a source begins: where it was in the savepoint, or where the
// topology says where the savepoint does not name it.
func (r *run) startSaved(task checkpoint.TaskID, p *topic.LogPartition, nth int, resolve func() (topic.LogOffset, error)) (topic.LogOffset, error) {
	next, ok := r.savedInput(task, p.Name(), nth)
	if !ok {
		return resolve()
	}
	if next > p.HighWatermark() {
		return 0, fmt.Errorf("the savepoint has read %v up to offset %d, and here it ends at %d: start from it where the topic holds what it held there",
			p.Name(), next, p.HighWatermark())
	}
	return max(next, p.Start()), nil
}

// imports is the state of the savepoint, for the stores that the topology has, or that which
// moves to other tasks; nil where there is none.
func (r *run) imports() (*engine.Import, error) {
	if !r.importing() {
		return r.moving(), nil
	}
	from := r.app.from
	im := &engine.Import{Source: fmt.Sprintf("%s %v of %s", from.Job(), from.Checkpoint(), from.Time().Format("2006-01-02T15:04:05.000Z"))}
	for _, st := range r.stages {
		for _, d := range st.stores {
			saved, ok := from.store(d)
			if !ok {
				continue
			}
			if err := from.readable(d); err != nil {
				return nil, err
			}
			im.Stores = append(im.Stores, engine.ImportStore{Stage: st.name, Topic: r.changelog(d),
				Entries: func(engine.Restored) iter.Seq2[engine.ImportEntry, error] { return r.entries(st, d, saved) }})
		}
	}
	im.State = func(task checkpoint.TaskID, _ engine.Restored) ([]byte, error) {
		for _, st := range r.stages {
			if st.name == task.Stage {
				return r.savedTime(st, task.Shard)
			}
		}
		return nil, nil
	}
	return im, nil
}

// entries are those of a store in the savepoint, each with the shard it belongs to now.
func (r *run) entries(st *stage, d *storeDecl, saved savepointStore) iter.Seq2[engine.ImportEntry, error] {
	return resharded(st, d, len(saved.shards), func(shard int) iter.Seq2[state.Entry, error] {
		return savedShard{r.app.from.r, saved.shards[shard]}.entries(nil, nil)
	})
}

// savedTime is the event time of a task: of that of its name, or of the one that had its
// state; where state moves, of all of that stage together.
func (r *run) savedTime(st *stage, shard int) ([]byte, error) {
	of := func(stage string) (times [][]byte) {
		for _, t := range r.app.from.index.tasks {
			if t.id.Stage == stage {
				times = append(times, t.clocks)
			}
		}
		return times
	}
	times := of(st.name)
	for i := 0; len(times) == 0 && i < len(st.stores); i++ {
		if saved, ok := r.app.from.store(st.stores[i]); ok {
			times = of(saved.stage)
		}
	}
	switch {
	case len(times) == st.tasks:
		return times[shard], nil // tasks are in the order of their shards
	case len(times) == 0 || len(st.sources()) > 0:
		return nil, nil
	}
	return engine.MergeClocks(times)
}
