// Package engine runs the tasks of one attempt of a job.
//
// A task reads one source partition, or the lanes of the exchanges that feed its
// stage, and pushes records through closures that package stream fused for it.
// Everything a task owns is touched by one goroutine: Task.Step does a bounded
// piece of work and never waits for input, so that the same code runs under a
// goroutine per task in production and under one goroutine in tests.
//
// # Invariants
//
//   - Records, watermarks and barriers of a lane arrive in the order they were sent.
//   - A task passes barrier n when every lane has delivered it, and reads nothing
//     more from a lane that has until then.
//   - Nothing of generation n+1 is appended before checkpoint n is complete: a
//     task's generation is at most one ahead, and outputs hold back what they have.
//   - A lane holds at most its credits in batches; the sender waits for more. It gets
//     more only where tasks would wait for each other for ever (waits.go).
//
// # Lock order
//
// waits.mu, then lane.mu, which is a leaf. No lock is held while a record is pushed, a batch is
// appended or the session is called.
package engine
