package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic"
)

// Import is state that a job begins with which has none, or that moves to other tasks. It is
// committed as a checkpoint of its own, before the first record is read; a start that is cut
// short before is made good by the next.
type Import struct {
	// Source names where the state of a new job is from, so that a start that was cut short
	// goes on with the same. It is empty where state moves: of the checkpoint that the attempt
	// starts from.
	Source string

	Stores []ImportStore

	// State is the event time of a task, as reports have it; nil where it begins anew. Where
	// state moves it is asked for the tasks of the stages that have some of it.
	State func(task checkpoint.TaskID, from Restored) ([]byte, error)
}

// Restored is the checkpoint that an attempt starts from.
type Restored struct{ session *checkpoint.Session }

// Mark is how far a changelog goes in it.
func (r Restored) Mark(changelog topic.TopicPartition) state.Mark {
	id, _ := r.session.Restored()
	_, end, _ := r.session.RestoredChangelog(changelog)
	return state.Mark{Attempt: id.Attempt, N: id.N, End: end}
}

// State is the event time in it of the task that has a changelog.
func (r Restored) State(changelog topic.TopicPartition) ([]byte, bool) {
	task, _, ok := r.session.RestoredChangelog(changelog)
	if !ok {
		return nil, false
	}
	report, ok := r.session.RestoredReport(task)
	return report.State, ok
}

// ImportStore is one of the stores.
type ImportStore struct {
	Stage   string
	Topic   string   // its changelog
	From    []string // the changelog it moves out of, and those before; empty where it does not move
	Entries func(from Restored) iter.Seq2[ImportEntry, error]
}

// ImportEntry is an entry of a store, as state.Image.Stored gives it, and its shard.
type ImportEntry struct {
	Shard int
	state.Entry
}

// importMark is the clock under which checkpoint 0 says where the state is to come from.
const importMark = "import"

func (im *Import) mark() []byte {
	b := binary.AppendUvarint([]byte{clocksVersion}, uint64(len(importMark)))
	b = binary.AppendUvarint(append(b, importMark...), uint64(len(im.Source)))
	return append(b, im.Source...)
}

// moveState moves the state of some stages of a job that has run.
func (j *Job) moveState(ctx context.Context, specs []TaskSpec) error {
	j.begun = make(map[checkpoint.TaskID]checkpoint.Report)
	for _, s := range specs {
		if slices.ContainsFunc(j.o.Import.Stores, func(st ImportStore) bool { return st.Stage == s.ID.Stage }) {
			j.begun[s.ID] = checkpoint.Report{Changelogs: j.unmoved(s.ID)}
		}
	}
	return j.importState(ctx, specs)
}

// unmoved are the changelogs of a task whose state stays: of steps that this run does not have.
func (j *Job) unmoved(task checkpoint.TaskID) []checkpoint.Changelog {
	r, _ := j.session.RestoredReport(task)
	return slices.DeleteFunc(slices.Clone(r.Changelogs), func(c checkpoint.Changelog) bool {
		return slices.ContainsFunc(j.o.Import.Stores, func(st ImportStore) bool { return slices.Contains(st.From, c.Partition.Topic) })
	})
}

// resumeImport imports what a start before was to import, if there was one.
func (j *Job) resumeImport(ctx context.Context, specs []TaskSpec) error {
	reports := make(map[checkpoint.TaskID]checkpoint.Report)
	begun := false
	for _, s := range specs {
		r, ok := j.session.RestoredReport(s.ID)
		if !ok {
			return fmt.Errorf("stream: job %q: a start from a savepoint was cut short, and task %s-%d was not part of it: start the topology that began it, or another job", j.o.Name, s.ID.Stage, s.ID.Shard)
		}
		clocks, err := decodeClocks(r.State)
		if err != nil {
			return err
		}
		source, marked := clocks[importMark]
		switch {
		case !marked:
			continue
		case string(source) != j.o.Import.Source:
			return fmt.Errorf("stream: job %q: a start from another savepoint, %s, was cut short: start from that one, or another job", j.o.Name, source)
		}
		begun = true
		reports[s.ID] = r
	}
	if !begun {
		return nil // it began without, and goes on so
	}
	j.begun = reports
	return j.importState(ctx, specs)
}

// importState writes the state to the changelogs and commits it.
func (j *Job) importState(ctx context.Context, specs []TaskSpec) error {
	wrap := func(err error) error { return fmt.Errorf("stream: job %q: import state: %w", j.o.Name, err) }
	n := j.session.Next()
	reports := maps.Clone(j.begun)
	for _, st := range j.o.Import.Stores {
		ends, err := j.importStore(n, st)
		if err != nil {
			return wrap(err)
		}
		for shard, end := range ends {
			id := checkpoint.TaskID{Stage: st.Stage, Shard: shard}
			r, ok := reports[id]
			if !ok {
				return wrap(fmt.Errorf("there is no task %s-%d", id.Stage, id.Shard))
			}
			r.Changelogs = append(slices.Clip(r.Changelogs), checkpoint.Changelog{
				Partition: topic.TopicPartition{Topic: st.Topic, Partition: topic.PartitionID(shard)}, End: end})
			reports[id] = r
		}
	}
	for id, r := range reports {
		var err error
		if r.State, err = j.o.Import.State(id, Restored{j.session}); err != nil {
			return wrap(err)
		}
		r.Moved, r.Durable = true, true
		reports[id] = r
	}
	j.mu.Lock()
	advanced := j.advanced
	j.mu.Unlock()
	if _, started := j.session.TriggerNext(); !started {
		return wrap(j.session.Err())
	}
	for _, s := range specs {
		j.session.Report(s.ID, n, reports[s.ID])
	}
	select {
	case <-advanced: // by this checkpoint: there is no other
	case <-j.done:
		return wrap(context.Cause(j.ctx))
	case <-ctx.Done():
		return wrap(ctx.Err())
	}
	j.begun, j.imported = reports, true
	return nil
}

// importStore writes the entries of a store to its changelogs, in the transaction of checkpoint
// n, and returns where each shard ends.
func (j *Job) importStore(n int64, st ImportStore) (ends map[int]topic.LogPosition, err error) {
	type shard struct {
		writer *checkpoint.Writer
		batch  topic.BatchBuilder
	}
	shards := make(map[int]*shard)
	ends = make(map[int]topic.LogPosition)
	write := func(i int) (err error) {
		ends[i], err = shards[i].writer.Write(n, &shards[i].batch)
		return err
	}
	for e, err := range st.Entries(Restored{j.session}) {
		if err != nil {
			return nil, err
		}
		s := shards[e.Shard]
		if s == nil {
			tp := topic.TopicPartition{Topic: st.Topic, Partition: topic.PartitionID(e.Shard)}
			w, err := j.session.ChangelogWriter(tp)
			if err != nil {
				return nil, fmt.Errorf("open changelog %s: %w", tp, err)
			}
			s = &shard{writer: w}
			shards[e.Shard] = s
		}
		largest := s.writer.MaxBatchBytes()
		if !fits(&s.batch, largest, 0, e.Key, e.Value, nil) {
			if err := write(e.Shard); err != nil {
				return nil, err
			}
		}
		if s.batch.Add(0, e.Key, e.Value, nil); s.batch.Size() >= min(changelogBytes, largest) {
			if err := write(e.Shard); err != nil {
				return nil, err
			}
		}
	}
	for _, i := range slices.Sorted(maps.Keys(shards)) {
		if shards[i].batch.Len() > 0 {
			if err := write(i); err != nil {
				return nil, err
			}
		}
	}
	return ends, nil
}
