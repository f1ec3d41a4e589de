package checkpoint

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/log"
)

// The explorer's world: one job of two tasks over the production step functions, with
// a metadata log that loses nothing, two partitions, and messages that arrive late,
// in any order and, where the budget allows, twice. Everything in a world is treated
// as immutable once it is shared: a step copies what it changes.
//
// Task 0 reads the records of modelInputs[0] and passes them on to the output. Task 1
// reads those of modelInputs[1] and counts them in the changelog. A task takes one
// record for each barrier, as long as it has one.

const (
	modelJob   = "job"
	outputPart = 0
	changePart = 1
)

var (
	modelInputs = [2]string{"ab", "x"} // a record is a byte
	modelTasks  = [2]TaskID{{"read", 0}, {"count", 0}}
	modelParts  = [2]log.TopicPartition{{Topic: "output"}, {Topic: "changelog"}}
	modelSource = [2]log.TopicPartition{{Topic: "source", Partition: 0}, {Topic: "source", Partition: 1}}
)

// modelBatch is a data batch, or a marker.
type modelBatch struct {
	txn    log.ProducerID
	value  string // a record; empty in a marker
	commit bool   // what a marker says
}

// modelLog is a partition. The batch's place is its offset.
type modelLog []modelBatch

func (l modelLog) marker(txn log.ProducerID) (commit, ok bool) {
	for _, b := range l {
		if b.txn == txn && b.value == "" {
			return b.commit, true
		}
	}
	return false, false
}

func (l modelLog) written(txn log.ProducerID) (n int) {
	for _, b := range l {
		if b.txn == txn && b.value != "" {
			n++
		}
	}
	return n
}

// open lists the transactions without a marker by first offset.
func (l modelLog) open() (ids []log.ProducerID) {
	for _, b := range l {
		if _, ended := l.marker(b.txn); !ended && !slices.Contains(ids, b.txn) {
			ids = append(ids, b.txn)
		}
	}
	return ids
}

func (l modelLog) lastStable() int {
	for i, b := range l {
		if _, ended := l.marker(b.txn); !ended {
			return i
		}
	}
	return len(l)
}

// committed is what a read-committed reader gets below end.
func (l modelLog) committed(end int) string {
	var s strings.Builder
	for _, b := range l[:min(end, l.lastStable())] {
		if commit, _ := l.marker(b.txn); commit {
			s.WriteString(b.value)
		}
	}
	return s.String()
}

type messageKind uint8

const (
	msgBarrier messageKind = iota
	msgWrite
	msgReport
	msgPropose
	msgOutcome
	msgMarker
)

// message is something on its way. It is comparable, so that worlds are.
type message struct {
	kind    messageKind
	id      ID // the checkpoint it belongs to
	task    int
	part    int
	seq     int
	txn     log.ProducerID
	next    int // of the task's input, in a report
	end     int // of the task's changelog, in a report
	moved   bool
	value   string // the record, in a write; the encoded entry, in a proposal
	outcome outcome
}

func (m message) String() string {
	switch m.kind {
	case msgBarrier:
		return fmt.Sprintf("barrier %v to task %d", m.id, m.task)
	case msgWrite:
		return fmt.Sprintf("write %v of task %d, %q, to %s", m.id, m.task, m.value, modelParts[m.part].Topic)
	case msgReport:
		return fmt.Sprintf("report %v of task %d (input %d, changelog %d, moved %v)", m.id, m.task, m.next, m.end, m.moved)
	case msgPropose:
		return fmt.Sprintf("Complete %v", m.id)
	case msgOutcome:
		return fmt.Sprintf("outcome %v of Complete %v", m.outcome == outcomeAccepted, m.id)
	}
	return fmt.Sprintf("commit marker %v to %s", m.id, modelParts[m.part].Topic)
}

func compareMessages(a, b message) int {
	return strings.Compare(string(a.append(nil)), string(b.append(nil)))
}

func (m message) append(b []byte) []byte {
	b = append(b, byte(m.kind), byte(m.id.Attempt), byte(m.id.N), byte(m.task), byte(m.part), byte(m.seq), byte(m.next), byte(m.end), byte(m.outcome))
	if m.moved {
		b = append(b, 1)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(m.txn))
	return appendString(b, m.value)
}

type actorPhase uint8

const (
	phaseRead    actorPhase = iota // choose the checkpoint (first only where the rule is taken out)
	phaseBegin                     // commit attempt+1
	phaseSettle                    // end what older attempts left open in the output
	phaseSettle2                   // and in the changelog
	phaseChoose
	phaseRun
)

// actor is one attempt's side of the protocol: session, coordinator and tasks.
type actor struct {
	fresh   bool // its process has just started: nodeStart comes first
	phase   actorPhase
	attempt int64
	first   log.ProducerID
	base    int64
	chosen  retained // whole; meaningful after phaseRead or phaseChoose
	coord   *coordinator
	gate    gate
	seq     [2]int
	ends    [2]int // where the partitions stood after the last write of the open checkpoint
	tasks   [2]modelTask
}

type modelTask struct {
	aligner *Aligner
	next    int // of the input
	count   int // the state
	end     int // of the changelog
	waiting int // writes not acknowledged
	moved   bool
}

func (a *actor) clone() *actor {
	c := *a
	if a.coord != nil {
		c.coord = a.coord.clone()
		for i := range c.tasks {
			al := *c.tasks[i].aligner
			al.inputs = slices.Clone(al.inputs)
			c.tasks[i].aligner = &al
		}
	}
	return &c
}

func (a *actor) txn() log.ProducerID { return a.first + log.ProducerID(a.gate.open.N-a.base) }

// budget bounds the faults of one history.
type budget struct {
	crashes  int // the process ends, and starts again
	restarts int // the job starts again while the attempt before lives on
	repeats  int // a message arrives twice
	losses   int // the outcome of a Complete does not arrive
	timers   int // a leader looks at its open transactions for no reason
	syncs    int // everything becomes durable and is forgotten
}

type world struct {
	meta   *metadata
	metaIs []byte // meta encoded: what tells one from another
	index  int64  // of the next entry that is accepted
	parts  [2]modelLog
	actors []*actor // living ones by age; the last is the newest
	msgs   []message
	left   budget
}

func newWorld(r rules, left budget) *world {
	w := &world{meta: newMetadata(r), left: left}
	a := &actor{phase: phaseBegin}
	w.actors = []*actor{a}
	w.begin(a)
	zero := complete{job: modelJob, id: ID{1, 0}, reports: map[TaskID]Report{
		modelTasks[0]: {Inputs: []Input{{Partition: modelSource[0]}}},
		modelTasks[1]: {Inputs: []Input{{Partition: modelSource[1]}}, Changelogs: []Changelog{{Partition: modelParts[changePart]}}},
	}}
	w.apply(zero)
	a.chosen = w.newest()
	if err := w.run(a); err != nil {
		panic(err)
	}
	return w
}

// apply appends an entry to the metadata log. Entries that change nothing take no
// index, so that histories which differ in them only meet again.
func (w *world) apply(e entry) result {
	w.meta = w.meta.clone()
	r := w.meta.apply(w.index, e)
	if r.err == nil && !r.repeat {
		w.index++
	}
	w.metaIs = encodeSnapshot(nil, w.meta)
	return r
}

func (w *world) newest() retained {
	cs := w.meta.jobs[modelJob].checkpoints
	return join(cs)
}

func (w *world) begin(a *actor) {
	attempt := int64(1)
	if j := w.meta.jobs[modelJob]; j != nil {
		attempt = j.attempt + 1
	}
	r := w.apply(attemptBegin{modelJob, attempt, uint64(attempt)})
	a.attempt, a.first, a.base = attempt, r.first, r.base
}

// run starts the tasks from the checkpoint chosen.
func (w *world) run(a *actor) error {
	a.phase = phaseRun
	a.coord = newCoordinator(a.attempt, a.base, modelTasks[:], w.meta.rules)
	a.gate.begin(ID{a.attempt, a.base})
	for i, t := range modelTasks {
		r := a.chosen.reports[t]
		a.tasks[i] = modelTask{next: int(r.Inputs[0].Next.Offset), aligner: newAligner(ID{a.attempt, a.base}, 1, w.meta.rules)}
		for _, c := range r.Changelogs {
			a.tasks[i].end = int(c.End.Offset)
		}
	}
	t := &a.tasks[1]
	log := w.parts[changePart]
	if t.end > log.lastStable() {
		return fmt.Errorf("attempt %d starts from %v, whose changelog position %d is above the last stable offset %d", a.attempt, a.chosen.id, t.end, log.lastStable())
	}
	if s := log.committed(t.end); s != "" {
		t.count = int(s[len(s)-1] - '0')
	}
	if t.count != t.next {
		return fmt.Errorf("attempt %d starts from %v with %d records read and state %d", a.attempt, a.chosen.id, t.next, t.count)
	}
	return nil
}

func (w *world) clone() *world {
	c := *w
	c.actors = slices.Clone(w.actors)
	c.msgs = slices.Clone(w.msgs)
	return &c
}

// own returns a copy of an actor that the world may change.
func (w *world) own(i int) *actor {
	w.actors[i] = w.actors[i].clone()
	return w.actors[i]
}

func (w *world) send(ms ...message) {
	for _, m := range ms {
		at, _ := slices.BinarySearchFunc(w.msgs, m, compareMessages)
		w.msgs = slices.Insert(w.msgs, at, m)
	}
}

func (w *world) append(part int, b modelBatch) {
	w.parts[part] = append(slices.Clip(w.parts[part]), b)
}

// end writes a marker where none is.
func (w *world) end(part int, e ending) error {
	if commit, ended := w.parts[part].marker(e.txn); ended {
		if commit != e.commit {
			return fmt.Errorf("transaction %d of %s has ended with commit=%v, now it is to end with %v", e.txn-firstBlock, modelParts[part].Topic, commit, e.commit)
		}
		return nil
	}
	if w.parts[part].written(e.txn) > 0 {
		w.append(part, modelBatch{txn: e.txn, commit: e.commit})
	}
	return nil
}

func (w *world) settle(part int) error {
	for _, e := range w.meta.endings(w.parts[part].open()) {
		if err := w.end(part, e); err != nil {
			return err
		}
	}
	return nil
}

// key identifies the world.
func (w *world) key(b []byte) []byte {
	b = append(b, w.metaIs...)
	for _, l := range w.parts {
		b = appendUint(b, uint64(len(l)))
		for _, x := range l {
			b = appendString(binary.LittleEndian.AppendUint64(b, uint64(x.txn)), x.value)
			if x.commit {
				b = append(b, 1)
			}
		}
	}
	b = append(b, byte(len(w.actors)), byte(w.left.crashes), byte(w.left.restarts), byte(w.left.repeats), byte(w.left.losses), byte(w.left.timers), byte(w.left.syncs))
	for _, a := range w.actors {
		b = a.append(b)
	}
	for _, m := range w.msgs {
		b = m.append(b)
	}
	return b
}

func (a *actor) append(b []byte) []byte {
	b = append(b, byte(a.phase), byte(a.attempt), byte(a.base))
	if a.fresh {
		b = append(b, 1)
	}
	b = appendID(b, a.chosen.id)
	if a.coord == nil {
		return b
	}
	b = append(b, byte(a.coord.state), byte(a.coord.n), byte(a.gate.state), byte(a.gate.open.N), byte(a.seq[0]), byte(a.seq[1]), byte(a.ends[0]), byte(a.ends[1]))
	b = appendReports(b, a.coord.reports)
	for _, t := range a.tasks {
		b = append(b, byte(t.aligner.last.N), byte(t.next), byte(t.count), byte(t.end), byte(t.waiting))
		if t.moved {
			b = append(b, 1)
		}
	}
	return b
}
