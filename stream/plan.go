package stream

import (
	"fmt"
	"slices"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
)

// stage is a part of the topology that runs as one task for each partition of its
// source, or for each shard of the grouping it begins with.
type stage struct {
	name   string
	root   *step // a source, or a grouping that shuffles
	tasks  int
	stores []*storeDecl
	cuts   []*step // the groupings it sends to
}

// stages cuts the topology at its shuffles. A stage comes after those that feed it.
func (app *Topology) stages() []*stage {
	var all []*stage
	names := make(map[string]int)
	for _, s := range app.steps {
		var name string
		switch {
		case s.source != nil:
			name = "source-" + s.source.topic
		case s.group != nil && s.group.mustShuffle():
			name = s.name
		default:
			continue
		}
		if names[name]++; names[name] > 1 {
			name = fmt.Sprintf("%s-%d", name, names[name])
		}
		st := &stage{name: name, root: s}
		seen := make(map[*step]bool)
		st.collect(s, seen)
		all = append(all, st)
	}
	return all
}

// collect walks what belongs to the stage.
func (st *stage) collect(s *step, seen map[*step]bool) {
	for _, out := range s.outputs {
		switch {
		case seen[out]:
		case out.group != nil && out.group.mustShuffle():
			st.cuts = append(st.cuts, out)
		default:
			seen[out] = true
			st.stores = append(st.stores, out.stores...)
			st.collect(out, seen)
		}
	}
}

// size sets the number of tasks: the partitions of the source, or for a shuffle
// what its state has had since its first run, else as many as the widest stage that feeds it.
func (r *run) size(stages []*stage) error {
	for _, st := range stages {
		if st.root.source != nil {
			st.tasks = r.partitions(st.root.source.topic)
		} else {
			for _, from := range stages {
				if slices.Contains(from.cuts, st.root) {
					st.tasks = max(st.tasks, from.tasks)
				}
			}
		}
		for i, d := range st.stores {
			kept, ok := r.env.Plane.Log().Spec(r.changelog(d))
			switch {
			case !ok:
			case i == 0 && st.root.source == nil:
				st.tasks = kept.Partitions
			case kept.Partitions != st.tasks:
				return fmt.Errorf("stream: job %q: step %q (%s) has state in %d shards and would now run in %d tasks; "+
					"state does not move between shards: keep the partitions of the source, or give the step another name with As to begin anew",
					r.app.name, d.step.name, d.step.line, kept.Partitions, st.tasks)
			}
		}
	}
	return nil
}

// run is a topology on its way to become a job on a node.
type run struct {
	app       *Topology
	env       Env
	stages    []*stage
	exchanges map[*step]any
	first     map[*step]map[string]int // for a grouping: by stage, the number of its first sender
}

func (r *run) partitions(topic string) int {
	spec, _ := r.env.Plane.Log().Spec(topic)
	return spec.Partitions
}

func (r *run) exchange(g *step) any { return r.exchanges[g] }

// sender is the number of task t among those that send to grouping g.
func (r *run) sender(g *step, t *engine.Task) int { return r.first[g][t.ID.Stage] + t.ID.Shard }

// newRun creates the topics the topology needs and cuts it into stages.
func newRun(app *Topology, env Env) (*run, error) {
	r := &run{app: app, env: env, exchanges: make(map[*step]any), first: make(map[*step]map[string]int)}
	var sync syncPolicy
	for _, s := range app.steps {
		var name string
		var spec topic.Spec
		switch {
		case s.source != nil:
			name, spec = s.source.topic, s.source.spec
		case s.sink != nil:
			name, spec = s.sink.topic, s.sink.spec
			sync.tighten(spec)
		default:
			continue
		}
		if err := env.Plane.Log().Create(name, spec); err != nil {
			return nil, fmt.Errorf("stream: job %q: topic of step at %s: %w", app.name, s.line, err)
		}
	}
	r.stages = app.stages()
	if err := r.size(r.stages); err != nil {
		return nil, err
	}
	for _, st := range r.stages {
		for _, d := range st.stores {
			name := r.changelog(d)
			if _, ok := env.Plane.Log().Spec(name); ok {
				continue
			}
			spec := topic.Spec{Partitions: st.tasks, Sync: sync.Sync, Compact: true, TombstoneRetention: changelogTombstones}
			if err := env.Plane.Log().Create(name, spec); err != nil {
				return nil, fmt.Errorf("stream: job %q: changelog of step %q: %w", app.name, d.step.name, err)
			}
		}
	}
	for _, st := range r.stages {
		if st.root.source != nil {
			continue
		}
		senders := 0
		r.first[st.root] = make(map[string]int)
		for _, from := range r.stages {
			if slices.Contains(from.cuts, st.root) {
				r.first[st.root][from.name] = senders
				senders += from.tasks
			}
		}
		r.exchanges[st.root] = st.root.group.newExchange(senders, st.tasks)
	}
	return r, nil
}

// tasks describes the tasks of all stages.
func (r *run) tasks() ([]engine.TaskSpec, error) {
	var specs []engine.TaskSpec
	for _, st := range r.stages {
		for shard := range st.tasks {
			spec := engine.TaskSpec{ID: checkpoint.TaskID{Stage: st.name, Shard: shard}}
			if src := st.root.source; src != nil {
				p, err := r.env.Plane.Log().Partition(topic.TopicPartition{Topic: src.topic, Partition: topic.PartitionID(shard)})
				if err != nil {
					return nil, err
				}
				spec.Sources = []engine.SourceStart{{Partition: p, Committed: src.committed,
					Resolve: func() (topic.LogOffset, error) { return r.app.startAt.ResolveFor(p, src.isolation()) }}}
			}
			spec.Open = func(t *engine.Task) error { return r.openTask(t, st) }
			specs = append(specs, spec)
		}
	}
	return specs, nil
}

func (r *run) openTask(t *engine.Task, st *stage) error {
	o := &opening{task: t, run: r, opened: make(map[int]any), tables: make(map[int]any)}
	if st.root.source == nil {
		st.root.group.openStage(o, t.ID.Shard)
		return o.err
	}
	src := st.root.source
	p, err := r.env.Plane.Log().Partition(topic.TopicPartition{Topic: src.topic, Partition: topic.PartitionID(t.ID.Shard)})
	if err != nil {
		return err
	}
	at := sourceStart{partition: p, stop: -1}
	if at.start, err = t.StartOf(p); err != nil {
		return err
	}
	if r.app.stopAt != nil {
		if at.stop, err = r.stopOffset(p, src); err != nil {
			return err
		}
	}
	at.reader = p.Reader(at.start.Offset, src.isolation())
	src.open(o, at)
	return o.err
}

// stopOffset is where a bounded run ends in p.
func (r *run) stopOffset(p *topic.LogPartition, src *source) (topic.LogOffset, error) {
	off, err := r.app.stopAt.ResolveFor(p, src.isolation())
	if err != nil {
		return 0, err
	}
	if src.committed {
		return min(off, p.LastStable()), nil
	}
	return min(off, p.HighWatermark()), nil
}

// syncPolicy is the strictest policy of the topics a job writes: its changelogs have
// it too, since a checkpoint is only as durable as all it names.
type syncPolicy struct{ topic.Spec }

func (s *syncPolicy) tighten(other topic.Spec) {
	switch {
	case other.Sync == 0 || s.Sync < 0:
	case other.Sync < 0 || s.Sync == 0 || other.Sync < s.Sync:
		s.Sync = other.Sync
	}
}
