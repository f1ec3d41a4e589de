// Package window holds pure functions of event time: which windows an event
// belongs to, how far time has come, and when a window is over. It does no I/O,
// reads no clock and starts no goroutine.
//
// Times are int64 milliseconds since 1970 in UTC, negative ones are as good as
// any other. Sums saturate at the ends of int64 instead of wrapping, so that
// one absurd event time cannot close or reopen anything else.
//
// # Watermarks
//
// Watermark w says that every record with an event time below w has been seen.
// A window [start, end) with grace g is closed once w >= end + g, and a record
// is late when all its windows are closed. With no allowance for disorder the
// watermark is the highest event time so far: a record first moves it, then it
// is judged.
//
// # Invariants
//
//	Unknown <= watermark <= EndOfTime, and a watermark never goes back
//	First(t) <= Last(t) <= t < End(First(t)), the ends of int64 aside
package window
