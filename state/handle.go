package state

import (
	"fmt"
	"time"

	"github.com/thalweg/thalweg/topic/codec"
)

// Scope is where handles of stores find them: a *stream.Context is one. Programs only pass
// it on.
type Scope interface{ Scope() Call }

// Call is a call of a program's function, as handles see it.
type Call interface {
	// Opened is the store of a handle that the step was given, in the task of the call; nil
	// where it was not given.
	Opened(name string) Opened

	// Fail keeps the first failure of the call: its effects are dropped, and later calls
	// do nothing.
	Fail(err error)

	// Err is the first failure.
	Err() error

	// Key is the encoded key of the step that the call is for, valid during the call.
	Key() []byte

	// Instant is how far time has come, in ms: the wall clock, or the further of event time
	// of the call and watermark.
	Instant(wall bool) int64

	// Undo registers what takes a change back if the call fails. Undoes is false where nobody
	// would: a failed call then ends the attempt.
	Undo(f func())
	Undoes() bool
}

// Handle is a store that a program declares, as a KV.
type Handle interface {
	// Name tells the stores of a step apart.
	Name() string

	// Spec is what the handle was declared with.
	Spec() Spec

	// Open makes the table of one task: over store, with its expiry in timers where the spec has
	// a TTL; over neither where it has no changelog.
	Open(store *Store, expiry *Timers, r *codec.Registry) (Opened, error)
}

// Opened is the table of a handle in one task.
type Opened interface {
	Barrier(n int64, put func(key, value []byte) error) error
	Passed(m Mark)
	Bytes() int64
	Dirty() int64
	SetBudget(bytes int64)
	Err() error

	// Expire removes what was to live up to an instant, by the clock of the spec.
	Expire(now int64) error

	// NextExpiry is when Expire has something to do.
	NextExpiry() (at int64, ok bool, err error)
}

// Spec is how a store is kept.
type Spec struct {
	TTL         time.Duration // zero is for ever
	Wall        bool          // TTL goes by the wall clock
	NoChangelog bool
	Backend     Backend // nil is the node's
	Owner       *Owner  // nil where any call may touch any entry
	fault       string
}

// Problem is what is wrong with the spec; empty when nothing is.
func (s Spec) Problem() string { return s.fault }

func (s *Spec) ttl(d time.Duration, wall bool) {
	if d < time.Millisecond {
		s.fault = fmt.Sprintf("TTL of %v: give a millisecond or more", d)
	}
	s.TTL, s.Wall = d, wall
}

// opened finds the table of a handle in a scope; ok is false where the call has failed.
func opened[T Opened](scope Scope, name string) (in Call, t T, ok bool) {
	in, o := openedIn(scope, name)
	if o == nil {
		return in, t, false
	}
	if t, ok = o.(T); !ok {
		in.Fail(fmt.Errorf("state: the step uses a store %q of other types than those of the handle", name))
	}
	return in, t, ok
}

// openedIn finds the table of a handle whatever its types; nil where the call has failed.
func openedIn(scope Scope, name string) (Call, Opened) {
	in := scope.Scope()
	if in.Err() != nil {
		return in, nil
	}
	o := in.Opened(name)
	if o == nil {
		in.Fail(fmt.Errorf("state: the step does not use the store %q: give it to Process", name))
	}
	return in, o
}
