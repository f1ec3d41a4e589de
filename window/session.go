package window

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Session describes windows that last as long as the records of a key follow each
// other without a gap: two belong together when their event times are at most the
// gap apart. A session is from its first to its last event time, both included,
// and closes once the watermark is more than the gap and the grace past the last;
// then it never changes again. Gap makes one; it is a plain value.
type Session struct {
	gap, grace time.Duration
	processing bool
	own        bool // every record has a gap of its own
}

// Gap describes sessions that end with a silence of more than d.
func Gap(d time.Duration) Session { return Session{gap: d} }

// Grace keeps a session open for d longer than its gap.
func (s Session) Grace(d time.Duration) Session { s.grace = d; return s }

// ProcessingTime makes the sessions ones of the clock on the wall. See
// Spec.ProcessingTime.
func (s Session) ProcessingTime() Session { s.processing = true; return s }

// Err returns every fault in s, or nil.
func (s Session) Err() error {
	f := faults{of: s}
	if !s.own {
		f.positive("gap", s.gap)
	}
	f.grace(s.grace, s.processing)
	return f.err()
}

// String describes s, as in "session gap 30m0s grace 1m0s".
func (s Session) String() string {
	var b strings.Builder
	if s.own {
		b.WriteString("session gap of each record")
	} else {
		fmt.Fprintf(&b, "session gap %v", s.gap)
	}
	describeTail(&b, s.grace, s.processing)
	return b.String()
}

// IsProcessingTime tells whether the sessions are ones of the clock on the wall.
func (s Session) IsProcessingTime() bool { return s.processing }

// GraceMs is the grace in milliseconds.
func (s Session) GraceMs() int64 { return s.grace.Milliseconds() }

// At is the session of one record at t alone.
func (s Session) At(t int64) Span { return SpanAt(t, s.gap) }

// EndsAt is the least watermark at which all records of a session are there, but for
// those that come within the grace.
func (s Session) EndsAt(a Span) int64 { return saturatingAdd(a.Until, 1) }

// ClosesAt is the least watermark that closes a session.
func (s Session) ClosesAt(a Span) int64 { return saturatingAdd(s.EndsAt(a), s.GraceMs()) }

// Closed tells whether watermark w closes a session.
func (s Session) Closed(a Span, w int64) bool { return w >= s.ClosesAt(a) }

// GapMs is the gap in milliseconds, zero where every record has one of its own.
func (s Session) GapMs() int64 { return max(s.gap.Milliseconds(), 0) }

// OldestOpen is the lowest last event time of a session that watermark w leaves open,
// now or ever, where no gap is longer than longest ms: GapMs, or the longest that a
// record of its own had.
func (s Session) OldestOpen(w, longest int64) int64 {
	switch {
	case w == EndOfTime:
		return EndOfTime
	case w == Unknown:
		return Unknown
	}
	return saturatingAdd(saturatingAdd(w, -longest), -s.GraceMs())
}

// Merge finds what becomes of the sessions of a key when one more record comes at
// watermark w. a is the record alone; open are the key's sessions, those that Merge
// made, in the order of Until. It returns the session that the record is in then,
// and that it takes the place of open[from:to], none where it begins a new one.
//
// Sessions that w closes are left alone, wherever the record lies: it joins those
// still open, also where it is too old to begin one. It is late where there are
// none such, and then nothing changes.
func (s Session) Merge(open []Span, a Span, w int64) (merged Span, from, to int, late bool) {
	closed, _ := slices.BinarySearchFunc(open, w, func(b Span, w int64) int {
		if s.Closed(b, w) {
			return -1
		}
		return 1
	})
	from = closed
	for from < len(open) && open[from].Until < a.First {
		from++
	}
	merged, to = a, from // those still open lie apart, in the order of First as well
	for to < len(open) && open[to].First <= merged.Until {
		merged = merged.Union(open[to])
		to++
	}
	if s.Closed(merged, w) {
		return Span{}, 0, 0, true
	}
	return merged, from, to, false
}

// Span is a session of a key.
type Span struct {
	First, Last int64 // first and last event time, both included

	// Until is the last event time that still joins behind: First <= Last <= Until.
	Until int64
}

// SpanAt is the session of one record at t alone, with a gap behind it in whole
// milliseconds. One below zero counts as none: only records of the same time join.
func SpanAt(t int64, gap time.Duration) Span {
	return Span{First: t, Last: t, Until: saturatingAdd(t, max(gap.Milliseconds(), 0))}
}

// Joins tells whether two sessions are one: neither begins after the other one's
// gap is over.
func (a Span) Joins(b Span) bool { return a.First <= b.Until && b.First <= a.Until }

// Union is the session that two make together.
func (a Span) Union(b Span) Span {
	return Span{First: min(a.First, b.First), Last: max(a.Last, b.Last), Until: max(a.Until, b.Until)}
}

// SessionBy describes sessions of values V that each have a gap of their own: a
// record belongs to the session before it when it comes at most the gap of one of
// its records after that. GapBy makes one.
//
// Where the gaps differ, a record with a long one may come at the very time of a
// session that was closed with a short one. It begins another session with the
// same first and last time then, whose result takes the place of the other in a
// table.
type SessionBy[V any] struct {
	Session
	gap func(V) time.Duration
}

// GapBy describes sessions in which f tells how long a value is waited after.
func GapBy[V any](f func(V) time.Duration) SessionBy[V] {
	return SessionBy[V]{Session{own: true}, f}
}

// Grace keeps a session open for d longer than its gap.
func (s SessionBy[V]) Grace(d time.Duration) SessionBy[V] { s.Session.grace = d; return s }

// ProcessingTime makes the sessions ones of the clock on the wall. See
// Spec.ProcessingTime.
func (s SessionBy[V]) ProcessingTime() SessionBy[V] { s.Session.processing = true; return s }

// Err returns every fault in s, or nil.
func (s SessionBy[V]) Err() error {
	f := faults{of: s}
	if s.gap == nil {
		f.add("the function that tells the gap is nil")
	}
	f.grace(s.grace, s.processing)
	return f.err()
}

// At is the session of one record at t alone.
func (s SessionBy[V]) At(t int64, v V) Span { return SpanAt(t, s.gap(v)) }
