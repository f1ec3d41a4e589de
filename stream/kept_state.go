package stream

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// Viewable is what a View reads: a Table, or KeptState.
type Viewable[K, V any] interface{ viewed() viewed[K, V] }

// viewed is what rows are of, and how they are read.
type viewed[K, V any] struct {
	step   *step
	key    codec.Codec[K]
	stored *stored[K, V]
	err    error // why they cannot be
}

func (t Table[K, V]) viewed() viewed[K, V] {
	v := viewed[K, V]{step: t.n.step, key: t.n.key, stored: t.n.stored}
	if s := v.step; v.stored == nil {
		v.err = fmt.Errorf("stream: job %q: the table of step %q (%s) keeps no rows that can be read: make one of its changes that does, with ToStream().ToTable(), and read that", s.app.name, s.label(), s.line)
	}
	return v
}

// KeptState is what a step that gives a stream keeps for itself, to be read while its job runs:
// see Stream.State, Stream.Store and Stream.StoreInTime.
type KeptState[K, V any] struct{ v viewed[K, V] }

func (s KeptState[K, V]) viewed() viewed[K, V] { return s.v }

// State is what the step that gives the stream keeps of each key: Process its state S, with
// the time of the newest record or timer that asked for it; an aggregation under a Trigger the
// aggregate S of the window that is open, or of the last one where the trigger says Keep, with the highest event
// time of its records. Of another step, or another S, reading returns an error that says so.
func (s Stream[K, V]) State[S any]() KeptState[K, S] {
	step := s.n.step
	v := viewed[K, S]{step: step}
	i := slices.IndexFunc(step.stores, func(d *storeDecl) bool { return d.part == "" })
	switch cells := step.cells.(type) {
	case laidOut[S]:
		if v.key, v.err = step.app.codecs.Inner[K](); v.err == nil {
			v.stored = storedCells(v.key, step.stores[i], codec.Codec[cell[S]](cells))
		}
	case paneCodec[S]:
		if v.key, v.err = step.app.codecs.Inner[K](); v.err == nil {
			step.stores[i].readBy(cells)
			v.stored = storedValues(v.key, step.stores[i], func(encoded []byte) (row[S], error) {
				p, err := cells.Decode(encoded)
				return row[S]{p.value, p.time}, err
			})
		}
	default:
		v.err = fmt.Errorf("stream: job %q: the step %q (%s) keeps no state of type %v by key: call State on what Process or a Trigger gives, with the type that it keeps",
			step.app.name, step.label(), step.line, reflect.TypeFor[S]())
	}
	return KeptState[K, S]{v}
}

// Store is what h keeps for the Process that gives the stream. A row has the time at which it was
// put, by the clock of the store's TTL. Each task has a store of its own: a walk goes through those of all
// tasks, and a key that several of them have put has several rows; Get gives one of those. An
// entry that has had its time may still be there for a moment.
func (s Stream[K, V]) Store[K2, V2 any](h state.KV[K2, V2]) KeptState[K2, V2] {
	v := viewed[K2, V2]{step: s.n.step}
	d, err := s.n.step.storeOf(h)
	var entries state.Entries[K2, V2]
	if err == nil {
		entries, err = h.Entries(&s.n.step.app.codecs)
	}
	if v.err = err; err == nil {
		d.readBy(entries.Values)
		v.key = entries.Key
		v.stored = storedValues(v.key, d, func(encoded []byte) (row[V2], error) {
			all, err := entries.Of(encoded)
			if err != nil {
				return row[V2]{}, err
			}
			return row[V2]{all[0].Value, all[0].From}, nil
		})
		v.stored.anywhere = true
	}
	return KeptState[K2, V2]{v}
}

// StoreInTime is Store of values in time. The rows of a state.Window start and end at the time
// of the value, those of a state.Session have its span, and those of a state.Versioned start and
// end where the version begins; a version that says there is no value has none. Windows walks
// those of a key.
func (s Stream[K, V]) StoreInTime[K2, V2 any](h state.Series[K2, V2]) KeptState[window.Key[K2], V2] {
	v := viewed[window.Key[K2], V2]{step: s.n.step}
	d, err := s.n.step.storeOf(h)
	var entries state.Entries[K2, V2]
	if err == nil {
		entries, err = h.Entries(&s.n.step.app.codecs)
	}
	if err == nil {
		v.key, err = s.n.step.app.codecs.Inner[window.Key[K2]]()
	}
	if v.err = err; err == nil {
		d.readBy(entries.Values)
		v.stored = storedSeries[K2](v.key, entries.Key, d, entries.Of)
		v.stored.anywhere = true
	}
	return KeptState[window.Key[K2], V2]{v}
}

// storeOf finds a store of the program's.
func (s *step) storeOf(h state.Handle) (*storeDecl, error) {
	why := "was not given it: call Store on what the Process gives that uses it"
	for _, used := range s.used {
		if used.handle.Name() != h.Name() {
			continue
		}
		switch {
		case reflect.TypeOf(used.handle) != reflect.TypeOf(h):
			why = "has one of other types"
		case used.kept == nil:
			why = "keeps it in memory only, since it has NoChangelog"
		default:
			return used.kept, nil
		}
	}
	return nil, fmt.Errorf("stream: job %q: the store %q cannot be read, the step %q (%s) %s", s.app.name, h.Name(), s.label(), s.line, why)
}
