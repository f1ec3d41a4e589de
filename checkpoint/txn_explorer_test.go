package checkpoint

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/thalweg/thalweg/log"
)

// The explorer's world of plain transactions: instances of one transactional name over
// the production step functions, with a metadata log that loses nothing, two
// partitions, and messages that arrive late and in any order, also from instances that
// are gone. Each instance commits one transaction that writes to both partitions and
// aborts another.

type txnMessage struct {
	kind    txnMessageKind
	txn     log.ProducerID
	part    int
	outcome outcome
}

type txnMessageKind uint8

const (
	txnMsgWrite txnMessageKind = iota
	txnMsgCommit
	txnMsgAbort
	txnMsgOutcome // of a commit
	txnMsgCommitMarker
	txnMsgAbortMarker
)

func (m txnMessage) String() string {
	name := [...]string{"write of", "commit of", "abort of", "outcome for", "commit marker of", "abort marker of"}[m.kind]
	return fmt.Sprintf("%s transaction %x, partition %d, accepted %v", name, int64(m.txn-firstBlock), m.part, m.outcome == outcomeAccepted)
}

func (m txnMessage) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(append(b, byte(m.kind), byte(m.part), byte(m.outcome)), uint64(m.txn))
}

// txnActor is an instance.
type txnActor struct {
	first   log.ProducerID
	txn     txn
	asked   [2]bool // writes of the open transaction that were sent
	written [2]bool // and those that were acknowledged
	plan    string  // what its transactions are to become: c committed, a aborted
	step    int     // of plan
	ended   bool    // it knows that it is over
}

type txnBudget struct {
	plan      string // of the first instance; the others commit one
	instances int    // further instances of the name
	timeouts  int
	crashes   int
	losses    int // outcomes that do not arrive
	timers    int // a leader looks at its open transactions for no reason
	syncs     int
}

type txnWorld struct {
	meta    *metadata
	metaIs  []byte
	index   int64
	parts   [2]modelLog
	actors  []*txnActor
	msgs    []txnMessage
	acked   []log.ProducerID // commits that an instance was told of
	recover int              // partitions still to be settled before the next instance begins; -1 when none is to
	left    txnBudget
}

func newTxnWorld(r rules, left txnBudget) *txnWorld {
	w := &txnWorld{meta: newMetadata(r), left: left, recover: -1}
	w.begin(left.plan)
	return w
}

func (w *txnWorld) apply(e entry) result {
	w.meta = w.meta.clone()
	r := w.meta.apply(w.index, e)
	if r.err == nil && !r.repeat {
		w.index++
	}
	w.metaIs = encodeSnapshot(nil, w.meta)
	return r
}

// begin adds an instance. What the one before has open is aborted by messages.
func (w *txnWorld) begin(plan string) {
	r := w.apply(txnOwnerBegin{"name", uint64(w.meta.nextBlock)})
	w.abortLeft()
	w.actors = append(w.actors, &txnActor{first: r.first, txn: newTxn(r.first), plan: plan})
}

// abortLeft sends the markers for what an owner that is over has open.
func (w *txnWorld) abortLeft() {
	for _, a := range w.actors {
		if a.ended || a.txn.state == txnIdle || w.meta.verdict(a.txn.id) != aborted {
			continue
		}
		for i := range w.parts {
			if a.asked[i] {
				w.send(txnMessage{kind: txnMsgAbortMarker, txn: a.txn.id, part: i})
			}
		}
	}
}

func (w *txnWorld) clone() *txnWorld {
	c := *w
	c.actors = slices.Clone(w.actors)
	c.msgs = slices.Clone(w.msgs)
	c.acked = slices.Clone(w.acked)
	return &c
}

func (w *txnWorld) own(i int) *txnActor {
	a := *w.actors[i]
	w.actors[i] = &a
	return &a
}

func (w *txnWorld) send(m txnMessage) {
	at, found := slices.BinarySearchFunc(w.msgs, m, func(a, b txnMessage) int { return slices.Compare(a.append(nil), b.append(nil)) })
	if !found { // the same twice makes no difference: each is tried again where it matters
		w.msgs = slices.Insert(w.msgs, at, m)
	}
}

func (w *txnWorld) key(b []byte) []byte {
	b = append(b, w.metaIs...)
	for _, l := range w.parts {
		b = append(b, byte(len(l)))
		for _, x := range l {
			b = binary.LittleEndian.AppendUint64(append(b, byte(len(x.value))), uint64(x.txn))
			if x.commit {
				b = append(b, 1)
			}
		}
	}
	b = append(b, fmt.Sprint(w.left, w.recover, w.acked)...)
	for _, a := range w.actors {
		b = append(b, fmt.Sprint(*a)...)
	}
	for _, m := range w.msgs {
		b = m.append(b)
	}
	return b
}

func (w *txnWorld) steps() []step {
	var all []step
	add := func(fault bool, name string, do func(*txnWorld) error) {
		next := w.clone()
		err := do(next)
		if err == nil {
			err = w.check(next)
		}
		all = append(all, step{name, fault, next, err})
	}
	for i, m := range w.msgs {
		add(false, "deliver "+m.String(), func(n *txnWorld) error {
			n.msgs = slices.Delete(n.msgs, i, i+1)
			return n.deliver(m)
		})
		if m.kind == txnMsgOutcome && w.left.losses > 0 {
			add(true, "lose the "+m.String(), func(n *txnWorld) error {
				n.left.losses--
				n.msgs = slices.Delete(n.msgs, i, i+1)
				n.send(txnMessage{kind: txnMsgCommit, txn: m.txn}) // asked again, never guessed
				return nil
			})
		}
	}
	for i, a := range w.actors {
		w.stepsOf(i, a, add)
	}
	w.faults(add)
	return all
}

// stepsOf lists what an instance can do by itself.
func (w *txnWorld) stepsOf(i int, a *txnActor, add func(bool, string, func(*txnWorld) error)) {
	name := fmt.Sprintf("instance %x ", int64(a.first-firstBlock))
	switch {
	case a.ended:
	case a.txn.state == txnIdle && a.step < len(a.plan):
		add(false, name+"begins a transaction", func(n *txnWorld) error {
			a := n.own(i)
			a.asked, a.written = [2]bool{}, [2]bool{}
			return a.txn.begin()
		})
	case a.txn.state == txnOpen:
		if !a.asked[0] {
			add(false, name+"writes to both partitions", func(n *txnWorld) error {
				n.own(i).asked = [2]bool{true, true}
				for part := range n.parts {
					n.send(txnMessage{kind: txnMsgWrite, txn: a.txn.id, part: part})
				}
				return nil
			})
		}
		kind := txnMsgCommit
		if a.plan[a.step] == 'a' {
			kind = txnMsgAbort
		}
		if a.written == [2]bool{true, true} {
			add(false, name+"seals its transaction", func(n *txnWorld) error {
				a := n.own(i)
				n.send(txnMessage{kind: kind, txn: a.txn.id})
				return a.txn.seal(kind == txnMsgCommit)
			})
		}
	case a.txn.state == txnSpoilt:
		add(false, name+"aborts its transaction", func(n *txnWorld) error {
			a := n.own(i)
			n.send(txnMessage{kind: txnMsgAbort, txn: a.txn.id})
			return a.txn.seal(false)
		})
	}
}

func (w *txnWorld) faults(add func(bool, string, func(*txnWorld) error)) {
	last := w.actors[len(w.actors)-1]
	if w.left.instances > 0 && w.recover < 0 {
		add(true, "a new instance begins", func(n *txnWorld) error {
			n.left.instances--
			n.begin("c")
			return nil
		})
	}
	if _, live := w.meta.txnOwners[last.first]; live && w.left.timeouts > 0 && last.txn.state != txnIdle {
		add(true, "the transaction is open for too long", func(n *txnWorld) error {
			n.left.timeouts--
			n.apply(txnOwnerEnd{last.first})
			n.abortLeft()
			return nil
		})
	}
	if w.left.crashes > 0 && w.recover < 0 {
		add(true, "crash", func(n *txnWorld) error {
			n.left.crashes--
			n.apply(nodeStart{})
			for i := range n.actors {
				n.own(i).ended = true
			}
			n.recover = len(n.parts)
			return nil
		})
	}
	if w.recover > 0 {
		add(false, fmt.Sprintf("recovery settles partition %d", w.recover-1), func(n *txnWorld) error {
			n.recover--
			return n.settle(n.recover)
		})
	}
	if w.recover == 0 {
		add(false, "an instance begins after the crash", func(n *txnWorld) error {
			n.recover = -1
			n.begin("c")
			return nil
		})
	}
	for part := range w.parts {
		if w.left.timers > 0 && len(w.meta.endings(w.parts[part].open())) > 0 {
			add(true, fmt.Sprintf("the leader of partition %d looks at its open transactions", part), func(n *txnWorld) error {
				n.left.timers--
				return n.settle(part)
			})
		}
	}
	if upTo := w.marked(); w.left.syncs > 0 && upTo > w.meta.durableTo {
		add(true, "sync", func(n *txnWorld) error {
			n.left.syncs--
			n.apply(durable{upTo})
			return nil
		})
	}
}

// marked is the highest index up to which no completed transaction lacks a marker.
func (w *txnWorld) marked() int64 {
	upTo := w.index - 1
	for _, c := range w.meta.completed {
		for part := range w.parts {
			if _, ended := w.parts[part].marker(c.txn); !ended {
				upTo = min(upTo, c.index-1)
			}
		}
	}
	return upTo
}

// actorOf returns the instance whose present transaction a message is about, or -1.
func (w *txnWorld) actorOf(m txnMessage) int {
	return slices.IndexFunc(w.actors, func(a *txnActor) bool { return !a.ended && a.txn.id == m.txn && a.txn.state != txnIdle })
}

func (w *txnWorld) deliver(m txnMessage) error {
	at := w.actorOf(m)
	switch m.kind {
	case txnMsgWrite:
		_, ended := w.parts[m.part].marker(m.txn)
		if w.meta.admits(m.txn) != admit || ended {
			if at >= 0 {
				w.own(at).txn.spoil()
			}
			return nil
		}
		w.parts[m.part] = append(slices.Clip(w.parts[m.part]), modelBatch{txn: m.txn, value: fmt.Sprintf("%x ", int64(m.txn-firstBlock))})
		if at >= 0 {
			w.own(at).written[m.part] = true
		}
	case txnMsgCommit:
		e := txnCommit{id: m.txn, ends: map[log.TopicPartition]log.Position{modelParts[0]: {}, modelParts[1]: {}}}
		o := outcomeAccepted
		if w.apply(e).err != nil {
			o = outcomeRejected
		}
		if at >= 0 {
			w.send(txnMessage{kind: txnMsgOutcome, txn: m.txn, outcome: o})
		}
	case txnMsgAbort:
		if w.apply(txnAbort{m.txn}).err != nil {
			if at >= 0 {
				a := w.own(at)
				a.txn.end()
				a.ended = true
			}
			return nil
		}
		for part := range w.parts {
			w.send(txnMessage{kind: txnMsgAbortMarker, txn: m.txn, part: part})
		}
		if at >= 0 {
			a := w.own(at)
			a.txn.ended(true)
			a.step++
		}
	case txnMsgOutcome:
		if at < 0 {
			return nil
		}
		a := w.own(at)
		if m.outcome == outcomeRejected {
			a.txn.end()
			a.ended = true
			return nil
		}
		for part := range w.parts {
			w.send(txnMessage{kind: txnMsgCommitMarker, txn: m.txn, part: part})
		}
		w.acked = append(w.acked, m.txn)
		a.txn.ended(true)
		a.step++
	case txnMsgCommitMarker, txnMsgAbortMarker:
		return w.end(m.part, ending{m.txn, m.kind == txnMsgCommitMarker})
	}
	return nil
}

func (w *txnWorld) end(part int, e ending) error {
	if commit, ended := w.parts[part].marker(e.txn); ended {
		if commit != e.commit {
			return fmt.Errorf("transaction %x of partition %d has ended with commit=%v, now it is to end with %v", int64(e.txn-firstBlock), part, commit, e.commit)
		}
		return nil
	}
	if w.parts[part].written(e.txn) > 0 {
		w.parts[part] = append(slices.Clip(w.parts[part]), modelBatch{txn: e.txn, commit: e.commit})
	}
	return nil
}

func (w *txnWorld) settle(part int) error {
	for _, e := range w.meta.endings(w.parts[part].open()) {
		if err := w.end(part, e); err != nil {
			return err
		}
	}
	return nil
}

// check compares a world with the one it came from.
func (w *txnWorld) check(next *txnWorld) error {
	for part := range w.parts {
		was, is := w.parts[part], next.parts[part]
		if is.lastStable() < was.lastStable() {
			return fmt.Errorf("the last stable offset of partition %d went from %d back to %d", part, was.lastStable(), is.lastStable())
		}
		for _, id := range is.open() {
			if v, n := w.meta.verdict(id), next.meta.verdict(id); v != undecided && v != n {
				return fmt.Errorf("the verdict on transaction %x went from %v to %v", int64(id-firstBlock), v, n)
			}
		}
		for _, b := range is[len(was):] {
			if b.value == "" && next.meta.verdict(b.txn) == undecided {
				return fmt.Errorf("transaction %x of partition %d ended without a verdict", int64(b.txn-firstBlock), part)
			}
		}
	}
	return nil
}

// rest checks a world where nothing but faults can happen: nothing is open, each
// transaction is in both partitions or in none, and what was acknowledged is there.
func (w *txnWorld) rest() error {
	commits := map[log.ProducerID]int{}
	for part, l := range w.parts {
		if open := l.open(); len(open) > 0 {
			return fmt.Errorf("transaction %x of partition %d stays open for ever", int64(open[0]-firstBlock), part)
		}
		for _, b := range l {
			if b.value == "" && b.commit {
				commits[b.txn]++
			}
		}
	}
	for id, n := range commits {
		if n != len(w.parts) {
			return fmt.Errorf("transaction %x is committed in %d of %d partitions", int64(id-firstBlock), n, len(w.parts))
		}
	}
	for _, id := range w.acked {
		if commits[id] == 0 {
			return fmt.Errorf("transaction %x was acknowledged, and is aborted", int64(id-firstBlock))
		}
	}
	last := w.actors[len(w.actors)-1]
	if _, live := w.meta.txnOwners[last.first]; live && last.step < len(last.plan) {
		return fmt.Errorf("the last instance makes no progress: %v", last.txn.state)
	}
	return nil
}

// Every history of a transactional name with new instances, limits, crashes and late
// messages leaves each transaction in all its partitions or in none.
func TestEveryInterleavingOfTransactions(t *testing.T) {
	budgets := []txnBudget{
		{plan: "ca", losses: 1, syncs: 1},
		{plan: "c", timeouts: 1, losses: 1},
		{plan: "a", timeouts: 1, timers: 1},
		{plan: "c", instances: 1},
		{plan: "c", crashes: 1},
		{plan: "a", crashes: 1},
		{plan: "ac", timeouts: 1},
		{plan: "c", instances: 1, timeouts: 1},
		{plan: "c", crashes: 1, losses: 1, syncs: 1},
	}
	if testing.Short() {
		budgets = budgets[:6]
	}
	for _, b := range budgets {
		x := explore(newTxnWorld(rules{}, b))
		t.Logf("%+v: %d states, %d steps, %d at rest", b, x.states, x.steps, x.rests)
		if x.violation != nil {
			t.Fatalf("violation:\n%v", x.violation)
		}
		if x.rests == 0 {
			t.Fatal("no history came to rest")
		}
	}
}

// Each rule is needed: with one taken out some history goes wrong.
func TestEveryRuleOfTransactionsIsNeeded(t *testing.T) {
	for _, m := range []struct {
		rule string
		out  rules
		left txnBudget
	}{
		{"only a live owner commits", rules{commitEnded: true}, txnBudget{plan: "c", timeouts: 1}},
		{"leaders refuse owners that are over", rules{admitEnded: true}, txnBudget{plan: "c", timeouts: 1}},
		{"nothing is aborted without an entry", rules{abortUndecided: true}, txnBudget{plan: "c", timers: 1}},
	} {
		t.Run(m.rule, func(t *testing.T) {
			if x := explore(newTxnWorld(rules{}, m.left)); x.violation != nil {
				t.Fatalf("with the rule:\n%v", x.violation)
			}
			x := explore(newTxnWorld(m.out, m.left))
			if x.violation == nil {
				t.Fatalf("%d states, and the rule was never missed", x.states)
			}
			t.Logf("%d states until the shortest history that goes wrong:\n%v", x.states, x.violation)
		})
	}
}
