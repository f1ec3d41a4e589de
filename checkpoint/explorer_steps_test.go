package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/log"
)

// step is one thing that can happen next.
type step struct {
	name  string
	fault bool // it may never happen: a world in which only faults can is at rest
	world explorable
	err   error // a violation met on the way
}

// steps lists everything that can happen next in w.
func (w *world) steps() []step {
	var all []step
	add := func(fault bool, name string, do func(*world) error) {
		next := w.clone()
		err := do(next)
		if err == nil {
			err = w.check(next)
		}
		all = append(all, step{name, fault, next, err})
	}

	for i := range w.msgs {
		m := w.msgs[i]
		if i > 0 && m == w.msgs[i-1] {
			continue
		}
		for _, to := range w.receivers(m) {
			name := fmt.Sprintf("deliver %v", m)
			if to >= 0 && w.actors[to].attempt != m.id.Attempt {
				name += fmt.Sprintf(" (at attempt %d)", w.actors[to].attempt)
			}
			add(false, name, func(n *world) error {
				n.msgs = slices.Delete(n.msgs, i, i+1)
				return n.deliver(m, to)
			})
			if w.left.repeats > 0 {
				add(true, name+" and keep it", func(n *world) error {
					n.left.repeats--
					return n.deliver(m, to)
				})
			}
			if m.kind == msgOutcome && w.left.losses > 0 {
				add(true, fmt.Sprintf("lose the outcome of Complete %v", m.id), func(n *world) error {
					n.left.losses--
					n.msgs = slices.Delete(n.msgs, i, i+1)
					m := m
					m.outcome = outcomeUnknown
					return n.deliver(m, to)
				})
			}
		}
	}

	for i, a := range w.actors {
		if a.phase != phaseRun {
			add(false, a.phase.String(), func(n *world) error { return n.recover(n.own(i)) })
			continue
		}
		if a.gate.state == gateOpen && a.coord.state == coordinatorIdle && a.hasInput() {
			add(false, fmt.Sprintf("attempt %d triggers checkpoint %d", a.attempt, a.coord.n+1), func(n *world) error {
				a := n.own(i)
				id, _ := a.coord.trigger()
				n.send(message{kind: msgBarrier, id: id, task: 0}, message{kind: msgBarrier, id: id, task: 1})
				return nil
			})
		}
	}

	if w.left.crashes > 0 {
		add(true, "crash", func(n *world) error {
			n.left.crashes--
			n.actors = []*actor{n.newActor(true)}
			n.msgs = slices.DeleteFunc(n.msgs, func(m message) bool { return m.kind == msgOutcome })
			return nil
		})
	}
	if newest := w.actors[len(w.actors)-1]; w.left.restarts > 0 && newest.phase == phaseRun {
		add(true, "start the job again while the attempt before lives on", func(n *world) error {
			n.left.restarts--
			n.actors = append(n.actors, n.newActor(false))
			return nil
		})
	}
	for part := range w.parts {
		if w.left.timers > 0 && len(w.meta.endings(w.parts[part].open())) > 0 {
			add(true, "the leader of "+modelParts[part].Topic+" looks at its open transactions", func(n *world) error {
				n.left.timers--
				return n.settle(part)
			})
		}
	}
	if upTo := w.marked(); w.left.syncs > 0 && upTo > w.meta.durableTo {
		add(true, "sync", func(n *world) error {
			n.left.syncs--
			n.apply(durable{upTo})
			return nil
		})
	}
	return all
}

func (p actorPhase) String() string {
	return [...]string{"recovery reads the checkpoint", "recovery commits attempt+1", "recovery settles the output",
		"recovery settles the changelog", "recovery reads the checkpoint", "running"}[p]
}

func (w *world) newActor(fresh bool) *actor {
	a := &actor{fresh: fresh, phase: phaseBegin}
	if w.meta.rules.readBeforeBegin {
		a.phase = phaseRead
	}
	return a
}

func (a *actor) hasInput() bool {
	return a.tasks[0].next < len(modelInputs[0]) || a.tasks[1].next < len(modelInputs[1])
}

// marked is the highest index up to which no completed transaction lacks a marker.
func (w *world) marked() int64 {
	upTo := w.index - 1
	for _, c := range w.meta.completed {
		for part, tp := range modelParts {
			if _, touched := c.ends[tp]; touched {
				if _, ended := w.parts[part].marker(c.txn); !ended {
					upTo = min(upTo, c.index-1)
				}
			}
		}
	}
	return upTo
}

// receivers lists who can get a message now: -1 is a partition or the metadata log,
// others are actors. What an attempt sent may reach a later one instead; what
// nobody can get any more is dropped by the partition's -1 too.
func (w *world) receivers(m message) []int {
	switch m.kind {
	case msgPropose, msgMarker:
		return []int{-1}
	case msgWrite:
		// Writes of a transaction arrive in order: a gap waits.
		if m.seq > w.parts[m.part].written(m.txn) && w.meta.admits(m.txn) == admit {
			return nil
		}
		return []int{-1}
	}
	var to []int
	for i, a := range w.actors {
		if a.phase == phaseRun && a.attempt >= m.id.Attempt {
			to = append(to, i)
		}
	}
	return to
}

func (w *world) deliver(m message, to int) error {
	switch m.kind {
	case msgWrite:
		return w.deliverWrite(m)
	case msgPropose:
		return w.deliverProposal(m)
	case msgMarker:
		return w.end(m.part, ending{m.txn, true})
	}
	a := w.own(to)
	switch m.kind {
	case msgBarrier:
		if t := &a.tasks[m.task]; t.aligner.barrier(0, m.id) {
			return w.passBarrier(a, m.task)
		}
	case msgReport:
		r := Report{Inputs: []Input{{modelSource[m.task], log.Position{Offset: log.Offset(m.next)}}}, Moved: m.moved}
		if m.task == 1 {
			r.Changelogs = []Changelog{{modelParts[changePart], log.Position{Offset: log.Offset(m.end)}}}
		}
		if a.coord.report(m.id, modelTasks[m.task], r) {
			a.gate.seal()
			w.propose(a)
		}
	case msgOutcome:
		again, done := a.coord.committed(m.id, m.outcome)
		if again {
			w.propose(a)
		}
		if done {
			for part, end := range a.ends {
				if end > 0 {
					w.send(message{kind: msgMarker, id: m.id, part: part, txn: a.txn()})
				}
			}
			a.ends, a.seq = [2]int{}, [2]int{}
			a.gate.advance()
		}
		if a.coord.state == coordinatorOver {
			a.gate.close()
		}
	}
	return nil
}

// passBarrier is a task that has the barrier on all its inputs.
func (w *world) passBarrier(a *actor, task int) error {
	t := &a.tasks[task]
	t.moved = t.next < len(modelInputs[task])
	if !t.moved {
		w.report(a, task)
		return nil
	}
	if err := a.gate.admits(ID{a.attempt, t.aligner.last.N}); err != nil {
		return nil // the attempt is over
	}
	record := modelInputs[task][t.next : t.next+1]
	t.next++
	if task == 0 {
		w.write(a, task, outputPart, record)
		return nil
	}
	t.count++
	w.write(a, task, changePart, string(rune('0'+t.count)))
	return nil
}

func (w *world) write(a *actor, task, part int, value string) {
	w.send(message{kind: msgWrite, id: a.gate.open, task: task, part: part, seq: a.seq[part], txn: a.txn(), value: value})
	a.seq[part]++
	a.tasks[task].waiting++
}

func (w *world) report(a *actor, task int) {
	t := a.tasks[task]
	w.send(message{kind: msgReport, id: ID{a.attempt, t.aligner.last.N}, task: task, next: t.next, end: t.end, moved: t.moved})
}

func (w *world) propose(a *actor) {
	ends := map[log.TopicPartition]log.Position{}
	for part, end := range a.ends {
		if end > 0 {
			ends[modelParts[part]] = log.Position{Offset: log.Offset(end)}
		}
	}
	e := complete{modelJob, a.coord.id(), a.coord.moved(), ends}
	w.send(message{kind: msgPropose, id: e.id, value: string(encodeEntry(nil, e))})
}

func (w *world) deliverProposal(m message) error {
	e, err := decodeEntry([]byte(m.value))
	if err != nil {
		return err
	}
	o := outcomeAccepted
	if w.apply(e).err != nil {
		o = outcomeRejected
	}
	if w.living(m.id.Attempt) >= 0 {
		w.send(message{kind: msgOutcome, id: m.id, outcome: o})
	}
	return nil
}

func (w *world) living(attempt int64) int {
	return slices.IndexFunc(w.actors, func(a *actor) bool { return a.phase == phaseRun && a.attempt == attempt })
}

// deliverWrite is the leader of a partition, which does what package log does.
func (w *world) deliverWrite(m message) error {
	writer := w.living(m.id.Attempt)
	_, ended := w.parts[m.part].marker(m.txn)
	repetition := m.seq < w.parts[m.part].written(m.txn)
	if w.meta.admits(m.txn) != admit || ended {
		if writer >= 0 && !repetition {
			a := w.own(writer)
			a.coord.fail()
			a.gate.close()
		}
		return nil
	}
	if repetition {
		return nil
	}
	if id := w.openGeneration(m); id != m.txn {
		return fmt.Errorf("%v comes while transaction %d is undecided", m, id-firstBlock)
	}
	w.append(m.part, modelBatch{txn: m.txn, value: m.value})
	if writer < 0 {
		return nil
	}
	a := w.own(writer)
	t := &a.tasks[m.task]
	a.ends[m.part] = len(w.parts[m.part])
	if m.part == changePart {
		t.end = len(w.parts[m.part])
	}
	if t.waiting--; t.waiting == 0 {
		w.report(a, m.task)
	}
	return nil
}

// openGeneration finds another undecided transaction of the same attempt in the partition.
func (w *world) openGeneration(m message) log.ProducerID {
	for _, id := range w.parts[m.part].open() {
		if blockOf(id) == blockOf(m.txn) && id != m.txn && w.meta.verdict(id) == undecided {
			return id
		}
	}
	return m.txn
}

// recover takes the next step of an attempt that begins.
func (w *world) recover(a *actor) error {
	if a.fresh {
		a.fresh = false
		w.apply(nodeStart{})
	}
	readFirst := w.meta.rules.readBeforeBegin
	switch a.phase {
	case phaseRead:
		a.chosen, a.phase = w.newest(), phaseBegin
	case phaseBegin:
		w.begin(a)
		a.phase = phaseSettle
	case phaseSettle:
		a.phase = phaseSettle2
		return w.settle(outputPart)
	case phaseSettle2:
		a.phase = phaseChoose
		if err := w.settle(changePart); err != nil || !readFirst {
			return err
		}
		return w.run(a)
	case phaseChoose:
		a.chosen = w.newest()
		return w.run(a)
	}
	return nil
}

// check compares a world with the one it came from: what readers saw stays, and what
// was decided stays decided.
func (w *world) check(next *world) error {
	for part := range w.parts {
		was, is := w.parts[part], next.parts[part]
		if len(is) == len(was) && next.meta == w.meta {
			continue
		}
		if is.lastStable() < was.lastStable() {
			return fmt.Errorf("the last stable offset of %s went from %d back to %d", modelParts[part].Topic, was.lastStable(), is.lastStable())
		}
		before, after := was.committed(len(was)), is.committed(len(is))
		if !strings.HasPrefix(after, before) {
			return fmt.Errorf("a reader of %s had seen %q, now it is %q", modelParts[part].Topic, before, after)
		}
		for i, r := range after {
			if strings.ContainsRune(after[:i], r) {
				return fmt.Errorf("%q is committed twice in %s: %q", r, modelParts[part].Topic, after)
			}
		}
		for _, id := range is.open() {
			if v, n := w.meta.verdict(id), next.meta.verdict(id); v != undecided && v != n {
				return fmt.Errorf("the verdict on transaction %d went from %v to %v", id-firstBlock, v, n)
			}
		}
		for _, b := range is[len(was):] {
			if b.value == "" && next.meta.verdict(b.txn) == undecided {
				return fmt.Errorf("transaction %d of %s ended with commit=%v without a verdict", b.txn-firstBlock, modelParts[part].Topic, b.commit)
			}
		}
	}
	return nil
}

// rest checks a world where nothing but faults can happen.
func (w *world) rest() error {
	for part, l := range w.parts {
		if open := l.open(); len(open) > 0 {
			return fmt.Errorf("transaction %d of %s stays open for ever", open[0]-firstBlock, modelParts[part].Topic)
		}
	}
	newest := w.actors[len(w.actors)-1]
	if newest.coord.state != coordinatorIdle || newest.hasInput() {
		return fmt.Errorf("attempt %d makes no progress: coordinator %v, inputs at %d and %d", newest.attempt, newest.coord.state, newest.tasks[0].next, newest.tasks[1].next)
	}
	out := w.parts[outputPart].committed(len(w.parts[outputPart]))
	if want := modelInputs[0]; out != want {
		return fmt.Errorf("committed output is %q, the input was %q", out, want)
	}
	state := w.parts[changePart].committed(len(w.parts[changePart]))
	if want := byte('0' + len(modelInputs[1])); state == "" || state[len(state)-1] != want {
		return fmt.Errorf("the committed changelog %q does not end with %q", state, want)
	}
	last := w.newest()
	for i, t := range modelTasks {
		if next := int(last.reports[t].Inputs[0].Next.Offset); next != len(modelInputs[i]) {
			return fmt.Errorf("checkpoint %v has input %d at %d of %d", last.id, i, next, len(modelInputs[i]))
		}
	}
	return nil
}
