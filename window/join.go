package window

import (
	"fmt"
	"strings"
	"time"
)

// Join describes which records of two streams match by their event times: a right
// one from `from` to `to` after the left one, both ends included. Within and
// Between make one; it is a plain value.
//
// A record is open as long as a match may come that is not late: a left one until
// the watermark is past its time, and past that of the last right record that
// matches, by more than the grace; a right one likewise. One that comes when it is
// closed is late. A pair is formed if the one that came first is still open when
// the other comes, and the other is not late. So records of which one is closed
// are never a pair, and "no match" said of a closed record stays true.
type Join struct{ from, to, grace time.Duration }

// Within matches records whose times are at most d apart.
func Within(d time.Duration) Join { return Join{from: -d, to: d} }

// Between matches a right record that comes from `from` to `to` after the left
// one; both may be negative, which is before it.
func Between(from, to time.Duration) Join { return Join{from: from, to: to} }

// Grace keeps a record open for d longer.
func (j Join) Grace(d time.Duration) Join { j.grace = d; return j }

// Err returns every fault in j, or nil.
func (j Join) Err() error {
	f := faults{of: j}
	if j.from > j.to {
		f.add("from %v to %v is no time at all; the lower bound comes first", j.from, j.to)
	}
	f.whole("lower bound", j.from)
	if j.from != -j.to {
		f.whole("upper bound", j.to)
	}
	f.grace(j.grace, false)
	return f.err()
}

// String describes j, as in "within 1m0s grace 5s".
func (j Join) String() string {
	var b strings.Builder
	if j.from == -j.to {
		fmt.Fprintf(&b, "within %v", j.to)
	} else {
		fmt.Fprintf(&b, "between %v and %v", j.from, j.to)
	}
	describeTail(&b, j.grace, false)
	return b.String()
}

// Matches tells whether records at two times match.
func (j Join) Matches(left, right int64) bool {
	from, to := j.Rights(left)
	return from <= right && right <= to
}

// Rights are the least and the greatest time of a right record that matches a left
// one.
func (j Join) Rights(left int64) (from, to int64) {
	return saturatingAdd(left, j.from.Milliseconds()), saturatingAdd(left, j.to.Milliseconds())
}

// Lefts are the least and the greatest time of a left record that matches a right
// one.
func (j Join) Lefts(right int64) (from, to int64) {
	return saturatingAdd(right, -j.to.Milliseconds()), saturatingAdd(right, -j.from.Milliseconds())
}

// LeftClosesAt is the least watermark that closes a left record at t: nothing that
// matches it can come any more. Where it had no match, now that is certain, and
// the record may be forgotten.
func (j Join) LeftClosesAt(t int64) int64 { return j.closesAt(t, j.to) }

// RightClosesAt is the least watermark that closes a right record at t.
func (j Join) RightClosesAt(t int64) int64 { return j.closesAt(t, -j.from) }

// LeftClosed tells whether watermark w closes a left record at t. One that comes
// then is late.
func (j Join) LeftClosed(t, w int64) bool { return w >= j.LeftClosesAt(t) }

// RightClosed tells whether watermark w closes a right record at t. One that comes
// then is late.
func (j Join) RightClosed(t, w int64) bool { return w >= j.RightClosesAt(t) }

// OldestOpen is a time that no result to come after watermark w is before: those
// of records that are open then, and of those that are yet to come.
func (j Join) OldestOpen(w int64) int64 {
	if w == EndOfTime || w == Unknown {
		return w
	}
	longest := max(j.to, -j.from, 0)
	return saturatingAdd(saturatingAdd(w, -longest.Milliseconds()), -j.grace.Milliseconds())
}

// closesAt is when a record at t closes whose last match comes `after` it. Where
// that is before it, it is not late before its time.
func (j Join) closesAt(t int64, after time.Duration) int64 {
	last := saturatingAdd(t, max(after, 0).Milliseconds())
	return saturatingAdd(saturatingAdd(last, j.grace.Milliseconds()), 1)
}
