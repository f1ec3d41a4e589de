package stream

import (
	"fmt"
	"time"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/window"
)

// Materialize says how a table keeps its rows: a value given to Table.As. Several may be
// given together.
type Materialize struct {
	backend state.Backend
	ttl     time.Duration
	wall    time.Duration
	history time.Duration
	problem string
}

// In keeps the rows in databases of b instead of the node's.
func In(b state.Backend) Materialize {
	m := Materialize{backend: b}
	if b == nil {
		m.problem = "In(nil): name a backend, state.Memory or state.Disk"
	}
	return m
}

// TTL lets a row go once the watermark has come to its time and d; what reads the table
// then sees it deleted, at that time. A row whose time is renewed stays. The end of a
// bounded run lets nothing go. A row that a run without TTL has made stays until it has been
// deleted once. d is in whole milliseconds, at least one.
func TTL(d time.Duration) Materialize {
	m := Materialize{ttl: d}
	if d < time.Millisecond || d%time.Millisecond != 0 {
		m.problem = fmt.Sprintf("TTL of %v: use whole milliseconds, at least one", d)
	}
	return m
}

// As names the table's step, and with it its store and its changelog. The name must
// stay as long as the state is to be found again. how says how the rows are kept, for a
// table that keeps rows: of a topic, of a stream, of an aggregation without windows.
func (t Table[K, V]) As(name string, how ...Materialize) Table[K, V] {
	s := t.n.step
	s.name, s.named = name, true
	for _, m := range how {
		if m.problem != "" {
			s.fault(m.problem)
			continue
		}
		if t.n.keeps == nil {
			s.fault("keeps no rows of its own: say how rows are kept at the topic, the stream or the aggregation they come from")
			return t
		}
		if m.backend != nil {
			t.n.keeps.backend = m.backend
		}
		if m.ttl > 0 {
			t.n.keeps.ttl = m.ttl
			if t.n.keeps.expiry == nil {
				t.n.keeps.expiry = s.keep("expiry").keysBehind(timerBytes)
			}
		}
		if m.wall > 0 {
			t.n.keeps.wall = m.wall
			if t.n.keeps.wallDue == nil {
				t.n.keeps.wallDue, t.n.keeps.renewed = s.keep("wall-expiry").keysBehind(timerBytes), s.keep("renewed").ownKeys()
			}
		}
		if m.history > 0 {
			t.n.keeps.history = m.history
			if t.n.keeps.past == nil {
				t.n.keeps.past = s.keep("past").ownedBy(pastOwner)
				t.n.keeps.pastDue = s.keep("past-due").timersOf(t.n.keeps.past)
			}
		}
	}
	for _, d := range s.stores {
		if t.n.keeps != nil {
			d.backend = t.n.keeps.backend
		}
	}
	return t
}

// keeping is how a table with a store of its own keeps its rows.
type keeping struct {
	backend state.Backend // nil takes the node's
	ttl     time.Duration // zero is for ever
	expiry  *storeDecl    // of the timers, where there is a ttl
	wall    time.Duration // the same by the node's clock
	wallDue *storeDecl    // of its timers
	renewed *storeDecl    // of when rows were renewed by the node's clock
	history time.Duration // zero is none
	past    *storeDecl    // of what rows were, where there is a history
	pastDue *storeDecl    // of its timers
}

// expiry lets rows go when their time has come. A row has a timer at its time and ttl,
// or at one that it had before: the timer finds it renewed, and is set again.
type expiry struct {
	ttl    int64
	timers *state.TimerQueue
}

func openExpiry(o *opening, k *keeping) *expiry {
	if k.ttl == 0 {
		return nil
	}
	store := o.openStore(k.expiry)
	if store == nil {
		return nil
	}
	timers := state.NewTimers(store.Store)
	store.SetTable(timers)
	return &expiry{ttl: k.ttl.Milliseconds(), timers: timers.Queue(0)}
}

// renew sets the timer of a row that had a time before, or had none, and has another now.
func (e *expiry) renew(key []byte, had bool, before, now int64) error {
	if had && now >= before {
		return nil
	}
	return e.timers.Add(later(now, e.ttl), key, 0)
}

// later is t and d, both in ms, and the last time that is not the end of time where that is beyond.
func later(t, d int64) int64 {
	if t > window.EndOfTime-1-d {
		return window.EndOfTime - 1
	}
	return t + d
}

// expire lets go the rows that are over at watermark w.
func (r *kept[K, V, A]) expire(w int64) {
	if w == window.EndOfTime {
		return
	}
	err := r.expiry.timers.Pop(w, func(at int64, encoded []byte, _ uint8) error {
		hash := state.Hash(encoded)
		c, ok, err := r.table.Get(hash, encoded)
		if err != nil || !ok {
			return err
		}
		if over := later(c.time, r.expiry.ttl); over > at {
			return r.expiry.timers.Add(over, encoded, 0)
		}
		return r.drop(hash, encoded, c, at)
	})
	if err != nil {
		r.t.Fail(r.step, err)
	}
}
