// Package checkpoint commits input positions, state and output together.
//
// A Plane is the log of one node with the metadata log beside it. A Session is
// one attempt of a job: its tasks read, write through the session's Writers and
// report at barriers; when all have reported, one entry in the metadata log
// commits everything they wrote and everything they read at once. That entry,
// Complete, is the commit point: before it nothing of the checkpoint counts,
// after it all of it does, whatever stops when.
//
// The same protocol without a job commits a plain transaction: a Transactor writes, and
// one entry commits what it wrote to any partitions and the positions of consumer groups.
//
// # The promise
//
// A killed process loses no completed checkpoint and counts no record twice. A
// power cut does the same where topics sync every append. Where they leave
// syncing to the operating system it may take the newest checkpoints: then the
// job falls back to the newest one that is still whole, may commit results a
// second time, and says so (Session.FellBack).
//
// # Invariants
//
//   - The verdict on a transaction is a function of the metadata log: named by a
//     Complete before its attempt ended it is committed, otherwise, once its
//     attempt has ended, aborted. Nothing else decides: no timer, no lost reply.
//   - The same goes for plain transactions and their owners, which abort by an entry too.
//   - A commit marker is written by whoever proposed the entry, by the next attempt of its
//     job, or at opening: others do not know whether the entry is durable.
//   - Only entries of a job's present attempt are accepted; a new attempt is
//     durable before anything is read for it.
//   - Nothing of checkpoint n+1 is appended anywhere before Complete(n).
//   - Every completed transaction is remembered until its markers are known to
//     be durable in every partition it touched.
//   - Checkpoints are compared by (attempt, n), never by n alone.
//
// # How the code is laid out
//
// Metadata, coordinator, gate, txn, Aligner and the leader's rules are values that
// take an event and answer with what is to be done: no goroutine, clock or file.
// The tests walk every interleaving of a small configuration over them. Plane,
// Session, Writer and Transactor are the shell that does the I/O.
//
// # Lock order
//
// Writer.mu, Session.mu; and Writer.mu, Transactor.mu or Plane.syncMu, Plane.proposeMu,
// a partition's lock in package log, Plane.stateMu, groupWatch.mu. A goroutine skips
// what it does not need and never takes an earlier one while it holds a later one.
// transactors.mu is a leaf. Hooks are called with none held.
package checkpoint
