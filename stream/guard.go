package stream

import (
	"fmt"
	"runtime/debug"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic/codec"
)

// guards makes the step one to which error policies apply: it gets K and V, and a
// failed function leaves nothing behind.
func guards[K, V any](s *step) {
	s.guarded = true
	s.letterCodecs = func() error {
		_, err := s.app.codecs.Of[K]()
		if err != nil {
			return err
		}
		_, err = s.app.codecs.Of[V]()
		return err
	}
}

// guard calls the functions of one step in one task under the step's error policy. It
// is nil under Fail: the fast path then is as if there were no policies.
type guard[K, V any] struct {
	calls    guardedCalls
	key      codec.Codec[K]
	value    codec.Codec[V]
	keyBuf   []byte
	valueBuf []byte
}

// guardedCalls is a guard as far as the type of the records does not matter.
type guardedCalls struct {
	t       *engine.Task
	step    *step
	name    string // of the step in dead letters
	policy  ErrorPolicy
	timer   string     // kind of the timer that is handled; empty for a record
	letters *letterbox // nil unless the policy is DeadLetter
}

// openGuard opens the guard of step s.
func openGuard[K, V any](o *opening, s *step) *guard[K, V] {
	p := s.policy()
	if p.fails() {
		return nil
	}
	g := &guard[K, V]{
		calls:  guardedCalls{t: o.task, step: s, name: s.label(), policy: p},
		keyBuf: make([]byte, 0, 64), valueBuf: make([]byte, 0, 256),
	}
	if p.letters != nil {
		var err error
		if g.calls.letters, err = o.openLetters(s, *p.letters); err != nil {
			o.fail(err)
		}
		// Validate has asked for both.
		g.key, _ = s.app.codecs.Of[K]()
		g.value, _ = s.app.codecs.Of[V]()
	}
	return g
}

// do calls f for a record, as often as the policy has it, and tells whether it
// succeeded in the end. Where it did not the record is dealt with. undo, where it is not
// nil, takes back what a failed call has done. The record's key is asked for only
// where it is needed.
func (g *guard[K, V]) do(m *engine.Meta, key func() (K, error), v *V, f func() error, undo func()) bool {
	ok, cause := g.calls.try(f, undo)
	if cause != nil {
		g.giveUp(m, key, v, cause)
	}
	return ok
}

// try calls f as often as the policy has it. Where it is not ok, cause is why, or nil
// where the job has ended meanwhile.
func (g *guardedCalls) try(f func() error, undo func()) (ok bool, cause error) {
	for n := 0; ; n++ {
		g.t.Running = g.step.id
		err := safely(f)
		if err == nil {
			return true, nil
		}
		if undo != nil {
			undo()
		}
		if n == g.policy.retries {
			return false, err
		}
		if !g.t.Sleep(g.policy.wait(n)) {
			g.t.Fail(g.step.id, fmt.Errorf("the job ended while the record waited to be tried again: %w", err))
			return false, nil
		}
	}
}

// quietly is do for what was dealt with before, or is only looked at: what fails for good is
// passed over, and not counted.
func (g *guardedCalls) quietly(f func() error) bool {
	for n := 0; ; n++ {
		g.t.Running = g.step.id
		err := safely(f)
		switch {
		case err == nil:
			return true
		case n == g.policy.retries && g.policy.verdict != verdictFail:
			return false
		case n == g.policy.retries:
			failStep(g.t, g.step.id, err)
			return false
		case !g.t.Sleep(g.policy.wait(n)):
			g.t.Fail(g.step.id, fmt.Errorf("the job ended while a row waited to be tried again: %w", err))
			return false
		}
	}
}

// rows is f under the guard for the rows of a table: made for one that comes to be, and looked for what
// one was and one that is looked up. A row for which f fails for good is none.
func (g *guard[K, V]) rows[R any](f func(K, V) (R, bool)) (made func(m *engine.Meta, k K, v *V) (R, bool), looked func(K, V) (R, bool)) {
	var (
		key   K
		value V
		r     R
		keep  bool
	)
	attempt := func() error {
		r, keep = f(key, value)
		return nil
	}
	keyOf := func() (K, error) { return key, nil }
	made = func(m *engine.Meta, k K, v *V) (R, bool) {
		key, value = k, *v
		ok := g.do(m, keyOf, v, attempt, nil)
		return r, ok && keep
	}
	looked = func(k K, v V) (R, bool) {
		key, value = k, v
		ok := g.calls.quietly(attempt)
		return r, ok && keep
	}
	return made, looked
}

// outside is f for those who read the rows of a table of the step beside its tasks: where what fails is
// passed over, they do so too.
func outside[A, B, R any](s *step, f func(A, B) (R, bool)) func(A, B) (R, bool) {
	return func(a A, b B) (r R, ok bool) {
		if s.policy().verdict == verdictFail {
			return f(a, b)
		}
		if safely(func() error {
			r, ok = f(a, b)
			return nil
		}) != nil {
			var none R
			return none, false
		}
		return r, ok
	}
}

// safely calls f and makes an error of its panic. The end of the goroutine is not to be
// held up.
func safely(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicked{engine.PanicError{Value: r}, debug.Stack()}
		}
	}()
	return f()
}

// panicked is a panic on its way to whoever deals with it.
type panicked struct {
	engine.PanicError
	stack []byte
}

func (p *panicked) Unwrap() error { return &p.PanicError }

// Trace is where it came from.
func (p *panicked) Trace() []byte { return p.stack }

// giveUp deals with a record for which the function has failed for good.
func (g *guard[K, V]) giveUp(m *engine.Meta, key func() (K, error), v *V, cause error) {
	l, wanted := g.calls.skip(m, cause)
	if !wanted {
		return
	}
	if !m.NoKey {
		k, err := key()
		if err == nil {
			g.keyBuf, err = g.key.Append(g.keyBuf[:0], k)
		}
		if err != nil {
			g.calls.unwritten(l, "key", err)
			return
		}
		l.key = g.keyBuf
	}
	if v != nil && !m.Deleted {
		var err error
		if g.valueBuf, err = g.value.Append(g.valueBuf[:0], *v); err != nil {
			g.calls.unwritten(l, "value", err)
			return
		}
		l.value = g.valueBuf
	}
	g.calls.letters.write(l)
}

// skip counts a record for which the function has failed for good, or ends the attempt. It
// returns the dead letter, without key and value, where one is wanted.
func (g *guardedCalls) skip(m *engine.Meta, cause error) (l letter, wanted bool) {
	if g.policy.verdict == verdictFail {
		failStep(g.t, g.step.id, cause)
		return l, false
	}
	var stack []byte
	if p, ok := cause.(*panicked); ok {
		cause, stack = &p.PanicError, p.stack
	}
	g.t.Skipped(g.step.id, cause, stack)
	if g.policy.verdict == verdictSkip {
		g.t.Counters().Skipped++
		return l, false
	}
	g.t.Counters().DeadLetters++
	return letter{meta: m, step: g.name, cause: cause, timer: g.timer}, true
}

// unwritten ends the attempt over a dead letter of which something has no encoding.
func (g *guardedCalls) unwritten(l letter, what string, err error) {
	g.t.Fail(g.step.id, fmt.Errorf("write the dead letter: encode %s: %w, of a record that failed with %w", what, err, l.cause))
}

// failStep ends the attempt with an error of a step, which may be a panic caught on the way.
func failStep(t *engine.Task, step int, err error) {
	if p, ok := err.(*panicked); ok {
		t.FailWith(step, &p.PanicError, p.stack)
		return
	}
	t.Fail(step, err)
}

// call is f under the guard; ok is false where it failed for good.
func (g *guard[K, V]) call[R any](f func(K, *V) (R, error)) func(m *engine.Meta, k K, v *V) (r R, ok bool) {
	var (
		key          K
		value, given V
		r            R
	)
	attempt := func() (err error) {
		given = value // a call that fails may have changed it
		r, err = f(key, &given)
		return err
	}
	keyOf := func() (K, error) { return key, nil }
	return func(m *engine.Meta, k K, v *V) (R, bool) {
		key, value = k, *v
		ok := g.do(m, keyOf, v, attempt, nil)
		return r, ok
	}
}

// guardSource is the guard as a source calls it; nil without one.
func guardSource(g *guard[[]byte, []byte]) func(m *engine.Meta, key, value []byte, load func() error) bool {
	if g == nil {
		return nil
	}
	var k, v []byte
	keyOf := func() ([]byte, error) { return k, nil }
	return func(m *engine.Meta, key, value []byte, load func() error) bool {
		k, v = key, value
		return g.do(m, keyOf, &v, load, nil)
	}
}

// guardFold is a fold under a guard, in one task: what it changed in the aggregate before
// it failed is taken back.
func guardFold[K, V, A any](o *opening, s *step, keys codec.Codec[K], clone *cloner[A], f fold[A, V]) func(m *engine.Meta, key []byte, a *A, first bool, v *V) (ok bool) {
	g := openGuard[K, V](o, s)
	if g == nil {
		return nil
	}
	var (
		encoded []byte
		a       *A
		was     A // what it was
		first   bool
		value   *V
	)
	attempt := func() error {
		f(a, first, value)
		return nil
	}
	var err error
	undo := func() {
		if first {
			*a = was
		} else if *a, err = clone.clone(&was); err != nil { // the next call may change it again
			g.calls.t.Fail(s.id, fmt.Errorf("take back what a failed function did: %w", err))
		}
	}
	keyOf := func() (K, error) { return keys.Decode(encoded) }
	return func(m *engine.Meta, key []byte, into *A, isFirst bool, v *V) bool {
		encoded, a, first, value = key, into, isFirst, v
		var zero A
		if was = zero; !first {
			if was, err = clone.clone(a); err != nil {
				g.calls.t.Fail(s.id, fmt.Errorf("keep what the aggregate is before a function changes it: %w", err))
				return false
			}
		}
		return g.do(m, keyOf, v, attempt, undo)
	}
}
