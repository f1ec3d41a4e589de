// Package replication will copy partitions between the processes of one
// application and keep their common metadata, so that several nodes make a
// cluster without a broker. Nothing of it exists yet: a node stands alone, and
// this page says what the package is going to promise.
//
// # Promise
//
// A record that was acknowledged by a topic with a replica on every member of
// its committed in-sync set survives the loss of any of them. Results of a job
// are committed exactly once, whichever node leads its partitions.
//
// Metadata (topics, leadership, in-sync sets, registrations, groups, jobs,
// attempts, completed checkpoints) is one Raft group of three or five voters;
// every other peer is a learner. Checks that compare and set are made when an
// entry is applied, never before it is proposed. One node alone uses the same
// state machine over a local log, without Raft.
//
// # Invariants
//
//   - The high watermark moves only while the committed in-sync set has at least
//     the minimum, to the least log end offset over that set and any expansion
//     that is still pending. A follower's position counts only if it was reported
//     in the current leader epoch and, where every append is synced, once durable.
//   - One change of the in-sync set is in flight per partition. One whose outcome
//     is unknown stays pending; it is rolled back only on proof that it was not applied.
//   - A follower truncates by leader epoch, asking again until the epochs agree,
//     never to its own high watermark. A batch whose epoch is newer than the
//     fetch's is dropped.
//   - A replica that may have lost unsynced data is not eligible to lead until it
//     has caught up. Below the minimum, the replicas that still hold all committed
//     data stay electable; nobody else does.
//   - Data is deleted because the metadata says so about that very topic id, never
//     because the metadata does not mention it.
//   - A new leader serves transactions and the last stable offset only after its
//     state is rebuilt to the end of its log and transactions already decided are ended.
//   - Frames have bounded lengths and checksums: a hostile peer can cause an
//     error, never an allocation without bound.
package replication
