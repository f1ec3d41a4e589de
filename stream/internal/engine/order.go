package engine

import "math"

// An ordered task reads several inputs whose records meet, as those of a join do. It
// takes them by event time: of what its lanes have next, the record with the lowest
// time, and of two with the same time that of the input opened first. Records of
// one lane keep their order, whatever their times; one that comes straight from a source which had
// newer ones before has the place of the newest of these, also where that went to another task. So the
// order of all is that of the sources, and a barrier between records of it does not change it.
//
// So what a record finds in the state does not depend on how fast which input was read,
// as far as that can be had: a lane with nothing to read is waited for until its sender
// says that nothing is on its way (it is at rest), or that nothing that old is to come
// (its watermark), or has delivered a barrier that others have not: to wait then
// would be to wait for ever. What is done when tasks wait for each other in a circle is
// in waits.go.

// headKind is what a lane has to say about its next record.
type headKind uint8

const (
	headRecord headKind = iota // here it is
	headBound                  // not here; none before the given time is to come
	headQuiet                  // not to be waited for
	headAgain                  // a barrier went through, and what other lanes said is void
)

// ordered is an input that gives its records one by one.
type ordered interface {
	// width is the number of lanes.
	width() int
	// head prepares the next record of a lane and tells its event time.
	head(lane int) (time int64, kind headKind)
	// take pushes records of a lane for as long as there are any with a time up to
	// limit, n at most.
	take(lane int, limit int64, n int) (taken int)
	// lane is the lane whose head is a bound.
	lane(lane int) heldLane
}

// laneBound is what a lane without a record says of the next one.
type laneBound struct {
	in    ordered
	lane  int
	place int   // among all lanes of the task
	time  int64 // none before it is to come
}

// pollInOrder does a bounded piece of work on the inputs of an ordered task.
func (t *Task) pollInOrder() (worked bool) {
	for left := sourceRecords; left > 0 && t.err == nil && t.pausing == 0; {
		in, lane, limit, again := t.earliest()
		if again {
			worked = true
			continue
		}
		if in == nil {
			break
		}
		n := in.take(lane, limit, left)
		if n == 0 {
			break
		}
		left -= n
		worked = true
	}
	return worked
}

// earliest finds the lane whose record is next, and the time up to which the lane may be read
// before another one's turn comes. in is nil where there is none, or none yet.
func (t *Task) earliest() (in ordered, lane int, limit int64, again bool) {
	var best int64
	place, at := 0, 0
	t.awaited, t.bounds = t.awaited[:0], t.bounds[:0]
	limit = math.MaxInt64 // that other lanes set for the best one
	for _, input := range t.inputs {
		o := input.(ordered)
		for i := range o.width() {
			time, kind := o.head(i)
			if t.err != nil {
				return nil, 0, 0, false
			}
			place++
			switch {
			case kind == headAgain:
				return nil, 0, 0, true
			case kind == headRecord && (in == nil || time < best):
				if in != nil {
					// The best so far came before this one, which so must be earlier, and may go
					// on until that one's turn.
					limit = min(limit, best-1)
				}
				in, lane, best, at = o, i, time, place
			case kind == headRecord:
				limit = min(limit, time)
			case kind == headBound:
				t.bounds = append(t.bounds, laneBound{o, i, place, time})
			}
		}
	}
	if in == nil {
		return nil, 0, 0, false
	}
	// A lane without a record holds the best back at its bound; one that comes before
	// it in order also at the very time. What came on it since it was asked has its turn later.
	for _, b := range t.bounds {
		bound := b.time
		if b.place < at && bound != math.MinInt64 {
			bound--
		}
		limit = min(limit, bound)
		if bound < best {
			t.awaited = append(t.awaited, b.in.lane(b.lane))
		}
	}
	if best > limit {
		return nil, 0, 0, false
	}
	return in, lane, limit, false
}

// atRest tells whether the task has nothing to read and its senders neither: what it
// has sent is all there is for now.
func (t *Task) atRest() bool {
	if t.stalled || t.hasCalls() {
		return false
	}
	for _, in := range t.inputs {
		if !in.atRest() {
			return false
		}
	}
	return true
}

// yieldLanes is called before the task waits for credit of one lane: who reads the others
// in order learns how far they are. With rest they are let go, too, as if nothing were to
// come on them.
func (t *Task) yieldLanes(rest bool) {
	for _, s := range t.senders {
		s.yield(rest)
	}
}
