// Package log stores partitions as append-only sequences of record batches in
// segment files.
//
// A Log is a directory of topics, a Partition one sequence of records in it. A
// partition takes encoded batches (see BatchBuilder) from any number of callers,
// one at a time, and gives them to any number of Readers, who see them in place.
// Format and layout are Kafka's, byte for byte; docs/formats.md says what is ours.
// OpenReadOnly reads a directory of ours or of a broker as it lies.
//
// # What is promised
//
// What Append acknowledged is there after a restart: under SyncAlways after a power
// cut too, else after a killed process. A batch is there as a whole or not at all,
// and no offset is ever given to two records that anybody was told of under the
// same leader epoch.
//
// What a crash tore above the recovery point is cut away, counted in Recovery and
// logged; readers of a partition that does not sync may have seen it. Damage below
// is a *CorruptionError from Open, and damage met later one from the Reader; it is
// never cut away.
//
// The first failed write or sync is final: the partition answers ErrOffline until
// the log is opened again. A full disk is no such failure. The batch is refused,
// and the next one may fit.
//
// # Invariants
//
//	Start <= LastStable <= HighWatermark <= End, except that Start may be above
//	LastStable after DeleteBefore, and Durable <= End
//
//	HighWatermark = Durable under SyncAlways, else End; where the policy was
//	changed to SyncAlways, it stays where it was until Durable has reached it
//
// Offsets have no gaps, except where a partition was compacted, and there none
// between segments. Leader epochs never decrease from batch to batch.
//
// # Compaction
//
// Of a compacted topic the records go that have a newer one of their key, and
// deletions some time later (see TopicSpec). The newest segment stays as it is, and
// so does all that is not decided, or not on disk. What a reader that starts at
// Start or above Horizon gets adds up to what the whole log would have given.
//
// # Two places
//
// Of a topic with Remote, sealed segments are in an ObjectStore, too, and after a while
// only there. Start and all else a reader sees do not depend on it.
//
// # Lock order
//
// Log.admin, then Log.compacting, then Partition.compactMu, then Partition.syncMu, then Partition.mu, then Log.checkpointMu, then
// Log.mu and segment.indexMu. Appends hold Partition.mu, also while a segment is
// made; readers hold no lock, save indexMu when they seek.
//
// Below all of these, where a segment is opened or closed: openSegments.makingRoom, then
// segment.openMu, then openSegments.mu. Segments are closed with the first held, and
// each time with the second of that segment, if it is free.
package log
