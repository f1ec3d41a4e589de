package stream

import (
	"fmt"
	"time"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/window"
)

// SessionWindowed is a grouped stream in sessions, in front of an aggregation.
//
// A session of a key lasts as long as its records follow each other without a gap; its
// window is from its first to its last event time, both included. It closes once the
// watermark is more than gap and grace past its last, and never changes then. A record
// that lies within a gap of several open sessions makes them one: their aggregates are
// merged, the oldest first, and the record is added to that.
//
// A record is late where a session of it alone would be closed and it joins none that is
// open: it goes to Late and changes nothing else, and is counted where nothing reads Late.
// Sessions of processing time are as windows of it; see Windowed.
// A result has the highest event time of its session. Results come in the order in
// which sessions close; those of one instant by their end, then start, then key.
//
// Kept are the open sessions of each key with their aggregates, and a timer for each.
type SessionWindowed[K, V any] struct {
	g    *grouping[K, V]
	spec window.Session
	at   func(t int64, v V) window.Span // of a record alone, where each has a gap of its own; else nil
	emit window.Emit
	late *lateSide[K, V]
}

// lateSide is what reads the late records of a windowed stream whose state it takes to
// tell which are late: the first aggregation of the stream hands them on.
type lateSide[K, V any] struct {
	teller *step // that aggregation; nil where there is none
	nodes  []*node[K, V]
}

// open opens what reads the late records, in the aggregation s; counted tells that nothing
// does.
func (l *lateSide[K, V]) open(o *opening, s *step) (late port[K, V], counted bool) {
	if l.teller != s {
		return fanOut[K, V](nil), len(l.nodes) == 0
	}
	ports := make([]port[K, V], len(l.nodes))
	for i, n := range l.nodes {
		ports[i] = n.open(o)
	}
	return fanOut(ports), len(ports) == 0
}

// declare adds a stream of late records behind g.
func (l *lateSide[K, V]) declare(g *grouping[K, V]) Stream[K, V] {
	s := g.behind("late", true)
	s.check = func() string {
		if l.teller == nil {
			return "Late of windows that take an aggregation to know what is late: add Count, Reduce or Aggregate to the same windows"
		}
		return ""
	}
	out := &node[K, V]{step: s}
	l.nodes = append(l.nodes, out)
	return Stream[K, V]{out}
}

// Session puts the records of each key into sessions.
func (g Grouped[K, V]) Session(spec window.Session) SessionWindowed[K, V] {
	return sessions(g, spec, spec.Err(), nil)
}

// SessionBy puts the records of each key into sessions in which every record tells how
// long it is waited after. Results come in the order in which sessions close, which need
// not be that of their ends. What is in windows behind them may find a result late
// if its session was made by a record that came out of order and had a longer gap than any
// before.
func (g Grouped[K, V]) SessionBy(spec window.SessionBy[V]) SessionWindowed[K, V] {
	return sessions(g, spec.Session, spec.Err(), spec.At)
}

func sessions[K, V any](g Grouped[K, V], spec window.Session, fault error, at func(int64, V) window.Span) SessionWindowed[K, V] {
	if fault != nil {
		g.g.step.app.fault("session", fault.Error())
	}
	return SessionWindowed[K, V]{g: g.g, spec: spec, at: at, late: new(lateSide[K, V])}
}

// Emit sets when the aggregation emits: OnClose, the default, once for each session when it
// closes; OnUpdate with every change; for Every, Early and LateUpdates see there, and
// HeaderResult for how their results are marked. A session that grows changes its window: with
// its next result the one of the old window is deleted, and those of all sessions that
// have become one.
func (w SessionWindowed[K, V]) Emit(e window.Emit) SessionWindowed[K, V] {
	requireWindowEmit(w.g.step.app, e)
	w.emit = e
	return w
}

// Late gives the records that come after their sessions have closed, as they came. Which
// those are takes the state of an aggregation: of several of the same windows, the
// first one declared tells.
func (w SessionWindowed[K, V]) Late[_ lazily[V]]() Stream[K, V] {
	if w.spec.IsProcessingTime() {
		w.g.step.app.fault("late", fmt.Sprintf("none is late by the clock, in a %v: take sessions of event time, or leave Late out", w.spec))
	}
	return w.late.declare(w.g)
}

// Count counts the records of each session.
func (w SessionWindowed[K, V]) Count[WK window.KeyOf[K]]() Table[WK, int64] {
	return Table[WK, int64]{aggregateSessions[K, V, WK, int64](w, w.g.behind("count", false), count[V], func(a, b int64) int64 { return a + b })}
}

// Reduce folds the values of each session; the first one is where it begins. Sessions that
// become one are folded alike.
func (w SessionWindowed[K, V]) Reduce[WK window.KeyOf[K]](f func(V, V) V) Table[WK, V] {
	s := w.g.behind("reduce", true)
	requireFunc(s, f == nil)
	return Table[WK, V]{aggregateSessions[K, V, WK, V](w, s, reduce(f), f)}
}

// Aggregate folds the values of each session into an A, which begins as its zero value.
// merge makes one of those of two sessions, of which the first is the older; it may change
// its arguments.
func (w SessionWindowed[K, V]) Aggregate[A any, WK window.KeyOf[K]](add func(A, V) A, merge func(A, A) A) Table[WK, A] {
	s := w.g.behind("aggregate", true)
	requireFunc(s, add == nil || merge == nil)
	return Table[WK, A]{aggregateSessions[K, V, WK, A](w, s, accumulate(add), merge)}
}

func aggregateSessions[K, V any, WK window.KeyOf[K], A any](w SessionWindowed[K, V], s *step, f fold[A, V], merge func(A, A) A) *tableNode[WK, A] {
	n := newTable[WK, A](s)
	guards[K, V](s)
	// Results are emitted when they are made, and are not kept once their session has closed.
	n.each, n.kept, n.settled = true, false, w.emit == window.OnClose
	n.closing = func(k WK) int64 { return window.Key[K](k).End.UnixMilli() }
	inWindows(s, n.key, w.g.key)
	if w.late.teller == nil {
		w.late.teller = s
	}
	w.g.keepValue = w.g.keepValue || w.at != nil
	rows, timers := s.keep("").ownKeys(), s.keep("timers").keysBehind(timerBytes)
	changed := keepChanged(s, w.emit, 0)
	s.checkToo(func() string { return checkMarked(w.emit, n.wantsOld()) })
	value, l := layoutOf[K, A](s, w.spec.Grace(0).String()+", ")
	codec := sessionsCodec[A]{value, l}
	key := w.g.key
	n.stored = storedSessions[K](n, key, rows, codec)
	w.g.downs = append(w.g.downs, func(o *opening) engine.KeyedPort[V] {
		a := &sessioning[K, V, A]{t: o.task, step: s.id, spec: w.spec, alone: w.at, longest: w.spec.GapMs(), key: key, fold: f, merge: merge,
			emits: w.emit, w: window.Unknown}
		out := n.openTable(o)
		a.old, a.down = out.old && w.emit == window.OnUpdate, out.Watermark
		own := engine.Meta{Offset: -1}
		headers := marksOf(w.emit)
		a.marked = headers != nil
		a.change = func(key K, span window.Span, c change[A], mark window.Mark) {
			own.Time = span.Last
			headers.mark(&own, mark)
			out.change(&own, WK(window.Key[K]{Key: key, Start: time.UnixMilli(span.First).UTC(), End: time.UnixMilli(span.Last).UTC()}), c)
		}
		a.ticks = openTicks(o, s, changed, w.emit, a.ticked)
		a.late, a.counted = w.late.open(o, s)
		a.idle = fanOut([]port[K, V]{{Idle: out.Idle}, {Idle: a.late.Idle}}).Idle
		a.clone = newCloner(value)
		a.guard = openGuard[K, V](o, s)
		port := a.open(o, rows, timers, codec)
		if w.spec.IsProcessingTime() && port.Push != nil {
			port = byWall(o, s, port, a.next)
		}
		return port
	})
	return n
}
