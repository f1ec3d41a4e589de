package stream

import "github.com/thalweg/thalweg/window"

// asyncOrder decides which results of a MapAsync go on, and how far time may go. It is a
// value without I/O: it is told what arrives and which calls are over.
//
// Invariants: results of a key go on in the order in which its records arrived, unless
// it is unordered; a watermark, and that the input is idle, go on when nothing is pending
// that arrived before them.
type asyncOrder[E any] struct {
	unordered bool
	next      int64 // number of the record that arrives next

	oldest, newest *pendingCall[E] // of what is pending, in order of arrival
	pending        int
	ofKey          map[string]*pendingCall[E] // the newest of a key
	marks          []asyncMark                // what time waits for, oldest first
}

// pendingCall is a record that has arrived and not gone on.
type pendingCall[E any] struct {
	n    int64
	key  string
	item E

	over           bool // its call is
	held           bool // one of the same key is before it
	before, behind *pendingCall[E]
	ofKey          *pendingCall[E] // the next of its key
}

// asyncMark is a watermark, or that the input is idle, and its place: before record n.
type asyncMark struct {
	n    int64
	w    int64
	idle bool
}

// arrive takes the next record.
func (o *asyncOrder[E]) arrive(key string, item E) *pendingCall[E] {
	return o.restore(o.next, key, item)
}

// restore is arrive for a record whose number is known, at least next.
func (o *asyncOrder[E]) restore(n int64, key string, item E) *pendingCall[E] {
	c := &pendingCall[E]{n: n, key: key, item: item, before: o.newest}
	o.next = n + 1
	if o.newest != nil {
		o.newest.behind = c
	} else {
		o.oldest = c
	}
	o.newest = c
	o.pending++
	if o.unordered {
		return c
	}
	if o.ofKey == nil {
		o.ofKey = make(map[string]*pendingCall[E])
	}
	if last := o.ofKey[key]; last != nil {
		last.ofKey, c.held = c, true
	}
	o.ofKey[key] = c
	return c
}

// restoredCall is a record that was pending at a checkpoint.
type restoredCall[E any] struct {
	n    int64
	w    int64 // watermark of the input when it came
	key  string
	item E
}

// restoreAll takes up what was pending, by number, and calls begin for each. Records of several
// tasks may have come together: the watermark in front of one is that of it or of any behind
// it, the lowest, so that none is overtaken.
func (o *asyncOrder[E]) restoreAll(all []restoredCall[E], begin func(*pendingCall[E])) {
	for i := len(all) - 2; i >= 0; i-- {
		all[i].w = min(all[i].w, all[i+1].w)
	}
	before := window.Unknown
	for _, c := range all {
		if c.w != before {
			o.markBefore(c.n, c.w, false)
			before = c.w
		}
		begin(o.restore(c.n, c.key, c.item))
	}
}

// finish says that the call of c is over. What may go on now does, by calls of emit: c
// unless it is held, and those that it held.
func (o *asyncOrder[E]) finish(c *pendingCall[E], emit func(E)) {
	c.over = true
	for c != nil && c.over && !c.held {
		o.remove(c)
		emit(c.item)
		if c = c.ofKey; c != nil {
			c.held = false
		}
	}
}

func (o *asyncOrder[E]) remove(c *pendingCall[E]) {
	if c.before != nil {
		c.before.behind = c.behind
	} else {
		o.oldest = c.behind
	}
	if c.behind != nil {
		c.behind.before = c.before
	} else {
		o.newest = c.before
	}
	o.pending--
	if o.ofKey[c.key] == c {
		delete(o.ofKey, c.key)
	}
}

// first is the number of the oldest record pending, next where there is none.
func (o *asyncOrder[E]) first() int64 {
	if o.oldest == nil {
		return o.next
	}
	return o.oldest.n
}

// mark says what the time of the input is before the next record.
func (o *asyncOrder[E]) mark(w int64, idle bool) { o.markBefore(o.next, w, idle) }

func (o *asyncOrder[E]) markBefore(n, w int64, idle bool) {
	m := asyncMark{n, w, idle}
	if last := len(o.marks) - 1; last >= 0 && o.marks[last].n == n {
		o.marks[last] = m
		return
	}
	o.marks = append(o.marks, m)
}

// time takes the newest mark with nothing pending before it; ok is false where there is none.
func (o *asyncOrder[E]) time() (w int64, idle, ok bool) {
	w = window.Unknown
	first, passed := o.first(), 0
	for passed < len(o.marks) && o.marks[passed].n <= first {
		w, idle = max(w, o.marks[passed].w), o.marks[passed].idle
		passed++
	}
	if o.marks = o.marks[passed:]; len(o.marks) == 0 {
		o.marks = nil
	}
	return w, idle, passed > 0
}
