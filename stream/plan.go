package stream

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
)

// stage is a part of the topology that runs as one task for each partition of its
// sources, or for each shard of the groupings it begins with. It begins with one root,
// or, where a step needs the records of several inputs together, with all those that
// lead to it.
type stage struct {
	name   string
	roots  []*step // sources, groupings that shuffle, or what delivers to a sink outside; in the order their records go at the same time
	tasks  int
	steps  []*step
	stores []*storeDecl
	cuts   []*step // the groupings it sends to, and the deliveries
	joints []*step // the joint steps in it
}

// inOrder tells whether the stage's tasks read their inputs by event time.
func (st *stage) inOrder() bool { return len(st.roots) > 1 || st.roots[0].ordered }

// deliver is the root of a stage that delivers to a sink outside, or nil.
func (st *stage) deliver() *step {
	if root := st.roots[0]; root.deliver != nil {
		return root
	}
	return nil
}

// sources are the roots that are topics.
func (st *stage) sources() (all []*step) {
	for _, root := range st.roots {
		if root.source != nil {
			all = append(all, root)
		}
	}
	return all
}

// stages cuts the topology at its shuffles. A stage comes after those that feed it.
func (app *Topology) stages() []*stage {
	for {
		all := app.cut()
		if !breakCycle(all) {
			return inOrder(all)
		}
	}
}

// inOrder puts each stage behind those that feed it. Stages that feed each other, a fault that
// Validate reports, come last.
func inOrder(stages []*stage) (sorted []*stage) {
	for len(stages) > 0 {
		n := slices.IndexFunc(stages, func(st *stage) bool {
			return !slices.ContainsFunc(stages, func(other *stage) bool { return other != st && other.feeds(st) })
		})
		if n < 0 {
			return append(sorted, stages...)
		}
		sorted = append(sorted, stages[n])
		stages = slices.Delete(slices.Clone(stages), n, n+1)
	}
	return sorted
}

// feeds tells whether the stage sends to a root of st.
func (from *stage) feeds(st *stage) bool {
	return slices.ContainsFunc(st.roots, func(root *step) bool { return slices.Contains(from.cuts, root) })
}

// breakCycle looks for a stage that would send to itself: one in which a stream is joined
// with what a shuffle makes of the same stream. All that leads to its joints is shuffled
// then, so that they become a stage of their own.
func breakCycle(stages []*stage) (found bool) {
	for _, st := range stages {
		if !slices.ContainsFunc(st.cuts, func(cut *step) bool { return leadsTo(cut, st, stages) }) {
			continue
		}
		for _, joint := range st.joints {
			for _, in := range joint.inputs {
				if in.group != nil && !in.group.mustShuffle() {
					in.group.shuffle()
					found = true
				}
			}
		}
	}
	return found
}

// joinsOfItself are the joint steps of stages that still send to themselves.
func (app *Topology) joinsOfItself() (joints []*step) {
	stages := app.stages()
	for _, st := range stages {
		if slices.ContainsFunc(st.cuts, func(cut *step) bool { return leadsTo(cut, st, stages) }) {
			joints = append(joints, st.joints...)
		}
	}
	return joints
}

// leadsTo tells whether what is sent to the cut comes, at once or through other stages, to st.
// Some of these may still send to each other in a circle.
func leadsTo(cut *step, st *stage, stages []*stage) bool {
	seen := make(map[*step]bool)
	var leads func(cut *step) bool
	leads = func(cut *step) bool {
		if seen[cut] {
			return false
		}
		seen[cut] = true
		return slices.Contains(st.roots, cut) || slices.ContainsFunc(stages, func(other *stage) bool {
			return other != st && slices.Contains(other.roots, cut) && slices.ContainsFunc(other.cuts, leads)
		})
	}
	return leads(cut)
}

func (app *Topology) cut() []*stage {
	var all []*stage
	of := make(map[*step]*stage) // by joint step
	for _, s := range app.steps {
		if s.source == nil && s.deliver == nil && (s.group == nil || !s.group.mustShuffle()) {
			continue
		}
		// The root's own stage takes in those it shares a joint step with.
		st := &stage{roots: []*step{s}}
		for _, joint := range jointSteps(s, make(map[*step]bool)) {
			if other := of[joint]; other != nil && other != st {
				st.roots = append(other.roots, st.roots...)
				all = slices.DeleteFunc(all, func(x *stage) bool { return x == other })
				for step, of1 := range of {
					if of1 == other {
						of[step] = st
					}
				}
			}
			of[joint] = st
		}
		all = append(all, st)
	}
	names := make(map[string]int)
	for _, st := range all {
		name, first := "", make(map[*step]bool)
		seen := make(map[*step]bool)
		for _, root := range st.roots {
			st.collect(root, seen)
		}
		for joint, in := range of {
			if in != st {
				continue
			}
			st.joints = append(st.joints, joint)
			if name == "" || joint.name < name {
				name = joint.name
			}
			for _, in := range joint.first {
				rootsOf(in, first)
			}
		}
		switch root := st.roots[0]; {
		case len(st.roots) > 1:
			name = "join-" + name
		case root.source != nil:
			name = "source-" + root.source.topic
		case root.deliver != nil:
			name = "sink-" + root.name
		default:
			name = root.name
		}
		if names[name]++; names[name] > 1 {
			name = fmt.Sprintf("%s-%d", name, names[name])
		}
		st.name = name
		slices.SortStableFunc(st.roots, func(a, b *step) int {
			return cmp.Or(cmp.Compare(rank(first[a]), rank(first[b])), cmp.Compare(a.id, b.id))
		})
	}
	// What delivers comes last, whatever feeds it.
	slices.SortStableFunc(all, func(a, b *stage) int { return cmp.Compare(rank(a.deliver() == nil), rank(b.deliver() == nil)) })
	return all
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// jointSteps are the joint steps that root leads to within a stage.
func jointSteps(root *step, seen map[*step]bool) (joint []*step) {
	for _, out := range root.outputs {
		if seen[out] || out.group != nil && out.group.mustShuffle() {
			continue
		}
		seen[out] = true
		if out.joint {
			joint = append(joint, out)
		}
		joint = append(joint, jointSteps(out, seen)...)
	}
	return joint
}

// rootsOf adds the roots that lead to s to set.
func rootsOf(s *step, set map[*step]bool) {
	if s.source != nil || s.group != nil && s.group.mustShuffle() {
		set[s] = true
		return
	}
	for _, in := range s.inputs {
		rootsOf(in, set)
	}
}

// collect walks what belongs to the stage.
func (st *stage) collect(s *step, seen map[*step]bool) {
	if !seen[s] {
		seen[s] = true
		st.steps = append(st.steps, s)
		st.stores = append(st.stores, s.stores...)
	}
	for _, out := range s.outputs {
		switch {
		case seen[out]:
		case out.deliver != nil, out.group != nil && out.group.mustShuffle():
			if !slices.Contains(st.cuts, out) {
				st.cuts = append(st.cuts, out)
			}
		default:
			st.collect(out, seen)
		}
	}
}

// size sets the number of tasks: the partitions of the sources, or for a shuffle
// what its state has had since its first run, and for a delivery what its topic has, else as
// many as the widest stage that feeds it.
func (r *run) size(stages []*stage) error {
	for _, st := range stages {
		sources := st.sources()
		for i, s := range sources {
			n := r.partitions(s.source.topic)
			if i == 0 {
				st.tasks = n
			}
			if n != st.tasks {
				return fmt.Errorf("stream: job %q: step %q puts topic %q with %d partitions and topic %q with %d together by key, "+
					"and the records of a key would be in different partitions: give both the same number, or shuffle one with KeyByKV(func(k K, _ V) K { return k })",
					r.app.name, st.name, sources[0].source.topic, st.tasks, s.source.topic, n)
			}
		}
		if len(sources) == 0 {
			for _, from := range stages {
				if from.feeds(st) {
					st.tasks = max(st.tasks, from.tasks)
				}
			}
			if st.deliver() == nil && r.app.tasks > 0 {
				st.tasks = r.app.tasks
			}
		}
		parts := 0 // as Repartition has it
		for _, root := range st.roots {
			if root.parts == 0 {
				continue
			}
			if parts != 0 && root.parts != parts || len(sources) > 0 && root.parts != st.tasks {
				return fmt.Errorf("stream: job %q: step %q puts what is repartitioned to %d tasks (%s) together by key with what is in %d, "+
					"and the records of a key would be in different tasks: give both the same number",
					r.app.name, st.name, root.parts, root.line, max(parts, st.tasks*min(len(sources), 1)))
			}
			parts = root.parts
			st.tasks = parts
		}
		if s := st.deliver(); s != nil {
			if s.deliver.parts > 0 {
				st.tasks = s.deliver.parts
			}
			if spec, ok := r.env.Plane.Log().Spec(r.deliveryTopic(s)); ok {
				st.tasks = spec.Partitions
			}
		}
		settled := len(sources) > 0 || parts > 0 || r.app.tasks > 0
		for _, d := range st.stores {
			kept := r.shardsKept(d)
			switch {
			case kept == 0:
			case !settled:
				st.tasks, settled = kept, true
			case kept != st.tasks:
				r.misfit(st, d, kept)
			}
		}
	}
	return nil
}

// leadsToOrder tells whether what is sent to root comes, at once or through other
// shuffles, to a task that reads its inputs in order.
func leadsToOrder(root *step, stages []*stage) bool {
	return slices.ContainsFunc(stages, func(st *stage) bool {
		return slices.Contains(st.roots, root) && (st.inOrder() ||
			slices.ContainsFunc(st.cuts, func(cut *step) bool { return leadsToOrder(cut, stages) }))
	})
}

// run is a topology on its way to become a job on a node.
type run struct {
	app       *Topology
	env       Env
	stages    []*stage
	moves     map[*storeDecl]int    // how often the state of a store has moved, where it has
	moved     []movedStore          // in this start
	misfits   map[*storeDecl]string // why a store cannot go on from the state it has
	exchanges map[*step]any
	first     map[*step]map[string]int // for a grouping: by stage, the number of its first sender
	stops     map[topic.TopicPartition]topic.LogOffset
	feeds     map[*source]*engine.Feed
	ready     map[topic.TopicPartition]readyStore // not taken by a task yet, by changelog
	sync      syncPolicy                          // of what is declared to be written
	evolved   Evolution
}

// openFeeds opens what writes the topics of sources that are outside of the log.
func (r *run) openFeeds() (all []*engine.Feed, err error) {
	r.feeds = make(map[*source]*engine.Feed)
	for _, s := range r.app.steps {
		if s.source == nil || s.source.feed == nil {
			continue
		}
		p, err := r.env.Plane.Log().Partition(topic.TopicPartition{Topic: s.source.topic})
		if err != nil {
			return nil, err
		}
		f, err := s.source.feed(r, p)
		if err != nil {
			return nil, fmt.Errorf("stream: job %q: source %q: %w", r.app.name, s.name, err)
		}
		r.feeds[s.source] = f
		all = append(all, f)
	}
	return all, nil
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
	r := &run{app: app, env: env, exchanges: make(map[*step]any), first: make(map[*step]map[string]int), stops: make(map[topic.TopicPartition]topic.LogOffset)}
	var sync, all syncPolicy // of what is written; of what is read, too
	for _, s := range app.steps {
		var name string
		var spec topic.Spec
		switch {
		case s.source != nil && s.source.feed != nil:
			continue // made below
		case s.source != nil:
			name, spec = s.source.topic, s.source.spec
		case s.global != nil:
			name, spec = s.global.topic, s.global.spec
		case s.sink != nil:
			name, spec = s.sink.topic, s.sink.spec
			sync.tighten(spec)
		default:
			continue
		}
		all.tighten(spec)
		if err := env.Plane.Log().Create(name, spec); err != nil {
			return nil, fmt.Errorf("stream: job %q: topic of step at %s: %w", app.name, s.line, err)
		}
	}
	for _, t := range app.deadLetters() {
		sync.tighten(t.Spec())
		if err := env.Plane.Log().Create(t.Name(), t.Spec()); err != nil {
			return nil, fmt.Errorf("stream: job %q: topic of dead letters: %w", app.name, err)
		}
	}
	for _, s := range app.steps {
		if s.source == nil || s.source.feed == nil {
			continue
		}
		if _, ok := env.Plane.Log().Spec(s.source.topic); !ok {
			if err := env.Plane.Log().Create(s.source.topic, topic.Spec{Partitions: 1, Sync: all.Sync}); err != nil {
				return nil, fmt.Errorf("stream: job %q: topic of source %q: %w", app.name, s.name, err)
			}
		}
	}
	r.sync = sync
	r.stages = app.stages()
	r.countMoves()
	if err := r.size(r.stages); err != nil {
		return nil, err
	}
	if r.evolved = r.evolution(); len(r.evolved.Incompatible) > 0 {
		return nil, &IncompatibleError{r.evolved}
	}
	r.evolved.logTo(env)
	for _, st := range r.stages {
		if s := st.deliver(); s != nil {
			name := r.deliveryTopic(s)
			if _, ok := env.Plane.Log().Spec(name); !ok {
				if err := env.Plane.Log().Create(name, topic.Spec{Partitions: st.tasks, Sync: all.Sync}); err != nil {
					return nil, fmt.Errorf("stream: job %q: topic of sink %q: %w", app.name, s.name, err)
				}
			}
		}
		for _, d := range st.stores {
			name := r.changelog(d)
			spec := topic.Spec{Partitions: st.tasks, Sync: sync.Sync, Compact: true, TombstoneRetention: changelogTombstones}
			make := env.Plane.Log().Create
			if has, ok := env.Plane.Log().Spec(name); ok {
				spec, make = has, env.Plane.Log().Alter
			}
			spec.Compression = app.checkpoint.Compression()
			if err := make(name, spec); err != nil {
				return nil, fmt.Errorf("stream: job %q: changelog of step %q: %w", app.name, d.step.name, err)
			}
		}
	}
	for _, st := range r.stages {
		for _, root := range st.roots {
			if root.group == nil {
				continue
			}
			senders := 0
			r.first[root] = make(map[string]int)
			for _, from := range r.stages {
				if slices.Contains(from.cuts, root) {
					r.first[root][from.name] = senders
					senders += from.tasks
				}
			}
			r.exchanges[root] = root.group.newExchange(senders, st.tasks, leadsToOrder(root, r.stages))
		}
	}
	return r, nil
}

// tasks describes the tasks of all stages.
func (r *run) tasks() ([]engine.TaskSpec, error) {
	var specs []engine.TaskSpec
	for _, st := range r.stages {
		for shard := range st.tasks {
			spec := engine.TaskSpec{ID: checkpoint.TaskID{Stage: st.name, Shard: shard}, InOrder: st.inOrder()}
			read := make(map[string]int) // topics, since one may be read more than once
			for _, s := range st.sources() {
				src := s.source
				p, err := r.env.Plane.Log().Partition(topic.TopicPartition{Topic: src.topic, Partition: topic.PartitionID(shard)})
				if err != nil {
					return nil, err
				}
				stop, err := r.stopOffset(p, src)
				if err != nil {
					return nil, err
				}
				spec.Sources = append(spec.Sources, engine.SourceStart{Partition: p, Committed: src.committed, Stop: stop,
					Resolve: r.resolve(spec.ID, p, src, read[src.topic])})
				read[src.topic]++
			}
			if s := st.deliver(); s != nil {
				p, err := r.deliveryPartition(s, shard)
				if err != nil {
					return nil, err
				}
				spec.Delivers = true
				spec.Sources = []engine.SourceStart{{Partition: p, Committed: true,
					Resolve: func() (topic.LogOffset, error) { return p.Start(), nil }}}
			}
			spec.Open = func(t *engine.Task) error { return r.openTask(t, st) }
			specs = append(specs, spec)
		}
	}
	return specs, nil
}

// resolve tells where a job that has not run begins to read p, as the nth time that the task
// reads it.
func (r *run) resolve(task checkpoint.TaskID, p *topic.LogPartition, src *source, nth int) func() (topic.LogOffset, error) {
	start := func() (topic.LogOffset, error) { return src.startAt(r.app).ResolveFor(p, src.isolation()) }
	if r.app.from == nil || src.replay {
		return start
	}
	return func() (topic.LogOffset, error) { return r.startSaved(task, p, nth, start) }
}

// openTask opens the inputs of a task, each with what is behind it.
func (r *run) openTask(t *engine.Task, st *stage) error {
	o := &opening{task: t, run: r, opened: make(map[int]any), tables: make(map[int]any)}
	read := make(map[string]int) // topics, since one may be read more than once
	for _, root := range st.roots {
		switch {
		case root.group != nil:
			root.group.openStage(o, t.ID.Shard)
			continue
		case root.deliver != nil:
			return r.openDeliveryTask(o, root)
		}
		if err := r.openSource(o, root.source, read[root.source.topic]); err != nil {
			return err
		}
		read[root.source.topic]++
	}
	return o.err
}

// openSource opens the task's partition of a topic, which it reads for the nth time.
func (r *run) openSource(o *opening, src *source, nth int) error {
	p, err := r.env.Plane.Log().Partition(topic.TopicPartition{Topic: src.topic, Partition: topic.PartitionID(o.task.ID.Shard)})
	if err != nil {
		return err
	}
	at := sourceStart{partition: p}
	if at.start, err = o.task.StartOf(p, nth); err != nil {
		return err
	}
	if at.stop, err = r.stopOffset(p, src); err != nil {
		return err
	}
	at.reader = p.Reader(at.start.Offset, src.isolation())
	src.open(o, at)
	return nil
}

// stopOffset is where p is read to, the same each time it is asked; negative where
// there is no end.
func (r *run) stopOffset(p *topic.LogPartition, src *source) (topic.LogOffset, error) {
	at := src.stopAt(r.app)
	if at == nil {
		return -1, nil
	}
	if off, ok := r.stops[p.Name()]; ok {
		return off, nil
	}
	off, err := at.ResolveFor(p, src.isolation())
	if err != nil {
		return 0, err
	}
	if src.committed {
		off = min(off, p.LastStable())
	} else {
		off = min(off, p.HighWatermark())
	}
	r.stops[p.Name()] = off
	return off, nil
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
