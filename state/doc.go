// Package state keeps the keyed state of stream tasks.
//
// State has two halves. The live half is a Table, a WindowTable or Timers: the values
// a task works on, decoded, in the task's own memory. The durable half is a Store:
// an ordered database that follows the state's changelog, a compacted partition
// of the log. A checkpoint writes what changed in the table to the changelog and
// touches the store not at all; the store comes after it, in the background.
//
//	task -> Table (overlay) --Barrier--> changelog --follower--> Store (DB)
//	          ^------------ a miss: Cache, then Store -----------'
//
// # Promises
//
//   - A store holds committed changes and nothing else: it is the fold of its
//     changelog up to the position it names, and that position is in the database
//     with the data. There is nothing to undo after a crash or a rollback; the
//     store replays the changelog from where it is. One that is ahead of where it
//     must be, or stands at a position its changelog does not have, is rebuilt
//     from the whole changelog.
//   - A table gives each of its keys one live value, changed in place, and
//     allocates nothing to look up or change a key it holds.
//
// # Invariants
//
//   - Below a store's position every decided record of the changelog is applied.
//     Above it some may be, up to the target written with the first of them, when
//     a crash interrupts a step; replaying up to that target or beyond puts each
//     such key right, since the newest change of a key wins. A store is therefore
//     rebuilt, not replayed, when it must stop short of its target.
//   - A key leaves the overlay only when the store has passed its last change. A
//     key that is not in the overlay has its newest committed value in the store.
//   - A value taken from the Cache is at least as new as the newest change of any
//     key of its bucket that left the overlay.
//   - A live value has one owner: the overlay or the cache, never both.
//
// # Databases
//
// Stores sit on a DB: Memory, or Disk, which is Pebble without its write-ahead
// log, because the changelog is one. After a crash such a database opens as it
// was at its last flush, a prefix of the batches applied, each whole.
//
// # Goroutines and locks
//
// A table belongs to its task and is not for concurrent use. A Store may be used
// concurrently; it owns one goroutine unless Manual is set. Its step semaphore is
// taken before Store.mu, and Store.mu is not held across I/O.
package state
