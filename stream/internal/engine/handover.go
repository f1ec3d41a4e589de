package engine

import "github.com/thalweg/thalweg/topic"

// handover is how far a delivery has come, as checkpoints see it. It is a value without
// I/O: it says what is to be done next, and is told what was done.
//
// A plain sink is open all the time. A two-phase sink goes around:
//
//	          ┌──────────────────────────── committed ────────────────────────────┐
//	          ▼                                                                    │
//	open ──prepared──▶ prepared ──report n──▶ reported ──n is complete──▶ decided ─┘
//	 ▲  │
//	 │  └─spoil──▶ spoiled ─┐        (spoil is put off while a handle is out)
//	 └──────aborted─────────┘
//
// An attempt that finds a handle in the checkpoint it starts from begins in decided:
// the checkpoint is complete. A two-phase sink then begins spoiled, since what
// an attempt before has written without a checkpoint is still to be dropped.
//
// Invariants: everything before done was delivered, or is covered by handle; a
// handle is out in all phases but open and spoiled; written >= done.
type handover struct {
	twoPhase bool
	phase    phase
	done     topic.LogPosition // what a checkpoint says: delivered, or prepared with handle
	written  topic.LogPosition // two-phase: written since; prepared by the next handle
	handle   []byte
	n        int64 // the checkpoint that reported the handle
	spoiled  bool  // what was written since done has to be dropped and written again
}

type phase uint8

const (
	phaseOpen     phase = iota // no handle is out
	phasePrepared              // a handle waits for a barrier
	phaseReported              // it is part of checkpoint n, which is not known to be complete
	phaseDecided               // checkpoint n is complete: to be committed
)

func (p phase) String() string { return [...]string{"open", "prepared", "reported", "decided"}[p] }

// action is what a delivery has to do next.
type action uint8

const (
	actionWrite  action = iota // hand over records; with none there, prepare what was written
	actionCommit               // commit the handle
	actionAbort                // drop what was written and not prepared
	actionWait                 // nothing before a checkpoint completes
)

// newHandover begins where a checkpoint stands.
func newHandover(twoPhase bool, done topic.LogPosition, handle []byte) handover {
	h := handover{twoPhase: twoPhase, done: done, written: done, spoiled: twoPhase}
	if len(handle) > 0 {
		h.phase, h.handle = phaseDecided, handle
	}
	return h
}

func (h *handover) next() action {
	switch {
	case h.phase == phaseDecided:
		return actionCommit
	case !h.spoiled:
		return actionWrite
	case h.phase == phaseOpen:
		return actionAbort
	}
	return actionWait
}

// wrote says that all before pos was handed over.
func (h *handover) wrote(pos topic.LogPosition) {
	h.written = pos
	if !h.twoPhase {
		h.done = pos
	}
}

// preparable tells whether something was written that a handle may be made for now.
func (h *handover) preparable() bool {
	return h.twoPhase && h.phase == phaseOpen && !h.spoiled && h.written != h.done
}

// prepared takes the handle for all that was written. An empty one means that there is
// nothing to commit.
func (h *handover) prepared(handle []byte) {
	h.done = h.written
	if len(handle) > 0 {
		h.phase, h.handle = phasePrepared, handle
	}
}

// spoil says that nobody knows what became of the records written since done.
func (h *handover) spoil() { h.spoiled = true }

// aborted says that they were dropped. They are to be written again, from done.
func (h *handover) aborted() { h.spoiled, h.written = false, h.done }

// report is what checkpoint n says of the delivery.
func (h *handover) report(n int64) (done topic.LogPosition, handle []byte) {
	if h.phase == phasePrepared {
		h.phase, h.n = phaseReported, n
	}
	return h.done, h.handle
}

// complete says that checkpoint n is complete, and tells whether that decides the handle.
func (h *handover) complete(n int64) (decided bool) {
	if h.phase != phaseReported || n < h.n {
		return false
	}
	h.phase = phaseDecided
	return true
}

// committed says that the sink has committed the handle.
func (h *handover) committed() { h.phase, h.handle = phaseOpen, nil }

// droppable tells, when the attempt is over, whether the sink has something that is not
// committed, and no checkpoint that may be complete names any of it.
func (h *handover) droppable() bool {
	return h.twoPhase && (h.phase == phasePrepared || h.phase == phaseOpen && (h.spoiled || h.written != h.done))
}
