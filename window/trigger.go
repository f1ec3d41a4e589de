package window

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Trigger says when the global window of a key, which holds all its records and has
// no end, gives a result: Count(100) after every hundred records, and so on. After
// a result the window begins anew, which makes windows of a count; with Keep it
// goes on. What is in it when the input ends gives a last result. It is a plain
// value that can be compared.
type Trigger struct {
	count       int64
	after, wall time.Duration
	keep        bool
}

// Count gives a result with every n-th record of a key.
func Count(n int64) Trigger { return Trigger{count: n} }

// After gives a result once the watermark is d past the lowest event time of the
// records since the last one.
func After(d time.Duration) Trigger { return Trigger{after: d} }

// AfterWall gives a result once the clock on the wall is d past the time at which
// the first record since the last one was processed.
func AfterWall(d time.Duration) Trigger { return Trigger{wall: d} }

// Or gives a result when either of two triggers does: Count(100).Or(After(d)).
// Of two counts, or two times, the lesser decides.
func (t Trigger) Or(u Trigger) Trigger {
	return Trigger{
		count: lesser(t.count, u.count), after: lesser(t.after, u.after), wall: lesser(t.wall, u.wall),
		keep: t.keep || u.keep,
	}
}

// lesser is the lesser of two that are set, where zero is not.
func lesser[T ~int64](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Keep lets the aggregate go on after a result instead of beginning anew.
func (t Trigger) Keep() Trigger { t.keep = true; return t }

// Keeps tells whether the aggregate goes on after a result.
func (t Trigger) Keeps() bool { return t.keep }

// IsTimed tells whether a time has a say.
func (t Trigger) IsTimed() bool { return t.after > 0 || t.wall > 0 }

// Err returns every fault in t, or nil.
func (t Trigger) Err() error {
	f := faults{of: t}
	if t.count == 0 && t.after == 0 && t.wall == 0 {
		f.add("it never gives a result; say Count, After, AfterWall or Until")
	}
	t.check(&f)
	return f.err()
}

func (t Trigger) check(f *faults) {
	if t.count < 0 {
		f.add("the count is %d and must be positive", t.count)
	}
	if t.after != 0 {
		f.positive("event time", t.after)
	}
	if t.wall != 0 {
		f.positive("time", t.wall)
	}
}

// String describes t, as in "count 100 or after 1m0s".
func (t Trigger) String() string {
	var parts []string
	if t.count != 0 {
		parts = append(parts, fmt.Sprintf("count %d", t.count))
	}
	if t.after != 0 {
		parts = append(parts, fmt.Sprintf("after %v", t.after))
	}
	if t.wall != 0 {
		parts = append(parts, fmt.Sprintf("after %v by the clock", t.wall))
	}
	s := strings.Join(parts, " or ")
	if s == "" {
		s = "never"
	}
	if t.keep {
		s += ", kept"
	}
	return s
}

// Pane is what a trigger knows of the records of a key since the last result. The
// zero value has none, and is what a pane is after a result.
type Pane struct {
	Count  int64 // records
	Lowest int64 // event time, once there is a record
	Since  int64 // time at which the first one was processed, Unix ms, likewise
}

// Add takes a record with event time at, processed at now, into the pane and tells
// whether that gives a result.
func (t Trigger) Add(p *Pane, at, now int64) (fires bool) {
	if p.Count == 0 {
		p.Lowest, p.Since = at, now
	}
	p.Count++
	p.Lowest = min(p.Lowest, at)
	return t.count > 0 && p.Count >= t.count
}

// DueAt is the least watermark that gives a result of a pane with records:
// EndOfTime where only the end of the input does.
func (t Trigger) DueAt(p Pane) int64 {
	if t.after == 0 {
		return EndOfTime
	}
	return saturatingAdd(p.Lowest, t.after.Milliseconds())
}

// DueAtWall is the time, in Unix ms, that gives a result of a pane with records: the
// highest there is where no such time does.
func (t Trigger) DueAtWall(p Pane) int64 {
	if t.wall == 0 {
		return math.MaxInt64
	}
	return saturatingAdd(p.Since, t.wall.Milliseconds())
}

// TriggerBy is a Trigger of values V that a function decides on as well. Until
// makes one.
type TriggerBy[V any] struct {
	Trigger
	until func(V) bool
}

// Until gives a result with every value of which f says true.
func Until[V any](f func(V) bool) TriggerBy[V] { return TriggerBy[V]{until: f} }

// Or gives a result when t does or u.
func (t TriggerBy[V]) Or(u Trigger) TriggerBy[V] { t.Trigger = t.Trigger.Or(u); return t }

// Keep lets the aggregate go on after a result instead of beginning anew.
func (t TriggerBy[V]) Keep() TriggerBy[V] { t.Trigger.keep = true; return t }

// Err returns every fault in t, or nil.
func (t TriggerBy[V]) Err() error {
	f := faults{of: t}
	if t.until == nil {
		f.add("the function that decides is nil")
	}
	t.check(&f)
	return f.err()
}

// String describes t, as in "count 100 or until a value says so".
func (t TriggerBy[V]) String() string {
	if t.Trigger == (Trigger{keep: t.keep}) {
		return strings.Replace(t.Trigger.String(), "never", "until a value says so", 1)
	}
	return "until a value says so or " + t.Trigger.String()
}

// Says tells whether a value gives a result.
func (t TriggerBy[V]) Says(v V) bool { return t.until(v) }

// Add takes a record into the pane as Trigger.Add does.
func (t TriggerBy[V]) Add(p *Pane, v V, at, now int64) (fires bool) {
	return t.Trigger.Add(p, at, now) || t.until(v)
}
