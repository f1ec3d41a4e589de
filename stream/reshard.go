package stream

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// resharded are the entries of the n shards of a store, each with the shard it belongs to in the
// stage.
func resharded(st *stage, d *storeDecl, n int, of func(shard int) iter.Seq2[state.Entry, error]) iter.Seq2[engine.ImportEntry, error] {
	if n == st.tasks {
		return asTheyAre(n, of)
	}
	return func(yield func(engine.ImportEntry, error) bool) {
		to, err := openResharding(d, n, st.tasks, of)
		if err != nil {
			yield(engine.ImportEntry{}, err)
			return
		}
		for i := range n {
			for e, err := range of(i) {
				var shards []int
				if err == nil {
					shards, err = to.place(i, &e)
				}
				if err != nil {
					yield(engine.ImportEntry{}, err)
					return
				}
				for _, shard := range shards {
					if !yield(engine.ImportEntry{Shard: shard, Entry: e}, nil) {
						return
					}
				}
			}
		}
	}
}

// asTheyAre are entries that stay in their shards.
func asTheyAre(n int, of func(shard int) iter.Seq2[state.Entry, error]) iter.Seq2[engine.ImportEntry, error] {
	return func(yield func(engine.ImportEntry, error) bool) {
		for i := range n {
			for e, err := range of(i) {
				if !yield(engine.ImportEntry{Shard: i, Entry: e}, err) || err != nil {
					return
				}
			}
		}
	}
}

// resharding places the entries of a store that moves to another number of shards.
type resharding struct {
	d        *storeDecl
	from, to int
	owner    func(stateKey []byte) ([]byte, error)
	schemas  map[string]bool // that all shards have
	time     []byte          // of all timers, where they are set together
	buf      []byte
	one      [1]int
	all      []int
}

func openResharding(d *storeDecl, from, to int, of func(shard int) iter.Seq2[state.Entry, error]) (*resharding, error) {
	r := &resharding{d: d, from: from, to: to, owner: d.placed(), schemas: make(map[string]bool)}
	for shard := range to {
		r.all = append(r.all, shard)
	}
	if !d.together {
		return r, nil
	}
	// Each task may have set its timers to another time: all go off at the first of them.
	for i := range from {
		for e, err := range of(i) {
			if err != nil {
				return nil, err
			}
			stateKey, ok := bytes.CutPrefix(e.Key, state.FirstValue())
			if !ok {
				continue
			}
			if len(stateKey) < timerBytes {
				return nil, errMoved
			}
			if time := stateKey[1:timerBytes]; r.time == nil || bytes.Compare(time, r.time) < 0 {
				r.time = bytes.Clone(time)
			}
			break
		}
	}
	return r, nil
}

var errMoved = errors.New("stream: damaged key in state that moves")

// place gives the shards that an entry of a shard belongs to, and makes its key what it is there.
func (r *resharding) place(shard int, e *state.Entry) ([]int, error) {
	stateKey, ok := bytes.CutPrefix(e.Key, state.FirstValue())
	switch {
	case !ok && r.schemas[string(e.Key)], ok && r.d.everywhere && shard > 0:
		return nil, nil
	case !ok:
		r.schemas[string(e.Key)] = true
		return r.all, nil
	case r.d.everywhere:
		return r.all, nil
	}
	key, err := r.owner(stateKey)
	if err != nil {
		return nil, fmt.Errorf("step %q: where state belongs: %w", r.d.name(), err)
	}
	switch {
	case r.d.numbered:
		n, rest, err := state.SplitWindowKey(stateKey)
		if err != nil {
			return nil, err
		}
		// Numbers of different shards stay different, and in their order.
		r.buf = state.AppendWindowKey(append(r.buf[:0], state.FirstValue()...), n*int64(r.from)+int64(shard), rest)
		e.Key = r.buf
	case topic.Partition(key, r.from) != shard:
		return nil, fmt.Errorf("step %q has state for key %x in shard %d, and that key belongs to shard %d of %d: state moves only from where it belongs; keep the number of tasks, or give the step another name with As to begin anew",
			r.d.name(), key, shard, topic.Partition(key, r.from), r.from)
	case r.time != nil:
		r.buf = append(append(r.buf[:0], e.Key...)[:0], e.Key...)
		copy(r.buf[len(e.Key)-len(stateKey)+1:], r.time)
		e.Key = r.buf
	}
	r.one[0] = topic.Partition(key, r.to)
	return r.one[:], nil
}

// errUnderWay says why a store of calls whose order counts cannot move as it is.
var errUnderWay = errors.New("calls are under way that keep the order of keys which were changed in the same task, and nobody can say which task that is: " +
	"let the job CatchUp in the number of tasks it had, and none is; Unordered gives the order up, KeyBy and Repartition in front of it move the keys to tasks of their own")

// placed tells, of a state key, the key by whose hash it is in a shard.
func (d *storeDecl) placed() func(stateKey []byte) ([]byte, error) {
	home, ok := homeOfInputs(d.step)
	switch {
	case !ok && !d.anyTask:
		return func([]byte) ([]byte, error) { return nil, errUnderWay }
	case !ok || home == nil: // not ok: in any shard
		return d.owner
	}
	return func(stateKey []byte) ([]byte, error) {
		key, err := d.owner(stateKey)
		if err != nil || len(key) == 0 && d.numbered { // of a record without a key
			return key, err
		}
		return home(key)
	}
}

// ownedAs says of a store of the program's what its handle does.
func (d *storeDecl) ownedAs(owner *state.Owner) {
	if owner == nil {
		d.stays = "its keys are the program's, and nobody can say to which key of the step an entry belongs: declare the store with Keyed or KeyedBy, where that is so"
		return
	}
	of, err := owner.Open(&d.step.app.codecs)
	if err != nil {
		d.step.fault(fmt.Sprintf("store %q: %v", d.part, err))
		return
	}
	d.ownedBy(of)
}

// staysWhy tells why the state cannot move between shards; empty where it can.
func (d *storeDecl) staysWhy() string {
	_, ok := homeOfInputs(d.step)
	switch {
	case d.everywhere:
		return ""
	case d.owner == nil:
		return d.stays
	case !ok && !d.numbered: // calls are not there for long
		return "its keys are not in the tasks that their hash says, and nobody can say where a key is"
	}
	return ""
}

// homeOf tells where the records are that s gives: in the task that the hash of their key says, or
// of what home makes of that key, encoded both, where home is not nil. ok is false where
// neither is known.
func homeOf(s *step) (home func(key []byte) ([]byte, error), ok bool) {
	switch {
	case s.group != nil && s.group.mustShuffle():
		return nil, true
	case s.source != nil, s.changeKey && s.home == nil:
		return nil, false
	}
	within, ok := homeOfInputs(s)
	switch {
	case !ok || s.home == nil:
		return within, ok
	case within == nil:
		return s.home, true
	}
	return func(key []byte) ([]byte, error) {
		key, err := s.home(key)
		if err != nil {
			return nil, err
		}
		return within(key)
	}, true
}

// homeOfInputs tells where the records are that s gets.
func homeOfInputs(s *step) (home func(key []byte) ([]byte, error), ok bool) {
	inputs := slices.DeleteFunc(slices.Clone(s.inputs), func(in *step) bool { return in.global != nil })
	if len(inputs) == 1 {
		return homeOf(inputs[0])
	}
	for _, in := range inputs {
		if home, ok := homeOf(in); !ok || home != nil {
			return nil, false
		}
	}
	return nil, len(inputs) > 0
}

// inWindows says that the step makes windows of keys, which are where their key is.
func inWindows[K any, WK window.KeyOf[K]](s *step, windows codec.Codec[WK], keys codec.Codec[K]) {
	s.changeKey = true
	s.home = func(encoded []byte) ([]byte, error) {
		k, err := windows.Decode(encoded)
		if err != nil {
			return nil, fmt.Errorf("decode key: %w", err)
		}
		return keys.Append(nil, window.Key[K](k).Key)
	}
}
