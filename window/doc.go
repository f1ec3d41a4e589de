// Package window holds pure functions of event time: which windows an event
// belongs to, how far time has come, and when a window is over. It does no I/O,
// reads no clock and starts no goroutine.
//
// Times are int64 milliseconds since 1970 in UTC, negative ones are as good as
// any other. Sums saturate at the ends of int64 instead of wrapping, so that
// one absurd event time cannot close or reopen anything else.
//
// # Windows
//
// A Spec describes windows of the clock (Tumbling, Hopping), of the calendar in a
// time zone (Days, Weeks, Months) and of the records of a key (Sliding). A Session
// lasts as long as the records of a key follow each other, a Trigger cuts them by
// their count, and a Join says which records of two streams match. Emit says when
// a window gives a result.
//
// # Watermarks
//
// Watermark w says that every record with an event time below w has been seen. A
// window is closed once w is past the last time it holds and the grace: one
// [start, end) with grace g once w >= end + g, one that includes its end, and a
// session that waits until end, once w > end + g. A record is late when all its
// windows are closed. With no allowance for disorder the watermark is the highest
// event time so far: a record first moves it, then it is judged.
//
// A Strategy says how the watermark of a source partition comes about, a Merge
// combines those of several inputs, and an Alignment makes the fast ones wait.
//
// # Invariants
//
//	Unknown <= watermark <= EndOfTime, and a watermark never goes back
//	First(t) <= Last(t) <= t < EndsAt(First(t)), the ends of int64 aside
//	EndsAt(start) <= ClosesAt(start), and Closed(start, w) = w >= ClosesAt(start)
//	OldestOpen(w) <= start of every window that w leaves open
package window
